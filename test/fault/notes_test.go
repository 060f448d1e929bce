package fault

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
)

// A note is a recall that is stored. It is a batch of one message, named for its query, which nobody else asks: each is
// there once at most.
type note struct{ query, text string }

func noteOf(query string) string {
	sum := sha256.Sum256([]byte(query))
	return "note " + hex.EncodeToString(sum[:8])
}

// note is the name of the note that a message is.
func (m *message) note() (name string, ok bool) {
	if !m.Synthetic || m.Kind != "reference" || len(m.Content) != 1 || m.Metadata.Recall.Query == "" {
		return "", false
	}
	return "note " + m.Metadata.Recall.Query, true
}

// recalled is what is answered of a recall.
type recalled struct {
	Text      string
	StoredSeq int64  `json:"stored_seq"`
	NotStored string `json:"not_stored"`
}

// ask has what is known stored, and returns what is answered of it. Of one that can't be stored for the state of the disk
// the answer is made what that of an append would be.
func (d *driver) ask(c *conversation, query string, replay bool) (answer, recalled) {
	want := object{"query": query, "store": true}
	path := "/recall"
	if replay {
		path, want = "/replay", object{"mode": "full", "format": "anthropic", "recall": want}
	}
	a := d.s.try("POST", c.path()+path, encode(d.t, want))
	var found struct {
		recalled
		Recall *recalled
	}
	if a.status != http.StatusOK {
		return a, found.recalled
	}
	if err := json.Unmarshal(a.body, &found); err != nil || replay != (found.Recall != nil) || bytes.Contains(a.body, []byte(canary)) {
		d.t.Errorf("%s: a recall: %v: %.500s", d.what, err, a.body)
	}
	if replay && found.Recall != nil {
		found.recalled = *found.Recall
	}
	switch found.NotStored {
	case "unavailable":
		a.status, a.body = http.StatusServiceUnavailable, encode(d.t, object{"code": found.NotStored})
	case "disk_full":
		a.status, a.body = http.StatusInsufficientStorage, encode(d.t, object{"code": found.NotStored})
	}
	return a, found.recalled
}

// recall stores what is known of some batch.
func (d *driver) recall(rng *rand.Rand, c *conversation) answer {
	c.op.RLock()
	defer c.op.RUnlock()
	n := d.count.Add(1)
	of := nameOf(rng.Int64N(n))
	if names := d.shared[rng.IntN(len(d.shared))].names(); len(names) > 0 {
		of = names[rng.IntN(len(names))]
	}
	query := fmt.Sprintf("what is known of %s, asks %d", of, n)
	b := batch{noteOf(query), 1}
	a, found := d.ask(c, query, rng.IntN(2) == 0)
	if a.status == http.StatusOK && found.StoredSeq == 0 { // there was nothing, or it is gone where it was found
		return a
	}
	d.mu.Lock()
	d.notes[b.name] = note{query, found.Text}
	d.mu.Unlock()
	if !d.wrote(a, http.StatusOK, "recall") {
		c.doubt(b)
		return a
	}
	c.acked(b, found.StoredSeq)
	return a
}

// known holds notes to what was answered, and learns what they say of which there was no answer. One behind the last answer
// is not stored again when it is asked for again.
func (d *driver) known(c *conversation, all []message) error {
	var last message
	for _, m := range all {
		name, ok := m.note()
		switch {
		case ok:
			n := d.notes[name]
			text := m.Content[0].Text
			if n.text != "" && n.text != text {
				return fmt.Errorf("%s says %.300q, want %.300q", name, text, n.text)
			}
			if d.notes[name] = (note{n.query, text}); !m.Rewound {
				last = m
			}
		case m.Role == "assistant" && !m.Rewound:
			last = message{}
		}
	}
	name, ok := last.note()
	if n := d.notes[name]; ok && c.name[0] != 'f' {
		if a, again := d.ask(c, n.query, last.Seq%2 == 0); a.status != http.StatusOK || again.StoredSeq != last.Seq || again.Text != n.text {
			return fmt.Errorf("%s is message %d, asked for again it is %+v: %d %.300s", name, last.Seq, again, a.status, a.body)
		}
	}
	return nil
}
