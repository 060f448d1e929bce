package api

import (
	"context"
	"errors"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"sync"

	"historyd/internal/history"
	"historyd/internal/identity"
	"historyd/internal/pipeline"
	"historyd/internal/projection"
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
	mode   string
	format wire.Format
	result string
}

// getReplay serves GET /v1/conversations/{c}/replay.
func (s *server) getReplay(x *exchange, r *http.Request) error {
	c, err := x.conversation(r)
	if err != nil {
		return err
	}
	want, _, err := askOf(r)
	if err != nil {
		return err
	}
	return s.counted(x, r, c, &want)
}

// postReplay serves POST /v1/conversations/{c}/replay: the same parameters in a
// body, and those that only mode full makes use of.
func (s *server) postReplay(x *exchange, r *http.Request) error {
	c, err := x.conversation(r)
	if err != nil {
		return err
	}
	want, given, err := askOf(r)
	if err != nil {
		return err
	}
	body, err := x.readJSON(r, s.limits.Body)
	if err != nil {
		return err
	}
	if err := want.read(body, given); err != nil {
		return err
	}
	return s.counted(x, r, c, &want)
}

func (s *server) counted(x *exchange, r *http.Request, c pipeline.Conversation, want *ask) error {
	result, err := s.replay(x, r, c, want)
	if err != nil {
		result = failed
	}
	s.metrics.replays[replayKind{want.mode(), want.format, result}].Inc()
	return err
}

// replay answers from what it answered before, while nothing has changed.
func (s *server) replay(x *exchange, r *http.Request, c pipeline.Conversation, want *ask) (result string, err error) {
	if want.recall != nil {
		return rendered, s.replayWithRecall(x, r, c, want)
	}
	look := &glance{Context: r.Context()}
	now, err := s.pipeline.State(look, c)
	look.end()
	if err != nil {
		return "", err
	}
	version := now.ETag()
	if r.Method != http.MethodPost && unmodified(r, version) {
		x.Header()["Etag"] = []string{version}
		x.WriteHeader(http.StatusNotModified)
		return unchanged, nil
	}
	if body := s.replays.find(c, now, want.shape); body != nil {
		if len(body) > light { // the cache may have let go of it before it is read
			give, err := x.visitor.replays.take(r, patience) // whatever time the body took
			if err != nil {
				return "", err
			}
			defer give()
		}
		x.Header()["Etag"] = []string{version}
		return cached, x.send(http.StatusOK, jsonType, body)
	}
	give := func() {}
	if now.Bytes > light {
		if give, err = x.visitor.replays.take(r, patience); err != nil {
			return "", err
		}
	}
	defer give()
	ctx, cancel := context.WithTimeout(r.Context(), deadline)
	defer cancel()
	rep, err := s.replayNow(ctx, c, want)
	if err != nil {
		return "", err
	}
	body := appendReplay(nil, c, want, rep)
	if len(body) <= light {
		give()
	}
	s.replays.keep(ctx, s.pipeline, c, rep.State, want.shape, body)
	x.Header()["Etag"] = []string{rep.State.ETag()}
	return rendered, x.send(http.StatusOK, jsonType, body)
}

func (s *server) replayNow(ctx context.Context, c pipeline.Conversation, want *ask) (pipeline.Replayed, error) {
	ask := want.replay()
	rep, err := s.pipeline.Replay(ctx, c, ask)
	if errors.Is(err, history.ErrGone) {
		rep, err = s.pipeline.Replay(ctx, c, ask)
	}
	return rep, err
}

// replay is the ask in the pipeline's words.
func (want *ask) replay() pipeline.Ask {
	return pipeline.Ask{
		Full: want.full, Inline: want.format != wire.Native, MaxTokens: want.maxTokens, Ahead: want.ahead,
		Tools: want.toolNames, Granted: want.granted, Role: want.role,
		ToolTokens: projection.EstimateJSON(want.tools),
		ToolRoom:   wire.ToolRoom(want.format, want.tools, len(want.toolNames)),
		Written:    func(name string) string { return wire.WrittenName(want.format, name) },
	}
}

// A glance is the context of a look at the state. It ends with the request, or after the
// deadline; its timer begins only when there is something to wait for, because one for
// each would cost a hot replay more than the look.
type glance struct {
	context.Context
	once    sync.Once
	waiting context.Context
	cancel  context.CancelFunc
}

func (g *glance) wait() {
	g.once.Do(func() { g.waiting, g.cancel = context.WithTimeout(g.Context, deadline) })
}

func (g *glance) Done() <-chan struct{} {
	g.wait()
	return g.waiting.Done()
}

func (g *glance) Err() error {
	g.wait()
	return g.waiting.Err()
}

// end is called by whoever looked, when nobody waits any more.
func (g *glance) end() {
	if g.cancel != nil {
		g.cancel()
	}
}

func appendReplay(dst []byte, c pipeline.Conversation, want *ask, rep pipeline.Replayed) []byte {
	show := wire.Show{
		Messages: rep.Messages,
		// A peer's words must not gain the authority of the system position.
		Authority: c.Scope.Kind() == identity.Operator,
		Provider:  want.provider, Model: want.model,
	}
	if rep.Summary != nil {
		show.Summary = rep.Summary.Text
	}
	if want.full {
		show.Tools = want.tools
		for _, d := range rep.Added {
			show.Added = append(show.Added, wire.Declaration(d))
		}
	}
	shown := wire.Render(want.format, show)
	dst = append(dst, `{"conversation":`...)
	dst = history.AppendString(dst, c.Name)
	dst = append(dst, `,"mode":`...)
	dst = history.AppendString(dst, want.mode())
	dst = append(dst, `,"format":`...)
	dst = history.AppendString(dst, string(want.format))
	dst = append(dst, `,"messages":[`...)
	dst = append(append(dst, shown.Messages...), ']')
	if shown.System != nil {
		dst = append(append(dst, `,"system":`...), shown.System...)
	}
	if shown.Tools != nil || show.Tools != nil {
		dst = append(append(append(dst, `,"tools":[`...), shown.Tools...), ']')
	}
	dst = appendRefusals(dst, shown.Refusals)
	if rep.Summary != nil {
		dst = append(dst, `,"summary":`...)
		dst = appendSummary(dst, rep.Summary)
	}
	if want.recalled != nil {
		dst = append(append(dst, `,"recall":`...), want.recalled...)
	}
	dst = append(dst, `,"through_seq":`...)
	dst = strconv.AppendInt(dst, rep.State.LastSeq, 10)
	dst = append(dst, `,"estimated_tokens":`...)
	dst = strconv.AppendInt(dst, rep.Tokens, 10)
	dst = append(dst, `,"report":`...)
	return append(appendReport(dst, &rep.Report, &shown), '}')
}

// appendRefusals appends what the agent's gate is to answer a call with, by the name
// that the model was told.
func appendRefusals(dst []byte, refused []wire.Declaration) []byte {
	for i, d := range refused {
		if i == 0 {
			dst = append(dst, `,"refusals":{`...)
		} else {
			dst = append(dst, ',')
		}
		dst = append(history.AppendString(dst, d.Name), ':')
		dst = history.AppendString(dst, d.Refusal)
	}
	if len(refused) > 0 {
		dst = append(dst, '}')
	}
	return dst
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

func appendReport(dst []byte, r *pipeline.Report, shown *wire.Shown) []byte {
	start := len(dst)
	for _, c := range []struct {
		member string
		n      int64
	}{
		{`,"dropped_turns":`, r.DroppedTurns}, {`,"dropped_messages":`, r.DroppedMessages}, {`,"dropped_blank":`, r.DroppedBlank},
		{`,"provider_errors":`, r.ProviderErrors}, {`,"synthetic_results":`, r.SyntheticResults},
		{`,"moved_results":`, r.MovedResults}, {`,"dropped_orphans":`, r.DroppedOrphans},
		{`,"dropped_duplicates":`, r.DroppedDuplicates}, {`,"merged_calls":`, r.MergedCalls},
		{`,"exchanges_as_text":`, r.ExchangesAsText}, {`,"undeclared_tools":`, r.UndeclaredTools},
	} {
		if c.n > 0 {
			dst = strconv.AppendInt(append(dst, c.member...), c.n, 10)
		}
	}
	if r.OverBudget {
		dst = append(dst, `,"over_budget":true`...)
	}
	if r.ShortenedSummary {
		dst = append(dst, `,"shortened_summary":true`...)
	}
	counts := shown.Report
	counts.DroppedMedia += r.DroppedMedia
	dst = counts.AppendMembers(dst)
	if len(shown.Names) > 0 {
		dst = append(dst, `,"mapped_names":{`...)
		for i, name := range slices.Sorted(maps.Keys(shown.Names)) {
			if i > 0 {
				dst = append(dst, ',')
			}
			dst = append(history.AppendString(dst, name), ':')
			dst = history.AppendString(dst, shown.Names[name])
		}
		dst = append(dst, '}')
	}
	if r.Damage != nil {
		dst = append(dst, `,"damaged":`...)
		dst = appendDamage(dst, r.Damage)
	}
	if len(dst) == start {
		return append(dst, '{', '}')
	}
	dst[start] = '{' // in place of the first comma
	return append(dst, '}')
}
