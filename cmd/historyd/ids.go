package main

import (
	"crypto/rand"
	"encoding/binary"
	"fmt"
	"math/bits"
	"sync"
	"time"

	"github.com/oklog/ulid/v2"
)

// ids makes ids: ULIDs, 26 characters that sort as text by the time they were
// made. It is safe for concurrent use.
type ids struct {
	now func() time.Time

	// mu guards last, the last id made.
	mu   sync.Mutex
	last ulid.ULID
}

// newIDs returns a function that makes ids. Each sorts after every one made
// before it and after the one given, also when the clock steps back: then the
// ids count on from the last one until the clock has caught up. What is given
// is an id, "" for none; a text that is no id is no bound.
func newIDs(now func() time.Time) func(after string) string {
	s := &ids{now: now}
	return s.next
}

func (s *ids) next(after string) string {
	bound, err := ulid.ParseStrict(after)
	if err != nil {
		bound = ulid.ULID{}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if bound.Compare(s.last) < 0 {
		bound = s.last
	}
	ms := ulid.Timestamp(s.now())
	if ms > bound.Time() {
		s.last = fresh(ms)
	} else {
		s.last = following(bound)
	}
	return s.last.String()
}

// fresh returns a random id of a millisecond.
func fresh(ms uint64) (id ulid.ULID) {
	rand.Read(id[6:]) // never fails: the runtime ends the process instead
	if err := id.SetTime(ms); err != nil {
		panic(fmt.Sprintf("historyd: no id for a time after the year 10889: %v", err))
	}
	return id
}

// following returns an id that sorts after another. It has the same time, or
// the next millisecond where there is no room left, and it can't be guessed
// from the other: the step between them is random.
func following(id ulid.ULID) ulid.ULID {
	var step [4]byte
	rand.Read(step[:])
	high, low := uint64(binary.BigEndian.Uint16(id[6:8])), binary.BigEndian.Uint64(id[8:])
	low, carry := bits.Add64(low, uint64(binary.BigEndian.Uint32(step[:]))+1, 0)
	high += carry
	if high > 1<<16-1 {
		return fresh(id.Time() + 1)
	}
	binary.BigEndian.PutUint16(id[6:8], uint16(high))
	binary.BigEndian.PutUint64(id[8:], low)
	return id
}
