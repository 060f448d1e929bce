// Package identity says who is calling. It turns evidence (a token, the uid of
// a socket's peer) into a Caller, and a Caller into the Scope that its
// transcripts live in. It does not decide what a caller may do, and it knows
// nothing of HTTP.
//
// Everything about a caller comes from the callers file; nothing a request
// says can change it. A Scope can be made only here, from a valid Caller, and
// text that came from a caller never becomes part of a path: hashes do.
package identity

import (
	"errors"
	"fmt"
	"log/slog"
	"unicode"
	"unicode/utf8"
)

// Kind is what sort of caller somebody is.
type Kind string

// The kinds of caller there are.
const (
	Operator Kind = "operator" // a session of the person who runs the machine
	Mesh     Kind = "mesh"     // a peer agent
)

// maxText is the longest id, permission scope or workspace, in bytes.
const maxText = 256

// Classes of error. The text of an error says what to do and holds no id,
// token or hash.
var (
	// ErrUnauthenticated is the one answer to every bad token and every
	// unknown peer, so that nobody learns which it was.
	ErrUnauthenticated = errors.New("unauthenticated")

	// ErrInvalid marks a caller or a token request that can never be right.
	ErrInvalid = errors.New("invalid caller")

	// ErrConflict marks a request that disagrees with the callers file.
	ErrConflict = errors.New("conflict with the callers file")

	// ErrUnknownToken marks a token id that the callers file does not have.
	ErrUnknownToken = errors.New("no such token id")

	// ErrCallersFile marks a callers file that cannot be understood.
	ErrCallersFile = errors.New("callers file not understood")
)

// Caller is somebody whose evidence was accepted. Callers are comparable. Kind,
// id and permission scope together are the scope key; the workspace is only
// carried along.
type Caller struct {
	Kind            Kind
	ID              string
	PermissionScope string
	Workspace       string
}

// NewCaller returns the caller described by its arguments, or an error
// (ErrInvalid) that names the field which cannot be.
func NewCaller(kind, id, permissionScope, workspace string) (Caller, error) {
	c := Caller{Kind: Kind(kind), ID: id, PermissionScope: permissionScope, Workspace: workspace}
	if err := c.check(); err != nil {
		return Caller{}, err
	}
	return c, nil
}

func (c Caller) check() error {
	if c.Kind != Operator && c.Kind != Mesh {
		return fmt.Errorf("%w: kind must be %s or %s", ErrInvalid, Operator, Mesh)
	}
	if c.ID == "" {
		return fmt.Errorf("%w: id must not be empty", ErrInvalid)
	}
	for _, field := range []struct{ name, text string }{
		{"id", c.ID},
		{"permission scope", c.PermissionScope},
		{"workspace", c.Workspace},
	} {
		if why := refuseText(field.text); why != "" {
			return fmt.Errorf("%w: %s %s", ErrInvalid, field.name, why)
		}
	}
	return nil
}

// refuseText says what is wrong with a text, "" when nothing is. Nothing is
// normalised: two texts are the same when their bytes are.
func refuseText(s string) string {
	if len(s) > maxText {
		return fmt.Sprintf("must be at most %d bytes", maxText)
	}
	if !utf8.ValidString(s) {
		return "must be valid UTF-8"
	}
	for _, r := range s {
		if unicode.IsControl(r) { // C0, delete and C1
			return "must not hold control characters"
		}
	}
	return ""
}

// String is the kind and a short hash, never the id, so that a caller in a
// format string or a log tells no name.
func (c Caller) String() string { return c.Scope().String() }

// LogValue is the same as String.
func (c Caller) LogValue() slog.Value { return c.Scope().LogValue() }
