package recall

// relieve writes the largest memtable.
func (x *Index) relieve() error {
	x.mu.Lock()
	var most *caller
	for _, c := range x.callers {
		if most == nil || c.size.Load() > most.size.Load() {
			most = c
		}
	}
	if most == nil || most.size.Load() == 0 {
		x.mu.Unlock()
		return nil
	}
	most.users++
	x.work.Add(1)
	x.mu.Unlock()
	defer x.release(most)
	most.mu.Lock()
	defer most.mu.Unlock()
	return x.flush(most)
}

// trim lets go of the callers used longest ago.
func (x *Index) trim() {
	for {
		x.mu.Lock()
		var old *caller
		if len(x.callers) > maxCallers && !x.closed {
			for _, c := range x.callers {
				if c.idle() && (old == nil || c.used < old.used) {
					old = c
				}
			}
		}
		if old == nil {
			x.mu.Unlock()
			return
		}
		old.users++
		x.mu.Unlock()
		x.leave(old)
	}
}

func (c *caller) idle() bool {
	return c.users == 0 && c.flight == nil && len(c.behind) == 0 && !c.walk
}

// leave writes what a caller has in memory, and forgets the caller unless somebody came meanwhile. What can't be
// written is read again: by the first search of a caller who was forgotten, and later for one who was not.
func (x *Index) leave(c *caller) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := x.flush(c); err != nil {
		x.log.WarnContext(x.life, "index not written", "scope", c.scope, "error", err)
	}
	for _, s := range c.segments {
		x.cache.drop(s)
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	c.users--
	if c.idle() {
		delete(x.callers, c.scope)
	}
}
