package projection

import (
	"bytes"
	"cmp"
	"encoding/json/jsontext"
	"slices"
	"strings"
	"unicode/utf8"

	"historyd/internal/history"
	"historyd/internal/strictjson"
)

// walk makes the messages as they may be kept, and notes the changes.
func (k *keeping) walk(msgs []history.Message) []history.Message {
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
}

func (k *keeping) scene(i int, m *history.Message) *scene {
	s := &scene{message: i}
	for j := range m.Content {
		if v := k.verdicts[place{i, j}]; v.withheld() {
			s.withheld = v
			break
		}
	}
	return s
}

// message alters one message, which is a copy, but for its blocks.
func (k *keeping) message(i int, m *history.Message) {
	s := k.scene(i, m)
	before := len(k.changes)
	content := make([]history.Block, 0, len(m.Content))
	for j, b := range m.Content {
		if k.block(s, j, &b) {
			content = append(content, b)
		}
	}
	if len(k.changes) > before {
		if len(content) == 0 && len(m.Content) > 0 {
			// A message is never empty.
			content = append(content, history.Block{
				Type: history.OpaqueBlock, Provider: ourProvider,
				Opaque: history.WithheldArguments(k.changes[len(k.changes)-1].Category),
			})
		}
		m.Content = content
	}
	if v := cmp.Or(s.withheld, k.verdicts[place{i, beside}]); m.Extra != nil && v.withheld() {
		// Nobody knows what an unknown member says; it may be the call once more.
		m.Extra = nil
		k.change(Change{Message: i, Block: beside, Action: Dropped, Category: v.category, Reason: v.reason})
	}
	for _, v := range []*jsontext.Value{&m.Extra, &m.Metadata, &m.Usage} {
		k.dropEcho(s, beside, v)
	}
	for _, v := range []*string{&m.Model, &m.Provider} {
		if k.leaks(s, beside, *v) {
			*v = ""
		}
	}
}

// ourProvider marks the block in place of a message of which nothing is left.
const ourProvider = "historyd"

// change notes a change, once when a block has it several times.
func (k *keeping) change(c Change) {
	if n := len(k.changes); n == 0 || k.changes[n-1] != c {
		k.changes = append(k.changes, c)
	}
}

// block alters one block, which is a copy, and reports whether it stays.
func (k *keeping) block(s *scene, j int, b *history.Block) bool {
	at := place{s.message, j}
	switch v := k.verdicts[at]; b.Type {
	case history.ToolCall:
		k.call(s, j, b, v)
		return true
	case history.ToolResult:
		k.result(s, j, b, v)
		return true
	case history.ThinkingBlock:
		if k.leaks(s, j, b.Text, b.Signature, b.Encrypted) {
			return false
		}
	case history.OpaqueBlock:
		if !v.withheld() && k.leaks(s, j, b.Provider, string(b.Opaque)) {
			return false
		}
	}
	if v := k.verdicts[at]; v.withheld() {
		k.change(Change{Message: s.message, Block: j, Action: Dropped, Category: v.category, Reason: v.reason})
		if _, whole := carried(b); whole || k.pictures[at] {
			return false
		}
		b.Extra = nil
	}
	k.dropClaims(s, j, b)
	k.dropEcho(s, j, &b.Extra)
	return true
}

func (k *keeping) call(s *scene, j int, b *history.Block, v verdict) {
	masked := b.Redacted != nil && b.ArgumentsText == nil &&
		string(b.Arguments) == string(history.WithheldArguments(b.Redacted.Category))
	switch {
	case !v.withheld():
		if !masked || b.Truncated != nil {
			k.dropClaims(s, j, b)
		}
		k.dropMembers(s, j, &b.Extra)
	case masked && k.ours(b.Redacted) && b.Signature == "" && string(b.Extra) == string(unidentified(b.Extra)) && b.Truncated == nil:
	default:
		*b = history.Block{
			Type: history.ToolCall, ID: b.ID, Name: b.Name, Synthetic: b.Synthetic, Extra: unidentified(b.Extra),
			Arguments: history.WithheldArguments(v.category),
			Redacted:  &history.Redaction{Category: v.category, Reason: v.reason},
		}
		k.change(Change{Message: s.message, Block: j, Action: Redacted, Category: v.category, Reason: v.reason})
	}
}

func (k *keeping) result(s *scene, j int, b *history.Block, v verdict) {
	masked := k.masked(b)
	switch {
	case !v.withheld():
		if !masked {
			k.innerEchoes(s, j, b)
		}
		k.dropMembers(s, j, &b.Extra)
		k.cut(s, j, b)
	case masked && k.ours(b.Redacted) && b.Plain && string(b.Extra) == string(unidentified(b.Extra)) && b.Truncated == nil:
	default:
		*b = history.Block{
			Type: history.ToolResult, CallID: b.CallID, IsError: b.IsError, Synthetic: b.Synthetic, Extra: unidentified(b.Extra),
			Content:  []history.Block{history.Text(history.WithheldText(v.category))},
			Plain:    true,
			Redacted: &history.Redaction{Category: v.category, Reason: v.reason},
		}
		k.change(Change{Message: s.message, Block: j, Action: Redacted, Category: v.category, Reason: v.reason})
	}
}

// masked reports whether the result is called redacted and is nothing but the mark.
func (k *keeping) masked(b *history.Block) bool {
	if b.Redacted == nil || len(b.Content) != 1 {
		return false
	}
	c := &b.Content[0]
	return c.Type == history.TextBlock && c.Extra == nil && c.Redacted == nil && c.Truncated == nil &&
		c.Text == history.WithheldText(b.Redacted.Category) && utf8.RuneCountInString(c.Text) <= k.limit
}

// dropClaims takes marks away that only withheld and cut parts have.
func (k *keeping) dropClaims(s *scene, j int, b *history.Block) {
	if b.Redacted != nil || b.Truncated != nil {
		b.Redacted, b.Truncated = nil, nil
		k.change(Change{Message: s.message, Block: j, Action: Dropped, Reason: reasonClaim})
	}
}

// innerEchoes withholds in a result what the arguments of withheld calls hold.
func (k *keeping) innerEchoes(s *scene, j int, b *history.Block) {
	before := len(k.changes)
	if b.Redacted != nil {
		b.Redacted = nil
		k.change(Change{Message: s.message, Block: j, Action: Dropped, Reason: reasonClaim})
	}
	split := k.split(b)
	content := make([]history.Block, 0, len(b.Content))
	for i, c := range b.Content {
		if v, whole := k.judgeInner(&c); v.withheld() {
			k.change(Change{Message: s.message, Block: j, Action: Dropped, Category: v.category, Reason: v.reason})
			if whole {
				continue
			}
			c.Extra = nil
		}
		if k.repeats(s, j, string(c.Opaque), c.Provider, textIn(c.MediaType, c.Data)) {
			continue
		}
		k.dropClaims(s, j, &c)
		k.dropEcho(s, j, &c.Extra)
		if e, part := split[i]; part {
			c.Text = history.WithheldText(e.category)
			k.change(Change{Message: s.message, Block: j, Action: Redacted, Category: e.category, Reason: reasonEcho})
		}
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

// textIn returns bytes where they may be read as text. Pictures and sounds are not
// looked into.
func textIn(mediaType string, data []byte) string {
	const enough = 8000
	if bytes.IndexByte(data[:min(enough, len(data))], 0) >= 0 && !utf8.Valid(data) && !strings.HasPrefix(fold(mediaType), fold("text/")) {
		return ""
	}
	return string(data)
}

// split returns the text blocks of a result over which a value is spread, whose text
// goes as a whole. Whoever reads a result reads its texts one after the other.
func (k *keeping) split(b *history.Block) map[int]span {
	var joined strings.Builder
	var blocks, starts []int
	for i := range b.Content {
		if c := &b.Content[i]; c.Type == history.TextBlock && c.Text != "" {
			blocks, starts = append(blocks, i), append(starts, joined.Len())
			joined.WriteString(c.Text)
		}
	}
	if len(blocks) < 2 {
		return nil
	}
	spans := k.echo(joined.String())
	parts := map[int]span{}
	for n := 0; n < len(blocks); n++ {
		end := joined.Len()
		if n+1 < len(starts) {
			end = starts[n+1]
		}
		for len(spans) > 0 && spans[0].to <= starts[n] {
			spans = spans[1:]
		}
		for _, e := range spans {
			if e.from >= end {
				break
			}
			alone := e.from >= starts[n] && e.to <= end
			if !alone && !k.covers(b.Content[blocks[n]].Text, max(e.from-starts[n], 0), min(e.to, end)-starts[n]) {
				parts[blocks[n]] = e
			}
		}
	}
	return parts
}

// covers reports whether the values in a text, taken alone, are all of it from from to to.
func (k *keeping) covers(text string, from, to int) bool {
	return slices.ContainsFunc(k.echo(text), func(e span) bool { return e.from <= from && to <= e.to })
}

// mask replaces what a text repeats of withheld values, or the whole of it.
func (k *keeping) mask(s *scene, j int, text *string, whole bool) {
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

// echo returns where the text of a result repeats values of withheld arguments.
func (k *keeping) echo(text string) []span {
	if k.asked != nil {
		k.asked.results[text] = nil
		return nil
	}
	return k.found.results[text]
}

// dropEcho takes away JSON that repeats something withheld.
func (k *keeping) dropEcho(s *scene, j int, v *jsontext.Value) {
	if *v != nil && k.leaks(s, j, string(*v)) {
		*v = nil
	}
}

// dropMembers does the same for what nobody knows of a call or a result.
func (k *keeping) dropMembers(s *scene, j int, v *jsontext.Value) {
	if mark := unidentified(*v); string(*v) != string(mark) && k.leaks(s, j, string(*v)) {
		*v = mark
	}
}

// unidentified returns what of the unknown members of a call or a result says that it came
// without an id, or nil. It is kept beside what is withheld, for Gemini pairs those by
// their places, and an id that was made here would come back as one that was given. It is
// one of three constants, so nothing of what is withheld can stand in it.
func unidentified(extra jsontext.Value) jsontext.Value {
	if extra.Kind() != '{' {
		return nil
	}
	mark, _ := strictjson.Value{Raw: extra}.Member("_gemini")
	if mark.Kind() != '{' {
		return nil
	}
	switch id, _ := mark.Member("id"); string(id.Raw) {
	case "false", "null", `""`:
		return jsontext.Value(`{"_gemini":{"id":` + string(id.Raw) + `}}`)
	}
	return nil
}

// leaks reports whether one of the texts repeats something withheld, and then
// notes that what holds it is dropped.
func (k *keeping) leaks(s *scene, j int, texts ...string) bool {
	for _, text := range texts {
		if k.asked != nil && text != "" {
			k.asked.around[text] = nil
		} else if spans := k.found.around[text]; len(spans) > 0 {
			return k.dropped(s, j, spans)
		}
	}
	return false
}

// repeats does the same for what stands in a result, which may repeat results.
func (k *keeping) repeats(s *scene, j int, texts ...string) bool {
	for _, text := range texts {
		if spans := k.echo(text); len(spans) > 0 {
			return k.dropped(s, j, spans)
		}
	}
	return false
}

func (k *keeping) dropped(s *scene, j int, spans []span) bool {
	k.change(Change{Message: s.message, Block: j, Action: Dropped, Category: spans[0].category, Reason: reasonEcho})
	return true
}
