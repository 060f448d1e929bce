package pipeline

import (
	"cmp"
	"context"
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
}

func newMetrics(r prometheus.Registerer) *metrics {
	f := promauto.With(r)
	counter := func(name, help, label string) *prometheus.CounterVec {
		return f.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, []string{label})
	}
	return &metrics{
		appends:     counter("historyd_appends_total", "Appends by result: ok, replayed, refused, canceled, stopping, failed.", "result"),
		messages:    counter("historyd_messages_total", "Messages stored, by the door they came in by.", "door"),
		bytes:       counter("historyd_message_bytes_total", "Bytes of messages stored, by the door they came in by.", "door"),
		redactions:  counter("historyd_redactions_total", "Values withheld before storing, by category.", "category"),
		truncations: counter("historyd_truncations_total", "Tool results cut before storing, by category.", "category"),
		imports:     f.NewCounterVec(prometheus.CounterOpts{Name: "historyd_imports_total", Help: "Imports by mode and result: ok, replayed, refused, canceled, stopping, failed."}, []string{"mode", "result"}),
		exports:     f.NewCounter(prometheus.CounterOpts{Name: "historyd_exports_total", Help: "Exports begun."}),
		clears:      counter("historyd_clears_total", "Clears done, of one conversation or of all of a caller's.", "what"),
	}
}

// appended and imported count every call, whatever became of it.
func (m *metrics) appended(r history.Receipt, err error) {
	m.appends.WithLabelValues(result(r, err)).Inc()
}

func (m *metrics) imported(mode history.ImportMode, r history.Receipt, err error) {
	m.imports.WithLabelValues(string(mode), result(r, err)).Inc()
}

// result tells what a client can mend, what nobody waited for, and what has to be
// looked into.
func result(r history.Receipt, err error) string {
	var faults *history.Faults
	is := func(class error) bool { return errors.Is(err, class) }
	switch {
	case err == nil && r.Replayed:
		return "replayed"
	case err == nil:
		return "ok"
	case errors.As(err, &faults), is(history.ErrPrecondition), is(history.ErrNotEmpty), is(history.ErrKeyMismatch), is(history.ErrBusy):
		return "refused"
	case is(context.Canceled), is(context.DeadlineExceeded):
		return "canceled"
	case is(history.ErrClosed):
		return "stopping"
	}
	return "failed"
}

// stored counts the messages that came in by a door and were not skipped. sizes are
// those of all; positions in changes and skipped are among them.
func (m *metrics) stored(door string, sizes []int64, changes []projection.Change, skipped map[int]bool) {
	for i, size := range sizes {
		if !skipped[i] {
			m.messages.WithLabelValues(door).Inc()
			m.bytes.WithLabelValues(door).Add(float64(size))
		}
	}
	for _, c := range changes {
		if skipped[c.Message] {
			continue
		}
		// A category is a word of the policy's options, never of a request's.
		category := cmp.Or(c.Category, "none")
		switch c.Action {
		case projection.Redacted, projection.Dropped:
			m.redactions.WithLabelValues(category).Inc()
		case projection.Truncated:
			m.truncations.WithLabelValues(category).Inc()
		}
	}
}
