package network

import (
	"context"
	"testing"

	"seedlet.dev/world"
)

func TestURLs(t *testing.T) {
	cases := []struct{ host, path, want string }{
		{"10.0.0.1", "", "http://10.0.0.1:80"},
		{"fd00::7", "/a b", "http://[fd00::7]:80/a%20b"},
		{"web", "x?q=1", "http://web:80/x?q=1"},
		{"web", "/100%", "http://web:80/100%25"},
		{"web", "//evil.example/x", "http://web:80/x"},
		{"web", "http://user@evil.example/x", "http://web:80/x"},
		{"web", "mailto:x", "http://web:80/mailto:x"},
		{"web", "/a%2Fb", "http://web:80/a%2Fb"},
	}
	for _, c := range cases {
		r, err := newRequest(context.Background(),
			&world.HTTPGet{Scheme: "http", Host: c.host, Port: 80, Path: c.path})
		if err != nil {
			t.Errorf("%s %s: %v", c.host, c.path, err)
		} else if got := r.URL.String(); got != c.want {
			t.Errorf("%s %s: got %s, want %s", c.host, c.path, got, c.want)
		}
	}
}
