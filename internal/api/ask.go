package api

import (
	"slices"
	"strconv"
	"strings"

	"historyd/internal/pipeline"
	"historyd/internal/strictjson"
)

// askMembers are the members of the body of a replay. In mode text those after the
// first three change nothing, but they must be right.
var askMembers = []string{"mode", "format", "max_tokens", "tools", "granted", "role", "recall", "model", "provider"}

// read takes the body of a POST into account. What the query has given already may
// not be given again.
func (want *shape) read(v strictjson.Value, given params) error {
	if v.Kind() != '{' {
		return badAsk("", v, "the body is an object")
	}
	for name, m := range v.Members() {
		if !slices.Contains(askMembers, name) {
			if i := slices.IndexFunc(askMembers, func(k string) bool { return strings.EqualFold(k, name) }); i >= 0 {
				return &problem{code: "invalid_json", field: askMembers[i], offset: &m.Offset, detail: "the name of this member is written in another case"}
			}
			return badAsk("", m, "a member of the body is not known here; known are "+strings.Join(askMembers, ", "))
		}
		if _, twice := given.text(name); twice {
			return badAsk(name, m, "give it once, in the query or in the body")
		}
		if err := want.member(name, m); err != nil {
			return err
		}
	}
	return nil
}

func badAsk(field string, v strictjson.Value, detail string) error {
	return &problem{code: "invalid_parameter", field: field, offset: &v.Offset, detail: detail}
}

func (want *shape) member(name string, v strictjson.Value) (err error) {
	text, isText := v.Text()
	switch name {
	case "recall":
		return badAsk(name, v, "recall is not available in this version")
	case "tools":
		if v.Kind() != '[' {
			return badAsk(name, v, "must be a list")
		}
	case "granted":
		if v.Kind() != '[' {
			return badAsk(name, v, "must be a list of names")
		}
		for _, e := range v.Elements() {
			if _, ok := e.Text(); !ok {
				return badAsk(name, e, "must be a list of names")
			}
		}
	case "max_tokens":
		want.maxTokens, err = strconv.ParseInt(string(v.Raw), 10, 64)
		if err != nil || want.maxTokens < 1 {
			return outOfRange(name, 1, pipeline.Unbounded)
		}
	default:
		if !isText {
			return badAsk(name, v, "must be a string")
		}
	}
	switch name {
	case "mode":
		return checkMode(text)
	case "format":
		want.format, err = formatNamed(text)
	}
	return err
}
