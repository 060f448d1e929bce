package store

import (
	"maps"
	"strings"
	"syscall"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"historyd/internal/durable/crashfs"
)

// gaugesOf are those that begin with one of these, without it.
func gaugesOf(t *testing.T, reg prometheus.Gatherer, prefix string) map[string]float64 {
	t.Helper()
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]float64{}
	for _, f := range families {
		if name, ok := strings.CutPrefix(f.GetName(), prefix); ok && len(f.GetMetric()) == 1 && f.GetMetric()[0].Gauge != nil {
			got[name] = f.GetMetric()[0].GetGauge().GetValue()
		}
	}
	return got
}

func TestUseOfQuotasIsTold(t *testing.T) {
	t.Parallel()
	fsys, reg := crashfs.New(), prometheus.NewRegistry()
	s, err := Open(Options{FS: fsys, NewID: safeIDs(), Quota: Quota{Bytes: 10_000, Conversations: 5}, Registerer: reg})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = s.Close() }()
	var bytes float64
	for i, tt := range []struct {
		who          string
		size         int
		callers, all float64
		near         float64
	}{
		{"a", 100, 1, 1, 0}, {"b", 100, 1, 2, 0}, {"c", 100, 1, 3, 0},
		{"d", 100, 1, 4, 1},   // four of five conversations
		{"x", 7_900, 2, 5, 2}, // with its frame over 8,000 bytes of 10,000
	} {
		who := ann
		if tt.who == "x" {
			who = bob
		}
		if _, err := s.Log(who, tt.who).Append(t.Context(), batch(strings.Repeat("w", tt.size))); err != nil {
			t.Fatalf("append %d: %v", i, err)
		}
		bytes = float64(onDiskOf(fsys, ann).bytes + onDiskOf(fsys, bob).bytes)
		want := map[string]float64{
			"bytes": 10_000, "conversations": 5, "used_bytes": bytes, "used_conversations": tt.all, "callers": tt.callers, "callers_near": tt.near,
		}
		if got := gaugesOf(t, reg, "historyd_quota_"); !maps.Equal(got, want) {
			t.Errorf("after append %d: got %v, want %v", i, got, want)
		}
	}
}

func TestRoomOnTheDiskIsTold(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ reserve, kept int64 }{{10_000, 10_000}, {1 << 30, 12_500}, {0, 0}} {
		fsys, reg := crashfs.New(), prometheus.NewRegistry()
		fsys.SetCapacity(200_000)
		s, err := Open(Options{FS: fsys, NewID: safeIDs(), Reserve: tt.reserve, Registerer: reg})
		if err != nil {
			t.Fatal(err)
		}
		fillUp(t, s.Log(ann, "a"), "some words")
		free, size, err := fsys.Free()
		if err != nil {
			t.Fatal(err)
		}
		want := map[string]float64{"size_bytes": float64(size), "free_bytes": float64(free), "reserve_bytes": float64(tt.kept)}
		if got := gaugesOf(t, reg, "historyd_disk_"); !maps.Equal(got, want) {
			t.Errorf("a reserve of %d: got %v, want %v", tt.reserve, got, want)
		}
		_ = s.Close()
	}
}

func TestConversationsThatWaitForASyncAreTold(t *testing.T) {
	t.Parallel()
	fsys, reg := crashfs.New(), prometheus.NewRegistry()
	s, err := Open(Options{FS: fsys, NewID: safeIDs(), Registerer: reg})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = s.Close() }()
	want := func(n float64) {
		t.Helper()
		if got := gaugesOf(t, reg, "historyd_store_unsynced_")["conversations"]; got != n {
			t.Errorf("%v wait for a sync, want %v", got, n)
		}
	}
	for _, name := range []string{"a", "b"} {
		if _, err := s.Log(ann, name).Append(t.Context(), batch("words")); err != nil {
			t.Fatal(err)
		}
	}
	fsys.FailWhen(func(op crashfs.Op) error {
		if op.Kind == "Sync" && strings.HasSuffix(op.Name, ".jsonl") {
			return syscall.EIO
		}
		return nil
	})
	for i, name := range []string{"a", "b", "b"} {
		want(float64(i))
		if _, err := s.Log(ann, name).Append(t.Context(), batch("words")); err == nil {
			t.Fatal("an append went well without a sync")
		}
	}
	want(2)
	fsys.Heal()
	for i, name := range []string{"a", "b"} {
		if _, err := s.Log(ann, name).Append(t.Context(), batch("words")); err != nil {
			t.Fatal(err)
		}
		want(float64(1 - i))
	}
}
