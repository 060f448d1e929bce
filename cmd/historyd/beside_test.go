package main

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

func TestADocumentBeginsWithAnOlderOnlyWhenItHasAllOfIt(t *testing.T) {
	const older = `{"messages":[{"role":"user","content":"a]}"}]}` + "\n"
	for _, tt := range []struct {
		name, document, older string
		want                  bool
	}{
		{"the same", older, older, true},
		{"one message more", `{"messages":[{"role":"user","content":"a]}"},{"role":"user","content":"b"}]}`, older, true},
		{"one block more", `{"messages":[{"role":"user","content":"a]}","x":"b"}]}`, older, true},
		{"a shorter text", `{"messages":[{"role":"user","content":"a]"}]}`, older, false},
		{"one message less", `{"messages":[]}`, older, false},
		{"another message", `{"messages":[{"role":"user","content":"b"}]}`, older, false},
		{"lines more", "1\n2\n", "1\n", true},
		{"lines less", "1\n", "1\n2\n", false},
		{"nothing before", "1\n", "", true},
		{"a long tail", `[{`, `[` + strings.Repeat("]", 100), false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if got := beginsWith(strings.NewReader(tt.document), strings.NewReader(tt.older)); got != tt.want {
				t.Errorf("beginsWith(%q, %q) = %t, want %t", tt.document, tt.older, got, tt.want)
			}
		})
	}
}

func TestAFileBesideKnowsWhichOneItIsBeside(t *testing.T) {
	for path, want := range map[string]string{
		"a.json":                "a.json",
		"a.json.damaged":        "a.json",
		"a.json.damaged.12":     "a.json",
		"a.json.damaged.":       "a.json.damaged.",
		"a.json.damaged.x":      "a.json.damaged.x",
		"a.json.damaged2":       "a.json.damaged2",
		"a.damaged.json":        "a.damaged.json",
		"d.damaged/a.json":      "d.damaged/a.json",
		"a.damaged.tar.damaged": "a.damaged.tar",
	} {
		if got := withoutDamagedEnding(path); got != want {
			t.Errorf("withoutDamagedEnding(%q) = %q, want %q", path, got, want)
		}
	}
}

func TestThereAreFiveFilesBesideOneAtTheMost(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a.json")
	want := []string{path, path + ".damaged"}
	for n := 2; n <= maxBeside; n++ {
		want = append(want, path+".damaged."+strconv.Itoa(n))
	}
	never := func(string) bool { return false }
	for _, place := range want {
		if to, over := placeFor(path, never); to != place || over {
			t.Fatalf("placeFor = %s, %t, want %s", to, over, place)
		}
		if err := os.WriteFile(place, nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for range 2 {
		if to, over := placeFor(path, never); to != want[maxBeside] || !over {
			t.Errorf("with all of them there: %s, %t", to, over)
		}
	}
	for _, place := range want {
		if to, over := placeFor(path, func(path string) bool { return path == place }); to != place || over {
			t.Errorf("where it may have the place of %s: %s, %t", place, to, over)
		}
	}
}

func TestADocumentHasAllOfAnOlderByItsMessages(t *testing.T) {
	doc := func(ids string) string {
		text := `{"version":1,"messages":[`
		for i, id := range strings.Fields(ids) {
			text += strings.Repeat(",", min(i, 1)) + `{"id":"` + id + `","content":[{"type":"text","text":"}"}]}`
		}
		return text + `],"damaged":{"places":1,"bytes":9,"lost":1}}`
	}
	for _, tt := range []struct {
		name, document, older string
		want                  bool
	}{
		{"the same", doc("a c"), doc("a c"), true},
		{"more behind", doc("a c d"), doc("a c"), true},
		{"more between", doc("a b c"), doc("a c"), true},
		{"as many, and another one lost", doc("a b"), doc("a c"), false},
		{"another one lost, and more behind", doc("a b d e"), doc("a c"), false},
		{"nothing before", doc("a"), doc(""), true},
		{"nothing now", doc(""), doc("a"), false},
		{"an older that is cut", doc("a b"), doc("a b")[:60], false},
		{"one that is cut", doc("a b")[:60], doc("a b"), false},
		{"an older without messages", doc("a"), `{"damaged":false}`, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if got := hasAllOf(strings.NewReader(tt.document), strings.NewReader(tt.older), "native"); got != tt.want {
				t.Errorf("hasAllOf(%q, %q) = %t, want %t", tt.document, tt.older, got, tt.want)
			}
		})
	}
}
