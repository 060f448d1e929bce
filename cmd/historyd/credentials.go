package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// credentialsVariable is where systemd says in which directory it has put the
// credentials of a unit (LoadCredential=).
const credentialsVariable = "CREDENTIALS_DIRECTORY"

// credential is the name in a path such as $CREDENTIALS_DIRECTORY/callers.
func credential(path string) (name string, ok bool) {
	return strings.CutPrefix(path, "$"+credentialsVariable+"/")
}

// pathKey is a key that holds a path.
type pathKey struct {
	key  string
	path *string
	file bool // it may be a credential
}

// paths are all keys that hold a path.
func (s *settings) paths() []pathKey {
	list := []pathKey{
		{"data_dir", &s.DataDir, false}, {"callers_file", &s.CallersFile, true}, {"listen.unix", &s.Listen.Unix, false},
		{"tls.cert", &s.TLS.Cert, true}, {"tls.key", &s.TLS.Key, true}, {"tls.client_ca", &s.TLS.ClientCA, true},
		{"compaction.model.api_key_file", &s.Compaction.Model.APIKeyFile, true},
	}
	for i := range s.Recall.MCP {
		list = append(list, pathKey{fmt.Sprintf("recall.mcp[%d].token_file", i), &s.Recall.MCP[i].TokenFile, true})
	}
	return list
}

// absolute makes all paths absolute, so that they mean the same to who reads them
// elsewhere. A credential stays as it is where there is no directory of them:
// only the unit has one.
func (s *settings) absolute() (bad problems) {
	for _, p := range s.paths() {
		name, secret := credential(*p.path)
		switch {
		case *p.path == "":
		case secret && !p.file:
			bad = append(bad, problem{key: p.key, text: "can't be a credential"})
		case secret && (name == "" || name == "." || name == ".." || strings.Contains(name, "/")):
			bad = append(bad, problem{key: p.key, text: "want $" + credentialsVariable + "/ and the name of one credential"})
		case secret && s.credentials != "":
			*p.path = filepath.Join(s.credentials, name)
		case secret:
		default:
			abs, err := filepath.Abs(*p.path)
			if err != nil {
				return append(bad, problem{key: p.key, text: err.Error()})
			}
			*p.path = abs
		}
	}
	return bad
}

// needCredentials says which keys name a credential when there are none.
func (s *settings) needCredentials() error {
	for _, p := range s.paths() {
		if name, ok := credential(*p.path); ok {
			return fmt.Errorf("%s: $%s is not set: systemd sets it, for a unit with LoadCredential=%s", p.key, credentialsVariable, name)
		}
	}
	return nil
}

// lookAt says why a file can't be read that the daemon needs, as far as can be
// said from here.
func (s *settings) lookAt(path string) error {
	if _, ok := credential(path); ok || s.elsewhere || path == "" {
		return nil
	}
	_, err := os.Stat(path)
	return err
}
