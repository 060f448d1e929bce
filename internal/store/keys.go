package store

import "historyd/internal/history"

// keyCheckpoint is after how many keyed lines one lists all remembered keys, so that
// no more lines than that are read to know them.
const keyCheckpoint = 256

// keyTable is the remembered idempotency keys of one transcript, oldest first.
type keyTable struct {
	order  []knownKey
	index  map[string]int // into order, shifted by dropped
	base   int
	newest place // the newest keyed line
	since  int   // keyed lines since the last list
}

func (k *keyTable) find(key string) (knownKey, bool) {
	i, ok := k.index[key]
	if !ok {
		return knownKey{}, false
	}
	return k.order[i-k.base], true
}

func (k *keyTable) add(known knownKey) {
	k.index[known.Key] = k.base + len(k.order)
	k.order = append(k.order, known)
	if len(k.order) > history.RememberedKeys {
		old := k.order[0]
		if k.index[old.Key] == k.base {
			delete(k.index, old.Key)
		}
		k.order = k.order[1:]
		k.base++
	}
}

// take adds the keys of a draft that has become durable.
func (k *keyTable) take(added []knownKey, newest place) {
	for _, a := range added {
		k.add(a)
		k.since++
		if k.since >= keyCheckpoint {
			k.since = 0
		}
	}
	k.newest = newest
}

// loadKeys reads the remembered keys: keyed lines backwards to one that lists the rest.
func (t *transcript) loadKeys(snap *snapshot) error {
	if t.keys != nil {
		return nil
	}
	table := &keyTable{index: map[string]int{}, newest: snap.totals.Keyed}
	var back []knownKey // newest first
	var listed []knownKey
	for at := snap.totals.Keyed; !at.none() && len(back) < history.RememberedKeys; {
		c, err := t.commitAt(at)
		if err != nil {
			return err
		}
		if c == nil || c.Key == nil {
			// The line is damaged: go on from the nearest one before it.
			t.tellDamage(at, 0, 0)
			c, err = t.commitBefore(snap, at)
			if err != nil {
				return err
			}
			if c == nil || c.Totals.Keyed == at {
				break
			}
			at = c.Totals.Keyed
			continue
		}
		back = append(back, knownKey{c.Key.Key, c.Key.Fingerprint, at})
		if c.Key.Before.none() || len(c.Key.Known) > 0 {
			listed = c.Key.Known
			break
		}
		at = c.Key.Before
	}
	for _, k := range listed {
		table.add(k)
	}
	for i := len(back) - 1; i >= 0; i-- {
		table.add(back[i])
	}
	table.since = len(back) % keyCheckpoint
	if len(listed) > 0 {
		table.since = len(back) - 1
	}
	t.keys = table
	return nil
}

// replayed returns the first receipt of a key that is remembered.
func (d *draft) replayed(key string, fingerprint [32]byte) (history.Receipt, bool, error) {
	if err := d.t.loadKeys(d.t.state.Load()); err != nil {
		return history.Receipt{}, false, err
	}
	print := fingerprintText(fingerprint)
	for _, k := range d.keys {
		if k.Key == key {
			if k.Fingerprint != print {
				return history.Receipt{}, false, history.ErrKeyMismatch
			}
			receipt := d.given[key]
			receipt.Replayed, receipt.Folded = true, false
			return receipt, true, nil
		}
	}
	known, ok := d.t.keys.find(key)
	if !ok {
		return history.Receipt{}, false, nil
	}
	if known.Fingerprint != print {
		return history.Receipt{}, false, history.ErrKeyMismatch
	}
	receipt, err := d.t.firstReceipt(known.At)
	return receipt, err == nil, err
}

// firstReceipt makes the receipt of a committed line again.
func (t *transcript) firstReceipt(at place) (history.Receipt, error) {
	c, err := t.commitAt(at)
	if err != nil {
		return history.Receipt{}, err
	}
	if c == nil {
		return history.Receipt{}, history.ErrDamaged
	}
	r := history.Receipt{Epoch: c.Totals.Epoch, FirstSeq: c.First, LastSeq: c.Last, Note: c.Note, Replayed: true, Added: c.Last - c.First + 1}
	r.Skipped = c.Skipped
	if c.First > c.Last {
		r.FirstSeq, r.Added = 0, 0
	}
	if c.Added > 0 { // the lines before this one hold what the import added
		r.FirstSeq, r.Added = c.Last-c.Added+1, c.Added
	}
	for rec, err := range recordsOf(c) {
		if err != nil {
			return history.Receipt{}, err
		}
		m, err := rec.Message()
		if err != nil {
			return history.Receipt{}, history.ErrDamaged
		}
		r.IDs = append(r.IDs, m.ID)
	}
	return r, nil
}

// setKey makes the line answer for a key.
func (d *draft) setKey(c *commit, key string, fingerprint [32]byte) error {
	if err := d.t.loadKeys(d.t.state.Load()); err != nil {
		return err
	}
	here := d.here()
	k := &keyRecord{Key: key, Fingerprint: fingerprintText(fingerprint), Before: c.Totals.Keyed}
	if (d.t.keys.since+len(d.keys)+1)%keyCheckpoint == 0 {
		all := append(append([]knownKey(nil), d.t.keys.order...), d.keys...)
		k.Known = all[max(0, len(all)-history.RememberedKeys+1):]
	}
	c.Key = k
	c.Totals.Keyed = here
	d.keys = append(d.keys, knownKey{key, k.Fingerprint, here})
	return nil
}
