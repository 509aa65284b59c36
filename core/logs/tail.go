package logs

import "bytes"

// The kubelet's limits for a log that replaces a termination message.
const (
	tailBytes = 2048
	tailLines = 80
	// lineOverhead is more than the CRI log format puts before the content of a line: a time, the
	// stream, tags.
	lineOverhead = 64
	// TailBytes of the end of a log are enough for Tail.
	TailBytes = tailBytes + tailLines*lineOverhead
)

// Tail returns the end of a container's output: the content of the last 80 lines of its log, at
// most 2048 bytes. Data is the end of a log in the CRI format. If the data is truncated, the first
// line lacks its beginning: the rest of that line is content then, or is cut off by the limit.
func Tail(data []byte, truncated bool) []byte {
	lines := bytes.SplitAfter(data, []byte{'\n'})
	if last := len(lines) - 1; len(lines[last]) == 0 {
		lines = lines[:last]
	}
	if first := len(lines) - tailLines; first > 0 {
		lines, truncated = lines[first:], false
	}
	var output []byte
	for i, line := range lines {
		if i == 0 && truncated {
			output = append(output, line...)
			continue
		}
		output = append(output, parseLine(line)...)
	}
	return output[max(0, len(output)-tailBytes):]
}

// parseLine returns the content of a line "TIME STREAM TAGS CONTENT". A line whose first tag is P
// continues in the next. A line of another format has no content.
func parseLine(line []byte) []byte {
	parts := bytes.SplitN(line, []byte{' '}, 4)
	if len(parts) < 4 || !isStreamName(parts[1]) {
		return nil
	}
	output := parts[3]
	if tag, _, _ := bytes.Cut(parts[2], []byte{':'}); string(tag) == "P" {
		output = bytes.TrimSuffix(output, []byte{'\n'})
	}
	return output
}

func isStreamName(name []byte) bool { return string(name) == "stdout" || string(name) == "stderr" }
