package recall

import (
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// What fails for every conversation is told once a minute, with how often, and not for each.
func TestConversationsThatAreNotIndexedDoNotFloodTheLog(t *testing.T) {
	var log strings.Builder
	now := time.Unix(1000, 0)
	x := &Index{
		log: slog.New(slog.NewTextHandler(&log, nil)), metrics: newIndexMetrics(prometheus.NewRegistry(), func() float64 { return 0 }),
		now: func() time.Time { return now }, life: t.Context(),
	}
	c := &caller{later: map[string]bool{}}
	for range 100 {
		x.fail(c, "c", errors.New("broken"))
	}
	now = now.Add(tellEvery)
	x.fail(c, "c", errors.New("broken"))
	if n := strings.Count(log.String(), "not indexed"); n != 2 || !strings.Contains(log.String(), "times=1\n") || !strings.Contains(log.String(), "times=100\n") {
		t.Errorf("told %d times, want twice, of 1 and of 100: %s", n, log.String())
	}
}
