package wire

import (
	"bytes"
	"fmt"
	"image"
	"image/color"
	"image/gif"
	"image/jpeg"
	"image/png"
	"testing"

	"historyd/internal/history"
)

// imageOf makes an image of that size.
func imageOf(t testing.TB, mediaType string, width, height int) history.Block {
	t.Helper()
	var b bytes.Buffer
	var err error
	pixels := image.NewPaletted(image.Rect(0, 0, width, height), color.Palette{color.Black, color.White})
	switch mediaType {
	case "image/png":
		err = png.Encode(&b, pixels)
	case "image/jpeg":
		err = jpeg.Encode(&b, pixels, nil)
	case "image/gif":
		err = gif.Encode(&b, pixels, nil)
	}
	if err != nil {
		t.Fatal(err)
	}
	block := history.Block{Type: history.ImageBlock, MediaType: mediaType}
	block.SetData(b.Bytes())
	return block
}

// webp is the header of an image of that size, in one of three ways.
func webp(kind string, width, height int) history.Block {
	b := append([]byte("RIFF\x00\x00\x00\x00WEBP"), kind...)
	b = append(b, 0, 0, 0, 0)
	switch kind {
	case "VP8 ":
		b = append(b, 0, 0, 0, 0x9d, 0x01, 0x2a, byte(width), byte(width>>8), byte(height), byte(height>>8))
	case "VP8L":
		bits := uint32(width-1) | uint32(height-1)<<14
		b = append(b, 0x2f, byte(bits), byte(bits>>8), byte(bits>>16), byte(bits>>24))
	case "VP8X":
		b = append(b, 0, 0, 0, 0, byte(width-1), byte((width-1)>>8), byte((width-1)>>16), byte(height-1), byte((height-1)>>8), byte((height-1)>>16))
	}
	block := history.Block{Type: history.ImageBlock, MediaType: "image/webp"}
	block.SetData(append(b, make([]byte, 16)...))
	return block
}

func TestTheLongerSideOfAnImage(t *testing.T) {
	for _, mediaType := range []string{"image/png", "image/jpeg", "image/gif"} {
		for _, size := range [][2]int{{1, 1}, {3, 2001}, {8000, 2}} {
			b := imageOf(t, mediaType, size[0], size[1])
			if got, want := side(&b), max(size[0], size[1]); got != want {
				t.Errorf("%s of %v: %d, want %d", mediaType, size, got, want)
			}
			b.Data = b.Data[:8]
			if got := side(&b); got != 0 {
				t.Errorf("%s that was cut: %d", mediaType, got)
			}
		}
	}
	for _, kind := range []string{"VP8 ", "VP8L", "VP8X"} {
		for _, size := range [][2]int{{1, 1}, {3, 2001}, {8000, 2}, {16383, 16383}} {
			b := webp(kind, size[0], size[1])
			if got, want := side(&b), max(size[0], size[1]); got != want {
				t.Errorf("%s of %v: %d, want %d", kind, size, got, want)
			}
		}
	}
	for _, b := range []history.Block{{MediaType: "image/webp", Data: []byte("RIFF")}, webp("ALPH", 9, 9), {MediaType: "application/pdf", Data: []byte("%PDF")}} {
		if got := side(&b); got != 0 {
			t.Errorf("%s %q: %d", b.MediaType, b.Data, got)
		}
	}
}

func TestImagesThatAreTooWideForAnthropicGiveWay(t *testing.T) {
	small, wide, over := imageOf(t, "image/png", 2000, 1), imageOf(t, "image/png", 1, 2001), imageOf(t, "image/png", 8001, 1)
	for _, tt := range []struct {
		name    string
		images  []history.Block
		others  int
		dropped int64
	}{
		{"wide ones", []history.Block{wide, wide}, 0, 0},
		{"one over all limits", []history.Block{over, wide}, 0, 1},
		{"wide ones among twenty", []history.Block{wide, wide}, 18, 0},
		{"wide ones among more", []history.Block{wide, wide}, 19, 2},
		{"one over all limits counts for none", []history.Block{over, wide}, 19, 1},
	} {
		t.Run(tt.name, func(t *testing.T) {
			m := history.Message{Role: history.User, Kind: history.Person, Content: tt.images}
			for range tt.others {
				m.Content = append(m.Content, small)
			}
			out := Render(Anthropic, Show{Messages: []history.Message{m}})
			if out.Report.DroppedMedia != tt.dropped {
				t.Errorf("%d dropped, want %d", out.Report.DroppedMedia, tt.dropped)
			}
			for _, why := range refusals(Anthropic, out) {
				t.Errorf("refused: %s", fmt.Sprintf("%.200s", why))
			}
		})
	}
}
