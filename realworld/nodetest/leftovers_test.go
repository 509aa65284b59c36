package nodetest

import (
	"os"
	"path/filepath"
	"testing"
)

func TestShimSocket(t *testing.T) {
	for _, c := range []struct{ file, content, want string }{
		{"address", "unix:///run/containerd/s/abc", "/run/containerd/s/abc"},
		{"address", "unix:///run/containerd/s/abc\n", "/run/containerd/s/abc"},
		{"bootstrap.json", `{"version":3,"address":"unix:///run/containerd/s/abc","protocol":"ttrpc"}`,
			"/run/containerd/s/abc"},
		{"address", "unix:///etc/passwd", ""},
		{"address", "unix:///run/containerd/s/../../../etc/passwd", ""},
		{"address", "", ""},
		{"other", "unix:///run/containerd/s/abc", ""},
	} {
		dir := t.TempDir()
		if err := os.WriteFile(filepath.Join(dir, c.file), []byte(c.content), 0o600); err != nil {
			t.Fatal(err)
		}
		if got := shimSocket(dir); got != c.want {
			t.Errorf("shimSocket with %s %q = %q, want %q", c.file, c.content, got, c.want)
		}
	}
}
