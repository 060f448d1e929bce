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
	forks       *prometheus.CounterVec
	rewinds     *prometheus.CounterVec
	clears      *prometheus.CounterVec
	repairs     *prometheus.CounterVec
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
		forks:       counter("historyd_forks_total", "Forks by result: ok, refused, canceled, stopping, failed.", "result"),
		rewinds:     counter("historyd_rewinds_total", "Rewinds by result: ok, refused, canceled, stopping, failed.", "result"),
		clears:      counter("historyd_clears_total", "Clears done, of one conversation or of all of a caller's.", "what"),
		repairs:     counter("historyd_replay_repairs_total", "What replays repaired, by kind as in their reports.", "kind"),
	}
}

// appended and imported count every call, whatever became of it.
func (m *metrics) appended(r history.Receipt, err error) {
	m.appends.WithLabelValues(result(r, err)).Inc()
}

func (m *metrics) imported(mode history.ImportMode, r history.Receipt, err error) {
	m.imports.WithLabelValues(string(mode), result(r, err)).Inc()
}

func (m *metrics) forked(err error)  { m.forks.WithLabelValues(result(history.Receipt{}, err)).Inc() }
func (m *metrics) rewound(err error) { m.rewinds.WithLabelValues(result(history.Receipt{}, err)).Inc() }

// result tells what a client can mend, what nobody waited for, and what has to be
// looked into.
func result(r history.Receipt, err error) string {
	var faults *history.Faults
	var full *history.QuotaExceeded
	is := func(class error) bool { return errors.Is(err, class) }
	switch {
	case err == nil && r.Replayed:
		return "replayed"
	case err == nil:
		return "ok"
	case is(context.Canceled), is(context.DeadlineExceeded):
		return "canceled"
	case errors.As(err, &faults), errors.As(err, &full), is(errUnread), is(history.ErrPrecondition), is(history.ErrNotEmpty), is(history.ErrKeyMismatch), is(history.ErrBusy),
		is(history.ErrNotFound), is(history.ErrNoAttachment), is(history.ErrNoSuchMessage):
		return "refused"
	case is(history.ErrClosed):
		return "stopping"
	}
	return "failed"
}

// A tally is what a commit stores, counted before it is known that it does.
type tally struct {
	messages, bytes int64
	changes         map[altered]int64
}

// altered is a kind of change. Both words are from closed sets: a category is a word of
// the policy's options, never of a request's.
type altered struct{ action, category string }

func (t *tally) message(bytes int64) {
	t.messages++
	t.bytes += bytes
}

func (t *tally) change(c projection.Change) {
	if t.changes == nil {
		t.changes = map[altered]int64{}
	}
	t.changes[altered{c.Action, c.Category}]++
}

// byAction counts the changes by action; nil when there are none.
func (t *tally) byAction() map[string]int64 {
	var n map[string]int64
	for c, times := range t.changes {
		if n == nil {
			n = map[string]int64{}
		}
		n[c.action] += times
	}
	return n
}

// stored counts what came in by a door.
func (m *metrics) stored(door string, t *tally) {
	if t.messages > 0 {
		m.messages.WithLabelValues(door).Add(float64(t.messages))
		m.bytes.WithLabelValues(door).Add(float64(t.bytes))
	}
	for c, times := range t.changes {
		category := cmp.Or(c.category, "none")
		switch c.action {
		case projection.Redacted, projection.Dropped:
			m.redactions.WithLabelValues(category).Add(float64(times))
		case projection.Truncated:
			m.truncations.WithLabelValues(category).Add(float64(times))
		}
	}
}

// repaired counts what a replay did so that the history may be sent.
func (m *metrics) repaired(r *Report) {
	for _, c := range []struct {
		kind string
		n    int64
	}{
		{"synthetic_results", r.SyntheticResults},
		{"moved_results", r.MovedResults},
		{"dropped_orphans", r.DroppedOrphans},
		{"dropped_duplicates", r.DroppedDuplicates},
		{"merged_calls", r.MergedCalls},
		{"exchanges_as_text", r.ExchangesAsText},
	} {
		if c.n > 0 {
			m.repairs.WithLabelValues(c.kind).Add(float64(c.n))
		}
	}
}
