package pipeline

import (
	"errors"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"historyd/internal/history"
	"historyd/internal/projection"
)

// metrics have labels from closed sets only.
type metrics struct {
	appends     *prometheus.CounterVec
	messages    *prometheus.CounterVec
	bytes       *prometheus.CounterVec
	redactions  *prometheus.CounterVec
	truncations *prometheus.CounterVec
	imports     *prometheus.CounterVec
	exports     prometheus.Counter
	clears      *prometheus.CounterVec

	categories map[string]bool
}

func newMetrics(r prometheus.Registerer, categories []string) *metrics {
	f := promauto.With(r)
	counter := func(name, help, label string) *prometheus.CounterVec {
		return f.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, []string{label})
	}
	m := &metrics{
		appends:     counter("historyd_appends_total", "Appends by result: ok, replayed, refused, failed.", "result"),
		messages:    counter("historyd_messages_total", "Messages stored, by the door they came in by.", "door"),
		bytes:       counter("historyd_message_bytes_total", "Bytes of messages stored, by the door they came in by.", "door"),
		redactions:  counter("historyd_redactions_total", "Values withheld before storing, by category.", "category"),
		truncations: counter("historyd_truncations_total", "Tool results cut before storing, by category.", "category"),
		imports:     f.NewCounterVec(prometheus.CounterOpts{Name: "historyd_imports_total", Help: "Imports by mode and result: ok, refused, failed."}, []string{"mode", "result"}),
		exports:     f.NewCounter(prometheus.CounterOpts{Name: "historyd_exports_total", Help: "Exports begun."}),
		clears:      counter("historyd_clears_total", "Clears done, of one conversation or of all of a caller's.", "what"),
		categories:  map[string]bool{"wallet": true, "files": true, "unknown": true},
	}
	for _, c := range categories {
		m.categories[c] = true
	}
	return m
}

func (m *metrics) appended(err error, replayed bool) {
	switch {
	case err == nil && replayed:
		m.appends.WithLabelValues("replayed").Inc()
	default:
		m.appends.WithLabelValues(result(err)).Inc()
	}
}

func (m *metrics) imported(mode history.ImportMode, err error) {
	m.imports.WithLabelValues(string(mode), result(err)).Inc()
}

// result tells what a client can mend from what it cannot.
func result(err error) string {
	var faults *history.Faults
	switch {
	case err == nil:
		return "ok"
	case errors.As(err, &faults), errors.Is(err, history.ErrPrecondition), errors.Is(err, history.ErrNotEmpty),
		errors.Is(err, history.ErrKeyMismatch), errors.Is(err, history.ErrTooLarge):
		return "refused"
	}
	return "failed"
}

// kept counts what came in by a door.
func (m *metrics) kept(door string, added, size int64, changes []projection.Change) {
	m.messages.WithLabelValues(door).Add(float64(added))
	m.bytes.WithLabelValues(door).Add(float64(size))
	for _, c := range changes {
		category := c.Category
		switch {
		case category == "":
			category = "none"
		case !m.categories[category]:
			category = "other"
		}
		switch c.Action {
		case "redacted", "dropped":
			m.redactions.WithLabelValues(category).Inc()
		case "truncated":
			m.truncations.WithLabelValues(category).Inc()
		}
	}
}
