package recall

import (
	"errors"
	"fmt"
	"maps"
	"strconv"
	"strings"
)

// The places of an argument template. A text that is one of them alone becomes the value itself, {limit} a number.
const (
	queryPlace     = "{query}"
	limitPlace     = "{limit}"
	workspacePlace = "{workspace}"
)

// places are what a question puts into a template.
type places struct {
	query     string
	limit     int
	workspace string
}

// fill returns the template with its places filled in. It goes over each text once, so that a place in what was filled
// in stays the text that it is. The template is not changed.
func (p places) fill(v any) any {
	switch v := v.(type) {
	case string:
		if v == limitPlace {
			return p.limit
		}
		return strings.NewReplacer(
			queryPlace, p.query, limitPlace, strconv.Itoa(p.limit), workspacePlace, p.workspace,
		).Replace(v)
	case map[string]any:
		out := make(map[string]any, len(v))
		for name, x := range v {
			out[name] = p.fill(x)
		}
		return out
	case []any:
		out := make([]any, len(v))
		for i, x := range v {
			out[i] = p.fill(x)
		}
		return out
	}
	return v
}

// holds reports whether a template has a place in any of its values.
func holds(v any, place string) bool {
	switch v := v.(type) {
	case string:
		return strings.Contains(v, place)
	case map[string]any:
		for _, x := range v {
			if holds(x, place) {
				return true
			}
		}
	case []any:
		for _, x := range v {
			if holds(x, place) {
				return true
			}
		}
	}
	return false
}

// preset fills in tool and arguments of the ready-made retrievers.
func (s *Server) preset() error {
	switch s.Preset {
	case "":
		return nil
	case "memory_search":
		s.Arguments = either(s.Arguments, map[string]any{"query": queryPlace, "limit": limitPlace})
	case "rag.search":
		s.Arguments = either(s.Arguments, map[string]any{"query": queryPlace, "top_k": limitPlace})
	default:
		return errors.New("preset: must be memory_search or rag.search")
	}
	if s.Tool == "" {
		s.Tool = s.Preset
	}
	if s.Scoped != "" && !holds(s.Arguments, workspacePlace) {
		s.Arguments["workspace_id"] = workspacePlace
	}
	return nil
}

// either is a copy of what was given, else the default.
func either(given, def map[string]any) map[string]any {
	if len(given) > 0 {
		return maps.Clone(given)
	}
	return def
}

// checkArguments says what is wrong with a template.
func (s *Server) checkArguments() error {
	if !holds(s.Arguments, queryPlace) {
		return fmt.Errorf("arguments: must hold %s", queryPlace)
	}
	if holds(s.Arguments, workspacePlace) != (s.Scoped == "workspace") {
		return fmt.Errorf("arguments: must hold %s if scoped is workspace, and only then", workspacePlace)
	}
	return nil
}
