package identity

import (
	"errors"
	"os"
	"strings"
	"testing"
	"time"
)

const (
	hashA = "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"
	hashB = "bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb"
)

func TestAVersion1FileIsReadForEver(t *testing.T) {
	data, err := os.ReadFile("testdata/callers.v1.json")
	if err != nil {
		t.Fatal(err)
	}
	b := newBench(t)
	b.plant(t, string(data))
	r, err := NewRegistry(Options{File: b.file, Now: func() time.Time { return time.Unix(1.8e9, 0) }})
	if err != nil {
		t.Fatal(err)
	}
	const token = "hd_" + "0000000000000000000000000000000000000000000" + "27jcQ4"
	want := Caller{Mesh, "bob", "read", "home"}
	if got, err := r.Authenticate(token); err != nil || got != want {
		t.Errorf("by token: got %#v, %v, want %#v", got, err, want)
	}
	if got, err := r.Peer(1000); err != nil || got != want {
		t.Errorf("by uid: got %#v, %v, want %#v", got, err, want)
	}
	if got := r.Len(); got != 2 {
		t.Errorf("got %d callers, want 2", got)
	}
	doc, err := parse(data)
	if err != nil {
		t.Fatal(err)
	}
	if again, err := doc.format(); err != nil || string(again) != string(data) {
		t.Errorf("written again it is\n%s, %v\nwant\n%s", again, err, data)
	}
}

// fileWith is a callers file of one caller with one token, with a text put in
// the place of another.
func fileWith(old, new string) string {
	return strings.Replace(`{"version": 1, "callers": [
{"kind": "mesh", "id": "bob", "permission_scope": "", "workspace": "", "uid": 1, "tokens": [
{"id": "tok_1", "hash": "`+hashA+`", "created_at": "2026-01-01T00:00:00Z"}
]}
]}`, old, new, 1)
}

func TestAFileIsReadStrictly(t *testing.T) {
	secondToken := `}, {"id": "tok_2", "hash": "` + hashB + `", "created_at": "2026-01-01T00:00:00Z"}`
	secondCaller := func(id, workspace, uid string) string {
		return `]}, {"kind": "mesh", "id": "` + id + `", "workspace": "` + workspace + `", "uid": ` + uid + `, "tokens": []}`
	}
	for _, tt := range []struct {
		name, text string
		want       string // what the error speaks of, "" for no error
	}{
		{"as it should be", fileWith("", ""), ""},
		{"no callers", `{"version": 1}`, ""},
		{"a token id made by hand", fileWith("tok_1", "Laptop-2.old_one"), ""},
		{"no uid", fileWith(`, "uid": 1`, ""), ""},
		{"a second token", fileWith("}", secondToken), ""},
		{"a second caller", fileWith("]}", secondCaller("eve", "", "2")), ""},
		{"a token that ends", fileWith("00Z\"", `00Z", "expires_at": "2026-01-02T00:00:00.5+01:00"`), ""},

		{"empty", ``, "line 1"},
		{"not JSON", `version: 1`, "line 1"},
		{"cut short", fileWith("]}\n]}", ""), "line 4"},
		{"something after it", fileWith("]}\n]}", "]}\n]} x"), "line 5"},
		{"an array", `[]`, "wrong type"},
		{"no version", `{"callers": []}`, "version"},
		{"a later version", fileWith(`"version": 1`, `"version": 2`), "newer historyd"},
		{"version as a string", fileWith(`"version": 1`, `"version": "1"`), "wrong type near line 1"},
		{"unknown member above", fileWith(`"version"`, `"x": 1, "version"`), "unknown member near line 1"},
		{"unknown member of a caller", fileWith(`"uid"`, `"gid"`), "unknown member near line 2"},
		{"unknown member of a token", fileWith(`"hash"`, `"hash2"`), "unknown member near line 3"},
		{"a member in another case", fileWith(`"hash"`, `"Hash"`), "unknown member near line 3"},
		{"a hash as a member", fileWith(`"hash"`, `"`+hashA+`"`), "unknown member near line 3"},
		{"a member twice", fileWith(`"id": "bob"`, `"id": "bob", "id": "eve"`), "given twice near line 2"},
		{"invalid UTF-8", fileWith("bob", "b\xff"), "line 2"},
		{"a lone surrogate", fileWith("bob", `\ud800`), "line 2"},
		{"a kind there is not", fileWith("mesh", "admin"), "callers[0]: invalid caller: kind"},
		{"no id", fileWith(`"id": "bob", `, ""), "callers[0]: invalid caller: id"},
		{"a control character", fileWith("bob", `b\u0085`), "callers[0]: invalid caller: id"},
		{"a uid that is none", fileWith(`"uid": 1`, `"uid": 65534`), "uid 65534"},
		{"a uid below zero", fileWith(`"uid": 1`, `"uid": -1`), "wrong type near line 2"},
		{"a uid too large", fileWith(`"uid": 1`, `"uid": 4294967296`), "wrong type near line 2"},
		{"one caller twice", fileWith("]}", secondCaller("bob", "other", "2")), "callers[1]: kind, id and permission scope"},
		{"one uid twice", fileWith("]}", secondCaller("eve", "", "1")), "callers[1]: uid 1"},
		{"one token id twice", fileWith("}", strings.Replace(secondToken, "tok_2", "tok_1", 1)), "tokens[1]: the same token"},
		{"one hash twice", fileWith("}", strings.Replace(secondToken, hashB, hashA, 1)), "tokens[1]: the same token"},
		{"no token id", fileWith(`"id": "tok_1", `, ""), "tokens[0]: id"},
		{"a token id that is a flag", fileWith("tok_1", "-1"), "tokens[0]: id"},
		{"a token for its id", fileWith("tok_1", newToken()), "tokens[0]: id"},
		{"hash too short", fileWith(hashA, hashA[1:]), "tokens[0]: hash"},
		{"hash in upper case", fileWith(hashA, strings.ToUpper(hashA)), "tokens[0]: hash"},
		{"hash of other letters", fileWith(hashA, hashA[1:]+"g"), "tokens[0]: hash"},
		{"hash where a time should be", fileWith("2026-01-01T00:00:00Z", hashA), "line 3"},
		{"no time", fileWith(`, "created_at": "2026-01-01T00:00:00Z"`, ""), "tokens[0]: created_at"},
		{"a zero time", fileWith("00Z\"", `00Z", "expires_at": "0001-01-01T00:00:00Z"`), "tokens[0]: a time"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			_, err := parse([]byte(tt.text))
			if tt.want == "" {
				if err != nil {
					t.Errorf("got %v for %s", err, tt.text)
				}
				return
			}
			if !errors.Is(err, ErrCallersFile) || !strings.Contains(err.Error(), tt.want) {
				t.Fatalf("got %v, want ErrCallersFile that says %q for %s", err, tt.want, tt.text)
			}
			for _, secret := range []string{hashA[:32], hashB[:32], strings.ToUpper(hashA[:32]), tokenPrefix} {
				if strings.Contains(err.Error(), secret) {
					t.Errorf("the error shows a hash: %v", err)
				}
			}
		})
	}
}

func TestAFileThatIsNotUnderstoodIsNotReplaced(t *testing.T) {
	b := newBench(t)
	text := fileWith(`"uid"`, `"gid"`)
	b.plant(t, text)
	if _, _, err := b.file.Create(NewToken{Caller: mesh("eve")}); !errors.Is(err, ErrCallersFile) {
		t.Errorf("create: %v", err)
	}
	if err := b.file.Revoke("tok_1"); !errors.Is(err, ErrCallersFile) {
		t.Errorf("revoke: %v", err)
	}
	if _, err := b.file.List(); !errors.Is(err, ErrCallersFile) {
		t.Errorf("list: %v", err)
	}
	if got := b.content(t); got != text {
		t.Errorf("the file changed to %s", got)
	}
}

func FuzzCallersFile(f *testing.F) {
	f.Add([]byte(fileWith("", "")))
	f.Add([]byte(`{"version":1,"callers":null}`))
	f.Add([]byte(fileWith("}", `, "revoked_at": null}`)))
	f.Fuzz(func(t *testing.T, data []byte) {
		doc, err := parse(data)
		if err != nil {
			if !errors.Is(err, ErrCallersFile) {
				t.Errorf("an error of no class: %v", err)
			}
			return
		}
		newView(doc, stamp{})
		out, err := doc.format()
		if err != nil {
			t.Fatalf("what was read can't be written: %v", err)
		}
		again, err := parse(out)
		if err != nil {
			t.Fatalf("what was written can't be read: %v: %s", err, out)
		}
		if twice, err := again.format(); err != nil || string(twice) != string(out) {
			t.Errorf("got %s, %v, want %s", twice, err, out)
		}
	})
}
