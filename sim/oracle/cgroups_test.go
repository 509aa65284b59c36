package oracle

import (
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"seedlet.dev/sim/truth"
)

const (
	ownCgroup = "kubepods/burstable/podu1"
	ownSlice  = "kubepods.slice/kubepods-podu1.slice"
)

// sized is a pod whose container asks for half a CPU and may use 64 MiB.
func sized() *v1.Pod {
	p := spec("u1", always, "app")
	p.Spec.Containers[0].Resources = v1.ResourceRequirements{
		Requests: v1.ResourceList{"cpu": resource.MustParse("500m")},
		Limits:   v1.ResourceList{"memory": resource.MustParse("64Mi")},
	}
	return p
}

var sizedLimits = truth.Limits{CPUShares: 512, MemoryBytes: 64 << 20, PidsMax: 9}

// cgroup has a cgroup made with limits.
func (s *story) cgroup(dir string, limits truth.Limits) {
	s.Fact(truth.Fact{Time: s.now, Kind: truth.CgroupMade, Path: dir, Limits: limits})
}

// sandboxIn makes a sandbox in a cgroup, with ids if it has any.
func (s *story) sandboxIn(uid, dir string, ids truth.IDs) string {
	f := truth.Fact{PodUID: uid, SandboxID: uid + "-s0", Cgroup: dir, IDs: ids}
	s.fact(truth.SandboxCreated, f)
	s.fact(truth.SandboxReady, f)
	return f.SandboxID
}

// perPod is a story on a node where pods have cgroups and at most 9 processes.
func perPod(tell func(*story)) func(*story) {
	return func(s *story) {
		s.world.opts.Cgroups = Cgroups{PerPod: true, PidsMax: 9}
		s.want(sized())
		tell(s)
	}
}

func TestCgroups(t *testing.T) {
	wrong := sizedLimits
	wrong.CPUShares = 2
	runs := func(s *story) run {
		s.cgroup(ownCgroup, sizedLimits)
		return s.start(s.sandboxIn("u1", ownCgroup, truth.IDs{}), "app", 0)
	}
	removed := func(s *story, dir string) {
		s.Fact(truth.Fact{Time: s.now, Kind: truth.CgroupRemoved, Path: dir})
	}
	judge(t, []tale{
		{"as it should be", "", perPod(func(s *story) {
			r := runs(s)
			r.exit(0, truth.CauseStop)
			removed(s, ownCgroup)
		})},
		{"a slice", "", perPod(func(s *story) {
			s.cgroup(ownSlice, sizedLimits)
			s.sandboxIn("u1", ownSlice, truth.IDs{})
		})},
		{"never made", "cgroups", perPod(func(s *story) {
			s.sandboxIn("u1", ownCgroup, truth.IDs{})
		})},
		{"made by the runtime", "cgroups", perPod(func(s *story) {
			s.cgroup(ownCgroup, truth.Limits{})
			s.sandboxIn("u1", ownCgroup, truth.IDs{})
		})},
		{"with other limits", "cgroups", perPod(func(s *story) {
			s.cgroup(ownCgroup, wrong)
			s.sandboxIn("u1", ownCgroup, truth.IDs{})
		})},
		{"nowhere", "cgroups", perPod(func(s *story) { s.sandboxIn("u1", "", truth.IDs{}) })},
		{"another pod's", "cgroups", perPod(func(s *story) {
			s.cgroup("kubepods/burstable/podu2", sizedLimits)
			s.sandboxIn("u1", "kubepods/burstable/podu2", truth.IDs{})
		})},
		{"although there are to be none", "cgroups", func(s *story) {
			s.want(sized())
			s.cgroup(ownCgroup, sizedLimits)
			s.sandboxIn("u1", ownCgroup, truth.IDs{})
		}},
		{"removed while it runs", "cgroups", perPod(func(s *story) {
			runs(s)
			removed(s, ownCgroup)
		})},
		{"its parent is removed while it runs", "cgroups", perPod(func(s *story) {
			runs(s)
			removed(s, "kubepods/burstable")
		})},
		{"another one is removed", "", perPod(func(s *story) {
			runs(s)
			removed(s, "kubepods/burstable/podu")
		})},
	})
}

func TestCgroupsWhenQuiet(t *testing.T) {
	s := tell()
	perPod(func(s *story) {
		s.cgroup(ownCgroup, sizedLimits)
		r := s.start(s.sandboxIn("u1", ownCgroup, truth.IDs{}), "app", 0)
		s.Healed(s.now)
		s.wait(6)
		s.shows("u1", v1.PodRunning, "app#0 ready")
		if got := s.unsettled(); got != "" {
			t.Errorf("all is well, but %s", got)
		}
		s.cgroup(ownCgroup, truth.Limits{CPUShares: 2})
		if got := s.unsettled(); got == "" {
			t.Error("limits that are not the pod's are as they should be")
		}
		s.Unwanted(s.now, "u1")
		r.exit(0, truth.CauseStop)
		r.is(truth.ContainerRemoved, "")
		s.sandboxIs(truth.SandboxStopped, "u1-s0")
		s.sandboxIs(truth.SandboxRemoved, "u1-s0")
		s.Answer(s.now, nil)
		want := "pod ns/web (uid u1): not wanted, but cgroup " + ownCgroup + " is left"
		if got := s.unsettled(); got != want {
			t.Errorf("left: %q, want %q", got, want)
		}
	})(s)
}

// apart starts the container of a pod of that name, which is to have ids of its own, in a sandbox
// that has these. It returns what ends it.
func (s *story) apart(uid string, ids truth.IDs) (end func()) {
	no := false
	p := spec(uid, always, "app")
	p.Name, p.Spec.HostUsers = uid, &no
	s.want(p)
	f := truth.Fact{PodUID: uid, PodName: uid, SandboxID: uid + "-s0", IDs: ids}
	s.fact(truth.SandboxCreated, f)
	s.fact(truth.SandboxReady, f)
	f.Container, f.ContainerID = "app", uid+"-app#0"
	s.fact(truth.ContainerCreated, f)
	s.fact(truth.ContainerStarted, f)
	return func() {
		f.Cause = truth.CauseOwn
		s.fact(truth.ContainerExited, f)
	}
}

func TestUserNamespaces(t *testing.T) {
	first, second := truth.IDs{First: 65536, Length: 65536}, truth.IDs{First: 131072, Length: 65536}
	judge(t, []tale{
		{"apart", "", func(s *story) {
			s.apart("u1", first)
			s.apart("u2", second)
		}},
		{"one after the other", "", func(s *story) {
			s.apart("u1", first)()
			s.apart("u2", first)
		}},
		{"one in common", "userns", func(s *story) {
			s.apart("u1", first)
			s.apart("u2", truth.IDs{First: 131071, Length: 65536})
		}},
		{"the host's", "userns", func(s *story) { s.apart("u1", truth.IDs{}) }},
		{"some of the host's", "userns", func(s *story) {
			s.apart("u1", truth.IDs{First: 1000, Length: 65536})
		}},
		{"not asked for", "", func(s *story) { s.runs(always) }},
	})
}
