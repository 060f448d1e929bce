package main

import (
	"archive/tar"
	"context"
	"encoding/json/jsontext"
	"encoding/json/v2"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
)

// A damage is what of a conversation cannot be read, as the daemon tells it.
type damage struct {
	Places      int64 `json:"places"`
	Bytes       int64 `json:"bytes"`
	Lost        int64 `json:"lost"`
	Attachments int64 `json:"attachments,omitzero"` // which are among the places
}

// parseDamage reads the member damaged, which is false where there is none.
func parseDamage(v jsontext.Value) *damage {
	var d damage
	if v.Kind() != '{' || json.Unmarshal(v, &d) != nil {
		return nil
	}
	return &d
}

// member is the damage as the API has it.
func (d *damage) member() any {
	if d == nil {
		return false
	}
	return d
}

func (d *damage) String() string {
	var what []string
	if d.Lost > 0 {
		what = append(what, count(d.Lost, "message")+" lost")
	}
	if d.Attachments > 0 {
		what = append(what, count(d.Attachments, "attachment")+" lost")
	}
	if d.Lost == 0 && d.stretches() > 0 {
		what = append(what, count(d.stretches(), "place")+" not readable")
	}
	return strings.Join(what, ", ")
}

// stretches are the places in the record itself.
func (d *damage) stretches() int64 { return d.Places - d.Attachments }

// plus is the damage of both.
func (d *damage) plus(other *damage) *damage {
	switch {
	case d == nil:
		return other
	case other == nil:
		return d
	}
	return &damage{d.Places + other.Places, d.Bytes + other.Bytes, d.Lost + other.Lost, d.Attachments + other.Attachments}
}

// shortened is the damage that shows in the versions alone: the end of the record that a file was made of is gone, and
// nothing in the record tells. Once seen it stays, for the record may grow past where it was.
func (f exportedFile) shortened(now string) *damage {
	was, seq, ok := parseVersion(f.Version)
	is, last, known := parseVersion(now)
	lost := max(f.Lost, seq-last)
	if !ok || !known || was != is || lost <= 0 {
		return nil
	}
	return &damage{Places: 1, Lost: lost}
}

// parseVersion reads the ETag of a conversation.
func parseVersion(tag string) (epoch string, lastSeq int64, ok bool) {
	epoch, last, ok := strings.Cut(strings.Trim(tag, `"`), "-")
	lastSeq, err := strconv.ParseInt(last, 10, 64)
	return epoch, lastSeq, ok && err == nil
}

// within reports whether what has this damage lacks no more than what has the other.
func (d *damage) within(other *damage) bool {
	return d == nil || other != nil && d.stretches() <= other.stretches() && d.Lost <= other.Lost && d.Attachments <= other.Attachments
}

// state asks for the version of a conversation, and for the damage that was met in it so far. After an export, which
// reads everything, that is all damage; most formats have no place to tell it.
func (c *client) state(ctx context.Context, name string) (version string, hurt *damage, err error) {
	for tries := 0; ; tries++ {
		res, err := c.do(ctx, http.MethodGet, conversationPath(name, ""), "", nil, 0)
		if again(ctx, err, tries) {
			continue
		}
		if err != nil {
			return "", nil, fmt.Errorf("ask for damage in %s: %w", name, err)
		}
		var got struct {
			Damaged jsontext.Value `json:"damaged"`
		}
		err = json.UnmarshalRead(res.Body, &got)
		_ = res.Body.Close()
		if err != nil {
			return "", nil, fmt.Errorf("ask for damage in %s: %w", name, err)
		}
		return res.Header.Get("ETag"), parseDamage(got.Damaged), nil
	}
}

// isUnreadable reports whether nothing of a conversation can be read.
func isUnreadable(err error) bool {
	var r *refusal
	return errors.As(err, &r) && r.code == "damaged_transcript"
}

// saidIn returns the damage that a document tells of; nil when it tells of none, or is none.
func saidIn(r io.Reader, format string) *damage {
	in, err := openMember(r, format, "damaged")
	if err != nil {
		return nil
	}
	v, err := in.ReadValue()
	if err != nil {
		return nil
	}
	return parseDamage(v)
}

// openMember reads a document up to the value of a member.
func openMember(r io.Reader, format, member string) (*jsontext.Decoder, error) {
	switch format {
	case "native":
	case "tar":
		archive := tar.NewReader(r)
		for h := new(tar.Header); h.Typeflag != tar.TypeReg; {
			var err error
			if h, err = archive.Next(); err != nil {
				return nil, err
			}
		}
		r = archive
	default:
		return nil, errNoMember
	}
	in := jsontext.NewDecoder(r, jsontext.AllowInvalidUTF8(true), jsontext.AllowDuplicateNames(true))
	if start, err := in.ReadToken(); err != nil || start.Kind() != '{' {
		return nil, errNoMember
	}
	for in.PeekKind() == '"' {
		name, err := in.ReadToken()
		if err != nil {
			return nil, err
		}
		if name.String() == member {
			return in, nil
		}
		if err := in.SkipValue(); err != nil {
			return nil, err
		}
	}
	return nil, errNoMember
}

var errNoMember = errors.New("there is no such member")

// An overheard is a document that is read along while it is sent, for the damage that it tells of.
type overheard struct {
	*io.PipeWriter
	said chan *damage
}

// overhear begins to read along what is written. It ends with said.
func overhear(format string) *overheard {
	r, w := io.Pipe()
	o := &overheard{w, make(chan *damage, 1)}
	go func() { // ends when the pipe is closed
		said := saidIn(r, format)
		_, _ = io.Copy(io.Discard, r) // whoever writes is not to wait
		o.said <- said
	}()
	return o
}

// end returns what was heard.
func (o *overheard) end() *damage {
	_ = o.Close() // a pipe's never fails
	return <-o.said
}
