package identity

import (
	"bytes"
	"encoding/hex"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

var update = flag.Bool("update", false, "rewrite the golden files")

func scope(t testing.TB, kind, id, permissionScope string) Scope {
	t.Helper()
	c, err := NewCaller(kind, id, permissionScope, "")
	if err != nil {
		t.Fatal(err)
	}
	return c.Scope()
}

func TestDerivationsAreThoseOfTheGoldenFile(t *testing.T) {
	var out bytes.Buffer
	for _, s := range [][3]string{
		{"operator", "alice", ""},
		{"mesh", "alice", ""},
		{"mesh", "alice", "read"},
		{"mesh", "alice", "write"},
		{"mesh", "alicer", "ead"},
		{"mesh", "bob", ""},
		{"mesh", "bob2", ""},
		{"mesh", "Bob", ""},
		{"mesh", "a/b", ""},
		{"mesh", "a_b", ""},
		{"mesh", "a%2Fb", ""},
		{"mesh", "../../etc/passwd", ""},
		{"mesh", "\u00e9", ""},
		{"mesh", "e\u0301", ""},
		{"mesh", "日本", "範囲"},
		{"operator", strings.Repeat("x", maxText), strings.Repeat("y", maxText)},
	} {
		sc := scope(t, s[0], s[1], s[2])
		fmt.Fprintf(&out, "%s %q %q\n\t%s\n", s[0], s[1], s[2], sc.Dir())
		for _, name := range []string{"default", "Default", "a.b", "~"} {
			fmt.Fprintf(&out, "\t%-8s %s\n", name, sc.Conversation(name))
		}
	}
	const golden = "testdata/scopes.golden"
	if *update {
		if err := os.WriteFile(golden, out.Bytes(), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(out.Bytes(), want) {
		t.Errorf("a derivation changed: transcripts would be lost.\ngot:\n%s\nwant:\n%s", out.Bytes(), want)
	}
}

func TestSameIDUnderAnotherKindOrPermissionScopeIsAnotherScope(t *testing.T) {
	scopes := []Scope{
		scope(t, "operator", "alice", ""),
		scope(t, "mesh", "alice", ""),
		scope(t, "mesh", "alice", "read"),
		scope(t, "mesh", "alice", "write"),
	}
	seen := map[string]bool{}
	for _, s := range scopes {
		seen[s.Dir()], seen[s.Conversation("default")] = true, true
		if !strings.HasPrefix(s.Dir(), string(s.Kind())+"/") {
			t.Errorf("%s is not below its kind", s.Dir())
		}
	}
	if got, want := len(seen), 2*len(scopes); got != want {
		t.Errorf("got %d different names, want %d", got, want)
	}
	home, _ := NewCaller("mesh", "alice", "read", "home")
	away, _ := NewCaller("mesh", "alice", "read", "away")
	if home == away || home.Scope() != away.Scope() {
		t.Error("the workspace is part of a caller and not of its scope")
	}
	if s := home.Scope(); s.Kind() != Mesh || s.ID() != "alice" || s.PermissionScope() != "read" || !s.Valid() {
		t.Errorf("got %q %q %q", s.Kind(), s.ID(), s.PermissionScope())
	}
}

func TestTheZeroScopeHasNoDirectory(t *testing.T) {
	for _, s := range []Scope{{}, Caller{}.Scope(), Caller{Kind: Mesh}.Scope(), Caller{Kind: "x", ID: "bob"}.Scope(),
		Caller{Kind: Mesh, ID: "a\nb"}.Scope()} {
		if s != (Scope{}) || s.Valid() || s.ID() != "" || s.Kind() != "" || s.PermissionScope() != "" {
			t.Errorf("%#v is not the zero scope", s)
		}
		for name, ask := range map[string]func() string{
			"Dir":          s.Dir,
			"Conversation": func() string { return s.Conversation("default") },
		} {
			func() {
				defer func() {
					if recover() == nil {
						t.Errorf("%s of the zero scope did not panic", name)
					}
				}()
				ask()
			}()
		}
	}
}

func TestNoFieldOfAScopeCanBeSetElsewhere(t *testing.T) {
	for f := range reflect.TypeOf(Scope{}).Fields() {
		if f.IsExported() {
			t.Errorf("Scope.%s is exported", f.Name)
		}
	}
	if !reflect.TypeOf(Scope{}).Comparable() || !reflect.TypeOf(Caller{}).Comparable() {
		t.Error("scopes and callers must be comparable")
	}
}

// millionNames returns the i-th of as many different triples as there are
// numbers, in the families that have collided elsewhere.
func millionNames(i int) (id, permissionScope string) {
	n := strconv.Itoa(i / 16)
	switch i % 16 {
	case 0:
		return "a/b" + n, ""
	case 1:
		return "a_b" + n, ""
	case 2:
		return "a b" + n, ""
	case 3:
		return "A/B" + n, ""
	case 4:
		return "\u00e9" + n, "" // composed
	case 5:
		return "e\u0301" + n, "" // decomposed
	case 6:
		return "bob" + n, ""
	case 7:
		return "bob", n // bob1 against bob with 1
	case 8:
		return "", "" // see the test: the id is the number in Chinese digits
	case 9:
		return strings.Repeat("x", 250-len(n)) + n, "" // a long common beginning
	case 10:
		return "a%2Fb" + n, ""
	case 11:
		return "../" + n, ""
	case 12:
		return n + "/..", ""
	case 13:
		return "." + n, ""
	case 14:
		return n + ".", ""
	default:
		return n, "mesh"
	}
}

func TestAMillionNamesGiveAMillionDirectories(t *testing.T) {
	total := 1_000_000
	if testing.Short() {
		total = 100_000
	}
	chinese := strings.NewReplacer("0", "零", "1", "一", "2", "二", "3", "三", "4", "四", "5", "五", "6", "六", "7", "七", "8", "八", "9", "九")
	hashes := make([][32]byte, total)
	for i := range hashes {
		id, permissionScope := millionNames(i)
		if id == "" {
			id = chinese.Replace(strconv.Itoa(i / 16))
		}
		hash, ok := strings.CutPrefix(scope(t, "mesh", id, permissionScope).Dir(), "mesh/")
		if n, err := hex.Decode(hashes[i][:], []byte(hash)); !ok || n != 32 || err != nil {
			t.Fatalf("hash of %q, %q is %q", id, permissionScope, hash)
		}
	}
	slices.SortFunc(hashes, func(a, b [32]byte) int { return bytes.Compare(a[:], b[:]) })
	if got := len(slices.Compact(hashes)); got != total {
		t.Errorf("got %d directories for %d names", got, total)
	}
}

var hashOnly = regexp.MustCompile(`^[0-9a-f]{64}$`)

// mustStayInside fails unless what s derives for name are plain hashes.
func mustStayInside(t interface {
	Fatalf(format string, args ...any)
}, s Scope, name string) {
	kind, hash, _ := strings.Cut(s.Dir(), "/")
	if kind != string(s.Kind()) || !hashOnly.MatchString(hash) || !filepath.IsLocal(s.Dir()) {
		t.Fatalf("directory %q", s.Dir())
	}
	if got := s.Conversation(name); !hashOnly.MatchString(got) {
		t.Fatalf("conversation %q is in %q", name, got)
	}
}

func TestDifferentNamesNeverShareADirectory(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		// Few letters, so that names of different split come up often.
		text := rapid.StringOfN(rapid.SampledFrom([]rune("ab/._é\u0301")), 0, 6, maxText)
		caller := rapid.Custom(func(t *rapid.T) Caller {
			c := Caller{ID: "x" + text.Draw(t, "id"), PermissionScope: text.Draw(t, "permission scope")}
			c.Kind = rapid.SampledFrom([]Kind{Operator, Mesh}).Draw(t, "kind")
			return c
		})
		a, b := caller.Draw(t, "a").Scope(), caller.Draw(t, "b").Scope()
		x, y := text.Draw(t, "x"), text.Draw(t, "y")
		mustStayInside(t, a, x)
		if (a == b) != (a.Dir() == b.Dir()) {
			t.Fatalf("%#v and %#v: %s and %s", a, b, a.Dir(), b.Dir())
		}
		if same := a == b && x == y; same != (a.Conversation(x) == b.Conversation(y)) {
			t.Fatalf("%#v %q and %#v %q share a conversation", a, x, b, y)
		}
	})
}

func FuzzNames(f *testing.F) {
	f.Add("a/b", "", "default", "a_b", "", "default")
	f.Add("bob", "2", "default", "bob2", "", "default")
	f.Add("\u00e9", "", "x", "e\u0301", "", "x")
	f.Add("../../x", "..", "..", "/etc/passwd", "", ".")
	f.Add("a\x00b", "con", "a\x00b", "a\xffb", "%2e", "")
	f.Fuzz(func(t *testing.T, id1, scope1, name1, id2, scope2, name2 string) {
		a, errA := NewCaller("mesh", id1, scope1, "")
		b, errB := NewCaller("mesh", id2, scope2, "")
		if errA != nil || errB != nil {
			return
		}
		mustStayInside(t, a.Scope(), name1)
		mustStayInside(t, b.Scope(), name2)
		if (a == b) != (a.Scope().Dir() == b.Scope().Dir()) {
			t.Errorf("%q %q and %q %q share a directory", id1, scope1, id2, scope2)
		}
		if same := a == b && name1 == name2; same != (a.Scope().Conversation(name1) == b.Scope().Conversation(name2)) {
			t.Errorf("%q %q %q and %q %q %q share a conversation", id1, scope1, name1, id2, scope2, name2)
		}
		for _, name := range []string{name1, name2} {
			if got, want := ValidConversation(name), conversationPattern.MatchString(name); got != want {
				t.Errorf("ValidConversation(%q) = %v, want %v", name, got, want)
			}
		}
	})
}

// The end is \z, because $ is before a newline at the end as well in some dialects.
var conversationPattern = regexp.MustCompile(`\A[A-Za-z0-9_~-][A-Za-z0-9._~-]{0,127}\z`)

func TestConversationNames(t *testing.T) {
	for _, tt := range []struct {
		name string
		want bool
	}{
		{"default", true}, {"a", true}, {"A.b", true}, {"-", true}, {"~", true}, {"_x", true}, {"0", true},
		{"a..", true}, {strings.Repeat("a", 128), true},
		{"", false}, {".", false}, {"..", false}, {".a", false}, {"a/b", false}, {"a\\b", false}, {"a b", false},
		{"a%2Fb", false}, {"é", false}, {"a\x00", false}, {"a\n", false}, {"a\xff", false}, {strings.Repeat("a", 129), false},
	} {
		if got := ValidConversation(tt.name); got != tt.want {
			t.Errorf("ValidConversation(%q) = %v, want %v", tt.name, got, tt.want)
		}
	}
	for c := range 256 {
		for _, name := range []string{string([]byte{byte(c)}), "a" + string([]byte{byte(c)})} {
			if got, want := ValidConversation(name), conversationPattern.MatchString(name); got != want {
				t.Errorf("ValidConversation(%q) = %v, want %v", name, got, want)
			}
		}
	}
}
