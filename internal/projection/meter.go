package projection

import (
	"cmp"
	"slices"
	"strconv"

	"historyd/internal/history"
	"historyd/internal/strictjson"
)

// What a Meter learns from.
const (
	evidence = 200     // tokens, before which it scales nothing
	outlier  = 4       // times its estimate that a message may have taken, or the other way round
	maxUsage = 1 << 30 // tokens of one message
)

// A Meter estimates the messages of a window, and scales each estimate by what usage says
// that the answers before it took. It is for one goroutine.
//
// A scale is one of a few, and depends on nothing that came later: an estimate that was
// made once is made again however the window has grown.
type Meter struct {
	estimated, actual int64
	scales            []scale // by after
}

// A scale is for the messages behind one of the record.
type scale struct {
	after   int64 // seq
	eighths int64
}

// Saw takes the next message of the window, as it is in the record.
func (t *Meter) Saw(m *history.Message) {
	estimated, actual, ok := output(m)
	if !ok || actual > outlier*estimated || estimated > outlier*actual {
		return
	}
	t.estimated, t.actual = t.estimated+estimated, t.actual+actual
	if t.estimated < evidence {
		return
	}
	eighths := min(max((16*t.actual+t.estimated)/(2*t.estimated), 4), 16)
	if eighths != t.at(m.Seq+1) {
		t.scales = append(t.scales, scale{m.Seq, eighths})
	}
}

// at returns the scale for a message of the record, in eighths.
func (t *Meter) at(seq int64) int64 {
	i, _ := slices.BinarySearchFunc(t.scales, seq, func(s scale, seq int64) int { return cmp.Compare(s.after, seq) })
	if i == 0 {
		return 8
	}
	return t.scales[i-1].eighths
}

// Costs estimates messages one by one. Those that are not in the record count as the one
// before. Media have their fixed sizes.
func (t *Meter) Costs(msgs []history.Message) []int64 {
	costs, seq := make([]int64, len(msgs)), int64(0)
	for i := range msgs {
		if msgs[i].Seq > 0 {
			seq = msgs[i].Seq
		}
		written, rest := estimate(msgs[i].Content)
		costs[i] = messageTokens + (written * cents(t.at(seq)) / 8).tokens() + rest
	}
	return costs
}

// output returns the estimate of what a model wrote, and what that took as it was billed.
// It is false when nobody knows, or when the record does not hold all that was written.
func output(m *history.Message) (estimated, actual int64, ok bool) {
	if m.Role != history.Assistant || m.Synthetic || len(m.Content) == 0 || strictjson.Check(m.Usage) != nil || m.Usage.Kind() != '{' {
		return 0, 0, false
	}
	actual, thought, ok := billed(strictjson.Document(m.Usage))
	if !ok {
		return 0, 0, false
	}
	shown := make([]history.Block, 0, len(m.Content))
	for i := range m.Content {
		switch b := &m.Content[i]; {
		case b.Redacted != nil:
			return 0, 0, false
		case b.Type == history.ThinkingBlock:
			if !thought {
				return 0, 0, false // is in the bill, and often not whole in the record
			}
		case b.Type == history.TextBlock, b.Type == history.ToolCall:
			shown = append(shown, *b)
		default:
			return 0, 0, false
		}
	}
	written, rest := estimate(shown)
	return written.tokens() + rest, actual, true
}

// billed returns how many tokens an answer took without its reasoning, and whether that
// is known to be without.
func billed(usage strictjson.Value) (n int64, thought, ok bool) {
	if n, ok := counter(usage, "candidatesTokenCount"); ok {
		return n, true, true
	}
	for _, name := range []string{"completion_tokens", "output_tokens"} {
		n, ok := counter(usage, name)
		if !ok {
			continue
		}
		details, there := usage.Member(name + "_details")
		if !there || details.Kind() != '{' {
			return n, false, true
		}
		if _, there := details.Member("reasoning_tokens"); !there {
			return n, false, true
		}
		reasoning, ok := counter(details, "reasoning_tokens")
		return n - reasoning, true, ok && reasoning <= n
	}
	return 0, false, false
}

// counter reads a count. What is null is not known.
func counter(v strictjson.Value, name string) (int64, bool) {
	m, there := v.Member(name)
	if !there {
		return 0, false
	}
	n, err := strconv.ParseInt(string(m.Raw), 10, 64)
	return n, err == nil && 0 <= n && n <= maxUsage
}
