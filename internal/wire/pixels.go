package wire

import (
	"bytes"
	"encoding/binary"
	"image"
	"image/gif"
	"image/jpeg"
	"image/png"

	"historyd/internal/history"
)

// Anthropic takes images of so many pixels a side, and fewer where a request has more
// than a few of them.
const (
	maxSide   = 8000
	manySide  = 2000
	manyMedia = 20
)

// side returns the longer side of an image in pixels; 0 where its bytes do not tell.
func side(b *history.Block) int {
	var c image.Config
	var err error
	switch in := bytes.NewReader(b.Data); mediaType(b) {
	case "image/png":
		c, err = png.DecodeConfig(in)
	case "image/jpeg":
		c, err = jpeg.DecodeConfig(in)
	case "image/gif":
		c, err = gif.DecodeConfig(in)
	case "image/webp":
		return webpSide(b.Data)
	}
	if err != nil {
		return 0
	}
	return max(c.Width, c.Height)
}

// webpSide reads the header of the first chunk, which says the size in one of three ways.
func webpSide(data []byte) int {
	const header = 30
	if len(data) < header || string(data[:4]) != "RIFF" || string(data[8:12]) != "WEBP" {
		return 0
	}
	in := data[20:]
	switch string(data[12:16]) {
	case "VP8 ": // behind a tag and a mark of three bytes each, 14 bits each
		return int(max(binary.LittleEndian.Uint16(in[6:])&0x3fff, binary.LittleEndian.Uint16(in[8:])&0x3fff))
	case "VP8L": // behind a mark of one byte, 14 bits each less one
		bits := binary.LittleEndian.Uint32(in[1:])
		return int(max(bits&0x3fff, bits>>14&0x3fff)) + 1
	case "VP8X": // behind flags of four bytes, 24 bits each less one
		width, height := binary.LittleEndian.Uint32(in[4:])&0xffffff, binary.LittleEndian.Uint32(in[6:])>>8
		return int(max(width, height)) + 1
	}
	return 0
}

// withoutWide takes images away that are too wide beside so many others. They stay away
// when others give way, so that it happens once.
func (m media) withoutWide() {
	images := 0
	for b := range m {
		if b.Type != history.DocumentBlock && textOf(b.Opaque, "type") != "document" {
			images++
		}
	}
	if images <= manyMedia {
		return
	}
	for b := range m {
		if b.Type == history.ImageBlock && side(b) > manySide {
			delete(m, b)
		}
	}
}
