package projection

import (
	"cmp"
	"maps"
	"slices"
	"strings"
	"unicode/utf8"

	"historyd/internal/history"
)

// A table is what a request says of its tools. The zero table says nothing.
type table struct {
	exact   map[string][]string // categories by folded name; several when the request has the name in several cases
	prefix  map[string][]string
	lengths []int    // of the prefixes, longest first
	rest    []string // of all other tools
}

// newTable reads a request's map. A category without a name says nothing.
func newTable(categories map[string]string) table {
	t := table{exact: map[string][]string{}, prefix: map[string][]string{}}
	for _, name := range slices.Sorted(maps.Keys(categories)) {
		category := strings.TrimSpace(categories[name])
		if category == "" {
			continue
		}
		match, prefix := strings.CutSuffix(fold(name), "*")
		switch {
		case prefix && match == "":
			t.rest = append(t.rest, category)
		case prefix:
			t.prefix[match] = append(t.prefix[match], category)
		default:
			t.exact[match] = append(t.exact[match], category)
		}
	}
	for p := range t.prefix {
		if !slices.Contains(t.lengths, len(p)) {
			t.lengths = append(t.lengths, len(p))
		}
	}
	slices.SortFunc(t.lengths, func(a, b int) int { return cmp.Compare(b, a) })
	return t
}

// lookup returns what the request says of the tool, by its folded name: by name,
// else by the longest prefix, else, of a tool that the server does not know either,
// what it says of all others.
func (t *table) lookup(name string, known bool) []string {
	if said := t.exact[name]; said != nil {
		return said
	}
	for _, n := range t.lengths {
		if n > len(name) {
			continue
		}
		if said := t.prefix[name[:n]]; said != nil {
			return said
		}
	}
	if known {
		return nil
	}
	return t.rest
}

// checkCategories refuses names of categories that would be remembered with every tool.
func checkCategories(categories map[string]string) error {
	var faults history.Faults
	for _, category := range categories {
		if utf8.RuneCountInString(category) > maxCategory {
			faults.Add("tool_categories", history.CodeInvalidMessage, -1, "the name of a category is longer than %d characters", maxCategory)
			break
		}
	}
	return faults.Err()
}

// Reasons of a Change.
const (
	reasonCategory     = "category"       // the category of the tool is withheld
	reasonUnknownTool  = "unknown_tool"   // nobody knows the tool
	reasonCallNotFound = "call_not_found" // the record could not be searched for the call
	reasonEcho         = "echo"           // a withheld value was repeated
	reasonClaim        = "claim"          // an import called redacted or cut what is not
)

// Unknown labels what is withheld because no category is known.
const Unknown = "unknown"

// A verdict says why a part is withheld. The zero verdict keeps it.
type verdict struct{ category, reason string }

func (v verdict) withheld() bool { return v.reason != "" }

// judge decides on a part of a call to the tool. now is what this request says of
// tools, then what the one said that brought the call, if that was another.
func (p *Policy) judge(of part, tool string, now, then *table) verdict {
	name := fold(tool)
	server, known := p.category(name)
	if known {
		if label, yes := p.withholds(server, of); yes {
			return verdict{label, reasonCategory}
		}
	}
	said := slices.Concat(now.lookup(name, known), then.lookup(name, known))
	for _, category := range said {
		if label, yes := p.withholds(category, of); yes {
			return verdict{label, reasonCategory}
		}
	}
	for _, other := range declaredAs(tool) {
		if label, yes := p.withheldAs(of, other, now, then); yes {
			return verdict{label, reasonCategory}
		}
	}
	// A call without a name is of a tool that nobody can know: what is said of all
	// tools may tighten here, but does not make it known.
	if name == "" || !known && len(said) == 0 {
		return p.unknown()
	}
	return verdict{}
}

// declaredAs returns other names under which a request declares a tool that providers
// know, and of which its category may be said. They tighten, and make nothing known.
func declaredAs(tool string) []string {
	switch strings.ToLower(strings.TrimSpace(tool)) {
	case "bash_code_execution", "text_editor_code_execution":
		return []string{codeExecution}
	case codeExecution:
		return []string{"codeExecution"}
	case "tool_search_tool_regex", "tool_search_tool_bm25":
		return []string{"tool_search"}
	case "web_search":
		return []string{"web_search_preview"}
	case "computer":
		return []string{"computer_use_preview"}
	case "program":
		return []string{"programmatic_tool_calling"}
	case "google_search_web", "google_search_image":
		return []string{"google_search", "googleSearch"}
	case "url_context":
		return []string{"urlContext"}
	case "google_maps":
		return []string{"googleMaps"}
	case "file_search":
		return []string{"fileSearch"}
	}
	return nil
}

// withheldAs reports whether a part is withheld of tools of another name.
func (p *Policy) withheldAs(of part, name string, tables ...*table) (label string, yes bool) {
	name = fold(name)
	if category, known := p.category(name); known {
		if label, yes := p.withholds(category, of); yes {
			return label, true
		}
	}
	for _, t := range tables {
		for _, category := range t.lookup(name, true) {
			if label, yes := p.withholds(category, of); yes {
				return label, true
			}
		}
	}
	return "", false
}

func (p *Policy) unknown() verdict {
	if p.redactUnknown {
		return verdict{Unknown, reasonUnknownTool}
	}
	return verdict{}
}

// remember returns the one category of a tool that later results need: the one
// that withholds most of them.
func (p *Policy) remember(tool string, now *table) (string, bool) {
	name := fold(tool)
	_, known := p.category(name)
	said := now.lookup(name, known)
	for _, category := range said {
		if label, yes := p.withholds(category, results); yes {
			return label, true
		}
	}
	for _, other := range declaredAs(tool) {
		if label, yes := p.withheldAs(results, other, now); yes {
			return label, true
		}
	}
	if len(said) == 0 {
		return "", false
	}
	return said[0], true
}

// ours reports whether a mark of redaction can be one that this policy set.
func (p *Policy) ours(r *history.Redaction) bool {
	switch r.Reason {
	case reasonCategory:
		return r.Category != "" && p.withhold[fold(r.Category)].Category == r.Category
	case reasonUnknownTool, reasonCallNotFound:
		return r.Category == Unknown
	}
	return false
}

// isMarker reports whether the arguments of the call are what stands in place of
// withheld ones. They hold no value then.
func (p *Policy) isMarker(b *history.Block) bool {
	if b.ArgumentsText != nil {
		return false
	}
	for _, w := range p.withhold {
		if string(b.Arguments) == string(history.WithheldArguments(w.Category)) {
			return true
		}
	}
	return string(b.Arguments) == string(history.WithheldArguments(Unknown))
}
