package logs

import "bytes"

// The kubelet's numbers for a log that stands in for a termination message.
const (
	tailBytes = 2048
	tailLines = 80
	// lineOverhead is more than what the CRI puts before the content of a line: a time, the
	// stream, tags.
	lineOverhead = 64
	// TailBytes of the end of a log are enough for Tail.
	TailBytes = tailBytes + tailLines*lineOverhead
)

// Tail is what a log says last: the content of its last 80 lines, but no more than 2048 bytes of
// it. Data is the end of a log in the CRI's format. If the log begins before data does, the first
// line has lost its beginning: what is left of it is content then, or is cut off anyway.
func Tail(data []byte, truncated bool) []byte {
	lines := bytes.SplitAfter(data, []byte{'\n'})
	if last := len(lines) - 1; len(lines[last]) == 0 {
		lines = lines[:last]
	}
	if first := len(lines) - tailLines; first > 0 {
		lines, truncated = lines[first:], false
	}
	var said []byte
	for i, line := range lines {
		if i == 0 && truncated {
			said = append(said, line...)
			continue
		}
		said = append(said, content(line)...)
	}
	return said[max(0, len(said)-tailBytes):]
}

// content is what a container has written, of a line "TIME STREAM TAGS CONTENT". A line of which
// the first tag is P goes on in the next. What is no such line says nothing.
func content(line []byte) []byte {
	parts := bytes.SplitN(line, []byte{' '}, 4)
	if len(parts) < 4 || !isStream(parts[1]) {
		return nil
	}
	said := parts[3]
	if tag, _, _ := bytes.Cut(parts[2], []byte{':'}); string(tag) == "P" {
		said = bytes.TrimSuffix(said, []byte{'\n'})
	}
	return said
}

func isStream(name []byte) bool { return string(name) == "stdout" || string(name) == "stderr" }
