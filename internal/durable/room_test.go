package durable_test

import (
	"errors"
	"io/fs"
	"os"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"historyd/internal/durable"
	"historyd/internal/durable/crashfs"
)

// hoard takes all descriptors that this process may have. What is returned gives some of them back.
func hoard(t *testing.T) (spare func(n int)) {
	t.Helper()
	var limit unix.Rlimit
	must(t, unix.Getrlimit(unix.RLIMIT_NOFILE, &limit))
	few := limit
	few.Cur = min(256, limit.Max)
	must(t, unix.Setrlimit(unix.RLIMIT_NOFILE, &few))
	var held []*os.File
	spare = func(n int) {
		for _, f := range held[:min(n, len(held))] {
			must(t, f.Close())
		}
		held = held[min(n, len(held)):]
	}
	t.Cleanup(func() {
		spare(len(held))
		must(t, unix.Setrlimit(unix.RLIMIT_NOFILE, &limit))
	})
	for {
		f, err := os.Open(os.DevNull)
		if errors.Is(err, syscall.EMFILE) {
			return spare
		}
		must(t, err)
		held = append(held, f)
	}
}

func TestWhatFindsNoDescriptorIsDoneOnceThereIsRoom(t *testing.T) {
	for _, tt := range []struct {
		what string
		do   func(durable.FS) error
	}{
		{"Create", func(f durable.FS) error { return closed(f.Create("d/new")) }},
		{"Open", func(f durable.FS) error { return closed(f.Open("d/a", true)) }},
		{"Mkdir", func(f durable.FS) error { return f.Mkdir("d/e") }},
		{"ReadDir", func(f durable.FS) error { _, err := f.ReadDir("d"); return err }},
		{"List", func(f durable.FS) error { _, err := f.List("d"); return err }},
		{"Rename", func(f durable.FS) error { return f.Rename("d/a", "d/c") }},
		{"Replace", func(f durable.FS) error { return f.Replace("d/a", "d/b") }},
		{"Exchange", func(f durable.FS) error { return f.Exchange("d/a", "d/b") }},
		{"Link", func(f durable.FS) error { return f.Link("d/a", "d/c") }},
		{"Remove", func(f durable.FS) error { return f.Remove("d/a") }},
		{"SyncDir", func(f durable.FS) error { return f.SyncDir("d") }},
		{"Lock", func(f durable.FS) error {
			l, err := f.Lock("d/lock")
			if err == nil {
				err = l.Close()
			}
			return err
		}},
	} {
		t.Run(tt.what, func(t *testing.T) {
			fsys, _ := scratch(t)
			must(t, fsys.Mkdir("d"))
			put(t, fsys, "d/a", "1")
			put(t, fsys, "d/b", "2")
			spare := hoard(t)
			asked := 0
			room := durable.WithRoom(fsys, func() { asked++ })
			err := tt.do(room)
			wantErr(t, "without room", err, durable.ErrNoDescriptor)
			wantErr(t, "without room", err, syscall.EMFILE)
			if asked != 1 {
				t.Errorf("asked %d times for room, want once", asked)
			}
			must(t, tt.do(durable.WithRoom(fsys, func() { spare(4) })))
		})
	}
}

func closed(f durable.File, err error) error {
	if err != nil {
		return err
	}
	return f.Close()
}

// The second try is the last, and what it says holds: nothing was done before.
func TestAnErrorBesidesTheLackOfADescriptorIsNotTriedAgain(t *testing.T) {
	for _, tt := range []struct {
		errs []error // of one try after the other
		want error
		asks int
	}{
		{[]error{syscall.EMFILE}, syscall.EMFILE, 0},
		{[]error{syscall.EIO}, syscall.EIO, 0},
		{[]error{durable.ErrNoDescriptor, durable.ErrNoDescriptor}, durable.ErrNoDescriptor, 1},
		{[]error{durable.ErrNoDescriptor, fs.ErrExist}, fs.ErrExist, 1},
		{[]error{durable.ErrNoDescriptor}, nil, 1},
	} {
		fsys, tries, asks := crashfs.New(), 0, 0
		fsys.FailWhen(func(crashfs.Op) error {
			if tries++; tries <= len(tt.errs) {
				return tt.errs[tries-1]
			}
			return nil
		})
		err := durable.WithRoom(fsys, func() { asks++ }).Mkdir("d")
		if !errors.Is(err, tt.want) || asks != tt.asks {
			t.Errorf("%v: got error %v, asked %d times for room, want %v and %d", tt.errs, err, asks, tt.want, tt.asks)
		}
	}
}
