package pipeline

import (
	"bytes"
	"encoding/json/jsontext"
	"encoding/json/v2"
	"fmt"

	"historyd/internal/projection"
)

// A note is what is kept with a commit besides its messages: what a replayed
// receipt has to tell again, and what later results need to know of the tools.
// It names no value that was withheld.
type note struct {
	Changes    []notedChange     `json:"changes,omitempty"`
	Categories map[string]string `json:"categories,omitempty"`
	Import     *importNote       `json:"import,omitempty"`
}

// notedChange is a projection.Change; Message is its place in the commit.
type notedChange struct {
	Message       int    `json:"message"`
	Block         int    `json:"block"`
	Action        string `json:"action"`
	Category      string `json:"category,omitempty"`
	Reason        string `json:"reason,omitempty"`
	OriginalChars int64  `json:"original_chars,omitzero"`
}

// importNote lists the first MaxTold of what it lists; the totals are of all.
type importNote struct {
	Skipped       []Skipped        `json:"skipped,omitempty"`
	SkippedTotal  int64            `json:"skipped_total,omitzero"`
	Repaired      []Repaired       `json:"repaired,omitempty"`
	RepairedTotal int64            `json:"repaired_total,omitzero"`
	Changed       map[string]int64 `json:"changed,omitempty"`
}

// encode returns the note as JSON, the same bytes for the same note, and nil when
// there is nothing to remember.
func (n note) encode() jsontext.Value {
	if len(n.Changes) == 0 && len(n.Categories) == 0 && n.Import == nil {
		return nil
	}
	v, err := json.Marshal(n, json.Deterministic(true))
	if err != nil {
		// All text in a note is valid UTF-8, as both doors check.
		panic(fmt.Sprintf("pipeline: note: %T", err))
	}
	return v
}

func readNote(v jsontext.Value) (note, error) {
	var n note
	if len(v) == 0 {
		return n, nil
	}
	if err := json.Unmarshal(v, &n); err != nil {
		// The error of the decoder may quote what it met.
		return note{}, fmt.Errorf("read the note of a commit: %T", err)
	}
	return n, nil
}

// A noteReader reads the notes of messages that come one after the other, each once.
type noteReader struct {
	// last is no copy, and always that of the message before: all messages of a commit come with the same bytes, which
	// are told to be the same without a look at them. A note may be as large as its commit.
	last jsontext.Value
}

// read returns the note, or nothing when it is that of the message before.
func (n *noteReader) read(v jsontext.Value) (note, error) {
	same := bytes.Equal(v, n.last)
	if n.last = v; same {
		return note{}, nil
	}
	return readNote(v)
}

func noted(changes []projection.Change) []notedChange {
	var list []notedChange
	for _, c := range changes {
		list = append(list, notedChange(c))
	}
	return list
}
