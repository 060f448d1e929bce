package main

import (
	"bytes"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/cobra/doc"
)

// manDir is where the package takes the manual pages from.
const manDir = "../../deploy/package/man"

// manPages are the manual pages by the names of their files: one of each command,
// made from its help, and one of the configuration file.
func manPages(t *testing.T) map[string]string {
	t.Helper()
	pages := map[string]string{}
	root := newRootCommand()
	root.DisableAutoGenTag = true
	var visit func(cmd *cobra.Command)
	visit = func(cmd *cobra.Command) {
		var page bytes.Buffer
		header := &doc.GenManHeader{Section: "1", Source: "historyd", Manual: "historyd", Date: new(time.Time)}
		if err := doc.GenMan(cmd, header, &page); err != nil {
			t.Fatal(err)
		}
		// The day on which it was made is of no use to a reader.
		text := strings.Replace(page.String(), `"Jan 0001"`, `""`, 1)
		pages[strings.ReplaceAll(cmd.CommandPath(), " ", "-")+".1"] = text
		for _, c := range cmd.Commands() {
			if c.IsAvailableCommand() {
				visit(c)
			}
		}
	}
	visit(root)

	text, err := os.ReadFile(exampleConfig)
	if err != nil {
		t.Fatal(err)
	}
	lines := regexp.MustCompile(`(?m)^([.'])`).ReplaceAllString(strings.NewReplacer(`\`, `\e`, "-", `\-`).Replace(string(text)), `\&$1`)
	pages["historyd.yaml.5"] = `.TH "HISTORYD.YAML" "5" "" "historyd" "historyd"
.SH NAME
historyd.yaml \- configuration of historyd
.SH SYNOPSIS
/etc/historyd/historyd.yaml
.SH DESCRIPTION
This is a configuration file with every key at its default.
.PP
.nf
` + strings.TrimSuffix(lines, "\n") + `
.fi
.SH SEE ALSO
\fBhistoryd(1)\fP, \fBhistoryd\-config(1)\fP
`
	return pages
}

func TestManualPagesAreAsTheHelp(t *testing.T) {
	pages := manPages(t)
	if *update {
		if err := os.RemoveAll(manDir); err != nil {
			t.Fatal(err)
		}
		if err := os.MkdirAll(manDir, 0o755); err != nil {
			t.Fatal(err)
		}
		for name, text := range pages {
			if err := os.WriteFile(filepath.Join(manDir, name), []byte(text), 0o644); err != nil {
				t.Fatal(err)
			}
		}
	}
	entries, err := os.ReadDir(manDir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if pages[e.Name()] == "" {
			t.Errorf("%s is of no command (make golden removes it)", e.Name())
		}
	}
	for name, want := range pages {
		got, err := os.ReadFile(filepath.Join(manDir, name))
		if err != nil || string(got) != want {
			t.Errorf("%s differs from the help (make golden rewrites it): %v", name, err)
		}
	}
}
