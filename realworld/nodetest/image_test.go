package nodetest

import "testing"

func TestImageIsReproducible(t *testing.T) {
	var digests [2]string
	for i := range digests {
		layer, err := layerOf("sample", []byte("binary"))
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
