package csi

import (
	"fmt"
	"strings"
	"testing"
)

// A secret is hidden in each form in which a driver may print it.
func TestHideSecrets(t *testing.T) {
	key := "-----BEGIN KEY-----\nabcdefgh\"ijkl\nshort\n-----END KEY-----\n"
	for _, c := range []struct{ text, secret, want string }{
		{"login pass=hunter2 failed", "hunter2\n", "login pass=[redacted] failed"},
		{"login pass=\"hunter2\\n\" failed", "hunter2\n", "login pass=\"[redacted]\\n\" failed"},
		{"line 2: abcdefgh\"ijkl", key, "line 2: [redacted]"},
		{"line 3: short", key, "line 3: short"},
		{fmt.Sprintf("key %q", key), key, "key \"[redacted]\\n\""},
		{fmt.Sprintf("line %q", "abcdefgh\"ijkl"), key, "line \"[redacted]\""},
		{"a pass\tword, pass\\tword", "pass\tword", "a [redacted], [redacted]"},
		{"1 of 7", "1", "1 of 7"},
		{"no blank", "       \n", "no blank"},
	} {
		if got := hideSecrets(c.text, []string{c.secret}); got != c.want {
			t.Errorf("%q of %q, want %q", got, c.text, c.want)
		}
	}
}

// largeSecret is a secret of many lines, each of which could be in a text.
func largeSecret() string {
	var lines strings.Builder
	for i := range 65_000 {
		fmt.Fprintf(&lines, "line-%09d\n", i)
	}
	return lines.String()
}

// A secret of many lines is hidden, line by line, at a cost that the text decides: a tenant may
// have hundreds of volumes that name it, and whose calls fail.
func TestHideLargeSecret(t *testing.T) {
	secret := largeSecret()
	text, want := "no \"line-000000007\", line-000064999 or x", "no \"[redacted]\", [redacted] or x"
	var got string
	allocs := testing.AllocsPerRun(1, func() { got = hideSecrets(text, []string{secret}) })
	if got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	if allocs > 1000 {
		t.Errorf("%v allocations for a text of %d bytes", allocs, len(text))
	}
}

// A text with more of a secret than is looked for is replaced as a whole.
func TestHideTooMuch(t *testing.T) {
	secret := largeSecret()
	for lines, isWhole := range map[int]bool{secretFormsMax / 2: false, secretFormsMax + 1: true} {
		text := "refused: " + strings.Join(strings.SplitN(secret, "\n", lines+1)[:lines], " ")
		got := hideSecrets(text, []string{secret})
		if isWhole != (got == hiddenMessage) || strings.Contains(got, "line-") {
			t.Errorf("%d lines: got %.100q", lines, got)
		}
	}
}
