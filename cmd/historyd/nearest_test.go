package main

import "testing"

func TestOnlyACloseNameIsSuggested(t *testing.T) {
	list := []known{{"log", "log"}, {"tcp", "listen.tcp"}, {"level", "log.level"}, {"keep_verbatim_turns", "compaction.keep_verbatim_turns"}}
	for _, tt := range []struct{ name, want string }{
		{"tpc", "listen.tcp"},
		{"Level", "log.level"},
		{"lvel", "log.level"},
		{"keep_turns_verbatim", ""},
		{"keep_verbatin_turn", "compaction.keep_verbatim_turns"},
		{"verbatim_turns", ""},
		{"foo", ""},
		{"x", ""},
		{"", ""},
	} {
		want := tt.want
		if want != "" {
			want = ", the nearest known one is " + want
		}
		if got := hint(tt.name, list); got != want {
			t.Errorf("hint(%q) = %q, want %q", tt.name, got, want)
		}
	}
}

func TestAVariableIsComparedWithoutItsPrefix(t *testing.T) {
	for _, tt := range []struct{ name, want string }{
		{"HISTORYD_FOO", ""},
		{"HISTORYD_", ""},
		{"HISTORYD_LISTEN_TPC", ", the nearest known one is HISTORYD_LISTEN_TCP"},
		{"HISTORYD_OPEN_FILES", ", the nearest known one is HISTORYD_STORE_OPEN_FILES"},
	} {
		if got := hintVariable(tt.name); got != tt.want {
			t.Errorf("hintVariable(%q) = %q, want %q", tt.name, got, tt.want)
		}
	}
}

func TestDistanceCountsEdits(t *testing.T) {
	for _, tt := range []struct {
		a, b string
		want int
	}{
		{"", "", 0}, {"", "abc", 3}, {"abc", "", 3}, {"abc", "abc", 0}, {"abc", "abd", 1}, {"abc", "acb", 1},
		{"abcd", "badc", 2}, {"kitten", "sitting", 3}, {"ca", "abc", 3},
	} {
		if got := distance(tt.a, tt.b); got != tt.want {
			t.Errorf("distance(%q, %q) = %d, want %d", tt.a, tt.b, got, tt.want)
		}
	}
}
