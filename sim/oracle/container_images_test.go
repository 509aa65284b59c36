package oracle

import (
	"testing"

	v1 "k8s.io/api/core/v1"

	"seedlet.dev/sim/truth"
)

func TestImages(t *testing.T) {
	yes := true
	made := func(user string, nonRoot bool, mounts ...string) func(*script) {
		return func(s *script) {
			s.model.opts.ImageUser = func(string) string { return user }
			pod := spec("u1", always, "app")
			pod.Spec.Volumes = []v1.Volume{{Name: "model", VolumeSource: v1.VolumeSource{
				Image: &v1.ImageVolumeSource{Reference: "model:1"}}}}
			c := &pod.Spec.Containers[0]
			c.VolumeMounts = []v1.VolumeMount{{Name: "model", MountPath: "/m"}}
			if nonRoot {
				c.SecurityContext = &v1.SecurityContext{RunAsNonRoot: &yes}
			}
			s.setDesired(pod)
			s.addFact(truth.ContainerCreated, truth.Fact{
				SandboxID: s.sandbox("u1", 0), Container: "app", ContainerID: "u1-app#0",
				User: "1000", ImageMounts: mounts,
				Annotations: map[string]string{annotationHash: containerHash(c)},
			})
		}
	}
	runCases(t, []testCase{
		{"as the image says", "", made("1000", true, "model:1")},
		{"as another user", "images", made("", false, "model:1")},
		{"another image volume", "images", made("1000", false, "model:2")},
		{"as root, under runAsNonRoot", "images", func(s *script) {
			pod := spec("u1", always, "app")
			pod.Spec.SecurityContext = &v1.PodSecurityContext{RunAsNonRoot: &yes}
			s.setDesired(pod)
			s.addFact(truth.ContainerCreated, truth.Fact{
				SandboxID: s.sandbox("u1", 0), Container: "app", ContainerID: "u1-app#0", User: "0",
				Annotations: map[string]string{
					annotationHash: containerHash(&pod.Spec.Containers[0])},
			})
		}},
	})
}
