package historytest

import (
	"fmt"
	"iter"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"historyd/internal/history"
)

var reads = []one{
	{"any range, either way, at any time, is that of a list", likeAList},
	{"the tail of a long record is read from either end", tails},
	{"a view stays as it was", viewStays},
	{"a view is read many times, and by many at once", viewShared},
	{"a reader may stop and leave", stopEarly},
	{"pages meet without gap or repeat", pages},
	{"a record is the message as stored", recordIsStored},
}

// model is a conversation as a list.
type model struct {
	log   history.Log
	texts []string
}

// check compares one range, read both ways, with the list.
func (m *model) check(t tb, from, to int64, limit int) {
	t.Helper()
	v := mustView(t, m.log)
	defer v.Close()
	got, err := collect(v.Records(from, to), limit)
	if err != nil {
		t.Fatalf("Records(%d, %d): %v", from, to, err)
	}
	m.same(t, fmt.Sprintf("Records(%d, %d)", from, to), got, m.between(from, to), limit)
	got, err = collect(v.Backward(to), limit)
	if err != nil {
		t.Fatalf("Backward(%d): %v", to, err)
	}
	want := m.between(1, to-1)
	slices.Reverse(want)
	m.same(t, fmt.Sprintf("Backward(%d)", to), got, want, limit)
	if d := v.Damage(); d != nil {
		t.Fatalf("damage: %+v", d)
	}
}

// between lists "seq text" of the seqs from one to another.
func (m *model) between(from, to int64) []string {
	var out []string
	for seq := max(1, from); seq <= min(to, int64(len(m.texts))); seq++ {
		out = append(out, fmt.Sprint(seq, " ", m.texts[seq-1]))
	}
	return out
}

func (m *model) same(t tb, what string, got []history.Message, want []string, limit int) {
	t.Helper()
	want = want[:min(len(want), limit)]
	var texts []string
	for _, msg := range got {
		texts = append(texts, fmt.Sprint(msg.Seq, " ", textOf(msg)))
	}
	if !slices.Equal(texts, want) {
		t.Fatalf("%s of %d messages gave %q, want %q", what, len(m.texts), texts, want)
	}
}

func likeAList(t *testing.T, e Engine) {
	conversation := 0
	rapid.Check(t, func(t *rapid.T) {
		conversation++
		name := fmt.Sprint("c", conversation)
		m := &model{log: e.Log("ann", name)}
		size := rapid.SampledFrom([]int{1, 40, 400, 5000})
		batch := func() (msgs []history.Message) {
			for range rapid.IntRange(1, 4).Draw(t, "messages") {
				text := fmt.Sprintf("%d.%0*d", len(m.texts), size.Draw(t, "size"), 0)
				m.texts = append(m.texts, text)
				msgs = append(msgs, person(text))
			}
			return msgs
		}
		bound := func(name string) int64 {
			n := int64(len(m.texts))
			return rapid.OneOf(rapid.Int64Range(-1, n+2), rapid.Just(int64(everything)), rapid.Int64Range(max(0, n-3), n+1)).Draw(t, name)
		}
		t.Repeat(map[string]func(*rapid.T){
			"append":  func(*rapid.T) { mustAppend(t, m.log, history.Batch{Messages: batch()}) },
			"append2": func(*rapid.T) { mustAppend(t, m.log, history.Batch{Messages: batch()}) },
			"import": func(*rapid.T) {
				mustImport(t, m.log, history.Import{Mode: history.Extend, Messages: all(batch()...)})
			},
			"replace": func(*rapid.T) {
				m.texts = nil
				mustImport(t, m.log, history.Import{Mode: history.Replace, Messages: all(batch()...)})
			},
			"clear": func(t *rapid.T) {
				if rapid.IntRange(0, 9).Draw(t, "luck") > 0 {
					t.Skip("not this time")
				}
				mustClear(t, m.log)
				m.texts = nil
			},
			"restart": func(t *rapid.T) {
				if rapid.IntRange(0, 3).Draw(t, "luck") > 0 {
					t.Skip("not this time")
				}
				reopen(t, e)
				m.log = e.Log("ann", name)
			},
			"": func(*rapid.T) {
				m.check(t, bound("from"), bound("to"), rapid.SampledFrom([]int{1, 2, everything}).Draw(t, "limit"))
				if s := mustState(t, m.log); s.LastSeq != int64(len(m.texts)) || s.Messages != s.LastSeq || s.Turns != s.LastSeq {
					t.Fatalf("State %+v, want %d messages", s, len(m.texts))
				}
			},
		})
	})
}

func tails(t *testing.T, e Engine) {
	m := &model{log: e.Log("ann", "default")}
	var msgs []history.Message
	for i := range 3000 {
		m.texts = append(m.texts, fmt.Sprint("m", i))
		msgs = append(msgs, person(m.texts[i]))
	}
	mustImport(t, m.log, history.Import{Mode: history.Create, Messages: all(msgs[:2900]...)})
	for _, msg := range msgs[2900:] {
		mustAppend(t, m.log, history.Batch{Messages: []history.Message{msg}})
	}
	reopen(t, e)
	m.log = e.Log("ann", "default")
	for _, n := range []int64{1, 2, 10, 100, 101, 500} {
		m.check(t, 3000-n+1, 3000, everything)
		m.check(t, 3000-n+1, 3001, int(n))
	}
	for _, seq := range []int64{1, 127, 128, 129, 1500, 2899, 2900, 2901} {
		m.check(t, seq, seq, 10)
		m.check(t, seq, seq+1, 10)
	}
	m.check(t, 1, 3001, everything)
}

func viewStays(t *testing.T, e Engine) {
	m := &model{log: e.Log("ann", "default")}
	mustAppend(t, m.log, said("a", "b"))
	v := mustView(t, m.log)
	defer v.Close()
	before := v.State()
	filled(t, m.log, 300)
	m.texts = []string{"a", "b"}
	got, err := collect(v.Records(1, everything), everything)
	m.same(t, "Records of an old view", got, m.between(1, 2), everything)
	if err != nil || v.State().ETag() != before.ETag() || v.State().LastSeq != 2 {
		t.Errorf("the state of an old view became %+v, %v", v.State(), err)
	}
	got, err = collect(v.Backward(everything), 2)
	if err != nil || len(got) != 2 || got[0].Seq != 2 {
		t.Errorf("Backward of an old view began with %q, %v", textsOf(got), err)
	}
}

func viewShared(t *testing.T, e Engine) {
	l := e.Log("ann", "default")
	filled(t, l, 400)
	v := mustView(t, l)
	defer v.Close()
	together(6, func(i int) {
		for range 3 {
			records, want := v.Records(int64(i*50), everything), 400-max(0, i*50-1)
			if i%2 == 1 {
				records, want = v.Backward(int64(i*50)), i*50-1
			}
			if got, err := collect(records, everything); err != nil || len(got) != want {
				t.Errorf("reader %d got %d messages, want %d: %v", i, len(got), want, err)
			}
		}
	})
}

func stopEarly(t *testing.T, e Engine) {
	l := e.Log("ann", "default")
	filled(t, l, 50)
	v := mustView(t, l)
	for _, records := range []iter.Seq2[history.Record, error]{v.Records(1, 50), v.Backward(51)} {
		for range records {
			break
		}
	}
	v.Close()
	v.Close()
	mustAppend(t, l, said("more"))
	mustClear(t, l)
}

func pages(t *testing.T, e Engine) {
	m := &model{log: e.Log("ann", "default")}
	var b history.Batch
	for i := range 50 {
		m.texts = append(m.texts, fmt.Sprint("m", i))
		b.Messages = append(b.Messages, person(m.texts[i]))
	}
	mustAppend(t, m.log, b)
	v := mustView(t, m.log)
	defer v.Close()
	var up, down []history.Message
	for from := int64(1); ; {
		page, err := collect(v.Records(from, everything), 7)
		if err != nil {
			t.Fatal(err)
		}
		if len(page) == 0 {
			break
		}
		up = append(up, page...)
		from = page[len(page)-1].Seq + 1
	}
	for before := int64(everything); ; {
		page, err := collect(v.Backward(before), 7)
		if err != nil {
			t.Fatal(err)
		}
		if len(page) == 0 {
			break
		}
		down = append(down, page...)
		before = page[len(page)-1].Seq
	}
	slices.Reverse(down)
	m.same(t, "pages upwards", up, m.between(1, 50), everything)
	m.same(t, "pages downwards", down, m.between(1, 50), everything)
}

func recordIsStored(t *testing.T, e Engine) {
	l := e.Log("ann", "default")
	mustAppend(t, l, history.Batch{Messages: []history.Message{person("<a & b>"), call("c", "f")}})
	v := mustView(t, l)
	defer v.Close()
	for r, err := range v.Records(1, 2) {
		if err != nil {
			t.Fatal(err)
		}
		m, err := r.Message()
		if err != nil {
			t.Fatal(err)
		}
		if want := string(history.AppendMessage(nil, &m)); string(r.JSON) != want {
			t.Errorf("record %s, want %s", r.JSON, want)
		}
	}
}
