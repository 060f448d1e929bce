// Package docs_test holds the documents to the code: links lead somewhere, and no code of an error, setting or metric
// is left out.
package docs_test

import (
	"bytes"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"hash/crc32"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"unicode"
)

// documents are all pages that a reader meets, by path from here.
func documents(t *testing.T) map[string]string {
	t.Helper()
	pages := map[string]string{}
	for _, pattern := range []string{"../*.md", "*.md", "decisions/*.md"} {
		names, err := filepath.Glob(pattern)
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range names {
			pages[name] = read(t, name)
		}
	}
	if pages["../README.md"] == "" || pages["API.md"] == "" {
		t.Fatalf("documents: got %d, README and API.md are not among them", len(pages))
	}
	return pages
}

func read(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

var (
	fence   = regexp.MustCompile("(?ms)^```.*?^```$")
	link    = regexp.MustCompile(`\]\(([^()\s]+)\)`)
	heading = regexp.MustCompile(`(?m)^#+ (.+)$`)
)

func TestLinksResolve(t *testing.T) {
	pages := documents(t)
	for _, name := range slices.Sorted(maps.Keys(pages)) {
		for _, m := range link.FindAllStringSubmatch(fence.ReplaceAllString(pages[name], ""), -1) {
			if strings.Contains(m[1], "://") {
				continue
			}
			file, anchor, _ := strings.Cut(m[1], "#")
			target := name
			if file != "" {
				target = filepath.Join(filepath.Dir(name), filepath.FromSlash(file))
			}
			if _, err := os.Stat(target); err != nil {
				t.Errorf("%s: link to %s: got %v, want something there", name, m[1], err)
			} else if anchor != "" && !slices.Contains(anchors(read(t, target)), anchor) {
				t.Errorf("%s: link to %s: got headings %q, want one that is #%s", name, m[1], anchors(read(t, target)), anchor)
			}
		}
	}
}

// anchors are what the headings of a page are linked by.
func anchors(page string) []string {
	var list []string
	for _, m := range heading.FindAllStringSubmatch(fence.ReplaceAllString(page, ""), -1) {
		list = append(list, strings.Map(func(r rune) rune {
			switch {
			case r == ' ' || r == '-':
				return '-'
			case r == '_' || unicode.IsLetter(r) || unicode.IsDigit(r):
				return unicode.ToLower(r)
			}
			return -1
		}, m[1]))
	}
	return list
}

func TestEveryErrorCodeIsDescribed(t *testing.T) {
	codes := errorCodes(t)
	if len(codes) < 20 {
		t.Fatalf("codes of internal/api: got %q, want the whole table", codes)
	}
	page := read(t, "API.md")
	for _, code := range codes {
		if want := "| `" + code + "` |"; !strings.Contains(page, want) {
			t.Errorf("API.md has no row with %s", want)
		}
	}
}

// errorCodes reads the names in the table that problem.go calls codes.
func errorCodes(t *testing.T) []string {
	t.Helper()
	file, err := parser.ParseFile(token.NewFileSet(), "../internal/api/problem.go", nil, parser.SkipObjectResolution)
	if err != nil {
		t.Fatal(err)
	}
	var list []string
	ast.Inspect(file, func(n ast.Node) bool {
		spec, ok := n.(*ast.ValueSpec)
		if !ok || spec.Names[0].Name != "codes" {
			return true
		}
		for _, row := range spec.Values[0].(*ast.CompositeLit).Elts {
			name, err := strconv.Unquote(row.(*ast.CompositeLit).Elts[0].(*ast.BasicLit).Value)
			if err != nil {
				t.Fatal(err)
			}
			list = append(list, name)
		}
		return false
	})
	return list
}

var setting = regexp.MustCompile(`^( *)([a-z_]+):(.*)$`)

func TestEverySettingIsDescribed(t *testing.T) {
	var keys, path []string
	for line := range strings.Lines(read(t, "../configs/historyd.yaml")) {
		m := setting.FindStringSubmatch(strings.TrimSuffix(line, "\n"))
		if m == nil {
			continue
		}
		depth := len(m[1]) / 2
		if depth == len(path) && depth > 0 {
			keys = keys[:len(keys)-1] // that was a section
		}
		path = append(path[:depth], m[2])
		keys = append(keys, strings.Join(path, "."))
	}
	if len(keys) < 20 {
		t.Fatalf("keys of configs/historyd.yaml: got %q, want all of them", keys)
	}
	pages := read(t, "OPERATIONS.md") + read(t, "../README.md")
	for _, key := range keys {
		if !strings.Contains(pages, "`"+key+"`") {
			t.Errorf("neither OPERATIONS.md nor README.md has `%s`", key)
		}
	}
}

var (
	metric    = regexp.MustCompile(`"(historyd_[a-z_]+)"`)
	metricRow = regexp.MustCompile("(?m)^\\| `(historyd_[a-z_]+(?:`, `historyd_[a-z_]+)*)` \\|")
)

// described reports whether a row of the page is of that metric, alone or with others.
func described(page, name string) bool {
	for _, row := range metricRow.FindAllStringSubmatch(page, -1) {
		if slices.Contains(strings.Split(row[1], "`, `"), name) {
			return true
		}
	}
	return false
}

func TestEveryMetricIsDescribed(t *testing.T) {
	names := map[string]bool{}
	for _, root := range []string{"../internal", "../cmd"} {
		err := filepath.WalkDir(root, func(name string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() || !strings.HasSuffix(name, ".go") || strings.HasSuffix(name, "_test.go") {
				return err
			}
			for _, m := range metric.FindAllStringSubmatch(read(t, name), -1) {
				names[m[1]] = true
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	if len(names) < 20 {
		t.Fatalf("metrics in the code: got %d, want all of them", len(names))
	}
	page := read(t, "OPERATIONS.md")
	for _, name := range slices.Sorted(maps.Keys(names)) {
		if !described(page, name) {
			t.Errorf("OPERATIONS.md has no row for %s", name)
		}
	}
	for _, row := range metricRow.FindAllStringSubmatch(page, -1) {
		for _, name := range strings.Split(row[1], "`, `") {
			if !names[name] {
				t.Errorf("OPERATIONS.md describes %s, which the code does not have", name)
			}
		}
	}
}

var (
	alertRule   = regexp.MustCompile(`(?m)^      - alert: (\w+)\n((?:        .*\n)+)`)
	annotations = regexp.MustCompile(`(?m)^        labels: \{severity: (critical|warning|info)\}\n        annotations:\n          summary: .+\n          description: .+\n          runbook_url: file:///usr/share/doc/historyd/OPERATIONS\.md\.gz#(\w+)\n`)
)

// Who is woken finds what to do under the name of the alert, and no section speaks of one that is gone.
func TestEveryAlertHasItsSection(t *testing.T) {
	_, page, _ := strings.Cut(read(t, "OPERATIONS.md"), "\n## Alerts\n")
	page, _, ok := strings.Cut(page, "\n## ")
	if !ok {
		t.Fatal("OPERATIONS.md has no part on alerts")
	}
	sections := map[string]string{}
	for _, part := range strings.Split(page, "\n### ")[1:] {
		name, text, _ := strings.Cut(part, "\n")
		sections[name] = text
	}
	rules := alertRule.FindAllStringSubmatch(read(t, "../deploy/prometheus/historyd.alerts.yaml"), -1)
	if len(rules) < 20 {
		t.Fatalf("alerts: got %d, want all of them", len(rules))
	}
	for _, rule := range rules {
		name := rule[1]
		if m := annotations.FindStringSubmatch(rule[2]); m == nil || m[2] != strings.ToLower(name) {
			t.Errorf("%s: want severity, summary, description and a runbook_url that ends in #%s, got\n%s", name, strings.ToLower(name), rule[2])
		}
		for _, part := range []string{"\n- **Look:** ", "\n- **Cause:** ", "\n- **Cure:** "} {
			if !strings.Contains(sections[name], part) {
				t.Errorf("the section %s has no%q", name, part)
			}
		}
		delete(sections, name)
	}
	for name := range sections {
		t.Errorf("OPERATIONS.md has a section %s, and there is no such alert", name)
	}
}

var (
	logRow  = regexp.MustCompile("(?m)^\\| ((?:`[^`]+`(?:, )?)+) \\| (?:debug|info|warn|error)")
	logLook = regexp.MustCompile("(?m)^- \\*\\*Look:\\*\\*.*the log for ((?:`[^`]+`(?: or | and )?)+)")
	quoted  = regexp.MustCompile("`([^`]+)`")
)

// Who greps for a message finds it.
func TestMessagesOfTheLogAreThoseOfTheCode(t *testing.T) {
	var code strings.Builder
	for _, root := range []string{"../internal", "../cmd"} {
		err := filepath.WalkDir(root, func(name string, d fs.DirEntry, err error) error {
			if err == nil && strings.HasSuffix(name, ".go") && !strings.HasSuffix(name, "_test.go") {
				code.WriteString(read(t, name))
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	page, seen := read(t, "OPERATIONS.md"), 0
	for _, m := range slices.Concat(logRow.FindAllStringSubmatch(page, -1), logLook.FindAllStringSubmatch(page, -1)) {
		for _, message := range quoted.FindAllStringSubmatch(m[1], -1) {
			seen++
			if text := strings.TrimSuffix(message[1], " …"); !strings.Contains(code.String(), text) {
				t.Errorf("OPERATIONS.md speaks of the message %q, which no code logs", text)
			}
		}
	}
	if seen < 30 {
		t.Errorf("%d messages, want those of the table and of the alerts", seen)
	}
}

// Pages that say which test shows what name tests that are there.
func TestEveryTestThatAPageNamesIsThere(t *testing.T) {
	there := map[string]bool{}
	declared := regexp.MustCompile(`(?m)^func ((?:Test|Fuzz)\w+)\(`)
	err := filepath.WalkDir("..", func(name string, _ fs.DirEntry, err error) error {
		if err == nil && strings.HasSuffix(name, "_test.go") {
			for _, m := range declared.FindAllStringSubmatch(read(t, name), -1) {
				there[m[1]] = true
			}
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	for page, least := range map[string]int{"SECURITY.md": 100, "DURABILITY.md": 20, "FAULTS.md": 90} {
		named := testName.FindAllStringSubmatch(read(t, page), -1)
		if len(named) < least {
			t.Errorf("%s names no more than %d tests", page, len(named))
		}
		for _, m := range named {
			if !there[m[1]] {
				t.Errorf("%s names %s, which is not there", page, m[1])
			}
		}
	}
}

var testName = regexp.MustCompile("`((?:Test|Fuzz)\\w+)`")

// A fault or a threat that no test shows to be ruled out is only said to be.
func TestEveryFaultAndThreatNamesItsTests(t *testing.T) {
	for _, page := range []struct {
		name, of string
		least    int
	}{{"FAULTS.md", "fault", 60}, {"SECURITY.md", "threat", 20}} {
		rows := 0
		for line := range strings.Lines(read(t, page.name)) {
			cells := strings.Split(strings.TrimSpace(line), " | ")
			if !strings.HasPrefix(line, "| ") || strings.HasPrefix(line, "| "+page.of+" | ") {
				continue
			}
			rows++
			if len(cells) != 3 || !testName.MatchString(cells[2]) || testName.MatchString(cells[0]+cells[1]) {
				t.Errorf("%s: want a %s, what happens instead, and the tests, got %s", page.name, page.of, line)
			}
		}
		if rows < page.least {
			t.Errorf("%s: %d rows, want all of them", page.name, rows)
		}
	}
}

// The example of a segment is one: lengths, checksums and the chain hold.
func TestExampleOfASegmentIsSound(t *testing.T) {
	_, rest, _ := strings.Cut(read(t, "FORMAT.md"), "```jsonl\n")
	block, _, ok := strings.Cut(rest, "```")
	if !ok {
		t.Fatal("FORMAT.md has no block of jsonl")
	}
	prev := uint32(0)
	for line := range strings.Lines(block) {
		at := strings.LastIndex(line, `,"crc":"`)
		if at < 0 {
			t.Fatalf("no crc in %q", line)
		}
		sum := crc32.Checksum([]byte(line[:at]), crc32.MakeTable(crc32.Castagnoli))
		if got, want := line[at:], fmt.Sprintf(",\"crc\":\"%08x\"}\n", sum); got != want {
			t.Errorf("end of %q: got %q, want %q", line, got, want)
		}
		var size int
		if _, err := fmt.Sscanf(line, `{"size":%d,`, &size); err != nil {
			t.Fatalf("size of %q: %v", line, err)
		}
		head := len(fmt.Sprintf(`{"size":%d,`, size))
		if got, want := line[head+size:at], fmt.Sprintf(`,"len":%d`, size); got != want {
			t.Errorf("behind the payload of %q: got %q, want %q", line, got, want)
		}
		if want := fmt.Sprintf(`"prev":"%08x"`, prev); !bytes.Contains([]byte(line), []byte(want)) {
			t.Errorf("%q: want %s in it", line, want)
		}
		prev = sum
	}
}
