package projection

import (
	"fmt"
	"testing"

	"pgregory.net/rapid"
)

// What was decided of a call comes back with the result that a pairing gives the call.
func TestDebtsPairAsCallsDo(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var d debts
		p, message := newPairing(), int64(0)
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			id := rapid.SampledFrom([]string{"a", "b", "c"}).Draw(t, "id")
			if rapid.Bool().Draw(t, "answer") {
				message++
				got, open := d.answer(id)
				g := p.answer(id)
				want := verdict{}
				for i := 0; g != nil && i < len(g.tools) && want == (verdict{}); i++ {
					if g.tools[i] != "kept" {
						want = verdict{g.tools[i], reasonCategory}
					}
				}
				if open != (g != nil) || got != want {
					t.Fatalf("a result of %s has %v, %v, want %v of %+v", id, got, open, want, g)
				}
				continue
			}
			message++
			for range rapid.IntRange(1, 3).Draw(t, "calls") {
				tool := rapid.SampledFrom([]string{"kept", "wallet", "files"}).Draw(t, "tool")
				v := verdict{}
				if tool != "kept" {
					v = verdict{tool, reasonCategory}
				}
				d.call(message, id, v)
				p.call(message, id, tool)
			}
		}
		for id := range p.open {
			if _, there := d.open[keyOf(id)]; !there {
				t.Fatalf("a call of %s is forgotten", id)
			}
		}
		if len(d.open) != len(p.open) {
			t.Fatalf("%d ids are open, want %d", len(d.open), len(p.open))
		}
	})
}

func TestAnUnansweredCallTakesFewBytes(t *testing.T) {
	var d debts
	c := NewChecker(true, nil)
	for i := range 10_000 {
		id := fmt.Sprint("call-", i)
		d.call(int64(i), id, verdict{"wallet", reasonCategory})
		c.open[keyOf(id)]++
	}
	if len(d.open) != 10_000 || len(d.below) > 0 || len(d.last) != 1 || len(d.verdicts) != 2 {
		t.Errorf("%d open, %d below, %d of the last message, %d verdicts", len(d.open), len(d.below), len(d.last), len(d.verdicts))
	}
	for i := range 10_000 {
		id := fmt.Sprint("call-", i)
		if v, open := d.answer(id); !open || v.category != "wallet" || !c.answer(id) {
			t.Fatalf("result %d has %v, %v", i, v, open)
		}
	}
	if len(d.open) > 0 || len(c.open) > 0 {
		t.Errorf("%d and %d calls are open when all are answered", len(d.open), len(c.open))
	}
}
