package store

import (
	"cmp"
	"context"
	"errors"
	"io/fs"
	"slices"
	"strings"
	"sync"

	"historyd/internal/durable"
	"historyd/internal/history"
	"historyd/internal/identity"
)

// catalogues tell, for callers that have listed their conversations, which there
// are and which was active last. They live in memory, are made from the ends of the
// transcripts when first asked for, and are forgotten when they grow too many.
type catalogues struct {
	mu    sync.Mutex
	of    map[identity.Scope]*catalogue
	total int // names in all of them
}

// catalogue is one caller's. Newest ids order it.
type catalogue struct {
	newest  map[string]string // name -> newest id
	unnamed []string          // directories of which no header tells the name, when it was made; never changed
	removed map[string]bool   // while it is being made
	ready   chan struct{}
	err     error
}

// maxCatalogued is how many names all catalogues together may hold.
const maxCatalogued = 200_000

// touch notes activity.
func (c *catalogues) touch(key transcriptKey, id string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if one := c.of[key.scope]; one != nil {
		if _, known := one.newest[key.name]; !known {
			c.total++
		}
		one.newest[key.name] = id
		delete(one.removed, key.name)
	}
}

func (c *catalogues) remove(key transcriptKey) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if one := c.of[key.scope]; one != nil {
		if _, known := one.newest[key.name]; known {
			c.total--
			delete(one.newest, key.name)
		}
		if one.removed != nil {
			one.removed[key.name] = true
		}
	}
}

// listed is a conversation's place in the order of a listing.
type listed struct {
	id, name string
}

// compare orders newest activity first; by name what has no activity that can be read.
func (a listed) compare(b listed) int {
	return cmp.Or(strings.Compare(b.id, a.id), strings.Compare(a.name, b.name))
}

// List returns a page of a caller's conversations, newest activity first. A cursor is
// the id and the name of the last one on the page before, parted by a dot.
func (s *Store) List(ctx context.Context, scope identity.Scope, cursor string, limit int) (history.Listing, error) {
	id, name, ok := strings.Cut(cursor, ".")
	if cursor != "" && (!ok || !identity.ValidConversation(name) || strings.ContainsFunc(id, func(r rune) bool {
		return !(r >= '0' && r <= '9' || r >= 'A' && r <= 'Z' || r >= 'a' && r <= 'z')
	})) {
		return history.Listing{}, history.ErrNotFound
	}
	last := listed{id, name}
	var items []listed
	var unnamed []string
	err := s.withCatalogue(ctx, scope, func(one *catalogue) {
		unnamed = one.unnamed
		for name, id := range one.newest {
			if it := (listed{id, name}); cursor == "" || last.compare(it) < 0 {
				items = append(items, it)
			}
		}
	})
	if err != nil {
		return history.Listing{}, err
	}
	slices.SortFunc(items, listed.compare)
	var page history.Listing
	if cursor == "" {
		page.Unnamed = s.stillUnnamed(scope, unnamed)
	}
	for i, it := range items {
		if len(page.Items) == limit {
			page.Next = items[i-1].id + "." + items[i-1].name
			break
		}
		state, err := s.Log(scope, it.name).State(ctx)
		if errors.Is(err, history.ErrDamaged) || errors.Is(err, durable.ErrUnsafe) {
			state, err = history.State{Name: it.name, Epoch: "0", Damage: &history.Damage{Places: 1, Detail: "nothing can be read"}}, nil
		}
		if err != nil {
			return history.Listing{}, err
		}
		if state.Exists() {
			state.Summary = nil
			page.Items = append(page.Items, state)
		}
	}
	return page, nil
}

// withCatalogue calls fn with a caller's catalogue, making it first if need be.
func (s *Store) withCatalogue(ctx context.Context, scope identity.Scope, fn func(*catalogue)) error {
	c := &s.catalogues
	c.mu.Lock()
	one := c.of[scope]
	if one == nil {
		one = &catalogue{newest: map[string]string{}, removed: map[string]bool{}, ready: make(chan struct{})}
		if c.of == nil || c.total > maxCatalogued {
			c.of, c.total = map[identity.Scope]*catalogue{}, 0
		}
		c.of[scope] = one
		c.mu.Unlock()
		s.reading.Go(func() { s.makeCatalogue(scope, one) }) // who waits may give up
	} else {
		c.mu.Unlock()
	}
	select {
	case <-one.ready:
	case <-ctx.Done():
		return ctx.Err()
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if one.err != nil {
		return one.err
	}
	fn(one)
	return nil
}

func (s *Store) makeCatalogue(scope identity.Scope, one *catalogue) {
	found, unnamed, err := s.findConversations(scope)
	c := &s.catalogues
	c.mu.Lock()
	defer c.mu.Unlock()
	defer close(one.ready)
	current := c.of[scope] == one // else it was given up meanwhile, and counts no more
	if err != nil {
		one.err = classify(err)
		if current {
			delete(c.of, scope)
			c.total -= len(one.newest)
		}
		return
	}
	for name, id := range found {
		if _, newer := one.newest[name]; !newer && !one.removed[name] {
			one.newest[name] = id
			if current {
				c.total++
			}
		}
	}
	one.unnamed, one.removed = unnamed, nil
}

// stillUnnamed counts those of the directories that are there and tell no name: one may have been cleared or moved away
// since, or has been written to.
func (s *Store) stillUnnamed(scope identity.Scope, dirs []string) (n int64) {
	for _, dir := range dirs {
		if _, err := s.nameOf(scope, dir); errors.Is(err, history.ErrDamaged) || errors.Is(err, durable.ErrUnsafe) {
			n++
		}
	}
	return n
}

// findConversations reads the end of every transcript of a caller, and names the directories of those whose names it
// cannot tell.
func (s *Store) findConversations(scope identity.Scope) (found map[string]string, unnamed []string, err error) {
	dir := transcriptsName + "/" + scope.Dir()
	entries, err := s.fsys.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil, nil
	}
	if err != nil {
		return nil, nil, err
	}
	found = map[string]string{}
	for _, e := range entries {
		if !e.Dir || strings.HasPrefix(e.Name, ".") {
			continue
		}
		name, err := s.nameOf(scope, e.Name)
		if errors.Is(err, fs.ErrNotExist) || err == errNoRecord {
			continue // cleared meanwhile, or not begun
		}
		if errors.Is(err, history.ErrDamaged) || errors.Is(err, durable.ErrUnsafe) {
			s.log.Error("a conversation cannot be listed: none of its headers can be read", "scope", scope, "conversation", e.Name[:min(12, len(e.Name))])
			unnamed = append(unnamed, e.Name)
			continue
		}
		if err != nil {
			return nil, nil, err
		}
		id, err := s.newestID(transcriptKey{scope, name}, dir+"/"+e.Name)
		if errors.Is(err, history.ErrDamaged) || errors.Is(err, durable.ErrUnsafe) {
			s.log.Error("the end of a conversation cannot be read", "scope", scope, "conversation", e.Name[:min(12, len(e.Name))])
		} else if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, nil, err
		}
		found[name] = id
	}
	return found, unnamed, nil
}

// peekWindow is how much of a segment's end is read for the catalogue.
const peekWindow = 16 << 10

func (s *Store) newestID(key transcriptKey, dir string) (string, error) {
	t := newTranscript(s, key, dir)
	defer t.files.end()
	entries, err := s.fsys.ReadDir(dir)
	if err != nil {
		return "", err
	}
	for i := len(entries) - 1; i >= 0; i-- {
		n, ok := segmentNumber(entries[i].Name)
		if !ok {
			continue
		}
		for window := int64(peekWindow); ; window *= 8 {
			found, err := t.readTail(n, entries[i].Size, window)
			if err != nil {
				return "", err
			}
			if found.last != nil {
				return found.last.ID, nil
			}
			if window >= entries[i].Size {
				break
			}
		}
	}
	return "", nil
}
