package wire

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"historyd/internal/history"
)

// providerFormats are those with a codec.
func providerFormats() []Format {
	var formats []Format
	for f := range codecs {
		formats = append(formats, f)
	}
	slices.Sort(formats)
	return formats
}

// corpus reads testdata/FORMAT: each file is a list as the provider's clients keep it.
func corpus(t testing.TB, f Format) map[string]string {
	t.Helper()
	paths, err := filepath.Glob(filepath.Join("testdata", string(f), "*.json"))
	if err != nil {
		t.Fatal(err)
	}
	lists := map[string]string{}
	for _, path := range paths {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		lists[strings.TrimSuffix(filepath.Base(path), ".json")] = string(text)
	}
	return lists
}

// throughNative takes messages through a self-contained native document.
func throughNative(t check, msgs []history.Message) []history.Message {
	t.Helper()
	doc := []byte(`{"version":1,"type":"historyd.history","messages":[`)
	for i := range msgs {
		if i > 0 {
			doc = append(doc, ',')
		}
		doc = history.AppendInline(doc, &msgs[i])
	}
	doc = append(doc, "]}"...)
	d, err := DecodeDocument(Native, false, doc, 0)
	if err != nil {
		t.Fatalf("the native document cannot be imported: %v\n%s", err, doc)
	}
	return d.Messages
}

// What a provider's client kept comes back as the same JSON values, numbers as they
// were written. The order of members may differ in objects that are modelled: messages,
// parts, calls.
func TestEveryDocumentComesBackAsItWas(t *testing.T) {
	for _, f := range providerFormats() {
		lists := corpus(t, f)
		if len(lists) < 60 {
			t.Errorf("%s: %d documents, want 60 at the least", f, len(lists))
		}
		for name, list := range lists {
			t.Run(string(f)+"/"+name, func(t *testing.T) {
				msgs := decodeAppend(t, f, list)
				sameJSON(t, encode(f, throughNative(t, msgs), ForExport), list)
			})
		}
	}
}
