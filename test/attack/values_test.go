package attack

import (
	"fmt"
	"strings"
)

// marker is in all that is refused, so that an answer which repeats any of it is found.
const marker = "zqmark"

// A value is what is put in a place where a client may write JSON.
type value struct {
	name, text string
	valid      bool // strict JSON that any JSON value may be
	large      bool // it is put in few places
}

// broken is no JSON, or none that two readers would read alike. All are refused wherever they stand.
func broken() (list []value) {
	add := func(name, text string) { list = append(list, value{name: name, text: text}) }
	for i, object := range []string{
		`{"zqmark":1,"zqmark":2}`, `{"zqmark":1,"\u007aqmark":2}`, `{"zqmark":1,"zqmar\u006B":2}`, `{"a":{"zqmark":1,"b":[],"zqmark":1}}`, `[{"":1,"":"zqmark"}]`,
		`{"\ud83d\ude00":"zqmark","😀":2}`, `{"/":1,"\/":"zqmark"}`, `{"\u00e9":"zqmark","é":1}`, `{"zqmark":1,"__proto__":2,"__proto__":{}}`,
	} {
		add(fmt.Sprint("a duplicate name ", i), object)
	}
	for i, text := range []string{
		`\ud800`, `\udc00`, `\ud800\ud800`, `\udc00\ud800`, `\ud800x\udc00`, `\uD83D`, `\ud83d\u0041`, `\u123`, `\u`, `\uZZZZ`, `\x41`, `\`, `\0`, `\'`, `\a`, `\U0001F600`, `\u{1F600}`,
	} {
		add(fmt.Sprint("an escape that is none ", i), `"zqmark`+text+`"`)
		add(fmt.Sprint("a name with an escape that is none ", i), `{"zqmark`+text+`":1}`)
	}
	for i, text := range []string{
		"\xff", "\xfe\xff", "\x80", "\xc0\xaf", "\xc1\xbf", "\xe0\x80\xaf", "\xf0\x80\x80\xaf", "\xed\xa0\x80", "\xed\xbf\xbf", "\xed\xa0\xbd\xed\xb8\x80",
		"\xf4\x90\x80\x80", "\xf8\x88\x80\x80\x80", "\xc3", "\xe2\x82", "\xf0\x9f\x98", "\xc0\x80", "\xa0", "\xe9",
	} {
		add(fmt.Sprint("no UTF-8 ", i), `"zqmark`+text+`"`)
		add(fmt.Sprint("a name in no UTF-8 ", i), `{"`+text+`zqmark":1}`)
	}
	for i := range 0x20 {
		add(fmt.Sprintf("a bare control character %02x", i), `"zqmark`+string(rune(i))+`"`)
	}
	for _, number := range []string{
		"NaN", "-NaN", "Infinity", "-Infinity", "+1", "01", "-01", "1.", ".5", "-.5", "1e", "1e+", "1.e1", "0x42424242", "0b1", "0o7", "1_000", "--1", "-", "1,000", "4242424242n", "1e1.5", "1f",
		"1e400e1", "٣", "１", "1/2", "∞", strings.Repeat("4", 65), "-" + strings.Repeat("4", 64), "0." + strings.Repeat("42424242", 9), "1e" + strings.Repeat("0", 63),
	} {
		add("the number "+number[:min(len(number), 12)], number)
	}
	for _, word := range []string{
		"True", "nul", "nulll", "undefined", "None", "zqmark", "'zqmark'", "`zqmark`", `zqmark"`, `"zqmark`, `"zq" "mark"`, `"zq"+"mark"`, "/*zqmark*/1", "1/*zqmark*/", "//zqmark\n1", "#zqmark\n1",
		`["zqmark",]`, `[,"zqmark"]`, `["zqmark",,1]`, `["zqmark" 1]`, `["zqmark"`, `"zqmark"]`, `{"zqmark":1,}`, `{,"zqmark":1}`, `{"zqmark":1,,"a":1}`, `{zqmark:1}`, `{'zqmark':1}`, `{"zqmark" 1}`, `{"zqmark":}`, `{"zqmark"}`, `{:1}`,
		`{"zqmark":1`, `{"a":1 "zqmark":2}`, `{1:"zqmark"}`, `{null:"zqmark"}`, `["zqmark"}`, `{"zqmark":1]`, `<zqmark/>`, `!!binary zqmark`, `new Date()`, `function(){}`, `[1..2]`, `...`, "\v1", "\f1", "\u00a01", "\u20281", "\ufeff1", "1\x00", "\x001", "\x1b[2J1",
		`{"zqmark":1}{"zqmark":2}`, `1 2`, `[] []`, `null null`, `"a""zqmark"`, `-0 1`, `=1`, `$ref`, `@1`,
	} {
		add("the text "+fmt.Sprintf("%q", word[:min(len(word), 12)]), word)
	}
	add("nested 65 deep", strings.Repeat("[", 65)+strings.Repeat("]", 65))
	add("objects 65 deep", strings.Repeat(`{"a":`, 65)+`"zqmark"`+strings.Repeat("}", 65))
	add("nested 1,000 deep", strings.Repeat("[", 1000)+strings.Repeat("]", 1000))
	add("nested 10,000 deep, never closed", strings.Repeat(`[{"zqmark":`, 5000))
	list = append(list,
		value{name: "nested 100,000 deep", text: strings.Repeat("[", 100_000) + strings.Repeat("]", 100_000), large: true},
		value{name: "nested 1,000,000 deep", text: strings.Repeat("[", 1_000_000), large: true},
		value{name: "objects 100,000 deep", text: strings.Repeat(`{"zqmark":`, 100_000), large: true},
		value{name: "a digit a million times", text: strings.Repeat("4", 1_000_000), large: true},
		value{name: "a duplicate behind 100,000 members", text: `{"m99999":"zqmark",` + members(100_000) + `}`, large: true},
		value{name: "a name of a megabyte twice", text: `{"` + strings.Repeat("k", 1<<20) + `":1,"` + strings.Repeat("k", 1<<20) + `":2}`, large: true},
	)
	return list
}

func members(n int) string {
	var b strings.Builder
	for i := range n {
		if i > 0 {
			b.WriteByte(',')
		}
		fmt.Fprintf(&b, `"m%d":%d`, i, i)
	}
	return b.String()
}

// odd is strict JSON that is easily read as something else, or stored as something else.
func odd() (list []value) {
	for _, text := range []string{
		`null`, `true`, `false`, `0`, `-0`, `-0.0`, `0e0`, `1`, `-1`, `1.5`, `1e999`, `-1e999`, `1e-999`, `1E+2`, `1E400`, `123456789012345678901234567890`, `9007199254740993`, `1.0000000000000000000000000000000001`,
		`18446744073709551616`, `-9223372036854775809`, `0.1e1`, `1.10`, `1e0000000000000001`, strings.Repeat("4", 64),
		`""`, `"zqmark"`, `" "`, `"\u0000"`, `"\u0000zqmark"`, `"\ud83d\ude00"`, `"😀"`, `"\u2028\u2029"`, `"\u202ezqmark\u2066"`, `"\u007f\u0085\u009b2J"`, `"\u001b[31mzqmark"`, `"\b\f\n\r\t\/\\\""`, `"\ufeffzqmark"`, `"\uFFFD\uFFFE\uFFFF"`,
		`"e\u0301 \u00e9"`, `"\u200b\u200d\u00ad"`, `"<script>zqmark</script>"`, `"]]>--></title>"`, `"data:,zqmark"`, `"../../zqmark"`, `"/etc/passwd"`, `"file:///etc/passwd"`, `"%00zqmark"`, `"%s%n%x"`, `"${zqmark}"`, `"{{zqmark}}"`, `"'; drop table zqmark; --"`,
		`"[withheld: wallet]"`, `"12"`, `"true"`, `"null"`, `"1e999"`, `"NaN"`,
		`[]`, `[[]]`, `[null]`, `[[],{}]`, `["zqmark",1]`, `{}`, `{"":""}`, `{"":{"":{}}}`, `{"zqmark":{}}`, `{"__proto__":{"zqmark":true}}`, `{"constructor":{"prototype":{"zqmark":1}}}`, `{"toString":"zqmark","hasOwnProperty":null}`, `{"$ref":"#zqmark"}`, `{"\u0000":"zqmark"}`, `{"zqmark":1,"ZQMARK":2,"Zqmark":3}`,
		`{"e\u0301":1,"\u00e9":2}`, `{"K":"zqmark","\u212a":2}`, `{"ı":1,"i":2,"I":3,"İ":"zqmark"}`, `{"b":1,"a":2}`, `{ "zqmark" : [ 1 , 2 ] , "a":	null }`, `{"_withheld":"zqmark"}`, `{"type":"text","text":"zqmark"}`, `{"id":"zqmark","seq":1,"at":"1970-01-01T00:00:00Z"}`, `{"\u0061":1,"b":"\u0061"}`,
		strings.Repeat("[", 55) + strings.Repeat("]", 55), strings.Repeat(`{"a":`, 55) + `1` + strings.Repeat("}", 55),
	} {
		list = append(list, value{name: fmt.Sprintf("%q", text[:min(len(text), 24)]), text: text, valid: true})
	}
	return append(list,
		value{name: "10,000 members", text: `{` + members(10_000) + `}`, valid: true, large: true},
		value{name: "a name of 100,000 bytes", text: `{"` + strings.Repeat("k", 100_000) + `":1}`, valid: true, large: true},
		value{name: "a text of a megabyte", text: `"` + strings.Repeat("zqmark ", 150_000) + `"`, valid: true, large: true},
		value{name: "100,000 elements", text: `[` + strings.Repeat("0,", 99_999) + `0]`, valid: true, large: true},
		value{name: "a megabyte of escapes", text: `"` + strings.Repeat(`\u0000`, 170_000) + `"`, valid: true, large: true},
	)
}

// A place is where a value is put: a route, and a body with a HOLE in it.
type place struct {
	name, path, body string
	any              bool   // it takes any JSON value, which comes back to the byte
	stored           string // what stands before the value in the record
}

func (p place) with(v value) []byte { return []byte(strings.Replace(p.body, "HOLE", v.text, 1)) }

// places are the members of all bodies that there are.
func places() (list []place) {
	add := func(name, path string, bodies ...string) {
		for _, body := range bodies {
			list = append(list, place{name: fmt.Sprintf("%s %s", name, body[:min(len(body), 400)]), path: path, body: body})
		}
	}
	const user = `{"role":"user","content":"x"}`
	for _, p := range []place{
		{path: "turns", stored: `"zqhole":`, body: `{"messages":[{"role":"user","content":"x","zqhole":HOLE}]}`},
		{path: "turns", stored: `"zqhole":`, body: `{"messages":[{"role":"user","content":[{"type":"text","text":"x","zqhole":HOLE}]}]}`},
		{path: "turns", stored: `"zqhole":`, body: `{"messages":[{"role":"user","content":"x","metadata":{"zqhole":HOLE}}]}`},
		{path: "turns", stored: `"arguments":`, body: `{"messages":[{"role":"assistant","content":[{"type":"tool_call","id":"c","name":"n","arguments":HOLE}]}],"tool_categories":{"*":"general"}}`},
		{path: "turns", stored: `"data":`, body: `{"messages":[{"role":"assistant","content":[{"type":"opaque","provider":"p","data":HOLE}]}]}`},
		{path: "turns?format=openai", stored: `"zqhole":`, body: `{"messages":[{"role":"user","content":"x","zqhole":HOLE}]}`},
		{path: "turns?format=anthropic", stored: `"zqhole":`, body: `{"messages":[{"role":"user","content":"x","zqhole":HOLE}]}`},
		{path: "turns?format=gemini", stored: `"zqhole":`, body: `{"messages":[{"role":"user","parts":[{"text":"x","zqhole":HOLE}]}]}`},
		{path: "turns?format=responses", stored: `"zqhole":`, body: `{"messages":[{"type":"message","role":"user","content":"x","zqhole":HOLE}]}`},
	} {
		p.name, p.any = p.path+" "+p.body, true
		list = append(list, p)
	}
	add("turns", "turns", `HOLE`, `{"messages":HOLE}`, `{"messages":[HOLE]}`, `{"messages":[`+user+`,HOLE]}`, `{"messages":[`+user+`],"zqmark":HOLE}`)
	for _, member := range []string{"tool_categories", "model", "provider", "caller", "kind", "user", "workspace", "permission_scope", "conversation", "Messages", "idempotency_key"} {
		add("turns", "turns", `{"messages":[`+user+`],"`+member+`":HOLE}`)
	}
	add("turns", "turns", `{"messages":[`+user+`],"tool_categories":{"zqmark":HOLE}}`)
	for _, member := range []string{
		"role", "content", "Role", "kind", "id", "seq", "at", "model", "provider", "status", "usage", "metadata", "client_id", "extra", "imported", "synthetic", "forked_from", "rewound", "tz_assumed",
		"caller", "workspace", "permission_scope", "scope", "redacted", "truncated", "tool_calls", "__proto__",
	} {
		add("turns", "turns", `{"messages":[`+strings.Replace(`{"role":"user","content":"x","`+member+`":HOLE}`, map[string]string{"role": `"role":"user",`, "content": `"content":"x",`}[member], "", 1)+`]}`)
	}
	block := func(role, rest string) string {
		return `{"messages":[{"role":"` + role + `","content":[` + rest + `]}],"tool_categories":{"*":"general"}}`
	}
	add("turns", "turns",
		block("user", `HOLE`), block("user", `{"type":HOLE,"text":"x"}`), block("user", `{"type":"text","text":HOLE}`),
		block("assistant", `{"type":"tool_call","id":HOLE,"name":"n","arguments":{}}`), block("assistant", `{"type":"tool_call","id":"c","name":HOLE,"arguments":{}}`),
		block("assistant", `{"type":"tool_call","id":"c","name":"n","arguments_text":HOLE}`), block("assistant", `{"type":"tool_call","id":"c","name":"n","arguments":{},"signature":HOLE}`), block("assistant", `{"type":"tool_call","id":"c","name":"n","arguments":{},"redacted":HOLE}`),
		block("tool", `{"type":"tool_result","call_id":HOLE,"content":"x"}`), block("tool", `{"type":"tool_result","call_id":"c","content":HOLE}`), block("tool", `{"type":"tool_result","call_id":"c","content":[HOLE]}`), block("tool", `{"type":"tool_result","call_id":"c","content":"x","is_error":HOLE}`), block("tool", `{"type":"tool_result","call_id":"c","content":"x","truncated":HOLE}`),
		block("assistant", `{"type":"thinking","text":HOLE}`), block("assistant", `{"type":"thinking","text":"x","signature":HOLE}`), block("assistant", `{"type":"thinking","text":"x","encrypted":HOLE}`), block("assistant", `{"type":"opaque","provider":HOLE,"data":1}`),
	)
	for _, member := range []string{"media_type", "data", "url", "attachment", "filename"} {
		body := block("user", `{"type":"image","media_type":"image/png","data":"iVBORw0K","`+member+`":HOLE}`)
		body = strings.Replace(body, map[string]string{"media_type": `"media_type":"image/png",`, "data": `"data":"iVBORw0K",`, "url": `"data":"iVBORw0K",`, "attachment": `"data":"iVBORw0K",`}[member], "", 1)
		add("turns", "turns", body)
	}
	return append(list, placesElsewhere(user)...)
}

// placesElsewhere are those of other formats and of other routes.
func placesElsewhere(user string) (list []place) {
	add := func(path string, bodies ...string) {
		for _, body := range bodies {
			list = append(list, place{name: path + " " + body, path: path, body: body})
		}
	}
	add("turns?format=openai", `{"messages":[{"role":"user","content":HOLE}]}`, `{"messages":[{"role":HOLE,"content":"x"}]}`, `{"messages":[{"role":"user","content":[HOLE]}]}`, `{"messages":[{"role":"assistant","tool_calls":HOLE}]}`, `{"messages":[{"role":"assistant","tool_calls":[HOLE]}]}`,
		`{"messages":[{"role":"assistant","tool_calls":[{"id":"c","type":"function","function":HOLE}]}]}`, `{"messages":[{"role":"assistant","tool_calls":[{"id":"c","type":"function","function":{"name":"n","arguments":HOLE}}]}]}`, `{"messages":[{"role":"tool","tool_call_id":HOLE,"content":"x"}]}`,
		`{"messages":[{"role":"user","content":[{"type":"image_url","image_url":HOLE}]}]}`, `{"messages":[{"role":"user","content":[{"type":"image_url","image_url":{"url":HOLE}}]}]}`)
	add("turns?format=anthropic", `{"messages":[{"role":"user","content":HOLE}]}`, `{"messages":[{"role":"user","content":[HOLE]}]}`, `{"messages":[{"role":"assistant","content":[{"type":"tool_use","id":"c","name":"n","input":HOLE}]}]}`, `{"messages":[{"role":"user","content":[{"type":"tool_result","tool_use_id":"c","content":HOLE}]}]}`,
		`{"messages":[{"role":"user","content":[{"type":"image","source":HOLE}]}]}`)
	add("turns?format=responses", `{"messages":HOLE}`, `{"messages":[HOLE]}`, `{"messages":[{"type":"function_call","call_id":"c","name":"n","arguments":HOLE}]}`, `{"messages":[{"type":"function_call_output","call_id":"c","output":HOLE}]}`, `{"messages":[{"type":"reasoning","summary":HOLE}]}`)
	add("turns?format=gemini", `{"messages":[{"role":"user","parts":HOLE}]}`, `{"messages":[{"role":"user","parts":[HOLE]}]}`, `{"messages":[{"role":"model","parts":[{"functionCall":{"name":"n","args":HOLE}}]}]}`, `{"messages":[{"role":"user","parts":[{"functionResponse":{"name":"n","response":HOLE}}]}]}`, `{"messages":[{"role":"user","parts":[{"inlineData":HOLE}]}]}`)
	const head = `{"version":1,"type":"historyd.history",`
	add("import?mode=replace", `HOLE`, `[HOLE]`, head+`"messages":HOLE}`, head+`"messages":[HOLE]}`, head+`"messages":[`+user+`],"conversation":HOLE}`, head+`"messages":[`+user+`],"created_at":HOLE}`, head+`"messages":[`+user+`],"summary":HOLE}`, head+`"messages":[`+user+`],"tool_categories":HOLE}`, head+`"messages":[`+user+`],"damaged":HOLE}`, head+`"messages":[`+user+`],"caller":HOLE}`,
		`{"version":HOLE,"type":"historyd.history","messages":[`+user+`]}`, `{"version":1,"type":HOLE,"messages":[`+user+`]}`)
	for _, member := range []string{"id", "seq", "at", "redacted", "imported", "rewound", "forked_from", "caller", "synthetic", "metadata", "zqmark"} {
		add("import?mode=replace", head+`"messages":[{"role":"user","content":"x","`+member+`":HOLE}]}`)
	}
	for _, format := range []string{"openai", "anthropic", "responses", "gemini"} {
		add("import?mode=replace&format="+format, `HOLE`, `[HOLE]`)
	}
	add("replay", `HOLE`, `{"zqmark":HOLE}`)
	for _, member := range []string{"mode", "format", "max_tokens", "tools", "granted", "role", "recall", "model", "provider", "Mode", "caller"} {
		add("replay", `{"`+member+`":HOLE}`)
	}
	add("replay?mode=full&format=openai", `{"tools":[HOLE]}`, `{"tools":[{"type":"function","function":HOLE}]}`, `{"tools":[{"type":"function","function":{"name":HOLE}}]}`, `{"granted":[HOLE]}`, `{"recall":{"query":HOLE}}`, `{"recall":{"store":HOLE}}`)
	add("replay?mode=full&format=anthropic", `{"tools":[HOLE]}`, `{"tools":[{"name":HOLE}]}`)
	add("replay?mode=full&format=gemini", `{"tools":[HOLE]}`)
	add("recall", `HOLE`, `{"query":HOLE}`, `{"store":HOLE}`, `{"query":"x","store":HOLE}`, `{"zqmark":HOLE}`, `{"Query":HOLE}`)
	add("fork", `HOLE`, `{"to":HOLE}`, `{"to":"copy","through_seq":HOLE}`, `{"to":"copy","zqmark":HOLE}`, `{"To":HOLE}`)
	add("rewind", `HOLE`, `{"through_seq":HOLE}`, `{"zqmark":HOLE}`)
	return list
}
