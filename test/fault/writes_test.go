package fault

import (
	"net/http"
	"slices"
)

// clearAll clears whatever the caller has, one conversation after the other: without an answer each may be gone or not. Who
// holds the op of all shared ones is alone, since copies are made of these; nobody else holds two.
func (d *driver) clearAll() answer {
	for _, c := range d.shared {
		c.op.Lock()
		defer c.op.Unlock()
	}
	a := d.s.try("DELETE", "/v1/conversations", nil)
	done := d.wrote(a, http.StatusNoContent, "clear of all")
	for _, c := range d.all() {
		if done {
			d.gone(c)
		}
		c.becomes(done, func(*content) *content { return newContent() })
	}
	return a
}

// conditional appends if nobody else did, and then on the same condition, which does not hold any more.
func (d *driver) conditional(c *conversation, b, never batch) answer {
	c.op.Lock()
	defer c.op.Unlock()
	version := `"0-0"`
	switch a := d.s.try("GET", c.path(), nil); a.status {
	case http.StatusOK:
		version = a.header.Get("ETag")
	case http.StatusNotFound:
	default:
		return d.looked(a, "conversation")
	}
	a := d.send(c, b, "If-Match", version)
	if a.status != http.StatusCreated {
		return a
	}
	stale := d.s.try("POST", c.path()+"/turns", body(d.t, false, never), "If-Match", version)
	if stale.status != http.StatusPreconditionFailed {
		d.looked(stale, "append on a condition that does not hold")
	}
	return a
}

// create imports where nothing is, or is refused.
func (d *driver) create(c *conversation, b batch) answer {
	c.op.Lock()
	defer c.op.Unlock()
	now, sure := c.sure()
	if !sure {
		return answer{}
	}
	a := d.s.try("POST", c.path()+"/import?mode=create", body(d.t, true, b))
	if len(now.there) == 0 {
		c.becomes(d.wrote(a, http.StatusCreated, "import"), func(*content) *content { return sequence([]batch{b}) })
	} else if a.status != http.StatusConflict || a.code() != "conversation_not_empty" {
		d.looked(a, "import where something is")
	}
	return a
}

// carry imports the archive of a conversation of which all is known elsewhere.
func (d *driver) carry(c *conversation) answer {
	c.op.Lock()
	defer c.op.Unlock()
	now, sure := c.sure()
	if !sure || len(now.there) == 0 {
		return answer{}
	}
	archive := d.s.try("GET", c.path()+"/export?format=tar", nil)
	if archive.status != http.StatusOK {
		return d.looked(archive, "export")
	}
	to := d.copy()
	a := d.s.try("POST", to.path()+"/import?format=tar", archive.body, "Content-Type", "application/x-tar")
	done := d.wrote(a, http.StatusCreated, "import of an archive")
	to.becomes(done, func(*content) *content { return now.clone() })
	return a
}

// looked wants no answer, or a refusal for the state of the disk, of what changes nothing.
func (d *driver) looked(a answer, what string) answer {
	if !slices.Contains([]int{0, http.StatusServiceUnavailable, http.StatusInsufficientStorage}, a.status) {
		d.t.Errorf("%s: %s: %d %.300s", d.what, what, a.status, a.body)
	}
	return a
}
