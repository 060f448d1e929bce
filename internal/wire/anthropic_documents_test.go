package wire

import (
	"fmt"
	"strings"
	"testing"
)

func TestATitleIsCutWhereItsProviderWantsThat(t *testing.T) {
	const pdf = `{"type":"document","media_type":"application/pdf","data":"JVBERi0=","filename":"%s"}`
	for n, want := range map[int]int{500: 500, 501: 500} {
		out := shown(t, Anthropic, Show{}, `{"role":"user","content":[`+fmt.Sprintf(pdf, strings.Repeat("é", n))+`]}`)
		if got := strings.Count(string(out.Messages), "é"); got != want {
			t.Errorf("of a name of %d characters there are %d, want %d", n, got, want)
		}
	}
	for title, withheld := range map[string]int64{`""`: 1, `"t"`: 0, `null`: 0, `"` + strings.Repeat("é", 501) + `"`: 1} {
		out := shown(t, Anthropic, Show{}, saidX+`,{"role":"user","content":[{"type":"opaque","provider":"anthropic","data":{"type":"document","source":{"type":"file","file_id":"f"},"title":`+title+`}}]}`)
		if out.Report.WithheldOpaque != withheld {
			t.Errorf("title %.20s: %d blocks are withheld, want %d", title, out.Report.WithheldOpaque, withheld)
		}
	}
}

func TestDocumentsOfTheProviderCountAmongImages(t *testing.T) {
	const file = `{"type":"opaque","provider":"anthropic","data":{"type":"document","source":{"type":"file","file_id":"f"}}}`
	image := `{"type":"image","url":"https://e.example/i"}`
	for name, blocks := range map[string]string{
		"documents":            strings.Repeat(file+",", 101),
		"images and documents": strings.Repeat(image+","+file+",", 60),
		"images, then one":     strings.Repeat(image+",", 100) + file + ",",
	} {
		blocks = strings.TrimSuffix(blocks, ",")
		out := shown(t, Anthropic, Show{Added: []Declaration{{Name: "f"}}}, `{"role":"user","content":[{"type":"text","text":"x"},`+blocks+`]},`+callC+`,{"role":"tool","content":[{"type":"tool_result","call_id":"c","content":[`+blocks+`]}]}`+`,`+saidX)
		if n := strings.Count(string(out.Messages), `"source"`); n == 0 || n > maxMedia {
			t.Errorf("%s: %d are shown", name, n)
		}
	}
}
