package projection

import (
	"cmp"
	"strings"
)

// Parts tells how many of the two parts of a call the category withholds.
func (p *Policy) Parts(category string) int {
	n := 0
	for _, of := range []part{arguments, results} {
		if _, yes := p.withholds(category, of); yes {
			n++
		}
	}
	return n
}

// unsaid tells how many parts are withheld of a tool of which a request says nothing.
func (p *Policy) unsaid(name string) int {
	if category, known := p.category(name); known {
		return p.Parts(category)
	}
	if p.redactUnknown {
		return 2
	}
	return 0
}

// Said gathers what several requests said of tools, for one request that repeats
// their messages and has no more withheld than they had. Of a tool of which they
// said different things it has the mildest; what is withheld already bears its mark
// and stays withheld.
type Said struct {
	policy *Policy
	tools  map[string]saying // by folded name
}

// A saying is of one tool. Its name is the least of those that differ in case, so
// that what is gathered does not depend on the order.
type saying struct{ name, category string }

// Said begins to gather, by the rules of the policy.
func (p *Policy) Said() *Said { return &Said{p, map[string]saying{}} }

// Add takes what one request said of the tools called in it, by their names.
func (s *Said) Add(categories map[string]string) {
	for name, category := range categories {
		folded := fold(name)
		if folded == "" || strings.HasSuffix(folded, "*") {
			continue // it would be said of other tools, too
		}
		if n := s.policy.Parts(category); n > 0 && n >= s.policy.unsaid(folded) {
			category = "" // to say nothing is milder, or the same
		}
		now := saying{name, category}
		if known, there := s.tools[folded]; there {
			now.name = min(name, known.name)
			if now.category == "" || known.category != "" && s.milder(known.category, category) {
				now.category = known.category
			}
		}
		s.tools[folded] = now
	}
}

func (s *Said) milder(a, b string) bool {
	return cmp.Or(cmp.Compare(s.policy.Parts(a), s.policy.Parts(b)), strings.Compare(a, b)) < 0
}

// Categories returns what was said; nil when nothing was.
func (s *Said) Categories() map[string]string {
	var categories map[string]string
	for _, said := range s.tools {
		if said.category == "" {
			continue
		}
		if categories == nil {
			categories = map[string]string{}
		}
		categories[said.name] = said.category
	}
	return categories
}

// Stricter returns the one of two categories of a tool that withholds more: of results,
// which may still come, and then of arguments.
func (p *Policy) Stricter(a, b string) string {
	weight := func(category string) int {
		n := p.Parts(category)
		if _, yes := p.withholds(category, results); yes {
			n += 2
		}
		return n
	}
	if cmp.Or(cmp.Compare(weight(a), weight(b)), strings.Compare(b, a)) >= 0 {
		return a
	}
	return b
}
