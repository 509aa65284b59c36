package criconfig

import (
	"testing"

	v1 "k8s.io/api/core/v1"
)

// A pod's labels and annotations are formatted once, whatever the number of files that hold them.
func TestMetadataIsFormattedOnce(t *testing.T) {
	pod := newPod()
	pod.Spec.Labels = map[string]string{"a": "b"}
	pod.Spec.Annotations = map[string]string{"c": "\x7f", "d": ""}
	for field, want := range map[string]string{
		"metadata.labels": `a="b"`, "metadata.annotations": "c=\"\\x7f\"\nd=\"\"",
	} {
		file := &v1.DownwardAPIVolumeFile{FieldRef: &v1.ObjectFieldSelector{FieldPath: field}}
		n := testing.AllocsPerRun(5, func() {
			if got, err := pod.DownwardAPIFile(file); got != want || err != nil {
				t.Errorf("%s: %q, %v, want %q", field, got, err, want)
			}
		})
		if n > 0 {
			t.Errorf("%s: %v allocations for another file", field, n)
		}
	}
}
