package core

import (
	"slices"
	"testing"

	v1 "k8s.io/api/core/v1"
)

// The images of containers of every kind and of image volumes are in use.
func TestImagesOfAllContainersAndVolumes(t *testing.T) {
	spec := apiPodNamed("a", "u1").Spec
	spec.InitContainers = []v1.Container{{Name: "init", Image: "init:1"}}
	spec.EphemeralContainers = []v1.EphemeralContainer{{
		EphemeralContainerCommon: v1.EphemeralContainerCommon{Name: "debug", Image: "debug:1"}}}
	spec.Volumes = []v1.Volume{{Name: "empty"}, {Name: "files", VolumeSource: v1.VolumeSource{
		Image: &v1.ImageVolumeSource{Reference: "volume:1"}}}}
	want := []string{"init:1", "i", "debug:1", "volume:1"}
	if got := appendImages(nil, &spec); !slices.Equal(got, want) {
		t.Errorf("in use are %q, want %q", got, want)
	}
}
