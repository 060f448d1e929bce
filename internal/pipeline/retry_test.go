package pipeline

import (
	"context"
	"syscall"
	"testing"

	"historyd/internal/durable/crashfs"
	"historyd/internal/history"
	"historyd/internal/projection"
)

// Wherever a process ends, a turn that is sent again with its key is there once, whole.
func TestCrashATurnThatIsSentAgainIsThereOnce(t *testing.T) {
	turn := Turn{Key: "k", Messages: []history.Message{said(history.User, "one"), said(history.Assistant, "two"), said(history.User, "three")}}
	found := 0
	for _, how := range []crashfs.How{crashfs.Before, crashfs.After, crashfs.Short} {
		for at, reached := 0, true; reached; at++ {
			b := newBench(t, projection.Options{})
			c := conversation(t, "ann")
			b.disk.FailAt(b.disk.Ops()+at, how, syscall.EIO, true)
			_, err := b.Record(context.Background(), c, turn)
			reached = b.disk.Reached()
			b.restart(projection.Options{})
			again := b.record(c, turn)
			if again.Replayed && err != nil {
				found++
			}
			if got := b.stored(c); len(got) != 3 || again.FirstSeq != 1 || again.LastSeq != 3 {
				t.Errorf("from operation %d on all fail %s: answer %v, then %d to %d; %d messages, want 3", at, how, err, again.FirstSeq, again.LastSeq, len(got))
			}
			b.stop()
		}
	}
	if found == 0 {
		t.Error("no turn that failed was in the record")
	}
}
