package retention

import (
	"io"
	"log/slog"
	"testing"
	"time"

	"historyd/internal/durable"
	"historyd/internal/durable/crashfs"
)

// look is one look at a clock: how long after the beginning it says that it is, and
// whether nothing is too old by it.
type look struct {
	at      time.Duration
	held    bool
	restart bool // before it, the process ends
}

func clockOn(fsys durable.FS, maxAge time.Duration) *clock {
	return &clock{fsys: fsys, maxAge: maxAge, log: slog.New(slog.NewTextHandler(io.Discard, nil))}
}

func TestAClockThatJumpsIsNotBelieved(t *testing.T) {
	const day, year = 24 * time.Hour, 365 * 24 * time.Hour
	for _, tt := range []struct {
		name   string
		maxAge time.Duration
		newest time.Duration // of all activity, after the beginning
		looks  []look
	}{
		{"it goes on", 30 * day, 0, []look{{0, false, false}, {10 * time.Second, false, false}, {time.Hour, false, false}, {time.Hour * 20, false, false}}},
		{"it jumps by ten years", 30 * day, 0, []look{{0, false, false}, {10 * year, true, false}, {10*year + time.Minute, true, false},
			{10*year + day - 1, true, false}, {10*year + day, false, false}}},
		{"it jumps and is set right", 30 * day, 0, []look{{0, false, false}, {10 * year, true, false}, {time.Minute, false, false}, {time.Hour, false, false}}},
		{"it jumps while nothing runs", 30 * day, 0, []look{{0, false, false}, {10 * year, true, true}, {10*year + time.Hour, true, false}}},
		{"a restart is no way around it", 30 * day, 0, []look{{0, false, false}, {10 * year, true, false}, {10*year + time.Minute, true, true},
			{10*year + 2*time.Minute, true, true}, {10*year + day, false, true}}},
		{"it is set right while nothing runs", 30 * day, 0, []look{{0, false, false}, {10 * year, true, false}, {time.Minute, false, true}}},
		{"nothing ran for a week", 30 * day, 0, []look{{0, false, false}, {7 * day, false, true}}},
		{"nothing ran for longer", 30 * day, 0, []look{{0, false, false}, {7*day + 1, true, true}, {8*day + 1, false, false}}},
		{"half of a short age is a jump", 2 * time.Hour, 0, []look{{0, false, false}, {time.Hour, false, false}, {2*time.Hour + 1, true, false}, {3*time.Hour + 1, true, false}, {4*time.Hour + 1, false, false}}},
		{"it jumps again", 30 * day, 0, []look{{0, false, false}, {10 * year, true, false}, {20 * year, true, false}, {20*year + day - 1, true, false}}},
		{"nobody knows when it was looked at, and there is recent activity", 30 * day, -6 * day, []look{{0, false, false}}},
		{"nobody knows, and the newest activity is long ago", 30 * day, -8 * day, []look{{0, true, false}, {day, false, false}}},
		{"nobody knows, and there is activity to come", 30 * day, year, []look{{0, false, false}, {time.Hour, false, false}}},
		{"an age of a second", time.Second, 0, []look{{0, false, false}, {30 * time.Second, false, true}, {50 * time.Second, false, false}}},
		{"no age", 0, 0, []look{{0, false, false}, {10 * year, false, false}}},
	} {
		fsys := crashfs.New()
		c := clockOn(fsys, tt.maxAge)
		for i, l := range tt.looks {
			if l.restart {
				fsys = fsys.Crash(rng(i))
				c = clockOn(fsys, tt.maxAge)
			}
			now := start.Add(l.at)
			held := c.tick(now)
			if i == 0 {
				held = c.witness(start.Add(tt.newest), now)
			}
			if held != l.held {
				t.Errorf("%s: at look %d held is %t, want %t", tt.name, i, held, l.held)
			}
		}
	}
}

func TestAClockWritesSeldom(t *testing.T) {
	fsys := crashfs.New()
	c := clockOn(fsys, 30*24*time.Hour)
	c.tick(start)
	c.witness(start, start)
	before := fsys.Ops()
	writes := 0
	for i := range 3600 { // ten hours
		c.tick(start.Add(time.Duration(i) * 10 * time.Second))
		if fsys.Ops() != before {
			before = fsys.Ops()
			writes++
		}
	}
	if writes != 9 {
		t.Errorf("%d times in ten hours, want once an hour", writes)
	}
}

func TestAClockWhoseFileIsSpoiltBeginsAnew(t *testing.T) {
	for _, text := range []string{"", "{", `{"seen": 5}`, "\x00\x00"} {
		fsys := crashfs.New()
		if err := durable.WriteFile(fsys, StateName, []byte(text)); err != nil {
			t.Fatal(err)
		}
		c := clockOn(fsys, time.Hour)
		if c.tick(start) || c.witness(start, start) || c.tick(start.Add(time.Minute)) {
			t.Errorf("%q: the clock is not believed", text)
		}
		if until, err := HeldUntil(fsys); err != nil || !until.IsZero() {
			t.Errorf("%q: held until %v, %v", text, until, err)
		}
	}
	fsys := crashfs.New()
	c := clockOn(fsys, time.Hour)
	c.tick(start)
	c.witness(start.Add(-time.Hour), start)
	if until, err := HeldUntil(fsys); err != nil || !until.Equal(start.Add(time.Hour)) {
		t.Errorf("held until %v, %v", until, err)
	}
}

func TestAClockOnAFullDiskGoesOn(t *testing.T) {
	fsys := crashfs.New()
	fsys.SetCapacity(0)
	c := clockOn(fsys, 30*24*time.Hour)
	c.tick(start)
	if c.witness(start, start) || !c.tick(start.Add(10*365*24*time.Hour)) {
		t.Error("a jump goes unnoticed when nothing can be written down")
	}
}
