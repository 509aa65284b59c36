package oracle

import (
	"fmt"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"seedlet.dev/sim/truth"
)

// startLimitedPod starts a pod with a volume of at most 1 MiB; fill sets the usage of the volume.
func startLimitedPod(s *script, medium v1.StorageMedium, priority int32) (r run, fill func(int64)) {
	const at = podsDir + "/u1/volumes/kubernetes.io~empty-dir/data"
	limit, bytes := resource.MustParse("1Mi"), int64(0)
	s.model.opts.DiskUsage = func(path string) int64 {
		if path == at {
			return bytes
		}
		return 0
	}
	pod := spec("u1", always, "app")
	pod.Spec.Priority = &priority
	pod.Spec.Volumes = []v1.Volume{{Name: "data", VolumeSource: v1.VolumeSource{
		EmptyDir: &v1.EmptyDirVolumeSource{Medium: medium, SizeLimit: &limit}}}}
	s.AgentStarted(s.now)
	s.setDesired(pod)
	sandbox := s.sandbox("u1", 0)
	s.changePath(truth.PathCreated, at, "")
	s.changePath(truth.Mounted, at, "")
	r = s.start(sandbox, "app", 0)
	return r, func(n int64) {
		bytes = n
		s.changePath(truth.FileResized, at+"/file", "")
	}
}

// serveEvicted serves the pod as evicted for a volume.
func (s *script) serveEvicted(volume string) {
	served := s.pods["u1"].DeepCopy()
	served.Status.Phase, served.Status.Reason = v1.PodFailed, reasonEvicted
	served.Status.Message = fmt.Sprintf("Usage of EmptyDir volume %q exceeds the limit.", volume)
	s.CheckServed(s.now, []*v1.Pod{served})
}

func TestEviction(t *testing.T) {
	const full, over = 1 << 20, 1<<20 + 1
	end := func(r run) {
		r.exit(143, truth.CauseStop)
	}
	disk := v1.StorageMediumDefault
	runCases(t, []testCase{
		{"above its limit", "", func(s *script) {
			r, fill := startLimitedPod(s, disk, 0)
			fill(over)
			end(r)
			s.serveEvicted("data")
		}},
		{"above its limit for a while", "", func(s *script) {
			r, fill := startLimitedPod(s, disk, 0)
			fill(over)
			fill(full)
			end(r)
			s.serveEvicted("data")
		}},
		{"at its limit", "eviction", func(s *script) {
			r, fill := startLimitedPod(s, disk, 0)
			fill(full)
			end(r)
			s.serveEvicted("data")
		}},
		{"for another volume", "eviction", func(s *script) {
			r, fill := startLimitedPod(s, disk, 0)
			fill(over)
			end(r)
			s.serveEvicted("cache")
		}},
		{"a critical pod", "eviction", func(s *script) {
			r, fill := startLimitedPod(s, disk, systemCriticalPriority)
			fill(over)
			end(r)
			s.serveEvicted("data")
		}},
		{"above its limit, not for long", "", func(s *script) {
			_, fill := startLimitedPod(s, disk, 0)
			fill(over)
		}},
		{"above its limit for long, never evicted", "eviction", func(s *script) {
			_, fill := startLimitedPod(s, disk, 0)
			fill(over)
			s.wait(100)
		}},
		{"above its limit while the agent is down", "", func(s *script) {
			_, fill := startLimitedPod(s, disk, 0)
			fill(over)
			s.wait(100)
			s.AgentKilled(s.now)
		}},
		{"in memory, at its limit", "", func(s *script) {
			_, fill := startLimitedPod(s, v1.StorageMediumMemory, 0)
			fill(full + directorySlack)
			s.wait(100)
		}},
		{"in memory, above its limit", "eviction", func(s *script) {
			_, fill := startLimitedPod(s, v1.StorageMediumMemory, 0)
			fill(2 * full)
		}},
	})
}

// After the heal a pod with a volume above its limit is unsettled until it has ended, and a pod
// whose volume has shrunk in time runs on.
func TestUnsettledEviction(t *testing.T) {
	s := newScript()
	_, fill := startLimitedPod(s, v1.StorageMediumDefault, 0)
	fill(2 << 20)
	s.Healed(s.now)
	want := "pod ns/web (uid u1): [data] is above its limit, but the pod is not evicted"
	if got := s.unsettled(); got != want {
		t.Errorf("unsettled: %q, want %q", got, want)
	}
	fill(0)
	if p := s.model.pods["u1"]; !p.mayBeEvicted(s.now) || p.mustBeEvicted(s.now) {
		t.Error("a volume that has just shrunk: want mayBeEvicted and not mustBeEvicted")
	}
	s.wait(200)
	if p := s.model.pods["u1"]; p.mayBeEvicted(s.now) || p.mustBeEvicted(s.now) {
		t.Error("a volume that shrank long ago: want neither mayBeEvicted nor mustBeEvicted")
	}
}
