package main

import (
	"os"
	"path/filepath"
	"reflect"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

const exampleConfig = "../../configs/historyd.yaml"

// loadText loads a configuration file of this content, with more sources.
func loadText(t *testing.T, text string, src sources) (settings, error) {
	t.Helper()
	src.file = filepath.Join(t.TempDir(), "historyd.yaml")
	if err := os.WriteFile(src.file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if src.env == nil {
		src.env = []string{"HOME=/home/somebody"}
	}
	return load(src)
}

func TestExampleShowsEveryKeyAtItsDefault(t *testing.T) {
	text, err := os.ReadFile(exampleConfig)
	if err != nil {
		t.Fatal(err)
	}
	got, err := load(sources{file: exampleConfig, env: []string{"HOME=/home/somebody"}})
	if err != nil {
		t.Fatal(err)
	}
	for _, k := range keys {
		if want := "file " + exampleConfig; got.from[k.path] != want && k.path != "data_dir" && k.path != "callers_file" {
			t.Errorf("%s comes from %q, want %q: the file doesn't show it", k.path, got.from[k.path], want)
		}
		name := k.path[strings.LastIndexByte(k.path, '.')+1:]
		if !strings.Contains(string(text), name+":") {
			t.Errorf("%s is not in the file", k.path)
		}
	}
	// Paths left empty have been filled in by now.
	got.DataDir, got.CallersFile = "", ""
	if diff := cmp.Diff(Default(), got.Config); diff != "" {
		t.Errorf("the file differs from Default (-want +got):\n%s", diff)
	}
}

func TestEveryKeyOfTheExampleHasAComment(t *testing.T) {
	text, err := os.ReadFile(exampleConfig)
	if err != nil {
		t.Fatal(err)
	}
	// A key is commented if a comment stands above it or above one of its
	// neighbours since the last empty line.
	commented := false
	for i, line := range strings.Split(string(text), "\n") {
		switch trimmed := strings.TrimSpace(line); {
		case trimmed == "":
			commented = false
		case strings.HasPrefix(trimmed, "#"):
			commented = true
		case strings.HasSuffix(trimmed, ":") && !strings.Contains(trimmed, " "):
			// A section; its keys have comments of their own.
		case !commented:
			t.Errorf("%s:%d: %q has no comment above it", exampleConfig, i+1, trimmed)
		}
	}
}

func TestEveryKeyCanBeSetFromEverySourceThatSaysSo(t *testing.T) {
	defaults := Default()
	for _, k := range keys {
		if k.fileOnly() {
			continue
		}
		text, want := other(t, k, &defaults)
		for _, src := range []struct {
			name string
			file string
			env  []string
		}{
			{"file " + k.path, yamlLine(k.path, text), nil},
			{"env " + k.env, "", []string{k.env + "=" + text}},
		} {
			t.Run(src.name, func(t *testing.T) {
				// Some values are fine by themselves only with others.
				extra := map[string]string{"tls.client_ca": "HISTORYD_TLS_CERT=/dev/null,HISTORYD_TLS_KEY=/dev/null"}
				env := append([]string{"HOME=/home/somebody"}, src.env...)
				switch k.path {
				case "tls.cert":
					env = append(env, "HISTORYD_TLS_KEY=/dev/null")
				case "tls.key":
					env = append(env, "HISTORYD_TLS_CERT=/dev/null")
				case "compaction.summariser":
					env = append(env, "HISTORYD_COMPACTION_MODEL_BASE_URL=http://localhost:1/v1", "HISTORYD_COMPACTION_MODEL_NAME=m")
				case "listen.unix_group":
					env = append(env, "HISTORYD_LISTEN_UNIX_MODE=0660")
				case "tls.client_ca":
					env = append(env, strings.Split(extra[k.path], ",")...)
				}
				s, err := loadText(t, src.file, sources{env: env})
				if err != nil {
					t.Fatal(err)
				}
				if got := k.of(&s.Config).Interface(); !reflect.DeepEqual(got, want) {
					t.Errorf("%s = %v, want %v", k.path, got, want)
				}
				if got := s.from[k.path]; !strings.HasPrefix(got, src.name[:4]) {
					t.Errorf("%s comes from %q, want %q", k.path, got, src.name)
				}
			})
		}
	}
}

// other returns a good value for a key that is not its default.
func other(t *testing.T, k key, defaults *Config) (text string, value any) {
	t.Helper()
	for path, text := range map[string]string{
		"data_dir": "/srv/history", "callers_file": "/srv/callers.json", "listen.tcp": "[::1]:0", "listen.unix": "/run/h",
		"listen.unix_mode": "0660", "listen.unix_group": "staff",
		"tls.cert": "/dev/null", "tls.key": "/dev/null", "tls.client_ca": "/dev/null", "log.format": "json",
		"log.level": "debug", "debug.listen": "localhost:6060", "projection.unknown_tools": "keep",
		"compaction.summariser": "model", "compaction.model.base_url": "https://models.example.com/v1", "compaction.model.name": "m",
		"compaction.model.api_key_file": "/dev/null",
	} {
		if path == k.path {
			return text, text
		}
	}
	switch v := k.of(defaults).Interface().(type) {
	case Size:
		if k.path == "limits.body" {
			return "16MiB", Size(16 << 20)
		}
		v = max(v/2, 8<<10)
		return v.String(), v
	case Duration:
		v = max(v/2, Duration(time.Minute/2))
		return v.String(), v
	case int:
		if k.path == "compaction.model.max_input_tokens" {
			return "1701", 1701
		}
		if k.path == "recall.top_k" {
			return "7", 7
		}
		return "701", 701
	case bool:
		return strconv.FormatBool(!v), !v
	case float64:
		if k.path == "recall.min_score" {
			return "0.5", 0.5
		}
		return "2.5", 2.5
	case []string:
		return "history.example", []string{"history.example"}
	default:
		t.Fatalf("no other value for %s", k.path)
		return "", nil
	}
}

func yamlLine(path, text string) string {
	if section, key, ok := strings.Cut(path, "."); ok {
		return section + ":\n  " + strings.ReplaceAll(yamlLine(key, text), "\n", "\n  ")
	}
	switch path {
	case "allowed_hosts":
		text = "[" + text + "]"
	case "tcp", "unix_mode":
		text = `"` + text + `"`
	}
	return path + ": " + text
}

func TestLaterSourcesWin(t *testing.T) {
	s, err := loadText(t, "log: {level: warn, format: json}\nlisten:\n  tcp: 127.0.0.1:1\nlimits:\n", sources{
		env:   []string{"HOME=/h", "HISTORYD_LOG_LEVEL=error", "HISTORYD_LISTEN_TCP=127.0.0.1:2", "HISTORYD_TOKEN=x", "HISTORYD_TEST_X=y"},
		flags: map[string]string{"listen.tcp": "127.0.0.1:3"},
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct{ key, got, want, from string }{
		{"log.format", s.Log.Format, "json", "file"},
		{"log.level", s.Log.Level, "error", "env HISTORYD_LOG_LEVEL"},
		{"listen.tcp", s.Listen.TCP, "127.0.0.1:3", "flag --listen"},
		{"listen.unix", s.Listen.Unix, "", "default"},
		{"data_dir", s.DataDir, "/h/.local/state/historyd", "default, from HOME"},
		{"callers_file", s.CallersFile, "/h/.local/state/historyd/callers.json", "default, in data_dir"},
	} {
		if tt.got != tt.want || !strings.HasPrefix(s.from[tt.key], tt.from) {
			t.Errorf("%s = %q from %q, want %q from %q", tt.key, tt.got, s.from[tt.key], tt.want, tt.from)
		}
	}
}

func TestAnEmptyVariableIsAValue(t *testing.T) {
	s, err := loadText(t, "allowed_hosts: [a]", sources{env: []string{"HOME=/h", "HISTORYD_LISTEN_TCP=", "HISTORYD_ALLOWED_HOSTS="}})
	if err != nil {
		t.Fatal(err)
	}
	if s.Listen.TCP != "" || len(s.AllowedHosts) != 0 {
		t.Errorf("got listen.tcp %q and allowed_hosts %q, want both empty", s.Listen.TCP, s.AllowedHosts)
	}
}

func TestStateDirectoryOfTheSystemComesFirst(t *testing.T) {
	for _, tt := range []struct {
		name    string
		env     []string
		service string
		want    string
	}{
		{"systemd's", []string{"HOME=/h", "XDG_STATE_HOME=/x", "STATE_DIRECTORY=/var/lib/historyd"}, "", "/var/lib/historyd"},
		{"systemd's first", []string{"STATE_DIRECTORY=/var/lib/historyd:/var/lib/other"}, "", "/var/lib/historyd"},
		{"the desktop's", []string{"HOME=/h", "XDG_STATE_HOME=/x"}, "", "/x/historyd"},
		{"a relative one is ignored", []string{"HOME=/h", "XDG_STATE_HOME=x"}, "", "/h/.local/state/historyd"},
		{"home", []string{"HOME=/h"}, "", "/h/.local/state/historyd"},
		{"nothing", nil, "", ""},
		{"of the service, for who means it", []string{"HOME=/root", "XDG_STATE_HOME=/x"}, "/srv/history", "/srv/history"},
		{"of the service, without a home", nil, "/srv/history", "/srv/history"},
		{"in the unit", []string{"STATE_DIRECTORY=/var/lib/other"}, "/srv/history", "/var/lib/other"},
	} {
		if got, _ := stateDir(tt.env, tt.service); got != tt.want {
			t.Errorf("%s: got %q, want %q", tt.name, got, tt.want)
		}
	}
}

func TestListsOfRulesKeepTheirCaseAndOrder(t *testing.T) {
	s, err := loadText(t, `
projection:
  withhold: [{category: Bank, parts: [arguments]}]
  tools:
    - {match: "Wallet_*", category: wallet}
    - {match: "*", category: Bank}
`, sources{})
	if err != nil {
		t.Fatal(err)
	}
	want := Default()
	want.Projection.Withhold = []Withhold{{Category: "Bank", Parts: []string{"arguments"}}}
	want.Projection.Tools = []Tool{{"Wallet_*", "wallet"}, {"*", "Bank"}}
	if diff := cmp.Diff(want.Projection, s.Projection); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	s, err = loadText(t, "projection: {withhold: []}", sources{})
	if err != nil || len(s.Projection.Withhold) != 0 {
		t.Errorf("an empty list gives %v, %v: want none", s.Projection.Withhold, err)
	}
}
