package recall

import (
	"context"
	"errors"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"historyd/internal/history"
)

// indexMetrics have labels from closed sets only.
type indexMetrics struct {
	searches *prometheus.CounterVec
	duration prometheus.Histogram
	messages prometheus.Counter
	failures prometheus.Counter
	drops    *prometheus.CounterVec
}

func newIndexMetrics(r prometheus.Registerer, memory func() float64) indexMetrics {
	auto := promauto.With(r)
	auto.NewGaugeFunc(prometheus.GaugeOpts{Name: "historyd_index_unwritten_bytes", Help: "Memory of what is indexed and in no file yet."}, memory)
	searches := auto.NewCounterVec(prometheus.CounterOpts{Name: "historyd_searches_total",
		Help: "Searches by result: found, none, behind, refused, canceled, stopping, failed."}, []string{"result"})
	for _, result := range []string{"found", "none", "behind", "refused", "canceled", "stopping", "failed"} {
		searches.WithLabelValues(result)
	}
	return indexMetrics{
		searches: searches,
		duration: auto.NewHistogram(prometheus.HistogramOpts{Name: "historyd_search_duration_seconds",
			Help: "Time of a search, catching up included.", Buckets: prometheus.ExponentialBuckets(0.001, 2, 14)}),
		messages: auto.NewCounter(prometheus.CounterOpts{Name: "historyd_index_messages_total", Help: "Messages indexed, also for the second time."}),
		failures: auto.NewCounter(prometheus.CounterOpts{Name: "historyd_index_failures_total", Help: "Times that a conversation could not be indexed."}),
		drops: auto.NewCounterVec(prometheus.CounterOpts{Name: "historyd_index_segments_dropped_total",
			Help: "Segments of the index removed to be made again: forgotten, torn."}, []string{"reason"}),
	}
}

func (m *indexMetrics) searched(start time.Time, res *Results, err error) {
	m.duration.Observe(time.Since(start).Seconds())
	result := "found"
	switch {
	case errors.Is(err, ErrBadQuery), errors.Is(err, ErrBadCursor):
		result = "refused"
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		result = "canceled"
	case errors.Is(err, history.ErrClosed):
		result = "stopping"
	case err != nil:
		result = "failed"
	case res.Behind:
		result = "behind"
	case len(res.Hits) == 0:
		result = "none"
	}
	m.searches.WithLabelValues(result).Inc()
}
