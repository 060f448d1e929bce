package projection

import (
	"strings"
	"testing"

	"historyd/internal/history"
)

func TestText(t *testing.T) {
	thinking := history.Block{Type: history.ThinkingBlock, Text: "hm", Signature: "s"}
	for _, tt := range []struct {
		name string
		in   history.Message
		want []history.Block // nil when nothing is left
	}{
		{"a user", said(" hi\n"), []history.Block{history.Text(" hi\n")}},
		{"an assistant", message(history.Assistant, history.Text("hi")), []history.Block{history.Text("hi")}},
		{"a reference", with(said("hi"), func(m *history.Message) { m.Kind = history.Reference }), []history.Block{history.Text("hi")}},
		{"an incomplete answer", with(message(history.Assistant, history.Text("hi")), func(m *history.Message) { m.Status = history.Incomplete }), []history.Block{history.Text("hi")}},
		{"the system", message(history.System, history.Text("hi")), nil},
		{"a result", answering("c", "hi"), nil},
		{"a call", calling("c", "f", "{}"), nil},
		{"text beside a call", message(history.Assistant, thinking, history.Text("a"), call("c", "f", "{}"), history.Text("b")), []history.Block{history.Text("a"), history.Text("b")}},
		{"blank text", said(" \n\t"), nil},
		{"blank beside text", message(history.User, history.Text(" "), history.Text("x ")), []history.Block{history.Text("x ")}},
		{"nothing", message(history.User), nil},
		{"an image", message(history.User, history.Block{Type: history.ImageBlock, URL: "u"}), nil},
		{"made by the server", with(message(history.Assistant, history.Text("hi")), func(m *history.Message) { m.Synthetic = true }), nil},
		{"an error of the provider", with(message(history.Assistant, history.Text("hi")), func(m *history.Message) { m.Extra = raw(`{"isApiErrorMessage":true}`) }), nil},
		{"another one", with(message(history.Assistant, history.Text("hi")), func(m *history.Message) { m.Extra = raw(`{"error":{"code":500}}`) }), nil},
		{"no error", with(message(history.Assistant, history.Text("hi")), func(m *history.Message) { m.Extra = raw(`{"isApiErrorMessage":false,"error":null}`) }), []history.Block{history.Text("hi")}},
		{"a refusal", message(history.Assistant, history.Text("a"), refused("openai", `{"refusal":"I won't.","type":"refusal"}`)), []history.Block{history.Text("a"), history.Text("I won't.")}},
		{"nothing but a refusal", message(history.Assistant, refused("responses", `{"type":"refusal","refusal":"No."}`)), []history.Block{history.Text("No.")}},
		{"a blank refusal", message(history.Assistant, refused("openai", `{"type":"refusal","refusal":" "}`)), nil},
		{"a refusal that is null", message(history.Assistant, refused("openai", `{"type":"refusal","refusal":null}`)), nil},
		{"another block", message(history.Assistant, refused("openai", `{"type":"audio","refusal":"No."}`)), nil},
		{"another provider's", message(history.Assistant, refused("other", `{"type":"refusal","refusal":"No."}`)), nil},
		{"a refusal of a user", message(history.User, refused("openai", `{"type":"refusal","refusal":"No."}`)), nil},
		{"rewound", with(said("hi"), func(m *history.Message) { m.Rewound = true }), nil},
		{"a user who says so", with(said("hi"), func(m *history.Message) { m.Extra = raw(`{"error":1}`) }), []history.Block{history.Text("hi")}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			in := tt.in
			in.ID, in.Seq = "id", 7
			before := show([]history.Message{in})
			got, ok := Text(&in)
			if ok != (tt.want != nil) {
				t.Fatalf("Text = %v, want %v", ok, tt.want != nil)
			}
			want := in
			want.Content = tt.want
			if ok && show([]history.Message{got}) != show([]history.Message{want}) {
				t.Errorf("Text = %s, want %s", show([]history.Message{got}), show([]history.Message{want}))
			}
			if after := show([]history.Message{in}); after != before {
				t.Errorf("input became %s", after)
			}
		})
	}
}

func refused(provider, data string) history.Block {
	return history.Block{Type: history.OpaqueBlock, Provider: provider, Opaque: raw(data)}
}

func TestEstimateTokens(t *testing.T) {
	for _, tt := range []struct {
		name     string
		in       history.Message
		min, max int64
	}{
		{"nothing", said(""), 4, 4},
		{"letters", said(strings.Repeat("word ", 200)), 254, 254},
		{"punctuation", said(strings.Repeat("{}", 100)), 104, 104},
		{"ideographs", said(strings.Repeat("漢", 1000)), 700, 1100},
		{"kana", said(strings.Repeat("か", 1000)), 700, 1100},
		{"hangul", said(strings.Repeat("한", 1000)), 700, 1100},
		{"ideographs of later planes", said(strings.Repeat("𠀀", 1000)), 700, 1100},
		{"other scripts", said(strings.Repeat("ж", 1000)), 504, 504},
		{"a call", calling("c", "name", `{"a":12}`), 9, 9},
		{"a result", answering("c", strings.Repeat("word ", 200)), 254, 254},
		{"an image", message(history.User, history.Block{Type: history.ImageBlock, URL: "u"}), 1004, 1004},
		{"an image in a result", message(history.Tool, resultOf("c", history.Text("word"), history.Block{Type: history.ImageBlock, URL: "u"})), 1005, 1005},
		{"thinking", message(history.Assistant, history.Block{Type: history.ThinkingBlock, Text: "word", Encrypted: "wordword", Signature: "s"}), 7, 7},
	} {
		if got := EstimateTokens(&tt.in); got < tt.min || got > tt.max {
			t.Errorf("%s: %d tokens, want %d to %d", tt.name, got, tt.min, tt.max)
		}
	}
}

func TestFit(t *testing.T) {
	// Each message counts 14 tokens.
	text := strings.Repeat("word", 10)
	user, answer := said(text), message(history.Assistant, history.Text(text))
	reference := with(user, func(m *history.Message) { m.Kind = history.Reference })
	three := []history.Message{user, answer, user, reference, answer, user, answer}
	for _, tt := range []struct {
		name    string
		in      []history.Message
		max     int64
		kept    int
		dropped int
		over    bool
	}{
		{"nothing", nil, 100, 0, 0, false},
		{"all", three, 98, 7, 0, false},
		{"one token less", three, 97, 5, 1, false},
		{"two turns", three, 70, 5, 1, false},
		{"one turn", three, 69, 2, 2, false},
		{"exactly the newest", three, 28, 2, 2, false},
		{"even the newest is over", three, 27, 2, 2, true},
		{"no budget", three, 0, 2, 2, true},
		{"what comes before the first turn belongs to it", append([]history.Message{answer}, three...), 98, 5, 1, false},
		{"no turn begins", []history.Message{answer, answer}, 20, 2, 0, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			kept, dropped, over := Fit(tt.in, tt.max)
			if len(kept) != tt.kept || dropped != tt.dropped || over != tt.over {
				t.Errorf("Fit = %d messages, %d, %v, want %d, %d, %v", len(kept), dropped, over, tt.kept, tt.dropped, tt.over)
			}
			if n := len(tt.in); len(kept) > 0 && &kept[len(kept)-1] != &tt.in[n-1] {
				t.Error("the newest messages are not kept")
			}
		})
	}
}
