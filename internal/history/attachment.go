package history

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"strings"

	"historyd/internal/strictjson"
)

// An Attachment is bytes that messages of a conversation name by what they are.
type Attachment struct {
	Name      string // AttachmentName of Data
	MediaType string // as the first block that brought it said; may be empty
	Data      []byte
}

// AttachmentScheme begins the name of every attachment.
const AttachmentScheme = "sha256:"

// AttachmentName is the name of bytes: sha256: and their SHA-256 in lower-case hex.
func AttachmentName(data []byte) string {
	sum := sha256.Sum256(data)
	return AttachmentScheme + hex.EncodeToString(sum[:])
}

// AttachmentHash returns the hex digits of an attachment's name, and whether it is one.
func AttachmentHash(name string) (string, bool) {
	digits, ok := strings.CutPrefix(name, AttachmentScheme)
	if !ok || len(digits) != 2*sha256.Size || strings.Trim(digits, "0123456789abcdef") != "" {
		return "", false
	}
	return digits, true
}

// AttachmentSum returns the SHA-256 that an attachment's name is made of, and whether it is one.
func AttachmentSum(name string) (sum [sha256.Size]byte, ok bool) {
	digits, ok := AttachmentHash(name)
	if ok {
		_, err := hex.Decode(sum[:], []byte(digits))
		ok = err == nil
	}
	return sum, ok
}

// SetData gives a block its bytes, and their name.
func (b *Block) SetData(data []byte) { b.Data, b.Attachment = data, AttachmentName(data) }

// Media reports whether the block is an image, a document or a sound.
func (b *Block) Media() bool {
	return b.Type == ImageBlock || b.Type == DocumentBlock || b.Type == AudioBlock
}

// Said reports whether the block is text that somebody said, or a tool.
func (b *Block) Said() bool { return b.Type == TextBlock && !b.Synthetic }

// Errors of ParseDataURL. Both leave the URL as something that nobody can take.
var (
	errNotBase64  = errors.New("must be base64 of at least one byte, with its padding and without line breaks")
	errNotDataURL = errors.New("a data: URL is data:TYPE;base64,DATA")
)

// DecodeBase64 reads the one spelling of base64 that comes back as it was.
func DecodeBase64(text string) ([]byte, error) {
	if text == "" || strings.ContainsAny(text, "\r\n") {
		return nil, errNotBase64
	}
	data, err := base64.StdEncoding.Strict().DecodeString(text)
	if err != nil {
		return nil, errNotBase64
	}
	return data, nil
}

// IsDataURL reports whether a URL is its own content.
func IsDataURL(url string) bool {
	scheme, _, _ := strings.Cut(strings.TrimSpace(url), ":")
	return strings.EqualFold(scheme, "data")
}

// ParseDataURL reads a data: URL, which must be of the spelling that DataURL writes.
func ParseDataURL(url string) (mediaType string, data []byte, err error) {
	rest, ok := strings.CutPrefix(url, "data:")
	head, text, comma := strings.Cut(rest, ",")
	mediaType, isBase64 := strings.CutSuffix(head, ";base64")
	if !ok || !comma || !isBase64 || len(mediaType) > maxTag {
		return "", nil, errNotDataURL
	}
	data, err = DecodeBase64(text)
	return mediaType, data, err
}

// DataURL writes bytes as a URL that is its own content.
func DataURL(mediaType string, data []byte) string {
	return "data:" + mediaType + ";base64," + base64.StdEncoding.EncodeToString(data)
}

func (p *parser) data(b *Block, v strictjson.Value, path string) {
	text := p.text(v, path, 1, 0)
	data, err := DecodeBase64(text)
	if err != nil {
		if text != "" {
			p.fault(v, path, "%s", err)
		}
		return
	}
	b.Data = data
}

func (p *parser) attachment(b *Block, v strictjson.Value, path string) {
	b.Attachment = p.text(v, path, 1, maxTag)
	if _, ok := AttachmentHash(b.Attachment); !ok && b.Attachment != "" {
		p.fault(v, path, "must be sha256: and 64 lower-case hex digits")
	}
}

// settleMedia makes sure that there is one place for the bytes.
func (p *parser) settleMedia(b *Block, seen map[string]bool, v strictjson.Value, path string) {
	if seen["data"] && b.Data != nil {
		if name := AttachmentName(b.Data); !seen["attachment"] {
			b.Attachment = name
		} else if name != b.Attachment {
			p.fault(v, path+".attachment", "is not the name of what data holds")
		}
	}
	switch {
	case seen["url"] && (seen["data"] || seen["attachment"]):
		p.fault(v, path, "give one of data, url and attachment")
	case seen["url"] && IsDataURL(b.URL):
		p.inlineURL(b, v, path)
	case !seen["url"] && !seen["data"] && !seen["attachment"]:
		p.fault(v, path+".url", "is missing: one of data, url and attachment%s", foreignMember("url", b.Extra))
	}
}

// inlineURL takes the bytes out of a URL that holds them.
func (p *parser) inlineURL(b *Block, v strictjson.Value, path string) {
	if p.door == storedDoor {
		return
	}
	mediaType, data, err := ParseDataURL(b.URL)
	switch {
	case err != nil:
		p.fault(v, path+".url", "%s", err)
		return
	case b.MediaType == "":
		b.MediaType = mediaType
	case mediaType != "" && mediaType != b.MediaType:
		p.fault(v, path+".media_type", "is not the type in the data: URL")
	}
	b.URL = ""
	b.SetData(data)
}

func (p *parser) forked(v strictjson.Value, path string) *Forked {
	if v.Kind() != '{' {
		p.fault(v, path, "must be an object")
		return nil
	}
	f := &Forked{}
	p.object(v, path, []string{"conversation", "id", "seq"}, func(name string, v strictjson.Value) {
		switch name {
		case "conversation":
			f.Conversation = p.text(v, path+"."+name, 0, maxTag)
		case "id":
			f.ID = p.text(v, path+"."+name, 0, maxID)
		case "seq":
			f.Seq = p.int(v, path+"."+name)
		}
	})
	return f
}

// StripData returns the message without bytes that are at hand, so that it may be
// held for long. It is the message itself when it has none.
func (m *Message) StripData() Message {
	out := *m
	out.Content = stripBlocks(m.Content)
	return out
}

func stripBlocks(blocks []Block) []Block {
	var out []Block
	for i := range blocks {
		b := &blocks[i]
		inner := stripBlocks(b.Content)
		if b.Data == nil && (len(inner) == 0 || &inner[0] == &b.Content[0]) {
			continue
		}
		if out == nil {
			out = append(out, blocks...)
		}
		out[i].Data, out[i].Content = nil, inner
	}
	if out == nil {
		return blocks
	}
	return out
}

// MediaBlocks visits every image, document and sound of the message, those inside of
// results included.
func (m *Message) MediaBlocks(visit func(*Block)) { visitMedia(m.Content, visit) }

func visitMedia(blocks []Block, visit func(*Block)) {
	for i := range blocks {
		if blocks[i].Media() {
			visit(&blocks[i])
		}
		visitMedia(blocks[i].Content, visit)
	}
}
