package recall

import (
	"encoding/base64"
	"encoding/binary"
	"errors"
	"hash/fnv"
	"math"
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"historyd/internal/history"
	"historyd/internal/identity"
)

// Errors of a query that can't be answered, whatever the index holds.
var (
	ErrBadQuery  = errors.New("the query names nothing to look for, or too much")
	ErrBadCursor = errors.New("the cursor is not one of this search")
)

// The orders of results.
const (
	Best   = "best"
	Newest = "newest"
)

// Limits of a query.
const (
	MaxQueryChars = 2000 // code points of Query.Text that count
	MaxResults    = 100  // of one page
	defaultLimit  = 20
	maxUnits      = 256
	maxScored     = 32 // optional words that count, the rarest ones; also phrases, exclusions and terms of one
)

// A Query says what to look for.
//
//	word        in messages with any of the words; the more and the rarer, the better
//	"a phrase"  only in messages where these words stand next to each other
//	prefix*     a word that begins so
//	-word       not in messages with it; a phrase or a prefix may stand here too
//
// With Sort Newest all words must be there, and the newest message comes first.
type Query struct {
	Text string
	// Plain says that Text was not written as a query: all of it is words, and the rarest count.
	Plain bool

	Conversation  string    // in this one only; "" means in all of the caller's
	Role          string    // "" means every role
	After, Before time.Time // of the message's time, both excluded; zero means no limit
	AfterSeq      int64     // both excluded, 0 means no limit; they make sense with Conversation
	BeforeSeq     int64

	Sort   string // Best when empty, or Newest
	Limit  int    // 0 means 20; no more than MaxResults
	Cursor string // Results.Next of the page before

	// Exclude, which may be nil, drops what it is true for. It is asked for candidates only, from several
	// goroutines, and must be quick.
	Exclude func(Place) bool
}

// A Place is where a message stands, and whose words it holds.
type Place struct {
	Conversation string
	Seq          int64
	Role         history.Role
	Kind         history.Kind
}

// A unit is a word, a phrase or a prefix of a query.
type unit struct {
	terms  []string
	places []int32  // of the terms, relative to the first
	prefix bool     // of the only term
	phrase bool     // was in quotes
	stem   string   // of the only term, where all forms of it count
	alias  []string // stems of what the record explains as the same
	common bool     // says little of what a text is about
	must   bool
	not    bool
}

// parse makes units of a query's text.
func (q *Query) parse() ([]unit, error) {
	if q.Sort != "" && q.Sort != Best && q.Sort != Newest {
		return nil, ErrBadQuery
	}
	text := q.Text
	if q.Plain {
		if units := plainUnits(clipRunes(text, MaxQueryChars)); len(units) > 0 {
			return units, nil
		}
		return nil, ErrBadQuery
	}
	if utf8.RuneCountInString(text) > MaxQueryChars {
		return nil, ErrBadQuery
	}
	var units []unit
	wanted, bound := false, 0
	for text != "" {
		var u unit
		text = u.take(text)
		if len(u.terms) == 0 {
			continue
		}
		u.must = !u.not && (u.phrase || q.Sort == Newest)
		wanted = wanted || !u.not
		if u.must || u.not {
			bound++
		}
		u.common = !u.must && !u.not && !u.prefix && !slices.ContainsFunc(u.terms, func(t string) bool { return !common[t] })
		if units = append(units, u); len(units) > maxUnits || bound > maxScored {
			return nil, ErrBadQuery
		}
	}
	if !wanted {
		return nil, ErrBadQuery
	}
	return units, nil
}

// take reads one unit from the beginning of text, and returns the rest.
func (u *unit) take(text string) string {
	text = strings.TrimLeftFunc(text, unicode.IsSpace)
	if rest, ok := strings.CutPrefix(text, "-"); ok {
		u.not, text = true, rest
	}
	if rest, ok := strings.CutPrefix(text, `"`); ok {
		phrase, rest, _ := strings.Cut(rest, `"`)
		u.phrase = true
		u.fill(phrase)
		return rest
	}
	end := strings.IndexFunc(text, func(r rune) bool { return unicode.IsSpace(r) || r == '"' })
	if end < 0 {
		end = len(text)
	}
	word, star := strings.CutSuffix(text[:end], "*")
	u.fill(word)
	u.prefix = u.prefix || star && len(u.terms) == 1
	u.inflect()
	return text[end:]
}

// fill gives the unit its terms. What is one word for people may be several terms, as in 2024-05-20.
func (u *unit) fill(text string) {
	place := int32(-1)
	eachToken(text, true, func(term []byte, _, _ int) {
		if place++; term != nil && len(u.terms) < maxScored {
			u.terms = append(u.terms, string(term))
			u.places = append(u.places, place)
		}
	})
	if len(u.terms) == 1 {
		// A character alone is found as the beginning of a pair.
		r, n := utf8.DecodeRuneInString(u.terms[0])
		u.prefix = n == len(u.terms[0]) && unspaced(r)
	}
}

// inflect lets all forms of a word count. What is excluded is excluded as it stands.
func (u *unit) inflect() {
	if len(u.terms) == 1 && !u.prefix && !u.not {
		u.stem = string(stem([]byte(u.terms[0])))
	}
}

// plainUnits takes every term of a text for a word, but for those that say nothing when there are others.
func plainUnits(text string) []unit {
	var units []unit
	seen := map[string]bool{}
	eachToken(text, true, func(term []byte, _, _ int) {
		if term == nil || seen[string(term)] || len(units) == maxUnits {
			return
		}
		var u unit
		u.fill(string(term))
		u.inflect()
		seen[string(term)] = true
		units = append(units, u)
	})
	said := slices.DeleteFunc(slices.Clone(units), func(u unit) bool { return common[u.terms[0]] })
	if len(said) == 0 {
		return units
	}
	return said
}

// clipRunes is the beginning of s, of at most n code points.
func clipRunes(s string, n int) string {
	for i := range s {
		if n--; n < 0 {
			return s[:i]
		}
	}
	return s
}

// A rank is the place of a hit in the order of results.
type rank struct {
	score float64
	at    int64 // Unix milliseconds
	name  string
	seq   int64
}

// before reports whether a comes before b in the order.
func (a rank) before(b rank, newest bool) bool {
	if !newest && a.score != b.score {
		return a.score > b.score
	}
	if a.at != b.at {
		return a.at > b.at
	}
	if a.name != b.name {
		return a.name < b.name
	}
	return a.seq > b.seq
}

// mark tells this search of a caller's from all others, so that a cursor is not used with another one.
func (q *Query) mark(scope identity.Scope) uint32 {
	h := fnv.New32a()
	for _, s := range []string{scope.Dir(), q.Text, q.Conversation, q.Role, q.Sort} {
		h.Write(binary.AppendUvarint(nil, uint64(len(s))))
		h.Write([]byte(s))
	}
	for _, n := range []int64{q.After.UnixMicro(), q.Before.UnixMicro(), q.AfterSeq, q.BeforeSeq} {
		h.Write(binary.AppendVarint(nil, n))
	}
	return h.Sum32()
}

// cursor names the place behind a hit.
func (q *Query) cursor(scope identity.Scope, r rank) string {
	b := binary.BigEndian.AppendUint32([]byte{1}, q.mark(scope))
	b = binary.BigEndian.AppendUint64(b, math.Float64bits(r.score))
	b = binary.BigEndian.AppendUint64(b, uint64(r.at))
	b = binary.BigEndian.AppendUint64(b, uint64(r.seq))
	return base64.RawURLEncoding.EncodeToString(append(b, r.name...))
}

// place reads the cursor; nil when there is none.
func (q *Query) place(scope identity.Scope) (*rank, error) {
	if q.Cursor == "" {
		return nil, nil
	}
	b, err := base64.RawURLEncoding.Strict().DecodeString(q.Cursor)
	if err != nil || len(b) < 30 || len(b) > 30+256 || b[0] != 1 || binary.BigEndian.Uint32(b[1:]) != q.mark(scope) {
		return nil, ErrBadCursor
	}
	r := &rank{
		score: math.Float64frombits(binary.BigEndian.Uint64(b[5:])),
		at:    int64(binary.BigEndian.Uint64(b[13:])),
		seq:   int64(binary.BigEndian.Uint64(b[21:])),
		name:  string(b[29:]),
	}
	if math.IsNaN(r.score) || r.seq < 1 {
		return nil, ErrBadCursor
	}
	return r, nil
}

// limit is how many hits a page has.
func (q *Query) limit() int {
	if q.Limit <= 0 {
		return defaultLimit
	}
	return min(q.Limit, MaxResults)
}

// roleNumbers are how the index writes roles.
var roleNumbers = []history.Role{history.User, history.Assistant, history.Tool, history.System}

func roleNumber(r history.Role) int { return slices.Index(roleNumbers, r) }
