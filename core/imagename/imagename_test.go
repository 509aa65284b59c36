package imagename

import (
	"strings"
	"testing"

	"github.com/distribution/reference"
)

var digest = "@sha256:" + strings.Repeat("0a", 32)

// references are valid ones of every form, and some that are not.
var references = []string{"nginx", "nginx:1", "nginx" + digest, "nginx:1" + digest, "me/app",
	"docker.io/app:5", "index.docker.io/app", "index.docker.io/me/app", "library/a", "localhost/a",
	"localhost:5000/a:b", "quay.io/a/b:1", "Host/a", "host/a", "[::1]:5000/a/b:c", "1.2.3.4/a",
	"registry:443/a" + digest, "sha256:" + strings.Repeat("0", 64), "a:5000", "", "/", "a//b", "A",
	"a@", "a:", strings.Repeat("0", 64)}

func TestSplitAsTheLibrary(t *testing.T) {
	valid := 0
	for _, ref := range references {
		if compare(t, ref) {
			valid++
		}
	}
	if valid != len(references)-7 {
		t.Errorf("%d valid references of %d", valid, len(references))
	}
}

func FuzzSplit(f *testing.F) {
	for _, ref := range references {
		f.Add(ref)
	}
	f.Fuzz(func(t *testing.T, ref string) { compare(t, ref) })
}

// compare compares the names of a reference with those of the library, and reports whether it is
// valid.
func compare(t *testing.T, ref string) bool {
	got := Split(ref)
	named, err := reference.ParseDockerRef(ref)
	if err != nil {
		return false
	}
	if got.Path() != named.Name() || got.Full() != named.String() ||
		got.Registry != reference.Domain(named) {
		t.Errorf("%q: %q and %q, want %q", ref, got.Path(), got.Full(), named)
	}
	return true
}
