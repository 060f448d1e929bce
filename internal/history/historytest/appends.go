package historytest

import (
	"context"
	"encoding/json/jsontext"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"historyd/internal/history"
)

var appends = []one{
	{"200 at once on a new conversation are counted from 1 to n, each next to its own", atOnce},
	{"the order within a batch is the order sent", orderWithin},
	{"a batch is seen whole or not at all", wholeOrNot},
	{"a receipt tells what was stored", receiptsTell},
	{"what was handed in is not changed", inputKept},
	{"the same message twice is two messages", twice},
	{"callers and conversations with similar names do not meet", apart},
	{"big lines at once are not mixed", bigAtOnce},
	{"letters of many bytes come back wherever they lie", manyBytes},
	{"whoever gives up waiting leaves whole batches", givenUp},
	{"every part of a message comes back", everyPart},
	{"a batch of nothing is no message", nothing},
}

// together runs n functions at once and waits for them.
func together(n int, fn func(i int)) {
	var wg sync.WaitGroup
	start := make(chan struct{})
	for i := range n {
		wg.Go(func() {
			<-start
			fn(i)
		})
	}
	close(start)
	wg.Wait()
}

func atOnce(t *testing.T, e Engine) {
	l := e.Log("ann", "busy")
	const n = 200
	receipts, errs := make([]history.Receipt, n), make([]error, n)
	together(n, func(i int) {
		var texts []string
		for j := range i%3 + 1 {
			texts = append(texts, fmt.Sprintf("%d/%d", i, j))
		}
		receipts[i], errs[i] = l.Append(background, said(texts...))
	})
	check := func() {
		msgs := content(t, l)
		wantCounted(t, msgs)
		if want := n / 3 * 6; len(msgs) < want || mustState(t, l).LastSeq != int64(len(msgs)) {
			t.Fatalf("%d messages, LastSeq %d", len(msgs), mustState(t, l).LastSeq)
		}
		for i, r := range receipts {
			if errs[i] != nil {
				t.Fatalf("append %d: %v", i, errs[i])
			}
			if r.Added != int64(i%3+1) || r.LastSeq != r.FirstSeq+r.Added-1 || r.Epoch != receipts[0].Epoch {
				t.Fatalf("append %d: receipt %+v", i, r)
			}
			for j, m := range msgs[r.FirstSeq-1 : r.LastSeq] {
				if want := fmt.Sprintf("%d/%d", i, j); textOf(m) != want || m.ID != r.IDs[j] {
					t.Fatalf("seq %d is %q with id %s, want %q with id %s", m.Seq, textOf(m), m.ID, want, r.IDs[j])
				}
			}
		}
	}
	check()
	reopen(t, e)
	l = e.Log("ann", "busy")
	check()
}

func orderWithin(t *testing.T, e Engine) {
	l := e.Log("ann", "default")
	b := history.Batch{Messages: []history.Message{
		person("u1"), call("c1", "search"), result("c1", "r1"), call("c2", "search"), result("c2", "r2"), answer("a1"), person("u2"), person("u1"),
	}}
	mustAppend(t, l, b)
	got := content(t, l)
	wantCounted(t, got)
	mustAppend(t, l, history.Batch{Messages: []history.Message{answer("a2")}})
	v, err := l.View(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer v.Close()
	for r, err := range v.Records(1, everything) {
		last := int64(len(b.Messages))
		if r.Seq > last {
			last++
		}
		if err != nil || r.Last != last {
			t.Errorf("message %d is of a commit that ends with %d, want %d: %v", r.Seq, r.Last, last, err)
		}
	}
	for i := range b.Messages {
		if got[i].Role != b.Messages[i].Role || textOf(got[i]) != textOf(b.Messages[i]) {
			t.Errorf("message %d is %s %q", i+1, got[i].Role, textOf(got[i]))
		}
		if i > 0 && (got[i].ID <= got[i-1].ID || got[i].At.Before(got[i-1].At)) {
			t.Errorf("id %q and time %v come before %q and %v", got[i].ID, got[i].At, got[i-1].ID, got[i-1].At)
		}
	}
}

func wholeOrNot(t *testing.T, e Engine) {
	l := e.Log("ann", "default")
	done := make(chan struct{})
	var watch sync.WaitGroup
	watch.Go(func() {
		for {
			msgs := content(t, l)
			for i, m := range msgs {
				if textOf(m) == "first" && (i+2 >= len(msgs) || textOf(msgs[i+1]) != "second" || textOf(msgs[i+2]) != "third") {
					t.Errorf("a batch is there in part: %q", textsOf(msgs[i:]))
				}
			}
			select {
			case <-done:
				return
			default:
			}
		}
	})
	together(4, func(int) {
		for range 10 {
			if _, err := l.Append(background, said("first", "second", "third")); err != nil {
				t.Errorf("Append: %v", err)
			}
		}
	})
	close(done)
	watch.Wait()
}

func receiptsTell(t *testing.T, e Engine) {
	l := e.Log("ann", "default")
	first := mustAppend(t, l, said("a", "b"))
	b := said("c")
	b.Note = jsontext.Value(`{"x":1}`)
	second := mustAppend(t, l, b)
	if first.FirstSeq != 1 || first.LastSeq != 2 || first.Added != 2 || first.Epoch == "" || first.Replayed {
		t.Errorf("first receipt %+v", first)
	}
	if second.FirstSeq != 3 || second.LastSeq != 3 || second.Added != 1 || second.Epoch != first.Epoch || string(second.Note) != `{"x":1}` {
		t.Errorf("second receipt %+v", second)
	}
	msgs := content(t, l)
	for i, id := range append(slices.Clone(first.IDs), second.IDs...) {
		if msgs[i].ID != id || msgs[i].At.IsZero() || msgs[i].Imported {
			t.Errorf("message %d is %+v, want id %s", i+1, msgs[i], id)
		}
	}
	if s := mustState(t, l); s.Epoch != first.Epoch || s.LastID != second.IDs[0] {
		t.Errorf("State %+v does not match receipt %+v", s, second)
	}
}

func inputKept(t *testing.T, e Engine) {
	l := e.Log("ann", "default")
	b := said("a", "b")
	b.Messages[0].ID, b.Messages[0].Seq = "mine", 77
	mustAppend(t, l, b)
	if m := b.Messages[0]; m.ID != "mine" || m.Seq != 77 || !m.At.IsZero() {
		t.Errorf("the caller's message became %+v", m)
	}
	if m := content(t, l)[0]; m.ID == "mine" || m.Seq != 1 {
		t.Errorf("an append took the id or the seq that it was to ignore: %+v", m)
	}
}

func twice(t *testing.T, e Engine) {
	l := e.Log("ann", "default")
	mustAppend(t, l, said("a"))
	mustAppend(t, l, said("a"))
	wantTexts(t, l, "a", "a")
}

func apart(t *testing.T, e Engine) {
	names := [][2]string{{"bob", "default"}, {"bob2", "default"}, {"bo", "bdefault"}, {"bob", "Default"}, {"bob", "default2"}}
	for _, n := range names {
		mustAppend(t, e.Log(n[0], n[1]), keyed("k", n[0]+"/"+n[1]))
	}
	reopen(t, e)
	for _, n := range names {
		wantTexts(t, e.Log(n[0], n[1]), n[0]+"/"+n[1])
	}
	mustClear(t, e.Log("bob", "default"))
	wantTexts(t, e.Log("bob", "default"))
	for _, n := range names[1:] {
		wantTexts(t, e.Log(n[0], n[1]), n[0]+"/"+n[1])
	}
}

func bigAtOnce(t *testing.T, e Engine) {
	l := e.Log("ann", "default")
	together(2, func(i int) {
		for range 3 {
			if _, err := l.Append(background, said(strings.Repeat(string(rune('a'+i)), 1<<20))); err != nil {
				t.Errorf("Append: %v", err)
			}
		}
	})
	for _, m := range content(t, l) {
		if s := textOf(m); len(s) != 1<<20 || strings.Trim(s, s[:1]) != "" {
			t.Errorf("seq %d: %d bytes, not all the same", m.Seq, len(s))
		}
	}
}

func manyBytes(t *testing.T, e Engine) {
	l := e.Log("ann", "default")
	var want []string
	for _, size := range []int{1, 2, 3, 4, 5, 2039, 4093, 4094, 4095, 4096, 65531, 65532, 65533, 65534, 65535, 65536} {
		want = append(want, strings.Repeat("x", size)+"é🎉漢字\u2028\x00<&>\"\\"+strings.Repeat("🎉", 40))
	}
	for _, s := range want {
		mustAppend(t, l, said(s))
	}
	reopen(t, e)
	wantTexts(t, e.Log("ann", "default"), want...)
}

func givenUp(t *testing.T, e Engine) {
	l := e.Log("ann", "default")
	const n = 60
	errs := make([]error, n)
	together(n, func(i int) {
		ctx, cancel := context.WithCancel(background)
		if i%3 == 0 {
			cancel()
		}
		go cancel()
		b := said(fmt.Sprint(i), fmt.Sprint(i))
		b.Stays = i%2 == 0
		_, errs[i] = l.Append(ctx, b)
		cancel()
	})
	mustAppend(t, l, said("end"))
	reopen(t, e)
	found := map[string]int{}
	for _, m := range content(t, e.Log("ann", "default")) {
		found[textOf(m)]++
	}
	for i, err := range errs {
		got := found[fmt.Sprint(i)]
		if err == nil && got != 2 || err != nil && got != 0 && got != 2 {
			t.Errorf("append %d returned %v and left %d of 2 messages", i, err, got)
		}
		if err != nil && !errors.Is(err, context.Canceled) {
			t.Errorf("append %d: %v", i, err)
		}
	}
}

func everyPart(t *testing.T, e Engine) {
	l := e.Log("ann", "default")
	text := `{"a": 1.0}`
	// Not everything here goes together in one message of an agent; to an engine it is all the same.
	m := history.Message{
		ClientID: "c-1", Role: history.Assistant, Model: "m", Provider: "p", Status: history.Incomplete,
		Usage: jsontext.Value(`{"input_tokens":null}`), Metadata: jsontext.Value(`{"b":[1e400,2512292042121000001]}`),
		Synthetic: true, Extra: jsontext.Value(`{"seq":"x","prev":"00000000"}`),
		Content: []history.Block{
			{Type: history.ThinkingBlock, Text: "", Signature: "c2ln", Encrypted: "ZW5j"},
			history.Text(" "),
			{Type: history.ToolCall, ID: "c", Name: "f", Arguments: jsontext.Value(`{"a":1.0}`), ArgumentsText: &text, Redacted: &history.Redaction{Category: "wallet", Reason: "r"}},
			{Type: history.OpaqueBlock, Provider: "p", Opaque: jsontext.Value(`{"deep":{"er":[{}]}}`)},
			{Type: history.ImageBlock, MediaType: "image/png", URL: "https://example.org/a.png", Filename: "a.png", Extra: jsontext.Value(`{"z":0}`)},
		},
	}
	r := mustAppend(t, l, history.Batch{Messages: []history.Message{m}})
	reopen(t, e)
	got := content(t, e.Log("ann", "default"))[0]
	m.ID, m.Seq, m.At = r.IDs[0], 1, got.At
	if diff := cmp.Diff(m, got); diff != "" {
		t.Errorf("stored (-) and read (+):\n%s", diff)
	}
}

func nothing(t *testing.T, e Engine) {
	l := e.Log("ann", "default")
	mustAppend(t, l, said("a"))
	if r := mustAppend(t, l, history.Batch{}); r.FirstSeq != 0 || r.LastSeq != 1 || r.Added != 0 || len(r.IDs) != 0 {
		t.Errorf("receipt of nothing: %+v", r)
	}
	mustAppend(t, l, said("b"))
	wantTexts(t, l, "a", "b")
	reopen(t, e)
	wantTexts(t, e.Log("ann", "default"), "a", "b")
}
