package store

import (
	"bytes"
	"encoding/json/jsontext"
	"fmt"
	"testing"

	"historyd/internal/durable/crashfs"
	"historyd/internal/history"
)

// smuggled is a whole and valid line that says something in the name of the server.
func smuggled(seq int64, prev uint32, withHeader bool) jsontext.Value {
	m := user("SMUGGLED")
	m.Seq, m.ID = seq, "smuggled"
	c := commit{First: seq, Last: seq, ID: "smuggled", At: "2026-01-01T00:00:00.000000Z", Prev: checksum(prev), Messages: history.AppendMessage(nil, &m)}
	if withHeader {
		c.Header = &header{Version: formatVersion, Kind: "operator", Caller: "ann", Conversation: "a"}
	}
	line, _ := appendFrame(nil, c.payload(nil))
	return jsontext.Value(bytes.TrimSuffix(line, []byte("\n")))
}

// TestCrashNoLineIsTakenFromTheTextOfAMessage damages a message that holds whole
// lines in its arguments and in its metadata, wherever it can be damaged.
func TestCrashNoLineIsTakenFromTheTextOfAMessage(t *testing.T) {
	t.Parallel()
	for _, withHeader := range []bool{false, true} {
		fsys := crashfs.New()
		s := mustOpen(t, fsys)
		l := s.Log(ann, "a")
		evil := history.Message{Role: history.Assistant, Status: history.Complete, Metadata: smuggled(3, 0, withHeader), Content: []history.Block{
			{Type: history.ToolCall, ID: "c", Name: "f", Arguments: smuggled(2, 0, withHeader)},
			{Type: history.OpaqueBlock, Provider: "p", Opaque: smuggled(2, 0xffffffff, withHeader)},
		}}
		for _, b := range []history.Batch{batch("one"), {Messages: []history.Message{evil}}, batch("three")} {
			if _, err := l.Append(t.Context(), b); err != nil {
				t.Fatal(err)
			}
		}
		name := s.dirOf(transcriptKey{ann, "a"}) + "/" + segmentName(1)
		text := fsys.Files()[name]
		parts := lines(text)
		from := len(parts[0]) + len(parts[1])
		to := from + len(parts[2])
		frame := smuggled(2, 0, withHeader)
		inner := bytes.Index(text, frame)
		if inner < from || inner+len(frame) >= to {
			t.Fatal("the line is not in the text as it was sent")
		}
		try := func(what string, broken []byte) {
			t.Helper()
			fsys.Corrupt(name, func([]byte) []byte { return broken })
			wantNoSmuggled(t, s, what)
		}
		for at := from - 1; at < to; at += stride(11) {
			for _, v := range []byte{'\n', 0, 'x', '{'} {
				broken := bytes.Clone(text)
				broken[at] = v
				try(fmt.Sprintf("byte %d is %q", at, v), broken)
			}
			try(fmt.Sprint("cut at ", at), bytes.Clone(text[:at]))
			try(fmt.Sprint("cut at ", at, ", and a line behind"), append(bytes.Clone(text[:at]), parts[3]...))
		}
		for _, end := range []int{inner, inner + len(frame), to} {
			broken := bytes.Clone(text)
			clear(broken[from-1 : min(end, inner)])
			clear(broken[max(from, min(end, inner+len(frame))):end])
			try(fmt.Sprint("NULs around it to ", end), broken)
		}
		try("everything before it is gone", append(bytes.Clone(parts[0]), text[inner:]...))
		try("only NULs before it", append(make([]byte, inner), text[inner:]...))
		_ = s.Close()
	}
}

// wantNoSmuggled reads the conversation both ways, past the table of open ones.
func wantNoSmuggled(t *testing.T, s *Store, what string) {
	t.Helper()
	key := transcriptKey{ann, "a"}
	tr := newTranscript(s, key, s.dirOf(key))
	defer tr.files.end()
	if err := tr.load(tailWindow, false); err != nil {
		return // refused: nothing is taken for anything
	}
	snap := tr.state.Load()
	for _, records := range []func(func(history.Record, error) bool){tr.records(snap, 1, 1<<40), tr.descending(snap, 1<<40)} {
		for r, err := range records {
			if err != nil {
				break
			}
			m, err := r.Message()
			if err != nil {
				t.Fatalf("%s: message %d: %v", what, r.Seq, err)
			}
			if m.ID == "smuggled" || m.Content[0].Text == "SMUGGLED" {
				t.Fatalf("%s: a line was taken from the text of a message", what)
			}
		}
	}
	if snap.id == "smuggled" {
		t.Fatalf("%s: the state was taken from the text of a message", what)
	}
}
