package wire

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"
	"testing"

	"historyd/internal/history"
)

// tarEntry is one of an archive; a regular file unless it says otherwise.
type tarEntry struct {
	tar.Header
	data string
}

func file(name, data string) tarEntry { return tarEntry{tar.Header{Name: name}, data} }

func attachmentFile(data, ext string) tarEntry {
	sum := sha256.Sum256([]byte(data))
	return file("attachments/"+hex.EncodeToString(sum[:])+ext, data)
}

func archiveOf(t testing.TB, entries ...tarEntry) []byte {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, e := range entries {
		if e.Typeflag == 0 {
			e.Typeflag = tar.TypeReg
		}
		if e.Typeflag == tar.TypeReg {
			e.Size, e.Mode = int64(len(e.data)), 0o600
		}
		if err := w.WriteHeader(&e.Header); err != nil {
			t.Fatal(err)
		}
		if e.Typeflag == tar.TypeReg {
			if _, err := w.Write([]byte(e.data)); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func tarDoc(attachments ...string) tarEntry {
	doc := nativeHead + `{"role":"user","content":[{"type":"text","text":"look"}`
	for _, data := range attachments {
		doc += `,{"type":"image","media_type":"image/png","attachment":"` + history.AttachmentName([]byte(data)) + `"}`
	}
	return file("history.json", doc+`]}]}`)
}

func goodTar(t testing.TB) []byte {
	return archiveOf(t, tarDoc("one", "two"), attachmentFile("one", ".png"), attachmentFile("two", ""))
}

type tarReading struct {
	messages    int
	attachments []history.Attachment
	faults      string
	err         error
}

func readTar(body []byte, limit int64) (got tarReading) {
	d, err := NewReader(Tar, false, bytes.NewReader(body), limit)
	if err != nil {
		return tarReading{err: err}
	}
	for _, err := range d.Messages() {
		if err != nil {
			got.err = err
			break
		}
		got.messages++
	}
	for a, err := range d.Attachments() {
		if err != nil {
			got.err = err
			break
		}
		got.attachments = append(got.attachments, a)
	}
	for _, f := range d.Faults().List {
		got.faults += f.Path + ";"
	}
	return got
}

func TestAnArchiveBringsItsAttachments(t *testing.T) {
	got := readTar(goodTar(t), 0)
	if got.err != nil || got.faults != "" || got.messages != 1 || len(got.attachments) != 2 {
		t.Fatalf("got %+v", got)
	}
	folder := tarEntry{tar.Header{Name: "attachments/", Typeflag: tar.TypeDir}, ""}
	if again := readTar(archiveOf(t, tarDoc("one"), folder, attachmentFile("one", ".png")), 0); again.err != nil || again.faults != "" || len(again.attachments) != 1 {
		t.Errorf("with the folder: got %+v", again)
	}
	a := got.attachments[0]
	if a.Name != history.AttachmentName([]byte("one")) || string(a.Data) != "one" {
		t.Errorf("got %+v", a)
	}
}

func TestArchivesOfAnotherShapeAreRefused(t *testing.T) {
	one := attachmentFile("one", "")
	with := func(e tarEntry) []byte { return archiveOf(t, tarDoc("one"), e, one) }
	other := func(h tar.Header) []byte { return with(tarEntry{h, ""}) }
	renamed := func(name string) []byte { return with(file(name, "x")) }
	// The right name of its content, so that nothing but where it stands is wrong.
	digits := strings.TrimPrefix(history.AttachmentName([]byte("x")), history.AttachmentScheme)
	var zipped bytes.Buffer
	z := gzip.NewWriter(&zipped)
	_, err := z.Write(goodTar(t))
	if err := errors.Join(err, z.Close()); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		name string
		body []byte
		want string // paths of faults
	}{
		{"gzip", zipped.Bytes(), ";"},
		{"attachment first", archiveOf(t, one, tarDoc("one")), ";"},
		{"another name", archiveOf(t, file("./history.json", "{}")), ";"},
		{"a link to the document", archiveOf(t, tarEntry{tar.Header{Name: "history.json", Typeflag: tar.TypeSymlink, Linkname: "/etc/passwd"}, ""}), ";"},
		{"the document twice", with(tarDoc()), "attachments[0];"},
		{"another folder", renamed("files/" + digits), "attachments[0];"},
		{"a way out", renamed("attachments/../" + digits), "attachments[0];"},
		{"an absolute path", renamed("/attachments/" + digits), "attachments[0];"},
		{"a path inside", renamed("attachments/a/" + digits), "attachments[0];"},
		{"capitals", renamed("attachments/" + strings.ToUpper(digits)), "attachments[0];"},
		{"no digits", renamed("attachments/.png"), "attachments[0];"},
		{"an extension with a path", renamed("attachments/" + digits + ".a/b"), "attachments[0];"},
		{"two extensions", renamed("attachments/" + digits + ".tar.gz"), "attachments[0];"},
		{"no extension after the point", renamed("attachments/" + digits + "."), "attachments[0];"},
		{"a long name", renamed("attachments/" + strings.Repeat("0", 300)), "attachments[0];"},
		{"no folder", renamed(digits), "attachments[0];"},
		{"another content", renamed("attachments/" + strings.Repeat("0", 64)), "attachments[0];"},
		{"twice", with(attachmentFile("one", ".png")), "attachments[1];"},
		{"empty", with(attachmentFile("", "")), "attachments[0];"},
		{"a folder", other(tar.Header{Name: "more/", Typeflag: tar.TypeDir}), "attachments[0];"},
		{"a symbolic link", other(tar.Header{Name: "attachments/" + digits, Typeflag: tar.TypeSymlink, Linkname: "x"}), "attachments[0];"},
		{"a hard link", other(tar.Header{Name: "attachments/" + digits, Typeflag: tar.TypeLink, Linkname: "history.json"}), "attachments[0];"},
		{"a device", other(tar.Header{Name: "attachments/" + digits, Typeflag: tar.TypeChar}), "attachments[0];"},
		{"a pipe", other(tar.Header{Name: "attachments/" + digits, Typeflag: tar.TypeFifo}), "attachments[0];"},
		{"a global header", other(tar.Header{Name: "x", Typeflag: tar.TypeXGlobalHeader, PAXRecords: map[string]string{"comment": "x"}}), "attachments[0];"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got := readTar(tt.body, 0)
			if got.err != nil || got.faults != tt.want {
				t.Errorf("faults at %q, %v, want %q", got.faults, got.err, tt.want)
			}
			if strings.HasPrefix(tt.want, "attachments") && len(got.attachments) != 1 {
				t.Errorf("%d attachments, want the good one", len(got.attachments))
			}
		})
	}
}

func TestACutArchiveIsNoArchive(t *testing.T) {
	good := goodTar(t)
	for i := range good {
		got := readTar(good[:i], 0)
		var torn *ArchiveError
		if !errors.As(got.err, &torn) {
			t.Fatalf("cut to %d of %d bytes: %v, faults %q", i, len(good), got.err, got.faults)
		}
	}
	padded := append(bytes.Clone(good), make([]byte, 10240)...)
	if got := readTar(padded, 0); got.err != nil || got.faults != "" {
		t.Errorf("padded: %+v", got)
	}
	for i := len(good); i < len(padded); i += 700 {
		padded[i] = 1
		var torn *ArchiveError
		if got := readTar(padded, 0); !errors.As(got.err, &torn) || torn.Offset != int64(i) {
			t.Errorf("rubbish at %d: %v", i, got.err)
		}
		padded[i] = 0
	}
}

func TestSizesInAnArchiveAreBounded(t *testing.T) {
	big := strings.Repeat("x", 5000)
	body := archiveOf(t, tarDoc(big), attachmentFile(big, ""))
	if got := readTar(body, 5000); got.err != nil || got.faults != "" {
		t.Errorf("at the limit: %+v", got)
	}
	var large *TooLarge
	if got := readTar(body, 4999); !errors.As(got.err, &large) || *large != (TooLarge{"attachments[0]", 4999, 5000}) {
		t.Errorf("over the limit: %v", got.err)
	}
	body = archiveOf(t, file("history.json", nativeHead+`{"role":"user","content":"`+strings.Repeat("x", 20_000)+`"}]}`))
	if got := readTar(body, 100); !errors.As(got.err, &large) || large.Path != "messages[0]" {
		t.Errorf("message over the limit: %v", got.err)
	}
}

func TestWhatCannotBeReadOfAnArchiveHidesNothing(t *testing.T) {
	big, torn := strings.Repeat("x", 5000), tarDoc("one")
	torn.data = torn.data[:len(torn.data)-4]
	spoilt := tarDoc("one")
	spoilt.data = strings.TrimSuffix(spoilt.data, "]}") + `,{"a":1,"a":1}]}`
	for _, tt := range []struct {
		name        string
		body        []byte
		want        string
		attachments int
	}{
		{"large attachments", archiveOf(t, tarDoc("one", "two", big), attachmentFile(big, ""), attachmentFile("one", ""), attachmentFile(big+"x", ""), file("other", "")), "attachments[0];attachments[2];attachments[3];", 1},
		{"a bad message", archiveOf(t, spoilt, attachmentFile(big, ""), attachmentFile("one", "")), "messages[1];attachments[0];", 1},
		{"a torn document", archiveOf(t, torn, attachmentFile(big, "")), "messages[0];", 0},
		{"a bad message and a torn archive", archiveOf(t, spoilt, attachmentFile("one", ""))[:3<<9], "messages[1];attachments;", 0},
	} {
		got := readTar(tt.body, 4000)
		var unread *Unreadable
		if got.faults != tt.want || len(got.attachments) != tt.attachments || !errors.As(got.err, &unread) {
			t.Errorf("%s: %d attachments, faults at %q, %v, want %q", tt.name, len(got.attachments), got.faults, got.err, tt.want)
		}
	}
}

func FuzzTar(f *testing.F) {
	good := goodTar(f)
	f.Add(good)
	f.Add(good[:700])
	f.Add(archiveOf(f, tarEntry{tar.Header{Name: "history.json", Typeflag: tar.TypeSymlink, Linkname: "x"}, ""}))
	f.Fuzz(func(t *testing.T, body []byte) {
		got := readTar(body, 1<<20)
		for _, a := range got.attachments {
			if history.AttachmentName(a.Data) != a.Name {
				t.Fatal(fmt.Sprint("an attachment is not what its name says: ", a.Name))
			}
		}
	})
}
