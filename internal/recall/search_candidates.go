package recall

import (
	"container/heap"

	"historyd/internal/history"
)

// A candidate is a document that may become a hit.
type candidate struct {
	rank
	epoch string
	held  float32
	role  uint8
	ref   bool
}

func (c *candidate) place() Place {
	p := Place{Conversation: c.name, Seq: c.seq}
	if int(c.role) < len(roleNumbers) {
		p.Role = roleNumbers[c.role]
	}
	if p.Role == history.User {
		p.Kind = history.Person
	}
	if c.ref {
		p.Kind = history.Reference
	}
	return p
}

// candidates is a heap with the last in the order on top.
type candidates struct {
	list   []candidate
	newest bool
}

// keep takes a candidate, and lets the last one go when there are more than most.
func (h *candidates) keep(c candidate, most int) {
	heap.Push(h, c)
	if len(h.list) > most {
		heap.Pop(h)
	}
}

func (h *candidates) Len() int           { return len(h.list) }
func (h *candidates) Less(i, j int) bool { return h.list[j].before(h.list[i].rank, h.newest) }
func (h *candidates) Swap(i, j int)      { h.list[i], h.list[j] = h.list[j], h.list[i] }
func (h *candidates) Push(c any)         { h.list = append(h.list, c.(candidate)) }
func (h *candidates) Pop() any {
	last := h.list[len(h.list)-1]
	h.list = h.list[:len(h.list)-1]
	return last
}
