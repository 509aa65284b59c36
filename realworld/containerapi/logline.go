package containerapi

import (
	"bytes"
	"errors"
	"fmt"
	"time"
)

// The log format is the CRI's: "TIME STREAM TAGS TEXT\n". The first tag is P (partial) if the
// container's line continues in the next log line, F (full) if it ends.
//
// The reader of k8s.io/cri-client is not used: it opens paths through links, needs an inotify
// instance (the kernel's limit is 128) and a call to the runtime per second for each followed log,
// and buffers lines of any length. Its parser is not exported. FuzzLog compares this reader with it
// on the same file.

// chunk is one line of a log, or a piece of a very long one.
type chunk struct {
	timestamp time.Time
	stderr    bool
	partial   bool   // the container's line continues
	text      []byte // with its newline, if it has one
}

var errFormat = errors.New("unsupported log format")

// parseLine parses a line of a log, with or without its newline.
func parseLine(line []byte) (chunk, error) {
	timestamp, rest, ok := bytes.Cut(line, []byte{' '})
	if !ok {
		return chunk{}, errFormat
	}
	parsed, err := time.Parse(time.RFC3339Nano, string(timestamp))
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
	c := chunk{
		timestamp: parsed, stderr: string(stream) == "stderr", partial: string(tag) == "P", text: text,
	}
	c.trim()
	return c, nil
}

// trim removes the newline of a log line that does not end the container's line.
func (c *chunk) trim() {
	if c.partial {
		c.text = bytes.TrimSuffix(c.text, []byte{'\n'})
	}
}

// errLimitReached ends the reading of a log of which the client has got all that it requested.
var errLimitReached = errors.New("enough")

// errorLineBytesMax bounds the part of an invalid line that an error quotes.
const errorLineBytesMax = 100

// timestampFormat has all nine digits, so that lines are aligned.
const timestampFormat = "2006-01-02T15:04:05.000000000Z07:00"

// printer formats chunks for the client, and sends them in pieces of a suitable size.
type printer struct {
	query     logQuery
	remaining int64 // remaining of limitBytes
	midLine   bool  // the last chunk did not end a line
	out       []byte
	send      func([]byte) error
}

// flushBytes is the size of the buffered output at which it is sent.
const flushBytes = 32 << 10

func newPrinter(query logQuery, send func([]byte) error) *printer {
	return &printer{query: query, remaining: query.limitBytes, send: send}
}

func (p *printer) print(c chunk) error {
	atLineStart := !p.midLine
	p.midLine = len(c.text) > 0 && c.text[len(c.text)-1] != '\n'
	if c.timestamp.Before(p.query.since) || !p.isSelected(c) {
		return nil
	}
	length := len(p.out)
	if p.query.timestamps && atLineStart {
		p.out = append(c.timestamp.AppendFormat(p.out, timestampFormat), ' ')
	}
	p.out = append(p.out, c.text...)
	if p.query.limitBytes > 0 {
		printed := int64(len(p.out) - length)
		if printed >= p.remaining {
			p.out = p.out[:length+int(p.remaining)]
			return errLimitReached
		}
		p.remaining -= printed
	}
	if len(p.out) >= flushBytes {
		return p.flush()
	}
	return nil
}

func (p *printer) isSelected(c chunk) bool {
	switch p.query.stream {
	case "stdout":
		return !c.stderr
	case "stderr":
		return c.stderr
	}
	return true
}

// flush sends the buffered output.
func (p *printer) flush() error {
	if len(p.out) == 0 {
		return nil
	}
	out := p.out
	p.out = out[:0]
	if cap(out) > 2*flushBytes {
		p.out = nil
	}
	return p.send(out)
}

// releaseBuffer frees the buffer of a printer that has to wait for the log.
func (p *printer) releaseBuffer() { p.out = nil }

// scanner parses a log line by line, and has the read offset.
type scanner struct {
	offset    int64 // of the next line in the file
	validSeen bool  // a line could be parsed, so the file is a log
	lines     int64 // number of lines read
	linesMax  int64 // bound on lines; negative for none
	// A line that does not fit into the buffer is read in pieces. Between them, header has the
	// timestamp, stream and tag of the line, or skipping is true because the first piece could not be
	// parsed.
	header   *chunk
	skipping bool
}

// scan parses buf, whose first byte is at the scanner's offset. It consumes all whole lines. The
// start of a further line is consumed if it fills the whole buffer, or if nothing can follow it.
func (s *scanner) scan(buf []byte, full, final bool, print func(chunk) error) error {
	for first := true; ; first = false {
		if s.linesMax >= 0 && s.lines >= s.linesMax {
			return errLimitReached
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
		if err := s.scanLine(line, end >= 0 || final, print); err != nil {
			return err
		}
	}
}

// scanLine parses a line, or a piece of one.
func (s *scanner) scanLine(line []byte, ends bool, print func(chunk) error) error {
	var c chunk
	switch {
	case s.skipping:
		s.skipping = !ends
		return nil
	case s.header != nil:
		c = *s.header
		c.text = line
		c.trim()
	default:
		var err error
		if c, err = parseLine(line); err != nil {
			if !s.validSeen {
				return fmt.Errorf("%w: %q", err, line[:min(len(line), errorLineBytesMax)])
			}
			s.skipping = !ends
			return nil
		}
	}
	s.validSeen = true
	s.header = nil
	if ends {
		s.lines++
	} else {
		s.header = &chunk{timestamp: c.timestamp, stderr: c.stderr, partial: c.partial}
	}
	return print(c)
}
