package accept

import (
	"bytes"
	"fmt"
	"strconv"
	"strings"
	"testing"

	"historyd/test/chatmodel"
)

// newSummarised is a daemon that asks the model, with one caller. At least 2 turns stay, and 2 are folded at a time.
func newSummarised(t *testing.T, m *chatmodel.Server, env ...string) (*daemon, caller) {
	t.Helper()
	d := newDaemon(t, append([]string{
		"HISTORYD_COMPACTION_SUMMARISER=model", "HISTORYD_COMPACTION_MODEL_BASE_URL=" + m.URL + "/v1", "HISTORYD_COMPACTION_MODEL_NAME=stub",
		"HISTORYD_COMPACTION_KEEP_VERBATIM_TURNS=2", "HISTORYD_COMPACTION_FOLD_BATCH=2",
	}, env...)...)
	return d, caller{d, d.token("operator", "ann", "")}
}

// turn appends a question and an answer that are about a word, at some length.
func (c caller) turn(name, word string) {
	c.d.t.Helper()
	at := strings.Repeat(word+" is spoken of at length here. ", 10)
	c.do(201, "POST", "/v1/conversations/"+name+"/turns", said(c.d.t, at+word+" question", at+word+" answer"))
}

// fold makes a turn about each of the words: with the first four, and with each two after them, there is a fold.
func (c caller) fold(name string, words ...string) {
	c.d.t.Helper()
	for _, word := range words {
		c.turn(name, word)
	}
}

// replayed is a replay in the words of the tests.
type replayed struct {
	Summary *struct {
		Text, Source    string
		Turns, Messages int64
		ThroughSeq      int64 `json:"through_seq"`
	}
	Messages []struct{ Role, Content string }
}

func (c caller) replay(name string) (r replayed) {
	c.d.t.Helper()
	b := c.do(200, "GET", "/v1/conversations/"+name+"/replay?format=openai", nil)
	return decode[replayed](c.d.t, b)
}

// summary is the source and the text of a summary, "none" without one.
func (r replayed) summary() string {
	if r.Summary == nil {
		return "none"
	}
	return r.Summary.Source + ": " + r.Summary.Text
}

// metric is the value of a series, 0 when it is not there.
func (d *daemon) metric(series string) int {
	d.t.Helper()
	_, rest, ok := bytes.Cut(caller{d, ""}.do(200, "GET", "/metrics", nil), []byte("\n"+series+" "))
	if !ok {
		return 0
	}
	value, _, _ := bytes.Cut(rest, []byte("\n"))
	n, err := strconv.Atoi(string(value))
	if err != nil {
		d.t.Fatalf("%s: %v", series, err)
	}
	return n
}

// ended waits until so many attempts have ended in a way.
func (d *daemon) ended(result string, n int) {
	d.t.Helper()
	series := fmt.Sprintf("historyd_summaries_total{result=%q}", result)
	await(d.t, fmt.Sprintf("%d summaries end as %s", n, result), func() bool { return d.metric(series) >= n })
}
