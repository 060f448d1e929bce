package wire

import (
	"slices"
	"strings"

	"historyd/internal/history"
)

// geminiTypes are the types of images, sounds and videos that the provider takes, by other
// names of theirs, too. One that it does not take has the whole request refused.
var geminiTypes = map[string]map[string]string{
	"image": {"png": "", "jpeg": "", "jpg": "jpeg", "webp": "", "heic": "", "heif": ""},
	"audio": {
		"wav": "", "x-wav": "wav", "wave": "wav", "vnd.wave": "wav", "mp3": "", "mpeg": "", "mpga": "", "aac": "", "x-aac": "aac", "ogg": "", "opus": "",
		"flac": "", "x-flac": "flac", "aiff": "", "x-aiff": "aiff", "m4a": "", "x-m4a": "m4a", "mp4": "", "pcm": "", "webm": "",
	},
	"video": {
		"mp4": "", "mpeg": "", "mpg": "", "mpegps": "", "mov": "", "quicktime": "", "avi": "", "x-msvideo": "avi", "flv": "", "x-flv": "", "webm": "",
		"wmv": "", "x-ms-wmv": "wmv", "3gpp": "",
	},
}

// geminiMediaType returns a media type as the provider names it; empty for one that it
// does not take. Of texts it knows few types, and takes any as a plain one.
func geminiMediaType(given string) string {
	name := bareType(given)
	kind, sub, _ := strings.Cut(name, "/")
	switch {
	case name == pdfType:
		return name
	case kind == "text":
		return "text/plain"
	}
	written, taken := geminiTypes[kind][sub]
	switch {
	case !taken:
		return ""
	case written == "":
		return name
	}
	return kind + "/" + written
}

// geminiTakes reports whether there is a place for an image, a document or a sound.
func geminiTakes(_ *history.Message, b *history.Block) bool {
	if geminiMediaType(b.MediaType) == "" {
		return false
	}
	if b.URL == "" {
		return true
	}
	scheme, rest, _ := strings.Cut(b.URL, "://")
	return rest != "" && strings.IndexByte(b.URL, 0) < 0 && slices.Contains([]string{"http", "https", "gs"}, strings.ToLower(scheme))
}

// geminiNests reports whether media may stand inside of a result.
func geminiNests(b *history.Block) bool {
	return b.URL == "" && slices.Contains([]string{"image/png", "image/jpeg", "image/webp", "application/pdf", "text/plain"},
		geminiMediaType(b.MediaType))
}
