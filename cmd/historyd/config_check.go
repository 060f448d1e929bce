package main

import (
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"
)

// problem is one thing that is wrong with the configuration.
type problem struct {
	where string // a file or a variable; empty when it is the value itself
	key   string
	text  string
}

func (p problem) String() string {
	parts := slices.DeleteFunc([]string{p.where, p.key, p.text}, func(s string) bool { return s == "" })
	return strings.Join(parts, ": ")
}

// problems is all that is wrong with the configuration.
type problems []problem

func (ps problems) Error() string {
	lines := make([]string, len(ps))
	for i, p := range ps {
		lines[i] = p.String()
	}
	return strings.Join(lines, "\n")
}

// checkFile compares what a file says with what Config has: names to the
// letter, types without conversion. A section without content is taken out.
func checkFile(file map[string]any) problems {
	return checkSection(file, reflect.TypeFor[Config](), "")
}

func checkSection(section map[string]any, typ reflect.Type, prefix string) problems {
	fields := map[string]reflect.Type{}
	for f := range typ.Fields() {
		fields[f.Tag.Get("mapstructure")] = f.Type
	}
	var bad problems
	for _, name := range slices.Sorted(maps.Keys(section)) {
		field, ok := fields[name]
		if !ok {
			bad = append(bad, problem{key: prefix + name, text: "unknown key, the nearest known one is " + nearestKey(prefix, name, fields)})
			continue
		}
		if field.Kind() == reflect.Struct && section[name] == nil {
			delete(section, name)
			continue
		}
		bad = append(bad, checkValue(section[name], field, prefix+name)...)
	}
	return bad
}

func checkValue(value any, typ reflect.Type, path string) problems {
	switch {
	case typ.Kind() == reflect.Struct:
		inner, ok := value.(map[string]any)
		if !ok {
			return problems{{key: path, text: "want keys and values, got " + kindOf(value)}}
		}
		return checkSection(inner, typ, path+".")
	case typ.Kind() == reflect.Slice:
		list, ok := value.([]any)
		if !ok {
			return problems{{key: path, text: "want a list, got " + kindOf(value)}}
		}
		var bad problems
		for i, item := range list {
			bad = append(bad, checkValue(item, typ.Elem(), fmt.Sprintf("%s[%d]", path, i))...)
		}
		return bad
	}
	if text, ok := value.(string); ok && typ != reflect.TypeFor[string]() && typ != reflect.TypeFor[Size]() {
		return problems{{key: path, text: fmt.Sprintf("want %s, got the text %q", wanted(typ), text)}}
	} else if ok {
		if _, err := parseText(typ, text); err != nil {
			return problems{{key: path, text: err.Error()}}
		}
		return nil
	}
	got := reflect.ValueOf(value)
	if value == nil || !fits(got.Kind(), typ.Kind()) {
		return problems{{key: path, text: fmt.Sprintf("want %s, got %s", wanted(typ), kindOf(value))}}
	}
	return nil
}

// fits reports whether a number or truth value may become a field of a kind.
func fits(got, want reflect.Kind) bool {
	switch want {
	case reflect.Float64:
		return got == reflect.Float64 || got == reflect.Int
	case reflect.Int, reflect.Int64:
		return got == reflect.Int
	default:
		return got == want
	}
}

// parseText reads a key's value from a line of text.
func parseText(typ reflect.Type, text string) (any, error) {
	switch typ {
	case reflect.TypeFor[Size]():
		var s Size
		err := s.UnmarshalText([]byte(text))
		return s, err
	case reflect.TypeFor[[]string]():
		list := []string{}
		for item := range strings.SplitSeq(text, ",") {
			if item = strings.TrimSpace(item); item != "" {
				list = append(list, item)
			}
		}
		return list, nil
	}
	var value any = text
	var err error
	switch typ.Kind() {
	case reflect.Bool:
		value, err = strconv.ParseBool(text)
	case reflect.Int:
		value, err = strconv.Atoi(text)
	case reflect.Float64:
		value, err = strconv.ParseFloat(text, 64)
	}
	if err != nil {
		return nil, fmt.Errorf("want %s, got the text %q", wanted(typ), text)
	}
	return value, nil
}

// wanted says in words what a key of a type takes.
func wanted(typ reflect.Type) string {
	switch {
	case typ == reflect.TypeFor[Size]():
		return "a size such as 8MiB"
	case typ.Kind() == reflect.Bool:
		return "true or false"
	case typ.Kind() == reflect.Float64:
		return "a number"
	case typ.Kind() == reflect.String:
		return "a text (in quotes, if it looks like something else)"
	default:
		return "a whole number"
	}
}

// kindOf says in words what a YAML value is.
func kindOf(value any) string {
	switch value.(type) {
	case nil:
		return "nothing"
	case bool:
		return "true or false"
	case string:
		return "a text"
	case []any:
		return "a list"
	case map[string]any, map[any]any:
		return "keys and values"
	case int, int64, uint64, float64:
		return fmt.Sprintf("the number %v", value)
	default:
		return fmt.Sprintf("a %T", value)
	}
}

// nearestKey returns the known key that somebody may have meant: one of the
// same section, or of any.
func nearestKey(prefix, name string, fields map[string]reflect.Type) string {
	known := slices.Sorted(maps.Keys(fields))
	for i := range known {
		known[i] = prefix + known[i]
	}
	for _, k := range keys {
		known = append(known, k.path)
	}
	return nearest(prefix+name, known)
}

// nearest returns the first of the known names that takes the fewest edits to
// get to, in whatever case of letters.
func nearest(name string, known []string) string {
	best, least := "", -1
	for _, k := range known {
		if d := distance(strings.ToLower(name), strings.ToLower(k)); least < 0 || d < least {
			best, least = k, d
		}
	}
	return best
}

// distance counts the insertions, removals and changes of a byte between two texts.
func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			change := diagonal
			if a[i] != b[j] {
				change++
			}
			diagonal = row[j+1]
			row[j+1] = min(change, row[j]+1, row[j+1]+1)
		}
	}
	return row[len(b)]
}
