package projection

import (
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
		{"recalled and stored by the server", with(message(history.User, history.Text("hi")), func(m *history.Message) { m.Kind, m.Synthetic = history.Reference, true }), []history.Block{history.Text("hi")}},
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
