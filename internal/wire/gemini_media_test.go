package wire

import "testing"

func TestMediaTypesOfGemini(t *testing.T) {
	for given, want := range map[string]string{
		"image/jpg": "image/jpeg", "IMAGE/PNG ; x=y": "image/png", "image/gif": "", "application/pdf": "application/pdf", "application/zip": "", "": "", "text": "",
		"text/plain; charset=utf-8": "text/plain", "text/x-python": "text/plain", "text/markdown": "text/plain",
		"audio/mp3": "audio/mp3", "audio/mpeg": "audio/mpeg", "audio/x-wav": "audio/wav", "audio/amr": "", "audio/": "",
		"video/mp4": "video/mp4", "video/x-msvideo": "video/avi", "video/x-matroska": "", "wav/audio": "",
	} {
		if got := geminiMediaType(given); got != want {
			t.Errorf("%q is written as %q, want %q", given, got, want)
		}
	}
}
