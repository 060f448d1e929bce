package historytest

import (
	"bytes"
	"fmt"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"historyd/internal/history"
)

// rewoundModel models a conversation: what stands, and the summaries as they came.
type rewoundModel struct {
	keeping
	log   history.Log
	last  int64
	ends  []int64            // last seq of each batch
	found []*history.Summary // the summary before it
	after []*history.Summary // the summary behind it
}

func rewindsLikeAList(t *testing.T, e Engine) {
	conversation := 0
	rapid.Check(t, func(t *rapid.T) {
		conversation++
		name := fmt.Sprint("c", conversation)
		m := &rewoundModel{keeping: keeping{t: t}, log: e.Log("ann", name)}
		t.Repeat(map[string]func(*rapid.T){
			"append":  m.append,
			"append2": m.append,
			"append3": m.append,
			"rewind":  m.rewind,
			"restart": func(t *rapid.T) {
				if rapid.IntRange(0, 3).Draw(t, "luck") > 0 {
					t.Skip("not this time")
				}
				reopen(t, e)
				m.log = e.Log("ann", name)
				wantStanding(t, m.log, m.stand...)
			},
		})
	})
}

func (m *rewoundModel) append(t *rapid.T) {
	m.t = t
	var b history.Batch
	for range rapid.IntRange(1, 4).Draw(t, "messages") {
		msg := person("said")
		if rapid.Bool().Draw(t, "answer") {
			msg = answer("said")
		}
		if rapid.IntRange(0, 5).Draw(t, "long") == 0 {
			msg.Content[0].Text = string(bytes.Repeat([]byte("x"), 3000))
		}
		b.Messages = append(b.Messages, msg)
	}
	if rapid.IntRange(0, 3).Draw(t, "fold") > 0 {
		b.Fold = m
	}
	m.found = append(m.found, mustState(t, m.log).Summary)
	r := mustAppend(t, m.log, b)
	if r.FirstSeq != m.last+1 {
		t.Fatalf("receipt %+v after %d messages", r, m.last)
	}
	for ; m.last < r.LastSeq; m.last++ {
		m.stand = append(m.stand, m.last+1)
	}
	m.ends = append(m.ends, m.last)
	m.after = append(m.after, mustState(t, m.log).Summary)
}

func (m *rewoundModel) rewind(t *rapid.T) {
	if m.last == 0 {
		t.Skip("nothing is there")
	}
	through := rapid.OneOf(rapid.Int64Range(0, m.last), rapid.Int64Range(max(0, m.last-3), m.last)).Draw(t, "through")
	if through > 0 && !slices.Contains(m.stand, through) {
		_, err := m.log.Rewind(background, history.Rewind{Through: through})
		wantError(t, fmt.Sprintf("Rewind through %d, and %d stand", through, m.stand), err, history.ErrNoSuchMessage)
		return
	}
	mustRewind(t, m.log, through)
	m.stand = slices.DeleteFunc(m.stand, func(seq int64) bool { return seq > through })
	// The batch of the last message that stands has the summary, or the one before it.
	want, newest := (*history.Summary)(nil), int64(0)
	if n := len(m.stand); n > 0 {
		newest = m.stand[n-1]
	}
	for i, end := range m.ends {
		begins := int64(1)
		if i > 0 {
			begins = m.ends[i-1] + 1
		}
		if newest == 0 || begins > newest || end < newest {
			continue
		}
		want = m.after[i]
		if want != nil && want.ThroughSeq > newest {
			want = m.found[i]
		}
	}
	if diff := cmp.Diff(want, mustState(t, m.log).Summary); diff != "" {
		t.Fatalf("rewound through %d, the summary as it was (-) and as it is (+): %s", through, diff)
	}
	if rapid.Bool().Draw(t, "read") {
		wantStanding(t, m.log, m.stand...)
	}
}
