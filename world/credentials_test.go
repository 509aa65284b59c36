package world

import "testing"

func TestWithoutToken(t *testing.T) {
	const token = "eyJhbGciOiJSUzI1NiJ9.eyJpc3MiOiJhIn0.c2lnbmF0dXJl"
	const three = "[redacted].[redacted].[redacted]"
	for text, want := range map[string]string{
		"no token":                      "no token",
		token:                           three,
		"got " + token + ", " + token:   "got " + three + ", " + three,
		"cut " + token[:len(token)-1]:   "cut " + three,
		"cut " + token[:25] + "...":     "cut [redacted].eyJp...",
		"the signature c2lnbmF0dXJl is": "the signature [redacted] is",
		"eyJhbGciOiJub25lIn0":           "[redacted]ub25lIn0", // another token's header
	} {
		if got := WithoutToken(text, token); got != want {
			t.Errorf("%s: %q, want %q", text, got, want)
		}
	}
	if got := WithoutToken("a b", ""); got != "a b" {
		t.Errorf("%q", got)
	}
}
