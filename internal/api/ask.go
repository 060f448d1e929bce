package api

import (
	"cmp"
	"crypto/sha256"
	"encoding/json/jsontext"
	"errors"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"historyd/internal/history"
	"historyd/internal/pipeline"
	"historyd/internal/strictjson"
	"historyd/internal/wire"
)

// askMembers are the members of the body of a replay. tools, granted and role
// count in mode full alone, but all must be right in any.
var askMembers = []string{"mode", "format", "max_tokens", "tools", "granted", "role", "recall", "model", "provider"}

// Limits of what a replay is asked with.
const (
	maxRole    = 64 // code points
	maxGranted = 10_000
)

// An ask is all that a client says of a replay.
type ask struct {
	shape
	tools           jsontext.Value // as given; nil when there are none
	toolNames       []string
	granted         []string
	role            string
	provider, model string
	recall          *pipeline.RecallAsk // nil when nothing is to be recalled
	recalled        jsontext.Value      // what was, as the answer shows it
	ahead           int64               // what that takes, unless it is one of the messages
}

// A shape tells apart the replays of one conversation. It is comparable.
type shape struct {
	format    wire.Format
	full      bool
	maxTokens int64
	rest      [sha256.Size]byte // of what else counts; zero when nothing does
}

func (want *shape) mode() string {
	if want.full {
		return "full"
	}
	return "text"
}

// askOf reads the query; given has what it says.
func askOf(r *http.Request) (want ask, given params, err error) {
	want.format = wire.Native
	given, err = query(r, "mode", "format", "max_tokens")
	if err != nil || given == nil {
		return want, given, err
	}
	if mode, ok := given.text("mode"); ok {
		if want.full, err = isFull(mode); err != nil {
			return want, given, err
		}
	}
	if want.format, err = given.format(); err != nil {
		return want, given, err
	}
	want.maxTokens, err = given.int("max_tokens", 1, pipeline.Unbounded, 0)
	return want, given, err
}

func isFull(mode string) (bool, error) {
	if mode != "text" && mode != "full" {
		return false, badParameter("mode", "must be text or full")
	}
	return mode == "full", nil
}

// read takes the body of a POST into account. What the query has given already may
// not be given again.
func (want *ask) read(v strictjson.Value, given params) error {
	if v.Kind() != '{' {
		return badAsk("", v, "the body must be an object, such as {}")
	}
	tools := strictjson.Value{}
	for name, m := range v.Members() {
		if !slices.Contains(askMembers, name) {
			return unknownAsk("", name, m, askMembers)
		}
		if _, twice := given.text(name); twice {
			return badAsk(name, m, "give it once, in the query or in the body")
		}
		if name == "tools" {
			tools = m // what is right depends on the format, which may come later
			continue
		}
		if err := want.member(name, m); err != nil {
			return err
		}
	}
	if tools.Raw != nil {
		if tools.Kind() != '[' {
			return badAsk("tools", tools, "must be a list")
		}
		names, err := wire.ToolNames(want.format, tools.Raw)
		if err != nil {
			return badTools(err)
		}
		want.tools, want.toolNames = tools.Compact(), names
	}
	want.sum()
	return nil
}

// unknownAsk refuses a member of an object that has only known ones: of the body, or of
// the member of that name in it.
func unknownAsk(within, name string, v strictjson.Value, known []string) error {
	if i := slices.IndexFunc(known, func(k string) bool { return strings.EqualFold(k, name) }); i >= 0 {
		field := known[i]
		if within != "" {
			field = within + "." + field
		}
		return &problem{code: "invalid_json", field: field, offset: &v.Offset, detail: "the name of this member is written in another case"}
	}
	return badAsk(within, v, "a member of "+cmp.Or(within, "the body")+" is not known here; "+knownAre(known))
}

func badAsk(field string, v strictjson.Value, detail string) error {
	return &problem{code: "invalid_parameter", field: field, offset: &v.Offset, detail: detail}
}

func (want *ask) member(name string, v strictjson.Value) (err error) {
	text, isText := v.Text()
	switch name {
	case "recall":
		want.recall, err = recallOf(v, name)
		return err
	case "granted":
		return want.grant(v)
	case "max_tokens":
		want.maxTokens, err = strconv.ParseInt(string(v.Raw), 10, 64)
		if err != nil || want.maxTokens < 1 {
			return outOfRange(name, 1, pipeline.Unbounded)
		}
		return nil
	}
	if !isText {
		return badAsk(name, v, "must be a string")
	}
	switch name {
	case "mode":
		want.full, err = isFull(text)
	case "format":
		want.format, err = formatNamed(text)
	case "role":
		if utf8.RuneCountInString(text) > maxRole || strings.ContainsFunc(text, func(r rune) bool { return !unicode.IsPrint(r) }) {
			return badAsk(name, v, "must be at most 64 printable characters")
		}
		want.role = strings.TrimSpace(text)
	case "model":
		want.model = text
	case "provider":
		want.provider = text
	}
	return err
}

// badTools says what is no declaration of a tool.
func badTools(err error) error {
	var faults *history.Faults
	if !errors.As(err, &faults) {
		return err
	}
	p := problemOfFaults(faults)
	p.code, p.offset = "invalid_parameter", nil // the offset is within tools
	return p
}

func (want *ask) grant(v strictjson.Value) error {
	const list = "must be a list of at most 10000 names"
	if v.Kind() != '[' {
		return badAsk("granted", v, list)
	}
	for i, e := range v.Elements() {
		name, ok := e.Text()
		if !ok || i >= maxGranted {
			return badAsk("granted", e, list)
		}
		want.granted = append(want.granted, name)
	}
	return nil
}

// sum makes the shape tell this ask from those that differ in more than numbers. Who
// is asked counts in any mode: some things go only to the model that said them.
func (want *ask) sum() {
	b, rest := []byte(nil), []string{want.provider, want.model}
	some := want.provider != "" || want.model != ""
	if want.full {
		b, rest = append(b, want.tools...), append(append(rest, want.role), want.granted...)
		some = some || want.tools != nil || want.granted != nil || want.role != ""
	}
	if !some {
		return
	}
	for _, s := range rest {
		b = history.AppendString(append(b, ','), s)
	}
	want.rest = sha256.Sum256(b)
}
