package containerapi

import (
	"bytes"
	"errors"
	"fmt"
	"time"
)

// The form of a log is the CRI's: "TIME STREAM TAGS TEXT\n". The first tag is P if the line of the
// container goes on with the next one, F if not.
//
// k8s.io/cri-client has a reader of it, which is not used: it opens a path through links, it needs
// an inotify instance for each log that is followed (the kernel allows 128) and asks the runtime
// every second for each of them, and keeps lines of any length. Its parser cannot be had alone.
// FuzzLog holds this one to what it makes of the same file.

// chunk is one line of a log, or a piece of a very long one.
type chunk struct {
	stamp  time.Time
	stderr bool
	partly bool   // the container's line goes on
	text   []byte // with its end, if it has one
}

var errFormat = errors.New("unsupported log format")

// parseLine reads a line of a log, with or without its end.
func parseLine(line []byte) (chunk, error) {
	stamp, rest, ok := bytes.Cut(line, []byte{' '})
	if !ok {
		return chunk{}, errFormat
	}
	at, err := time.Parse(time.RFC3339Nano, string(stamp))
	if err != nil {
		return chunk{}, errFormat
	}
	stream, rest, ok := bytes.Cut(rest, []byte{' '})
	if !ok || string(stream) != "stdout" && string(stream) != "stderr" {
		return chunk{}, errFormat
	}
	tags, text, ok := bytes.Cut(rest, []byte{' '})
	if !ok {
		return chunk{}, errFormat
	}
	tag, _, _ := bytes.Cut(tags, []byte{':'})
	c := chunk{stamp: at, stderr: string(stream) == "stderr", partly: string(tag) == "P", text: text}
	c.trim()
	return c, nil
}

// trim takes off the end of a line that does not end the container's line.
func (c *chunk) trim() {
	if c.partly {
		c.text = bytes.TrimSuffix(c.text, []byte{'\n'})
	}
}

// errEnough ends the reading of a log of which the client has got all that it wants.
var errEnough = errors.New("enough")

// shownMax is how much is shown of a line that is none of a log, in bytes.
const shownMax = 100

// stampFormat has all nine digits, so that lines stay in columns.
const stampFormat = "2006-01-02T15:04:05.000000000Z07:00"

// printer turns chunks into what the client sees, and hands it on in pieces of a good size.
type printer struct {
	query   logQuery
	remain  int64 // of limitBytes
	midLine bool  // the last chunk did not end a line
	out     []byte
	send    func([]byte) error
}

// outMax is when what was printed is sent, at the latest.
const outMax = 32 << 10

func newPrinter(query logQuery, send func([]byte) error) *printer {
	return &printer{query: query, remain: query.limitBytes, send: send}
}

func (p *printer) print(c chunk) error {
	begins := !p.midLine
	p.midLine = len(c.text) > 0 && c.text[len(c.text)-1] != '\n'
	if c.stamp.Before(p.query.since) || !p.wants(c) {
		return nil
	}
	length := len(p.out)
	if p.query.timestamps && begins {
		p.out = append(c.stamp.AppendFormat(p.out, stampFormat), ' ')
	}
	p.out = append(p.out, c.text...)
	if p.query.limitBytes > 0 {
		printed := int64(len(p.out) - length)
		if printed >= p.remain {
			p.out = p.out[:length+int(p.remain)]
			return errEnough
		}
		p.remain -= printed
	}
	if len(p.out) >= outMax {
		return p.flush()
	}
	return nil
}

func (p *printer) wants(c chunk) bool {
	switch p.query.stream {
	case "stdout":
		return !c.stderr
	case "stderr":
		return c.stderr
	}
	return true
}

// flush sends what was printed.
func (p *printer) flush() error {
	if len(p.out) == 0 {
		return nil
	}
	out := p.out
	p.out = out[:0]
	if cap(out) > 2*outMax {
		p.out = nil
	}
	return p.send(out)
}

// rest gives back the memory of a printer that has nothing to print for a while.
func (p *printer) rest() { p.out = nil }

// scanner reads a log line by line, and remembers how far it has come.
type scanner struct {
	offset   int64 // of what is next in the file
	known    bool  // a line could be read: it is a log
	lines    int64 // how many have been read
	linesMax int64 // ends the reading; negative: there is no such bound
	// Of a line that does not fit into a buffer a piece has been read, which said whose it is, or
	// that nobody can say.
	inside  *chunk
	outside bool
}

// scan reads buf, which begins at the scanner's offset. It takes all whole lines, and what there
// is of another one if that fills all of the buffer, or if nothing can follow.
func (s *scanner) scan(buf []byte, full, final bool, print func(chunk) error) error {
	for first := true; ; first = false {
		if s.linesMax >= 0 && s.lines >= s.linesMax {
			return errEnough
		}
		line := buf
		end := bytes.IndexByte(buf, '\n')
		switch {
		case end >= 0:
			line = buf[:end+1]
		case len(buf) == 0, !final && !(full && first):
			return nil
		}
		buf = buf[len(line):]
		s.offset += int64(len(line))
		if err := s.take(line, end >= 0 || final, print); err != nil {
			return err
		}
	}
}

// take reads a line, or a piece of one.
func (s *scanner) take(line []byte, ends bool, print func(chunk) error) error {
	var c chunk
	switch {
	case s.outside:
		s.outside = !ends
		return nil
	case s.inside != nil:
		c = *s.inside
		c.text = line
		c.trim()
	default:
		var err error
		if c, err = parseLine(line); err != nil {
			if !s.known {
				return fmt.Errorf("%w: %q", err, line[:min(len(line), shownMax)])
			}
			s.outside = !ends
			return nil
		}
	}
	s.known = true
	s.inside = nil
	if ends {
		s.lines++
	} else {
		s.inside = &chunk{stamp: c.stamp, stderr: c.stderr, partly: c.partly}
	}
	return print(c)
}
