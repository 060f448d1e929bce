package recall

import (
	"encoding/json"
	"strings"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// Servers answer in many shapes. Taken is what can be nothing else than a list of hits; anything else yields nothing.
var (
	listNames  = []string{"results", "entries", "memories", "hits", "documents"}
	titleNames = []string{"title", "source", "name"}
	bodyNames  = []string{"body", "text", "content", "snippet"}
	scoreNames = []string{"score", "similarity", "relevance"}
	scopeNames = []string{"workspace_id", "workspace"}
)

// Limits of what is looked at.
const (
	maxWrapped = 4   // JSON texts and objects around the list
	maxFound   = 100 // hits of one answer
)

// shapes reads answers.
type shapes struct {
	workspace string  // hits that say they are of another one are left out; "" takes all
	floor     float64 // hits with a lower score are left out; those without one stay
}

// hits returns what a result holds: its structured content, else its texts.
func (s shapes) hits(res *mcp.CallToolResult) []found {
	if hits := s.value(res.StructuredContent, maxWrapped); len(hits) > 0 {
		return hits
	}
	var hits []found
	for _, c := range res.Content {
		if t, ok := c.(*mcp.TextContent); ok && len(hits) < maxFound {
			hits = append(hits, s.text(t.Text, maxWrapped)...)
		}
	}
	return hits[:min(len(hits), maxFound)]
}

// text reads a text that is JSON.
func (s shapes) text(text string, depth int) []found {
	text = strings.TrimSpace(text)
	if text == "" || !strings.ContainsAny(text[:1], `[{"`) {
		return nil
	}
	var v any
	if json.Unmarshal([]byte(text), &v) != nil {
		return nil
	}
	return s.value(v, depth)
}

func (s shapes) value(v any, depth int) []found {
	if depth == 0 {
		return nil
	}
	switch v := v.(type) {
	case string:
		return s.text(v, depth-1)
	case []any:
		return s.list(v)
	case map[string]any:
		for _, name := range listNames {
			if hits := s.value(v[name], depth-1); len(hits) > 0 {
				return hits
			}
		}
		// A result within a result.
		if blocks, ok := v["content"].([]any); ok {
			return s.blocks(blocks, depth-1)
		}
	}
	return nil
}

// blocks reads content blocks that stand in a value.
func (s shapes) blocks(blocks []any, depth int) []found {
	var hits []found
	for _, b := range blocks {
		if m, ok := b.(map[string]any); ok && len(hits) < maxFound {
			if text, ok := m["text"].(string); ok {
				hits = append(hits, s.text(text, depth)...)
			}
		}
	}
	return hits
}

func (s shapes) list(list []any) []found {
	var hits []found
	for _, v := range list {
		m, ok := v.(map[string]any)
		if !ok || len(hits) == maxFound {
			continue
		}
		hit := found{title: first(m, titleNames), body: first(m, bodyNames)}
		score, scored := number(m, scoreNames)
		hit.score = score
		if hit.body == "" || scored && score < s.floor || s.foreign(m) {
			continue
		}
		hits = append(hits, hit)
	}
	return hits
}

// foreign reports whether a hit says itself that it is of another workspace than was asked for.
func (s shapes) foreign(m map[string]any) bool {
	if s.workspace == "" {
		return false
	}
	for _, name := range scopeNames {
		if w, ok := m[name].(string); ok && w != "" && w != s.workspace {
			return true
		}
	}
	return false
}

// first returns the first of the members that is a text with something in it.
func first(m map[string]any, names []string) string {
	for _, name := range names {
		if s, ok := m[name].(string); ok && strings.TrimSpace(s) != "" {
			return s
		}
	}
	return ""
}

func number(m map[string]any, names []string) (float64, bool) {
	for _, name := range names {
		if n, ok := m[name].(float64); ok {
			return n, true
		}
	}
	return 0, false
}
