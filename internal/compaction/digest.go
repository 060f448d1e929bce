package compaction

import (
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"historyd/internal/history"
)

// continuedMark stands in the line of a part of a turn that is not its first, in
// front of everything that is quoted.
const continuedMark = " (same turn, continued)"

// A digest gathers what the line of one unit says. It takes from messages no more
// than text that was said, names of tools, and how results came out.
type digest struct {
	at        time.Time // of the first message
	continued bool

	now        int // counts what was met; orders the parts
	user       saying
	reference  saying
	references int
	assistant  saying
	incomplete bool // of assistant

	tools     []toolUse
	tool      map[string]int // name to its place in tools
	toolsAt   int
	loose     outcome // results of calls that are not in the unit
	looseFrom int
}

// A saying is a text and when it was met; 0 means never.
type saying struct {
	text string
	at   int
}

type toolUse struct {
	name  string
	calls int
	came  outcome
}

type outcome struct{ results, failed, withheld int }

func (d *digest) message(m *history.Message) {
	d.now++
	text := said(m)
	switch {
	case m.Synthetic: // nobody said it
	case m.StartsTurn():
		if d.user.at == 0 {
			d.user = saying{text, d.now}
		}
	case text == "":
	case m.Role == history.User:
		if d.references++; d.references == 1 {
			d.reference = saying{text, d.now}
		}
	case m.Role == history.Assistant:
		d.assistant, d.incomplete = saying{text, d.now}, m.Status == history.Incomplete
	}
}

// long reports whether the digest holds much more text than its line can show.
func (d *digest) long() bool {
	n := len(d.user.text) + len(d.reference.text) + len(d.assistant.text)
	for i := range d.tools {
		n += len(d.tools[i].name)
	}
	return n > maxUnwrittenBytes
}

// said is the text of a message without the white space around it. In place of an
// answer, a provider's error says nothing.
func said(m *history.Message) string {
	if m.ProviderError() {
		return ""
	}
	var texts []string
	for i := range m.Content {
		if b := &m.Content[i]; b.Said() {
			s := strings.TrimSpace(b.Text)
			if len(s) < len(b.Text)/2 {
				s = strings.Clone(s) // else it keeps all of the text
			}
			if s != "" {
				texts = append(texts, s)
			}
		}
	}
	return strings.Join(texts, "\n")
}

// maxTools is how many tools of a unit are told apart: all further ones count as the
// last. A line shows the first few.
const maxTools = 1000

// call counts a call and returns the place of its tool.
func (d *digest) call(name string) int {
	if d.now++; d.toolsAt == 0 {
		d.toolsAt, d.tool = d.now, map[string]int{}
	}
	i, known := d.tool[name]
	switch {
	case known:
	case len(d.tools) == maxTools:
		i = maxTools - 1
	default:
		i = len(d.tools)
		d.tool[name], d.tools = i, append(d.tools, toolUse{name: name})
	}
	d.tools[i].calls++
	return i
}

// result counts how a call of that tool came out; -1 when the call is not in the unit.
func (d *digest) result(tool int, b *history.Block) {
	d.now++
	o := &d.loose
	if tool >= 0 {
		o = &d.tools[tool].came
	} else if d.looseFrom == 0 {
		d.looseFrom = d.now
	}
	o.results++
	if b.IsError {
		o.failed++
	}
	if b.Redacted != nil {
		o.withheld++
	}
}

// caps bounds the parts of a line: code points of a text or a name, and names.
type caps struct{ user, assistant, reference, name, names int }

var widest = caps{user: 240, assistant: 360, reference: 120, name: 64, names: 8}

func (k caps) halved() caps {
	return caps{k.user / 2, k.assistant / 2, k.reference / 2, k.name / 2, k.names / 2}
}

// line writes the line of the unit in at most limit code points: with shorter
// parts when they are too long, and without the least of them when that is not
// enough.
func (d *digest) line(limit int) string {
	k := widest
	parts := d.parts(k)
	line := d.join(parts, "")
	for utf8.RuneCountInString(line) > limit {
		switch {
		case k != caps{}:
			k = k.halved()
			parts = d.parts(k)
			line = d.join(parts, "")
		case len(parts) > 0:
			least := 0
			for i := range parts {
				if parts[i].worth < parts[least].worth {
					least = i
				}
			}
			parts = slices.Delete(parts, least, least+1)
			line = d.join(parts, "…")
		default:
			return line
		}
	}
	return line
}

func (d *digest) join(parts []part, more string) string {
	when := "(no date)"
	if !d.at.IsZero() {
		when = d.at.UTC().Format("2006-01-02 15:04")
	}
	var b strings.Builder
	b.WriteString("- ")
	b.WriteString(when)
	if d.continued {
		b.WriteString(continuedMark)
	}
	between := " "
	for _, p := range parts {
		b.WriteString(between)
		b.WriteString(p.text)
		between = " | "
	}
	if more != "" {
		b.WriteString(between)
		b.WriteString(more)
	} else if len(parts) == 0 {
		b.WriteString(" (no text)")
	}
	return b.String()
}

// A part is one piece of a line. When a line is too long, that of least worth goes first.
type part struct {
	at, worth int
	text      string
}

// parts lists the pieces of the line in the order in which they were met.
func (d *digest) parts(k caps) []part {
	var parts []part
	add := func(at, worth int, text []byte) {
		if at > 0 {
			parts = append(parts, part{at, worth, string(text)})
		}
	}
	if d.user.at > 0 {
		text := []byte("user: (no text)")
		if d.user.text != "" {
			text = appendQuoted([]byte("user: "), d.user.text, k.user)
		}
		add(d.user.at, 5, text)
	}
	label := "assistant: "
	if d.incomplete {
		label = "assistant (incomplete): "
	}
	add(d.assistant.at, 4, appendQuoted([]byte(label), d.assistant.text, k.assistant))
	add(d.toolsAt, 3, d.appendTools([]byte("tools: "), k))
	loose := strconv.AppendInt([]byte("results of earlier calls: "), int64(d.loose.results), 10)
	add(d.looseFrom, 2, d.loose.append(loose))
	reference := appendQuoted([]byte("reference: "), d.reference.text, k.reference)
	add(d.reference.at, 1, appendMore(reference, d.references-1))
	slices.SortFunc(parts, func(a, b part) int { return a.at - b.at })
	return parts
}

func (d *digest) appendTools(dst []byte, k caps) []byte {
	shown := min(k.names, len(d.tools))
	for i, t := range d.tools[:shown] {
		if i > 0 {
			dst = append(dst, ", "...)
		}
		if plain(t.name) && len(t.name) <= k.name {
			dst = append(dst, t.name...)
		} else {
			dst = appendQuoted(dst, t.name, k.name)
		}
		if t.calls > 1 {
			dst = append(dst, "×"...)
			dst = strconv.AppendInt(dst, int64(t.calls), 10)
		}
		dst = t.came.append(dst)
	}
	if shown == 0 {
		dst = strconv.AppendInt(dst, int64(len(d.tools)), 10)
		return append(dst, " not listed"...)
	}
	return appendMore(dst, len(d.tools)-shown)
}

func appendMore(dst []byte, n int) []byte {
	if n <= 0 {
		return dst
	}
	dst = append(dst, " +"...)
	dst = strconv.AppendInt(dst, int64(n), 10)
	return append(dst, " more"...)
}

// append adds what did not go well, in brackets.
func (o outcome) append(dst []byte) []byte {
	between := " ("
	for _, c := range []struct {
		n    int
		what string
	}{{o.failed, " failed"}, {o.withheld, " withheld"}} {
		if c.n > 0 {
			dst = append(dst, between...)
			dst = strconv.AppendInt(dst, int64(c.n), 10)
			dst = append(dst, c.what...)
			between = ", "
		}
	}
	if between == ", " {
		dst = append(dst, ')')
	}
	return dst
}
