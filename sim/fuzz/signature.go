package fuzz

import (
	"fmt"
	"hash/fnv"
	"regexp"

	"seedlet.dev/sim"
)

// Signature returns what failures of one cause have in common: the oracle, and the message without
// names, numbers and times. It can be the name of a file.
func Signature(f *sim.Failure) string {
	hash := fnv.New32a()
	hash.Write([]byte(normalise(f.Message)))
	return fmt.Sprintf("%s-%08x", f.Oracle, hash.Sum32())
}

// variable are the parts of messages that differ from run to run, and what replaces them, in the
// order in which they are replaced.
var variable = []struct {
	pattern *regexp.Regexp
	with    string
}{
	{regexp.MustCompile(`"[^"]*"`), "_"},
	{regexp.MustCompile(`\[[^\]]*\]`), "_"},
	{regexp.MustCompile(`\d{4}-\d\d-\d\d[T ][0-9:.]+( \+0000 UTC|Z)?`), "_"}, // a date
	{regexp.MustCompile(`\(uid [^)]*\)`), "_"},
	{regexp.MustCompile(`[\w.-]*/[\w./-]+`), "_"}, // a path, or a namespace and name
	{regexp.MustCompile(`\b(pod|container|object|image|volume|sandbox)s? [\w.-]+`), "${1} _"},
	{regexp.MustCompile(`[\wµ.#-]*\d[\wµ.:-]*`), "_"}, // a number, a time, or a name with a digit
	{regexp.MustCompile(`_([,; ]+(and )?_)+`), "_"},   // a list of what was replaced
	{regexp.MustCompile(`\s+`), " "},
}

// normalise replaces what is variable in a message.
func normalise(message string) string {
	for _, v := range variable {
		message = v.pattern.ReplaceAllString(message, v.with)
	}
	return message
}
