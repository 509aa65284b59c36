package localstorage

import (
	"testing"

	v1 "k8s.io/api/core/v1"

	"seedlet.dev/world"
)

// Everything that a pod keeps on the disk counts for its limit by itself: read-only volumes that
// the agent writes, the logs of containers of every kind, and the layers of ephemeral ones.
func TestEveryKindCountsForThePod(t *testing.T) {
	const configMap = "/pods/u1/volumes/kubernetes.io~configmap/config"
	pod := newPod([]v1.Container{container("app", "1Ki")}, v1.Volume{Name: "config",
		VolumeSource: v1.VolumeSource{ConfigMap: &v1.ConfigMapVolumeSource{}}})
	pod.Spec.Spec.InitContainers = []v1.Container{container("init", "")}
	pod.Spec.Spec.EphemeralContainers = []v1.EphemeralContainer{{
		EphemeralContainerCommon: v1.EphemeralContainerCommon{Name: "debug"}}}
	for _, large := range []string{configMap, "/logs/u1/init", "/logs/u1/debug", "debug-id"} {
		answers := map[string]world.Event{}
		for _, path := range []string{configMap, "/pods/u1/etc-hosts", "/pods/u1/containers",
			"/logs/u1/init", "/logs/u1/app", "/logs/u1/debug"} {
			answers[path] = tree(0)
		}
		for _, id := range []string{"init-id", "app-id", "debug-id"} {
			answers[id] = layer(0)
		}
		if answers[large] = tree(1025); large == "debug-id" {
			answers[large] = layer(1025)
		}
		u := &Usage{}
		if pass(t, u, pod, t0, answers); u.Exceeded.Kind != PodLimit {
			t.Errorf("%s is above the limit, and exceeded is %v, want that of the pod", large, u.Exceeded)
		}
	}
}

// A limit of an init container alone is one of the pod.
func TestLimitOfInitContainer(t *testing.T) {
	pod := newPod([]v1.Container{container("app", "")})
	pod.Spec.Spec.InitContainers = []v1.Container{container("init", "1Ki")}
	without := newPod([]v1.Container{container("app", "")})
	if !hasLimits(&pod.Spec.Spec) || hasLimits(&without.Spec.Spec) {
		t.Error("the limit of an init container is not seen")
	}
}
