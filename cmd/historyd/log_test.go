package main

import (
	"bytes"
	"encoding/json/v2"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"
)

// nasty holds what could begin a line, end a string or turn a terminal's colour.
const nasty = "a\nlevel=ERROR msg=\"forged\"\r\x1b[31mb\x00\u2028\u0085\u007f\"}\n{\"level\":\"ERROR\"}"

func TestNothingInAnEventBreaksItsLine(t *testing.T) {
	for _, format := range []string{"text", "json", "auto"} {
		t.Run(format, func(t *testing.T) {
			var out bytes.Buffer
			log := newLogger(&out, format, slog.LevelDebug)
			events := []func(){
				func() { log.Info("plain", "value", nasty) },
				func() { log.Error("an error", "error", errors.New(nasty)) },
				func() { log.Warn("a group", slog.Group("g", "value", nasty, "list", []string{nasty})) },
				func() { log.With("always", nasty).Debug("with", "bytes", []byte(nasty)) },
				func() { newServerLog(log).Print(nasty) },
			}
			for _, event := range events {
				event()
			}
			text := out.String()
			if got := strings.Count(text, "\n"); got != len(events) {
				t.Errorf("got %d lines, want %d:\n%s", got, len(events), text)
			}
			if i := strings.IndexFunc(text, func(r rune) bool { return r < ' ' && r != '\n' || r >= 0x7f && r < 0xa0 || r == 0x2028 }); i >= 0 {
				t.Errorf("a control character at %d of %q", i, text)
			}
			if format == "text" {
				return
			}
			for line := range strings.Lines(text) {
				var event map[string]any
				if err := json.Unmarshal([]byte(line), &event); err != nil {
					t.Errorf("%v: %s", err, line)
				}
			}
		})
	}
}

func TestADurationHasItsUnit(t *testing.T) {
	for format, want := range map[string]string{"text": "took=1.5ms", "json": `"took":"1.5ms"`} {
		var out bytes.Buffer
		log := newLogger(&out, format, slog.LevelInfo)
		log.LogAttrs(t.Context(), slog.LevelInfo, "x", slog.Duration("took", 1500*time.Microsecond))
		if got := out.String(); !strings.Contains(got, want) {
			t.Errorf("%s: got %s, want %s", format, got, want)
		}
	}
}

func TestTheLevelCanChangeLater(t *testing.T) {
	var out bytes.Buffer
	level := new(slog.LevelVar)
	level.Set(parseLevel("warn"))
	log := newLogger(&out, "json", level)
	log.Info("unseen")
	level.Set(parseLevel("debug"))
	log.Debug("seen")
	if got := out.String(); strings.Contains(got, "unseen") || !strings.Contains(got, "seen") {
		t.Errorf("got %s, want the second event alone", got)
	}
}
