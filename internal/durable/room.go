package durable

import (
	"errors"
	"io"
)

// ErrNoDescriptor is for what has not been done at all because no file can be opened: this process has as many open as
// it may have, or the machine has.
var ErrNoDescriptor = errors.New("no file can be opened")

// WithRoom is fsys, but what finds no descriptor is done anew, once, after makeRoom, which closes what can be spared.
// makeRoom may be called from many goroutines, with whatever locks are held by who uses the FS.
func WithRoom(fsys FS, makeRoom func()) FS { return roomy{fsys, makeRoom} }

type roomy struct {
	FS
	makeRoom func()
}

func (r roomy) try(fn func() error) error {
	err := fn()
	if errors.Is(err, ErrNoDescriptor) {
		r.makeRoom()
		err = fn()
	}
	return err
}

// tryFor is try for what gives something.
func tryFor[T any](r roomy, fn func() (T, error)) (made T, err error) {
	err = r.try(func() (err error) {
		made, err = fn()
		return err
	})
	return made, err
}

func (r roomy) Create(name string) (File, error) {
	return tryFor(r, func() (File, error) { return r.FS.Create(name) })
}

func (r roomy) Open(name string, write bool) (File, error) {
	return tryFor(r, func() (File, error) { return r.FS.Open(name, write) })
}

func (r roomy) ReadDir(name string) ([]Entry, error) {
	return tryFor(r, func() ([]Entry, error) { return r.FS.ReadDir(name) })
}

func (r roomy) List(name string) ([]Entry, error) {
	return tryFor(r, func() ([]Entry, error) { return r.FS.List(name) })
}

func (r roomy) Lock(name string) (io.Closer, error) {
	return tryFor(r, func() (io.Closer, error) { return r.FS.Lock(name) })
}

func (r roomy) Mkdir(name string) error { return r.try(func() error { return r.FS.Mkdir(name) }) }

func (r roomy) Rename(from, to string) error {
	return r.try(func() error { return r.FS.Rename(from, to) })
}

func (r roomy) Replace(from, to string) error {
	return r.try(func() error { return r.FS.Replace(from, to) })
}

func (r roomy) Exchange(a, b string) error {
	return r.try(func() error { return r.FS.Exchange(a, b) })
}

func (r roomy) Link(from, to string) error {
	return r.try(func() error { return r.FS.Link(from, to) })
}

func (r roomy) Remove(name string) error { return r.try(func() error { return r.FS.Remove(name) }) }

func (r roomy) SyncDir(name string) error { return r.try(func() error { return r.FS.SyncDir(name) }) }
