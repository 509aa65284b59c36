package main

import (
	"testing"
	"time"
)

// Times are given as durations, or as the log prints them.
func TestVirtualTime(t *testing.T) {
	for text, want := range map[string]time.Duration{ //ordered: each by itself
		"90s": 90 * time.Second, "1m30s": 90 * time.Second, "1:30": 90 * time.Second,
		"0:00.066933": 66933 * time.Microsecond, "61:05": 61*time.Minute + 5*time.Second, "0": 0,
	} {
		var got virtualTime
		if err := got.Set(text); err != nil || time.Duration(got) != want {
			t.Errorf("%s: %v, %v, want %v", text, time.Duration(got), err, want)
		}
	}
	for _, text := range []string{"", ":", "1:", ":5", "1:x", "-1:5", "1:-5", "-5s", "1:2:3", "5"} {
		var got virtualTime
		if err := got.Set(text); err == nil {
			t.Errorf("%q is %v, want an error", text, time.Duration(got))
		}
	}
}
