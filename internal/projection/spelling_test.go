package projection

import (
	"runtime"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// taken returns how many bytes were asked of memory by do.
func taken(do func()) float64 {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	do()
	runtime.ReadMemStats(&after)
	return float64(after.TotalAlloc - before.TotalAlloc)
}

// TestEachByteOfASpellingComesFromItsPlace compares with a list of the places of all bytes.
func TestEachByteOfASpellingComesFromItsPlace(t *testing.T) {
	pieces := []string{"a", "é", `\n`, `\\`, `\\n`, `\\\\n`, `\u00e9`, `\ud83c\udf89`, `\xe9`, "%c3%a9", "%5c", "+", `\`, "%", strings.Repeat("x", stride), strings.Repeat("y", stride-1)}
	rapid.Check(t, func(t *rapid.T) {
		text := strings.Join(rapid.SliceOfN(rapid.SampledFrom(pieces), 0, 40).Draw(t, "text"), "")
		yielded := 0
		for s := range spelled(text) {
			yielded++
			if yielded > 1 && s.text == text {
				t.Errorf("%q is spelled as it is, once more", text)
			}
			if got := s.at(len(s.text)); got != len(text) {
				t.Errorf("%q of %q ends at %d, want %d", s.text, text, got, len(text))
			}
		}
		for _, escapes := range spellings {
			plain, from := text, []int(nil)
			for i := range len(text) + 1 {
				from = append(from, i)
			}
			s := &spelling{text: text}
			for _, e := range escapes {
				plain, from = undone(plain, from, e)
				s, _ = s.undo(e)
			}
			if s.text != plain {
				t.Fatalf("%q is spelled %q, want %q", text, s.text, plain)
			}
			for i, want := range from {
				if got := s.at(i); got != want {
					t.Fatalf("byte %d of %q comes from %d of %q, want %d", i, s.text, got, text, want)
				}
			}
		}
	})
}

// undone is undo in plain.
func undone(text string, from []int, e escape) (string, []int) {
	var plain []byte
	var places []int
	for i := 0; i < len(text); {
		n := 0
		if strings.IndexByte(e.marks, text[i]) >= 0 {
			plain, n = e.undo(plain, text[i:])
		}
		if n == 0 {
			plain, n = append(plain, text[i]), 1
		}
		for len(places) < len(plain) {
			places = append(places, from[i])
		}
		i += n
	}
	return string(plain), append(places, from[len(text)])
}

// A long text with one escape in it, and each of its spellings, are in memory at once.
func TestASpellingTakesLittleMoreThanItsText(t *testing.T) {
	text := strings.Repeat("x", 1<<20) + `\n`
	got := taken(func() { (&spelling{text: text}).undo(jsonEscape) }) / float64(len(text))
	if got > 3 {
		t.Errorf("it takes %.1f times the text", got)
	}
}
