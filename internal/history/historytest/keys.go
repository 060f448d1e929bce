package historytest

import (
	"encoding/json/jsontext"
	"errors"
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"

	"historyd/internal/history"
)

var keys = []one{
	{"a key gives its first receipt again", sameKey},
	{"a key with another fingerprint is refused", otherFingerprint},
	{"a key survives a restart", keyAfterRestart},
	{"many at once with one key are one commit", sameKeyAtOnce},
	{"of many at once with one key and two requests one wins", mismatchAtOnce},
	{"keys are of one conversation of one caller", keysApart},
	{"1,000 keys are remembered and the oldest is forgotten", thousandKeys},
	{"keys are remembered wherever a restart falls", keysOverRestarts},
	{"a key comes before the condition", keyBeforeCondition},
	{"a refused append leaves its key free", refusedKey},
	{"an append of nothing answers for its key", keyOfNothing},
	{"strange keys are keys", strangeKeys},
}

// wantReplayed appends what was appended before, and wants the receipt of that.
func wantReplayed(t tb, l history.Log, b history.Batch, first history.Receipt) {
	t.Helper()
	first.Replayed = true
	got := mustAppend(t, l, b)
	if diff := cmp.Diff(first, got); diff != "" {
		t.Fatalf("key %q: first receipt (-) and the one given again (+):\n%s", b.Key, diff)
	}
}

func sameKey(t *testing.T, e Engine) {
	l := e.Log("ann", "default")
	b := keyed("k", "a", "b")
	b.Note = jsontext.Value(`{"n":[1]}`)
	first := mustAppend(t, l, b)
	mustAppend(t, l, said("c"))
	wantReplayed(t, l, b, first)
	wantReplayed(t, l, b, first)
	wantTexts(t, l, "a", "b", "c")
}

func otherFingerprint(t *testing.T, e Engine) {
	l := e.Log("ann", "default")
	mustAppend(t, l, keyed("k", "a"))
	for range 2 {
		_, err := l.Append(background, keyed("k", "b"))
		wantError(t, "Append", err, history.ErrKeyMismatch)
		reopen(t, e)
		l = e.Log("ann", "default")
	}
	wantTexts(t, l, "a")
}

func keyAfterRestart(t *testing.T, e Engine) {
	l := e.Log("ann", "default")
	first := mustAppend(t, l, keyed("k1", "a", "b"))
	second := mustAppend(t, l, keyed("k2", "c"))
	mustAppend(t, l, said("d"))
	for range 2 {
		reopen(t, e)
		l = e.Log("ann", "default")
		wantReplayed(t, l, keyed("k1", "a", "b"), first)
		wantReplayed(t, l, keyed("k2", "c"), second)
	}
	wantTexts(t, l, "a", "b", "c", "d")
}

func sameKeyAtOnce(t *testing.T, e Engine) {
	l := e.Log("ann", "default")
	receipts, errs := make([]history.Receipt, 50), make([]error, 50)
	together(50, func(i int) { receipts[i], errs[i] = l.Append(background, keyed("k", "a", "b")) })
	fresh := 0
	for i, r := range receipts {
		if errs[i] != nil {
			t.Fatalf("Append: %v", errs[i])
		}
		if !r.Replayed {
			fresh++
		}
		if r.FirstSeq != 1 || r.LastSeq != 2 || !cmp.Equal(r.IDs, receipts[0].IDs) {
			t.Errorf("receipt %+v", r)
		}
	}
	if fresh != 1 {
		t.Errorf("%d appends say that they were the first", fresh)
	}
	wantTexts(t, l, "a", "b")
}

func mismatchAtOnce(t *testing.T, e Engine) {
	l := e.Log("ann", "default")
	errs := make([]error, 40)
	together(40, func(i int) { _, errs[i] = l.Append(background, keyed("k", fmt.Sprint(i%2))) })
	refused := [2]int{}
	for i, err := range errs {
		if errors.Is(err, history.ErrKeyMismatch) {
			refused[i%2]++
		} else if err != nil {
			t.Fatalf("Append: %v", err)
		}
	}
	won := textOf(content(t, l)[0])
	wantTexts(t, l, won)
	if won == "0" && refused != [2]int{0, 20} || won == "1" && refused != [2]int{20, 0} {
		t.Errorf("%q is stored, refused were %v", won, refused)
	}
}

func keysApart(t *testing.T, e Engine) {
	for _, l := range []history.Log{e.Log("ann", "default"), e.Log("ann", "other"), e.Log("bob", "default")} {
		if r := mustAppend(t, l, keyed("k", "a")); r.Replayed || r.FirstSeq != 1 {
			t.Errorf("receipt %+v", r)
		}
	}
}

// fill appends with keys k<from> to k<to-1>, some other appends between.
func fill(t *testing.T, l history.Log, from, to int, receipts map[string]history.Receipt) {
	t.Helper()
	for i := from; i < to; i++ {
		key := fmt.Sprintf("k%d", i)
		receipts[key] = mustAppend(t, l, keyed(key, key))
		if i%97 == 0 {
			mustAppend(t, l, said("unkeyed"))
		}
	}
}

func thousandKeys(t *testing.T, e Engine) {
	l := e.Log("ann", "default")
	receipts := map[string]history.Receipt{}
	const n = history.RememberedKeys
	fill(t, l, 0, n, receipts)
	wantReplayed(t, l, keyed("k0", "k0"), receipts["k0"])
	fill(t, l, n, n+1, receipts)
	for range 2 {
		wantReplayed(t, l, keyed("k1", "k1"), receipts["k1"])
		wantReplayed(t, l, keyed("k1000", "k1000"), receipts["k1000"])
		reopen(t, e)
		l = e.Log("ann", "default")
	}
	if r := mustAppend(t, l, keyed("k0", "k0")); r.Replayed {
		t.Errorf("the oldest of %d keys is remembered", n+1)
	} else {
		receipts["k0"] = r
	}
	reopen(t, e)
	l = e.Log("ann", "default")
	wantReplayed(t, l, keyed("k0", "k0"), receipts["k0"])
	wantReplayed(t, l, keyed("k2", "k2"), receipts["k2"])
	if r := mustAppend(t, l, keyed("k1", "k1")); r.Replayed {
		t.Error("a key is remembered behind which there are 1,000")
	}
}

func keysOverRestarts(t *testing.T, e Engine) {
	receipts := map[string]history.Receipt{}
	done := 0
	for _, n := range []int{1, 2, 254, 255, 256, 257, 258, 511, 512, 513, 768, 1000, 1023, 1024, 1025, 1300} {
		fill(t, e.Log("ann", "default"), done, n, receipts)
		done = n
		reopen(t, e)
		l := e.Log("ann", "default")
		for i := max(0, n-history.RememberedKeys); i < n; i++ {
			if key := fmt.Sprintf("k%d", i); i < n-1000+5 || i > n-5 || i%41 == 0 {
				wantReplayed(t, l, keyed(key, key), receipts[key])
			}
		}
		if n == 512 {
			mustImport(t, l, history.Import{Mode: history.Extend, Messages: all(person("imported"))})
		}
	}
	l := e.Log("ann", "default")
	if r := mustAppend(t, l, keyed("k299", "k299")); r.Replayed {
		t.Error("a key is remembered behind which there are 1,000")
	}
}

func keyBeforeCondition(t *testing.T, e Engine) {
	l := e.Log("ann", "default")
	b := keyed("k", "a")
	b.IfMatch = func(etag string) bool { return etag == `"0-0"` }
	first := mustAppend(t, l, b)
	wantReplayed(t, l, b, first)
	b.IfMatch = func(string) bool { t.Error("the condition was asked for a key that is known"); return false }
	wantReplayed(t, l, b, first)
	other := keyed("k", "b")
	other.IfMatch = b.IfMatch
	_, err := l.Append(background, other)
	wantError(t, "Append", err, history.ErrKeyMismatch)
}

func refusedKey(t *testing.T, e Engine) {
	l := e.Log("ann", "default")
	b := keyed("k", "a")
	b.IfMatch = func(string) bool { return false }
	_, err := l.Append(background, b)
	wantError(t, "Append", err, history.ErrPrecondition)
	b.IfMatch = nil
	if r := mustAppend(t, l, b); r.Replayed {
		t.Error("the refused append is remembered")
	}
	wantTexts(t, l, "a")
}

func keyOfNothing(t *testing.T, e Engine) {
	l := e.Log("ann", "default")
	mustAppend(t, l, said("a"))
	first := mustAppend(t, l, keyed("k"))
	mustAppend(t, l, said("b"))
	wantReplayed(t, l, keyed("k"), first)
	reopen(t, e)
	l = e.Log("ann", "default")
	wantReplayed(t, l, keyed("k"), first)
	wantTexts(t, l, "a", "b")
}

func strangeKeys(t *testing.T, e Engine) {
	l := e.Log("ann", "default")
	receipts := map[string]history.Receipt{}
	strange := []string{" ", `"`, `\`, "é", "e\u0301", "\x00", "<&>", `k","before":[9,9]`, "K", "k"}
	for _, k := range strange {
		receipts[k] = mustAppend(t, l, keyed(k, "text of "+k))
	}
	reopen(t, e)
	l = e.Log("ann", "default")
	for _, k := range strange {
		wantReplayed(t, l, keyed(k, "text of "+k), receipts[k])
	}
}
