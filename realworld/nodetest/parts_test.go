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

func TestLayerIsReproducible(t *testing.T) {
	var digests [2]string
	for i := range digests {
		layer, err := layerOf([]byte("binary"))
		if err != nil {
			t.Fatal(err)
		}
		image, err := imageOf(layer, []string{"/sample"}, nil)
		if err != nil {
			t.Fatal(err)
		}
		digest, err := image.Digest()
		if err != nil {
			t.Fatal(err)
		}
		digests[i] = digest.String()
	}
	if digests[0] != digests[1] {
		t.Errorf("the same binary gave images %s and %s", digests[0], digests[1])
	}
}

func TestOwnDir(t *testing.T) {
	dir := t.TempDir()
	if ownDir(dir) {
		t.Error("an empty directory is taken for a node's")
	}
	if _, err := writeNetwork(dir); err != nil {
		t.Fatal(err)
	}
	if !ownDir(dir) {
		t.Error("the directory of a node is not recognized")
	}
}
