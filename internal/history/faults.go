package history

import (
	"fmt"
	"slices"
	"strings"
)

// MaxFaults is how many faults of one document are told.
const MaxFaults = 100

// Codes of a Fault, as clients see them.
const (
	CodeInvalidJSON    = "invalid_json"
	CodeInvalidMessage = "invalid_message"
	CodeTooLarge       = "message_too_large"
)

// A Fault is one thing wrong with a document. No field holds anything of its
// content: a path has only names that historyd defines and positions.
type Fault struct {
	Path   string // such as messages[3].content[0].id
	Code   string
	Detail string // what is wrong and what to do, for a person
	Offset int64  // bytes from the start of the document; -1 when unknown
}

// Faults collects everything wrong with a document. As an error it says the first.
type Faults struct {
	List []Fault // the first MaxFaults
	More int     // further ones
}

// Add records a fault.
func (f *Faults) Add(path, code string, offset int64, detail string, args ...any) {
	if len(f.List) >= MaxFaults {
		f.More++
		return
	}
	f.List = append(f.List, Fault{strings.TrimPrefix(path, "."), code, fmt.Sprintf(detail, args...), offset})
}

// Lead records a fault before those that came after the first n.
func (f *Faults) Lead(n int, path, code string, offset int64, detail string, args ...any) {
	var one Faults
	one.Add(path, code, offset, detail, args...)
	f.List = slices.Insert(f.List, min(n, len(f.List)), one.List...)
	if over := len(f.List) - MaxFaults; over > 0 {
		f.List, f.More = f.List[:MaxFaults], f.More+over
	}
}

// Err returns the collection as an error, or nil when it is empty.
func (f *Faults) Err() error {
	if len(f.List) == 0 {
		return nil
	}
	return f
}

func (f *Faults) Error() string {
	first := f.List[0]
	s := first.Detail
	if first.Path != "" {
		s = first.Path + ": " + s
	}
	if n := len(f.List) - 1 + f.More; n > 0 {
		s += fmt.Sprintf(" (and %d more)", n)
	}
	return s
}
