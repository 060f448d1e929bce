package main

import (
	"errors"
	"fmt"
	"math"
	"reflect"
	"strings"
	"time"

	"github.com/dustin/go-humanize"
)

// Config is all that can be set. The comment of a field is its manual; its
// default is in Default. configs/historyd.yaml shows every key.
//
// A struct is a section of the file, any other field a key. The environment
// variable of a key is HISTORYD_ and its path in capitals, with _ for each dot.
type Config struct {
	// DataDir holds the conversations, and with them the callers file unless
	// CallersFile says otherwise. It must be on a local file system, be ours
	// and have mode 0700; it is made when it is missing. Empty means
	// $STATE_DIRECTORY, else that of the service for its user and for root,
	// else $XDG_STATE_HOME/historyd, else ~/.local/state/historyd.
	DataDir string `mapstructure:"data_dir"`

	// CallersFile says who may call, with hashes of their tokens. Empty means
	// callers.json in DataDir.
	CallersFile string `mapstructure:"callers_file"`

	// Listen is where the daemon serves. With sockets inherited from systemd
	// nothing else is opened.
	Listen struct {
		// TCP is host:port, port 0 a free one; empty is none. Anything but the
		// loopback needs TLS.
		TCP string `mapstructure:"tcp"`
		// Unix is the path of a socket; empty is none.
		Unix string `mapstructure:"unix"`
		// UnixMode says who may connect to it: 0600 we, 0660 its group too, 0666
		// everybody on this machine. Who has connected is still nobody without
		// a token or a uid that stands for one.
		UnixMode string `mapstructure:"unix_mode"`
		// UnixGroup is the group of the socket, by name or number; empty is ours.
		UnixGroup string `mapstructure:"unix_group"`
	} `mapstructure:"listen"`

	// AllowedHosts are names that a Host header may give besides those of the
	// loopback, each with or without a port.
	AllowedHosts []string `mapstructure:"allowed_hosts"`

	// TLS is for the TCP listener; empty is none. All are paths to PEM files.
	TLS struct {
		Cert string `mapstructure:"cert"`
		Key  string `mapstructure:"key"`
		// ClientCA makes a client certificate signed by it a must. Callers
		// still need a token.
		ClientCA string `mapstructure:"client_ca"`
	} `mapstructure:"tls"`

	Log struct {
		// Format is text, json, or auto: text on a terminal, JSON elsewhere.
		Format string `mapstructure:"format"`
		// Level is debug, info, warn or error. Each request is at debug.
		Level string `mapstructure:"level"`
	} `mapstructure:"log"`

	Metrics struct {
		// Auth asks for a token at /metrics.
		Auth bool `mapstructure:"auth"`
	} `mapstructure:"metrics"`

	Debug struct {
		// Listen serves Go's profiles: a loopback host:port, or the path of a
		// unix socket. Who can connect can see what the memory holds.
		Listen string `mapstructure:"listen"`
	} `mapstructure:"debug"`

	// Limits bounds what callers can ask for.
	Limits struct {
		Body        Size `mapstructure:"body"`        // of a request but for imports
		Message     Size `mapstructure:"message"`     // of one message in it
		Import      Size `mapstructure:"import"`      // of the body of an import
		Header      Size `mapstructure:"header"`      // of a request, all headers together
		Connections int  `mapstructure:"connections"` // open at a time, for each listener; one more waits for an idle one
		// PerCallerConcurrency is how many requests of one caller run at a time.
		// So many wait besides as a quarter of Connections.
		PerCallerConcurrency int `mapstructure:"per_caller_concurrency"`
		// PerCallerRate is how many requests a second a caller may make; 0 is
		// as many as it likes.
		PerCallerRate float64 `mapstructure:"per_caller_rate"`
	} `mapstructure:"limits"`

	// Quota bounds what the conversations of one caller take; 0 is no bound.
	// What would pass it is refused; reads, rewinds and clears are not.
	Quota struct {
		// Bytes are those of all files of the conversations, attachments
		// included. The search index doesn't count.
		Bytes         Size `mapstructure:"bytes"`
		Conversations int  `mapstructure:"conversations"`
	} `mapstructure:"quota"`

	Store struct {
		// Segment is the size after which a conversation goes on in a new file.
		Segment Size `mapstructure:"segment"`
		// Cache bounds the replays kept in memory. The memory of the whole
		// process is kept near this plus 24 MiB.
		Cache Size `mapstructure:"cache"`
		// OpenFiles is how many conversations are kept open while idle, with up
		// to three files each. Fewer are where fewer files may be open.
		OpenFiles int `mapstructure:"open_files"`
		// Reserve is how much of the file system appends and imports leave
		// free, so that clears, rewinds and tokens find room on a full disk. It
		// is a sixteenth of the file system at the most; 0 is none.
		Reserve Size `mapstructure:"reserve"`
	} `mapstructure:"store"`

	// Projection says what is kept of what callers send.
	Projection struct {
		// MaxToolResultChars is the length above which a tool result is cut,
		// in characters, 200 at least.
		MaxToolResultChars int `mapstructure:"max_tool_result_chars"`
		// UnknownTools says what happens to arguments and results of tools
		// without a category: redact or keep.
		UnknownTools string `mapstructure:"unknown_tools"`
		// Withhold names the categories whose arguments or results are not
		// kept. In the file only.
		Withhold []Withhold `mapstructure:"withhold"`
		// Tools gives tools a category; the first match wins. In the file only.
		Tools []Tool `mapstructure:"tools"`
	} `mapstructure:"projection"`

	// Compaction says how much of a conversation is replayed word for word.
	Compaction struct {
		// KeepVerbatimTurns is how many turns are at the least.
		KeepVerbatimTurns int `mapstructure:"keep_verbatim_turns"`
		// FoldBatch is how many turns go into the summary at a time.
		FoldBatch int `mapstructure:"fold_batch"`
		// MaxSummaryChars bounds the summary, in characters.
		MaxSummaryChars int `mapstructure:"max_summary_chars"`
		// Summariser is digest, or model: then a model is asked in the background
		// to put the summary into words, and the digest stands until it has.
		Summariser string `mapstructure:"summariser"`
		// Model is any server with the chat completions of OpenAI. What it is
		// told is what was said in conversations.
		Model struct {
			// BaseURL is what comes before /chat/completions. Anything but the
			// loopback needs https.
			BaseURL string `mapstructure:"base_url"`
			Name    string `mapstructure:"name"`
			// APIKeyFile holds the key, and is read for each request; empty is none.
			APIKeyFile string `mapstructure:"api_key_file"`
			// Timeout is of one request, its answer included.
			Timeout Duration `mapstructure:"timeout"`
			// MaxInputTokens bounds one request, as estimated here.
			MaxInputTokens int `mapstructure:"max_input_tokens"`
		} `mapstructure:"model"`
	} `mapstructure:"compaction"`

	// Recall says who is asked for what is already known.
	Recall struct {
		// Deadline is how long a recall may take, whoever is asked.
		Deadline Duration `mapstructure:"deadline"`
		// MinQueryChars is the length below which a query is not asked.
		MinQueryChars int `mapstructure:"min_query_chars"`
		// TopK is how many hits of one retriever count.
		TopK int `mapstructure:"top_k"`
		// MaxItemChars, MaxTitleChars and MaxTotalChars bound a hit, its title and
		// all together, in characters.
		MaxItemChars  int `mapstructure:"max_item_chars"`
		MaxTitleChars int `mapstructure:"max_title_chars"`
		MaxTotalChars int `mapstructure:"max_total_chars"`
		// MinScore leaves out hits of the local search that hold less than this share
		// of what was asked, from 0, which keeps all, to 1.
		MinScore float64 `mapstructure:"min_score"`
		// Local keeps a full-text index of each caller's record, for recalls and
		// for GET /v1/search. Without it a start removes the index of before.
		Local bool `mapstructure:"local"`
		// MCP names servers to ask besides. In the file only.
		MCP []MCPServer `mapstructure:"mcp"`
	} `mapstructure:"recall"`

	// Replay says what a model is shown besides.
	Replay struct {
		// MaxClosureTools is how many tools a full replay declares because the
		// history names them.
		MaxClosureTools int `mapstructure:"max_closure_tools"`
	} `mapstructure:"replay"`

	// Retention says when whole conversations go by themselves, oldest first;
	// 0 keeps for ever. What is in use stays.
	Retention struct {
		// MaxAge is since something was last written to a conversation.
		MaxAge Duration `mapstructure:"max_age"`
		// MaxBytes is what all conversations of one caller may take on disk.
		// The newest of them stays whatever it takes.
		MaxBytes Size `mapstructure:"max_bytes"`
	} `mapstructure:"retention"`
}

// MCPServer is a server with a search tool. See docs/OPERATIONS.md.
type MCPServer struct {
	Name      string        `mapstructure:"name" json:"name"`
	URL       string        `mapstructure:"url" json:"url,omitempty"`
	TokenFile string        `mapstructure:"token_file" json:"token_file,omitempty"`
	Command   []string      `mapstructure:"command" json:"command,omitempty"`
	Preset    string        `mapstructure:"preset" json:"preset,omitempty"`
	Tool      string        `mapstructure:"tool" json:"tool,omitempty"`
	Arguments []MCPArgument `mapstructure:"arguments" json:"arguments,omitempty"`
	Scoped    string        `mapstructure:"scoped" json:"scoped,omitempty"`
	Shared    bool          `mapstructure:"shared" json:"shared,omitempty"`
	Timeout   Duration      `mapstructure:"timeout" json:"timeout,omitzero"`
	MinScore  float64       `mapstructure:"min_score" json:"min_score,omitempty"`
}

// MCPArgument is one argument of a tool. It has its name as a value, since names in a
// configuration file lose their capitals.
type MCPArgument struct {
	Name  string `mapstructure:"name" json:"name"`
	Value any    `mapstructure:"value" json:"value"`
}

// Withhold is a category of tools and the parts of their calls that are not
// kept: arguments, results.
type Withhold struct {
	Category string   `mapstructure:"category" json:"category"`
	Parts    []string `mapstructure:"parts" json:"parts"`
}

// Tool gives a category to the tools whose name is Match, or begins with it
// where it ends in a star, in either case of letters.
type Tool struct {
	Match    string `mapstructure:"match" json:"match"`
	Category string `mapstructure:"category" json:"category"`
}

// Default is what holds without any setting.
func Default() Config {
	var c Config
	c.Listen.TCP = "127.0.0.1:4478"
	c.Listen.UnixMode = "0600"
	c.AllowedHosts = []string{}
	c.Log.Format = "auto"
	c.Log.Level = "info"
	c.Limits.Body = 8 << 20
	c.Limits.Message = 4 << 20
	c.Limits.Import = 512 << 20
	c.Limits.Header = 16 << 10
	c.Limits.Connections = 1024
	c.Limits.PerCallerConcurrency = 256
	c.Store.Segment = 16 << 20
	c.Store.Cache = 64 << 20
	c.Store.OpenFiles = 512
	c.Store.Reserve = 16 << 20
	c.Projection.MaxToolResultChars = 4000
	c.Projection.UnknownTools = "redact"
	c.Projection.Withhold = []Withhold{
		{Category: "wallet", Parts: []string{"arguments", "results"}},
		{Category: "files", Parts: []string{"arguments", "results"}},
	}
	c.Projection.Tools = []Tool{}
	c.Compaction.KeepVerbatimTurns = 10
	c.Compaction.FoldBatch = 5
	c.Compaction.MaxSummaryChars = 8000
	c.Compaction.Summariser = "digest"
	c.Compaction.Model.Timeout = Duration(time.Minute)
	c.Compaction.Model.MaxInputTokens = 8000
	c.Recall.Deadline = Duration(4 * time.Second)
	c.Recall.MinQueryChars = 8
	c.Recall.TopK = 5
	c.Recall.MaxItemChars = 600
	c.Recall.MaxTitleChars = 120
	c.Recall.MaxTotalChars = 2400
	c.Recall.MinScore = 0.33
	c.Recall.Local = true
	c.Recall.MCP = []MCPServer{}
	c.Replay.MaxClosureTools = 64
	return c
}

// Size is a number of bytes. As text it is a number with a unit, such as 8MiB
// (1024 to the power of 2) or 8MB (1000), or without, which is bytes.
type Size int64

// UnmarshalText reads what String prints, and more.
func (s *Size) UnmarshalText(text []byte) error {
	n, err := humanize.ParseBytes(string(text))
	if err != nil || n > math.MaxInt64 {
		return errors.New("want a size such as 8MiB")
	}
	*s = Size(n)
	return nil
}

// String is the size in the largest unit that loses nothing.
func (s Size) String() string {
	for _, unit := range []struct {
		bytes Size
		name  string
	}{{1 << 30, "GiB"}, {1 << 20, "MiB"}, {1 << 10, "KiB"}} {
		if s != 0 && s%unit.bytes == 0 {
			return fmt.Sprintf("%d%s", s/unit.bytes, unit.name)
		}
	}
	return fmt.Sprintf("%dB", int64(s))
}

// MarshalText is String.
func (s Size) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// Duration is a time. As text it is numbers with units, such as 90s or 1m30s, or a
// number of days, such as 30d.
type Duration time.Duration

// UnmarshalText reads what String prints, and more.
func (d *Duration) UnmarshalText(text []byte) error {
	t, err := parseDays(string(text))
	if err != nil {
		return errors.New("want a time such as 60s, 36h or 90d")
	}
	*d = Duration(t)
	return nil
}

// String is the time without the units that are zero.
func (d Duration) String() string {
	s := time.Duration(d).String()
	for _, zero := range []string{"m0s", "h0m"} {
		if strings.HasSuffix(s, zero) {
			s = s[:len(s)-2]
		}
	}
	return s
}

// MarshalText is String.
func (d Duration) MarshalText() ([]byte, error) { return []byte(d.String()), nil }

// envPrefix is what our variables begin with.
const envPrefix = "HISTORYD_"

// key is one key of the configuration: a field that is no section.
type key struct {
	path  string // as in the file, with dots
	env   string // its environment variable
	typ   reflect.Type
	index []int
}

// of is the value of the key in a configuration.
func (k key) of(c *Config) reflect.Value { return reflect.ValueOf(c).Elem().FieldByIndex(k.index) }

// fileOnly reports whether the key holds more than a line of text can say.
func (k key) fileOnly() bool {
	return k.typ.Kind() == reflect.Slice && k.typ.Elem().Kind() == reflect.Struct
}

// keys are all keys in the order of Config.
var keys = keysOf(reflect.TypeFor[Config](), "", nil)

func keysOf(typ reflect.Type, prefix string, index []int) []key {
	var list []key
	for f := range typ.Fields() {
		path := prefix + f.Tag.Get("mapstructure")
		at := append(append([]int{}, index...), f.Index...)
		if f.Type.Kind() == reflect.Struct {
			list = append(list, keysOf(f.Type, path+".", at)...)
			continue
		}
		env := envPrefix + strings.ToUpper(strings.ReplaceAll(path, ".", "_"))
		list = append(list, key{path: path, env: env, typ: f.Type, index: at})
	}
	return list
}
