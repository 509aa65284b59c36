package oracle

import (
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"seedlet.dev/sim/truth"
)

const tier = "kubepods/burstable"

// withTiers runs a script on a node with a tier for the pod of withPodCgroups.
func withTiers(build func(*script)) func(*script) {
	return withPodCgroups(func(s *script) {
		s.model.opts.Tiers = &Tiers{CPU: 4000, MemoryBytes: 1 << 30, MachineMemory: 2 << 30,
			SwapBytes: 1 << 30, ThrottlingFactor: 0.9, LimitedSwap: true}
		s.createCgroup(tier, truth.Limits{CPUShares: 512})
		s.createCgroup(ownCgroup, podLimits)
		build(s)
	})
}

// containerOf adds the creation of the pod's container with limits.
func (s *script) containerOf(sandbox string, limits truth.Limits) {
	s.addFact(truth.ContainerCreated, truth.Fact{PodUID: "u1", SandboxID: sandbox,
		ContainerID: "c", Container: "app", Limits: limits})
}

func TestTiers(t *testing.T) {
	right := truth.Limits{CPUShares: 512, CPUPeriod: 100_000, MemoryBytes: 64 << 20,
		Files: "memory.oom.group 1, memory.swap.max 0"}
	changed := func(change func(*truth.Limits)) func(*script) {
		return withTiers(func(s *script) {
			limits := right
			change(&limits)
			s.containerOf(s.sandboxIn("u1", ownCgroup, truth.IDs{}), limits)
		})
	}
	runCases(t, []testCase{
		{"right", "", changed(func(*truth.Limits) {})},
		{"a tier that weighs less", "tiers", withTiers(func(s *script) {
			s.createCgroup(tier, truth.Limits{CPUShares: 511})
			s.sandboxIn("u1", ownCgroup, truth.IDs{})
		})},
		{"a tier that weighs less after a failure", "", withTiers(func(s *script) {
			s.model.opts.FaultPossible = func(call string, _, _ time.Time) bool {
				return call == "SetCgroup"
			}
			s.createCgroup(tier, truth.Limits{CPUShares: 511})
			s.sandboxIn("u1", ownCgroup, truth.IDs{})
		})},
		{"a tier that shrinks below its pod", "tiers", withTiers(func(s *script) {
			s.sandboxIn("u1", ownCgroup, truth.IDs{})
			s.createCgroup(tier, truth.Limits{CPUShares: 2})
		})},
		{"a tier that shrinks as the agent starts", "tiers", withTiers(func(s *script) {
			s.sandboxIn("u1", ownCgroup, truth.IDs{})
			s.wait(1)
			s.restartAgent()
			s.createCgroup(tier, truth.Limits{CPUShares: 2})
		})},
		{"a tier that shrinks before the sandbox of an earlier agent is known", "",
			withTiers(func(s *script) {
				s.wait(1)
				s.restartAgent()
				s.wait(1)
				s.sandboxIn("u1", ownCgroup, truth.IDs{})
				s.createCgroup(tier, truth.Limits{CPUShares: 2})
			})},
		{"a tier that shrinks after its pod", "", withTiers(func(s *script) {
			s.changeSandbox(truth.SandboxStopped, s.sandboxIn("u1", ownCgroup, truth.IDs{}))
			s.createCgroup(tier, truth.Limits{CPUShares: 2})
		})},
		{"without memory.oom.group", "tiers", changed(func(l *truth.Limits) {
			l.Files = "memory.swap.max 0"
		})},
		{"with swap", "tiers", changed(func(l *truth.Limits) {
			l.Files = "memory.oom.group 1, memory.swap.max 5"
		})},
		{"without a limit of memory", "tiers", changed(func(l *truth.Limits) { l.MemoryBytes = 0 })},
		{"with huge pages", "tiers", changed(func(l *truth.Limits) { l.HugePages = "2MB 2097152" })},
		{"above its pod", "tiers", withTiers(func(s *script) {
			id := s.sandboxIn("u1", ownCgroup, truth.IDs{})
			lower := podLimits
			lower.MemoryBytes = 1 << 20
			s.model.cgroups[ownCgroup] = lower
			s.containerOf(id, right)
		})},
	})
}

// The swap and the protected memory of a container follow from what it requests.
func TestContainerFiles(t *testing.T) {
	list := func(memory string) v1.ResourceList {
		return v1.ResourceList{v1.ResourceMemory: resource.MustParse(memory)}
	}
	s := newScript()
	s.model.opts.Tiers = &Tiers{MachineMemory: 1000 << 20, SwapBytes: 500 << 20, LimitedSwap: true,
		MemoryQoS: true, ReservesMemory: true, ThrottlingFactor: 0.5, UnreservedMemory: 900 << 20}
	for _, test := range []struct {
		request, limit v1.ResourceList
		static         bool
		want           string
	}{
		{list("100Mi"), nil, false, "memory.high 524288000, memory.low 104857600, " +
			"memory.oom.group 1, memory.swap.max 52428800"},
		{list("100Mi"), list("200Mi"), true, "memory.high 157286400, memory.low 104857600, " +
			"memory.oom.group 1, memory.swap.max 0"},
		{nil, nil, false, "memory.high max, memory.low 0, memory.min 0, memory.oom.group 1, " +
			"memory.swap.max 0"},
	} {
		p := spec("u1", always, "app")
		p.Spec.Containers[0].Resources = v1.ResourceRequirements{Requests: test.request,
			Limits: test.limit}
		got := s.model.opts.Tiers.containerFiles(&pod{static: test.static}, p, &p.Spec.Containers[0])
		if got != test.want {
			t.Errorf("%v, %v: %q", test.request, test.limit, got)
		}
	}
}

func TestUnsettledTiers(t *testing.T) {
	s := newScript()
	withTiers(func(s *script) {
		s.sandboxIn("u1", ownCgroup, truth.IDs{})
		s.createCgroup("kubepods", truth.Limits{CPUShares: 4096, MemoryBytes: 1 << 30})
		s.createCgroup("kubepods/besteffort", truth.Limits{CPUShares: 2})
		if lines := s.model.unsettledTiers(); len(lines) > 0 {
			t.Errorf("with the right values: %q", lines)
		}
		s.createCgroup(tier, truth.Limits{CPUShares: 513})
		lines := s.model.unsettledTiers()
		if len(lines) != 1 || !strings.HasPrefix(lines[0], "cgroup "+tier+" has {CPUShares:513") {
			t.Errorf("with a wrong value: %q", lines)
		}
		s.model.opts.Tiers.MemoryPercent, s.model.opts.Tiers.UnreservedMemory = 50, 1<<30
		if lines := s.model.unsettledTiers(); len(lines) != 2 {
			t.Errorf("without reserved memory: %q", lines)
		}
	})(s)
}

// After a change of the configuration a late request may follow that of before, and later ones do
// not.
func TestConfigurationChanged(t *testing.T) {
	const other = "system.slice"
	reserving := func(bytes int64) *Tiers {
		return &Tiers{Reserved: map[string]truth.Limits{other: {MemoryBytes: bytes}}}
	}
	written := func(wait float64, bytes int64) func(*script) {
		return withTiers(func(s *script) {
			s.model.opts.SystemCgroups, s.model.opts.Tiers = []string{other}, reserving(1)
			s.AgentStarted(s.now)
			s.wait(1)
			s.ConfigurationChanged(nil, reserving(2), nil)
			s.AgentKilled(s.now)
			s.wait(1)
			s.AgentStarted(s.now)
			s.wait(wait)
			s.createCgroup(other, truth.Limits{MemoryBytes: bytes})
		})
	}
	runCases(t, []testCase{
		{"as it is configured", "", written(1, 2)},
		{"as it was configured", "", written(1, 1)},
		{"as it was configured, late", "tiers", written(310, 1)},
		{"otherwise", "tiers", written(1, 3)},
	})
}

// Without quotas no cgroup has one.
func TestNoQuota(t *testing.T) {
	p := spec("u1", always, "app")
	list := v1.ResourceList{v1.ResourceCPU: resource.MustParse("2")}
	p.Spec.Containers[0].Resources = v1.ResourceRequirements{Requests: list, Limits: list}
	for _, off := range []bool{false, true} {
		s := newScript()
		s.model.opts.Tiers = &Tiers{NoQuota: off, MachineMemory: 1}
		c := &p.Spec.Containers[0]
		want, period := int64(200_000), uint64(100_000)
		if off {
			want, period = 0, 0
		}
		whole := s.model.limitsOf(p)
		created := s.model.containerLimits(&pod{}, p, c, s.model.opts.Tiers)
		if updated := s.model.opts.resourcesOf(p, c); whole.CPUQuota != want ||
			whole.CPUPeriod != period || created.CPUQuota != want || created.CPUPeriod != period ||
			updated.CPUQuota != want {
			t.Errorf("off: %t: the pod has %+v, its container %+v, updated %+v", off, whole, created,
				updated)
		}
		cpu := list[v1.ResourceCPU]
		if r := s.model.opts.Tiers.cpuAndMemory(cpu, cpu, cpu); r.CpuQuota != want ||
			uint64(r.CpuPeriod) != period {
			t.Errorf("off: %t: %v", off, r)
		}
	}
}
