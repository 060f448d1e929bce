package projection

import "crypto/sha256"

// A key stands for an id: of a long history many are held.
type key [16]byte

func keyOf(id string) key {
	sum := sha256.Sum256([]byte(id))
	return key(sum[:])
}

// debts gives results what was decided of their calls, as a pairing gives them the calls
// themselves: a result answers the nearest earlier call of its id that has no answer
// yet, and calls of one id in one message cannot be told apart. It holds few bytes for an
// unanswered call, whatever its id and its tool. The zero debts has none.
type debts struct {
	open    map[key]debt
	below   map[key][]debt // those of ids with more than one, but the last
	message int64
	last    map[key]struct{} // ids that this message calls

	verdicts []verdict
	known    map[verdict]uint16 // where in verdicts
}

// A debt is the unanswered calls of one id in one message. What withholds the result of
// one withholds all.
type debt struct {
	calls   int32
	verdict uint16
}

func (d *debts) call(message int64, id string, v verdict) {
	if d.open == nil {
		d.open, d.below = map[key]debt{}, map[key][]debt{}
		d.verdicts, d.known = []verdict{{}}, map[verdict]uint16{{}: 0}
	}
	k := keyOf(id)
	if message != d.message || d.last == nil {
		d.message, d.last = message, map[key]struct{}{}
	}
	top, there := d.open[k]
	if _, again := d.last[k]; again && there {
		if top.calls++; top.verdict == 0 {
			top.verdict = d.numberOf(v)
		}
		d.open[k] = top
		return
	}
	d.last[k] = struct{}{}
	if there {
		d.below[k] = append(d.below[k], top)
	}
	d.open[k] = debt{1, d.numberOf(v)}
}

// numberOf returns where a verdict is, of which there are as many as categories.
func (d *debts) numberOf(v verdict) uint16 {
	n, known := d.known[v]
	if !known {
		n = uint16(len(d.verdicts))
		d.known[v], d.verdicts = n, append(d.verdicts, v)
	}
	return n
}

// answer returns what was decided of the call that a result of that id answers; false
// when there is none.
func (d *debts) answer(id string) (verdict, bool) {
	k := keyOf(id)
	top, there := d.open[k]
	if !there {
		return verdict{}, false
	}
	v := d.verdicts[top.verdict]
	if top.calls--; top.calls > 0 {
		d.open[k] = top
		return v, true
	}
	below := d.below[k]
	if n := len(below); n > 0 {
		d.open[k] = below[n-1]
		if d.below[k] = below[:n-1]; n == 1 {
			delete(d.below, k)
		}
	} else {
		delete(d.open, k)
	}
	return v, true
}
