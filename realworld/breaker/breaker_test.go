package breaker_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"seedlet.dev/realworld/breaker"
	"seedlet.dev/world"
)

var t0 = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

func open(t *testing.T, path string, now time.Time) *breaker.Breaker {
	t.Helper()
	b, err := breaker.Open(path, now)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func note(t *testing.T, b *breaker.Breaker, uid string, now time.Time) int {
	t.Helper()
	panics, err := b.Note(uid, "core/pod.(*Pod).Plan plan.go:1", now)
	if err != nil {
		t.Fatal(err)
	}
	return panics
}

// only returns the one pod that the next agent gets.
func only(t *testing.T, b *breaker.Breaker, now time.Time) world.PodSetAside {
	t.Helper()
	pods := b.SetAside(now)
	if len(pods) != 1 {
		t.Fatalf("%+v, want one pod", pods)
	}
	return pods[0]
}

// What one agent notes, the next one gets; nothing else is left behind.
func TestTheNextAgentGetsTheRecord(t *testing.T) {
	path := filepath.Join(t.TempDir(), "panics.json")
	for i, want := range []time.Duration{10 * time.Second, 20 * time.Second} {
		if n := note(t, open(t, path, t0), "u1", t0); n != i+1 {
			t.Errorf("panic %d counts as %d", i+1, n)
		}
		got := only(t, open(t, path, t0), t0)
		if got != (world.PodSetAside{UID: "u1", Panics: i + 1, Remaining: want, Silent: i > 0}) {
			t.Errorf("after %d panics: %+v", i+1, got)
		}
	}
	left, err := filepath.Glob(filepath.Join(filepath.Dir(path), ".*"))
	if err != nil || len(left) > 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
}

// What cannot be read counts as no file, and is replaced by the next panic.
func TestBadFile(t *testing.T) {
	entry := `{"uid":"u1","panics":1,"last":"2026-01-01T00:00:00Z"}`
	for name, text := range map[string]string{
		"torn": `{"panics":[` + entry[:20], "empty": "", "other": `[1]`, "null": "null",
		"binary": "\x00\xff", "long": strings.Repeat(" ", 1<<20) + "{}",
		"uids": `{"panics":[{"uid":"../x","panics":1,"last":"2026-01-01T00:00:00Z"},` +
			`{"uid":"","panics":1,"last":"2026-01-01T00:00:00Z"},` +
			`{"uid":"` + strings.Repeat("u", 200) + `","panics":1,"last":"2026-01-01T00:00:00Z"}]}`,
		"counts": `{"panics":[{"uid":"u2","panics":-1,"last":"2026-01-01T00:00:00Z"},` +
			`{"uid":"u3","panics":1}]}`,
		"old":    `{"panics":[{"uid":"u2","panics":9,"last":"2025-01-01T00:00:00Z"}]}`,
		"future": `{"panics":[],"version":7}`,
	} {
		path := filepath.Join(t.TempDir(), "panics.json")
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		b, err := breaker.Open(path, t0)
		if got := b.SetAside(t0); len(got) > 0 {
			t.Errorf("%s: %+v", name, got)
		}
		isBroken := name != "empty" && name != "null" && name != "uids" && name != "counts" &&
			name != "old" && name != "future"
		if (err != nil) != isBroken {
			t.Errorf("%s: %v", name, err)
		}
		note(t, b, "u9", t0)
		if got := only(t, open(t, path, t0), t0); got.UID != "u9" {
			t.Errorf("%s: %+v", name, got)
		}
	}
	huge := `{"panics":[{"uid":"u1","panics":999999999,"last":"2026-01-01T00:00:00Z"},` + entry + `]}`
	path := filepath.Join(t.TempDir(), "panics.json")
	if err := os.WriteFile(path, []byte(huge), 0o600); err != nil {
		t.Fatal(err)
	}
	if got := only(t, open(t, path, t0), t0); got.Remaining != 5*time.Minute || got.Panics != 1000 {
		t.Errorf("a huge count: %+v", got)
	}
}

// A path that is no regular file is not read, and does not block.
func TestOddFile(t *testing.T) {
	dir := t.TempDir()
	link, fifo := filepath.Join(dir, "link"), filepath.Join(dir, "fifo")
	if err := os.Symlink("/etc/passwd", link); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{link, fifo, dir} {
		if b, err := breaker.Open(path, t0); err == nil || len(b.SetAside(t0)) > 0 {
			t.Errorf("%s: %v", path, err)
		}
	}
	b := open(t, filepath.Join(dir, "missing", "x"), t0)
	note(t, b, "u1", t0)
	if err := os.Rename(filepath.Join(dir, "missing"), filepath.Join(dir, "moved")); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("/proc/self", filepath.Join(dir, "missing")); err != nil {
		t.Fatal(err)
	}
	if _, err := b.Note("u1", "", t0); err == nil {
		t.Error("noted where nothing can be written")
	}
}
