package main

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/go-viper/mapstructure/v2"
	"github.com/spf13/viper"
)

// systemConfig is read when no --config is given and it is there.
const systemConfig = "/etc/historyd/historyd.yaml"

// sources are where settings come from, the later the stronger: defaults,
// file, environment, flags.
type sources struct {
	file   string            // --config
	system string            // instead of file, when it is there
	env    []string          // as os.Environ
	flags  map[string]string // by path of the key: the flags given

	// elsewhere is for a command that is not about the daemon's own process: the
	// files that only the daemon reads need not be there, nor be readable.
	elsewhere bool

	service string // data directory of the service, when it is meant by default
}

// fromService is where a data directory comes from that is the service's.
const fromService = "default, of the service"

// settings is a configuration and where each of its values came from.
type settings struct {
	Config
	from  map[string]string // by path: "default", "file …", "env …", "flag …"
	file  string            // that was given with --config, if one was
	read  string            // the file that was read, if one was
	doubt []string          // paths whose value is not what was meant; an empty one is all of them

	elsewhere   bool   // as in sources
	credentials string // the directory of them; empty without one
}

// inDoubt reports whether something at a path, above it or below it was not
// understood, so that what follows from its value is not worth saying.
func (s *settings) inDoubt(path string) bool {
	return slices.ContainsFunc(s.doubt, func(d string) bool { return d == "" || isWithin(path, d) || isWithin(d, path) })
}

// isTold reports whether what is wrong at a path has been said already.
func (s *settings) isTold(path string) bool {
	return slices.ContainsFunc(s.doubt, func(d string) bool { return d != "" && isWithin(path, d) })
}

// isWithin reports whether a path is another one or something in it.
func isWithin(path, other string) bool {
	rest, ok := strings.CutPrefix(path, other)
	return ok && (rest == "" || rest[0] == '.' || rest[0] == '[')
}

// flagNames are the flags that set a key, by path.
var flagNames = map[string]string{
	"data_dir":    "--data-dir",
	"listen.tcp":  "--listen",
	"listen.unix": "--socket",
	"log.level":   "--log-level",
}

// load returns the settings, checked and with their paths made absolute. An
// error holds all that is wrong.
func load(src sources) (settings, error) {
	s := settings{from: map[string]string{}, file: src.file, elsewhere: src.elsewhere}
	// Viper is used for laying one source over the other and no more. It would
	// take keys in any case and values of any type, so what comes in is checked
	// before it gets there.
	strict := &strictYAML{}
	v := viper.NewWithOptions(viper.WithDecoderRegistry(strict))
	defaults := Default()
	for _, k := range keys {
		v.SetDefault(k.path, k.of(&defaults).Interface())
		s.from[k.path] = "default"
	}
	var bad problems
	bad = append(bad, s.readFile(v, src, strict)...)
	bad = append(bad, s.readEnv(v, src.env)...)
	for _, path := range slices.Sorted(maps.Keys(src.flags)) {
		v.Set(path, src.flags[path])
		s.from[path] = "flag " + flagNames[path]
	}
	err := v.UnmarshalExact(&s.Config, viper.DecodeHook(mapstructure.TextUnmarshallerHookFunc()),
		func(d *mapstructure.DecoderConfig) { d.WeaklyTypedInput = false })
	if err != nil {
		bad = append(bad, problem{text: fmt.Sprintf("read configuration: %v", err)})
		return settings{}, bad
	}
	// What was not understood has its default by now, and the rest is looked at.
	for _, p := range append(s.resolve(src), s.check()...) {
		if !s.isTold(p.key) {
			bad = append(bad, p)
		}
	}
	if len(bad) > 0 {
		return settings{}, bad
	}
	return s, nil
}

// readFile lays the configuration file over the defaults.
func (s *settings) readFile(v *viper.Viper, src sources, strict *strictYAML) problems {
	name := src.file
	if name == "" {
		if _, err := os.Stat(src.system); errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		name = src.system
	}
	v.SetConfigFile(name)
	v.SetConfigType("yaml")
	if err := v.ReadInConfig(); err != nil {
		var parse viper.ConfigParseError
		var open *fs.PathError
		switch {
		case errors.As(err, &parse):
			err = parse.Unwrap()
		case errors.As(err, &open):
			err = open.Err // the name is said already
		}
		s.doubt = append(s.doubt, "")
		return problems{{where: name, text: err.Error()}}
	}
	s.read = name
	for i := range strict.bad {
		strict.bad[i].where = name
		s.doubt = append(s.doubt, item(strict.bad[i].key))
	}
	for _, k := range keys {
		if v.InConfig(k.path) {
			s.from[k.path] = "file " + name
		}
	}
	return strict.bad
}

// item is the item of a list that a path is in, or the path itself.
func item(path string) string {
	if end := strings.LastIndexByte(path, ']'); end >= 0 {
		return path[:end+1]
	}
	return path
}

// strictYAML reads YAML and takes only what Config has.
type strictYAML struct {
	bad problems // of the rest
}

// Decoder is for viper.
func (s *strictYAML) Decoder(string) (viper.Decoder, error) { return s, nil }

// Decode reads a file. Its errors are of the parser.
func (s *strictYAML) Decode(text []byte, into map[string]any) error {
	yaml, err := viper.NewCodecRegistry().Decoder("yaml")
	if err != nil {
		return err
	}
	if err := yaml.Decode(text, into); err != nil {
		return err
	}
	s.bad = checkFile(into)
	return nil
}

// foreignEnv are variables with our prefix that are no setting: who calls a
// daemon may keep the token in HISTORYD_TOKEN, the others are for tests.
func foreignEnv(name string) bool {
	return name == "HISTORYD_TOKEN" || strings.HasPrefix(name, "HISTORYD_TEST_")
}

// readEnv lays the environment over the file. An empty variable is a value.
func (s *settings) readEnv(v *viper.Viper, environ []string) problems {
	var bad problems
	for _, entry := range slices.Sorted(slices.Values(environ)) {
		name, text, _ := strings.Cut(entry, "=")
		if !strings.HasPrefix(name, envPrefix) || foreignEnv(name) {
			continue
		}
		at := slices.IndexFunc(keys, func(k key) bool { return k.env == name })
		if at < 0 {
			bad = append(bad, problem{where: name, text: "unknown variable" + hintVariable(name)})
			continue
		}
		k := keys[at]
		if k.fileOnly() {
			bad = append(bad, problem{where: name, text: k.path + " can be set in the configuration file only"})
			continue
		}
		value, err := parseText(k.typ, text)
		if err != nil {
			bad = append(bad, problem{where: name, text: err.Error()})
			s.doubt = append(s.doubt, k.path)
			continue
		}
		if err := v.MergeConfigMap(nest(k.path, value)); err != nil {
			bad = append(bad, problem{where: name, text: err.Error()})
		}
		s.from[k.path] = "env " + name
	}
	return bad
}

// nest puts a value where its path says.
func nest(path string, value any) map[string]any {
	section, rest, deeper := strings.Cut(path, ".")
	if deeper {
		value = nest(rest, value)
	}
	return map[string]any{section: value}
}

// resolve fills in the paths that are left empty and makes all of them
// absolute, so that they mean the same to who reads them elsewhere.
func (s *settings) resolve(src sources) problems {
	environ := src.env
	if s.DataDir == "" {
		dir, from := stateDir(environ, src.service)
		if dir == "" && s.inDoubt("data_dir") {
			return nil
		}
		if dir == "" {
			return problems{{key: "data_dir", text: "no home directory to put it in: set it"}}
		}
		s.DataDir = dir
		s.from["data_dir"] = from
	}
	if dir := lookUp(environ, credentialsVariable); dir != "" {
		s.credentials = filepath.Clean(dir)
	}
	if bad := s.absolute(); bad != nil {
		return bad
	}
	if s.CallersFile == "" {
		s.CallersFile = filepath.Join(s.DataDir, "callers.json")
		s.from["callers_file"] = "default, in data_dir"
	}
	return nil
}

// lookUp returns a variable's value in an environment, "" without one.
func lookUp(environ []string, name string) (value string) {
	for _, entry := range environ {
		if key, text, _ := strings.Cut(entry, "="); key == name {
			value = text
		}
	}
	return value
}

// stateDir returns where state belongs, and what says so; service is the data
// directory of the service if that is meant.
func stateDir(environ []string, service string) (dir, from string) {
	if first, _, _ := strings.Cut(lookUp(environ, "STATE_DIRECTORY"), ":"); first != "" {
		return first, "default, from STATE_DIRECTORY"
	}
	if service != "" {
		return service, fromService
	}
	// The specification of XDG has relative paths ignored.
	if home := lookUp(environ, "XDG_STATE_HOME"); filepath.IsAbs(home) {
		return filepath.Join(home, "historyd"), "default, from XDG_STATE_HOME"
	}
	if home := lookUp(environ, "HOME"); home != "" {
		return filepath.Join(home, ".local", "state", "historyd"), "default, from HOME"
	}
	return "", ""
}
