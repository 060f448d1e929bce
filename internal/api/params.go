package api

import (
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/go-chi/chi/v5"

	"historyd/internal/history"
	"historyd/internal/identity"
	"historyd/internal/pipeline"
	"historyd/internal/wire"
)

// conversation says which conversation the path is about. Its name is decoded from
// the path exactly once.
func (x *exchange) conversation(r *http.Request) (pipeline.Conversation, error) {
	name := "default"
	if x.route.named {
		var err error
		name, err = url.PathUnescape(chi.URLParam(r, "c"))
		if err != nil || !identity.ValidConversation(name) {
			return pipeline.Conversation{}, newProblem("invalid_conversation")
		}
	}
	return pipeline.Conversation{Scope: x.visitor.scope, Name: name}, nil
}

// params are the query of a request, each parameter at most once and all known.
type params map[string][]string

func query(r *http.Request, known ...string) (params, error) {
	if r.URL.RawQuery == "" {
		return nil, nil
	}
	values, err := url.ParseQuery(r.URL.RawQuery)
	if err != nil {
		return nil, badParameter("", "the query cannot be read: escape what is not plain in it")
	}
	for name, list := range values {
		if !slices.Contains(known, name) {
			if len(known) == 0 {
				return nil, badParameter("", "this route takes no parameters in the query")
			}
			return nil, badParameter("", "a parameter of the query is not known here; %s", knownAre(known))
		}
		if len(list) > 1 {
			return nil, badParameter(name, "give it once")
		}
	}
	return params(values), nil
}

// knownAre lists the names that are known.
func knownAre(names []string) string {
	if len(names) == 1 {
		return "known is " + names[0]
	}
	return "known are " + strings.Join(names, ", ")
}

func (p params) text(name string) (string, bool) {
	if list := p[name]; len(list) == 1 {
		return list[0], true
	}
	return "", false
}

// int returns a whole number from min to max, or fallback when it is not given.
func (p params) int(name string, min, max, fallback int64) (int64, error) {
	s, ok := p.text(name)
	if !ok {
		return fallback, nil
	}
	n, err := strconv.ParseInt(s, 10, 64)
	if err != nil || n < min || n > max || strings.Trim(s, "0123456789") != "" {
		return 0, outOfRange(name, min, max)
	}
	return n, nil
}

func outOfRange(name string, min, max int64) error {
	if max == pipeline.Unbounded {
		return badParameter(name, "must be a whole number from %d on", min)
	}
	return badParameter(name, "must be a whole number from %d to %d", min, max)
}

func (p params) bool(name string) (bool, error) {
	switch s, ok := p.text(name); {
	case !ok, s == "false":
		return false, nil
	case s == "true":
		return true, nil
	}
	return false, badParameter(name, "must be true or false")
}

// oneOf returns the parameter, or the first choice when it is not given.
func (p params) oneOf(name string, choices ...string) (string, error) {
	s, ok := p.text(name)
	switch {
	case !ok:
		return choices[0], nil
	case slices.Contains(choices, s):
		return s, nil
	}
	return "", badParameter(name, "must be one of %s", strings.Join(choices, ", "))
}

// messageFormats are the formats in which messages come in and are replayed.
var messageFormats = []wire.Format{wire.Native, wire.OpenAI, wire.Anthropic, wire.Responses, wire.Gemini}

// format returns the format asked for, native when none is. more are those that the
// route knows beside those of messages.
func (p params) format(more ...wire.Format) (wire.Format, error) {
	s, ok := p.text("format")
	if !ok {
		return wire.Native, nil
	}
	return formatNamed(s, more...)
}

func formatNamed(s string, more ...wire.Format) (wire.Format, error) {
	known := slices.Concat(messageFormats, more)
	if f := wire.Format(s); slices.Contains(known, f) {
		return f, nil
	}
	names := make([]string, len(known))
	for i, f := range known {
		names[i] = string(f)
	}
	return "", &problem{code: "unsupported_format", field: "format", detail: "must be one of " + strings.Join(names, ", ")}
}

// idempotencyKey returns the key of the request, empty when it has none.
func idempotencyKey(r *http.Request) (string, error) {
	given := r.Header["Idempotency-Key"]
	if len(given) == 0 {
		return "", nil
	}
	key := given[0]
	visible := func(c rune) bool { return c > ' ' && c <= '~' }
	if len(given) > 1 || key == "" || len(key) > 255 || strings.ContainsFunc(key, func(c rune) bool { return !visible(c) }) {
		return "", badParameter("Idempotency-Key", "must be 1 to 255 visible ASCII characters, in one header")
	}
	return key, nil
}

// An etagList is the value of If-Match or If-None-Match.
type etagList struct {
	any  bool // *
	tags []etag
}

type etag struct {
	weak   bool
	quoted string
}

// parseETags reads the lines of a header; false when they are malformed.
func parseETags(lines []string) (list etagList, ok bool) {
	rest := strings.TrimSpace(strings.Join(lines, ","))
	if rest == "*" {
		return etagList{any: true}, true
	}
	for rest != "" {
		var e etag
		rest, e.weak = strings.CutPrefix(rest, "W/")
		if !strings.HasPrefix(rest, `"`) {
			return etagList{}, false
		}
		end := strings.IndexByte(rest[1:], '"')
		if end < 0 {
			return etagList{}, false
		}
		e.quoted, rest = rest[:end+2], strings.TrimLeft(rest[end+2:], " \t")
		list.tags = append(list.tags, e)
		if rest == "" {
			break
		}
		var comma bool
		if rest, comma = strings.CutPrefix(rest, ","); !comma {
			return etagList{}, false
		}
		rest = strings.TrimLeft(rest, " \t,")
	}
	return list, len(list.tags) > 0
}

// matches compares with the version of a conversation, strongly or weakly.
func (l etagList) matches(version string, weakly bool) bool {
	if l.any {
		return version != history.ETag("", 0)
	}
	return slices.ContainsFunc(l.tags, func(e etag) bool { return e.quoted == version && (weakly || !e.weak) })
}

// ifMatch returns the condition of the request, nil when it has none.
func ifMatch(r *http.Request) (func(version string) bool, error) {
	given := r.Header["If-Match"]
	if len(given) == 0 {
		return nil, nil
	}
	list, ok := parseETags(given)
	if !ok {
		return nil, badParameter("If-Match", "must be an ETag with its quotes, a list of such, or *")
	}
	return func(version string) bool { return list.matches(version, false) }, nil
}

// unconditional refuses a condition where it could not be held.
func unconditional(r *http.Request) error {
	if len(r.Header["If-Match"]) > 0 {
		return badParameter("If-Match", "is for appends only")
	}
	return nil
}

// unmodified reports whether the client has this version already.
func unmodified(r *http.Request, version string) bool {
	given := r.Header["If-None-Match"]
	if len(given) == 0 {
		return false
	}
	list, ok := parseETags(given)
	return ok && list.matches(version, true)
}
