package nodetest

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// A program that needs libraries cannot run in an image of its own.
func TestAgentImageIsStatic(t *testing.T) {
	shell, err := os.ReadFile("/bin/sh")
	if err != nil {
		t.Skip(err)
	}
	for _, binary := range [][]byte{shell, []byte("no program")} {
		path := filepath.Join(t.TempDir(), "image.tar")
		if _, err := WriteAgentImage(path, "v1", binary); err == nil ||
			!strings.Contains(err.Error(), "program") {
			t.Errorf("an image of %.10q: %v", binary, err)
		}
		if _, err := os.Stat(path); err == nil {
			t.Error("the image was written")
		}
	}
}

func TestImageIsReproducible(t *testing.T) {
	var digests [2]string
	for i := range digests {
		layer, err := layerOf("sample", []byte("binary"), tarOf("sample"))
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
		t.Errorf("images of the same binary have the digests %s and %s", digests[0], digests[1])
	}
}
