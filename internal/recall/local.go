package recall

import (
	"context"
	"errors"
	"fmt"

	"historyd/internal/history"
)

// local asks the search over the caller's own record.
type local struct {
	search Searcher
	floor  float64
}

func (*local) name() string            { return localName }
func (*local) places() (all, each int) { return maxLocal, maxLocal / 8 }
func (*local) close()                  {}

// maxPages bounds how often a search is asked on for what stands behind providers' errors.
const maxPages = 8

func (l *local) find(ctx context.Context, ask Ask, limit int) ([]found, error) {
	// More than the limit, because some may say the same, or what is shown.
	many := min(2*limit+len(ask.shown), MaxResults)
	q := Query{Text: ask.Query, Plain: true, Limit: many, Exclude: ask.atHand}
	var hits []found
	for range maxPages {
		res, err := l.search.Search(ctx, ask.Scope, q)
		switch {
		case errors.Is(err, ErrBadQuery): // there is no word in it
			return nil, nil
		case err != nil:
			return nil, err
		}
		for _, h := range res.Hits {
			switch {
			case h.Relevance < l.floor || len(hits) == many:
				return hits, nil
			case h.Failed: // no model is told as an answer what a provider failed with
				continue
			}
			hits = append(hits, found{
				title:        fmt.Sprintf("%s #%d, %s, %s", h.Conversation, h.Seq, h.Role, h.At.UTC().Format("2006-01-02")),
				body:         h.Snippet,
				conversation: h.Conversation,
				epoch:        h.Epoch,
				seq:          h.Seq,
				score:        h.Score,
			})
		}
		if len(hits) == many || res.Next == "" {
			break
		}
		q.Cursor, q.Limit = res.Next, MaxResults
	}
	return hits, nil
}

// atHand reports whether a message is no news: it stands in the window, or nobody said it. What software put in, as
// recalled notes are, is never framed a second time; and a prompt is the agent's to assemble, not to be remembered.
func (a Ask) atHand(p Place) bool {
	return p.Role == history.System || p.Kind == history.Reference || p.Conversation == a.Conversation && p.Seq > a.Through
}
