package projection

import (
	"strings"
	"testing"

	"historyd/internal/history"
)

func TestFit(t *testing.T) {
	// Each message counts 14 tokens.
	text := strings.Repeat("word", 10)
	user, answer := said(text), message(history.Assistant, history.Text(text))
	reference := with(user, func(m *history.Message) { m.Kind = history.Reference })
	three := []history.Message{user, answer, user, reference, answer, user, answer}
	for _, tt := range []struct {
		name    string
		in      []history.Message
		max     int64
		kept    int
		dropped int
		over    bool
	}{
		{"nothing", nil, 100, 0, 0, false},
		{"all", three, 98, 7, 0, false},
		{"one token less", three, 97, 5, 1, false},
		{"two turns", three, 70, 5, 1, false},
		{"one turn", three, 69, 2, 2, false},
		{"exactly the newest", three, 28, 2, 2, false},
		{"even the newest is over", three, 27, 2, 2, true},
		{"no budget", three, 0, 2, 2, true},
		{"what comes before the first turn belongs to it", append([]history.Message{answer}, three...), 98, 5, 1, false},
		{"no turn begins", []history.Message{answer, answer}, 20, 2, 0, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			kept, dropped, over := Fit(tt.in, tt.max)
			if len(kept) != tt.kept || dropped != tt.dropped || over != tt.over {
				t.Errorf("Fit = %d messages, %d, %v, want %d, %d, %v", len(kept), dropped, over, tt.kept, tt.dropped, tt.over)
			}
			if n := len(tt.in); len(kept) > 0 && &kept[len(kept)-1] != &tt.in[n-1] {
				t.Error("the newest messages are not kept")
			}
		})
	}
}
