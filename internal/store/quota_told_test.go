package store

import (
	"testing"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"historyd/internal/history"
)

// TestQuotaTellsOnlyOfWhatIsRefused imports to a conversation that is there, where no other may begin.
func TestQuotaTellsOnlyOfWhatIsRefused(t *testing.T) {
	t.Parallel()
	for _, mode := range []history.ImportMode{history.Extend, history.Replace} {
		fsys := newBook(t, 2).closed.Kill()
		s := openWith(t, fsys, Quota{Conversations: 2})
		if err := importing(mode)(t, s.Log(ann, "a")); err != nil {
			t.Fatalf("%s: %v", mode, err)
		}
		refused := func() float64 { return testutil.ToFloat64(s.metrics.refusals.WithLabelValues("conversations")) }
		if n := refused(); n != 0 || s.ledger.of[ann].full {
			t.Errorf("%s: %v refusals are counted of an import that went well, told: %t", mode, n, s.ledger.of[ann].full)
		}
		if err := importing(mode)(t, s.Log(ann, "new")); err == nil || refused() != 1 || !s.ledger.of[ann].full {
			t.Errorf("%s: to a new one: %v, %v refusals are counted, told: %t", mode, err, refused(), s.ledger.of[ann].full)
		}
		exact(t, string(mode), s, fsys, ann)
	}
}
