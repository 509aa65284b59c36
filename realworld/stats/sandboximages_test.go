package stats

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"
)

// The runtime is asked for the image of a sandbox until it has answered, but not at once again.
func TestSandboxImages(t *testing.T) {
	b := fullBench(t)
	asked, info, failure := 0, "", errors.New("down")
	b.runtime.sandbox = func(_ context.Context, id string) (string, error) {
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
		wait    time.Duration
	}{
		{"", errors.New("down"), 1, "", imagesRetry / 2},
		{`{"image":"pause:3"}`, nil, 1, "", imagesRetry / 2},
		{`{"image":"pause:3"}`, nil, 2, "pause:3", imagesRetry},
		{`{"image":"other:4"}`, nil, 2, "pause:3", imagesRetry},
	} {
		info, failure = c.info, c.failure
		if got := imageOfSandbox(t, b); asked != c.asked || got != c.image {
			t.Errorf("asked %d times, want %d; image %q, want %q", asked, c.asked, got, c.image)
		}
		b.mu.Lock()
		b.now = b.now.Add(c.wait)
		b.mu.Unlock()
	}
	for _, info := range []string{"no JSON", `{"image":"` + strings.Repeat("x", 2000) + `"}`} {
		b := fullBench(t)
		b.runtime.sandbox = func(context.Context, string) (string, error) { return info, nil }
		if got := imageOfSandbox(t, b); got != "" {
			t.Errorf("%.10s gives the image %.10q", info, got)
		}
	}
}

// A sandbox of which a runtime does not answer costs a second once a minute, and the others get
// their images.
func TestSandboxWithoutAnswer(t *testing.T) {
	r := &runtime{sandbox: func(ctx context.Context, id string) (string, error) {
		if id == "hangs" {
			<-ctx.Done()
			return "", ctx.Err()
		}
		return `{"image":"pause:3"}`, nil
	}}
	sandboxes := []*cgroupStats{{id: "hangs"}, {id: "other"}}
	var images sandboxImages
	for i, want := range []string{"", "pause:3", "pause:3"} {
		start := time.Now()
		images.fill(t.Context(), r, noon.Add(time.Duration(i)*time.Second), sandboxes)
		if got := sandboxes[1].image; got != want || sandboxes[0].image != "" {
			t.Errorf("measurement %d: image %q, want %q", i, got, want)
		}
		if i > 0 && time.Since(start) > imagesTimeout/2 {
			t.Errorf("measurement %d asks again after %v", i, time.Since(start))
		}
	}
	images.fill(t.Context(), r, noon, sandboxes[1:])
	if len(images.known) != 1 {
		t.Errorf("%d sandboxes are known, one is there", len(images.known))
	}
}

// imageOfSandbox returns the image in the network series of the only sandbox.
func imageOfSandbox(t *testing.T, b *bench) string {
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
