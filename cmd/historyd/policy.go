package main

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"historyd/internal/projection"
)

// policy builds the rules of projection, or says in the words of the
// configuration what is wrong with them.
func (s *settings) policy() (*projection.Policy, *problem) {
	o := projection.Options{
		MaxToolResultChars: s.Projection.MaxToolResultChars,
		UnknownTools:       s.Projection.UnknownTools,
		Withhold:           []projection.Withhold{}, // nil would be the default
	}
	for i, w := range s.Projection.Withhold {
		for j, part := range w.Parts {
			if part != "arguments" && part != "results" {
				return nil, &problem{
					key:  fmt.Sprintf("projection.withhold[%d].parts[%d]", i, j),
					text: fmt.Sprintf("want arguments or results, got %q", part),
				}
			}
		}
		o.Withhold = append(o.Withhold, projection.Withhold{
			Category:  w.Category,
			Arguments: slices.Contains(w.Parts, "arguments"),
			Results:   slices.Contains(w.Parts, "results"),
		})
	}
	for _, t := range s.Projection.Tools {
		o.Tools = append(o.Tools, projection.Rule{Match: t.Match, Category: t.Category})
	}
	p, err := projection.New(o)
	var wrong *projection.FieldError
	switch {
	case errors.As(err, &wrong):
		return nil, &problem{key: policyKey(wrong.Field), text: wrong.Err.Error()}
	case err != nil:
		return nil, &problem{key: "projection", text: err.Error()}
	}
	return p, nil
}

// checkRules says what is wrong with the rules of projection, with each by
// itself, so that none hides another.
func (s *settings) checkRules() problems {
	var bad problems
	check := func(list string, at, i int, rules settings) bool {
		_, wrong := rules.policy()
		if wrong != nil {
			wrong.key = strings.Replace(wrong.key, fmt.Sprintf("%s[%d]", list, at), fmt.Sprintf("%s[%d]", list, i), 1)
			bad = append(bad, *wrong)
		}
		return wrong == nil
	}
	var good []Withhold // a category may not be there twice
	for i, w := range s.Projection.Withhold {
		var rules settings
		rules.Projection.Withhold = append(slices.Clip(good), w)
		if check("withhold", len(good), i, rules) {
			good = append(good, w)
		}
	}
	for i, tool := range s.Projection.Tools {
		var rules settings
		rules.Projection.Tools = []Tool{tool}
		check("tools", 0, i, rules)
	}
	return bad
}

// misspelt says which rules have a category that may have been meant to be one that
// withholds. They are right as they are: a category of any name keeps.
func (s *settings) misspelt() problems {
	var withheld []known
	named := func(category string) bool {
		return slices.ContainsFunc(s.Projection.Withhold, func(w Withhold) bool { return strings.EqualFold(strings.TrimSpace(w.Category), category) })
	}
	for _, w := range s.Projection.Withhold {
		if len(w.Parts) > 0 {
			withheld = append(withheld, known{w.Category, w.Category})
		}
	}
	var odd problems
	for i, tool := range s.Projection.Tools {
		near := hint(tool.Category, withheld)
		if near == "" || named(strings.TrimSpace(tool.Category)) {
			continue
		}
		odd = append(odd, problem{
			key:  fmt.Sprintf("projection.tools[%d].category", i),
			text: fmt.Sprintf("%q is not in projection.withhold, so calls and results are kept%s", tool.Category, near),
		})
	}
	return odd
}

// tellMisspelt warns of rules as historyd config check does.
func (d *daemon) tellMisspelt(s *settings) {
	for _, p := range s.misspelt() {
		d.log.Warn("a rule may not mean what it says", "warning", p.String())
	}
}

// policyKeys has the keys of the fields of projection.Options.
var policyKeys = strings.NewReplacer(
	"MaxToolResultChars", "max_tool_result_chars",
	"UnknownTools", "unknown_tools",
	"Withhold", "withhold",
	"Tools", "tools",
	"Category", "category",
	"Match", "match",
)

// policyKey is the key that a field such as Tools[1].Match was set by.
func policyKey(field string) string { return "projection." + policyKeys.Replace(field) }
