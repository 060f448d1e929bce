package store

import (
	"encoding/json/v2"
	"testing"

	"pgregory.net/rapid"
)

// TestASummaryIsWrittenAsItIsRead compares what is written member by member with what the tags say.
func TestASummaryIsWrittenAsItIsRead(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		text, n := rapid.String(), rapid.Int64()
		s := summary{
			Lines: rapid.SliceOfN(text, 0, 3).Draw(t, "lines"), ThroughSeq: n.Draw(t, "seq"), Turns: n.Draw(t, "turns"), Messages: n.Draw(t, "messages"),
			Omitted: n.Draw(t, "omitted"), At: text.Draw(t, "at"), Source: text.Draw(t, "source"), Text: text.Draw(t, "text"),
			TextSeq: rapid.Int64Range(0, 2).Draw(t, "text_seq"), Model: text.Draw(t, "model"),
		}
		want, err := json.Marshal(s)
		if err != nil {
			t.Fatal(err)
		}
		if got := s.append(nil); string(got) != string(want) {
			t.Errorf("written %s, want %s", got, want)
		}
	})
}
