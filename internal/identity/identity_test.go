package identity

import (
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
)

func TestNewCallerTakesAnyPrintableTextAndNothingElse(t *testing.T) {
	long := strings.Repeat("é", maxText/2)
	for _, tt := range []struct {
		name                             string
		kind, id, permissions, workspace string
		ok                               bool
	}{
		{"operator", "operator", "alice", "", "", true},
		{"mesh with all", "mesh", "bob", "read", "home", true},
		{"an id that would be a path", "mesh", "../../etc/passwd", "a/b", `c:\d`, true},
		{"text of other scripts", "mesh", "日本 é é 🙂", "", "", true},
		{"longest", "mesh", long, long, long, true},
		{"no kind", "", "bob", "", "", false},
		{"another kind", "admin", "bob", "", "", false},
		{"kind in another case", "Mesh", "bob", "", "", false},
		{"no id", "mesh", "", "", "", false},
		{"id too long", "mesh", long + "x", "", "", false},
		{"id of 300", "mesh", strings.Repeat("x", 300), "", "", false},
		{"permission scope too long", "mesh", "bob", long + "x", "", false},
		{"workspace too long", "mesh", "bob", "", long + "x", false},
		{"NUL", "mesh", "a\x00b", "", "", false},
		{"newline", "mesh", "bob", "a\nb", "", false},
		{"tab", "mesh", "bob", "", "\t", false},
		{"delete", "mesh", "a\u007fb", "", "", false},
		{"first of C1", "mesh", "a\u0080b", "", "", false},
		{"last of C1", "mesh", "bob", "a\u009fb", "", false},
		{"first after C1", "mesh", "a\u00a0b", "", "", true},
		{"invalid UTF-8", "mesh", "a\xffb", "", "", false},
		{"half a character", "mesh", "bob", "\xc3", "", false},
		{"a surrogate", "mesh", "bob", "", "\xed\xa0\x80", false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c, err := NewCaller(tt.kind, tt.id, tt.permissions, tt.workspace)
			if got := err == nil; got != tt.ok {
				t.Fatalf("NewCaller(%q, %q, %q, %q): error %v, want ok %v", tt.kind, tt.id, tt.permissions, tt.workspace, err, tt.ok)
			}
			if tt.ok {
				want := Caller{Kind(tt.kind), tt.id, tt.permissions, tt.workspace}
				if c != want {
					t.Errorf("got %#v, want %#v", c, want)
				}
				return
			}
			if !errors.Is(err, ErrInvalid) || c != (Caller{}) {
				t.Errorf("got %#v and %v, want the zero caller and ErrInvalid", c, err)
			}
			if tt.id != "" && len(tt.id) > 3 && strings.Contains(err.Error(), tt.id) {
				t.Errorf("the error quotes the id: %v", err)
			}
		})
	}
}

func TestNoFormatOrLogShowsAnID(t *testing.T) {
	c, err := NewCaller("mesh", "carol-the-canary", "canary-scope", "canary-home")
	if err != nil {
		t.Fatal(err)
	}
	var out strings.Builder
	for _, handler := range []slog.Handler{slog.NewTextHandler(&out, nil), slog.NewJSONHandler(&out, nil)} {
		slog.New(handler).Info("hello", "caller", c, "scope", c.Scope())
	}
	fmt.Fprintf(&out, "%v %s %+v %v %s %+v", c, c, c, c.Scope(), c.Scope(), c.Scope())
	if strings.Contains(out.String(), "canary") {
		t.Errorf("an id is shown: %s", out.String())
	}
	short := c.Scope().Dir()[:len("mesh/")+shortHash]
	if got := strings.Count(out.String(), short); got != 10 {
		t.Errorf("got the short hash %d times, want 10: %s", got, out.String())
	}
	if got := (Scope{}).LogValue().String() + (Caller{}).String(); got != "nobodynobody" {
		t.Errorf("got %q for nobody", got)
	}
}
