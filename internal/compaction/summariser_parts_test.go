package compaction

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"unicode/utf8"

	"historyd/internal/history"
	"historyd/internal/projection"
	"historyd/test/chatmodel"
)

// tokensOf is what a request takes by our own estimate.
func tokensOf(c chatmodel.Chat) int64 {
	return projection.EstimateText(c.Orders) + projection.EstimateText(c.Said)
}

func TestLongInputIsToldInPartsInOrder(t *testing.T) {
	m := chatmodel.New(t, func(w http.ResponseWriter, c chatmodel.Chat) {
		chatmodel.Says(w, fmt.Sprint("Summary number ", c.Number))
	})
	b := newBench(t, m.URL, func(o *SummariserOptions) { o.Endpoint.MaxInputTokens = 4000 })
	var huge strings.Builder
	for i := range 6000 {
		fmt.Fprintf(&huge, "piece%05d ", i)
	}
	b.say("ann", person("first"), assistant("second"), person(huge.String()), assistant("fourth"), person("fifth"), assistant("sixth"))
	if got := b.try("ann"); got != "recorded" {
		t.Fatalf("ended as %s: %s", got, b.logs.String())
	}
	reqs := m.Requests()
	var all strings.Builder
	for i, c := range reqs {
		if n := tokensOf(c); n > 4000 {
			t.Errorf("request %d takes %d tokens", i, n)
		}
		if i > 0 && !strings.Contains(c.Said, fmt.Sprintf("%q", fmt.Sprint("Summary number ", i))) {
			t.Errorf("request %d does not begin with the summary so far: %.100s", i, c.Said)
		}
		all.WriteString(c.Said)
	}
	at := 0
	for i := range 6000 {
		n := strings.Index(all.String()[at:], fmt.Sprintf("piece%05d", i))
		if n < 0 {
			t.Fatalf("piece %d is missing or out of order", i)
		}
		at += n
	}
	for _, w := range []string{`user: "first"`, `assistant: "second"`, `assistant: "fourth"`} {
		if strings.Count(all.String(), w) != 1 {
			t.Errorf("%s is told %d times", w, strings.Count(all.String(), w))
		}
	}
	if len(reqs) < 5 || len(reqs) > 20 {
		t.Errorf("%d requests", len(reqs))
	}
	if p := b.state("ann").Prose; p.Text != fmt.Sprint("Summary number ", len(reqs)) {
		t.Errorf("the prose is %+v", p)
	}
}

func TestAModelThatTakesLessIsAskedForLess(t *testing.T) {
	for _, tt := range []struct {
		limit  int64
		status int
		body   string
		want   string
	}{
		{3000, 400, `{"error":{"code":"context_length_exceeded"}}`, "recorded"},
		{1500, 413, ``, "recorded"},
		{100, 400, `{"error":{"message":"This model's maximum context length is 100 tokens"}}`, "overflow"},
	} {
		m := chatmodel.New(t, func(w http.ResponseWriter, c chatmodel.Chat) {
			if tokensOf(c) > tt.limit {
				w.WriteHeader(tt.status)
				_, _ = io.WriteString(w, tt.body)
				return
			}
			chatmodel.Says(w, fmt.Sprint("Summary number ", c.Number))
		})
		b := newBench(t, m.URL, nil)
		b.say("ann", person(strings.Repeat("many words ", 4000)+"END"), assistant("b"), person("c"), assistant("d"), person("e"))
		if got := b.try("ann"); got != tt.want {
			t.Errorf("limit %d: ended as %s: %s", tt.limit, got, b.logs.String())
		}
		reqs := m.Requests()
		if len(reqs) > 60 {
			t.Errorf("limit %d: %d requests", tt.limit, len(reqs))
		}
		if p := b.state("ann").Prose; (p != nil) != (tt.want == "recorded") || p != nil && !strings.Contains(reqs[len(reqs)-1].Said, "END") {
			t.Errorf("limit %d: %+v, the last request: %.200s", tt.limit, p, reqs[len(reqs)-1].Said)
		}
		// Nothing is removed: the record and the digest are there.
		if s := b.state("ann"); s.Messages != 5 || s.Summary.Turns != 2 || len(s.Summary.Lines) != 2 {
			t.Errorf("limit %d: %+v", tt.limit, s.Summary)
		}
	}
}

// The smallest requests tell all of it, too, also when a summary so far is from a time of larger ones.
func TestSmallRequestsTellAll(t *testing.T) {
	m := chatmodel.New(t, func(w http.ResponseWriter, c chatmodel.Chat) {
		chatmodel.Says(w, fmt.Sprintf("Summary number %d. %s", c.Number, strings.Repeat("And more words. ", 300)))
	})
	b := newBench(t, m.URL, nil)
	said := func(n int) history.Message {
		return person(fmt.Sprintf("number%d %s end%[1]d", n, strings.Repeat(fmt.Sprint("word", n, " "), 700)))
	}
	b.say("ann", said(0), assistant("yes"), said(1), assistant("yes"), said(2))
	if got := b.try("ann"); got != "recorded" {
		t.Fatalf("ended as %s: %s", got, b.logs.String())
	}
	if n := tokensOf(chatmodel.Chat{Said: b.state("ann").Prose.Text}); n < 1000 {
		t.Fatalf("the first summary takes %d tokens, want more than a small request", n)
	}
	b.s.endpoint.MaxInputTokens = MinInputTokens
	m.Answers(func(w http.ResponseWriter, c chatmodel.Chat) {
		chatmodel.Says(w, fmt.Sprint("Summary number ", c.Number, "."))
	})
	before := len(m.Requests())
	b.say("ann", assistant("yes"), said(3), assistant("yes"), said(4))
	if got := b.try("ann"); got != "recorded" {
		t.Fatalf("with smaller requests it ended as %s: %s", got, b.logs.String())
	}
	reqs := m.Requests()[before:]
	all := ""
	for i, c := range reqs {
		if n := tokensOf(c); n > MinInputTokens {
			t.Errorf("request %d takes %d tokens", i, n)
		}
		all += c.Said
	}
	at := 0
	for _, w := range []string{"number2", "end2", "number3", "end3"} {
		n := strings.Index(all[at:], w)
		if n < 0 {
			t.Fatalf("%s was not told, or out of order", w)
		}
		at += n
	}
	if strings.Contains(all, "digest of a longer stretch") || strings.Count(all, "word3") < 700 || !strings.Contains(reqs[0].Said, "Summary number 1.") {
		t.Errorf("%d requests, the first: %.300s", len(reqs), reqs[0].Said)
	}
}

func TestTooMuchIsToldAsItsDigestAndTheNewest(t *testing.T) {
	m := chatmodel.New(t, chatmodel.Always("In short."))
	b := newBench(t, m.URL, func(o *SummariserOptions) { o.Endpoint.MaxInputTokens = 3000; o.MaxSummaryChars = 2000 })
	var msgs []history.Message
	for i := range 200 {
		msgs = append(msgs, person(fmt.Sprintf("number%03d %s", i, strings.Repeat("word ", 1000))), assistant("yes"))
	}
	b.say("ann", msgs...)
	if got := b.try("ann"); got != "recorded" {
		t.Fatalf("ended as %s: %s", got, b.logs.String())
	}
	reqs := m.Requests()
	all := ""
	for _, c := range reqs {
		all += c.Said
	}
	if len(reqs) > 40 || !strings.Contains(reqs[0].Said, "digest of a longer stretch") || !strings.Contains(all, "number197") || strings.Contains(all, "number001") {
		t.Errorf("%d requests, the first: %.300s", len(reqs), reqs[0].Said)
	}
	t.Logf("%d requests for 200,000 words", len(reqs))
}

func TestSummariesDoNotGrow(t *testing.T) {
	for name, answer := range map[string]func(w http.ResponseWriter, c chatmodel.Chat){
		"echo": func(w http.ResponseWriter, c chatmodel.Chat) { chatmodel.Says(w, c.Said) },
		"verbose": func(w http.ResponseWriter, c chatmodel.Chat) {
			chatmodel.Says(w, strings.Repeat("<ö> ", utf8.RuneCountInString(c.Said)*6/25))
		},
	} {
		m := chatmodel.New(t, answer)
		b := newBench(t, m.URL, nil)
		picture := strings.Repeat("p", 1<<20)
		var bytes int64
		for fold := range 20 {
			for i := range 2 {
				msg := person(fmt.Sprintf("%s %d.%d", long("matter"), fold, i))
				if fold == 0 && i == 0 {
					image := history.Block{Type: history.ImageBlock, MediaType: "image/png"}
					image.SetData([]byte(picture))
					msg.Content = append(msg.Content, image)
				}
				b.say("ann", msg, assistant(long("answer")))
			}
			b.try("ann")
			s := b.state("ann")
			if n := utf8.RuneCountInString(b.c.Frame(s.Summary)); n > 8000 {
				t.Fatalf("%s: the frame has %d code points after fold %d", name, n, fold)
			}
			if s.Summary != nil && len(quoted(s.Summary.Text)) > 0 && utf8.RuneCountInString(quoted(s.Summary.Text)) > 4000+2 {
				t.Fatalf("%s: the text has %d code points as quoted", name, utf8.RuneCountInString(quoted(s.Summary.Text)))
			}
			bytes = s.Bytes
		}
		if most := int64(1<<20 + 20*(2*(8000*6)+4*1000)); bytes > most {
			t.Errorf("%s: the record has %d bytes after 20 folds, want at most %d", name, bytes, most)
		}
		t.Logf("%s: %d bytes, of which 1 MiB is a picture; source %s", name, bytes, b.state("ann").Summary.Source)
	}
}

func TestATextIsCutToWhatAFrameHolds(t *testing.T) {
	s := &Summariser{textLimit: textLimit(8000), endpoint: &endpoint{Endpoint: Endpoint{MaxInputTokens: 1 << 20}}}
	for _, piece := range []string{"<", "é", "a word ", "🎉\n"} {
		got := s.capped(strings.Repeat(piece, 10_000))
		if n := utf8.RuneCountInString(quoted(got)) - 2; n > s.textLimit || n < s.textLimit-8 {
			t.Errorf("%q is cut to %d code points as quoted, want nearly %d", piece, n, s.textLimit)
		}
		if again := s.capped(got); again != got || !strings.HasSuffix(got, cutMark) {
			t.Errorf("%q: what was cut ends with %q, and with %q when it is cut again", piece, got[len(got)-9:], again[len(again)-9:])
		}
	}
	if whole := strings.Repeat("é", s.textLimit); s.capped(whole) != whole {
		t.Error("what has room is cut")
	}
	s.endpoint.MaxInputTokens = 1000
	if got := s.capped(strings.Repeat("日本語", 10_000)); got == "" || projection.EstimateText(quoted(got)) > 333 {
		t.Errorf("what goes into the next request takes %d tokens", projection.EstimateText(quoted(got)))
	}
}
