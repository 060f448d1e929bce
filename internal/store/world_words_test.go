package store

import (
	"fmt"

	"historyd/internal/history"
)

// words looks at the summary, and at what was written of it: both are of what stands.
func (w *world) words(state history.State, rewound map[int64]bool) {
	s, p := state.Summary, state.Prose
	if s != nil && (rewound[s.ThroughSeq] || rewound[s.TextSeq]) {
		w.fatalf("the summary goes through message %d, its text through %d: one is rewound", s.ThroughSeq, s.TextSeq)
	}
	if s != nil && s.Text != wordsOf(s.TextSeq) {
		w.fatalf("the text through message %d is %q", s.TextSeq, s.Text)
	}
	if p != nil && (s == nil || p.ThroughSeq != s.ThroughSeq || p.Text != wordsOf(p.ThroughSeq)) {
		w.fatalf("the words %+v wait for the summary %+v", p, s)
	}
}

// wordsOf is what is written of the messages up to one.
func wordsOf(through int64) string {
	if through == 0 {
		return ""
	}
	return fmt.Sprint("words through ", through)
}
