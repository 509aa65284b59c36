package oracle

import (
	"testing"

	v1 "k8s.io/api/core/v1"

	"seedlet.dev/sim/truth"
)

func TestVolumes(t *testing.T) {
	const disk = podsDir + "/u1/volumes/kubernetes.io~empty-dir/data"
	const memory = podsDir + "/u1/volumes/kubernetes.io~empty-dir/cache"
	begin := func(s *script) string {
		pod := spec("u1", always, "app")
		pod.Spec.Volumes = []v1.Volume{
			{Name: "data", VolumeSource: v1.VolumeSource{EmptyDir: &v1.EmptyDirVolumeSource{}}},
			{Name: "cache", VolumeSource: v1.VolumeSource{
				EmptyDir: &v1.EmptyDirVolumeSource{Medium: v1.StorageMediumMemory}}},
		}
		s.AgentStarted(s.now)
		s.setDesired(pod)
		return s.sandbox("u1", 0)
	}
	runs := func(s *script) run {
		sandbox := begin(s)
		s.changePath(truth.PathCreated, disk, "")
		s.changePath(truth.Mounted, memory, "")
		return s.start(sandbox, "app", 0)
	}
	runCases(t, []testCase{
		{"created, used, removed", "", func(s *script) {
			r := runs(s)
			s.PodNoLongerDesired(s.now, "u1")
			r.exit(0, truth.CauseStop)
			s.changePath(truth.Unmounted, memory, "")
			s.changePath(truth.PathRemoved, disk, "")
		}},
		{"started before the directory exists", "volumes", func(s *script) {
			sandbox := begin(s)
			s.changePath(truth.Mounted, memory, "")
			s.start(sandbox, "app", 0)
		}},
		{"started before the mount", "volumes", func(s *script) {
			sandbox := begin(s)
			s.changePath(truth.PathCreated, disk, "")
			s.changePath(truth.PathCreated, memory, "")
			s.start(sandbox, "app", 0)
		}},
		{"unmounted while a process runs", "volumes", func(s *script) {
			runs(s)
			s.changePath(truth.Unmounted, memory, "")
		}},
		{"removed while a process runs", "volumes", func(s *script) {
			runs(s)
			s.changePath(truth.PathRemoved, disk, "")
		}},
		{"a sub-path unmounted while a process runs", "volumes", func(s *script) {
			runs(s)
			s.changePath(truth.Unmounted, podsDir+"/u1/volume-subpaths/data/app/0", "")
		}},
		{"by an administrator", "", func(s *script) {
			runs(s)
			s.changePath(truth.Unmounted, memory, truth.CauseAdministrator)
		}},
	})
}
