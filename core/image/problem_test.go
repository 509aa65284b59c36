package image

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

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
