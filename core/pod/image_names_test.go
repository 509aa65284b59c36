package pod

import (
	"slices"
	"testing"

	v1 "k8s.io/api/core/v1"
)

// The images of containers of every kind and of image volumes are in use.
func TestImagesOfAllContainersAndVolumes(t *testing.T) {
	spec := &v1.PodSpec{
		InitContainers: []v1.Container{{Name: "init", Image: "registry.test/init:1"}},
		Containers:     []v1.Container{{Name: "app", Image: "registry.test/app:1"}},
		EphemeralContainers: []v1.EphemeralContainer{{EphemeralContainerCommon: v1.EphemeralContainerCommon{
			Name: "debug", Image: "registry.test/debug:1"}}},
		Volumes: []v1.Volume{{Name: "empty"}, {Name: "files", VolumeSource: v1.VolumeSource{
			Image: &v1.ImageVolumeSource{Reference: "registry.test/volume:1"}}}},
	}
	want := []string{"registry.test/init:1", "registry.test/app:1", "registry.test/debug:1",
		"registry.test/volume:1"}
	if got := AppendImageNames(nil, spec); !slices.Equal(got, want) {
		t.Errorf("in use are %q, want %q", got, want)
	}
}
