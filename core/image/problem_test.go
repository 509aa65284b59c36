package image

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// A reference that is too long is quoted in part. It is not parsed: the longest one is valid.
func TestReferenceThatIsTooLong(t *testing.T) {
	longest := "r.io/" + strings.Repeat("a", 250) + ":" + strings.Repeat("t", 128)
	longest = strings.Repeat("h", 1024-len(longest)) + longest
	if got := checkReference(longest); got != nil {
		t.Errorf("a valid reference of 1024 bytes: %+v", got)
	}
	want := &Problem{Reason: "InvalidImageName", Message: `Failed to apply default image tag "r.io/` +
		strings.Repeat("ä", 29) + `...": the reference has 1300001 bytes, and one may have 1024`}
	if d := cmp.Diff(want, checkReference("r.io/"+strings.Repeat("ä", 649_998))); d != "" {
		t.Error(d)
	}
}

// The statuses of pulls that failed have the kubelet's reasons and texts.
func TestPullProblem(t *testing.T) {
	for _, c := range []struct {
		cause    string
		failures int
		want     Problem
	}{
		{"no route", 1, Problem{Reason: "ErrImagePull", Message: "no route"}},
		{"no route", 2, Problem{Reason: "ImagePullBackOff",
			Message: `Back-off pulling image "i:1": ErrImagePull: no route`}},
		{"RegistryUnavailable: try later", 1, Problem{Reason: "RegistryUnavailable",
			Message: "image pull failed for i:1 because the registry is unavailable: try later"}},
		{"SignatureValidationFailed", 3, Problem{Reason: "ImagePullBackOff",
			Message: `Back-off pulling image "i:1": SignatureValidationFailed: image pull failed for ` +
				"i:1 because the signature validation failed"}},
		{"[RegistryUnavailable: a, b]", 1, Problem{Reason: "ErrImagePull",
			Message: "[RegistryUnavailable: a, b]"}},
	} {
		got := pullProblem("i:1", c.cause, c.failures)
		if d := cmp.Diff(c.want, Problem{Reason: got.Reason, Message: got.Message}); d != "" {
			t.Errorf("%s: %s", c.cause, d)
		}
	}
}
