package wire

import (
	"fmt"
	"strings"
	"testing"
)

// TestDocumentsStandWhereTheyAreTaken has documents of all kinds, said by a user and as what a tool gave.
func TestDocumentsStandWhereTheyAreTaken(t *testing.T) {
	for name, document := range map[string]string{
		"a PDF":                  `"media_type":"application/pdf","data":"JVBERi0="`,
		"a PDF of no type":       `"data":"JVBERi0="`,
		"a text":                 `"media_type":"text/plain","data":"aGk="`,
		"a text of another kind": `"media_type":"text/markdown","data":"aGk=","filename":"a.md"`,
		"a text of no type":      `"data":"aGk="`,
		"a program":              `"media_type":"application/x-sh","data":"aGk="`,
		"a sheet":                `"media_type":"application/vnd.openxmlformats-officedocument.spreadsheetml.sheet","data":"AAAA"`,
		"a video":                `"media_type":"video/mp4","data":"AAAA"`,
		"a video by its URL":     `"media_type":"video/mp4","url":"https://e.example/v"`,
		"bytes of no type":       `"data":"AAAA"`,
	} {
		block := `{"type":"document",` + document + `}`
		native := fmt.Sprintf(`{"role":"user","content":[%s]},%s,{"role":"tool","content":[{"type":"tool_result","call_id":"c","content":[%[1]s]}]}`, block, callC)
		for _, f := range providerFormats() {
			s := Show{Added: []Declaration{{Name: "f"}}}
			if out := shown(t, f, s, native); strings.Contains(string(out.Messages), "video/mp4") && f != Gemini {
				t.Errorf("%s in %s: %s", name, f, out.Messages)
			}
		}
	}
}
