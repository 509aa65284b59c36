package oracle

import (
	"testing"

	v1 "k8s.io/api/core/v1"

	"seedlet.dev/sim/truth"
)

func TestVolumeReadOnly(t *testing.T) {
	const volumes, subPaths = podsDir + "/u1/volumes", podsDir + "/u1/volume-subpaths"
	created := func(mounts ...truth.Mount) func(s *script) {
		return func(s *script) {
			pod := spec("u1", always, "app")
			pod.Spec.Volumes = []v1.Volume{
				{Name: "data", VolumeSource: v1.VolumeSource{EmptyDir: &v1.EmptyDirVolumeSource{}}},
				{Name: "keys", VolumeSource: v1.VolumeSource{
					Secret: &v1.SecretVolumeSource{SecretName: "keys"}}},
				{Name: "all", VolumeSource: v1.VolumeSource{
					Projected: &v1.ProjectedVolumeSource{}}},
			}
			c := &pod.Spec.Containers[0]
			c.VolumeMounts = []v1.VolumeMount{{Name: "data", MountPath: "/ro", ReadOnly: true},
				{Name: "data", MountPath: "/rw"}}
			s.AgentStarted(s.now)
			s.setDesired(pod)
			s.changePath(truth.PathCreated, volumes+"/kubernetes.io~empty-dir/data", "")
			s.addFact(truth.ContainerCreated, truth.Fact{SandboxID: s.sandbox("u1", 0),
				Container: "app", ContainerID: "u1-app#0", Mounts: mounts,
				Annotations: map[string]string{annotationHash: containerHash(c)}})
		}
	}
	runCases(t, []testCase{
		{"read-only content, and a directory to write to", "", created(
			truth.Mount{HostPath: volumes + "/kubernetes.io~secret/keys", ContainerPath: "/k",
				ReadOnly: true},
			truth.Mount{HostPath: volumes + "/kubernetes.io~empty-dir/data", ContainerPath: "/rw"},
			truth.Mount{HostPath: subPaths + "/data/app/0", ContainerPath: "/sub"},
			truth.Mount{HostPath: "/srv", ContainerPath: "/srv"})},
		{"a writable secret", "volume-read-only", created(
			truth.Mount{HostPath: volumes + "/kubernetes.io~secret/keys", ContainerPath: "/k"})},
		{"a writable sub-path of a projection", "volume-read-only", created(
			truth.Mount{HostPath: subPaths + "/all/app/1", ContainerPath: "/token"})},
		{"the spec says read-only", "volume-read-only", created(
			truth.Mount{HostPath: volumes + "/kubernetes.io~empty-dir/data", ContainerPath: "/ro"})},
	})
}
