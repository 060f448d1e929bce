package compaction

import (
	"fmt"
	"runtime"
	"strings"
	"testing"

	"historyd/internal/history"
)

// A fold reads a window and keeps little of it, whatever the messages are like. Not in parallel: the heap is everybody's.
func TestAFoldKeepsLittleOfWhatItReads(t *testing.T) {
	const mib = 1 << 20
	c, err := New(Options{KeepVerbatimTurns: 20_000})
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		name     string
		messages int
		text     func(i int) string
		most     uint64 // bytes kept
	}{
		{"long texts", 100, func(i int) string { return strings.Repeat(fmt.Sprint(i%10), mib) }, 2 * mib},
		{"white space", 100, func(i int) string { return strings.Repeat(" ", mib) + fmt.Sprint(i) }, 2 * mib},
		{"texts as long as may wait", 10_000, func(i int) string { return strings.Repeat(fmt.Sprint(i%10), maxUnwrittenBytes) }, 16 * mib},
	} {
		var before, after runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&before)
		_, err := c.Fold(nil, func(yield func(history.Message, error) bool) {
			for i := range tt.messages {
				m := person(tt.text(i))
				m.Seq = int64(i + 1)
				if !yield(m, nil) {
					return
				}
			}
			runtime.GC()
			runtime.ReadMemStats(&after)
		})
		if err != nil {
			t.Fatal(err)
		}
		if kept := max(after.HeapAlloc, before.HeapAlloc) - before.HeapAlloc; kept > tt.most {
			t.Errorf("%s: %d bytes are kept of %d messages", tt.name, kept, tt.messages)
		}
	}
}
