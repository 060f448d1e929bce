package store

import (
	"bytes"
	"encoding/json/jsontext"
	"errors"
	"hash/crc32"
	"io"
	"slices"
	"strconv"
)

// A frame is one line of a segment, and one commit:
//
//	{"size":N, payload of N bytes ,"len":N,"crc":"xxxxxxxx"}\n
//
// The CRC-32C is of everything before `,"crc":`. A line is committed when both
// lengths and the checksum hold, whatever became of its newline. The length stands
// at both ends so that a frame can be found from its end, and so that a line that
// is as long as it says, and yet invalid, is never taken for one cut short.
const (
	frameHead  = `{"size":`
	frameLen   = `,"len":`
	frameCRC   = `,"crc":"`
	frameClose = `"}`
	crcDigits  = 8
	frameTail  = 64 // more than what stands around a payload at either end
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// appendFrame appends the line of a payload, newline included, and returns its checksum.
func appendFrame(dst, payload []byte) ([]byte, uint32) {
	start := len(dst)
	dst = append(dst, frameHead...)
	dst = strconv.AppendInt(dst, int64(len(payload)), 10)
	dst = append(dst, ',')
	dst = append(dst, payload...)
	dst = append(dst, frameLen...)
	dst = strconv.AppendInt(dst, int64(len(payload)), 10)
	sum := crc32.Checksum(dst[start:], castagnoli)
	dst = append(dst, frameCRC...)
	dst = appendHex(dst, sum)
	dst = append(dst, frameClose...)
	return append(dst, '\n'), sum
}

func appendHex(dst []byte, sum uint32) []byte {
	const digits = "0123456789abcdef"
	for shift := 28; shift >= 0; shift -= 4 {
		dst = append(dst, digits[sum>>shift&15])
	}
	return dst
}

func parseHex(b []byte) (uint32, bool) {
	var sum uint32
	if len(b) != crcDigits {
		return 0, false
	}
	for _, c := range b {
		switch {
		case c >= '0' && c <= '9':
			sum = sum<<4 | uint32(c-'0')
		case c >= 'a' && c <= 'f':
			sum = sum<<4 | uint32(c-'a'+10)
		default:
			return 0, false
		}
	}
	return sum, true
}

// frameEnding looks for the frame that ends where b does, without its newline, and
// returns its length and checksum.
func frameEnding(b []byte) (length int, sum uint32, ok bool) {
	tail := len(frameCRC) + crcDigits + len(frameClose)
	if len(b) < tail || !bytes.HasSuffix(b, []byte(frameClose)) {
		return 0, 0, false
	}
	at := len(b) - tail // of `,"crc":"`
	if !bytes.HasPrefix(b[at:], []byte(frameCRC)) {
		return 0, 0, false
	}
	sum, ok = parseHex(b[at+len(frameCRC) : at+len(frameCRC)+crcDigits])
	if !ok {
		return 0, 0, false
	}
	digits := at
	for digits > 0 && at-digits < 12 && b[digits-1] >= '0' && b[digits-1] <= '9' {
		digits--
	}
	size := b[digits:at]
	n, err := strconv.Atoi(string(size))
	if err != nil || !bytes.HasSuffix(b[:digits], []byte(frameLen)) {
		return 0, 0, false
	}
	head := len(frameHead) + len(size) + 1
	start := digits - len(frameLen) - n - head
	if start < 0 || !bytes.HasPrefix(b[start:], append(append([]byte(frameHead), size...), ',')) {
		return 0, 0, false
	}
	if crc32.Checksum(b[start:at], castagnoli) != sum {
		return 0, 0, false
	}
	return len(b) - start, sum, true
}

// frameIs reports whether line, without its newline, is one whole frame.
func frameIs(line []byte) (sum uint32, ok bool) {
	n, sum, ok := frameEnding(line)
	return sum, ok && n == len(line)
}

// framesIn finds the whole frames in a stretch that is not itself one: lines glued
// together, or a line behind a torn one. Each must continue the line before it, or be
// continued by the one behind it, so that no frame can be smuggled in as the text of
// a message: nobody outside knows the checksums of a segment, whose header holds
// random bits. At the beginning of a segment there is no text yet, and its header
// begins a chain.
func framesIn(stretch []byte, before, behind chained, beginning bool) []located {
	all := framesOf(stretch)
	kept := make([]bool, len(all))
	for i, f := range all {
		if before.known && f.prev == before.sum || beginning && f.start == 0 && f.header {
			kept[i], before = true, chained{f.sum, true}
		}
	}
	for i, f := range slices.Backward(all) {
		if kept[i] || behind.known && f.sum == behind.sum {
			kept[i], behind = true, chained{f.prev, true}
		}
	}
	found, end := all[:0], 0
	for i, f := range all {
		if kept[i] && f.start >= end {
			found, end = append(found, f), f.end
		}
	}
	return found
}

// framesOf finds all that has the form of a frame.
func framesOf(stretch []byte) (all []located) {
	for at := 0; ; {
		i := bytes.Index(stretch[at:], []byte(frameCRC))
		if i < 0 {
			return all
		}
		at += i + len(frameCRC)
		end := at + crcDigits + len(frameClose)
		if end > len(stretch) {
			return all
		}
		n, sum, ok := frameEnding(stretch[:end])
		if !ok {
			continue
		}
		if c, err := parseCommit(stretch[end-n : end]); err == nil {
			all = append(all, located{end - n, end, sum, uint32(c.Prev), c.Header != nil})
		}
	}
}

// located is a frame within a stretch of bytes.
type located struct {
	start, end int
	sum, prev  uint32
	header     bool
}

// frameLength tells how long the frame is that begins as head does.
func frameLength(head []byte) (int, bool) {
	rest, ok := bytes.CutPrefix(head, []byte(frameHead))
	digits, _, comma := bytes.Cut(rest[:min(len(rest), 12)], []byte(","))
	n, err := strconv.Atoi(string(digits))
	if !ok || !comma || err != nil || n < 0 {
		return 0, false
	}
	return len(frameHead) + 2*len(digits) + 1 + n + len(frameLen) + len(frameCRC) + crcDigits + len(frameClose), true
}

// torn reports whether tail, which follows the last whole line of a segment, is
// what a power cut or a kill leaves of a write: a strict prefix of a line, then
// NULs to the end.
func torn(tail []byte) bool {
	p := bytes.TrimRight(tail, "\x00")
	if len(p) <= len(frameHead) {
		return bytes.HasPrefix([]byte(frameHead), p)
	}
	if !bytes.HasPrefix(p, []byte(frameHead)) || bytes.IndexByte(p, '\n') >= 0 {
		return false
	}
	rest := p[len(frameHead):]
	digits := 0
	for digits < len(rest) && digits < 12 && rest[digits] >= '0' && rest[digits] <= '9' {
		digits++
	}
	if digits == len(rest) {
		return digits > 0
	}
	n, err := strconv.Atoi(string(rest[:digits]))
	if err != nil || rest[digits] != ',' {
		return false
	}
	return tornPayload(p, len(frameHead)+digits+1, n)
}

// tornPayload goes on with torn behind the head of the frame p, whose payload of n
// bytes starts at head.
func tornPayload(p []byte, head, n int) bool {
	if len(p) > head+n {
		end := head + n
		want := append([]byte(frameLen), strconv.Itoa(n)...)
		sum := crc32.Checksum(append(bytes.Clone(p[:end]), want...), castagnoli)
		want = append(want, frameCRC...)
		want = appendHex(want, sum)
		want = append(want, frameClose...)
		return len(p[end:]) < len(want) && bytes.HasPrefix(want, p[end:])
	}
	dec := jsontext.NewDecoder(bytes.NewBuffer(append([]byte{'{'}, p[head:]...)), jsontext.AllowDuplicateNames(true))
	for {
		if _, err := dec.ReadToken(); err != nil {
			return errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, io.EOF)
		}
		if dec.StackDepth() == 0 {
			return false
		}
	}
}
