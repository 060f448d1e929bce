package api

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"historyd/internal/history"
	"historyd/internal/projection"
)

// A tape is the model of a conversation: what was said, and which of it is rewound.
type tape struct {
	d       *daemon
	name    string
	words   []string // of message i+1
	rewound []bool
	etags   map[string]bool // of all that was before
}

func (m *tape) path(rest string) string { return "/v1/conversations/" + m.name + rest }

// standing is the seqs of what is not rewound.
func (m *tape) standing() (seqs []int64) {
	for i, gone := range m.rewound {
		if !gone {
			seqs = append(seqs, int64(i+1))
		}
	}
	return seqs
}

func (m *tape) append(t *rapid.T) {
	var parts []string
	for range rapid.IntRange(1, 4).Draw(t, "messages") {
		role := rapid.SampledFrom([]string{"user", "user", "assistant"}).Draw(t, "role")
		word := fmt.Sprintf("word%dx", len(m.words)+1)
		parts = append(parts, fmt.Sprintf(`{"role":"%s","content":"%s"}`, role, word))
		m.words, m.rewound = append(m.words, word), append(m.rewound, false)
	}
	got := m.d.post("ann", m.path("/turns"), `{"messages":[`+strings.Join(parts, ",")+`]}`)
	if got.status != 201 || as[appendReply](t, got).LastSeq != int64(len(m.words)) {
		t.Fatalf("append: %d %s", got.status, got.body)
	}
}

func (m *tape) rewind(t *rapid.T) {
	last := int64(len(m.words))
	through := rapid.OneOf(rapid.Int64Range(0, last+1), rapid.Int64Range(max(0, last-4), last+1)).Draw(t, "through")
	etag := m.d.get("ann", m.path("")).header.Get("ETag")
	got := m.d.post("ann", m.path("/rewind"), fmt.Sprintf(`{"through_seq":%d}`, through))
	switch {
	case last == 0:
		want(t, got, 404, "not_found")
		return
	case through > 0 && !slices.Contains(m.standing(), through):
		want(t, got, 400, "invalid_parameter")
		return
	}
	same := true
	for i := through; i < last; i++ {
		same = same && m.rewound[i]
		m.rewound[i] = true
	}
	if !same {
		m.etags[etag] = true
	}
	said := as[rewindReply](t, got)
	if got.status != 200 || said != (rewindReply{m.name, through, last}) || m.etags[got.header.Get("ETag")] || same != (got.header.Get("ETag") == etag) {
		t.Fatalf("rewind through %d: %d %s, ETag %s", through, got.status, got.body, got.header.Get("ETag"))
	}
	if stand := m.standing(); through > 0 && stand[len(stand)-1] != through {
		t.Fatalf("the model ends at %d after a rewind through %d", stand[len(stand)-1], through)
	}
}

func (m *tape) page(t *rapid.T) {
	last := int64(len(m.words))
	after, before := rapid.Int64Range(0, last+1).Draw(t, "after"), rapid.Int64Range(0, last+2).Draw(t, "before")
	limit, desc := rapid.IntRange(1, 20).Draw(t, "limit"), rapid.Bool().Draw(t, "desc")
	var want []int64
	for s := after + 1; s < before && s <= last; s++ {
		want = append(want, s)
	}
	order := "asc"
	if desc {
		order = "desc"
		slices.Reverse(want)
	}
	more := len(want) > limit
	want = want[:min(limit, len(want))]
	got := as[pageBody](t, m.d.get("ann", m.path(fmt.Sprintf("/messages?after=%d&before=%d&limit=%d&order=%s", after, before, limit, order))))
	if len(got.Data) != len(want) || got.HasMore != more {
		t.Fatalf("%d < seq < %d, %d of them, %s: got %d and more %t, want %d and more %t", after, before, limit, order, len(got.Data), got.HasMore, want, more)
	}
	for i, raw := range got.Data {
		msg, err := history.ParseStored(raw)
		if err != nil || msg.Seq != want[i] || msg.Content[0].Text != m.words[want[i]-1] || msg.Rewound != m.rewound[want[i]-1] {
			t.Fatalf("message %d of the page: got %s, %v, want seq %d", i, raw, err, want[i])
		}
	}
}

// replay holds what a model is shown to what stands.
func (m *tape) replay(t *rapid.T) {
	mode := rapid.SampledFrom([]string{"text", "full"}).Draw(t, "mode")
	got := as[replayBody](t, m.d.get("ann", m.path("/replay?mode="+mode)))
	if got.ThroughSeq != int64(len(m.words)) {
		t.Fatalf("the replay is through %d, want %d", got.ThroughSeq, len(m.words))
	}
	stand, folded := m.standing(), int64(0)
	if got.Summary != nil {
		folded = got.Summary.ThroughSeq
		if !slices.Contains(stand, folded) {
			t.Fatalf("the summary goes through %d, which does not stand", folded)
		}
	}
	var want []int64
	for _, seq := range stand {
		if seq > folded {
			want = append(want, seq)
		}
	}
	var seqs []int64
	for _, raw := range got.Messages {
		msg, err := history.ParseStored(raw)
		if err != nil {
			t.Fatalf("replayed %s: %v", raw, err)
		}
		seqs = append(seqs, msg.Seq)
	}
	if !slices.Equal(seqs, want) {
		t.Fatalf("the replay has %d, and behind the summary through %d stand %d", seqs, folded, want)
	}
	for i, gone := range m.rewound {
		if got.Summary != nil && gone && strings.Contains(got.Summary.Text, m.words[i]) {
			t.Fatalf("message %d is rewound, and in the summary %q", i+1, got.Summary.Text)
		}
	}
}

func (m *tape) fork(t *rapid.T) {
	stand := m.standing()
	if len(stand) == 0 {
		t.Skip("nothing stands")
	}
	through := rapid.SampledFrom(stand).Draw(t, "through")
	n, _ := slices.BinarySearch(stand, through)
	to := fmt.Sprintf("%s-fork-%d-%d", m.name, len(m.words), len(m.etags))
	got := m.d.post("ann", m.path("/fork"), fmt.Sprintf(`{"to":"%s","through_seq":%d}`, to, through))
	if got.status == 409 {
		t.Skip("forked before")
	}
	if f := as[forkReply](t, got); got.status != 201 || f.Messages != int64(n+1) || f.LastSeq != int64(n+1) {
		t.Fatalf("a fork through %d of %d: %d %s", through, stand, got.status, got.body)
	}
}

func TestAppendsRewindsPagesAndReplaysAreLikeATape(t *testing.T) {
	d := newDaemon(t, projection.Options{})
	conversation := 0
	rapid.Check(t, func(t *rapid.T) {
		conversation++
		m := &tape{d: d, name: fmt.Sprint("c", conversation), etags: map[string]bool{}}
		t.Repeat(map[string]func(*rapid.T){
			"append": m.append, "append2": m.append, "append3": m.append,
			"rewind": m.rewind, "page": m.page, "replay": m.replay, "replay2": m.replay, "fork": m.fork,
		})
	})
}
