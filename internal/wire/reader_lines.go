package wire

import (
	"bufio"
	"bytes"
	"errors"
	"io"

	"historyd/internal/history"
	"historyd/internal/strictjson"
)

const blanks = " \t\r\n"

// readLines reads a message a line. Lines without any are passed over, and the last
// one need not end. What is wrong with a line ends with it.
func (d *Reader) readLines(yield func(history.Message, error) bool) error {
	d.src.allow(0)
	in := lineReader{in: bufio.NewReaderSize(d.src, readAround), src: d.src}
	for i := 0; ; {
		line, size, err := in.next(d.most())
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
		if size == 0 {
			continue
		}
		v := strictjson.Value{Raw: line, Offset: in.start}
		if size > int64(len(line)) {
			err = &TooLarge{place(i), d.maxMessage, size}
		} else {
			err = strict(v, 0)
		}
		if err != nil {
			err = d.pass(i, err, yield)
		} else {
			err = d.yield(v, i, yield)
		}
		if err != nil {
			return err
		}
		i++
	}
}

// A lineReader reads lines without the white space around them.
type lineReader struct {
	in    *bufio.Reader
	src   *source
	at    int64  // offset of what comes next
	start int64  // offset of the last line
	line  []byte // the last line
}

// next returns a line, which is good until the next call, and its size; io.EOF after
// the last one. Of a line that is far over most bytes, only the beginning.
func (l *lineReader) next(most int64) (line []byte, size int64, err error) {
	l.line, l.start = l.line[:0], l.at
	met := int64(0) // bytes of the line, without white space before it
	for {
		piece, err := l.in.ReadSlice('\n')
		l.at += int64(len(piece))
		if met == 0 {
			before := leading(piece, blanks)
			l.start += int64(before)
			piece = piece[before:]
		}
		if said := bytes.TrimRight(piece, blanks); len(said) > 0 {
			size = met + int64(len(said))
		}
		met += int64(len(piece))
		if most <= 0 || int64(len(l.line)) <= most {
			l.line = append(l.line, piece...)
		}
		switch {
		case errors.Is(err, bufio.ErrBufferFull):
			continue
		case l.src.err != nil:
			return nil, 0, l.src.err
		case err != nil && met == 0:
			return nil, 0, io.EOF
		}
		return l.line[:min(int64(len(l.line)), size)], size, nil
	}
}
