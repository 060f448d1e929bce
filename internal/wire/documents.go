package wire

import (
	"bytes"
	"slices"
	"strings"
	"unicode/utf8"

	"historyd/internal/history"
)

// Providers take few types of files, and refuse the whole request for one of another.

const pdfType = "application/pdf"

func isPDF(b *history.Block) bool {
	return bareType(b.MediaType) == pdfType || bytes.HasPrefix(b.Data, []byte("%PDF"))
}

// isText reports whether the bytes of a document are a text, whatever its type says.
func isText(b *history.Block) bool {
	return len(b.Data) > 0 && utf8.Valid(b.Data) && bytes.IndexByte(b.Data, 0) < 0
}

// documentText is what stands for a document that is a text, where a provider takes no such
// file. The name cannot forge the line that follows it.
func documentText(b *history.Block) string {
	head := []byte("[document")
	if b.Filename != "" {
		head = history.AppendString(append(head, ' '), b.Filename)
	}
	return string(append(append(head, "]\n"...), b.Data...))
}

// fileTypes are those of files that Responses takes, beside PDF and all kinds of text.
var fileTypes = []string{
	"application/json", "application/msword", "application/rtf", "application/vnd.ms-excel", "application/vnd.ms-powerpoint",
	"application/vnd.oasis.opendocument.text",
	"application/vnd.openxmlformats-officedocument.presentationml.presentation",
	"application/vnd.openxmlformats-officedocument.spreadsheetml.sheet",
	"application/vnd.openxmlformats-officedocument.wordprocessingml.document",
}

func isFileType(kind string) bool {
	return kind == pdfType || strings.HasPrefix(kind, "text/") || slices.Contains(fileTypes, kind)
}

// fileType is the type under which Responses gets a document; "" when it takes none such.
func fileType(b *history.Block) string {
	switch kind := bareType(b.MediaType); {
	case isPDF(b):
		return pdfType
	case isFileType(kind):
		return kind
	case isText(b):
		return "text/plain"
	}
	return ""
}

// clipped returns the beginning of a text, of so many code points at the most.
func clipped(s string, most int) string {
	for i := range s {
		if most == 0 {
			return s[:i]
		}
		most--
	}
	return s
}
