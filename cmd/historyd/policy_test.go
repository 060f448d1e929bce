package main

import (
	"reflect"
	"slices"
	"strings"
	"testing"

	"historyd/internal/projection"
)

// mustHaveKeys sees that each field of options is a key of the configuration, or
// part of an entry of one.
func mustHaveKeys(t *testing.T, typ reflect.Type, known []string) {
	t.Helper()
	for f := range typ.Fields() {
		if got := policyKey(f.Name); f.Type.Kind() != reflect.Bool && !slices.Contains(known, got) {
			t.Errorf("%s of %s was set by %q, want one of %q", f.Name, typ, got, known)
		}
	}
}

func TestEveryFieldOfProjectionHasItsKey(t *testing.T) {
	var known []string
	for _, k := range keys {
		known = append(known, k.path)
	}
	mustHaveKeys(t, reflect.TypeFor[projection.Options](), known)
	entries := []string{"projection.category", "projection.match"}
	mustHaveKeys(t, reflect.TypeFor[projection.Withhold](), entries)
	mustHaveKeys(t, reflect.TypeFor[projection.Rule](), entries)
}

func TestACategoryThatIsNearlyWithheldIsWarnedOf(t *testing.T) {
	for _, tt := range []struct {
		category, near string // no near one is no warning
		withhold       []Withhold
	}{
		{"walet", "wallet", nil},
		{"file", "files", nil},
		{"Wallte", "wallet", nil},
		{"WALLET", "", nil},
		{" wallet ", "", nil},
		{"general", "", nil},
		{"mail", "", nil},
		{"walet", "", []Withhold{}},
		{"wallet", "", []Withhold{{" wallet", []string{"results"}}}},
		{"walet", "", []Withhold{{"wallet", nil}}},
		{"walet", "", []Withhold{{"wallet", []string{"results"}}, {"walet", nil}}},
		{"walet", "wallet", []Withhold{{"wallet", []string{"results"}}}},
	} {
		s := settings{Config: Default()}
		s.Projection.Tools = []Tool{{"x", "general"}, {"my_*", tt.category}}
		if tt.withhold != nil {
			s.Projection.Withhold = tt.withhold
		}
		got := s.misspelt()
		if tt.near == "" {
			if got != nil {
				t.Errorf("%q with %v: got %v, want no warning", tt.category, s.Projection.Withhold, got)
			}
			continue
		}
		if len(got) != 1 || got[0].key != "projection.tools[1].category" || !strings.HasSuffix(got[0].text, "one is "+tt.near) {
			t.Errorf("%q with %v: got %v, want a warning that names %s", tt.category, s.Projection.Withhold, got, tt.near)
		}
	}
}

func TestAWrongPolicyNamesTheKey(t *testing.T) {
	for _, tt := range []struct {
		want string
		set  func(c *Config)
	}{
		{"projection.max_tool_result_chars", func(c *Config) { c.Projection.MaxToolResultChars = 100 }},
		{"projection.unknown_tools", func(c *Config) { c.Projection.UnknownTools = "drop" }},
		{"projection.withhold[1].category", func(c *Config) { c.Projection.Withhold[1].Category = "" }},
		{"projection.withhold[0].parts[1]", func(c *Config) { c.Projection.Withhold[0].Parts[1] = "names" }},
		{"projection.tools[0].category", func(c *Config) { c.Projection.Tools = []Tool{{"a", ""}} }},
		{"projection.tools[1].match", func(c *Config) { c.Projection.Tools = []Tool{{"a", "b"}, {"", "b"}} }},
	} {
		s := settings{Config: Default()}
		tt.set(&s.Config)
		if _, p := s.policy(); p == nil || p.key != tt.want || p.text == "" {
			t.Errorf("got %+v, want the key %s", p, tt.want)
		}
	}
}
