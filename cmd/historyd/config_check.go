package main

import (
	"encoding"
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
// letter, types without conversion. What can't be used is taken out, so that the
// rest can be looked at, and so is a section without content.
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
			bad = append(bad, problem{key: prefix + name, text: "unknown key" + hintKey(prefix, name, fields)})
			delete(section, name)
			continue
		}
		if field.Kind() == reflect.Struct && section[name] == nil {
			delete(section, name)
			continue
		}
		usable, wrong := checkValue(section[name], field, prefix+name)
		bad = append(bad, wrong...)
		if !usable {
			delete(section, name)
		}
	}
	return bad
}

// checkValue says what is wrong with a value, and whether what is left of it
// can be used.
func checkValue(value any, typ reflect.Type, path string) (usable bool, bad problems) {
	wrong := func(format string, args ...any) (bool, problems) {
		return false, problems{{key: path, text: fmt.Sprintf(format, args...)}}
	}
	switch typ.Kind() {
	case reflect.Struct:
		inner, ok := value.(map[string]any)
		if !ok {
			return wrong("want keys and values, got %s", kindOf(value))
		}
		return true, checkSection(inner, typ, path+".")
	case reflect.Slice:
		list, ok := value.([]any)
		if !ok {
			return wrong("want a list, got %s", kindOf(value))
		}
		return true, checkList(list, typ.Elem(), path)
	}
	if value == 0 && typ == reflect.TypeFor[Duration]() {
		return true, nil // needs no unit
	}
	if _, ok := value.(string); !ok && typ == reflect.TypeFor[Duration]() {
		return wrong("want %s, got %s", wanted(typ), kindOf(value))
	}
	if typ.Kind() == reflect.Interface {
		switch value.(type) {
		case string, bool, int, float64:
			return true, nil
		}
		return wrong("want a text, a number, true or false, got %s", kindOf(value))
	}
	if text, ok := value.(string); ok && typ != reflect.TypeFor[string]() && !isText(typ) {
		return wrong("want %s, got the text %q", wanted(typ), text)
	} else if ok {
		if _, err := parseText(typ, text); err != nil {
			return wrong("%v", err)
		}
		return true, nil
	}
	got := reflect.ValueOf(value)
	if value == nil || typ == reflect.TypeFor[Duration]() || !fits(got.Kind(), typ.Kind()) {
		return wrong("want %s, got %s", wanted(typ), kindOf(value))
	}
	return true, nil
}

// checkList checks the items of a list. What can't be used becomes an empty
// item, so that the others keep their place.
func checkList(list []any, typ reflect.Type, path string) problems {
	var bad problems
	for i, item := range list {
		usable, wrong := checkValue(item, typ, fmt.Sprintf("%s[%d]", path, i))
		bad = append(bad, wrong...)
		switch {
		case usable:
		case typ.Kind() == reflect.Struct:
			list[i] = map[string]any{}
		default:
			list[i] = reflect.Zero(typ).Interface()
		}
	}
	return bad
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
	if isText(typ) {
		value := reflect.New(typ)
		err := value.Interface().(encoding.TextUnmarshaler).UnmarshalText([]byte(text))
		return value.Elem().Interface(), err
	}
	if typ == reflect.TypeFor[[]string]() {
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

// isText reports whether values of a type are written as text and read by themselves.
func isText(typ reflect.Type) bool {
	return reflect.PointerTo(typ).Implements(reflect.TypeFor[encoding.TextUnmarshaler]())
}

// wanted says in words what a key of a type takes.
func wanted(typ reflect.Type) string {
	switch {
	case typ == reflect.TypeFor[Size]():
		return "a size such as 8MiB"
	case typ == reflect.TypeFor[Duration]():
		return "a time such as 60s, 36h or 90d"
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
	case map[string]any:
		return "keys and values"
	case map[any]any:
		return "keys that are no texts"
	case int, int64, uint64, float64:
		return fmt.Sprintf("the number %v", value)
	default:
		return fmt.Sprintf("a %T", value)
	}
}
