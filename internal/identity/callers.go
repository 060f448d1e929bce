package identity

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json/jsontext"
	"encoding/json/v2"
	"errors"
	"fmt"
	"strings"
	"time"
)

// The callers file is one JSON object:
//
//	{"version": 1,
//	 "callers": [
//	   {"kind": "mesh", "id": "…", "permission_scope": "", "workspace": "", "uid": 1000,
//	    "tokens": [{"id": "tok_…", "hash": "<SHA-256 of the token, 64 hexadecimal digits>",
//	                "created_at": "…", "expires_at": "…", "revoked_at": "…"}]}]}
//
// It may be lost (then nobody gets in) and edited by hand. uid, expires_at and
// revoked_at may be absent. A caller stands in it once, whatever its
// workspace; so does a uid, a token id and a hash. A revoked token stays as a
// record, so the file only grows.
const callersVersion = 1

type document struct {
	Version int      `json:"version"`
	Callers []record `json:"callers"`
}

type record struct {
	Kind            string   `json:"kind"`
	ID              string   `json:"id"`
	PermissionScope string   `json:"permission_scope"`
	Workspace       string   `json:"workspace"`
	UID             *uint32  `json:"uid,omitzero"`
	Tokens          []stored `json:"tokens"`
}

type stored struct {
	ID      string     `json:"id"`
	Hash    string     `json:"hash"`
	Created time.Time  `json:"created_at"`
	Expires *time.Time `json:"expires_at,omitzero"`
	Revoked *time.Time `json:"revoked_at,omitzero"`
}

func (r record) caller() Caller {
	return Caller{Kind: Kind(r.Kind), ID: r.ID, PermissionScope: r.PermissionScope, Workspace: r.Workspace}
}

// parse reads a callers file strictly: what it does not know, it refuses. An
// error (ErrCallersFile) says where, and quotes nothing of the file.
func parse(data []byte) (document, error) {
	var doc document
	if err := json.Unmarshal(data, &doc, json.RejectUnknownMembers(true)); err != nil {
		return document{}, fmt.Errorf("%w: %s: correct it by hand or put a copy back", ErrCallersFile, whatIsWrong(data, err))
	}
	if err := doc.check(); err != nil {
		return document{}, fmt.Errorf("%w: %w: correct it by hand or put a copy back", ErrCallersFile, err)
	}
	return doc, nil
}

// whatIsWrong describes a decoding error without the decoder's own words,
// which may quote a value.
func whatIsWrong(data []byte, err error) string {
	what, offset := "not the JSON it should be", int64(0)
	var syntax *jsontext.SyntacticError
	var meaning *json.SemanticError
	switch {
	case errors.Is(err, json.ErrUnknownName):
		what = "unknown member"
	case errors.Is(err, jsontext.ErrDuplicateName):
		what = "member given twice"
	}
	switch {
	case errors.As(err, &syntax):
		offset = syntax.ByteOffset
	case errors.As(err, &meaning):
		offset = meaning.ByteOffset
		if !errors.Is(err, json.ErrUnknownName) {
			what = "value of the wrong type"
		}
	}
	offset = min(max(offset, 0), int64(len(data)))
	line := 1 + bytes.Count(data[:offset], []byte("\n"))
	return fmt.Sprintf("%s near line %d", what, line)
}

// check holds the document to what its comment promises.
func (d document) check() error {
	if d.Version != callersVersion {
		return fmt.Errorf("version must be %d (a higher one is of a newer historyd)", callersVersion)
	}
	scopes := make(map[Scope]bool, len(d.Callers))
	uids := make(map[uint32]bool)
	ids := make(map[string]bool, len(d.Callers))
	hashes := make(map[string]bool, len(d.Callers))
	for i, r := range d.Callers {
		c := r.caller()
		if err := c.check(); err != nil {
			return fmt.Errorf("callers[%d]: %w", i, err)
		}
		if scopes[c.Scope()] {
			return fmt.Errorf("callers[%d]: kind, id and permission scope are those of another caller above it", i)
		}
		scopes[c.Scope()] = true
		if r.UID != nil {
			if !ValidUID(*r.UID) {
				return fmt.Errorf("callers[%d]: uid %d is never an identity", i, *r.UID)
			}
			if uids[*r.UID] {
				return fmt.Errorf("callers[%d]: uid %d is that of another caller above it", i, *r.UID)
			}
			uids[*r.UID] = true
		}
		for j, t := range r.Tokens {
			if why := t.refuse(); why != "" {
				return fmt.Errorf("callers[%d].tokens[%d]: %s", i, j, why)
			}
			if ids[t.ID] || hashes[t.Hash] {
				return fmt.Errorf("callers[%d].tokens[%d]: the same token stands above it", i, j)
			}
			ids[t.ID], hashes[t.Hash] = true, true
		}
	}
	return nil
}

// refuse says what is wrong with a stored token, "" when nothing is.
func (t stored) refuse() string {
	if !validTokenID(t.ID) {
		return "id must be 1 to 128 letters, digits, dots, underscores or dashes, begin with a letter or digit, " +
			"and not be the token itself"
	}
	if _, ok := parseHash(t.Hash); !ok {
		return "hash must be 64 lower-case hexadecimal digits"
	}
	if t.Created.IsZero() {
		return "created_at is missing"
	}
	if t.Expires != nil && t.Expires.IsZero() || t.Revoked != nil && t.Revoked.IsZero() {
		return "a time is the zero time"
	}
	return ""
}

// parseHash reads the stored form of a token's hash.
func parseHash(text string) (sum [sha256.Size]byte, ok bool) {
	if len(text) != 2*len(sum) || strings.ToLower(text) != text {
		return sum, false
	}
	_, err := hex.Decode(sum[:], []byte(text))
	return sum, err == nil
}

// format is what parse reads.
func (d document) format() ([]byte, error) {
	if err := d.check(); err != nil {
		return nil, err
	}
	data, err := json.Marshal(d, jsontext.WithIndent("  "))
	if err != nil {
		return nil, err
	}
	return append(data, '\n'), nil
}
