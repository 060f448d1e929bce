package main

import (
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
	if err != nil {
		field, text, _ := strings.Cut(err.Error(), ": ")
		return nil, &problem{key: "projection." + strings.ToLower(field), text: text}
	}
	return p, nil
}

// categories are those that the configuration names.
func (s *settings) categories() []string {
	var list []string
	for _, w := range s.Projection.Withhold {
		list = append(list, w.Category)
	}
	for _, t := range s.Projection.Tools {
		list = append(list, t.Category)
	}
	slices.Sort(list)
	return slices.Compact(list)
}
