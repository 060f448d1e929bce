package store

// A scratch is memory that a draft writes in, and another may have after it.
type scratch struct{ buf, payload, messages []byte }

// maxScratch bounds what is kept of each.
const maxScratch = 64 << 10

// borrow takes a scratch for one draft.
func (s *Store) borrow() *scratch {
	if mem, ok := s.scratches.Get().(*scratch); ok {
		return mem
	}
	return &scratch{}
}

// giveBack ends the draft: nothing of what it has written is used any more.
func (d *draft) giveBack() {
	mem := d.scratch
	mem.buf, d.buf, d.scratch = d.buf, nil, nil
	if max(cap(mem.buf), cap(mem.payload), cap(mem.messages)) <= maxScratch {
		d.t.store.scratches.Put(mem)
	}
}
