package identity

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"log/slog"
)

// The labels keep the two derivations apart from each other and from any later
// version of them. A derivation that changes gets a new label, and the old
// directories stay what they are: testdata/scopes.golden pins both.
const (
	scopeLabel        = "historyd/scope/v1"
	conversationLabel = "historyd/conversation/v1"
)

// shortHash is how many hexadecimal digits of a scope's hash a log shows.
const shortHash = 12

// Scope is the wall between callers: what belongs to one is never found under
// another. Two scopes are equal exactly when kind, id and permission scope
// are. Only Caller.Scope makes one; the zero Scope is nobody's, and asking it
// for a directory panics.
type Scope struct {
	kind            Kind
	id              string
	permissionScope string
	hash            string // of the three above, lower-case hexadecimal
}

// Scope returns the scope of c. A Caller that NewCaller would not have made
// has the zero Scope.
func (c Caller) Scope() Scope {
	if c.check() != nil {
		return Scope{}
	}
	return Scope{
		kind:            c.Kind,
		id:              c.ID,
		permissionScope: c.PermissionScope,
		hash:            derive(scopeLabel, string(c.Kind), c.ID, c.PermissionScope),
	}
}

// Valid reports whether s belongs to a caller.
func (s Scope) Valid() bool { return s.hash != "" }

// Kind returns the kind of the caller, "" for the zero Scope.
func (s Scope) Kind() Kind { return s.kind }

// ID returns the caller's id, "" for the zero Scope.
func (s Scope) ID() string { return s.id }

// PermissionScope returns the caller's permission scope, which may be empty.
func (s Scope) PermissionScope() string { return s.permissionScope }

// Dir returns the directory of the scope, "<kind>/<hash>", relative to where
// transcripts are kept.
func (s Scope) Dir() string {
	s.must()
	return string(s.kind) + "/" + s.hash
}

// Conversation returns the name of a conversation's directory below Dir. Any
// name is safe here; whether callers may use it is for ValidConversation.
func (s Scope) Conversation(name string) string {
	s.must()
	return derive(conversationLabel, string(s.kind), s.id, s.permissionScope, name)
}

// must stops a zero Scope before it names the directory above everybody's.
func (s Scope) must() {
	if !s.Valid() {
		panic("identity: a directory was asked of the zero Scope")
	}
}

// String is the kind and a short hash, never the id.
func (s Scope) String() string {
	if !s.Valid() {
		return "nobody"
	}
	return string(s.kind) + "/" + s.hash[:shortHash]
}

// LogValue is the same as String.
func (s Scope) LogValue() slog.Value { return slog.StringValue(s.String()) }

// derive hashes a label and its parts, each with its length before it, so that
// no two lists of parts give the same bytes to hash.
//
//	| length, 8 bytes big-endian | label | length | part | length | part | …
func derive(label string, parts ...string) string {
	buf := make([]byte, 0, 1024)
	buf = binary.BigEndian.AppendUint64(buf, uint64(len(label)))
	buf = append(buf, label...)
	for _, p := range parts {
		buf = binary.BigEndian.AppendUint64(buf, uint64(len(p)))
		buf = append(buf, p...)
	}
	sum := sha256.Sum256(buf)
	return hex.EncodeToString(sum[:])
}

// maxConversation is the longest conversation name, in bytes.
const maxConversation = 128

// ValidConversation reports whether callers may use name for a conversation:
// ^[A-Za-z0-9_~-][A-Za-z0-9._~-]{0,127}$.
func ValidConversation(name string) bool {
	if name == "" || len(name) > maxConversation || name[0] == '.' {
		return false
	}
	for i := range len(name) {
		c := name[i]
		switch {
		case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '0' <= c && c <= '9':
		case c == '.', c == '_', c == '~', c == '-':
		default:
			return false
		}
	}
	return true
}
