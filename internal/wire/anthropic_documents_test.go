package wire

import (
	"encoding/base64"
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

// One image that is refused has the whole request refused, and each one after it.
func TestADocumentWithAnImageThatIsRefusedStaysAway(t *testing.T) {
	fits, wide := imageOf(t, "image/png", manySide, 1), imageOf(t, "image/png", 1, manySide+1)
	fit := base64.StdEncoding.EncodeToString(fits.Data)
	for _, tt := range []struct {
		name, data string
		withheld   int64
	}{
		{"as wide as may be", fit, 0},
		{"too wide", base64.StdEncoding.EncodeToString(wide.Data), 1},
		{"with the end of a line", fit[:8] + `\n` + fit[8:], 1},
		{"with bits behind its end", "AB==", 1},
		{"of broken base64", "A", 1},
	} {
		out := shown(t, Anthropic, Show{}, saidX+`,{"role":"user","content":[{"type":"opaque","provider":"anthropic","data":{"type":"document","source":{"type":"content","content":[`+
			`{"type":"image","source":{"type":"base64","media_type":"image/png","data":"`+tt.data+`"}}]}}}]}`)
		if out.Report.WithheldOpaque != tt.withheld {
			t.Errorf("%s: %d blocks are withheld, want %d", tt.name, out.Report.WithheldOpaque, tt.withheld)
		}
	}
}
