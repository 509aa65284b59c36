package oracle

import (
	"testing"

	v1 "k8s.io/api/core/v1"

	"seedlet.dev/sim/truth"
)

func TestVolumes(t *testing.T) {
	const disk = podsDir + "/u1/volumes/kubernetes.io~empty-dir/data"
	const memory = podsDir + "/u1/volumes/kubernetes.io~empty-dir/cache"
	begin := func(s *story) string {
		pod := spec("u1", always, "app")
		pod.Spec.Volumes = []v1.Volume{
			{Name: "data", VolumeSource: v1.VolumeSource{EmptyDir: &v1.EmptyDirVolumeSource{}}},
			{Name: "cache", VolumeSource: v1.VolumeSource{
				EmptyDir: &v1.EmptyDirVolumeSource{Medium: v1.StorageMediumMemory}}},
		}
		s.AgentStarted(s.now)
		s.want(pod)
		return s.sandbox("u1", 0)
	}
	runs := func(s *story) run {
		sandbox := begin(s)
		s.path(truth.PathMade, disk, "")
		s.path(truth.Mounted, memory, "")
		return s.start(sandbox, "app", 0)
	}
	judge(t, []tale{
		{"made, used, undone", "", func(s *story) {
			r := runs(s)
			s.Unwanted(s.now, "u1")
			r.exit(0, truth.CauseStop)
			s.path(truth.Unmounted, memory, "")
			s.path(truth.PathRemoved, disk, "")
		}},
		{"started before it is made", "volumes", func(s *story) {
			sandbox := begin(s)
			s.path(truth.Mounted, memory, "")
			s.start(sandbox, "app", 0)
		}},
		{"started before it is mounted", "volumes", func(s *story) {
			sandbox := begin(s)
			s.path(truth.PathMade, disk, "")
			s.path(truth.PathMade, memory, "")
			s.start(sandbox, "app", 0)
		}},
		{"unmounted under a process", "volumes", func(s *story) {
			runs(s)
			s.path(truth.Unmounted, memory, "")
		}},
		{"removed under a process", "volumes", func(s *story) {
			runs(s)
			s.path(truth.PathRemoved, disk, "")
		}},
		{"a sub-path under a process", "volumes", func(s *story) {
			runs(s)
			s.path(truth.Unmounted, podsDir+"/u1/volume-subpaths/data/app/0", "")
		}},
		{"by somebody else", "", func(s *story) {
			runs(s)
			s.path(truth.Unmounted, memory, truth.CauseUser)
		}},
	})
}
