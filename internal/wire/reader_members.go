package wire

import (
	"bytes"
	"encoding/json/jsontext"
	"io"
	"math"
	"slices"
	"strings"

	"historyd/internal/strictjson"
)

// documentType is the type member of a native document.
const documentType = "historyd.history"

// providers is how an import says whose messages a document has.
const providers = "format=openai, anthropic, responses or gemini"

var nativeMembers = []string{
	"version", "type", "conversation", "created_at", "messages", "summary", "tool_categories", "damaged",
}

// A brief codec has documents of which the list is not all there is to know.
type brief interface {
	// alone returns the element that a text in place of the list stands for.
	alone(text strictjson.Value) strictjson.Value
	// noConversation says why a document with that member is none; "" when it may be one.
	noConversation(name string, v strictjson.Value) string
}

// lists are the members in which the document may have its list.
func (d *Reader) lists() []string {
	if c := codecs[d.format]; c != nil {
		return c.lists()
	}
	return []string{"messages"}
}

func (d *Reader) listNames() string { return strings.Join(d.lists(), " or ") }

func (d *Reader) knownMembers() []string {
	if d.format == Native {
		return nativeMembers
	}
	return append(slices.Clip(d.lists()), "tool_categories")
}

// readMembers reads members of the document up to its list, or up to the end.
func (d *Reader) readMembers() error {
	known := d.knownMembers()
	for {
		d.src.allow(d.dec.InputOffset() + maxNames + readAround)
		if d.dec.PeekKind() == '}' {
			break
		}
		name, err := d.name()
		if err != nil {
			return err
		}
		list := slices.Contains(d.lists(), name)
		if list && !d.listed {
			if d.dec.PeekKind() == '[' {
				d.there[name], d.listed, d.atList = true, true, true
				d.lookAhead()
				return nil
			}
		}
		v, err := d.value(maxMember, 1, "document")
		if err != nil {
			return err
		}
		if d.member(name, v, list, known); d.ended {
			return nil
		}
	}
	if _, err := d.dec.ReadToken(); err != nil {
		return d.failure(err, 1)
	}
	d.missing()
	d.ended = true
	return d.end()
}

// name reads the name of the next member, which no other has.
func (d *Reader) name() (string, error) {
	if d.dec.PeekKind() != '"' {
		_, err := d.dec.ReadToken() // which says what is wrong with it
		return "", d.failed(err, 1)
	}
	raw, err := d.dec.ReadValue()
	if err != nil {
		return "", d.failed(err, 1)
	}
	v := strictjson.Value{Raw: raw, Offset: d.dec.InputOffset() - int64(len(raw))}
	if err := strict(v, 1); err != nil {
		return "", err
	}
	name, _ := v.Text()
	if d.names += len(name); d.names > maxNames {
		return "", &strictjson.SyntaxError{Offset: d.dec.InputOffset(), Reason: "the members of the document have too long names"}
	}
	if d.met[name] {
		return "", &strictjson.SyntaxError{Offset: v.Offset, Reason: "a duplicate name in one object"}
	}
	d.met[name] = true
	return name, nil
}

// member takes a member of the document.
func (d *Reader) member(name string, v strictjson.Value, list bool, known []string) {
	switch {
	case list && d.listed:
		d.fault(v, name, "is a second list of messages")
	case list:
		d.listed, d.there[name] = true, true
		if c, ok := codecs[d.format].(brief); ok && v.Kind() == '"' {
			d.alone = c.alone(v)
			return
		}
		d.fault(v, name, "is a list of messages")
	case name == "tool_categories":
		d.there[name] = true
		d.categoriesMember(v)
	case d.format != Native:
		if name == "type" {
			if s, _ := v.Text(); s == documentType {
				d.fault(v, "type", "this is a native document: import it with format native")
				d.ended = true
				return
			}
		}
		if c, ok := codecs[d.format].(brief); ok {
			if why := c.noConversation(name, v); why != "" {
				d.fault(v, name, "%s", why)
				d.ended = true
				return
			}
		}
		d.variant(name, v, "", known)
	case slices.Contains(known, name):
		d.there[name] = true
		d.nativeMember(name, v)
	case !d.variant(name, v, "", known):
		d.fault(v, "", "unknown member of the document")
	}
}

// categoriesMember takes the categories, which whoever reads the messages needs before them.
func (d *Reader) categoriesMember(v strictjson.Value) {
	found := d.categories(v, math.MaxInt)
	switch {
	case !d.listed:
		d.category, d.known = found, true
	case !d.ahead && found != nil:
		d.fault(v, "tool_categories", "stands too far behind the messages: put it before them")
	}
}

func (d *Reader) nativeMember(name string, v strictjson.Value) {
	switch name {
	case "version":
		if newer(v) {
			d.fromTheFuture(v)
		} else if string(v.Raw) != "1" {
			d.fault(v, name, "must be the integer 1")
		}
	case "type":
		if s, ok := v.Text(); !ok || s != documentType {
			d.fault(v, name, "must be %s", documentType)
		}
	case "conversation":
		d.text(v, name, 0, 0)
	case "created_at":
		d.createdAt = d.time(v, name)
	case "summary":
		// What is shown as the summary is made anew from the messages.
		if k := v.Kind(); k != '{' && k != 'n' {
			d.fault(v, name, "must be an object")
		}
	case "damaged":
		// What an export could not read is no part of the conversation that it makes.
		if v.Kind() != '{' {
			d.fault(v, name, "must be an object")
		}
	}
}

// newer reports whether a version is an integer over 1.
func newer(v strictjson.Value) bool {
	digits := string(v.Raw)
	return strings.Trim(digits, "0123456789") == "" && digits != "0" && digits != "1"
}

// fromTheFuture ends the reading: the rest of such a document would only look wrong.
func (d *Reader) fromTheFuture(v strictjson.Value) {
	d.faults.List, d.faults.More = nil, 0
	d.fault(v, "version", "the document was written by a newer historyd: upgrade this one to import it")
	d.ended, d.atList, d.tar = true, false, nil
}

// missing notes what a document has to have.
func (d *Reader) missing() {
	at := strictjson.Value{Offset: d.start}
	if d.format != Native {
		if !d.listed {
			d.fault(at, d.lists()[0], "is missing: a list of messages")
		}
		return
	}
	version := "1"
	if d.there["messages"] && !d.there["version"] && !d.there["type"] { // as the body of an append
		version = "1, as in an export; an object with messages alone needs their format (" + providers + ")"
	}
	for _, member := range []struct{ name, want string }{
		{"version", version}, {"type", `"historyd.history"`}, {"messages", "a list of messages"},
	} {
		if !d.there[member.name] {
			d.fault(at, member.name, "is missing: %s", member.want)
		}
	}
}

// lookAhead finds the categories, and the version, where they stand behind the list, if
// that is not too far. The decoder stands before the list. What is wrong there is told
// when the document is read up to it.
func (d *Reader) lookAhead() {
	if d.known && (d.format != Native || d.there["version"]) {
		return
	}
	d.src.lookAhead(lookAhead)
	dec := jsontext.NewDecoder(io.MultiReader(
		strings.NewReader(`{"":`), bytes.NewReader(bytes.TrimLeft(d.dec.UnreadBuffer(), ": \t\r\n")), bytes.NewReader(d.src.ahead)),
		jsontext.AllowDuplicateNames(true))
	for range 2 {
		if _, err := dec.ReadToken(); err != nil {
			return
		}
	}
	if dec.SkipValue() != nil {
		return
	}
	for dec.PeekKind() == '"' {
		token, err := dec.ReadToken()
		if err != nil {
			return
		}
		name := token.String()
		if name != "tool_categories" && (name != "version" || d.format != Native) {
			if dec.SkipValue() != nil {
				return
			}
			continue
		}
		raw, err := dec.ReadValue()
		if err != nil || strictjson.CheckDepth(raw, strictjson.MaxDepth-1) != nil {
			return
		}
		v := strictjson.Value{Raw: raw}
		if name == "version" {
			if newer(v) {
				d.fromTheFuture(v)
				return
			}
		} else if !d.known {
			var unheard reader
			d.category, d.known, d.ahead = unheard.categories(v, math.MaxInt), true, true
		}
	}
}
