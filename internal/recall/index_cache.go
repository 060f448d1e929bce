package recall

import (
	"container/list"
	"sync"
)

// A blockCache keeps parts of segments, those used last. Safe for concurrent use.
type blockCache struct {
	mu    sync.Mutex
	max   int64
	size  int64
	parts map[blockKey]*list.Element
	order list.List // of *cachedBlock, newest first
}

type blockKey struct {
	segment *segment
	off     int64
}

type cachedBlock struct {
	key  blockKey
	data []byte
}

// sizeOfBlock is what a cached part takes besides its bytes.
const sizeOfBlock = 192

func newBlockCache(limit int64) *blockCache {
	return &blockCache{max: limit, parts: map[blockKey]*list.Element{}}
}

func (c *blockCache) find(s *segment, off int64) []byte {
	c.mu.Lock()
	defer c.mu.Unlock()
	e := c.parts[blockKey{s, off}]
	if e == nil {
		return nil
	}
	c.order.MoveToFront(e)
	return e.Value.(*cachedBlock).data
}

// put keeps a part. One that would push out half of the others is not kept.
func (c *blockCache) put(s *segment, off int64, data []byte) {
	c.mu.Lock()
	defer c.mu.Unlock()
	key := blockKey{s, off}
	if c.parts[key] != nil || int64(len(data)) > c.max/2 {
		return
	}
	c.parts[key] = c.order.PushFront(&cachedBlock{key, data})
	c.size += int64(len(data)) + sizeOfBlock
	for c.size > c.max {
		c.remove(c.order.Back())
	}
}

// drop forgets the parts of a segment.
func (c *blockCache) drop(s *segment) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for key, e := range c.parts {
		if key.segment == s {
			c.remove(e)
		}
	}
}

func (c *blockCache) remove(e *list.Element) {
	b := c.order.Remove(e).(*cachedBlock)
	delete(c.parts, b.key)
	c.size -= int64(len(b.data)) + sizeOfBlock
}
