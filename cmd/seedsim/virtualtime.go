package main

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

// virtualTime is the value of a flag that is a time since the start of a run: a duration such as
// "1m30s", or "1:30.5" as the log prints it.
type virtualTime time.Duration

func (v *virtualTime) String() string { return time.Duration(*v).String() }

// Type implements pflag.Value.
func (*virtualTime) Type() string { return "time" }

// Set implements pflag.Value.
func (v *virtualTime) Set(text string) error {
	d, err := parseVirtualTime(text)
	if err != nil || d < 0 {
		return fmt.Errorf("want a time since the start, such as 1m30s or 1:30, have %q", text)
	}
	*v = virtualTime(d)
	return nil
}

func parseVirtualTime(text string) (time.Duration, error) {
	before, after, isClock := strings.Cut(text, ":")
	if !isClock {
		return time.ParseDuration(text)
	}
	minutes, err := strconv.ParseUint(before, 10, 31)
	if err != nil || after == "" || after[0] < '0' || after[0] > '9' {
		return 0, strconv.ErrSyntax
	}
	seconds, err := time.ParseDuration(after + "s")
	return time.Duration(minutes)*time.Minute + seconds, err
}
