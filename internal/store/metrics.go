package store

import (
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
)

type metrics struct {
	commits     prometheus.Counter
	messages    prometheus.Counter
	bytes       prometheus.Counter
	batch       prometheus.Histogram
	sync        prometheus.Histogram
	failures    *prometheus.CounterVec
	poisonings  prometheus.Counter
	quarantines prometheus.Counter
	damage      prometheus.Counter
	clears      prometheus.Counter
	opens       prometheus.Counter
	stalls      prometheus.Counter
	closings    prometheus.Counter
	refusals    *prometheus.CounterVec
}

func newMetrics(reg prometheus.Registerer, s *Store) *metrics {
	auto := promauto.With(reg)
	gauges(auto, s)
	failures := auto.NewCounterVec(prometheus.CounterOpts{Name: "historyd_store_write_failures_total",
		Help: "Groups of commits that failed, by what happened: full, or failed."}, []string{"class"})
	for _, class := range []string{"full", "failed"} {
		failures.WithLabelValues(class) // from the start, so that the first failure is an increase
	}
	refusals := auto.NewCounterVec(prometheus.CounterOpts{Name: "historyd_quota_refusals_total",
		Help: "Writes refused because the caller's quota is used up, by which one: bytes, conversations."}, []string{"quota"})
	for _, quota := range []string{"bytes", "conversations"} {
		refusals.WithLabelValues(quota)
	}
	return &metrics{
		failures: failures,
		refusals: refusals,
		commits:  auto.NewCounter(prometheus.CounterOpts{Name: "historyd_store_commits_total", Help: "Commits of appends made durable."}),
		messages: auto.NewCounter(prometheus.CounterOpts{Name: "historyd_store_messages_total", Help: "Messages made durable, by appends and imports."}),
		bytes:    auto.NewCounter(prometheus.CounterOpts{Name: "historyd_store_written_bytes_total", Help: "Bytes of segments made durable by appends."}),
		batch: auto.NewHistogram(prometheus.HistogramOpts{Name: "historyd_store_batch_commits", Help: "Commits that shared one sync.",
			Buckets: []float64{1, 2, 4, 8, 16, 32, 64, 128, 256}}),
		sync: auto.NewHistogram(prometheus.HistogramOpts{Name: "historyd_store_sync_seconds", Help: "Time of the sync of one segment.",
			Buckets: prometheus.ExponentialBuckets(0.0001, 2, 16)}),
		poisonings:  auto.NewCounter(prometheus.CounterOpts{Name: "historyd_store_poisonings_total", Help: "Segments left because a sync or a cut failed."}),
		quarantines: auto.NewCounter(prometheus.CounterOpts{Name: "historyd_store_quarantines_total", Help: "Cut writes put aside."}),
		damage:      auto.NewCounter(prometheus.CounterOpts{Name: "historyd_store_damage_total", Help: "Damaged places found."}),
		clears:      auto.NewCounter(prometheus.CounterOpts{Name: "historyd_store_clears_total", Help: "Conversations cleared."}),
		stalls:      auto.NewCounter(prometheus.CounterOpts{Name: "historyd_store_stalls_total", Help: "Times that the disk hung: for 3 s something had not come back."}),
		closings:    auto.NewCounter(prometheus.CounterOpts{Name: "historyd_store_room_made_total", Help: "Idle conversations closed because no file could be opened."}),
		opens:       auto.NewCounter(prometheus.CounterOpts{Name: "historyd_store_opens_total", Help: "Conversations read from disk to be used."}),
	}
}
