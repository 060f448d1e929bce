package accept

import (
	"fmt"
	"net/http"
	"reflect"
	"regexp"
	"strings"
	"sync"
	"testing"
	"unicode/utf8"

	"historyd/internal/projection"
	"historyd/test/chatmodel"
)

// held is a model that answers when it is let to.
func held(t *testing.T) (m *chatmodel.Server, asked <-chan string, let func()) {
	t.Helper()
	said, answer := make(chan string, 64), make(chan struct{}, 64)
	m = chatmodel.New(t, func(w http.ResponseWriter, c chatmodel.Chat) {
		said <- c.Said
		select {
		case <-answer:
			chatmodel.Says(w, fmt.Sprint("Summary number ", c.Number, "."))
		case <-c.Request.Context().Done():
		}
	})
	return m, said, func() { answer <- struct{}{} }
}

func TestFiftyAppendsDuringASummaryStandBehindIt(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ name, keep, batch, want string }{
		{"without a fold meanwhile", "60", "51", `"Summary number 1."`},
		{"with folds meanwhile", "60", "5", ""},
	} {
		m, asked, let := held(t)
		d, c := newSummarised(t, m, "HISTORYD_COMPACTION_KEEP_VERBATIM_TURNS="+tt.keep, "HISTORYD_COMPACTION_FOLD_BATCH="+tt.batch)
		d.begin()
		texts := []string{}
		for i := range 111 {
			texts = append(texts, fmt.Sprintf("old %d, %s", i, strings.Repeat("at length ", 9)), fmt.Sprint("answer ", i))
		}
		c.do(201, "POST", "/v1/conversations/main/turns", said(t, texts...))
		<-asked
		before := c.replay("main")
		for i := range 50 {
			c.do(201, "POST", "/v1/conversations/main/turns", said(t, fmt.Sprint("new ", i)))
			texts = append(texts, fmt.Sprint("new ", i))
		}
		during := c.replay("main")
		let()
		if tt.want == "" {
			<-asked // of the newest fold, without another append
			let()
			d.ended("stale", 1)
		}
		d.ended("recorded", 1)
		if after := c.replay("main"); !reflect.DeepEqual(after, during) {
			t.Errorf("%s: the replay changed with the answer: %+v", tt.name, after)
		}
		if tt.want != "" && !reflect.DeepEqual(during.Messages[:len(before.Messages)], before.Messages) {
			t.Errorf("%s: the replay changed without a fold", tt.name)
		}
		for i := range 60 { // folds in both
			c.do(201, "POST", "/v1/conversations/main/turns", said(t, fmt.Sprint("last ", i)))
			texts = append(texts, fmt.Sprint("last ", i))
			if s := c.replay("main").summary(); strings.HasPrefix(s, "model: ") {
				if tt.want != "" && !strings.Contains(s, tt.want) {
					t.Errorf("%s: the summary is %.300s", tt.name, s)
				}
				break
			}
		}
		final := c.replay("main")
		if final.Summary == nil || final.Summary.Source != "model" {
			t.Fatalf("%s: no summary by the model: %.200s", tt.name, final.summary())
		}
		standsBehind(t, c, tt.name, final, texts)
		d.kill()
	}
}

// standsBehind holds a replay to be a summary and then, in order, all that it does not cover, and the record to be whole.
func standsBehind(t *testing.T, c caller, what string, final replayed, texts []string) {
	t.Helper()
	shown := texts[final.Summary.Messages:]
	got := final.Messages[1:]
	for i, want := range shown {
		if i >= len(got) || got[i].Content != want {
			t.Fatalf("%s: behind the summary of %d messages stands %+v, want %q at %d", what, final.Summary.Messages, got[min(i, len(got)):min(i+3, len(got))], want, i)
		}
	}
	for i, msg := range messagesOf(t, c, "main") {
		if msg.Seq != int64(i+1) || msg.Content[0].Text != texts[i] {
			t.Fatalf("%s: message %d is %+v, want %q", what, i+1, msg, texts[i])
		}
	}
	if final.Summary.ThroughSeq != final.Summary.Messages || len(got) != len(shown) {
		t.Errorf("%s: %+v and %d messages of %d", what, final.Summary, len(got), len(texts))
	}
}

func TestSummariesOfTwoCallersAreNotSwapped(t *testing.T) {
	t.Parallel()
	secrets := regexp.MustCompile(`secret-of-\w+`)
	m := chatmodel.New(t, func(w http.ResponseWriter, c chatmodel.Chat) {
		chatmodel.Says(w, "They have a "+secrets.FindString(c.Said)+".")
	})
	d, ann := newSummarised(t, m)
	callers := map[string]caller{
		"ann": ann, "mesh": {d, d.token("mesh", "ann", "")}, "read": {d, d.token("operator", "ann", "read")}, "bob": {d, d.token("operator", "bob", "")},
	}
	d.begin()
	var all sync.WaitGroup
	for who, c := range callers {
		all.Go(func() {
			for i := range 16 {
				body := said(t, strings.Repeat(fmt.Sprintf("secret-of-%s number %d is told here. ", who, i), 5), "Noted.")
				if status, b, _, err := c.try("POST", "/v1/conversations/main/turns", body); status != 201 {
					t.Errorf("append: %d %s %v", status, b, err)
				}
			}
		})
	}
	all.Wait()
	for who, c := range callers {
		want := "They have a secret-of-" + who + "."
		await(t, "the model's words for "+who+" are shown", func() bool {
			c.turn("main", "secret-of-"+who)
			return strings.Contains(c.replay("main").summary(), want)
		})
	}
	for who, c := range callers {
		everything := c.replay("main").summary() + string(c.do(200, "GET", "/v1/conversations/main/export", nil))
		for _, secret := range secrets.FindAllString(everything, -1) {
			if secret != "secret-of-"+who {
				t.Fatalf("%s is told a %s", who, secret)
			}
		}
	}
	for _, req := range m.Requests() {
		told := map[string]bool{}
		for _, secret := range secrets.FindAllString(req.Raw, -1) {
			told[secret] = true
		}
		if len(told) != 1 {
			t.Errorf("one request holds %v", told)
		}
	}
}

// A summary outlives any end of the process, and goes into the next request with what aged out since, and nothing else.
func TestASummaryOutlivesTheProcess(t *testing.T) {
	t.Parallel()
	m, asked, let := held(t)
	d, c := newSummarised(t, m)
	d.begin()
	lines := []string{}
	for i, word := range []string{"alpha", "beta", "gamma", "delta"} {
		at := strings.Repeat(word+" is spoken of at length here. ", 10)
		lines = append(lines,
			fmt.Sprintf(`{"role":"user","content":[{"type":"text","text":"%s%s question"}],"at":"2026-03-%02dT10:30:00Z"}`, at, word, 1+3*i),
			fmt.Sprintf(`{"role":"assistant","content":[{"type":"text","text":"%s%s answer"}],"at":"2026-03-%02dT10:31:00Z"}`, at, word, 1+3*i))
	}
	c.do(201, "POST", "/v1/conversations/main/import?format=jsonl", []byte(strings.Join(lines, "\n")), "Content-Type", "application/x-ndjson")
	first := <-asked
	for _, want := range []string{`- 2026-03-01 10:30 user: "alpha`, `- 2026-03-01 10:31 assistant: "alpha`, `- 2026-03-04 10:30 user: "beta`} {
		if !strings.Contains(first, want) {
			t.Errorf("the first request lacks %s:\n%s", want, first)
		}
	}
	if strings.Contains(first, "gamma") {
		t.Errorf("the first request holds what is in the window:\n%s", first)
	}
	// The process dies while it waits for the answer: the digest is there, and the model is asked
	// again when more is said.
	digest := c.replay("main")
	d.kill()
	d.begin()
	if again := c.replay("main"); digest.Summary.Source != "digest" || !reflect.DeepEqual(again, digest) {
		t.Errorf("after the end the replay is %+v, was %+v", again, digest)
	}
	c.turn("main", "kappa")
	if second := <-asked; second != first {
		t.Errorf("after the end the model is asked\n%s\nwant\n%s", second, first)
	}
	let()
	d.ended("recorded", 1)
	d.kill() // the words are recorded, and nobody has seen them yet
	d.begin()
	c.turn("main", "lambda") // folds
	shown := c.replay("main")
	if s := shown.summary(); !strings.HasPrefix(s, "model: ") || !strings.Contains(s, `"Summary number 2."`) {
		t.Errorf("the summary is %s", s)
	}
	third := <-asked
	for part, in := range map[string]bool{
		`"Summary number 2."`: true, "gamma question": true, "delta answer": true, "alpha": false, "beta": false, "kappa": false, "lambda": false,
	} {
		if strings.Contains(third, part) != in {
			t.Errorf("the third request holds %s: %v, want %v:\n%s", part, !in, in, third)
		}
	}
	d.kill()
	d.begin()
	if again := c.replay("main"); !reflect.DeepEqual(again, shown) {
		t.Errorf("after the last end the replay is %+v, was %+v", again, shown)
	}
	d.stop()
	checkSound(t, d)
}

// What is too long for one request is told in several, in order, whatever the model takes.
func TestLongInputIsSplitInOrder(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		most, takes int64 // tokens
		pieces      int
	}{{4000, 4000, 3000}, {4000, 1500, 3000}, {1000, 1000, 1000}} {
		m := chatmodel.New(t, func(w http.ResponseWriter, c chatmodel.Chat) {
			if n := projection.EstimateText(c.Orders) + projection.EstimateText(c.Said); n > tt.takes {
				w.WriteHeader(400)
				_, _ = w.Write([]byte(`{"error":{"code":"context_length_exceeded"}}`))
				return
			}
			chatmodel.Says(w, fmt.Sprint("Summary number ", c.Number, "."))
		})
		d, c := newSummarised(t, m, fmt.Sprint("HISTORYD_COMPACTION_MODEL_MAX_INPUT_TOKENS=", tt.most))
		d.begin()
		var huge strings.Builder
		for i := range tt.pieces {
			fmt.Fprintf(&huge, "piece%05d ", i)
		}
		c.do(201, "POST", "/v1/conversations/main/turns", said(t, "first one", "second one", huge.String(), "fourth one", "fifth one", "sixth one", "seventh one"))
		d.ended("recorded", 1)
		reqs := m.Requests()
		var told strings.Builder
		last := ""
		for i, req := range reqs {
			n := projection.EstimateText(req.Orders) + projection.EstimateText(req.Said)
			if n > tt.most {
				t.Errorf("request %d takes %d tokens", i, n)
			}
			if n > tt.takes {
				continue
			}
			if !strings.Contains(req.Said, last) {
				t.Errorf("request %d does not hold %s", i+1, last)
			}
			last = fmt.Sprintf("%q", fmt.Sprint("Summary number ", req.Number, "."))
			told.WriteString(req.Said)
		}
		at := 0
		for _, piece := range append(strings.Fields("first second "+huge.String()), "fourth") {
			n := strings.Index(told.String()[at:], piece)
			if n < 0 {
				t.Fatalf("%s is missing or out of order", piece)
			}
			at += n
		}
		if strings.Contains(told.String(), "fifth") {
			t.Error("what is in the window was told")
		}
		c.fold("main", "alpha", "beta")
		s := c.replay("main").summary()
		if !strings.Contains(s, last) {
			t.Errorf("the summary is %.300s, want %s", s, last)
		}
		t.Logf("%d requests", len(reqs))
		d.kill()
	}
}

// An attempt that a fold has overtaken tells no further part, and the next one begins anew.
func TestAFoldEndsTheAttemptBeforeIt(t *testing.T) {
	t.Parallel()
	m, asked, let := held(t)
	d, c := newSummarised(t, m, "HISTORYD_COMPACTION_MODEL_MAX_INPUT_TOKENS=1000")
	d.begin()
	long := func() {
		c.do(201, "POST", "/v1/conversations/main/turns", said(t, strings.Repeat("much is said at length here. ", 150), "Noted."))
	}
	for range 4 {
		long()
	}
	<-asked
	long()
	long()
	let()
	if second := <-asked; !strings.Contains(second, "(nothing yet)") {
		t.Errorf("a part for a fold that is over:\n%s", second)
	}
	d.ended("stale", 1)
	d.stop() // while the model is waited for
}

func TestSummariesStayBounded(t *testing.T) {
	t.Parallel()
	m := chatmodel.New(t, func(w http.ResponseWriter, c chatmodel.Chat) {
		chatmodel.Says(w, strings.Repeat("<ö> ", utf8.RuneCountInString(c.Said)/8))
	})
	d, c := newSummarised(t, m, "HISTORYD_COMPACTION_MAX_SUMMARY_CHARS=2000")
	d.begin()
	for i := range 8 {
		c.fold("main", fmt.Sprint("alpha", i), fmt.Sprint("beta", i))
		if i > 0 {
			d.ended("recorded", i)
		}
		if n := utf8.RuneCountInString(c.replay("main").summary()); n > 2000+len("digest: ") {
			t.Fatalf("after fold %d the summary has %d characters", i, n)
		}
	}
	if s := c.replay("main"); s.Summary.Source != "model" || s.Summary.Turns != 14 {
		t.Errorf("the summary is %s", s.summary())
	}
}

// What goes while a model sums it up stays gone: the words do not bring it back, and no more of it is told.
func TestASummaryBringsNothingBack(t *testing.T) {
	t.Parallel()
	for name, gone := range map[string]func(c caller){
		"clear":     func(c caller) { c.do(204, "DELETE", "/v1/conversations/main", nil) },
		"clear all": func(c caller) { c.do(204, "DELETE", "/v1/conversations", nil) },
		"replace": func(c caller) {
			c.do(201, "POST", "/v1/conversations/main/import?mode=replace&format=openai", said(c.d.t, "anew"))
		},
		"rewind": func(c caller) {
			c.do(200, "POST", "/v1/conversations/main/rewind", []byte(`{"through_seq":0}`))
		},
	} {
		asked, answer := make(chan string, 64), make(chan struct{})
		m := chatmodel.New(t, func(w http.ResponseWriter, c chatmodel.Chat) {
			asked <- c.Said
			<-answer
			chatmodel.Says(w, "They spoke of a zqcanary.")
		})
		// So little fits that it is told in several parts.
		d, c := newSummarised(t, m, "HISTORYD_COMPACTION_MODEL_MAX_INPUT_TOKENS=1000")
		d.begin()
		for range 4 {
			c.do(201, "POST", "/v1/conversations/main/turns", said(t, strings.Repeat("a zqcanary is spoken of at length here. ", 200), "Noted."))
		}
		<-asked
		gone(c)
		close(answer)
		d.ended("stale", 1)
		if n := len(m.Requests()); n != 1 {
			t.Errorf("%s: %d requests", name, n)
		}
		if s := c.replay("main"); s.Summary != nil || strings.Contains(fmt.Sprint(s.Messages), "zqcanary") {
			t.Errorf("%s: the replay is %+v", name, s)
		}
		d.stop()
		if left := string(contents(t, d.dir)); strings.Contains(left, "They spoke") || name != "rewind" && strings.Contains(left, "zqcanary") {
			t.Errorf("%s: it is in a file", name)
		}
		checkSound(t, d)
	}
}
