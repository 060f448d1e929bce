package main

import (
	"archive/tar"
	"bufio"
	"encoding/json/jsontext"
	"encoding/json/v2"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"iter"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// damagedEnding follows the name of a file that is not to take the place of one which has what it lacks; a second one
// and those after it have their number behind that. No conversation's file ends so, and an import of a directory passes
// them over.
const damagedEnding = ".damaged"

// maxBeside is how many files there are beside one at the most: a record that loses more from night to night would fill
// the disk with its exports.
const maxBeside = 5

// placeFor is where an export belongs: in the place of the file that is there or of one beside it, or beside them all.
// No file is replaced that has what the export lacks, as replaces tells, but for the last one when there may be no more:
// it is over that one then. The file at path itself is never one of those.
func placeFor(path string, replaces func(path string) bool) (to string, over bool) {
	to = path
	for n := 1; ; n++ {
		if _, err := os.Lstat(to); err != nil || replaces(to) { // whoever writes there meets any other error, too
			return to, false
		}
		if n > maxBeside {
			return to, true
		}
		to = path + damagedEnding
		if n > 1 {
			to += "." + strconv.Itoa(n)
		}
	}
}

// writePlaced is writeWhole of what knows only at its end where it belongs: at path, or beside it. It returns where it is.
func writePlaced(path string, write func(*os.File) (to string, err error)) (to string, err error) {
	if err := replaceable(path); err != nil {
		return "", err
	}
	f, err := os.CreateTemp(filepath.Dir(path), ".historyd-*") // for its owner only
	if errors.Is(err, fs.ErrNotExist) {
		return "", fmt.Errorf("there is no directory %s", filepath.Dir(path))
	}
	if err != nil {
		return "", err
	}
	to, err = write(f)
	if err == nil {
		err = errors.Join(replaceable(to), f.Sync())
	}
	err = errors.Join(err, f.Close())
	if err == nil {
		err = os.Rename(f.Name(), to)
	}
	if err != nil {
		return "", errors.Join(err, os.Remove(f.Name()))
	}
	return to, nil
}

func replaceable(path string) error {
	if info, err := os.Stat(path); err == nil && !info.Mode().IsRegular() {
		return fmt.Errorf("%s is no regular file, and would be replaced", path)
	}
	return nil
}

// withoutDamagedEnding is the path that a file is beside, or its own.
func withoutDamagedEnding(path string) string {
	at := strings.LastIndex(path, damagedEnding)
	if at < 0 {
		return path
	}
	number, numbered := strings.CutPrefix(path[at+len(damagedEnding):], ".")
	if _, err := strconv.ParseUint(number, 10, 0); numbered != (err == nil) || !numbered && number != "" {
		return path
	}
	return path[:at]
}

// replacing is the replaces of placeFor for the export of one conversation; told is whether it tells itself of all that
// it lacks, as those before it did.
func replacing(export *os.File, hurt *damage, format string, told bool) func(path string) bool {
	return func(path string) bool {
		if hurt == nil {
			return true
		}
		f, err := openRegular(path)
		if err != nil {
			return false
		}
		defer f.Close()
		whole := func(f *os.File) io.Reader { return io.NewSectionReader(f, 0, math.MaxInt64) }
		if told {
			return hurt.within(saidIn(whole(f), format)) && hasAllOf(whole(export), whole(f), format)
		}
		return beginsWith(whole(export), f)
	}
}

// openRegular opens a file to read, and nothing else, for a pipe would be waited for.
func openRegular(path string) (*os.File, error) {
	if err := replaceable(path); err != nil {
		return nil, err
	}
	return os.Open(path)
}

// hasAllOf reports whether a document has every message that an older one has, by their ids: as much may be lost of both,
// and not the same.
func hasAllOf(document, older io.Reader, format string) bool {
	next, stop := iter.Pull2(messageIDs(document, format))
	defer stop()
	for want, err := range messageIDs(older, format) {
		if err != nil {
			return false
		}
		for got := ""; got != want; {
			var more bool
			if got, err, more = next(); err != nil || !more {
				return false
			}
		}
	}
	return true
}

// messageIDs reads the ids of the messages of a document, in order. It ends with an error where it cannot be read.
func messageIDs(r io.Reader, format string) iter.Seq2[string, error] {
	return func(yield func(string, error) bool) {
		in, err := openMember(r, format, "messages")
		if err == nil {
			_, err = in.ReadToken()
		}
		for err == nil && in.PeekKind() == '{' {
			var m struct {
				ID string `json:"id"`
			}
			if err = json.UnmarshalDecode(in, &m); err == nil && !yield(m.ID, nil) {
				return
			}
		}
		if err == nil {
			_, err = in.ReadToken() // the end of the list
		}
		if err != nil {
			yield("", err)
		}
	}
}

// beginsWith reports whether a document has all that an older one has: the same from its start, but for the brackets
// that close the older.
func beginsWith(document, older io.Reader) bool {
	in, was := bufio.NewReader(document), bufio.NewReader(older)
	for {
		want, err := was.ReadByte()
		if err != nil {
			return errors.Is(err, io.EOF)
		}
		if got, err := in.ReadByte(); err == nil && got == want {
			continue
		}
		rest := make([]byte, 64) // more than any has
		n, err := io.ReadFull(was, rest)
		return (errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF)) && strings.Trim(string(want)+string(rest[:n]), "]} \n") == ""
	}
}

// damagedRecord is in the entries of an archive of many conversations that have damage, in whatever format.
const damagedRecord = "HISTORYD.damaged"

// saidInEntry returns the damage that an entry of such an archive tells of.
func saidInEntry(h *tar.Header) *damage {
	return parseDamage(jsontext.Value(h.PAXRecords[damagedRecord]))
}

// ruined is the damage of a conversation of which nothing can be read: more than any entry of an archive tells of.
func ruined() *damage { return &damage{Places: math.MaxInt64, Lost: math.MaxInt64} }

// replacingArchive is the replaces of placeFor for an archive of many conversations; hurt are those with damage. Where
// more are lost than have a name, that may be any but those asked for.
func replacingArchive(asked []string, hurt map[string]*damage, unnamed bool) func(path string) bool {
	known := map[string]bool{}
	for _, name := range asked {
		known[name] = true
	}
	return func(path string) bool {
		if len(hurt) == 0 && !unnamed {
			return true
		}
		f, err := openRegular(path)
		if err != nil {
			return false
		}
		defer f.Close()
		for r := tar.NewReader(f); ; {
			h, err := r.Next()
			if err != nil {
				return errors.Is(err, io.EOF)
			}
			name := h.PAXRecords[manyRecord]
			if name == "" || unnamed && !known[name] || !hurt[name].within(saidInEntry(h)) {
				return false
			}
		}
	}
}
