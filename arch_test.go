// Package historyd_test holds the tree to its architecture: which package may import which, and the house rules
// that no linter knows. It has no code of the product.
package historyd_test

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"os"
	"path"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/fstest"
)

const module = "historyd"

// row says what a package may import besides the standard library: packages of this module, and modules of others.
// Tests may import what they like.
type row struct {
	imports []string
	modules []string
	// pure packages do no input and output and read no clock, so that the same value in is the same value out.
	pure bool
	// testing packages are for tests: nothing but tests and other such packages imports them.
	testing bool
}

const (
	prometheus = "github.com/prometheus/client_golang"
	sys        = "golang.org/x/sys"
	cmp        = "github.com/google/go-cmp"
	rapid      = "pgregory.net/rapid"
)

// table is the architecture. An arrow that is not in it needs a reason in docs/decisions before it gets a line here.
var table = map[string]row{
	"internal/strictjson": {pure: true},
	"internal/history":    {pure: true, imports: []string{"internal/strictjson"}},
	"internal/wire":       {pure: true, imports: []string{"internal/history", "internal/strictjson"}},
	"internal/projection": {pure: true, imports: []string{"internal/history", "internal/strictjson"}},
	"internal/durable":    {modules: []string{sys}},
	"internal/identity": {
		imports: []string{"internal/history", "internal/durable"},
		modules: []string{sys},
	},
	"internal/store": {
		imports: []string{"internal/history", "internal/identity", "internal/durable", "internal/strictjson"},
		modules: []string{prometheus},
	},
	"internal/compaction": {
		imports: []string{"internal/history", "internal/identity", "internal/projection"},
		modules: []string{prometheus},
	},
	"internal/recall": {
		imports: []string{"internal/history", "internal/identity", "internal/durable"},
		modules: []string{prometheus, "github.com/modelcontextprotocol/go-sdk", "golang.org/x/text"},
	},
	"internal/retention": {
		imports: []string{"internal/identity", "internal/durable"},
		modules: []string{prometheus},
	},
	"internal/pipeline": {
		imports: []string{
			"internal/history", "internal/identity", "internal/projection", "internal/compaction",
			"internal/recall", "internal/strictjson",
		},
		modules: []string{prometheus},
	},
	"internal/api": {
		imports: []string{
			"internal/history", "internal/identity", "internal/projection", "internal/wire",
			"internal/pipeline", "internal/strictjson",
		},
		modules: []string{
			prometheus, "github.com/go-chi/chi/v5", "github.com/maypok86/otter/v2", "golang.org/x/sync", "golang.org/x/time",
		},
	},
	"cmd/historyd": {
		imports: []string{
			"internal/api", "internal/compaction", "internal/durable", "internal/history", "internal/identity",
			"internal/pipeline", "internal/projection", "internal/recall", "internal/retention", "internal/store",
			"internal/strictjson", "internal/wire",
		},
		modules: []string{
			prometheus, sys, "github.com/coreos/go-systemd/v22", "github.com/dustin/go-humanize",
			"github.com/go-viper/mapstructure/v2", "github.com/lmittmann/tint", "github.com/oklog/ulid/v2",
			"github.com/schollz/progressbar/v3", "github.com/spf13/cobra", "github.com/spf13/pflag", "github.com/spf13/viper",
			"github.com/systemd/slog-journal", "golang.org/x/sync", "golang.org/x/term",
		},
	},

	"internal/durable/crashfs": {testing: true, imports: []string{"internal/durable"}},
	"internal/history/historytest": {
		testing: true,
		imports: []string{"internal/history", "internal/identity"},
		modules: []string{cmp, rapid},
	},
}

// free are the folders whose packages may import anything; they are no part of the daemon.
var free = []string{"test/"}

// impure are the standard packages that a pure package does without.
var impure = []string{"database/sql", "log", "log/slog", "net", "net/http", "os", "os/exec", "syscall", "unsafe"}

// ban is a use that is refused outside of the folders in except. Tests and testing packages are free of it, unless
// it is for them too.
type ban struct {
	pkg    string
	names  []string // a trailing * stands for any ending; none means the import itself
	except []string
	tests  bool
	why    string
}

var bans = []ban{
	{
		pkg: "os",
		names: []string{
			"Chmod", "Chown", "Chtimes", "CopyFS", "Create*", "Lchown", "Link", "Mkdir*", "OpenFile", "OpenInRoot",
			"OpenRoot", "Remove*", "Rename", "Symlink", "Truncate", "WriteFile",
		},
		except: []string{"internal/durable", "cmd/historyd"},
		why:    "internal/durable is the only way to disk",
	},
	{pkg: "fmt", names: []string{"Print*"}, except: []string{"cmd/historyd"}, why: "only the command speaks to people"},
	{
		pkg:   "net/http",
		names: []string{"DefaultClient", "DefaultServeMux", "DefaultTransport", "Get", "Handle", "HandleFunc", "Head", "Post*"},
		tests: true,
		why:   "no globals: make a client with a time-out, or a mux",
	},
	{
		pkg:    "log/slog",
		names:  []string{"Debug*", "Error*", "Info*", "Log", "LogAttrs", "SetDefault", "Warn*"},
		except: []string{"cmd/historyd"},
		why:    "no globals: the logger comes in by Options",
	},
	{
		pkg:   prometheus + "/prometheus",
		names: []string{"DefaultGatherer", "DefaultRegisterer", "MustRegister", "Register", "Unregister"},
		tests: true,
		why:   "no globals: the registerer comes in by Options",
	},
	{pkg: prometheus + "/prometheus/promauto", names: []string{"New*"}, tests: true, why: "no globals: promauto.With"},
	{pkg: "net/http/pprof", except: []string{"cmd/historyd"}, why: "debug endpoints are wired by the command alone"},
	{pkg: "expvar", tests: true, why: "it serves itself on the default mux"},
	{pkg: "math/rand", except: []string{"internal/compaction"}, why: "nobody may guess a token, a salt or a request id: crypto/rand"},
	{pkg: "github.com/stretchr/testify", tests: true, why: "no assertion library"},
}

func TestTreeKeepsItsArchitecture(t *testing.T) {
	for _, finding := range check(os.DirFS(".")) {
		t.Error(finding)
	}
}

func TestTableAllowsNothingUnknownAndNoCycle(t *testing.T) {
	var visit func(trail []string, dir string)
	visit = func(trail []string, dir string) {
		if slices.Contains(trail, dir) {
			t.Fatalf("cycle: %s", strings.Join(append(trail, dir), " -> "))
		}
		r, ok := table[dir]
		if !ok {
			t.Fatalf("%s is allowed to somebody but has no row", dir)
		}
		for _, to := range r.imports {
			if table[to].testing {
				t.Errorf("%s may import %s, which is for tests", dir, to)
			}
			visit(append(slices.Clone(trail), dir), to)
		}
	}
	for _, dir := range slices.Sorted(maps.Keys(table)) {
		visit(nil, dir)
	}
}

// A checker that finds nothing proves nothing: each rule is broken once here.
func TestCheckFindsWhatIsPlanted(t *testing.T) {
	for _, tt := range []struct {
		name, file, text, want string
	}{
		{"an arrow that points up", "internal/history/x.go", `import _ "historyd/internal/store"`, "may not import historyd/internal/store"},
		{"a module that is not in the row", "internal/wire/x.go", `import _ "github.com/oklog/ulid/v2"`, "may not import github.com/oklog/ulid/v2"},
		{"a module whose name only begins the same", "internal/durable/x.go", `import _ "golang.org/x/system"`, "may not import golang.org/x/system"},
		{"a package without a row", "internal/util/x.go", "", "no row in the table"},
		{"a package under a known one", "internal/store/cache/x.go", "", "no row in the table"},
		{"the crash file system in the product", "internal/store/x.go", `import _ "historyd/internal/durable/crashfs"`, "may not import"},
		{"input and output in a pure package", "internal/projection/x.go", `import _ "os"`, "is pure"},
		{"the clock in a pure package", "internal/projection/x.go", `import "time"; var T = time.Now()`, "reads the clock"},
		{"a file written past durable", "internal/store/x.go", `import "os"; var E = os.RemoveAll("x")`, "os.RemoveAll"},
		{"the same under another name", "internal/store/x.go", `import sys "os"; var E = sys.Mkdir("x", 0)`, "os.Mkdir"},
		{"a dot import", "internal/store/x.go", `import . "os"`, "dot import"},
		{"a print", "internal/api/x.go", `import "fmt"; func f() { fmt.Println() }`, "fmt.Println"},
		{"the default client in a test", "internal/api/x_test.go", `import "net/http"; var C = http.DefaultClient`, "http.DefaultClient"},
		{"a default client in disguise", "cmd/historyd/x.go", `import "net/http"; var _, E = http.Get("x")`, "http.Get"},
		{"a registration on the default registry", "internal/api/x.go", `import "github.com/prometheus/client_golang/prometheus"; func f() { prometheus.MustRegister() }`, "prometheus.MustRegister"},
		{"a token that can be guessed", "internal/identity/x.go", `import "math/rand"; var N = rand.Int()`, "crypto/rand"},
		{"a salt that can be guessed", "internal/store/x.go", `import "math/rand/v2"; var N = rand.Int()`, "crypto/rand"},
		{"an assertion library", "internal/api/x_test.go", `import _ "github.com/stretchr/testify/require"`, "no assertion library"},
		{"no package comment", "internal/api/api.go", "", "no package comment"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			text := "package " + path.Base(path.Dir(tt.file)) + "\n" + tt.text + "\n"
			got := check(fstest.MapFS{tt.file: {Data: []byte(text)}})
			if !slices.ContainsFunc(got, func(f string) bool { return strings.Contains(f, tt.want) }) {
				t.Errorf("check of %s:\n%s\ngot %q, want a finding with %q", tt.file, text, got, tt.want)
			}
		})
	}
}

func TestCheckLetsGoodCodePass(t *testing.T) {
	files := fstest.MapFS{}
	for name, text := range map[string]string{
		"internal/durable/durable.go": `import ("os"; _ "golang.org/x/sys/unix"); var E = os.Remove("x")`,
		"internal/store/store.go":     `import ("os"; _ "historyd/internal/durable"); var F, E = os.Open("x")`,
		"internal/store/x_test.go":    `import ("os"; _ "historyd/internal/durable/crashfs"); var E = os.Remove("x")`,
		"internal/api/api.go":         `import ("net/http"; _ "github.com/go-chi/chi/v5/middleware"); var H = http.MethodGet`,
		"internal/api/testdata/x.go":  `import _ "historyd/internal/store"`,
		"test/load/load.go":           `import _ "github.com/tsenart/vegeta/v12/lib"`,
		"test/clients/go.mod":         ``,
		"test/clients/a/a.go":         `import _ "github.com/stretchr/testify"`,
		"deploy/systemd/unit_test.go": `import _ "os/exec"`,
	} {
		files[name] = &fstest.MapFile{Data: []byte("// Package p is good.\npackage p\n" + text + "\n")}
	}
	if got := check(files); len(got) != 0 {
		t.Errorf("check of good code: got %q, want nothing", got)
	}
}

// check returns all that is wrong with the Go files of a tree, in order.
func check(tree fs.FS) []string {
	c := &checker{commented: map[string]bool{}}
	err := fs.WalkDir(tree, ".", func(name string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir():
			if name != "." && skipped(tree, name) {
				return fs.SkipDir
			}
		case strings.HasSuffix(name, ".go"):
			text, err := fs.ReadFile(tree, name)
			if err != nil {
				return err
			}
			c.file(name, text)
		}
		return nil
	})
	if err != nil {
		c.add("walk: %v", err)
	}
	for _, dir := range slices.Sorted(maps.Keys(c.commented)) {
		if !c.commented[dir] {
			c.add("%s: no package comment", dir)
		}
		if _, ok := table[dir]; !ok && !isFree(dir) {
			c.add("%s: the package has no row in the table of arch_test.go", dir)
		}
	}
	return c.findings
}

// skipped reports whether the go command, too, passes over a directory; a module in the tree is one of its own.
func skipped(tree fs.FS, dir string) bool {
	base := path.Base(dir)
	if base == "testdata" || base == "vendor" || base == "node_modules" || strings.ContainsAny(base[:1], "._") {
		return true
	}
	_, err := fs.Stat(tree, path.Join(dir, "go.mod"))
	return err == nil
}

// isFree reports whether a directory is below one of free.
func isFree(dir string) bool {
	return slices.ContainsFunc(free, func(f string) bool { return strings.HasPrefix(dir+"/", f) })
}

type checker struct {
	commented map[string]bool // by directory of a package that is more than tests
	findings  []string
}

func (c *checker) add(format string, args ...any) {
	c.findings = append(c.findings, fmt.Sprintf(format, args...))
}

// file checks one file. All files count, whatever their build constraints.
func (c *checker) file(name string, text []byte) {
	fset := token.NewFileSet()
	f, err := parser.ParseFile(fset, name, text, parser.ParseComments|parser.SkipObjectResolution)
	if err != nil {
		c.add("%v", err)
		return
	}
	dir, test := path.Dir(name), strings.HasSuffix(name, "_test.go")
	r := table[dir]
	if !test {
		c.commented[dir] = c.commented[dir] || f.Doc.Text() != ""
	}
	names := map[string]string{} // of imports in this file, by the name they go by
	for _, spec := range f.Imports {
		target, err := strconv.Unquote(spec.Path.Value)
		if err != nil {
			c.add("%s: %v", name, err)
			continue
		}
		local := localName(target)
		if spec.Name != nil {
			local = spec.Name.Name
		}
		if local == "." {
			c.add("%s: dot import of %s", name, target)
		}
		names[local] = target
		if !test && !isFree(dir) {
			c.arrow(name, dir, target)
		}
		c.use(fset.Position(spec.Pos()), dir, test || r.testing, target, "")
	}
	ast.Inspect(f, func(n ast.Node) bool {
		sel, ok := n.(*ast.SelectorExpr)
		if !ok {
			return true
		}
		if x, ok := sel.X.(*ast.Ident); ok && names[x.Name] != "" {
			at := fset.Position(sel.Pos())
			c.use(at, dir, test || r.testing, names[x.Name], sel.Sel.Name)
			if r.pure && !test && names[x.Name] == "time" && (sel.Sel.Name == "Now" || sel.Sel.Name == "Since") {
				c.add("%s: %s is pure and reads the clock", at, dir)
			}
		}
		return true
	})
}

// arrow holds one import of the product to the table.
func (c *checker) arrow(name, dir, target string) {
	r := table[dir]
	if inner, ok := strings.CutPrefix(target, module+"/"); ok {
		if !slices.Contains(r.imports, inner) && !(r.testing && table[inner].testing) {
			c.add("%s: %s may not import %s", name, dir, target)
		}
		return
	}
	if first, _, _ := strings.Cut(target, "/"); strings.Contains(first, ".") {
		if !slices.ContainsFunc(r.modules, func(m string) bool { return within(target, m) }) {
			c.add("%s: %s may not import %s", name, dir, target)
		}
		return
	}
	if r.pure && slices.Contains(impure, target) {
		c.add("%s: %s is pure and may not import %s", name, dir, target)
	}
}

// use holds one use of a name of an import, or with no name the import itself, to the bans.
func (c *checker) use(at token.Position, dir string, test bool, target, name string) {
	for _, b := range bans {
		if test && !b.tests || !test && slices.ContainsFunc(b.except, func(e string) bool { return within(dir, e) }) || isFree(dir) {
			continue
		}
		switch {
		case name == "" && b.names == nil && within(target, b.pkg):
			c.add("%s: import of %s: %s", at, target, b.why)
		case name != "" && target == b.pkg && slices.ContainsFunc(b.names, func(n string) bool { return match(n, name) }):
			c.add("%s: %s.%s: %s", at, path.Base(target), name, b.why)
		}
	}
}

// match reports whether a name is the pattern, or begins with it where the pattern ends in a star.
func match(pattern, name string) bool {
	prefix, star := strings.CutSuffix(pattern, "*")
	return name == pattern || star && strings.HasPrefix(name, prefix)
}

// within reports whether a path is the root or below it.
func within(p, root string) bool {
	return p == root || strings.HasPrefix(p, root+"/")
}

// localName is the name an import goes by when it isn't given one: the last element that is no version.
func localName(target string) string {
	base := path.Base(target)
	if len(base) > 1 && base[0] == 'v' && strings.Trim(base[1:], "0123456789") == "" {
		base = path.Base(path.Dir(target))
	}
	return base
}
