package main

import (
	"bytes"
	"fmt"
	"io"
	"log"
	"log/slog"
	"os"
	"time"

	"github.com/lmittmann/tint"
	"golang.org/x/term"
)

// newLogger returns a logger in a format of log.format. Every event is one
// line: what is in a message or a value is quoted or escaped. Safe for
// concurrent use, if w is.
func newLogger(w io.Writer, format string, level slog.Leveler) *slog.Logger {
	terminal := isTerminal(w)
	if format == "json" || format == "auto" && !terminal {
		return slog.New(slog.NewJSONHandler(plainJSON{w}, &slog.HandlerOptions{Level: level, ReplaceAttr: withUnit}))
	}
	return slog.New(tint.NewTextHandler(w, &tint.Options{
		Level:      level,
		TimeFormat: time.TimeOnly,
		NoColor:    !terminal || os.Getenv("NO_COLOR") != "",
	}))
}

// withUnit writes a duration as text does, such as 1.5ms: in JSON it would be a number of nobody knows what.
func withUnit(_ []string, a slog.Attr) slog.Attr {
	if a.Value.Kind() == slog.KindDuration {
		a.Value = slog.StringValue(a.Value.Duration().String())
	}
	return a
}

// plainJSON escapes what JSON lets stand but a terminal or a reader of lines may
// take for more than text: delete, and the controls from U+0080 to U+009F. They
// can only be inside of strings.
type plainJSON struct{ w io.Writer }

func (p plainJSON) Write(line []byte) (int, error) {
	control := func(r rune) bool { return r >= 0x7f && r < 0xa0 }
	if !bytes.ContainsFunc(line, control) {
		return p.w.Write(line)
	}
	var out bytes.Buffer
	for _, r := range string(line) {
		if control(r) {
			fmt.Fprintf(&out, `\u%04x`, r)
		} else {
			out.WriteRune(r)
		}
	}
	if _, err := p.w.Write(out.Bytes()); err != nil {
		return 0, err
	}
	return len(line), nil
}

// isTerminal reports whether a person may be looking.
func isTerminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}

// parseLevel reads what log.level takes; it has been checked.
func parseLevel(text string) slog.Level {
	var level slog.Level
	if level.UnmarshalText([]byte(text)) != nil {
		return slog.LevelInfo
	}
	return level
}

// serverLog takes what net/http has to say of single connections, which is for
// who looks for a fault in them.
type serverLog struct{ log *slog.Logger }

func newServerLog(l *slog.Logger) *log.Logger { return log.New(serverLog{l}, "", 0) }

func (s serverLog) Write(p []byte) (int, error) {
	s.log.Debug("connection", "detail", string(bytes.TrimSpace(p)))
	return len(p), nil
}
