package main

import (
	"fmt"
	"math"
	"net"
	"net/netip"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"

	"historyd/internal/compaction"
)

// maxSocketPath is the longest path of a unix socket on Linux.
const maxSocketPath = 107

// check says what is wrong with values that have the right type. It looks at
// no network, and at no file but to see that it is there.
func (s *settings) check() problems {
	var bad problems
	wrong := func(key, format string, args ...any) {
		bad = append(bad, problem{key: key, text: fmt.Sprintf(format, args...)})
	}
	oneOf := func(key, value string, known ...string) {
		if !slices.Contains(known, value) {
			wrong(key, "want %s, got %q", strings.Join(known, " or "), value)
		}
	}
	oneOf("log.format", s.Log.Format, "auto", "text", "json")
	oneOf("log.level", s.Log.Level, "debug", "info", "warn", "error")
	if s.DataDir == "/" {
		wrong("data_dir", "want a directory of its own, not /")
	}
	if s.Listen.TCP != "" {
		if err := checkAddress(s.Listen.TCP); err != "" {
			wrong("listen.tcp", "%s", err)
		} else if s.TLS.Cert == "" && !mayBeLoopback(s.Listen.TCP) && !s.inDoubt("tls") {
			wrong("listen.tcp", "only a loopback address is served without TLS: set tls.cert and tls.key, or listen on 127.0.0.1")
		}
	}
	if n := len(s.Listen.Unix); n > maxSocketPath {
		wrong("listen.unix", "a socket's path has at most %d bytes, this one %d", maxSocketPath, n)
	}
	oneOf("listen.unix_mode", s.Listen.UnixMode, "0600", "0660", "0666")
	if s.Listen.UnixGroup != "" && s.Listen.UnixMode == "0600" && !s.inDoubt("listen.unix_mode") {
		wrong("listen.unix_group", "mode 0600 keeps the group out: set listen.unix_mode to 0660")
	}
	for i, host := range s.AllowedHosts {
		if why := refuseHost(host); why != "" {
			wrong(fmt.Sprintf("allowed_hosts[%d]", i), "%s", why)
		}
	}
	if l := s.Debug.Listen; l != "" && !filepath.IsAbs(l) {
		if err := checkAddress(l); err != "" {
			wrong("debug.listen", "%s", err)
		} else if !mayBeLoopback(l) {
			wrong("debug.listen", "want a loopback address or the absolute path of a unix socket")
		}
	}
	s.checkTLS(wrong)
	s.checkNumbers(wrong)
	oneOf("compaction.summariser", s.Compaction.Summariser, "digest", "model")
	s.checkModel(wrong)
	oneOf("projection.unknown_tools", s.Projection.UnknownTools, "redact", "keep")
	return slices.Concat(bad, s.checkRules(), s.checkRecall())
}

func (s *settings) checkTLS(wrong func(key, format string, args ...any)) {
	if !s.inDoubt("tls") {
		if (s.TLS.Cert == "") != (s.TLS.Key == "") {
			wrong("tls", "cert and key come together")
		}
		if s.TLS.ClientCA != "" && s.TLS.Cert == "" {
			wrong("tls.client_ca", "needs tls.cert and tls.key")
		}
	}
	for _, f := range []struct{ key, name string }{
		{"tls.cert", s.TLS.Cert}, {"tls.key", s.TLS.Key}, {"tls.client_ca", s.TLS.ClientCA},
	} {
		if err := s.lookAt(f.name); err != nil {
			wrong(f.key, "%v", err)
		}
	}
}

// checkModel says what is wrong with who summarises.
func (s *settings) checkModel(wrong func(key, format string, args ...any)) {
	c := &s.Compaction
	asked := c.Summariser == "model" && !s.inDoubt("compaction")
	if m := &c.Model; m.BaseURL != "" {
		if err := compaction.CheckBaseURL(m.BaseURL); err != nil {
			wrong("compaction.model.base_url", "%v", err)
		}
	} else if asked {
		wrong("compaction.model.base_url", "compaction.summariser is model: say where it is, such as http://127.0.0.1:11434/v1")
	}
	if asked && c.Model.Name == "" {
		wrong("compaction.model.name", "compaction.summariser is model: say which")
	}
	if asked && c.MaxSummaryChars >= 500 && c.MaxSummaryChars < compaction.MinModelChars {
		wrong("compaction.max_summary_chars", "want %d at least with a model, got %d", compaction.MinModelChars, c.MaxSummaryChars)
	}
	if err := s.lookAt(c.Model.APIKeyFile); err != nil {
		wrong("compaction.model.api_key_file", "%v", err)
	}
	if t := time.Duration(c.Model.Timeout); (t < time.Second || t > time.Hour) && !s.inDoubt("compaction.model.timeout") {
		wrong("compaction.model.timeout", "want 1s to 1h, got %v", c.Model.Timeout)
	}
}

func (s *settings) checkNumbers(wrong func(key, format string, args ...any)) {
	for _, r := range []struct {
		key        string
		value      int64
		least, top int64
		size       bool
	}{
		{"limits.body", int64(s.Limits.Body), 1 << 10, 1 << 30, true},
		{"limits.message", int64(s.Limits.Message), 1 << 10, 1 << 30, true},
		{"limits.import", int64(s.Limits.Import), 1 << 10, 64 << 30, true},
		{"limits.header", int64(s.Limits.Header), 8 << 10, 1 << 20, true},
		{"limits.connections", int64(s.Limits.Connections), 1, 1 << 20, false},
		{"limits.per_caller_concurrency", int64(s.Limits.PerCallerConcurrency), 1, 1 << 20, false},
		{"quota.bytes", int64(s.Quota.Bytes), 0, 1 << 60, true},
		{"quota.conversations", int64(s.Quota.Conversations), 0, math.MaxInt32, false},
		{"store.segment", int64(s.Store.Segment), 64 << 10, 1 << 40, true},
		{"store.cache", int64(s.Store.Cache), 1 << 20, 1 << 40, true},
		{"store.open_files", int64(s.Store.OpenFiles), 16, 1 << 20, false},
		{"store.reserve", int64(s.Store.Reserve), 0, 1 << 40, true},
		{"projection.max_tool_result_chars", int64(s.Projection.MaxToolResultChars), 200, math.MaxInt32, false},
		{"compaction.keep_verbatim_turns", int64(s.Compaction.KeepVerbatimTurns), 1, 10_000, false},
		{"compaction.fold_batch", int64(s.Compaction.FoldBatch), 1, 10_000, false},
		{"compaction.max_summary_chars", int64(s.Compaction.MaxSummaryChars), 500, 10_000_000, false},
		{"compaction.model.max_input_tokens", int64(s.Compaction.Model.MaxInputTokens), compaction.MinInputTokens, 10_000_000, false},
		{"retention.max_bytes", int64(s.Retention.MaxBytes), 0, 1 << 60, true},
		{"replay.max_closure_tools", int64(s.Replay.MaxClosureTools), 1, 1024, false},
	} {
		switch {
		case r.value >= r.least && r.value <= r.top:
		case r.size:
			wrong(r.key, "want %v to %v, got %v", Size(r.least), Size(r.top), Size(r.value))
		default:
			wrong(r.key, "want %d to %d, got %d", r.least, r.top, r.value)
		}
	}
	if age := time.Duration(s.Retention.MaxAge); age != 0 && (age < time.Second || age > longestExpiry) {
		wrong("retention.max_age", "want 0 for ever, or a second to a hundred years, got %v", s.Retention.MaxAge)
	}
	if rate := s.Limits.PerCallerRate; !(rate >= 0) || math.IsInf(rate, 0) {
		wrong("limits.per_caller_rate", "want a number from 0 on, got %v", rate)
	}
	if s.Limits.Message > s.Limits.Body && !s.inDoubt("limits") {
		wrong("limits.message", "a message can't be larger than limits.body")
	}
}

// checkAddress says what is wrong with a host:port.
func checkAddress(address string) string {
	_, port, err := net.SplitHostPort(address)
	if err != nil {
		return fmt.Sprintf("want host:port such as 127.0.0.1:4478, got %q", address)
	}
	if _, err := strconv.ParseUint(port, 10, 16); err != nil {
		return fmt.Sprintf("want a port from 0 to 65535, got %q", port)
	}
	return ""
}

// mayBeLoopback reports whether an address is not plainly another one. A name
// is looked up when it is time to listen.
func mayBeLoopback(address string) bool {
	host, _, err := net.SplitHostPort(address)
	if err != nil || host == "" {
		return false
	}
	ip, err := netip.ParseAddr(host)
	return err != nil || ip.Unmap().IsLoopback()
}

// refuseHost says what is wrong with a name for a Host header.
func refuseHost(host string) string {
	if host == "" || strings.ContainsFunc(host, func(r rune) bool {
		return unicode.IsSpace(r) || unicode.IsControl(r) || strings.ContainsRune("/*@?#", r)
	}) {
		return fmt.Sprintf("want a host name with or without a port, got %q", host)
	}
	return ""
}
