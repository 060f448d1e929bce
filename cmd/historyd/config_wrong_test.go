package main

import (
	"errors"
	"slices"
	"strings"
	"testing"
)

func TestWhatIsWrongWithAConfigurationIsSaid(t *testing.T) {
	for _, tt := range []struct {
		name string
		file string
		env  string
		want string // "" means that it is fine
	}{
		{name: "empty file"},
		{name: "only comments", file: "# nothing\n"},
		{name: "a section without content", file: "listen:\n"},
		{name: "unknown section", file: "listne: {tcp: x}", want: "listne: unknown key, the nearest known one is listen"},
		{name: "unknown key", file: "listen: {tpc: x}", want: "listen.tpc: unknown key, the nearest known one is listen.tcp"},
		{name: "a key without its section", file: "open_files: 4", want: "open_files: unknown key, the nearest known one is store.open_files"},
		{name: "another case", file: "Data_Dir: /x", want: "Data_Dir: unknown key, the nearest known one is data_dir"},
		{name: "unknown key of a rule", file: "projection: {tools: [{match: a, categroy: b}]}", want: "projection.tools[0].categroy: unknown key, the nearest known one is projection.tools[0].category"},
		{name: "a key with a dot", file: "listen.tcp: x", want: "listen.tcp: unknown key: write tcp below listen"},
		{name: "keys that are no texts", file: "listen: {1: x}", want: "listen: want keys and values, got keys that are no texts"},
		{name: "a key twice", file: "data_dir: /a\ndata_dir: /b", want: "already defined"},
		{name: "no YAML", file: "data_dir: [", want: "yaml"},
		{name: "a list at the top", file: "- a", want: "historyd.yaml"},
		{name: "a key without value", file: "data_dir:", want: "data_dir: want a text (in quotes, if it looks like something else), got nothing"},
		{name: "a section that is a list", file: "log: [a]", want: "log: want keys and values, got a list"},
		{name: "a list that is a text", file: "allowed_hosts: a", want: "allowed_hosts: want a list, got a text"},
		{name: "a number in a list of texts", file: "allowed_hosts: [1]", want: "allowed_hosts[0]: want a text"},
		{name: "a number for a text", file: "data_dir: 5", want: "data_dir: want a text (in quotes, if it looks like something else), got the number 5"},
		{name: "a text for a number", file: `store: {open_files: "12"}`, want: `store.open_files: want a whole number, got the text "12"`},
		{name: "a fraction", file: "store: {open_files: 1.5}", want: "store.open_files: want a whole number, got the number 1.5"},
		{name: "a text for a truth value", file: `metrics: {auth: "yes"}`, want: `metrics.auth: want true or false, got the text "yes"`},
		{name: "a whole number for a fraction", file: "limits: {per_caller_rate: 5}"},
		{name: "a size as a number", file: "limits: {body: 4194304}"},
		{name: "a size with a fraction", file: "limits: {body: 4.5MiB}"},
		{name: "no size", file: "limits: {body: much}", want: "limits.body: want a size such as 8MiB"},
		{name: "too large a size for a number", file: "limits: {body: 99999999999999999999}", want: "limits.body: want a size such as 8MiB, got the number 1e+20"},
		{name: "a negative size", file: "limits: {body: -1}", want: "limits.body: want 1KiB to 1GiB, got -1B"},
		{name: "a message larger than a body", file: "limits: {body: 1MiB}", want: "limits.message: a message can't be larger"},
		{name: "header too small", file: "limits: {header: 1KiB}", want: "limits.header: want 8KiB to 1MiB, got 1KiB"},
		{name: "negative rate", file: "limits: {per_caller_rate: -1}", want: "limits.per_caller_rate: want a number from 0 on"},
		{name: "rate that is no number", file: "limits: {per_caller_rate: .nan}", want: "limits.per_caller_rate: want a number from 0 on"},
		{name: "a time as a number", file: "compaction: {model: {timeout: 60}}", want: "compaction.model.timeout: want a time such as 60s, 36h or 90d, got the number 60"},
		{name: "no time", file: "compaction: {model: {timeout: soon}}", want: "compaction.model.timeout: want a time such as 60s, 36h or 90d"},
		{name: "too short a time", file: "compaction: {model: {timeout: 10ms}}", want: "compaction.model.timeout: want 1s to 1h, got 10ms"},
		{name: "a time from the environment", env: "HISTORYD_COMPACTION_MODEL_TIMEOUT=1m30s"},
		{name: "no time from the environment", env: "HISTORYD_COMPACTION_MODEL_TIMEOUT=60", want: "HISTORYD_COMPACTION_MODEL_TIMEOUT: want a time such as 60s, 36h or 90d"},
		{name: "another summariser", file: "compaction: {summariser: robot}", want: `compaction.summariser: want digest or model, got "robot"`},
		{name: "a model without an address", file: "compaction: {summariser: model, model: {name: m}}", want: "compaction.model.base_url: compaction.summariser is model: say where it is"},
		{name: "a model without a name", file: `compaction: {summariser: model, model: {base_url: "http://127.0.0.1:1/v1"}}`, want: "compaction.model.name: compaction.summariser is model: say which"},
		{name: "a model", file: `compaction: {summariser: model, model: {base_url: "http://[::1]:1/v1", name: m}}`},
		{name: "a model elsewhere", file: `compaction: {summariser: model, model: {base_url: "https://models.example.com/v1", name: m}}`},
		{name: "a model elsewhere in the clear", file: `compaction: {model: {base_url: "http://models.example.com/v1"}}`, want: "compaction.model.base_url: anything but a loopback address needs https"},
		{name: "a key in an address", file: `compaction: {model: {base_url: "https://me:sk-1@models.example.com/v1"}}`, want: "compaction.model.base_url: a key belongs in a file, not in the address"},
		{name: "a key that is not there", file: `compaction: {model: {api_key_file: /nowhere/key}}`, want: "compaction.model.api_key_file: stat /nowhere/key"},
		{name: "no room for a model", file: `compaction: {max_summary_chars: 600, summariser: model, model: {base_url: "http://[::1]:1/v1", name: m}}`, want: "compaction.max_summary_chars: want 1000 at least with a model, got 600"},
		{name: "too little for a model", file: "compaction: {model: {max_input_tokens: 10}}", want: "compaction.model.max_input_tokens: want 1000 to 10000000, got 10"},
		{name: "level", file: "log: {level: loud}", want: `log.level: want debug or info or warn or error, got "loud"`},
		{name: "format", file: "log: {format: xml}", want: "log.format: want auto or text or json"},
		{name: "address without a port", file: "listen: {tcp: localhost}", want: "listen.tcp: want host:port"},
		{name: "port too high", file: `listen: {tcp: "127.0.0.1:65536"}`, want: "listen.tcp: want a port from 0 to 65535"},
		{name: "any address", file: `listen: {tcp: "0.0.0.0:1"}`, want: "listen.tcp: only a loopback address"},
		{name: "any address of version 6", file: `listen: {tcp: "[::]:1"}`, want: "listen.tcp: only a loopback address"},
		{name: "no host", file: `listen: {tcp: ":1"}`, want: "listen.tcp: only a loopback address"},
		{name: "another address", file: `listen: {tcp: "192.0.2.1:1"}`, want: "listen.tcp: only a loopback address"},
		{name: "another address with TLS", file: `{listen: {tcp: "0.0.0.0:1"}, tls: {cert: /dev/null, key: /dev/null}}`},
		{name: "loopback as version 6", file: `listen: {tcp: "[::ffff:127.0.0.1]:1"}`},
		{name: "long socket path", file: "listen: {unix: /" + strings.Repeat("x", 107) + "}", want: "listen.unix: a socket's path has at most 107 bytes"},
		{name: "a mode for one way", file: `listen: {unix_mode: "0640"}`, want: `listen.unix_mode: want 0600 or 0660 or 0666, got "0640"`},
		{name: "a mode as a number", file: "listen: {unix_mode: 0660}", want: "listen.unix_mode: want a text (in quotes"},
		{name: "a group that is kept out", file: "listen: {unix_group: staff}", want: "listen.unix_group: mode 0600 keeps the group out"},
		{name: "a group and a wrong mode", file: "listen: {unix_group: staff, unix_mode: 1}", want: "listen.unix_mode: want a text"},
		{name: "a host with a path", file: "allowed_hosts: [a/b]", want: "allowed_hosts[0]: want a host name"},
		{name: "certificate alone", file: "tls: {cert: /dev/null}", want: "tls: cert and key come together"},
		{name: "client authority alone", file: "tls: {client_ca: /dev/null}", want: "tls.client_ca: needs tls.cert"},
		{name: "certificate missing", file: "tls: {cert: /nowhere/c, key: /dev/null}", want: "tls.cert: stat /nowhere/c: no such file"},
		{name: "debugging for all", file: `debug: {listen: "0.0.0.0:6060"}`, want: "debug.listen: want a loopback address"},
		{name: "debugging on a socket", file: "debug: {listen: /run/historyd/debug}"},
		{name: "unknown tools", file: "projection: {unknown_tools: drop}", want: "projection.unknown_tools: want redact or keep"},
		{name: "part", file: "projection: {withhold: [{category: a, parts: [names]}]}", want: "projection.withhold[0].parts[0]: want arguments or results"},
		{name: "category twice", file: "projection: {withhold: [{category: a, parts: [results]}, {category: A, parts: []}]}", want: "projection.withhold[1].category:"},
		{name: "a rule without match", file: "projection: {tools: [{category: a}]}", want: "projection.tools[0].match: is empty"},
		{name: "results cut too short", file: "projection: {max_tool_result_chars: 100}", want: "projection.max_tool_result_chars: want 200 to"},
		{name: "the root", file: "data_dir: /", want: "data_dir: want a directory of its own"},
		{name: "unknown variable", env: "HISTORYD_DATADIR=/x", want: "HISTORYD_DATADIR: unknown variable, the nearest known one is HISTORYD_DATA_DIR"},
		{name: "a list of rules as a variable", env: "HISTORYD_PROJECTION_TOOLS=[]", want: "HISTORYD_PROJECTION_TOOLS: projection.tools can be set in the configuration file only"},
		{name: "another list of rules as a variable", env: "HISTORYD_PROJECTION_WITHHOLD=", want: "can be set in the configuration file only"},
		{name: "no number in a variable", env: "HISTORYD_STORE_OPEN_FILES=many", want: `HISTORYD_STORE_OPEN_FILES: want a whole number, got the text "many"`},
		{name: "no size in a variable", env: "HISTORYD_LIMITS_BODY=x", want: "HISTORYD_LIMITS_BODY: want a size such as 8MiB"},
		{name: "a variable that is ours but no setting", env: "HISTORYD_TEST_ANYTHING=1"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			env := []string{"HOME=/home/somebody"}
			if tt.env != "" {
				env = append(env, tt.env)
			}
			_, err := loadText(t, tt.file, sources{env: env})
			if tt.want == "" {
				if err != nil {
					t.Errorf("got %v, want no error", err)
				}
				return
			}
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("got %v, want an error with %q", err, tt.want)
			}
		})
	}
}

func TestEveryProblemIsToldAtOnce(t *testing.T) {
	for _, tt := range []struct {
		name, file string
		env        []string
		flags      map[string]string
		want       []string // where or key of each, and of no other
	}{
		{"names, types and values", "a: 1\nlog: {b: 2, level: loud}\nstore: {cache: x}\ncompaction: {keep_verbatim_turns: x}\nlisten: {tcp: \"0.0.0.0:80\"}",
			[]string{"HISTORYD_C=3"}, nil,
			[]string{"a", "compaction.keep_verbatim_turns", "log.b", "store.cache", "HISTORYD_C", "log.level", "listen.tcp"}},
		{"values", "log: {level: loud, format: xml}\nstore: {cache: 1}", nil, nil, []string{"log.format", "log.level", "store.cache"}},
		{"a file that is no YAML, a variable and a flag", "a: [", []string{"HISTORYD_LOG_FORMAT=xml"}, map[string]string{"log.level": "loud"},
			[]string{"FILE", "log.format", "log.level"}},
		{"items of lists", "allowed_hosts: [1, a/b]\nprojection: {tools: [{match: a, x: 1}, {match: a}, 5, {category: a}], withhold: [{category: a, parts: [1, x]}, {category: A, parts: []}, {category: A}]}", nil, nil,
			[]string{"allowed_hosts[0]", "projection.tools[0].x", "projection.tools[2]", "projection.withhold[0].parts[0]",
				"allowed_hosts[1]", "projection.withhold[2].category", "projection.tools[1].category", "projection.tools[3].match"}},

		// What follows only from what was not understood is not said.
		{"a size that is none beside a larger one", "limits: {body: x, message: 10MiB}", nil, nil, []string{"limits.body"}},
		{"a variable over a wrong value", "store: {open_files: 1}", []string{"HISTORYD_STORE_OPEN_FILES=x"}, nil, []string{"HISTORYD_STORE_OPEN_FILES"}},
		{"half of TLS", "tls: {cert: 1, key: /dev/null}\nlisten: {tcp: \"0.0.0.0:80\"}", nil, nil, []string{"tls.cert"}},
		{"TLS in a file that is no YAML", "tls: [", []string{"HISTORYD_LISTEN_TCP=0.0.0.0:80", "HISTORYD_TLS_CERT=/dev/null"}, nil, []string{"FILE"}},
		{"no home for a directory that is no text", "data_dir: 5", []string{"HOME="}, nil, []string{"data_dir"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			_, err := loadText(t, tt.file, sources{env: append([]string{"HOME=/h"}, tt.env...), flags: tt.flags})
			var bad problems
			if !errors.As(err, &bad) {
				t.Fatalf("got %v, want problems", err)
			}
			var got []string
			for _, p := range bad {
				switch {
				case p.key != "":
					got = append(got, p.key)
				case strings.HasPrefix(p.where, envPrefix):
					got = append(got, p.where)
				default:
					got = append(got, "FILE")
				}
			}
			if !slices.Equal(got, tt.want) {
				t.Errorf("got %q, want %q: %v", got, tt.want, err)
			}
		})
	}
}

func TestAMissingConfigurationFile(t *testing.T) {
	_, err := load(sources{file: "/nowhere/historyd.yaml", env: []string{"HOME=/h"}})
	if want := "/nowhere/historyd.yaml: no such file or directory"; err == nil || err.Error() != want {
		t.Errorf("a file that was asked for is missing: got %v, want %s", err, want)
	}
	if _, err := load(sources{system: "/nowhere/historyd.yaml", env: []string{"HOME=/h"}}); err != nil {
		t.Errorf("the file of the system is missing: got %v", err)
	}
	s, err := load(sources{system: exampleConfig, env: []string{"HOME=/h"}})
	if want := "file " + exampleConfig; err != nil || s.from["log.level"] != want {
		t.Errorf("the file of the system is there: got %v from %q, want %q", err, s.from["log.level"], want)
	}
	if _, err := load(sources{env: []string{}}); err == nil || !strings.Contains(err.Error(), "data_dir") {
		t.Errorf("without a home: got %v, want an error about data_dir", err)
	}
}

func FuzzConfiguration(f *testing.F) {
	f.Add("listen: {tcp: \"127.0.0.1:0\"}\nlimits: {body: 8MiB}")
	f.Add("projection: {tools: [{match: a, category: b}]}")
	f.Add("a: &x {b: *x}")
	f.Fuzz(func(t *testing.T, text string) {
		s, err := loadText(t, text, sources{})
		if err != nil {
			if err.Error() == "" {
				t.Error("an error without words")
			}
			return
		}
		if bad := s.check(); len(bad) > 0 {
			t.Errorf("accepted and then not: %v", bad)
		}
	})
}

func TestASizeIsReadAsItIsPrinted(t *testing.T) {
	for _, tt := range []struct {
		text string
		want Size
		back string
	}{
		{"8MiB", 8 << 20, "8MiB"},
		{"8 MiB", 8 << 20, "8MiB"},
		{"8MB", 8e6, "8000000B"},
		{"1GiB", 1 << 30, "1GiB"},
		{"0", 0, "0B"},
		{"1536", 1536, "1536B"},
		{"1.5KiB", 1536, "1536B"},
		{"3072", 3072, "3KiB"},
	} {
		var s Size
		if err := s.UnmarshalText([]byte(tt.text)); err != nil || s != tt.want || s.String() != tt.back {
			t.Errorf("%q is %d (%v) and prints as %q, want %d and %q", tt.text, int64(s), err, s, int64(tt.want), tt.back)
		}
		var again Size
		if err := again.UnmarshalText([]byte(tt.back)); err != nil || again != s {
			t.Errorf("%q comes back as %d (%v), want %d", tt.back, int64(again), err, int64(s))
		}
	}
	for _, text := range []string{"", "x", "-1", "1 KiB of it", "99999999999999999999", "16EiB"} {
		var s Size
		if err := s.UnmarshalText([]byte(text)); err == nil {
			t.Errorf("%q is read as %v", text, s)
		}
	}
}
