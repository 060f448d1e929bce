package recall

import "time"

// tellEvery is how often the log has it that conversations of a caller are not indexed: what fails for one, fails for all.
const tellEvery = time.Minute

// fail notes a conversation for later.
func (x *Index) fail(c *caller, name string, err error) {
	if x.life.Err() != nil {
		return
	}
	x.metrics.failures.Inc()
	if times := x.failed(c, name); times > 0 {
		x.log.WarnContext(x.life, "conversation not indexed", "scope", c.scope, "error", err, "times", times)
	}
}

// failed notes a conversation for later, and says how many failures are to be told; 0 when none is yet.
func (x *Index) failed(c *caller, name string) (times int) {
	x.mu.Lock()
	defer x.mu.Unlock()
	now := x.now()
	c.postpone(now, name)
	c.untold++
	if !c.told.IsZero() && now.Sub(c.told) < tellEvery {
		return 0
	}
	times = c.untold
	c.told, c.untold = now, 0
	return times
}

// postpone notes what has no use now. Index.mu is held.
func (c *caller) postpone(now time.Time, name string) {
	c.laterAt = now.Add(retryAfter)
	if len(c.later) < maxBehind {
		c.later[name] = true
	} else {
		c.walked = false
	}
}
