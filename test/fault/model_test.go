package fault

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
)

// A batch is the messages of one append, which are in the record all or none. Its name stands in each of them.
type batch struct {
	name string
	n    int
}

// placed is a batch that is known to be in the record.
type placed struct {
	batch
	first   int64
	rewound bool
}

// content is one thing that a conversation may hold.
type content struct {
	there  map[string]placed // acknowledged, or seen
	doubts map[string]batch  // asked for without an answer: there whole, or not there
	// unsure are rewound or not: their rewind got no answer, or they were in doubt when it came.
	unsure map[string]bool
}

func newContent() *content {
	return &content{map[string]placed{}, map[string]batch{}, map[string]bool{}}
}

func (c *content) clone() *content {
	return &content{maps.Clone(c.there), maps.Clone(c.doubts), maps.Clone(c.unsure)}
}

// ordered lists what is known to be there.
func (c *content) ordered() []placed {
	return slices.SortedFunc(maps.Values(c.there), func(a, b placed) int { return int(a.first - b.first) })
}

// sure reports whether everything about it is known.
func (c *content) sure() bool { return len(c.doubts)+len(c.unsure) == 0 }

// match holds what is found to what may be there, and returns what is there then.
func (c *content) match(found []placed, cleared map[string]bool) (*content, error) {
	settled := newContent()
	for _, f := range found {
		if _, double := settled.there[f.name]; double {
			return nil, fmt.Errorf("duplicated: %s is there twice", f.name)
		}
		settled.there[f.name] = f
		want, acked := c.there[f.name]
		_, asked := c.doubts[f.name]
		switch {
		case acked && (want.first != f.first || want.n != f.n):
			return nil, fmt.Errorf("moved: %s has %d messages from %d on, acknowledged were %d from %d on", f.name, f.n, f.first, want.n, want.first)
		case acked && want.rewound != f.rewound && !c.unsure[f.name]:
			return nil, fmt.Errorf("%s is rewound: %t, want %t", f.name, f.rewound, want.rewound)
		case !acked && !asked && cleared[f.name]:
			return nil, fmt.Errorf("resurrected: %s was cleared", f.name)
		case !acked && !asked:
			return nil, fmt.Errorf("%s is there, which nobody put there", f.name)
		}
	}
	for name := range c.there {
		if _, ok := settled.there[name]; !ok {
			return nil, fmt.Errorf("lost: %s was acknowledged", name)
		}
	}
	return settled, nil
}

// A conversation is what is known of one. Who holds op shared may append; who holds it alone may do anything.
type conversation struct {
	name string
	op   sync.RWMutex

	mu  sync.Mutex // guards what follows
	may []*content // at least one
}

func newConversation(name string) *conversation {
	return &conversation{name: name, may: []*content{newContent()}}
}

// path is where the conversation is written to; verify reads it by its name.
func (c *conversation) path() string {
	if c.name == "default" {
		return "/v1/history"
	}
	return "/v1/conversations/" + c.name
}

// sure is the one thing that the conversation holds, and whether it is known.
func (c *conversation) sure() (*content, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.may[0], len(c.may) == 1 && c.may[0].sure()
}

// acked notes an append that was answered.
func (c *conversation) acked(b batch, first int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, m := range c.may {
		delete(m.doubts, b.name)
		if was, ok := m.there[b.name]; ok && was.first == first {
			continue // it was there already, rewound perhaps
		}
		m.there[b.name] = placed{b, first, false}
	}
}

// doubt notes an append that got no answer.
func (c *conversation) doubt(b batch) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, m := range c.may {
		if _, ok := m.there[b.name]; !ok {
			m.doubts[b.name] = b
		}
	}
}

// becomes notes what makes a new content of any: what was before is possible still unless it was answered.
func (c *conversation) becomes(answered bool, change func(*content) *content) {
	c.mu.Lock()
	defer c.mu.Unlock()
	var after []*content
	for _, m := range c.may {
		after = append(after, change(m.clone()))
	}
	if answered {
		c.may = after
	} else {
		c.may = append(c.may, after...)
	}
}

// settle holds what is found to what is possible, and keeps what is. What was acknowledged and is no more, because a clear or
// an import without an answer was done after all, is gone for good.
func (c *conversation) settle(found []placed, cleared map[string]bool) (gone []string, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	var reasons []string
	for _, m := range c.may {
		settled, err := m.match(found, cleared)
		if err == nil {
			for _, other := range c.may {
				for name := range other.there {
					if _, ok := settled.there[name]; !ok {
						gone = append(gone, name)
					}
				}
			}
			c.may = []*content{settled}
			return gone, nil
		}
		reasons = append(reasons, err.Error())
	}
	return nil, fmt.Errorf("%s: %s; found %v", c.name, strings.Join(slices.Compact(reasons), ", or "), found)
}

// doubted lists the batches that got no answer.
func (c *conversation) doubted() (all []batch) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, m := range c.may {
		for _, b := range m.doubts {
			if !slices.Contains(all, b) {
				all = append(all, b)
			}
		}
	}
	return all
}

// names lists all that may be there.
func (c *conversation) names() (all []string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, m := range c.may {
		all = slices.AppendSeq(all, maps.Keys(m.there))
		all = slices.AppendSeq(all, maps.Keys(m.doubts))
	}
	return all
}

// rewind ends a content at a message.
func rewind(through int64) func(*content) *content {
	return func(c *content) *content {
		for name, p := range c.there {
			if p.first > through {
				p.rewound = true
				c.there[name] = p
			}
		}
		return c
	}
}

// sequence is the content of batches one after the other.
func sequence(batches []batch) *content {
	c := newContent()
	next := int64(1)
	for _, b := range batches {
		c.there[b.name] = placed{b, next, false}
		next += int64(b.n)
	}
	return c
}
