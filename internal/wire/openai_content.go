package wire

import (
	"encoding/json/jsontext"
	"slices"
	"strings"
	"unicode/utf8"

	"historyd/internal/history"
)

// openAIMedia reports whether a request can hold an image, a document or a sound,
// be it in the message after its own.
func openAIMedia(m *history.Message, b *history.Block) bool {
	switch {
	case m.Role == history.Assistant || m.Role == history.System:
		return false
	case b.Type == history.ImageBlock && b.Data == nil:
		return webURL(b.URL)
	case b.Type == history.ImageBlock:
		return slices.Contains(imageTypes, mediaType(b))
	case b.Type == history.AudioBlock && b.Data != nil:
		return soundName(b) != ""
	}
	return b.Type == history.DocumentBlock && b.Data != nil && (isPDF(b) || isText(b))
}

func (w *openAIRender) saidPart(m *history.Message, b *history.Block) {
	switch {
	case b.Type == history.TextBlock:
		w.textParts(b.Text)
	case b.Media():
		w.mediaPart(b)
	case b.Type == history.OpaqueBlock && m.Role == history.User && w.target.provider == openAIProvider && verbatim(b) && namedFile(b.Opaque):
		// A file that the provider keeps.
		w.element()
		w.dst = append(w.dst, cleanRaw(withoutMarker(b.Opaque), &w.report)...)
	default:
		w.report.WithheldOpaque++
	}
}

// namedFile reports whether a part is a file that is named by its id alone.
func namedFile(part jsontext.Value) bool {
	file := memberNamed(part, "file")
	return textOf(part, "type") == "file" && file.Kind() == '{' && textOf(file.Raw, "file_id") != ""
}

// withoutMarker returns a part of type file with nothing that is not of it, such as
// marks for the provider's cache.
func withoutMarker(part jsontext.Value) jsontext.Value {
	o := object{}
	o.open()
	o.text("type", "file")
	o.name("file")
	o.open()
	file := memberNamed(part, "file").Raw
	for _, name := range []string{"file_id", "filename"} {
		if s := textOf(file, name); s != "" {
			o.text(name, s)
		}
	}
	o.close()
	o.close()
	return o.dst
}

// mediaPart writes an image, a document or a sound, or what stands in its place.
func (w *openAIRender) mediaPart(b *history.Block) {
	if !w.media[b] {
		w.report.DroppedMedia++
		w.textParts(placeholder(b))
		return
	}
	if b.Type == history.DocumentBlock && !isPDF(b) {
		w.textParts(documentText(b))
		return
	}
	w.element()
	w.open()
	switch b.Type {
	case history.ImageBlock:
		w.text("type", "image_url")
		w.name("image_url")
		w.open()
		if b.Data != nil {
			w.text("url", history.DataURL(mediaType(b), b.Data))
		} else {
			w.text("url", b.URL)
		}
		if b.Extra != nil {
			detail := textOf(objectOf(memberNamed(b.Extra, "image_url")), "detail")
			if slices.Contains([]string{"auto", "low", "high"}, detail) {
				w.text("detail", detail)
			}
		}
	case history.AudioBlock:
		w.text("type", "input_audio")
		w.name("input_audio")
		w.open()
		w.base64("data", b.Data)
		w.text("format", soundName(b))
	default:
		w.text("type", "file")
		w.name("file")
		w.open()
		w.raw("file_data", fileData(pdfType, b.Data))
		name := clean(b.Filename, &w.report)
		if name == "" {
			name = "document" // the provider wants one
		}
		w.text("filename", name)
	}
	w.close()
	w.close()
}

// soundName names the format of a sound, if it is one that the provider takes.
func soundName(b *history.Block) string {
	switch mediaType(b) {
	case "audio/wav", "audio/x-wav", "audio/wave", "audio/vnd.wave":
		return "wav"
	case "audio/mpeg", "audio/mp3":
		return "mp3"
	}
	return ""
}

// bareType returns a media type without its parameters, or nothing when it is none.
func bareType(s string) string {
	s, _, _ = strings.Cut(s, ";")
	s = strings.ToLower(strings.TrimSpace(s))
	if kind, of, ok := strings.Cut(s, "/"); !ok || kind == "" || of == "" || strings.Trim(s, "abcdefghijklmnopqrstuvwxyz0123456789/+.-_") != "" {
		return ""
	}
	return s
}

// contentText writes the member content as a string, or as parts when it is too long for one.
func (w *openAIRender) contentText(s string) {
	s = clean(s, &w.report)
	if len(s) <= maxOpenAIText || utf8.RuneCountInString(s) <= maxOpenAIText {
		w.text("content", s)
		return
	}
	w.name("content")
	w.openList()
	w.textParts(s)
	w.closeList()
}

// textParts writes a text as a part, or as several when it is too long for one.
func (w *openAIRender) textParts(s string) {
	s = clean(s, &w.report)
	for more := true; more; {
		piece := s
		if len(s) > maxOpenAIText {
			cut := maxOpenAIText
			for !utf8.RuneStart(s[cut]) {
				cut--
			}
			piece = s[:cut]
		}
		s = s[len(piece):]
		more = s != ""
		w.element()
		w.open()
		w.text("type", "text")
		w.text("text", piece)
		w.close()
	}
}
