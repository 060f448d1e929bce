package retention

import (
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
)

// metrics have labels from closed sets only.
type metrics struct {
	sweeps  *prometheus.CounterVec
	removed *prometheus.CounterVec
	bytes   *prometheus.CounterVec
	spared  prometheus.Counter
	held    prometheus.Gauge
}

func newMetrics(r prometheus.Registerer) *metrics {
	f := promauto.With(r)
	m := &metrics{
		sweeps: f.NewCounterVec(prometheus.CounterOpts{Name: "historyd_retention_sweeps_total",
			Help: "Times that all conversations were looked through, by result: done, failed."}, []string{"result"}),
		removed: f.NewCounterVec(prometheus.CounterOpts{Name: "historyd_retention_removed_total",
			Help: "Conversations removed, by reason: age, bytes."}, []string{"reason"}),
		bytes: f.NewCounterVec(prometheus.CounterOpts{Name: "historyd_retention_removed_bytes_total",
			Help: "Bytes of conversations removed, by reason: age, bytes."}, []string{"reason"}),
		spared: f.NewCounter(prometheus.CounterOpts{Name: "historyd_retention_spared_total",
			Help: "Conversations that were to go and were left alone because somebody used them; they are looked at again."}),
		held: f.NewGauge(prometheus.GaugeOpts{Name: "historyd_retention_held",
			Help: "1 while nothing is removed for its age because the clock has jumped."}),
	}
	for _, result := range []string{"done", "failed"} {
		m.sweeps.WithLabelValues(result)
	}
	for _, reason := range []string{ForAge, ForBytes} {
		m.removed.WithLabelValues(reason)
		m.bytes.WithLabelValues(reason)
	}
	return m
}

func (m *metrics) hold(held bool) {
	m.held.Set(0)
	if held {
		m.held.Set(1)
	}
}
