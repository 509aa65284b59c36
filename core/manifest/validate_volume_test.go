package manifest

import (
	"testing"

	v1 "k8s.io/api/core/v1"
)

// Only certain fields can be projected, and a recursive read-only mount must not propagate.
func TestValidateVolumeFieldsAndMounts(t *testing.T) {
	for path, want := range map[string]bool{
		"metadata.name": true, "metadata.labels": true, "metadata.annotations['a']": true,
		"status.podIP": false, "spec.nodeName": false,
	} {
		if volumeField(path) != want {
			t.Errorf("%s: %v, want %v", path, !want, want)
		}
	}
	enabled, both := v1.RecursiveReadOnlyEnabled, v1.MountPropagationHostToContainer
	v := &validator{volumes: map[string]*v1.Volume{"v": {}}}
	v.checkMount(&v1.VolumeMount{Name: "v", MountPath: "/v", ReadOnly: true,
		RecursiveReadOnly: &enabled}, nil)
	if len(v.errs) != 0 {
		t.Errorf("%v", v.errs)
	}
	v.checkMount(&v1.VolumeMount{Name: "v", MountPath: "/v", ReadOnly: true,
		RecursiveReadOnly: &enabled, MountPropagation: &both}, nil)
	if len(v.errs) != 1 || v.errs[0].Field != "recursiveReadOnly" {
		t.Errorf("%v", v.errs)
	}
}
