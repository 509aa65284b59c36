package admission

import (
	"testing"

	v1 "k8s.io/api/core/v1"
)

func TestNeedsAppArmor(t *testing.T) {
	profile := func(kind v1.AppArmorProfileType) *v1.AppArmorProfile {
		return &v1.AppArmorProfile{Type: kind}
	}
	for name, c := range map[string]struct {
		pod, container *v1.AppArmorProfile
		want           bool
	}{
		"none":           {nil, nil, false},
		"of the pod":     {profile(v1.AppArmorProfileTypeRuntimeDefault), nil, true},
		"of a container": {nil, profile(v1.AppArmorProfileTypeLocalhost), true},
		"unconfined":     {profile(v1.AppArmorProfileTypeUnconfined), nil, false},
	} {
		pod := podRequesting("p")
		pod.Spec.SecurityContext = &v1.PodSecurityContext{AppArmorProfile: c.pod}
		pod.Spec.Containers[0].SecurityContext = &v1.SecurityContext{AppArmorProfile: c.container}
		if got := NeedsAppArmor(pod); got != c.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}
