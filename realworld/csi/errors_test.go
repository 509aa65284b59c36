package csi

import (
	"fmt"
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
