package api

import (
	"context"
	"mime"
	"net/http"
	"time"

	"github.com/go-chi/chi/v5"

	"historyd/internal/history"
)

// attachment serves GET /v1/conversations/{c}/attachments/{sha256}.
func (s *server) attachment(x *exchange, r *http.Request) error {
	c, err := x.conversation(r)
	if err != nil {
		return err
	}
	if _, err := query(r); err != nil {
		return err
	}
	name := "sha256:" + chi.URLParam(r, "sha256")
	if _, ok := history.AttachmentHash(name); !ok {
		return badParameter("sha256", "must be 64 lower-case hex digits")
	}
	give, err := x.visitor.files.take(r, patience-time.Since(x.start)) // nobody knows yet how large it is
	if err != nil {
		return err
	}
	defer give()
	ctx, cancel := context.WithTimeout(r.Context(), deadline)
	defer cancel()
	a, err := s.pipeline.Attachment(ctx, c, name)
	if err != nil {
		return err
	}
	h := x.Header()
	version := `"` + chi.URLParam(r, "sha256") + `"`
	h["Etag"] = []string{version}
	// It is what somebody sent: no browser may take it for a page of ours.
	h["X-Content-Type-Options"] = []string{"nosniff"}
	h["Content-Security-Policy"] = []string{"default-src 'none'; sandbox"}
	h["Content-Disposition"] = []string{"attachment"}
	if unmodified(r, version) {
		x.WriteHeader(http.StatusNotModified)
		return nil
	}
	if len(a.Data) <= light {
		give()
	}
	return x.send(http.StatusOK, []string{mediaType(a.MediaType)}, a.Data)
}

// mediaType returns what a client said of its bytes when it is a media type.
func mediaType(said string) string {
	if media, params, err := mime.ParseMediaType(said); err == nil {
		if t := mime.FormatMediaType(media, params); t != "" {
			return t
		}
	}
	return "application/octet-stream"
}
