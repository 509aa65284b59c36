package oracle

import (
	"testing"

	v1 "k8s.io/api/core/v1"

	"seedlet.dev/sim/truth"
)

// The volumes of the pod of beginWithVolumes.
const (
	volumeOnDisk   = podsDir + "/u1/volumes/kubernetes.io~empty-dir/data"
	volumeInMemory = podsDir + "/u1/volumes/kubernetes.io~empty-dir/cache"
)

// beginWithVolumes adds a pod with two volumes that do not exist yet, and its sandbox.
func (s *script) beginWithVolumes() string {
	pod := spec("u1", always, "app")
	pod.Spec.Volumes = []v1.Volume{
		{Name: "data", VolumeSource: v1.VolumeSource{EmptyDir: &v1.EmptyDirVolumeSource{}}},
		{Name: "cache", VolumeSource: v1.VolumeSource{
			EmptyDir: &v1.EmptyDirVolumeSource{Medium: v1.StorageMediumMemory}}},
	}
	mountAll(pod)
	s.AgentStarted(s.now)
	s.setDesired(pod)
	return s.sandbox("u1", 0)
}

// beginWithUnusedVolume adds a pod with a volume that does not exist and is not used, and a
// sandbox.
func (s *script) beginWithUnusedVolume() string {
	pod := spec("u1", always, "app")
	pod.Spec.Volumes = []v1.Volume{{Name: "data", VolumeSource: v1.VolumeSource{
		EmptyDir: &v1.EmptyDirVolumeSource{}}}}
	s.AgentStarted(s.now)
	s.setDesired(pod)
	return s.sandbox("u1", 0)
}

func TestVolumesAfterLossOfPower(t *testing.T) {
	runCases(t, []testCase{
		{"started after a loss of power that the directory has survived", "", func(s *script) {
			s.beginWithVolumes()
			s.changePath(truth.PathCreated, volumeOnDisk, "")
			s.losePower(volumeOnDisk)
			s.changePath(truth.Mounted, volumeInMemory, "")
			s.start(s.sandbox("u1", 1), "app", 0)
		}},
		{"started after a loss of power that the directory has not survived", "volumes",
			func(s *script) {
				s.beginWithVolumes()
				s.changePath(truth.PathCreated, volumeOnDisk, "")
				s.losePower()
				s.changePath(truth.Mounted, volumeInMemory, "")
				s.start(s.sandbox("u1", 1), "app", 0)
			}},
	})
}

func TestVolumes(t *testing.T) {
	runs := func(s *script) run {
		sandbox := s.beginWithVolumes()
		s.changePath(truth.PathCreated, volumeOnDisk, "")
		s.changePath(truth.Mounted, volumeInMemory, "")
		return s.start(sandbox, "app", 0)
	}
	runCases(t, []testCase{
		{"a sub-path of another container, unmounted", "", func(s *script) {
			runs(s)
			s.changePath(truth.Unmounted, podsDir+"/u1/volume-subpaths/data/other/0", "")
		}},
		{"a sub-path of the container, unmounted", "volumes", func(s *script) {
			runs(s)
			s.changePath(truth.Unmounted, podsDir+"/u1/volume-subpaths/data/app/0", "")
		}},
		{"created, used, removed", "", func(s *script) {
			r := runs(s)
			s.PodNoLongerDesired(s.now, "u1")
			r.exit(0, truth.CauseStop)
			s.changePath(truth.Unmounted, volumeInMemory, "")
			s.changePath(truth.PathRemoved, volumeOnDisk, "")
		}},
		{"started before the directory exists", "volumes", func(s *script) {
			sandbox := s.beginWithVolumes()
			s.changePath(truth.Mounted, volumeInMemory, "")
			s.start(sandbox, "app", 0)
		}},
		{"started without a volume that no container uses", "", func(s *script) {
			s.start(s.beginWithUnusedVolume(), "app", 0)
		}},
		{"started before the mount", "volumes", func(s *script) {
			sandbox := s.beginWithVolumes()
			s.changePath(truth.PathCreated, volumeOnDisk, "")
			s.changePath(truth.PathCreated, volumeInMemory, "")
			s.start(sandbox, "app", 0)
		}},
		{"unmounted while a process runs", "volumes", func(s *script) {
			runs(s)
			s.changePath(truth.Unmounted, volumeInMemory, "")
		}},
		{"removed while a process runs", "volumes", func(s *script) {
			runs(s)
			s.changePath(truth.PathRemoved, volumeOnDisk, "")
		}},
		{"a sub-path unmounted while a process runs", "volumes", func(s *script) {
			runs(s)
			s.changePath(truth.Unmounted, podsDir+"/u1/volume-subpaths/data/app/0", "")
		}},
		{"by an administrator", "", func(s *script) {
			runs(s)
			s.changePath(truth.Unmounted, volumeInMemory, truth.CauseAdministrator)
		}},
	})
}

// mountAll has a container mount all volumes of a pod.
func mountAll(pod *v1.Pod) {
	for _, v := range pod.Spec.Volumes {
		pod.Spec.Containers[0].VolumeMounts = append(pod.Spec.Containers[0].VolumeMounts,
			v1.VolumeMount{Name: v.Name, MountPath: "/" + v.Name})
	}
}
