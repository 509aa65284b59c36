package oracle

import (
	"fmt"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"seedlet.dev/sim/truth"
)

// volumeTale begins a story of a pod with a volume of 1 MiB; fill says how full it is from now on.
func volumeTale(s *story, medium v1.StorageMedium, priority int32) (r run, fill func(int64)) {
	const at = podsDir + "/u1/volumes/kubernetes.io~empty-dir/data"
	limit, bytes := resource.MustParse("1Mi"), int64(0)
	s.world.opts.Usage = func(path string) int64 {
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
	s.want(pod)
	sandbox := s.sandbox("u1", 0)
	s.path(truth.PathMade, at, "")
	s.path(truth.Mounted, at, "")
	r = s.start(sandbox, "app", 0)
	return r, func(n int64) {
		bytes = n
		s.path(truth.FileSized, at+"/file", "")
	}
}

// evicted has the API show that the pod was evicted for a volume.
func (s *story) evicted(volume string) {
	shown := s.pods["u1"].DeepCopy()
	shown.Status.Phase, shown.Status.Reason = v1.PodFailed, reasonEvicted
	shown.Status.Message = fmt.Sprintf("Usage of EmptyDir volume %q exceeds the limit.", volume)
	s.Answer(s.now, []*v1.Pod{shown})
}

func TestEviction(t *testing.T) {
	const full, over = 1 << 20, 1<<20 + 1
	end := func(r run) {
		r.exit(143, truth.CauseStop)
	}
	disk := v1.StorageMediumDefault
	judge(t, []tale{
		{"above its limit", "", func(s *story) {
			r, fill := volumeTale(s, disk, 0)
			fill(over)
			end(r)
			s.evicted("data")
		}},
		{"above its limit for a while", "", func(s *story) {
			r, fill := volumeTale(s, disk, 0)
			fill(over)
			fill(full)
			end(r)
			s.evicted("data")
		}},
		{"at its limit", "eviction", func(s *story) {
			r, fill := volumeTale(s, disk, 0)
			fill(full)
			end(r)
			s.evicted("data")
		}},
		{"for another volume", "eviction", func(s *story) {
			r, fill := volumeTale(s, disk, 0)
			fill(over)
			end(r)
			s.evicted("cache")
		}},
		{"although it is critical", "eviction", func(s *story) {
			r, fill := volumeTale(s, disk, priorityMin)
			fill(over)
			end(r)
			s.evicted("data")
		}},
		{"not for long", "", func(s *story) {
			_, fill := volumeTale(s, disk, 0)
			fill(over)
		}},
		{"never", "eviction", func(s *story) {
			_, fill := volumeTale(s, disk, 0)
			fill(over)
			s.wait(100)
		}},
		{"not while the agent is away", "", func(s *story) {
			_, fill := volumeTale(s, disk, 0)
			fill(over)
			s.wait(100)
			s.AgentKilled(s.now)
		}},
		{"in memory, full", "", func(s *story) {
			_, fill := volumeTale(s, v1.StorageMediumMemory, 0)
			fill(full + memorySlack)
			s.wait(100)
		}},
		{"in memory, more than full", "eviction", func(s *story) {
			_, fill := volumeTale(s, v1.StorageMediumMemory, 0)
			fill(2 * full)
		}},
	})
}

// After the healing a pod whose volume is too large is not as it should be until it has ended, and
// one that has become smaller in time runs on.
func TestEvictionIsDue(t *testing.T) {
	s := tell()
	_, fill := volumeTale(s, v1.StorageMediumDefault, 0)
	fill(2 << 20)
	s.Healed(s.now)
	want := "pod ns/web (uid u1): [data] is above its limit, but the pod is not evicted"
	if got := s.unsettled(); got != want {
		t.Errorf("unsettled: %q, want %q", got, want)
	}
	fill(0)
	if p := s.world.pods["u1"]; !p.maybeEvicted(s.now) || p.surelyEvicted(s.now) {
		t.Error("it is known whether it was evicted in time")
	}
	s.wait(200)
	if p := s.world.pods["u1"]; p.maybeEvicted(s.now) || p.surelyEvicted(s.now) {
		t.Error("it may be evicted long after it has become smaller")
	}
}
