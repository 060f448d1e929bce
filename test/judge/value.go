package judge

import (
	"bytes"
	"encoding/base64"
	"encoding/json/jsontext"
	"image"
	_ "image/gif" // for image.DecodeConfig
	_ "image/jpeg"
	_ "image/png"
	"strconv"
	"strings"

	"historyd/internal/strictjson"
)

// maxDepth is deeper than what anybody writes, and keeps the reader from running away.
const maxDepth = 500

// A value is JSON with its place.
type value struct {
	parent   *value
	name     string // in an object
	index    int    // in a list
	kind     jsontext.Kind
	text     string   // of a string
	children []*value // members or elements
}

// parse reads one part of the request; nil when there is none, or no JSON.
func (c *checker) parse(name string, doc []byte) *value {
	if len(doc) == 0 {
		return nil
	}
	if err := strictjson.CheckDepth(doc, maxDepth); err != nil {
		c.complaints = append(c.complaints, name+" is not valid JSON, "+err.Error()+": we could not parse the JSON body.")
		return nil
	}
	v := &value{name: name}
	c.read(jsontext.NewDecoder(bytes.NewBuffer(doc)), v)
	return v
}

func (c *checker) read(dec *jsontext.Decoder, v *value) {
	tok, _ := dec.ReadToken()
	v.kind = tok.Kind()
	switch v.kind {
	case '"':
		v.text = tok.String()
		if strings.Contains(v.text, "\x00") {
			c.complain(v, "holds a NUL character: unexpected end of data")
		}
	case '[':
		for dec.PeekKind() != ']' {
			e := &value{parent: v, index: len(v.children)}
			c.read(dec, e)
			v.children = append(v.children, e)
		}
		_, _ = dec.ReadToken()
	case '{':
		for dec.PeekKind() != '}' {
			name, _ := dec.ReadToken()
			m := &value{parent: v, name: name.String()}
			if strings.Contains(m.name, "\x00") {
				c.complain(m, "has a NUL character in its name: unexpected end of data")
			}
			c.read(dec, m)
			v.children = append(v.children, m)
		}
		_, _ = dec.ReadToken()
	}
}

// path tells where the value stands.
func (v *value) path() string {
	switch {
	case v.parent == nil:
		return v.name
	case v.parent.kind == '[':
		return v.parent.path() + "[" + strconv.Itoa(v.index) + "]"
	case matches(v.name, 64, ""):
		return v.parent.path() + "." + v.name
	}
	return v.parent.path() + "[" + strconv.Quote(v.name) + "]"
}

// member returns a member of an object, or nil.
func (v *value) member(name string) *value {
	if v == nil || v.kind != '{' {
		return nil
	}
	for _, m := range v.children {
		if m.name == name {
			return m
		}
	}
	return nil
}

// str is the text of a member that is a string.
func (v *value) str(name string) string {
	if m := v.member(name); m != nil {
		return m.text
	}
	return ""
}

const signs = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_-"

// matches reports whether a name is made of letters, digits, _ and -, begins with none
// of those forbidden, and is neither empty nor too long.
func matches(s string, max int, forbidden string) bool {
	return s != "" && len(s) <= max && strings.Trim(s, signs) == "" && !strings.ContainsAny(s[:1], forbidden)
}

// toolName is a name of a tool that matches.
func toolName(max int, forbidden string) check {
	return func(c *checker, v *value) {
		switch isString(c, v); {
		case v.kind != '"':
		case forbidden == "" && !matches(v.text, max, ""):
			c.complain(v, "must match ^[a-zA-Z0-9_-]{1,%d}$", max)
		case !matches(v.text, max, forbidden):
			c.complain(v, "must match ^[a-zA-Z_][a-zA-Z0-9_-]{0,%d}$", max-1)
		}
	}
}

// base64Of returns what base64 holds; false when it is none or holds nothing.
func base64Of(c *checker, v *value) ([]byte, bool) {
	if isString(c, v); v.kind != '"' {
		return nil, false
	}
	return decode64(c, v, v.text)
}

func decode64(c *checker, v *value, text string) ([]byte, bool) {
	data, err := base64.StdEncoding.Strict().DecodeString(text)
	if err != nil || strings.ContainsAny(text, "\r\n") {
		c.complain(v, "is not valid base64")
		return nil, false
	}
	if len(data) == 0 {
		c.complain(v, "holds no data")
	}
	return data, len(data) > 0
}

func isBase64(c *checker, v *value) { base64Of(c, v) }

// image counts an image, with its base64 when that is in the request.
func (c *checker) image(v *value, text string) {
	c.images++
	if len(text) > maxImage {
		c.complain(v, "is an image of %d characters: the limit is 5 MB", len(text))
	}
}

// Limits of images, in pixels a side.
const (
	maxSide       = 8000
	maxSideOfMany = 2000
	fewImages     = 20
)

// sides holds an image to the limits of its sides, where its bytes tell them.
func (c *checker) sides(v *value, data []byte) {
	n := longer(data)
	if n > maxSide {
		c.complain(v, "is an image of %d pixels a side: at most %d are taken", n, maxSide)
	}
	if n > maxSideOfMany {
		c.wide = append(c.wide, v)
	}
}

// longer is the longer side of an image; 0 for bytes that nobody can read.
func longer(data []byte) int {
	if len(data) >= 30 && string(data[:4]) == "RIFF" && string(data[8:12]) == "WEBP" {
		bits := func(at, from, n int) int {
			v := 0
			for i := 3; i >= 0; i-- {
				v = v<<8 | int(data[at+i])
			}
			return v >> from & (1<<n - 1)
		}
		return map[string]int{
			"VP8 ": max(bits(26, 0, 14), bits(26, 16, 14)),
			"VP8L": max(bits(21, 0, 14), bits(21, 14, 14)) + 1,
			"VP8X": max(bits(24, 0, 24), bits(26, 8, 24)) + 1,
		}[string(data[12:16])]
	}
	size, _, err := image.DecodeConfig(bytes.NewReader(data))
	if err != nil {
		return 0
	}
	return max(size.Width, size.Height)
}

// imageURL is the URL of an image, or a data: URL of one.
func imageURL(c *checker, v *value) {
	if isString(c, v); v.kind != '"' {
		return
	}
	rest, inline := strings.CutPrefix(v.text, "data:")
	if !inline {
		webURL(c, v)
		c.image(v, "")
		return
	}
	head, text, comma := strings.Cut(rest, ",")
	media, is64 := strings.CutSuffix(head, ";base64")
	if !comma || !is64 || !imageType(media) {
		c.complain(v, "is no data: URL of an image in base64: image/jpeg, image/png, image/gif or image/webp")
		return
	}
	decode64(c, v, text)
	c.image(v, text)
}

func webURL(c *checker, v *value) {
	if isString(c, v); v.kind != '"' {
		return
	}
	if !strings.HasPrefix(v.text, "https://") && !strings.HasPrefix(v.text, "http://") {
		c.complain(v, "is no URL of http or https")
	}
}

// fileData is a data: URL of a file in base64, of a type that is taken.
func fileData(taken func(media string) bool) check {
	return func(c *checker, v *value) {
		if isString(c, v); v.kind != '"' {
			return
		}
		rest, inline := strings.CutPrefix(v.text, "data:")
		head, text, comma := strings.Cut(rest, ",")
		media, is64 := strings.CutSuffix(head, ";base64")
		switch {
		case !inline || !comma || !is64 || !mediaType(media):
			c.complain(v, "is no data: URL of a file in base64")
		case !taken(media):
			c.complain(v, "is a file of an unsupported MIME type, %s", media)
		default:
			decode64(c, v, text)
		}
	}
}

// isPDF is the one type of file that Chat Completions takes.
func isPDF(media string) bool { return media == "application/pdf" }

// isFile reports whether Responses takes files of a type: PDF, all that is text, and those
// of offices.
func isFile(media string) bool {
	switch media {
	case "application/json", "application/msword", "application/rtf", "application/vnd.ms-excel", "application/vnd.ms-powerpoint",
		"application/vnd.oasis.opendocument.text":
		return true
	}
	return isPDF(media) || strings.HasPrefix(media, "text/") || strings.HasPrefix(media, "application/vnd.openxmlformats-officedocument.")
}

func imageType(media string) bool {
	switch media {
	case "image/jpeg", "image/png", "image/gif", "image/webp":
		return true
	}
	return false
}

func mediaType(media string) bool {
	kind, sub, slash := strings.Cut(media, "/")
	return slash && kind != "" && sub != "" && !strings.ContainsAny(media, " ,\t\r\n")
}

func isMediaType(c *checker, v *value) {
	if isString(c, v); v.kind == '"' && !mediaType(v.text) {
		c.complain(v, "is no media type")
	}
}

// schema is the JSON schema of what a tool takes.
func schema(c *checker, v *value) {
	if isObject(c, v); v.kind == '{' && v.str("type") != "object" {
		c.complain(v, "must be a schema of type object")
	}
}
