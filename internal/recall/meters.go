package recall

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
)

// meters have labels from closed sets only: a retriever is a name of the configuration.
type meters struct {
	recalls    *prometheus.CounterVec
	retrievers *prometheus.CounterVec
	stderr     *prometheus.CounterVec
	seconds    prometheus.Histogram
}

// newMeters makes all series at once, so that a first failure is a change.
func newMeters(r prometheus.Registerer, names []string) meters {
	f := promauto.With(r)
	m := meters{
		recalls: f.NewCounterVec(prometheus.CounterOpts{
			Name: "historyd_recalls_total",
			Help: "Recalls by result: ok, partial, empty, failed, skipped.",
		}, []string{"result"}),
		retrievers: f.NewCounterVec(prometheus.CounterOpts{
			Name: "historyd_recall_retriever_total",
			Help: "Parts of recalls by retriever and status: ok, empty, error, timeout, not_configured.",
		}, []string{"retriever", "status"}),
		stderr: f.NewCounterVec(prometheus.CounterOpts{
			Name: "historyd_recall_stderr_lines_total",
			Help: "Lines that child processes wrote to their standard error, by retriever.",
		}, []string{"retriever"}),
		seconds: f.NewHistogram(prometheus.HistogramOpts{
			Name:    "historyd_recall_seconds",
			Help:    "Time of a recall.",
			Buckets: []float64{.005, .01, .025, .05, .1, .25, .5, 1, 2, 4, 8},
		}),
	}
	for _, result := range []string{"ok", "partial", "empty", "failed", "skipped"} {
		m.recalls.WithLabelValues(result)
	}
	for _, name := range names {
		for _, s := range states {
			m.retrievers.WithLabelValues(name, string(s))
		}
	}
	return m
}

func (m meters) recalled(out Recalled, result string, took time.Duration) {
	m.recalls.WithLabelValues(result).Inc()
	m.seconds.Observe(took.Seconds())
	if result == "skipped" {
		return // nobody was asked
	}
	for _, s := range out.Retrievers {
		m.retrievers.WithLabelValues(s.Name, string(s.Status)).Inc()
	}
}

// resultOf tells what was found, and whether somebody's part is missing.
func resultOf(out Recalled) string {
	failed := false
	for _, s := range out.Retrievers {
		failed = failed || s.Status == Failed || s.Status == TimedOut
	}
	switch {
	case len(out.Items) > 0 && failed:
		return "partial"
	case len(out.Items) > 0:
		return "ok"
	case failed:
		return "failed"
	}
	return "empty"
}
