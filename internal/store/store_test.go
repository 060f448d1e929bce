package store

import (
	"context"
	"fmt"
	"testing"
	"time"

	"historyd/internal/durable"
	"historyd/internal/durable/crashfs"
	"historyd/internal/history"
	"historyd/internal/identity"
)

// counterIDs makes ids that sort, for tests.
func counterIDs() func(string) string {
	n := 0
	return func(after string) string {
		n++
		for fmt.Sprintf("%026d", n) <= after {
			n++
		}
		return fmt.Sprintf("%026d", n)
	}
}

func mustOpen(t testing.TB, fsys durable.FS) *Store {
	t.Helper()
	s, err := Open(Options{FS: fsys, NewID: counterIDs(), Now: func() time.Time { return time.Unix(1_800_000_000, 0) }})
	if err != nil {
		t.Fatalf("Open: %v", err)
	}
	return s
}

func scopeOf(t testing.TB, kind identity.Kind, id, permission string) identity.Scope {
	t.Helper()
	c, err := identity.NewCaller(string(kind), id, permission, "")
	if err != nil {
		t.Fatal(err)
	}
	return c.Scope()
}

func user(text string) history.Message {
	return history.Message{Role: history.User, Kind: history.Person, Status: history.Complete, Content: []history.Block{history.Text(text)}}
}

// batch is committed as the daemon does it, by whoever appends.
func batch(texts ...string) history.Batch {
	b := history.Batch{Stays: true}
	for _, s := range texts {
		b.Messages = append(b.Messages, user(s))
	}
	return b
}

func texts(t testing.TB, l history.Log) []string {
	t.Helper()
	v, err := l.View(context.Background())
	if err != nil {
		t.Fatalf("View: %v", err)
	}
	defer v.Close()
	var out []string
	for r, err := range v.Records(1, 1<<60) {
		if err != nil {
			t.Fatalf("Records: %v", err)
		}
		m, err := r.Message()
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, fmt.Sprintf("%d:%s", m.Seq, m.Content[0].Text))
	}
	return out
}

func TestAppendsAreReadBackAcrossSegmentsAndRestarts(t *testing.T) {
	ctx := context.Background()
	fsys := crashfs.New()
	s, err := Open(Options{FS: fsys, NewID: counterIDs(), SegmentBytes: 2000})
	if err != nil {
		t.Fatal(err)
	}
	l := s.Log(scopeOf(t, identity.Operator, "ann", ""), "default")
	var want []string
	for i := 1; i <= 40; i++ {
		r, err := l.Append(ctx, batch(fmt.Sprintf("m%d", i)))
		if err != nil {
			t.Fatal(err)
		}
		if r.FirstSeq != int64(i) || r.LastSeq != int64(i) {
			t.Fatalf("append %d got seq %d to %d", i, r.FirstSeq, r.LastSeq)
		}
		want = append(want, fmt.Sprintf("%d:m%d", i, i))
	}
	if got := texts(t, l); fmt.Sprint(got) != fmt.Sprint(want) {
		t.Fatalf("got %v\nwant %v", got, want)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	s = mustOpen(t, fsys)
	l = s.Log(scopeOf(t, identity.Operator, "ann", ""), "default")
	if got := texts(t, l); fmt.Sprint(got) != fmt.Sprint(want) {
		t.Fatalf("after a restart\n got %v\nwant %v", got, want)
	}
	st, err := l.State(ctx)
	if err != nil || st.LastSeq != 40 || st.Turns != 40 || st.Title != "m1" || st.Damage != nil {
		t.Fatalf("State = %+v, %v", st, err)
	}
	var back []int64
	v, _ := l.View(ctx)
	for r, err := range v.Backward(31) {
		if err != nil {
			t.Fatal(err)
		}
		back = append(back, r.Seq)
	}
	v.Close()
	if len(back) != 30 || back[0] != 30 || back[29] != 1 {
		t.Errorf("Backward(31) = %v", back)
	}
	sum, err := Check(ctx, fsys, func(f Finding) { t.Errorf("check: %+v", f) }, nil)
	if err != nil || sum.Messages != 40 || sum.Conversations != 1 {
		t.Errorf("Check = %+v, %v", sum, err)
	}
}
