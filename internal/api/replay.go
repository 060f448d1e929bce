package api

import (
	"context"
	"errors"
	"net/http"
	"strconv"
	"time"

	"historyd/internal/history"
	"historyd/internal/identity"
	"historyd/internal/pipeline"
	"historyd/internal/strictjson"
	"historyd/internal/wire"
)

// Results of a replay, as a metric labels them.
const (
	cached    = "cached"
	rendered  = "rendered"
	unchanged = "unchanged"
	failed    = "failed"
)

type replayKind struct {
	format wire.Format
	result string
}

// getReplay serves GET /v1/conversations/{c}/replay.
func (s *server) getReplay(x *exchange, r *http.Request) error {
	c, err := x.conversation(r)
	if err != nil {
		return err
	}
	want, _, err := shapeOf(r)
	if err != nil {
		return err
	}
	return s.counted(x, r, c, want)
}

// postReplay serves POST /v1/conversations/{c}/replay: the same parameters in a
// body, and those that only mode full makes use of.
func (s *server) postReplay(x *exchange, r *http.Request) error {
	c, err := x.conversation(r)
	if err != nil {
		return err
	}
	want, given, err := shapeOf(r)
	if err != nil {
		return err
	}
	if _, err := checkType(r, "application/json"); err != nil {
		return err
	}
	body, err := x.readBody(r, s.limits.Body)
	if err != nil {
		return err
	}
	if err := strictjson.Check(body); err != nil {
		return err
	}
	if err := want.read(strictjson.Document(body), given); err != nil {
		return err
	}
	return s.counted(x, r, c, want)
}

// shapeOf reads the query; given has what it says.
func shapeOf(r *http.Request) (want shape, given params, err error) {
	want.format = wire.Native
	given, err = query(r, "mode", "format", "max_tokens")
	if err != nil || given == nil {
		return want, given, err
	}
	if mode, ok := given.text("mode"); ok {
		if err := checkMode(mode); err != nil {
			return want, given, err
		}
	}
	if want.format, err = given.format(); err != nil {
		return want, given, err
	}
	want.maxTokens, err = given.int("max_tokens", 1, pipeline.Unbounded, 0)
	return want, given, err
}

func checkMode(mode string) error {
	switch mode {
	case "text":
		return nil
	case "full":
		return wire.ErrUnsupported
	}
	return badParameter("mode", "must be text or full")
}

func (s *server) counted(x *exchange, r *http.Request, c pipeline.Conversation, want shape) error {
	result, err := s.replay(x, r, c, want)
	if err != nil {
		result = failed
	}
	s.metrics.replays[replayKind{want.format, result}].Inc()
	return err
}

// replay answers from what it answered before, while nothing has changed.
func (s *server) replay(x *exchange, r *http.Request, c pipeline.Conversation, want shape) (result string, err error) {
	now, err := s.pipeline.State(s.glance(), c)
	if err != nil {
		return "", err
	}
	version := now.ETag()
	if r.Method != http.MethodPost && unmodified(r, version) {
		x.Header()["Etag"] = []string{version}
		x.WriteHeader(http.StatusNotModified)
		return unchanged, nil
	}
	if body := s.replays.find(c, now, want); body != nil {
		x.Header()["Etag"] = []string{version}
		return cached, x.send(http.StatusOK, jsonType, body)
	}
	ctx, cancel := context.WithTimeout(r.Context(), deadline)
	defer cancel()
	ask := pipeline.Ask{MaxTokens: want.maxTokens}
	rep, err := s.pipeline.Replay(ctx, c, ask)
	if errors.Is(err, history.ErrGone) {
		rep, err = s.pipeline.Replay(ctx, c, ask)
	}
	if err != nil {
		return "", err
	}
	body := appendReplay(nil, c, want.format, rep)
	s.replays.keep(ctx, s.pipeline, c, rep.State, want, body)
	x.Header()["Etag"] = []string{rep.State.ETag()}
	return rendered, x.send(http.StatusOK, jsonType, body)
}

// glance returns a context for a look at the state, which ends after the deadline or
// up to twice that. All looks share it and its timer, because one of its own would cost
// a hot replay more than the look; so it does not end with the request.
func (s *server) glance() context.Context {
	now := time.Now()
	g := s.glances.Load()
	if g == nil || now.Sub(g.from) >= deadline {
		ctx, end := context.WithCancel(context.Background())
		time.AfterFunc(2*deadline, end)
		g = &sharedContext{ctx, now}
		s.glances.Store(g)
	}
	return g
}

// sharedContext is for the looks that begin within the deadline from then on.
type sharedContext struct {
	context.Context
	from time.Time
}

// appendReplay appends the body, its members in the order of the contract.
func appendReplay(dst []byte, c pipeline.Conversation, f wire.Format, rep pipeline.Replayed) []byte {
	dst = append(dst, `{"conversation":`...)
	dst = history.AppendString(dst, c.Name)
	dst = append(dst, `,"mode":"text","format":`...)
	dst = history.AppendString(dst, string(f))
	dst = append(dst, `,"messages":[`...)
	if rep.Summary != nil && f == wire.OpenAI {
		// A peer's words must not gain the authority of the system position.
		if c.Scope.Kind() == identity.Operator {
			dst = append(dst, `{"role":"system","content":`...)
		} else {
			dst = append(dst, `{"role":"user","content":`...)
		}
		dst = append(history.AppendString(dst, rep.Summary.Text), '}')
		if len(rep.Messages) > 0 {
			dst = append(dst, ',')
		}
	}
	dst = wire.AppendMessages(dst, f, rep.Messages, wire.ForModel)
	dst = append(dst, ']')
	if rep.Summary != nil {
		dst = append(dst, `,"summary":`...)
		dst = appendSummary(dst, rep.Summary)
	}
	dst = append(dst, `,"through_seq":`...)
	dst = strconv.AppendInt(dst, rep.State.LastSeq, 10)
	dst = append(dst, `,"estimated_tokens":`...)
	dst = strconv.AppendInt(dst, rep.Tokens, 10)
	dst = append(dst, `,"report":`...)
	return append(appendReport(dst, rep.Report), '}')
}

// appendSummary appends a summary as replay, export and the conversation show it.
func appendSummary(dst []byte, s *pipeline.Summary) []byte {
	dst = append(dst, `{"text":`...)
	dst = history.AppendString(dst, s.Text)
	for _, m := range []struct {
		name  string
		value int64
	}{
		{`,"through_seq":`, s.ThroughSeq}, {`,"turns":`, s.Turns},
		{`,"messages":`, s.Messages}, {`,"omitted_turns":`, s.Omitted},
	} {
		dst = append(dst, m.name...)
		dst = strconv.AppendInt(dst, m.value, 10)
	}
	dst = append(dst, `,"at":`...)
	dst = history.AppendTime(dst, s.At)
	dst = append(dst, `,"source":`...)
	return append(history.AppendString(dst, s.Source), '}')
}

func appendReport(dst []byte, r pipeline.Report) []byte {
	start := len(dst) + 1
	dst = append(dst, '{')
	member := func(name string) {
		if len(dst) > start {
			dst = append(dst, ',')
		}
		dst = append(dst, name...)
	}
	count := func(name string, n int64) {
		if n > 0 {
			member(name)
			dst = strconv.AppendInt(dst, n, 10)
		}
	}
	count(`"dropped_turns":`, r.DroppedTurns)
	if r.OverBudget {
		member(`"over_budget":true`)
	}
	count(`"dropped_blank":`, r.DroppedBlank)
	count(`"dropped_media":`, r.DroppedMedia)
	count(`"provider_errors":`, r.ProviderErrors)
	if r.Damage != nil {
		member(`"damaged":`)
		dst = appendDamage(dst, r.Damage)
	}
	return append(dst, '}')
}
