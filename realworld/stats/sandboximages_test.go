package stats

import (
	"errors"
	"strings"
	"testing"
	"time"
)

// The runtime is asked for the image of a sandbox until it has answered, whatever that is.
func TestSandboxImages(t *testing.T) {
	b := fullBench(t)
	asked, info, failure := 0, "", errors.New("down")
	b.runtime.sandbox = func(id string) (string, error) {
		if asked++; id != "s1" {
			t.Errorf("asked for %q", id)
		}
		return info, failure
	}
	for _, c := range []struct {
		info    string
		failure error
		asked   int
		image   string
	}{
		{"", errors.New("down"), 1, ""},
		{`{"image":"pause:3"}`, nil, 2, "pause:3"},
		{`{"image":"other:4"}`, nil, 2, "pause:3"},
	} {
		info, failure = c.info, c.failure
		if got := sandboxImage(t, b); asked != c.asked || got != c.image {
			t.Errorf("asked %d times, want %d; image %q, want %q", asked, c.asked, got, c.image)
		}
		b.mu.Lock()
		b.now = b.now.Add(time.Minute)
		b.mu.Unlock()
	}
	b = fullBench(t)
	b.runtime.sandbox = func(string) (string, error) { return "no JSON", nil }
	if got := sandboxImage(t, b); got != "" {
		t.Errorf("what is no JSON gives the image %q", got)
	}
}

// sandboxImage returns the image in the network series of the only sandbox.
func sandboxImage(t *testing.T, b *bench) string {
	t.Helper()
	for name := range series(t, b.get("/metrics/cadvisor").Body.String()) {
		rest, isOf := strings.CutPrefix(name, `container_network_receive_bytes_total{container="",`+
			`id="/kubepods/burstable/podu-1/s1",image="`)
		if image, _, _ := strings.Cut(rest, `"`); isOf {
			return image
		}
	}
	t.Error("the sandbox has no series of its network")
	return ""
}
