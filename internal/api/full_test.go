package api

import (
	"archive/tar"
	"bytes"
	"encoding/base64"
	"encoding/json/jsontext"
	"encoding/json/v2"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"

	"historyd/internal/history"
	"historyd/internal/projection"
	"historyd/internal/wire"
	"historyd/test/judge"
)

const fullOfX = "/v1/conversations/x/replay?mode=full"

// providers are the formats whose replays are for a provider.
var providers = []string{"openai", "anthropic", "responses", "gemini"}

// fullReply is a replay as a client reads it.
type fullReply struct {
	Mode     string            `json:"mode"`
	Format   string            `json:"format"`
	Messages jsontext.Value    `json:"messages"`
	System   jsontext.Value    `json:"system"`
	Tools    jsontext.Value    `json:"tools"`
	Refusals map[string]string `json:"refusals"`
	Report   map[string]any    `json:"report"`
}

// mappedTool declares a tool under a name, in the shape of a format.
var mappedTool = map[string]string{
	"openai":    `{"type":"function","function":{"name":%q,"parameters":{"type":"object"}}}`,
	"anthropic": `{"name":%q,"input_schema":{"type":"object"}}`,
	"responses": `{"type":"function","name":%q,"parameters":{"type":"object"}}`,
	"gemini":    `{"functionDeclarations":[{"name":%q}]}`,
}

func TestAToolDeclaredUnderItsMappedNameTakesNoPlaceOfOthers(t *testing.T) {
	d := newDaemon(t, projection.Options{UnknownTools: "keep"})
	var msgs []string
	for i := range projection.DefaultClosureTools + 1 {
		name := "tool_" + fmt.Sprint(i)
		if i == 0 {
			name = "find.me"
		}
		msgs = append(msgs, fmt.Sprintf(`{"role":"assistant","content":[{"type":"tool_call","id":"c","name":%q,"arguments":{}}]},
			{"role":"tool","content":[{"type":"tool_result","call_id":"c","content":"found"}]}`, name))
	}
	want(t, d.post("ann", turns, `{"messages":[{"role":"user","content":"go"},`+strings.Join(msgs, ",")+`]}`), 201, "")
	for _, format := range providers {
		tool := fmt.Sprintf(mappedTool[format], wire.WrittenName(wire.Format(format), "find.me"))
		for declared, exchanges := range map[string]any{"[]": 1.0, "[" + tool + "]": nil} {
			got := d.post("ann", replayOfX, `{"mode":"full","format":"`+format+`","tools":`+declared+`}`)
			want(t, got, 200, "")
			r := as[fullReply](t, got)
			if r.Report["exchanges_as_text"] != exchanges || len(r.Refusals) != projection.DefaultClosureTools {
				t.Errorf("%s with tools %s: %d refusals, report %v, want %v exchanges as text", format, declared, len(r.Refusals), r.Report, exchanges)
			}
			if why := judge.Check(format, r.Messages, r.System, r.Tools); len(why) > 0 {
				t.Errorf("%s: %q", format, why)
			}
		}
	}
}

// TestARequestHasNoMoreToolsThanItsProviderTakes declares many tools, and others are in the record.
func TestARequestHasNoMoreToolsThanItsProviderTakes(t *testing.T) {
	d := newDaemon(t, projection.Options{UnknownTools: "keep"})
	const called = projection.DefaultClosureTools
	var msgs []string
	for i := range called {
		msgs = append(msgs, fmt.Sprintf(`{"role":"assistant","content":[{"type":"tool_call","id":"c","name":"called_%d","arguments":{}}]},
			{"role":"tool","content":[{"type":"tool_result","call_id":"c","content":"found"}]}`, i))
	}
	want(t, d.post("ann", turns, `{"messages":[{"role":"user","content":"go"},`+strings.Join(msgs, ",")+`]}`), 201, "")
	for format, most := range map[string]int{"openai": 128, "responses": 128, "anthropic": 1 << 20, "gemini": 512} {
		for _, given := range []int{10, 100, 128, 500} {
			var tools []string
			for i := range given {
				tools = append(tools, fmt.Sprintf(mappedTool[format], "given_"+fmt.Sprint(i)))
			}
			got := d.post("ann", replayOfX, `{"mode":"full","format":"`+format+`","tools":[`+strings.Join(tools, ",")+`]}`)
			want(t, got, 200, "")
			r := as[fullReply](t, got)
			added := max(0, min(called, most-given))
			text, _ := r.Report["exchanges_as_text"].(float64)
			if len(r.Refusals) != added || int(text) != called-added {
				t.Errorf("%s with %d tools: %d are added and %v calls are text, want %d and %d", format, given, len(r.Refusals), text, added, called-added)
			}
			if why := judge.Check(format, r.Messages, r.System, r.Tools); len(why) > 0 && given <= most {
				t.Errorf("%s with %d tools: %q", format, given, why)
			}
		}
	}
}

// interrupted is a conversation whose agent died in the middle of it.
const interrupted = `{"tool_categories":{"*":"general"},"messages":[
	{"role":"user","content":"book it"},
	{"role":"assistant","content":[{"type":"text","text":"One moment."},
		{"type":"tool_call","id":"c1","name":"book.room","arguments":{"n":1}},
		{"type":"tool_call","id":"c2","name":"pay","arguments":{"n":2}}]},
	{"role":"tool","content":[{"type":"tool_result","call_id":"c1","content":"booked"}]},
	{"role":"user","content":"and now?"}]}`

func TestAFullReplayIsWhatTheProviderAccepts(t *testing.T) {
	d := newDaemon(t, projection.Options{})
	want(t, d.post("ann", turns, interrupted), 201, "")
	for _, format := range providers {
		got := d.get("ann", fullOfX+"&format="+format)
		want(t, got, 200, "")
		r := as[fullReply](t, got)
		if why := judge.Check(format, r.Messages, r.System, r.Tools); len(why) > 0 {
			t.Errorf("%s: %q\n%s", format, why, got.body)
		}
		for _, said := range []string{"book it", "One moment.", "booked", "and now?", "interrupted", "may stand"} {
			if !strings.Contains(string(r.Messages), said) {
				t.Errorf("%s: %q is missing in %s", format, said, r.Messages)
			}
		}
		if r.Mode != "full" || r.Format != format || r.Report["synthetic_results"] != 1.0 || len(r.Refusals) != 2 {
			t.Errorf("%s: %s", format, got.body)
		}
		names, _ := r.Report["mapped_names"].(map[string]any)
		if len(names) != 1 {
			t.Errorf("%s: mapped_names = %v, want that of book.room", format, names)
		}
		for mapped, original := range names {
			if original != "book.room" || r.Refusals[mapped] == "" {
				t.Errorf("%s: %q for %q, refusals %q", format, mapped, original, r.Refusals)
			}
		}
		if again := d.get("ann", fullOfX+"&format="+format); again.body != got.body {
			t.Errorf("%s: the second time it is other bytes", format)
		}
	}
	if full, text := d.replaysCounted("full"), d.replaysCounted("text"); full != float64(2*len(providers)) || text != 0 {
		t.Errorf("counted %v replays in full and %v as text, want %d and none", full, text, 2*len(providers))
	}
}

func TestWhatIsDeclaredDependsOnTheRequest(t *testing.T) {
	d := newDaemon(t, projection.Options{})
	want(t, d.post("ann", turns, strings.ReplaceAll(interrupted, "book.room", "book")), 201, "")
	const path = "/v1/conversations/x/replay"
	for _, tt := range []struct {
		name, ask string
		declared  []string
		refused   []string
	}{
		{"nothing", `{"mode":"full","format":"openai"}`, []string{"book", "pay"}, []string{"book", "pay"}},
		{"none as tools", `{"mode":"full","format":"anthropic","tools":[]}`, []string{"book", "pay"}, []string{"book", "pay"}},
		{"one as a tool", `{"tools":[{"type":"function","function":{"name":"pay","parameters":{"type":"object","properties":{"n":{"type":"integer"}}}}}],"mode":"full","format":"openai"}`,
			[]string{"pay", "book"}, []string{"book"}},
		{"one granted", `{"mode":"full","format":"openai","granted":["pay"]}`, []string{"book", "pay"}, []string{"book"}},
		{"a role", `{"mode":"full","format":"openai","granted":["pay"],"role":"reviewer"}`, []string{"book", "pay"}, []string{"book"}},
		{"anthropic", `{"mode":"full","format":"anthropic","tools":[{"name":"pay","input_schema":{"type":"object"}}]}`, []string{"pay", "book"}, []string{"book"}},
		{"text", `{"mode":"text","format":"openai","tools":[{"type":"function","function":{"name":"pay"}}]}`, nil, nil},
	} {
		got := d.post("ann", path, tt.ask)
		want(t, got, 200, "")
		r := as[fullReply](t, got)
		var tools []struct {
			Name, Description string
			Function          struct{ Name, Description string }
		}
		if r.Tools != nil {
			must(t, json.Unmarshal(r.Tools, &tools, json.MatchCaseInsensitiveNames(true)))
		}
		var declared []string
		for _, tool := range tools {
			name, described := tool.Name+tool.Function.Name, tool.Description+tool.Function.Description
			declared = append(declared, name)
			if r.Refusals[name] != described {
				t.Errorf("%s: %s is described as %q, its refusal is %q", tt.name, name, described, r.Refusals[name])
			}
			if strings.Contains(tt.ask, "reviewer") && r.Refusals[name] != "" && !strings.Contains(r.Refusals[name], "reviewer") {
				t.Errorf("%s: the refusal %q does not say the role", tt.name, r.Refusals[name])
			}
		}
		var refused []string
		for name := range r.Refusals {
			refused = append(refused, name)
		}
		slices.Sort(refused)
		if !slices.Equal(declared, tt.declared) || !slices.Equal(refused, tt.refused) {
			t.Errorf("%s: declared %q, refused %q: %s", tt.name, declared, refused, got.body)
		}
		if other := d.post("ann", path, tt.ask); other.body != got.body {
			t.Errorf("%s: the second time it is other bytes", tt.name)
		}
	}
}

func picture(n int) []byte {
	return append([]byte("\x89PNG\r\n\x1a\n"), bytes.Repeat([]byte{byte(n), 0xff, 0}, 500)...)
}

func TestPicturesAreKeptOnceAndComeBack(t *testing.T) {
	d := newDaemon(t, projection.Options{})
	data := base64.StdEncoding.EncodeToString(picture(1))
	inline := map[string]string{
		"native":    `{"role":"user","content":[{"type":"text","text":"see"},{"type":"image","media_type":"image/png","data":"` + data + `"}]}`,
		"openai":    `{"role":"user","content":[{"type":"text","text":"see"},{"type":"image_url","image_url":{"url":"data:image/png;base64,` + data + `"}}]}`,
		"anthropic": `{"role":"user","content":[{"type":"text","text":"see"},{"type":"image","source":{"type":"base64","media_type":"image/png","data":"` + data + `"}}]}`,
		"responses": `{"type":"message","role":"user","content":[{"type":"input_text","text":"see"},{"type":"input_image","image_url":"data:image/png;base64,` + data + `","detail":"auto"}]}`,
		"gemini":    `{"role":"user","parts":[{"text":"see"},{"inlineData":{"mimeType":"image/png","data":"` + data + `"}}]}`,
	}
	for format, message := range inline {
		want(t, d.post("ann", turns+"?format="+format, `{"messages":[`+message+`]}`), 201, "")
	}
	name := history.AttachmentName(picture(1))
	page := d.get("ann", "/v1/conversations/x/messages").body
	if strings.Count(page, `"attachment":"`+name+`"`) != len(inline) || strings.Contains(page, data[:100]) {
		t.Errorf("the record: %s", page)
	}
	hash := strings.TrimPrefix(name, "sha256:")
	got := d.get("ann", "/v1/conversations/x/attachments/"+hash)
	if got.status != 200 || got.body != string(picture(1)) || got.header.Get("Content-Type") != "image/png" ||
		got.header.Get("X-Content-Type-Options") != "nosniff" || got.header.Get("ETag") != `"`+hash+`"` {
		t.Errorf("attachment: %d %v, %d bytes", got.status, got.header, len(got.body))
	}
	want(t, d.get("bob", "/v1/conversations/x/attachments/"+hash), 404, "not_found")
	want(t, d.get("ann", "/v1/conversations/x/attachments/"+strings.Repeat("0", 64)), 404, "not_found")
	want(t, d.get("ann", "/v1/conversations/x/attachments/"+strings.ToUpper(hash)), 400, "invalid_parameter")
	for _, format := range providers {
		r := as[fullReply](t, d.get("ann", fullOfX+"&format="+format))
		if why := judge.Check(format, r.Messages, r.System, r.Tools); len(why) > 0 || strings.Count(string(r.Messages), data) != len(inline) {
			t.Errorf("%s: %q, %d pictures", format, why, strings.Count(string(r.Messages), data))
		}
	}
	if r := d.get("ann", fullOfX).body; strings.Count(r, name) != len(inline) {
		t.Errorf("native: %s", r)
	}
	named := `{"messages":[{"role":"user","content":[{"type":"image","media_type":"image/png","attachment":"` + name + `"}]}]}`
	want(t, d.post("ann", turns, named), 201, "")
	want(t, d.post("ann", "/v1/conversations/other/turns", named), 400, "invalid_message")
	want(t, d.send(request{method: "DELETE", path: "/v1/conversations/x", caller: "ann"}), 204, "")
	want(t, d.get("ann", "/v1/conversations/x/attachments/"+hash), 404, "not_found")
}

func TestAnArchiveHoldsTheWholeValue(t *testing.T) {
	d := newDaemon(t, projection.Options{UnknownTools: "keep"})
	for i := range 3 {
		data := base64.StdEncoding.EncodeToString(picture(i % 2))
		want(t, d.post("ann", turns, fmt.Sprintf(`{"messages":[{"role":"user","content":[{"type":"image","media_type":"image/png","data":%q}]},
			{"role":"assistant","content":[{"type":"tool_call","id":"c","name":"f","arguments":{}}]},
			{"role":"tool","content":[{"type":"tool_result","call_id":"c","content":[{"type":"document","media_type":"application/pdf","data":%[1]q,"filename":"a.pdf"}]}]}]}`, data)), 201, "")
	}
	out := d.get("ann", "/v1/conversations/x/export?format=tar")
	want(t, out, 200, "")
	if out.header.Get("Content-Type") != "application/x-tar" || out.header.Get("Content-Disposition") != `attachment; filename="x.tar"` {
		t.Errorf("headers: %v", out.header)
	}
	var names []string
	for r := tar.NewReader(strings.NewReader(out.body)); ; {
		h, err := r.Next()
		if err == io.EOF {
			break
		}
		must(t, err)
		text, err := io.ReadAll(r)
		must(t, err)
		names = append(names, h.Name)
		if hash, ok := strings.CutPrefix(h.Name, "attachments/"); ok && history.AttachmentName(text) != "sha256:"+strings.TrimSuffix(hash, ".png") {
			t.Errorf("%s holds other bytes", h.Name)
		}
		if h.Name == "history.json" && bytes.Contains(text, []byte(`"data"`)) {
			t.Errorf("history.json holds bytes: %s", text)
		}
	}
	if len(names) != 3 || names[0] != "history.json" {
		t.Errorf("entries %q", names)
	}
	tarred := http.Header{"Content-Type": {"application/x-tar"}}
	want(t, d.send(request{method: "POST", path: "/v1/conversations/y/import", caller: "bob", body: out.body, header: tarred}), 201, "")
	native := d.get("ann", "/v1/conversations/x/export").body
	if back := d.get("bob", "/v1/conversations/y/export").body; own.ReplaceAllString(back, "") != own.ReplaceAllString(native, "") {
		t.Errorf("the value changed\n%.3000s\n%.3000s", native, back)
	}
	want(t, d.post("bob", "/v1/conversations/z/import", native), 201, "")
	if back := d.get("bob", "/v1/conversations/z/export?format=tar").body; len(back) != len(d.get("bob", "/v1/conversations/y/export?format=tar").body) {
		t.Error("the two ways give different archives")
	}
	again := d.send(request{method: "POST", path: "/v1/conversations/y/import?mode=append&format=tar", caller: "bob", body: out.body, header: tarred})
	if a := as[importReply](t, again); again.status != 201 || a.Imported != 0 || len(a.Skipped) != 9 {
		t.Errorf("again: %s", again.body)
	}
}

func TestAForkIsAConversationOfItsOwn(t *testing.T) {
	d := newDaemon(t, projection.Options{})
	data := base64.StdEncoding.EncodeToString(picture(1))
	want(t, d.post("ann", turns, `{"messages":[{"role":"user","content":[{"type":"image","media_type":"image/png","data":"`+data+`"}]},{"role":"assistant","content":"a"}]}`), 201, "")
	d.say("ann", "x", "second")
	got := d.post("ann", "/v1/conversations/x/fork", `{"to":"y","through_seq":2}`)
	want(t, got, 201, "")
	if got.body != `{"conversation":"y","forked_from":"x","through_seq":2,"messages":2,"last_seq":2}` || got.header.Get("Location") != "/v1/conversations/y" || got.header.Get("ETag") == "" {
		t.Errorf("%s %v", got.body, got.header)
	}
	x, y := as[pageBody](t, d.get("ann", "/v1/conversations/x/messages")), as[pageBody](t, d.get("ann", "/v1/conversations/y/messages"))
	for i := range y.Data {
		a, err := history.ParseStored(x.Data[i])
		must(t, err)
		b, err := history.ParseStored(y.Data[i])
		must(t, err)
		if b.Forked == nil || *b.Forked != (history.Forked{Conversation: "x", ID: a.ID, Seq: a.Seq}) || a.ID == b.ID || !a.At.Equal(b.At) {
			t.Errorf("%s is a copy of %s", y.Data[i], x.Data[i])
		}
	}
	hash := strings.TrimPrefix(history.AttachmentName(picture(1)), "sha256:")
	want(t, d.send(request{method: "DELETE", path: "/v1/conversations/x", caller: "ann"}), 204, "")
	want(t, d.get("ann", "/v1/conversations/y/attachments/"+hash), 200, "")
	want(t, d.post("ann", "/v1/conversations/x/fork", `{"to":"z"}`), 404, "not_found")
	d.say("ann", "z", "there")
	for _, to := range []string{"z", "y"} {
		got := d.post("ann", "/v1/conversations/y/fork", `{"to":"`+to+`"}`)
		want(t, got, 409, "conversation_not_empty")
		if p := got.problem(t); p.Field != "to" || !strings.Contains(p.Detail, "another name") || strings.Contains(p.Detail, "import") {
			t.Errorf("a fork onto %s: %s", to, got.body)
		}
	}
	want(t, d.post("ann", "/v1/conversations/y/fork", `{"to":"w","through_seq":3}`), 400, "invalid_parameter")
	for body, code := range map[string]string{
		`{}`: "invalid_parameter", `[]`: "invalid_parameter", `{"to":".x"}`: "invalid_conversation", `{"to":1}`: "invalid_conversation",
		`{"to":"w","through_seq":0}`: "invalid_parameter", `{"to":"w","zzz":1}`: "invalid_parameter", `{"TO":"w"}`: "invalid_json",
	} {
		want(t, d.post("ann", "/v1/conversations/y/fork", body), 400, code)
	}
}

func TestARewoundMessageIsInTheRecordAndInNoReplay(t *testing.T) {
	d := newDaemon(t, projection.Options{})
	for _, text := range []string{"one", "two", "three"} {
		d.say("ann", "x", text)
	}
	before := d.get("ann", replayOfX)
	got := d.post("ann", "/v1/conversations/x/rewind", `{"through_seq":2}`)
	want(t, got, 200, "")
	page := as[pageBody](t, d.get("ann", "/v1/conversations/x/messages"))
	last := page.LastSeq
	if got.body != fmt.Sprintf(`{"conversation":"x","through_seq":2,"last_seq":%d}`, last) || got.header.Get("ETag") == before.header.Get("ETag") {
		t.Errorf("%s %v", got.body, got.header)
	}
	for i, raw := range page.Data {
		m, err := history.ParseStored(raw)
		must(t, err)
		if m.Rewound != (i >= 2) {
			t.Errorf("message %d: rewound is %v", m.Seq, m.Rewound)
		}
	}
	after := d.send(request{method: "GET", path: replayOfX, caller: "ann", header: http.Header{"If-None-Match": {before.header.Get("ETag")}}})
	if after.status != 200 || !strings.Contains(after.body, "one") || strings.Contains(after.body, "two") || strings.Contains(after.body, "three") {
		t.Errorf("replay: %d %s", after.status, after.body)
	}
	stale := http.Header{"If-Match": {before.header.Get("ETag")}}
	want(t, d.send(request{method: "POST", path: turns, caller: "ann", body: `{"messages":[{"role":"user","content":"late"}]}`, header: stale}), 412, "precondition_failed")
	want(t, d.send(request{method: "POST", path: "/v1/conversations/x/rewind", caller: "ann", body: `{"through_seq":1}`, header: stale}), 412, "precondition_failed")
	d.say("ann", "x", "four")
	if r := d.get("ann", replayOfX).body; !strings.Contains(r, "four") || strings.Contains(r, "three") {
		t.Errorf("replay: %s", r)
	}
	out := d.get("ann", "/v1/conversations/x/export")
	want(t, d.post("bob", "/v1/conversations/y/import", out.body), 201, "")
	if back := d.get("bob", "/v1/conversations/y/export").body; own.ReplaceAllString(back, "") != own.ReplaceAllString(out.body, "") {
		t.Errorf("the value changed\n%s\n%s", out.body, back)
	}
	if r := d.get("bob", "/v1/conversations/y/replay").body; !strings.Contains(r, "four") || strings.Contains(r, "three") {
		t.Errorf("replay of the copy: %s", r)
	}
	if list := d.get("ann", "/v1/conversations/x/export?format=openai").body; strings.Contains(list, "three") || !strings.Contains(list, "four") {
		t.Errorf("openai: %s", list)
	}
	stands := d.get("ann", "/v1/conversations/x/messages").body
	for _, through := range []int{3, 6} {
		got := d.post("ann", "/v1/conversations/x/rewind", fmt.Sprintf(`{"through_seq":%d}`, through))
		want(t, got, 400, "invalid_parameter")
		if p := got.problem(t); p.Field != "through_seq" || !strings.Contains(p.Detail, "rewound already") {
			t.Errorf("a rewind to a message that is rewound: %s", got.body)
		}
	}
	if now := d.get("ann", "/v1/conversations/x/messages").body; now != stands {
		t.Errorf("refused rewinds changed the record from %s to %s", stands, now)
	}
	for body, code := range map[string]string{
		`{}`: "invalid_parameter", `{"through_seq":-1}`: "invalid_parameter", `{"through_seq":99}`: "invalid_parameter",
		`{"through_seq":"1"}`: "invalid_parameter", `{"through_seq":1,"to":"y"}`: "invalid_parameter",
	} {
		want(t, d.post("ann", "/v1/conversations/x/rewind", body), 400, code)
	}
	want(t, d.post("ann", "/v1/conversations/none/rewind", `{"through_seq":0}`), 404, "not_found")
}
