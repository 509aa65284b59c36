package nodetest

import (
	"net/netip"
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

func TestBridgeName(t *testing.T) {
	a, b := bridgeName("/tmp/a"), bridgeName("/tmp/b")
	if a == b || len(a) > 15 {
		t.Errorf("bridges %q and %q: want different names of at most 15 bytes", a, b)
	}
}

func TestFreeSubnetAvoidsTaken(t *testing.T) {
	p, err := freeSubnet("/tmp/a")
	if err != nil {
		t.Fatal(err)
	}
	if p.Bits() != 24 || !p.Addr().IsPrivate() {
		t.Errorf("subnet %v is not a private /24", p)
	}
	for _, taken := range []string{"10.0.0.0/8", p.String(), "0.0.0.0/0"} {
		if !overlapsAny(p, []netip.Prefix{netip.MustParsePrefix(taken)}) {
			t.Errorf("%v is not seen to overlap %s", p, taken)
		}
	}
	if overlapsAny(p, []netip.Prefix{netip.MustParsePrefix("192.168.0.0/16")}) {
		t.Errorf("%v is seen to overlap 192.168.0.0/16", p)
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
