package projection

import (
	"fmt"
	"testing"
)

func TestWhatSeveralRequestsSaidIsGatheredMildly(t *testing.T) {
	options := Options{
		Withhold: []Withhold{{"wallet", true, true}, {"in", true, false}, {"out", false, true}},
		Tools:    []Rule{{"known", "misc"}, {"read*", "in"}},
	}
	for _, tt := range []struct {
		name     string
		unknown  string
		requests []map[string]string
		want     string
	}{
		{"nothing", "", nil, "map[]"},
		{"the mildest, either way", "", []map[string]string{{"a": "general", "b": "wallet"}, {"a": "wallet", "b": "general"}}, "map[a:general b:general]"},
		{"one part is milder than two", "", []map[string]string{{"a": "in"}, {"a": "Wallet"}}, "map[a:in]"},
		{"both parts are withheld without a word", "", []map[string]string{{"a": "wallet", "b": "x"}}, "map[b:x]"},
		{"of a tool that is kept without a word", "keep", []map[string]string{{"a": "in", "b": "x"}}, "map[b:x]"},
		{"of a tool that the server knows", "", []map[string]string{{"known": "in", "reader": "out", "read": "x"}}, "map[read:x]"},
		{"words about other tools", "", []map[string]string{{"*": "general", "a*": "general", "a* ": "x", "": "x", "a": "y"}}, "map[a:y]"},
		{"names in several cases", "", []map[string]string{{"tx": "general"}, {"TX": "wallet"}, {"Tx": "in"}, {"tX": "other"}}, "map[TX:general]"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			options.UnknownTools = tt.unknown
			said := policy(t, options).Said()
			for _, categories := range tt.requests {
				said.Add(categories)
			}
			if got := fmt.Sprint(said.Categories()); got != tt.want {
				t.Errorf("Categories() = %s, want %s", got, tt.want)
			}
		})
	}
	p := policy(t, options)
	for category, want := range map[string]int{"Wallet": 2, "in": 1, "out": 1, "x": 0, "": 0} {
		if got := p.Parts(category); got != want {
			t.Errorf("Parts(%q) = %d, want %d", category, got, want)
		}
	}
}
