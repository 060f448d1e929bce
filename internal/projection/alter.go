package projection

import (
	"encoding/base64"
	"encoding/json/jsontext"
	"slices"
	"strings"
	"unicode/utf8"

	"historyd/internal/history"
)

// walk makes the messages as they may be kept, and notes the changes.
func (k *keeper) walk(msgs []history.Message) []history.Message {
	k.changes = nil
	kept := slices.Clone(msgs)
	for i := range kept {
		k.message(i, &kept[i])
	}
	return kept
}

// scene is what counts of a message for each of its blocks.
type scene struct {
	message  int
	withheld verdict // of a block in it
	results  bool    // it holds results
	own      values  // of its withheld results
}

// watched reports whether what stands around the blocks may repeat what is withheld.
func (s *scene) watched() bool { return s.withheld.withheld() || s.results }

func (k *keeper) scene(i int, m *history.Message) *scene {
	s := &scene{message: i}
	around := m.Metadata != nil || m.Usage != nil
	for j := range m.Content {
		b := &m.Content[j]
		s.results = s.results || b.Type == history.ToolResult
		around = around || b.Type == history.OpaqueBlock
		if v := k.verdicts[place{i, j}]; v.withheld() && !s.withheld.withheld() {
			s.withheld = v
		}
	}
	if !around || !s.results || k.asked != nil {
		return s
	}
	for j := range m.Content {
		b := &m.Content[j]
		if v := k.verdicts[place{i, j}]; v.withheld() && !(k.masked(b) && k.ours(b.Redacted)) {
			s.own.result(b, v.category)
		}
	}
	return s
}

// message alters one message, which is a copy, but for its blocks.
func (k *keeper) message(i int, m *history.Message) {
	s := k.scene(i, m)
	before := len(k.changes)
	content := make([]history.Block, 0, len(m.Content))
	for j, b := range m.Content {
		if k.block(s, j, &b) {
			content = append(content, b)
		}
	}
	if len(k.changes) > before {
		m.Content = content
	}
	if !s.watched() {
		return
	}
	if m.Extra != nil && s.withheld.withheld() {
		// Nobody knows what an unknown member says; it may be the call once more.
		m.Extra = nil
		k.change(Change{Message: i, Block: -1, Action: Dropped, Category: s.withheld.category, Reason: s.withheld.reason})
	}
	for _, v := range []*jsontext.Value{&m.Extra, &m.Metadata, &m.Usage} {
		k.dropEcho(s, -1, v)
	}
}

// change notes a change, once when a block has it several times.
func (k *keeper) change(c Change) {
	if n := len(k.changes); n == 0 || k.changes[n-1] != c {
		k.changes = append(k.changes, c)
	}
}

// block alters one block, which is a copy, and reports whether it stays.
func (k *keeper) block(s *scene, j int, b *history.Block) bool {
	switch v := k.verdicts[place{s.message, j}]; b.Type {
	case history.ToolCall:
		k.call(s, j, b, v)
		return true
	case history.ToolResult:
		k.result(s, j, b, v)
		return true
	case history.ThinkingBlock:
		if s.withheld.withheld() && k.leaks(s, j, b.Text, b.Signature, b.Encrypted) {
			return false
		}
	case history.OpaqueBlock:
		if s.watched() && k.leaks(s, j, string(b.Opaque)) {
			return false
		}
	}
	k.dropClaims(s, j, b)
	if s.watched() {
		k.dropEcho(s, j, &b.Extra)
	}
	return true
}

func (k *keeper) call(s *scene, j int, b *history.Block, v verdict) {
	masked := b.Redacted != nil && b.ArgumentsText == nil &&
		string(b.Arguments) == string(history.WithheldArguments(b.Redacted.Category))
	switch {
	case !v.withheld():
		if masked && b.Truncated == nil {
			return
		}
		k.dropClaims(s, j, b)
		if s.watched() {
			k.dropEcho(s, j, &b.Extra)
		}
	case masked && k.ours(b.Redacted) && b.Signature == "" && b.Extra == nil && b.Truncated == nil:
	default:
		*b = history.Block{
			Type: history.ToolCall, ID: b.ID, Name: b.Name, Synthetic: b.Synthetic,
			Arguments: history.WithheldArguments(v.category),
			Redacted:  &history.Redaction{Category: v.category, Reason: v.reason},
		}
		k.change(Change{Message: s.message, Block: j, Action: Redacted, Category: v.category, Reason: v.reason})
	}
}

func (k *keeper) result(s *scene, j int, b *history.Block, v verdict) {
	masked := k.masked(b)
	switch {
	case !v.withheld():
		if !masked {
			k.innerEchoes(s, j, b)
		}
		k.dropEcho(s, j, &b.Extra)
		k.cut(s, j, b)
	case masked && k.ours(b.Redacted) && b.Plain && b.Extra == nil && b.Truncated == nil:
	default:
		*b = history.Block{
			Type: history.ToolResult, CallID: b.CallID, IsError: b.IsError, Synthetic: b.Synthetic,
			Content:  []history.Block{history.Text(history.WithheldText(v.category))},
			Plain:    true,
			Redacted: &history.Redaction{Category: v.category, Reason: v.reason},
		}
		k.change(Change{Message: s.message, Block: j, Action: Redacted, Category: v.category, Reason: v.reason})
	}
}

// masked reports whether the result is called redacted and is nothing but the mark.
func (k *keeper) masked(b *history.Block) bool {
	if b.Redacted == nil || len(b.Content) != 1 {
		return false
	}
	c := &b.Content[0]
	return c.Type == history.TextBlock && c.Extra == nil && c.Redacted == nil && c.Truncated == nil &&
		c.Text == history.WithheldText(b.Redacted.Category) && utf8.RuneCountInString(c.Text) <= k.limit
}

// dropClaims takes marks away that only withheld and cut parts have.
func (k *keeper) dropClaims(s *scene, j int, b *history.Block) {
	if b.Redacted != nil || b.Truncated != nil {
		b.Redacted, b.Truncated = nil, nil
		k.change(Change{Message: s.message, Block: j, Action: Dropped, Reason: reasonClaim})
	}
}

// innerEchoes withholds in a result what the arguments of withheld calls hold.
func (k *keeper) innerEchoes(s *scene, j int, b *history.Block) {
	before := len(k.changes)
	if b.Redacted != nil {
		b.Redacted = nil
		k.change(Change{Message: s.message, Block: j, Action: Dropped, Reason: reasonClaim})
	}
	content := make([]history.Block, 0, len(b.Content))
	for _, c := range b.Content {
		data, err := base64.StdEncoding.DecodeString(c.Data)
		if err != nil {
			data = nil
		}
		if k.leaks(s, j, string(c.Opaque), c.Data, string(data)) {
			continue
		}
		k.dropClaims(s, j, &c)
		k.dropEcho(s, j, &c.Extra)
		k.mask(s, j, &c.Text, false)
		k.mask(s, j, &c.URL, false)
		// These two have a limit that the marks may not exceed.
		k.mask(s, j, &c.Filename, true)
		k.mask(s, j, &c.MediaType, true)
		content = append(content, c)
	}
	if len(k.changes) > before {
		b.Content = content
	}
}

// mask replaces what a text repeats of withheld values, or the whole of it.
func (k *keeper) mask(s *scene, j int, text *string, whole bool) {
	spans := k.echo(*text)
	if len(spans) == 0 {
		return
	}
	if whole {
		spans = []span{{from: 0, to: len(*text), category: spans[0].category}}
	}
	var masked strings.Builder
	at := 0
	for _, e := range spans {
		masked.WriteString((*text)[at:e.from])
		masked.WriteString(history.WithheldText(e.category))
		at = e.to
		k.change(Change{Message: s.message, Block: j, Action: Redacted, Category: e.category, Reason: reasonEcho})
	}
	masked.WriteString((*text)[at:])
	*text = masked.String()
}

// echo returns where the text repeats values of withheld arguments.
func (k *keeper) echo(text string) []span {
	if k.asked != nil {
		k.asked[text] = true
		return nil
	}
	return k.echoes[text]
}

// dropEcho takes away JSON that repeats something withheld.
func (k *keeper) dropEcho(s *scene, j int, v *jsontext.Value) {
	if *v != nil && k.leaks(s, j, string(*v)) {
		*v = nil
	}
}

// leaks reports whether one of the texts repeats something withheld, and then
// notes that what holds it is dropped.
func (k *keeper) leaks(s *scene, j int, texts ...string) bool {
	for _, text := range texts {
		if text == "" {
			continue
		}
		spans := k.echo(text)
		if len(spans) == 0 && len(s.own.list) > 0 {
			spans = find(s.own.list, []string{text})[text]
		}
		if len(spans) > 0 {
			k.change(Change{Message: s.message, Block: j, Action: Dropped, Category: spans[0].category, Reason: reasonEcho})
			return true
		}
	}
	return false
}
