package wire

import (
	"bytes"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"historyd/internal/history"
	"historyd/internal/strictjson"
)

var update = flag.Bool("update", false, "rewrite the golden files")

// A golden file is text in the form of txtar: a comment, then sections that each
// begin with a line -- NAME --. The first, "openai in" or "native in", is what a
// client appends; the others are what becomes of it, a message a line.
type golden struct {
	path     string
	comment  string
	names    []string
	sections map[string]string
}

func goldenFiles(t testing.TB) []golden {
	t.Helper()
	paths, err := filepath.Glob("testdata/*.txtar")
	if err != nil || len(paths) == 0 {
		t.Fatalf("no golden files: %v", err)
	}
	var files []golden
	for _, path := range paths {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		g, name := golden{path: path, sections: map[string]string{}}, ""
		for line := range strings.Lines(string(text)) {
			if s, ok := strings.CutPrefix(line, "-- "); ok && strings.HasSuffix(s, " --\n") {
				name = strings.TrimSuffix(s, " --\n")
				g.names = append(g.names, name)
			} else if name == "" {
				g.comment += line
			} else {
				g.sections[name] += line
			}
		}
		files = append(files, g)
	}
	return files
}

func (g golden) input() (Format, string) {
	format, _, _ := strings.Cut(g.names[0], " ")
	return Format(format), g.sections[g.names[0]]
}

// goldenMessages lists the messages that clients append in the golden files.
func goldenMessages(t testing.TB, f Format) []string {
	t.Helper()
	var msgs []string
	for _, g := range goldenFiles(t) {
		if format, in := g.input(); format == f {
			for _, e := range strictjson.Document([]byte(in)).Elements() {
				msgs = append(msgs, string(e.Raw))
			}
		}
	}
	return msgs
}

func TestGolden(t *testing.T) {
	for _, g := range goldenFiles(t) {
		t.Run(strings.TrimSuffix(filepath.Base(g.path), ".txtar"), func(t *testing.T) {
			format, in := g.input()
			msgs := decodeAppend(t, format, in)
			text := g.comment + "-- " + g.names[0] + " --\n" + in
			for _, view := range []struct {
				name    string
				format  Format
				purpose Purpose
			}{
				{"native", Native, ForExport},
				{"openai for export", OpenAI, ForExport},
				{"openai for a model", OpenAI, ForModel},
			} {
				got := lines(msgs, view.format, view.purpose)
				text += "-- " + view.name + " --\n" + got
				if want := g.sections[view.name]; got != want && !*update {
					t.Errorf("%s\n got %s\nwant %s", view.name, got, want)
				}
			}
			if *update {
				if err := os.WriteFile(g.path, []byte(text), 0o644); err != nil {
					t.Fatal(err)
				}
			}
		})
	}
}

func lines(msgs []history.Message, f Format, p Purpose) string {
	var b bytes.Buffer
	for i := range msgs {
		if line := AppendMessages(nil, f, msgs[i:i+1], p); len(line) > 0 {
			b.Write(line)
			b.WriteByte('\n')
		}
	}
	return b.String()
}
