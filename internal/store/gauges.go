package store

import (
	"math"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
)

// fullUse is the share of a quota from which on a caller is told to be near it.
const fullUse = 0.8

// gauges are looked up when they are asked for. Of a caller none of them says more than
// that there is one.
func gauges(auto promauto.Factory, s *Store) {
	gauge := func(name, help string, value func() float64) {
		auto.NewGaugeFunc(prometheus.GaugeOpts{Name: name, Help: help}, value)
	}
	gauge("historyd_store_open_conversations", "Conversations held open.", s.countOpen)
	gauge("historyd_store_unsynced_conversations", "Conversations that wait for a sync to work again.", s.countFailing)
	gauge("historyd_store_oldest_operation_seconds", "How long the write, sync or opening has been under way that began first.", func() float64 {
		return s.stalls.oldest(s.now()).Seconds()
	})
	gauge("historyd_disk_size_bytes", "Size of the file system of the data directory.", func() float64 {
		_, size, _ := s.disk()
		return size
	})
	gauge("historyd_disk_free_bytes", "What the daemon may still write there, its reserve included.", func() float64 {
		free, _, _ := s.disk()
		return free
	})
	gauge("historyd_disk_reserve_bytes", "What appends and imports leave free there.", func() float64 {
		_, _, kept := s.disk()
		return kept
	})
	if s.ledger.quota.Bytes > 0 {
		gauge("historyd_quota_bytes", "Bytes that one caller may keep.", func() float64 { return float64(s.ledger.quota.Bytes) })
	}
	if s.ledger.quota.Conversations > 0 {
		gauge("historyd_quota_conversations", "Conversations that one caller may keep.", func() float64 { return float64(s.ledger.quota.Conversations) })
	}
	if s.ledger.quota != (Quota{}) {
		gauge("historyd_quota_used_bytes", "Bytes of all callers who have written since the start.", func() float64 { return float64(s.ledger.sum().used.bytes) })
		gauge("historyd_quota_used_conversations", "Conversations of all callers who have written since the start.", func() float64 { return float64(s.ledger.sum().used.conversations) })
		gauge("historyd_quota_callers", "Callers who have written since the start.", func() float64 { return float64(s.ledger.sum().callers) })
		gauge("historyd_quota_callers_near", "Those of them who have used four fifths of a quota, or more.", func() float64 { return float64(s.ledger.sum().near) })
	}
}

// disk is what the file system has, and what is kept free of it; not numbers where it does not
// say. One that hangs is not asked: the metrics would hang with it, which tell so.
func (s *Store) disk() (free, size, kept float64) {
	if s.stalls.oldest(s.now()) >= lateAfter {
		return math.NaN(), math.NaN(), math.NaN()
	}
	f, n, err := s.fsys.Free()
	if err != nil || n <= 0 {
		return math.NaN(), math.NaN(), math.NaN()
	}
	return float64(f), float64(n), float64(min(s.reserved, n/reserveShare))
}

func (s *Store) countFailing() float64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return float64(len(s.failing))
}

// A total is what the accounts say together.
type total struct {
	used          weight
	callers, near int
}

// sum goes through the accounts of all callers who have written since the start. One that is
// being weighed counts as nothing.
func (l *ledger) sum() (t total) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, a := range l.of {
		t.used = t.used.plus(a.used)
		t.callers++
		if near(a.used.bytes, l.quota.Bytes) || near(a.used.conversations, l.quota.Conversations) {
			t.near++
		}
	}
	return t
}

func near(used, quota int64) bool { return quota > 0 && float64(used) >= fullUse*float64(quota) }
