package projection

import (
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/tiktoken-go/tokenizer"

	"historyd/internal/history"
	"historyd/test/samples"
)

// What an estimate may be of the larger oracle, for texts of at least leastTokens.
const (
	leastShare  = 0.8
	mostShare   = 1.35
	leastTokens = 200
)

// oracle counts with real vocabularies.
type oracle []tokenizer.Codec

func newOracle(t *testing.T) (o oracle) {
	t.Helper()
	for _, name := range []tokenizer.Encoding{tokenizer.O200kBase, tokenizer.Cl100kBase} {
		c, err := tokenizer.Get(name)
		if err != nil {
			t.Fatal(err)
		}
		o = append(o, c)
	}
	return o
}

// count returns the larger count.
func (o oracle) count(t *testing.T, text string) int64 {
	t.Helper()
	most := 0
	for _, c := range o {
		n, err := c.Count(text)
		if err != nil {
			t.Fatal(err)
		}
		most = max(most, n)
	}
	return int64(most)
}

// hold checks one text, and returns the estimate's share of the oracle's count.
func (o oracle) hold(t *testing.T, name, text string) (share float64, long bool) {
	t.Helper()
	want := o.count(t, text)
	if want < leastTokens {
		return 0, false
	}
	share = float64(EstimateText(text)) / float64(want)
	if share < leastShare || share > mostShare {
		t.Errorf("%s: estimate %d is %.2f of %d tokens", name, EstimateText(text), share, want)
	}
	return share, true
}

// texts returns prose, code and data of many kinds.
func texts(t testing.TB) map[string]string {
	t.Helper()
	all := made()
	names, err := filepath.Glob(filepath.Join("testdata", "tokens", "*.txt"))
	if err != nil || len(names) == 0 {
		t.Fatalf("no texts: %v", err)
	}
	for _, name := range names {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		all[strings.TrimSuffix(filepath.Base(name), ".txt")] = string(text)
	}
	return all
}

// made returns texts of random data, the same each time.
func made() map[string]string {
	rng := rand.New(rand.NewPCG(1, 2))
	random := func(n int) []byte {
		b := make([]byte, n)
		for i := range b {
			b[i] = byte(rng.Uint32())
		}
		return b
	}
	all := map[string]string{
		"base64":      base64.StdEncoding.EncodeToString(random(600)),
		"base64 urls": base64.RawURLEncoding.EncodeToString(random(600)),
		"hex":         hex.EncodeToString(random(600)),
		"capital hex": strings.ToUpper(hex.EncodeToString(random(600))),
		"smileys":     strings.Repeat("😀🎉🚀🐶🍕", 60),
		"rare han":    strings.Repeat("𠀀𠀁㐀㐁", 60),
		"urls":        strings.Repeat("https://www.example.com/shop/items/view?id=5512&ref=newsletter_2031 ", 15),
		"escapes":     strings.Repeat(`\n\t\"name\": \"value\", \u4e2d\u6587 `, 20),
		"rules":       strings.Repeat(strings.Repeat("-", 50)+"\n", 120),
		"indented":    strings.Repeat(strings.Repeat(" ", 40)+"x\n", 80),
		"lines":       strings.Repeat("a\n\n\nb\n", 100),
	}
	var numbers, floats, table, uuids strings.Builder
	for range 120 {
		fmt.Fprintf(&numbers, "%d ", rng.IntN(1_000_000_000))
		fmt.Fprintf(&floats, "%.4f,", rng.Float64()*100)
		fmt.Fprintf(&table, "%d,2031-%02d-%02d,%d.%02d,Item %d\n", rng.IntN(10000), 1+rng.IntN(12), 1+rng.IntN(28), rng.IntN(1000), rng.IntN(100), rng.IntN(50))
		x := hex.EncodeToString(random(16))
		fmt.Fprintf(&uuids, "%s-%s-%s-%s-%s\n", x[:8], x[8:12], x[12:16], x[16:20], x[20:])
	}
	all["numbers"], all["floats"], all["table"], all["uuids"] = numbers.String(), floats.String(), table.String(), uuids.String()
	return all
}

func TestEstimatesKeepToTheVocabularies(t *testing.T) {
	o, all := newOracle(t), texts(t)
	least, most := 9.0, 0.0
	for _, name := range slices.Sorted(maps.Keys(all)) {
		share, long := o.hold(t, name, all[name])
		if !long {
			t.Errorf("%s: has less than %d tokens", name, leastTokens)
		}
		least, most = min(least, share), max(most, share)
	}
	t.Logf("%d texts: %.2f to %.2f of the larger vocabulary's count", len(all), least, most)
}

// Ideographs must not count as letters do.
func TestAThousandIdeographsAreAtLeast700Tokens(t *testing.T) {
	all := texts(t)
	for _, name := range []string{"chinese", "traditional", "japanese", "korean", "rare han"} {
		signs := slices.DeleteFunc([]rune(all[name]), func(r rune) bool { return r < 0x1100 })
		for len(signs) < 1000 {
			signs = append(signs, signs...)
		}
		if got := EstimateText(string(signs[:1000])); got < 700 {
			t.Errorf("%s: %d tokens for 1000 characters", name, got)
		}
	}
}

// Texts of real conversations, and the calls in them, one by one and as a whole.
func TestEstimatesHoldForRealConversations(t *testing.T) {
	o, all, estimated, counted := newOracle(t), []float64(nil), int64(0), int64(0)
	for _, line := range samples.Need(t) {
		var conversation struct {
			Messages []struct {
				Content   string
				ToolCalls []struct {
					Function struct{ Name, Arguments string }
				} `json:"tool_calls"`
			}
		}
		if err := json.Unmarshal(line, &conversation); err != nil {
			t.Fatal(err)
		}
		var whole strings.Builder
		for _, m := range conversation.Messages {
			texts := []string{m.Content}
			for _, c := range m.ToolCalls {
				texts = append(texts, c.Function.Name+c.Function.Arguments)
			}
			for _, text := range texts {
				whole.WriteString(text)
				if share, long := o.hold(t, "a message", text); long {
					all = append(all, share)
				}
			}
		}
		o.hold(t, "a conversation", whole.String())
		estimated, counted = estimated+EstimateText(whole.String()), counted+o.count(t, whole.String())
	}
	if len(all) == 0 {
		t.Fatal("no message was held")
	}
	slices.Sort(all)
	at := func(percent int) float64 { return all[(len(all)-1)*percent/100] }
	t.Logf("%d messages: %.2f to %.2f of the larger vocabulary's count, nine in ten from %.2f to %.2f, the median %.2f", len(all), all[0], at(100), at(5), at(95), at(50))
	t.Logf("all together: %d of %d tokens, %.3f", estimated, counted, float64(estimated)/float64(counted))
}

func TestDeclarationsAreEstimatedByTheirText(t *testing.T) {
	raw := []byte(texts(t)["json_pretty"])
	if got, want := EstimateJSON(raw), newOracle(t).count(t, string(raw)); float64(got) < leastShare*float64(want) || float64(got) > mostShare*float64(want) {
		t.Errorf("%d tokens, the oracle says %d", got, want)
	}
	if got := EstimateJSON(nil); got != 0 {
		t.Errorf("nothing is %d tokens", got)
	}
}

// The estimator must not cost more than one that looks at characters alone, by how many
// letters go to a token.
func BenchmarkEstimate(b *testing.B) {
	all := texts(b)
	characters := func(s string) (n int64) {
		for _, r := range s {
			switch {
			case r < 0x80 && (r <= ' ' || '0' <= r && r <= '9' || 'A' <= r && r <= 'Z' || 'a' <= r && r <= 'z'):
				n++
			case r < 0x1100:
				n += 2
			default:
				n += 4
			}
		}
		return (n + 3) / 4
	}
	for _, name := range []string{"english", "json", "chinese", "base64"} {
		m := history.Message{Content: []history.Block{history.Text(strings.Repeat(all[name], 20))}}
		for how, estimate := range map[string]func() int64{
			"runs":       func() int64 { return EstimateTokens(&m) },
			"characters": func() int64 { return characters(m.Content[0].Text) },
		} {
			b.Run(name+"/"+how, func(b *testing.B) {
				b.SetBytes(int64(len(m.Content[0].Text)))
				b.ReportAllocs()
				for b.Loop() {
					estimate()
				}
			})
		}
	}
}
