package historytest

import (
	"bytes"
	"encoding/json/jsontext"
	"errors"
	"fmt"
	"iter"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"historyd/internal/history"
)

var attachments = []one{
	{"bytes that are brought come back, with their type", broughtComesBack},
	{"the same bytes are kept once", keptOnce},
	{"a name without bytes must be held", namedMustBeHeld},
	{"what is not held is refused for that batch alone", refusedAlone},
	{"attachments belong to one conversation", attachmentsApart},
	{"an append that is refused brings nothing", refusedBringsNothing},
	{"nobody is handed bytes with a message", noBytesInMessages},
	{"after a clear attachments are gone", clearedAttachments},
}

var importedAttachments = []one{
	{"what an import asks for comes in order", importOrder},
	{"attachments come with the messages or behind them", importedBytes},
	{"an import that names what nobody brings does nothing", importWithoutBytes},
	{"what nobody brings can be mended", importMended},
	{"append and replace may name what is held", importNamesHeld},
	{"attachments are read on over an import that extends", attachmentsOverImport},
	{"skipped messages are counted, and the first are told", manySkipped},
}

// picture makes bytes that no other n gives.
func picture(n, size int) []byte {
	data := bytes.Repeat([]byte{byte(n), byte(n >> 8), 0xff, 0}, size/4+1)[:size]
	copy(data, fmt.Sprint("picture ", n, " "))
	return data
}

// shown is a message with a picture in it.
func shown(text string, data []byte) history.Message {
	m := person(text)
	b := history.Block{Type: history.ImageBlock, MediaType: "image/png"}
	b.SetData(data)
	m.Content = append(m.Content, b)
	return m
}

// named is a message with the name of a picture in it, inside of a result.
func named(text, name string) history.Message {
	m := result("c", text)
	m.Content[0].Plain = false
	m.Content[0].Content = append(m.Content[0].Content, history.Block{Type: history.ImageBlock, MediaType: "image/png", Attachment: name})
	return m
}

func batchOf(msgs ...history.Message) history.Batch { return history.Batch{Messages: msgs} }

// wantHeld reads an attachment that must be there.
func wantHeld(t tb, l history.Log, mediaType string, data []byte) {
	t.Helper()
	v := mustView(t, l)
	defer v.Close()
	a, err := v.Attachment(history.AttachmentName(data))
	if err != nil {
		t.Fatalf("Attachment: %v", err)
	}
	if a.Name != history.AttachmentName(data) || a.MediaType != mediaType || !bytes.Equal(a.Data, data) {
		t.Fatalf("an attachment of %d bytes came back as %s, %q, %d bytes", len(data), a.Name, a.MediaType, len(a.Data))
	}
}

// wantNotHeld reads an attachment that must not be there.
func wantNotHeld(t tb, l history.Log, data []byte) {
	t.Helper()
	v := mustView(t, l)
	defer v.Close()
	_, err := v.Attachment(history.AttachmentName(data))
	wantError(t, "Attachment", err, history.ErrNotFound)
}

func broughtComesBack(t *testing.T, e Engine) {
	l := e.Log("ann", "default")
	small, large := picture(1, 10), picture(2, 3<<20)
	bare := shown("no type", picture(3, 100))
	bare.Content[1].MediaType = ""
	mustAppend(t, l, batchOf(shown("a", small), shown("b", large), bare))
	for range 2 {
		wantHeld(t, l, "image/png", small)
		wantHeld(t, l, "image/png", large)
		wantHeld(t, l, "", picture(3, 100))
		wantNotHeld(t, l, picture(4, 10))
		v := mustView(t, l)
		if a, err := v.Named(history.AttachmentName(small)); err != nil || !bytes.Equal(a.Data, small) || v.Damage() != nil {
			t.Errorf("Named: %d bytes, %v, damage %+v", len(a.Data), err, v.Damage())
		}
		for _, name := range []string{"", "sha256:", "sha256:../../LOCK", history.AttachmentName(small)[7:]} {
			_, err := v.Attachment(name)
			wantError(t, fmt.Sprintf("Attachment(%q)", name), err, history.ErrNotFound)
			_, err = v.Named(name)
			wantError(t, fmt.Sprintf("Named(%q)", name), err, history.ErrNotFound)
		}
		v.Close()
		if s := mustState(t, l); s.Bytes < int64(len(large)) {
			t.Errorf("Bytes is %d with an attachment of %d", s.Bytes, len(large))
		}
		reopen(t, e)
		l = e.Log("ann", "default")
	}
	other := shown("c", small)
	other.Content[1].MediaType = "image/gif"
	mustAppend(t, l, batchOf(other))
	wantHeld(t, l, "image/png", small) // the first who brought it said so
}

func keptOnce(t *testing.T, e Engine) {
	l := e.Log("ann", "default")
	data := picture(1, 200_000)
	mustAppend(t, l, batchOf(shown("0", data), shown("1", data)))
	for i := 2; i < 6; i++ {
		mustAppend(t, l, batchOf(shown(fmt.Sprint(i), data)))
		if i == 3 {
			reopen(t, e)
			l = e.Log("ann", "default")
		}
	}
	if s := mustState(t, l); s.Bytes < 200_000 || s.Bytes > 220_000 {
		t.Errorf("Bytes is %d with six messages of one attachment of 200000", s.Bytes)
	}
	wantTexts(t, l, "0", "1", "2", "3", "4", "5")
}

func namedMustBeHeld(t *testing.T, e Engine) {
	l := e.Log("ann", "default")
	data := picture(1, 1000)
	name := history.AttachmentName(data)
	_, err := l.Append(background, batchOf(named("a", name)))
	wantError(t, "Append that names what is not there", err, history.ErrNoAttachment)
	if s := mustState(t, l); s.Exists() {
		t.Errorf("the conversation exists: %+v", s)
	}
	mustAppend(t, l, batchOf(named("before its bytes", name), shown("with them", data)))
	mustAppend(t, l, batchOf(named("after", name)))
	reopen(t, e)
	l = e.Log("ann", "default")
	mustAppend(t, l, batchOf(named("later", name)))
	_, err = l.Append(background, batchOf(named("b", name), named("c", history.AttachmentName(picture(2, 10)))))
	wantError(t, "Append that names one that is there and one that is not", err, history.ErrNoAttachment)
	wantTexts(t, l, "before its bytes", "with them", "after", "later")
}

func refusedAlone(t *testing.T, e Engine) {
	l := e.Log("ann", "default")
	mustAppend(t, l, said("start"))
	together(20, func(i int) {
		if i%4 == 0 {
			if _, err := l.Append(background, batchOf(named("x", history.AttachmentName(picture(i, 5))))); !errors.Is(err, history.ErrNoAttachment) {
				t.Errorf("Append: %v", err)
			}
			return
		}
		if _, err := l.Append(background, batchOf(shown(fmt.Sprint(i), picture(i%3, 5000)))); err != nil {
			t.Errorf("Append: %v", err)
		}
	})
	if msgs := content(t, l); len(msgs) != 16 {
		t.Errorf("%d messages, want 16", len(msgs))
	}
	for i := range 3 {
		wantHeld(t, l, "image/png", picture(i, 5000))
	}
}

func attachmentsApart(t *testing.T, e Engine) {
	data := picture(1, 100)
	mustAppend(t, e.Log("ann", "default"), batchOf(shown("a", data)))
	for _, l := range []history.Log{e.Log("ann", "other"), e.Log("bob", "default")} {
		mustAppend(t, l, said("b"))
		wantNotHeld(t, l, data)
		_, err := l.Append(background, batchOf(named("c", history.AttachmentName(data))))
		wantError(t, "Append that names what another conversation holds", err, history.ErrNoAttachment)
		mustAppend(t, l, batchOf(shown("c", data)))
		mustClear(t, l)
	}
	wantHeld(t, e.Log("ann", "default"), "image/png", data)
}

func refusedBringsNothing(t *testing.T, e Engine) {
	l := e.Log("ann", "default")
	b := batchOf(shown("a", picture(1, 100)))
	b.Key = "k"
	mustAppend(t, l, b)
	b = batchOf(shown("b", picture(2, 100)))
	b.IfMatch = func(string) bool { return false }
	_, err := l.Append(background, b)
	wantError(t, "Append", err, history.ErrPrecondition)
	b = batchOf(shown("c", picture(3, 100)), named("d", history.AttachmentName(picture(9, 1))))
	_, err = l.Append(background, b)
	wantError(t, "Append", err, history.ErrNoAttachment)
	b = batchOf(shown("e", picture(4, 100)))
	b.Key, b.Fingerprint = "k", [32]byte{1}
	_, err = l.Append(background, b)
	wantError(t, "Append", err, history.ErrKeyMismatch)
	for i := 2; i < 5; i++ {
		wantNotHeld(t, l, picture(i, 100))
	}
}

func noBytesInMessages(t *testing.T, e Engine) {
	l := e.Log("ann", "default")
	look := func(m history.Message) {
		m.MediaBlocks(func(b *history.Block) {
			if b.Data != nil || b.Attachment == "" {
				t.Errorf("message %d has %d bytes of %q at hand", m.Seq, len(b.Data), b.Attachment)
			}
		})
	}
	f := &looking{look: look}
	for i := range 6 {
		b := batchOf(shown(fmt.Sprint(i), picture(i, 5000)), answer("yes"))
		b.Fold = f
		mustAppend(t, l, b)
	}
	if f.seen == 0 {
		t.Error("nothing was folded")
	}
	for _, m := range content(t, l) {
		look(m)
	}
	doc := []history.Message{shown("i", picture(7, 100)), answer("j")}
	mustImport(t, l, history.Import{Mode: history.Extend, Messages: all(doc...), Fold: f})
	if doc[0].Content[1].Data == nil {
		t.Error("an import has changed the message that it was given")
	}
}

// looking is a folder that looks at each message and folds nothing.
type looking struct {
	look func(history.Message)
	seen int
}

func (f *looking) Due(_, _ history.Window) bool { return true }

func (f *looking) Fold(_ *history.Summary, window iter.Seq2[history.Message, error]) (*history.Summary, error) {
	for m, err := range window {
		if err != nil {
			return nil, err
		}
		f.seen++
		f.look(m)
	}
	return nil, nil
}

func clearedAttachments(t *testing.T, e Engine) {
	l := e.Log("ann", "default")
	data := picture(1, 100)
	mustAppend(t, l, batchOf(shown("a", data)))
	v := mustView(t, l)
	defer v.Close()
	mustClear(t, l)
	_, err := v.Attachment(history.AttachmentName(data))
	wantError(t, "Attachment of a view of before a clear", err, history.ErrGone)
	wantNotHeld(t, l, data)
	_, err = l.Append(background, batchOf(named("b", history.AttachmentName(data))))
	wantError(t, "Append that names what was cleared", err, history.ErrNoAttachment)
	mustAppend(t, l, said("another life"))
	wantNotHeld(t, l, data)
	mustAppend(t, l, batchOf(shown("c", data)))
	_, err = v.Attachment(history.AttachmentName(data))
	wantError(t, "Attachment of a view of the life before", err, history.ErrGone)
	wantHeld(t, l, "image/png", data)
}

// behind yields attachments as an import takes them.
func behind(asked func(), list ...history.Attachment) iter.Seq2[history.Attachment, error] {
	return func(yield func(history.Attachment, error) bool) {
		asked()
		for _, a := range list {
			if !yield(a, nil) {
				return
			}
		}
	}
}

func attachmentOf(mediaType string, data []byte) history.Attachment {
	return history.Attachment{Name: history.AttachmentName(data), MediaType: mediaType, Data: data}
}

func importOrder(t *testing.T, e Engine) {
	for _, key := range []string{"", "k"} {
		l := e.Log("ann", "order"+key)
		mustAppend(t, l, batchOf(withID(person("there"), "x")))
		own := content(t, l)[0].ID
		var order []string
		note := func(what string) { order = append(order, what) }
		imp := history.Import{Mode: history.Extend, Key: key,
			Messages: func(yield func(history.Message, error) bool) {
				for _, m := range append(document(2), withID(person("again"), own)) {
					note("message")
					if !yield(m, nil) {
						return
					}
				}
			},
			Attachments: behind(func() { note("attachments") }),
			CreatedAt:   at(longAgo),
			Fingerprint: func() [32]byte { note("fingerprint"); return [32]byte{1} },
			Remember:    func() jsontext.Value { note("remember"); return jsontext.Value(`{"r":1}`) },
			Note:        func(s []int64) jsontext.Value { note(fmt.Sprint("note ", s)); return jsontext.Value(`{"n":1}`) },
		}
		r := mustImport(t, l, imp)
		want := []string{"message", "message", "message", "attachments", "fingerprint", "remember", "note [2]"}
		if key == "" {
			want = slices.Delete(want, 4, 5)
		}
		if diff := cmp.Diff(want, order); diff != "" {
			t.Errorf("order: %s", diff)
		}
		if r.Skipped != 1 || r.Added != 2 {
			t.Errorf("receipt %+v", r)
		}
		wantTexts(t, l, "there", "d1", "d2")
		if key == "" {
			continue
		}
		order = nil
		if r := mustImport(t, l, imp); !r.Replayed || r.Skipped != 1 || slices.Contains(order, "note [2]") {
			t.Errorf("again: receipt %+v, after %q", r, order)
		}
	}
}

func importedBytes(t *testing.T, e Engine) {
	inline, after, typed, unnamed := picture(1, 5000), picture(2, 5000), picture(3, 10), picture(4, 10)
	for _, mode := range []history.ImportMode{history.Create, history.Extend, history.Replace} {
		l := e.Log("ann", string(mode))
		if mode != history.Create {
			mustAppend(t, l, batchOf(shown("before", picture(9, 1000))))
		}
		doc := []history.Message{
			withID(shown("a", inline), "1"), withID(named("b", history.AttachmentName(after)), "2"),
			withID(named("c", history.AttachmentName(typed)), "3"), withID(shown("d", inline), "4"),
		}
		r := mustImport(t, l, history.Import{Mode: mode, Messages: all(doc...), Attachments: behind(func() {},
			attachmentOf("", after), attachmentOf("image/webp", typed), attachmentOf("", unnamed))})
		if r.Added != 4 {
			t.Errorf("receipt %+v", r)
		}
		for range 2 {
			wantHeld(t, l, "image/png", inline)
			wantHeld(t, l, "image/png", after)
			wantHeld(t, l, "image/webp", typed)
			wantNotHeld(t, l, unnamed)
			if s := mustState(t, l); s.Bytes < 10_000 || s.Bytes > 20_000 {
				t.Errorf("%s: Bytes is %d", mode, s.Bytes)
			}
			if mode == history.Extend {
				wantHeld(t, l, "image/png", picture(9, 1000))
			} else {
				wantNotHeld(t, l, picture(9, 1000))
			}
			reopen(t, e)
			l = e.Log("ann", string(mode))
		}
		mustAppend(t, l, batchOf(named("e", history.AttachmentName(after))))
	}
}

func importWithoutBytes(t *testing.T, e Engine) {
	for _, mode := range []history.ImportMode{history.Create, history.Extend, history.Replace} {
		l := e.Log("ann", string(mode))
		var want []string
		if mode != history.Create {
			mustAppend(t, l, said("before"))
			want = []string{"before"}
		}
		doc := append(document(300), named("x", history.AttachmentName(picture(1, 10))))
		doc = append([]history.Message{shown("y", picture(2, 10))}, doc...)
		_, err := l.Import(background, history.Import{Mode: mode, Messages: all(doc...),
			Attachments: behind(func() {}, attachmentOf("", picture(3, 10)))})
		wantError(t, "Import", err, history.ErrNoAttachment)
		wantTexts(t, l, want...)
		wantNotHeld(t, l, picture(2, 10))
		failing := func(yield func(history.Attachment, error) bool) { yield(history.Attachment{}, errBad) }
		_, err = l.Import(background, history.Import{Mode: mode, Messages: all(doc...), Attachments: failing})
		wantError(t, "Import of bad attachments", err, errBad)
		wantTexts(t, l, want...)
	}
}

// importMended holds that every message that is added can be mended when everything has
// been taken, and no other is given to be.
func importMended(t *testing.T, e Engine) {
	for _, mode := range []history.ImportMode{history.Create, history.Extend, history.Replace} {
		l := e.Log("ann", string(mode))
		doc := []history.Message{withID(named("x", history.AttachmentName(picture(1, 10))), "x"), withID(person("y"), "y"), withID(named("z", history.AttachmentName(picture(2, 10))), "z")}
		want, given := []string{"x", "y", "z"}, []string{"x", "y", "z"}
		if mode != history.Create {
			mustImport(t, l, history.Import{Mode: history.Create, Messages: all(withID(person("before"), "y"))})
		}
		if mode == history.Extend {
			want, given = []string{"before", "x", "z"}, []string{"x", "z"}
		}
		taken, got := false, []string{}
		r := mustImport(t, l, history.Import{Mode: mode, Messages: all(doc...),
			Attachments: behind(func() { taken = true }, attachmentOf("image/gif", picture(2, 10))),
			Mend: func(m *history.Message) {
				if got = append(got, m.ID); !taken {
					t.Error("a message is mended before everything was taken")
				}
				m.MediaBlocks(func(b *history.Block) {
					if b.Attachment == history.AttachmentName(picture(1, 10)) {
						*b = history.Text("mended")
					}
				})
			}})
		if diff := cmp.Diff(given, got); diff != "" || r.Added != int64(len(given)) {
			t.Errorf("%s: mended (-want +got): %s, %+v", mode, diff, r)
		}
		wantTexts(t, l, want...)
		for _, m := range content(t, l) {
			if inner := m.Content[0].Content; m.ID == "x" && inner[1].Text != "mended" || m.ID == "z" && inner[1].Attachment == "" {
				t.Errorf("%s: message %s holds %+v", mode, m.ID, inner)
			}
		}
		wantHeld(t, l, "image/gif", picture(2, 10))
		wantNotHeld(t, l, picture(1, 10))
	}
}

func importNamesHeld(t *testing.T, e Engine) {
	data, other := picture(1, 5000), picture(2, 5000)
	l := e.Log("ann", "default")
	mustAppend(t, l, batchOf(shown("a", data), shown("b", other)))
	doc := []history.Message{withID(named("c", history.AttachmentName(data)), "c")}
	mustImport(t, l, history.Import{Mode: history.Extend, Messages: all(doc...)})
	wantTexts(t, l, "a", "b", "c")
	mustImport(t, l, history.Import{Mode: history.Replace, Messages: all(doc...)})
	for range 2 {
		wantTexts(t, l, "c")
		wantHeld(t, l, "image/png", data)
		wantNotHeld(t, l, other)
		if s := mustState(t, l); s.Bytes < 5000 || s.Bytes > 10_000 {
			t.Errorf("Bytes is %d", s.Bytes)
		}
		reopen(t, e)
		l = e.Log("ann", "default")
	}
}

func attachmentsOverImport(t *testing.T, e Engine) {
	l := e.Log("ann", "default")
	data := picture(1, 5000)
	mustAppend(t, l, batchOf(shown("a", data)))
	v := mustView(t, l)
	defer v.Close()
	for i := range 3 {
		doc := []history.Message{withID(shown("b", picture(2+i, 100)), fmt.Sprint(i))}
		mustImport(t, l, history.Import{Mode: history.Extend, Messages: all(doc...)})
	}
	if a, err := v.Attachment(history.AttachmentName(data)); err != nil || !bytes.Equal(a.Data, data) {
		t.Errorf("Attachment of a view of before: %d bytes, %v", len(a.Data), err)
	}
	mustImport(t, l, history.Import{Mode: history.Replace, Messages: all(document(1)...)})
	_, err := v.Attachment(history.AttachmentName(data))
	wantError(t, "Attachment of a view of a record that was replaced", err, history.ErrGone)
}

func manySkipped(t *testing.T, e Engine) {
	const n = history.MaxSkipped + 200
	l := e.Log("ann", "default")
	mustImport(t, l, history.Import{Mode: history.Create, Messages: all(document(n)...)})
	told := -1
	r := mustImport(t, l, history.Import{Mode: history.Extend, Messages: all(append(document(n), person("new"))...),
		Note: func(s []int64) jsontext.Value { told = len(s); return nil }})
	if r.Skipped != n || r.Added != 1 || r.FirstSeq != n+1 || told != history.MaxSkipped {
		t.Errorf("receipt %+v, %d positions told", r, told)
	}
}
