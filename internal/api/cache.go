package api

import (
	"context"

	"github.com/maypok86/otter/v2"

	"historyd/internal/history"
	"historyd/internal/identity"
	"historyd/internal/pipeline"
	"historyd/internal/wire"
)

// replayCache keeps the bodies of replays that were answered, by conversation. A
// body is served only while the conversation is of the version that it was made
// of, and none outlives the clear of its conversation.
type replayCache struct {
	cache *otter.Cache[pipeline.Conversation, *keptReplays]
	max   int // bytes of one body
}

// keptReplays is never changed once it is in the cache.
type keptReplays struct {
	version version
	bodies  []keptBody
}

type keptBody struct {
	shape shape
	body  []byte
}

// shapesKept is how many shapes of one conversation are kept.
const shapesKept = 4

// A version is all of a conversation's state that a replay depends on.
type version struct {
	epoch   string
	last    int64
	folded  int64
	damaged bool
	damage  history.Damage
}

func versionOf(s history.State) version {
	v := version{epoch: s.Epoch, last: s.LastSeq}
	if s.Summary != nil {
		v.folded = s.Summary.ThroughSeq
	}
	if s.Damage != nil {
		v.damaged, v.damage = true, *s.Damage
	}
	return v
}

const (
	defaultCache = 64 << 20
	entryWeight  = 512 // of an entry besides its bodies
)

func newReplayCache(size int64) (*replayCache, error) {
	if size == 0 {
		size = defaultCache
	}
	c, err := otter.New(&otter.Options[pipeline.Conversation, *keptReplays]{
		MaximumWeight: uint64(size),
		Weigher: func(_ pipeline.Conversation, kept *keptReplays) uint32 {
			weight := entryWeight
			for _, b := range kept.bodies {
				weight += len(b.body)
			}
			return uint32(weight)
		},
	})
	if err != nil {
		return nil, err
	}
	return &replayCache{c, int(min(size/16, 16<<20))}, nil
}

// find returns the body of that shape, or nil.
func (c *replayCache) find(conv pipeline.Conversation, now history.State, want shape) []byte {
	kept, ok := c.cache.GetIfPresent(conv)
	if !ok || kept.version != versionOf(now) {
		return nil
	}
	for i := range kept.bodies {
		if kept.bodies[i].shape == want {
			return kept.bodies[i].body
		}
	}
	return nil
}

// keep remembers a body that was made of the state, unless the conversation has
// moved on. That is decided while forget of the same conversation waits, so that
// nothing which was cleared is put back.
func (c *replayCache) keep(ctx context.Context, p *pipeline.Pipeline, conv pipeline.Conversation, made history.State, of shape, body []byte) {
	if !made.Exists() || len(body) > c.max {
		return
	}
	of.format = wire.Format([]byte(of.format)) // not a part of some larger body
	c.cache.Compute(conv, func(old *keptReplays, found bool) (*keptReplays, otter.ComputeOp) {
		now, err := p.State(ctx, conv)
		if err != nil || versionOf(now) != versionOf(made) {
			return nil, otter.CancelOp
		}
		next := &keptReplays{version: versionOf(made), bodies: []keptBody{{of, body}}}
		if found && old.version == next.version {
			for _, b := range old.bodies {
				if b.shape != of && len(next.bodies) < shapesKept {
					next.bodies = append(next.bodies, b)
				}
			}
		}
		return next, otter.WriteOp
	})
}

// forget drops what is kept of a conversation; it is called after the clear.
func (c *replayCache) forget(conv pipeline.Conversation) { c.cache.Invalidate(conv) }

// forgetAll is forget for all conversations of the scope.
func (c *replayCache) forgetAll(scope identity.Scope) {
	var gone []pipeline.Conversation
	for conv := range c.cache.Keys() {
		if conv.Scope == scope {
			gone = append(gone, conv)
		}
	}
	for _, conv := range gone {
		c.forget(conv)
	}
}
