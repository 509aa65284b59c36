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

// podWithLimits returns a pod whose container requests half a CPU and has a limit of 64 MiB.
func podWithLimits() *v1.Pod {
	p := spec("u1", always, "app")
	p.Spec.Containers[0].Resources = v1.ResourceRequirements{
		Requests: v1.ResourceList{"cpu": resource.MustParse("500m")},
		Limits:   v1.ResourceList{"memory": resource.MustParse("64Mi")},
	}
	return p
}

var podLimits = truth.Limits{CPUShares: 512, MemoryBytes: 64 << 20, PidsMax: 9}

// createCgroup adds the creation of a cgroup.
func (s *script) createCgroup(dir string, limits truth.Limits) {
	s.CheckFact(truth.Fact{Time: s.now, Kind: truth.CgroupCreated, Path: dir, Limits: limits})
}

// sandboxIn adds a sandbox in a cgroup, with IDs if it has any, that is ready.
func (s *script) sandboxIn(uid, dir string, ids truth.IDs) string {
	f := truth.Fact{PodUID: uid, SandboxID: uid + "-s0", Cgroup: dir, IDs: ids}
	s.addFact(truth.SandboxCreated, f)
	s.addFact(truth.SandboxReady, f)
	return f.SandboxID
}

// withPodCgroups runs a script on a node with pod cgroups and a limit of 9 processes.
func withPodCgroups(build func(*script)) func(*script) {
	return func(s *script) {
		s.model.opts.Cgroups = Cgroups{PerPod: true, PidsMax: 9}
		s.setDesired(podWithLimits())
		build(s)
	}
}

func TestCgroups(t *testing.T) {
	wrong := podLimits
	wrong.CPUShares = 2
	runs := func(s *script) run {
		s.createCgroup(ownCgroup, podLimits)
		return s.start(s.sandboxIn("u1", ownCgroup, truth.IDs{}), "app", 0)
	}
	removed := func(s *script, dir string) {
		s.CheckFact(truth.Fact{Time: s.now, Kind: truth.CgroupRemoved, Path: dir})
	}
	runCases(t, []testCase{
		{"its own cgroup", "", withPodCgroups(func(s *script) {
			r := runs(s)
			r.exit(0, truth.CauseStop)
			removed(s, ownCgroup)
		})},
		{"its own slice", "", withPodCgroups(func(s *script) {
			s.createCgroup(ownSlice, podLimits)
			s.sandboxIn("u1", ownSlice, truth.IDs{})
		})},
		{"never created", "cgroups", withPodCgroups(func(s *script) {
			s.sandboxIn("u1", ownCgroup, truth.IDs{})
		})},
		{"created by the runtime", "cgroups", withPodCgroups(func(s *script) {
			s.createCgroup(ownCgroup, truth.Limits{})
			s.sandboxIn("u1", ownCgroup, truth.IDs{})
		})},
		{"with other limits", "cgroups", withPodCgroups(func(s *script) {
			s.createCgroup(ownCgroup, wrong)
			s.sandboxIn("u1", ownCgroup, truth.IDs{})
		})},
		{"no cgroup", "cgroups", withPodCgroups(func(s *script) { s.sandboxIn("u1", "", truth.IDs{}) })},
		{"another pod's cgroup", "cgroups", withPodCgroups(func(s *script) {
			s.createCgroup("kubepods/burstable/podu2", podLimits)
			s.sandboxIn("u1", "kubepods/burstable/podu2", truth.IDs{})
		})},
		{"a node without pod cgroups", "cgroups", func(s *script) {
			s.setDesired(podWithLimits())
			s.createCgroup(ownCgroup, podLimits)
			s.sandboxIn("u1", ownCgroup, truth.IDs{})
		}},
		{"removed while it runs", "cgroups", withPodCgroups(func(s *script) {
			runs(s)
			removed(s, ownCgroup)
		})},
		{"its parent is removed while it runs", "cgroups", withPodCgroups(func(s *script) {
			runs(s)
			removed(s, "kubepods/burstable")
		})},
		{"another cgroup removed", "", withPodCgroups(func(s *script) {
			runs(s)
			removed(s, "kubepods/burstable/podu")
		})},
	})
}

func TestUnsettledCgroups(t *testing.T) {
	s := newScript()
	withPodCgroups(func(s *script) {
		s.createCgroup(ownCgroup, podLimits)
		r := s.start(s.sandboxIn("u1", ownCgroup, truth.IDs{}), "app", 0)
		s.Healed(s.now)
		s.wait(6)
		s.serve("u1", v1.PodRunning, "app#0 ready")
		if got := s.unsettled(); got != "" {
			t.Errorf("unsettled with the right limits: %s", got)
		}
		s.createCgroup(ownCgroup, truth.Limits{CPUShares: 2})
		if got := s.unsettled(); got == "" {
			t.Error("settled with wrong limits")
		}
		s.PodNoLongerDesired(s.now, "u1")
		r.exit(0, truth.CauseStop)
		r.change(truth.ContainerRemoved, "")
		s.changeSandbox(truth.SandboxStopped, "u1-s0")
		s.changeSandbox(truth.SandboxRemoved, "u1-s0")
		s.CheckServed(s.now, nil)
		want := "pod ns/web (uid u1): not desired, but cgroup " + ownCgroup + " is left"
		if got := s.unsettled(); got != want {
			t.Errorf("unsettled %q, want %q", got, want)
		}
	})(s)
}
