package wire

import (
	"crypto/sha256"
	"encoding/hex"
	"strconv"
	"strings"

	"historyd/internal/history"
)

// A nameRule says which names of tools a provider accepts.
type nameRule struct {
	max     int
	leading string // signs that a name may not begin with
}

const nameSigns = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_-"

func (r nameRule) legal(name string) bool {
	return name != "" && len(name) <= r.max && strings.Trim(name, nameSigns) == "" && !strings.ContainsAny(name[:1], r.leading)
}

// nameHash is how many bytes of its SHA-256 a mapped name ends with. Whoever invents names
// may look for two that end alike, so it is enough that nobody finds them.
const nameHash = 16

// naming maps the names of tools that a provider would refuse, the same way wherever
// they stand.
type naming struct {
	rule   nameRule
	mapped map[string]string // to the original
}

func (n *naming) name(original string) string {
	written := n.rule.written(original)
	if written != original {
		if n.mapped == nil {
			n.mapped = map[string]string{}
		}
		n.mapped[written] = original
	}
	return written
}

// nameRules are those of the formats that have one.
var nameRules = map[Format]nameRule{OpenAI: openAINames, Responses: responsesNames, Anthropic: anthropicNames, Gemini: geminiNames}

// WrittenName returns the name under which a replay in that format writes a tool.
func WrittenName(f Format, name string) string {
	if rule, ok := nameRules[f]; ok {
		return rule.written(name)
	}
	return name
}

func (r nameRule) written(original string) string {
	if r.legal(original) {
		return original
	}
	sum := sha256.Sum256([]byte(original))
	ending := "_" + hex.EncodeToString(sum[:nameHash])
	name := make([]byte, 0, r.max)
	for _, sign := range original {
		if len(name) == r.max-len(ending) {
			break
		}
		if sign < 0x80 && strings.IndexByte(nameSigns, byte(sign)) >= 0 && (len(name) > 0 || strings.IndexByte(r.leading, byte(sign)) < 0) {
			name = append(name, byte(sign))
		} else {
			name = append(name, '_')
		}
	}
	if len(name) == 0 {
		name = append(name, "unnamed"...)
	}
	return string(append(name, ending...))
}

// An idRule says which ids of calls a provider accepts.
type idRule struct {
	max    int
	signs  string // of which an id is made; empty for any but NUL
	unique bool   // no two calls of a request may have the same
	apart  bool   // no two calls of a message may have the same
}

func (r idRule) legal(id string) bool {
	return id != "" && len(id) <= r.max && strings.IndexByte(id, 0) < 0 && (r.signs == "" || strings.Trim(id, r.signs) == "")
}

// numbering maps the ids of calls, and gives results the ids of the calls that they
// answer. Messages are repaired: results follow at once, one for each call.
type numbering struct {
	rule   idRule
	used   map[string]bool
	open   map[string][]string // given ids, of the calls that wait, by their own
	counts *Report
}

// begin forgets the calls of a message before.
func (n *numbering) begin() {
	clear(n.open)
	if n.rule.apart {
		clear(n.used)
	}
}

// call returns the id to write for a call, which stands at that place.
func (n *numbering) call(id string, m *history.Message, block int) string {
	given := id
	if !n.rule.legal(given) {
		given = derivedID(id)
	}
	unique := n.rule.unique || n.rule.apart
	for try := 0; unique && n.used[given]; try++ {
		given = derivedID(id + "\x00" + m.ID + "\x00" + strconv.FormatInt(m.Seq, 10) + "\x00" + strconv.Itoa(block) + "\x00" + strconv.Itoa(try))
	}
	if unique {
		if n.used == nil {
			n.used = map[string]bool{}
		}
		n.used[given] = true
	}
	if given != id {
		n.counts.MappedIDs++
	}
	if n.open == nil {
		n.open = map[string][]string{}
	}
	n.open[id] = append(n.open[id], given)
	return given
}

// result returns the id to write for a result.
func (n *numbering) result(id string) string {
	waiting := n.open[id]
	if len(waiting) == 0 {
		// Only of messages that were not repaired.
		if n.rule.legal(id) {
			return id
		}
		return derivedID(id)
	}
	n.open[id] = waiting[1:]
	return waiting[0]
}

func derivedID(of string) string {
	sum := sha256.Sum256([]byte(of))
	return "call_" + hex.EncodeToString(sum[:12])
}
