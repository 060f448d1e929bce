// Package projection holds the rules between what was said and what is kept or
// shown: which arguments and results of tools are withheld, how long a result may
// be, what a text replay holds, how many turns fit a budget, whether results answer
// calls. It touches no disk, reads no clock, and does not know who is calling.
//
// Nothing here alters what it is given: what must differ is a copy. Each rule
// applied to its own outcome changes nothing more, and tells what it changed.
package projection

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Limits and defaults of Options.
const (
	defaultToolResultChars = 4000
	minToolResultChars     = 200 // the marker of a cut takes some of it
	maxCategory            = 128 // code points
)

// Options configures a Policy. Zero values work.
type Options struct {
	MaxToolResultChars int        // code points of the text of one result; 0 means 4000, the least is 200
	UnknownTools       string     // "redact" or "keep"; "" means redact
	Withhold           []Withhold // nil means wallet and files, both parts
	Tools              []Rule     // the first match wins
}

// Withhold says what is withheld of the calls to tools of a category. A category
// that is not listed keeps both parts.
type Withhold struct {
	Category           string
	Arguments, Results bool
}

// A Rule gives the tools whose name is Match, or begins with it when it ends in *,
// a category. Case does not count.
type Rule struct {
	Match, Category string
}

// A Policy is a set of rules. It may be used by many goroutines.
type Policy struct {
	limit         int
	redactUnknown bool
	withhold      map[string]Withhold // by folded category
	rules         []rule
}

type rule struct {
	match    string // folded
	prefix   bool
	category string
}

// part is one of the two that a category withholds.
type part int

const (
	arguments part = iota
	results
)

// A FieldError says which field of the options is wrong, as in Tools[1].Match.
type FieldError struct {
	Field string
	Err   error
}

func (e *FieldError) Error() string { return e.Field + ": " + e.Err.Error() }
func (e *FieldError) Unwrap() error { return e.Err }

// wrong makes a FieldError.
func wrong(field, format string, args ...any) error {
	return &FieldError{field, fmt.Errorf(format, args...)}
}

// New makes the policy, or says with a FieldError what is wrong with the options.
func New(o Options) (*Policy, error) {
	p := &Policy{limit: o.MaxToolResultChars, withhold: map[string]Withhold{}}
	switch {
	case p.limit == 0:
		p.limit = defaultToolResultChars
	case p.limit < minToolResultChars:
		return nil, wrong("MaxToolResultChars", "%d is less than %d", p.limit, minToolResultChars)
	}
	switch o.UnknownTools {
	case "", "redact":
		p.redactUnknown = true
	case "keep":
	default:
		return nil, wrong("UnknownTools", "%q is neither redact nor keep", o.UnknownTools)
	}
	if o.Withhold == nil {
		o.Withhold = []Withhold{{"wallet", true, true}, {"files", true, true}}
	}
	for i, w := range o.Withhold {
		w.Category = strings.TrimSpace(w.Category)
		field := fmt.Sprintf("Withhold[%d].Category", i)
		if err := checkCategory(w.Category); err != nil {
			return nil, &FieldError{field, err}
		}
		if _, twice := p.withhold[fold(w.Category)]; twice {
			return nil, wrong(field, "%q is listed already", w.Category)
		}
		p.withhold[fold(w.Category)] = w
	}
	for i, r := range o.Tools {
		if err := checkCategory(strings.TrimSpace(r.Category)); err != nil {
			return nil, &FieldError{fmt.Sprintf("Tools[%d].Category", i), err}
		}
		match, prefix := strings.CutSuffix(fold(r.Match), "*")
		if match == "" && !prefix {
			return nil, wrong(fmt.Sprintf("Tools[%d].Match", i), "is empty")
		}
		if strings.Contains(match, "*") {
			return nil, wrong(fmt.Sprintf("Tools[%d].Match", i), "%q has a * that is not at its end: give a name, or the beginning of names and *", r.Match)
		}
		p.rules = append(p.rules, rule{match, prefix, r.Category})
	}
	return p, nil
}

func checkCategory(s string) error {
	switch {
	case s == "":
		return fmt.Errorf("is empty")
	case !utf8.ValidString(s) || strings.ContainsFunc(s, unicode.IsControl):
		return fmt.Errorf("holds something other than printable text")
	case utf8.RuneCountInString(s) > maxCategory:
		return fmt.Errorf("is longer than %d characters", maxCategory)
	}
	return nil
}

// category returns what the server says of a tool, by its folded name.
func (p *Policy) category(name string) (string, bool) {
	for _, r := range p.rules {
		if name == r.match || r.prefix && strings.HasPrefix(name, r.match) {
			return r.category, true
		}
	}
	return "", false
}

// withholds reports whether the category withholds the part, and how the category
// is written: always as in the options, so that no label is a client's word.
func (p *Policy) withholds(category string, of part) (label string, yes bool) {
	w, listed := p.withhold[fold(category)]
	if of == arguments {
		return w.Category, listed && w.Arguments
	}
	return w.Category, listed && w.Results
}

// fold trims a name and makes all names that differ only in case alike.
func fold(name string) string {
	return strings.Map(func(r rune) rune {
		least := r
		for f := unicode.SimpleFold(r); f != r; f = unicode.SimpleFold(f) {
			least = min(least, f)
		}
		return least
	}, strings.TrimSpace(name))
}
