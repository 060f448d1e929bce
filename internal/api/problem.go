package api

import (
	"context"
	"encoding/json/v2"
	"errors"
	"fmt"

	"historyd/internal/history"
	"historyd/internal/strictjson"
	"historyd/internal/wire"
)

// A code is one row of the contract's table of errors.
type code struct {
	name   string
	status int
	title  string
	detail string // what a client can do, when the place of the error knows no better
}

// codes is the table. Names are stable.
var codes = []code{
	{"invalid_json", 400, "The body is not acceptable JSON", "send one JSON value in UTF-8, no name twice in an object"},
	{"invalid_message", 400, "A message is not right", "see field and errors"},
	{"invalid_parameter", 400, "A parameter, header or member of the body is not right", "see field"},
	{"invalid_conversation", 400, "The conversation has no acceptable name", "a name is 1 to 128 of the characters A-Z a-z 0-9 . _ ~ - and does not begin with a dot"},
	{"token_in_url", 400, "A token is in the URL", "send it as Authorization: Bearer, and revoke the one that was in the URL"},
	{"unauthenticated", 401, "Not authenticated", "send a valid token as Authorization: Bearer"},
	{"forbidden_origin", 403, "The request comes from a web page", "call from a program, not from a page of another origin"},
	{"forbidden_host", 403, "The Host is not one of this daemon's", "use a loopback name with the port that is listened on, or add the name to allowed_hosts"},
	{"not_found", 404, "Not found", "there is nothing here for this caller"},
	{"method_not_allowed", 405, "The method is not allowed here", "see Allow"},
	{"unsupported_format", 406, "The format or mode is not supported", "see the formats that the route knows"},
	{"conversation_not_empty", 409, "The conversation has messages already", "choose another conversation; an import can also add to it (mode=append) or take its place (mode=replace)"},
	{"conflict", 409, "The conversation was cleared meanwhile", "read it again, then decide"},
	{"precondition_failed", 412, "The conversation has moved on", "read it again, then send with its new ETag"},
	{"body_too_large", 413, "The body is too large", "send less at a time"},
	{"message_too_large", 413, "A message is too large", "send a shorter message"},
	{"unsupported_media_type", 415, "The content type is not supported", "send Content-Type: application/json, in UTF-8, not compressed"},
	{"idempotency_mismatch", 422, "The idempotency key was used with another request", "use a new key for a new request"},
	{"invalid_history", 422, "The document is no valid history", "see errors; repair=true drops what can be dropped"},
	{"rate_limited", 429, "Too many requests", "wait as long as Retry-After says"},
	{"internal", 500, "Internal error", "the log tells more under this request_id"},
	{"damaged_transcript", 500, "The conversation cannot be read", "run historyd check; the log tells more under this request_id"},
	{"unavailable", 503, "Storage is not available", "try again after Retry-After, with the same Idempotency-Key if there was one; if it stays so, the log says why under this request_id"},
	{"disk_full", 507, "The disk is full", "free space, then try again with the same Idempotency-Key"},
	{"quota_exceeded", 507, "The quota is used up", "nothing was done: clear conversations, then try again"},
}

var codeByName = func() map[string]*code {
	m := map[string]*code{}
	for i := range codes {
		m[codes[i].name] = &codes[i]
	}
	return m
}()

// A problem is an error as a client sees it. Its detail holds nothing of what a
// client sent.
type problem struct {
	code   string
	detail string // empty means the detail of the table
	field  string
	offset *int64
	limit  *int64
	actual *int64
	faults []history.Fault
	header map[string]string
}

func newProblem(code string) *problem { return &problem{code: code} }

// badParameter names a parameter or header of ours that is not right.
func badParameter(field, detail string, args ...any) error {
	return &problem{code: "invalid_parameter", field: field, detail: fmt.Sprintf(detail, args...)}
}

func (p *problem) Error() string { return p.code }

func (p *problem) status() int { return codeByName[p.code].status }

type faultBody struct {
	Path   string `json:"path"`
	Code   string `json:"code"`
	Detail string `json:"detail"`
}

type problemBody struct {
	Type      string      `json:"type"`
	Title     string      `json:"title"`
	Status    int         `json:"status"`
	Code      string      `json:"code"`
	Detail    string      `json:"detail"`
	RequestID string      `json:"request_id"`
	Field     string      `json:"field,omitempty"`
	Offset    *int64      `json:"offset,omitempty"`
	Limit     *int64      `json:"limit,omitempty"`
	Actual    *int64      `json:"actual,omitempty"`
	Errors    []faultBody `json:"errors,omitempty"`
}

// body is the problem as RFC 9457 writes it.
func (p *problem) body(requestID string) []byte {
	row := codeByName[p.code]
	b := problemBody{
		Type: "urn:historyd:problem:" + row.name, Title: row.title, Status: row.status, Code: row.name,
		Detail: p.detail, RequestID: requestID,
		Field: p.field, Offset: p.offset, Limit: p.limit, Actual: p.actual,
	}
	if b.Detail == "" {
		b.Detail = row.detail
	}
	for _, f := range p.faults {
		b.Errors = append(b.Errors, faultBody{f.Path, f.Code, f.Detail})
	}
	body, err := json.Marshal(b)
	if err != nil {
		panic(fmt.Sprintf("api: problem: %T", err))
	}
	return body
}

// classes are the errors that one look decides, with the code that each becomes.
var classes = []struct {
	err  error
	code string
}{
	{wire.ErrUnsupported, "unsupported_format"},
	{history.ErrNoAttachment, "invalid_message"},
	{history.ErrNotFound, "not_found"},
	{history.ErrNotEmpty, "conversation_not_empty"},
	{history.ErrPrecondition, "precondition_failed"},
	{history.ErrKeyMismatch, "idempotency_mismatch"},
	{history.ErrGone, "conflict"},
	{history.ErrBusy, "rate_limited"},
	{history.ErrFull, "disk_full"},
	{history.ErrUnavailable, "unavailable"},
	{history.ErrClosed, "unavailable"},
	{context.Canceled, "unavailable"},
	{context.DeadlineExceeded, "unavailable"},
	{history.ErrDamaged, "damaged_transcript"},
}

// problemOf is the one place where an error becomes a status.
func problemOf(err error) *problem {
	var p *problem
	var syntax *strictjson.SyntaxError
	var large *wire.TooLarge
	var torn *wire.ArchiveError
	var faults *history.Faults
	var unread *wire.Unreadable
	var full *history.QuotaExceeded
	switch {
	case errors.As(err, &p):
	case errors.As(err, &unread) && !unread.Alone:
		p = problemOfFaults(unread.Faults)
	case errors.As(err, &syntax):
		p = &problem{code: "invalid_json", detail: syntax.Error(), offset: &syntax.Offset}
	case errors.As(err, &torn):
		p = &problem{code: "invalid_history", detail: torn.Error(), offset: &torn.Offset}
	case errors.As(err, &large):
		p = &problem{code: "message_too_large", field: large.Path, limit: &large.Limit, actual: &large.Actual}
	case errors.As(err, &faults):
		p = problemOfFaults(faults)
	case errors.As(err, &full):
		p = &problem{code: "quota_exceeded", field: "quota." + full.What, limit: &full.Limit, actual: &full.Actual}
	default:
		p = newProblem("internal")
		for _, c := range classes {
			if errors.Is(err, c.err) {
				p.code = c.code
				break
			}
		}
		switch {
		case errors.Is(err, history.ErrNoAttachment):
			p.detail = "a block names an attachment that the conversation does not hold: send its data"
		case errors.Is(err, context.Canceled): // by the client, or because the daemon ends
			p.detail = "it was given up when your side of the connection ended, or the daemon did: keep the connection open until the answer is there, " +
				"and try again, with the same Idempotency-Key if there was one"
		}
	}
	if unread != nil {
		p.faults, p.field = unread.Faults.List, unread.Faults.List[0].Path
	}
	switch p.code {
	case "unauthenticated":
		p.header = map[string]string{"Www-Authenticate": "Bearer"}
	case "unavailable":
		p.header = map[string]string{"Retry-After": "5"}
	case "rate_limited":
		if p.header == nil { // a rate knows better how long
			p.header = map[string]string{"Retry-After": "1"}
		}
	}
	return p
}

// problemOfFaults says the first fault by itself, and all in a list.
func problemOfFaults(f *history.Faults) *problem {
	first := f.List[0]
	p := &problem{code: "invalid_message", detail: f.Error(), field: first.Path, faults: f.List}
	if first.Code == history.CodeInvalidJSON {
		p.code = "invalid_json"
	}
	if first.Offset >= 0 {
		p.offset = &first.Offset
	}
	return p
}

// invalidHistory makes the faults of a document what they are at import.
func invalidHistory(err error) error {
	var faults *history.Faults
	var unread *wire.Unreadable
	if !errors.As(err, &faults) || errors.As(err, &unread) && unread.Alone {
		return err
	}
	p := problemOfFaults(faults)
	p.code = "invalid_history"
	return p
}
