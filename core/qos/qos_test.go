package qos

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	kubeletconfig "k8s.io/kubelet/config/v1beta1"

	"seedlet.dev/core/cgroup"
	"seedlet.dev/core/config"
	"seedlet.dev/core/op"
	"seedlet.dev/world"
)

var start = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// harness is the cgroups of a node with an operations table, and no pods.
type harness struct {
	t        *testing.T
	c        Cgroups
	layout   cgroup.Layout
	table    op.Table
	effects  op.Effects
	now      time.Time
	listed   bool
	enqueued []string
	events   []string
}

func newHarness(t *testing.T) *harness {
	return &harness{t: t, now: start, listed: true,
		layout: cgroup.Layout{PerPod: true, DriverKnown: true},
		c:      Cgroups{Limits: NodeLimits{CPU: 4000, MemoryBytes: 1 << 30, PidsMax: 1000}}}
}

func (h *harness) env() *Env {
	return &Env{Node: v1.ObjectReference{Name: "n1"}, Layout: &h.layout, Listed: h.listed,
		Effects: &h.effects, Enqueue: func(uid string) { h.enqueued = append(h.enqueued, uid) }}
}

// plan plans, and returns the write that follows; nil if there is none.
func (h *harness) plan() *world.SetCgroup {
	h.effects.Reset(&h.table, h.now)
	h.c.Plan(h.env())
	for _, eff := range h.effects.List() {
		if set, isSet := eff.Body.(*world.SetCgroup); isSet {
			return set
		}
	}
	return nil
}

func (h *harness) complete(body any, err *world.Error) {
	h.effects.Reset(&h.table, h.now)
	h.table.Complete(h.c.Op)
	h.c.HandleCompletion(world.Event{Time: h.now, Body: body, Err: err}, h.env())
	for _, eff := range h.effects.List() {
		if e, isEvent := eff.Body.(*world.RecordEvent); isEvent {
			h.events = append(h.events, e.Reason+": "+e.Message)
		}
	}
}

// settle carries out writes until nothing is left to write, and returns them.
func (h *harness) settle() string {
	var writes []string
	for set := h.plan(); set != nil; set = h.plan() {
		writes = append(writes, describe(set))
		h.complete(&world.Done{}, nil)
	}
	return strings.Join(writes, "; ")
}

func describe(set *world.SetCgroup) string {
	text := fmt.Sprintf("%s cpu %d", strings.TrimPrefix(set.Path, "kubepods/"), set.CPUShares)
	if set.MemoryBytes > 0 {
		text += fmt.Sprintf(" memory %d", set.MemoryBytes)
	}
	if set.MemoryMin > 0 || set.MemoryLow > 0 {
		text += fmt.Sprintf(" min %d low %d", set.MemoryMin, set.MemoryLow)
	}
	if set.PidsMax > 0 {
		text += fmt.Sprintf(" pids %d", set.PidsMax)
	}
	for _, pages := range set.HugePages {
		text += fmt.Sprintf(" %s %d", world.HugePageSizeName(pages.SizeBytes), pages.MaxBytes)
	}
	return text
}

func (h *harness) expect(what, got, want string) {
	h.t.Helper()
	if got != want {
		h.t.Errorf("%s: %q, want %q", what, got, want)
	}
}

func burstable(cpu, memory int64) Share { return Share{v1.PodQOSBurstable, cpu, memory} }

func TestTiersExistFromTheStart(t *testing.T) {
	h := newHarness(t)
	h.c.Limits.HugePages = []world.HugePageLimit{{SizeBytes: 2 << 20, MaxBytes: 8 << 20}}
	for _, wait := range []func(bool){
		func(on bool) { h.listed = !on }, func(on bool) { h.layout.DriverKnown = !on },
		func(on bool) { h.layout.PerPod = !on }} {
		wait(true)
		h.expect("too early", h.settle(), "")
		wait(false)
	}
	h.expect("at the start", h.settle(), "kubepods cpu 4096 memory 1073741824 pids 1000 2MB 8388608; "+
		"burstable cpu 2 2MB -1; besteffort cpu 2 2MB -1")
	h.expect("after that", h.settle(), "")
}

// The share of a pod is what it requests; that of a BestEffort pod is nothing.
func TestShareOf(t *testing.T) {
	list := func(cpu, memory string) v1.ResourceList {
		return v1.ResourceList{"cpu": resource.MustParse(cpu), "memory": resource.MustParse(memory)}
	}
	pod := &v1.Pod{Spec: v1.PodSpec{Overhead: list("1m", "1"), Containers: []v1.Container{
		{Resources: v1.ResourceRequirements{Requests: list("100m", "1Ki"), Limits: list("2", "1Mi")}},
		{Resources: v1.ResourceRequirements{Requests: list("50m", "1500m")}}}}}
	for class, want := range map[v1.PodQOSClass]Share{
		v1.PodQOSBurstable:  {v1.PodQOSBurstable, 151, 1027},
		v1.PodQOSGuaranteed: {v1.PodQOSGuaranteed, 151, 1027},
		v1.PodQOSBestEffort: {Class: v1.PodQOSBestEffort},
	} {
		if got := ShareOf(pod, class); got != want {
			t.Errorf("%s: %+v, want %+v", class, got, want)
		}
	}
	pod.Spec.Containers[0].Resources.Requests = list("9P", "9E")
	want := Share{v1.PodQOSBurstable, cpuMax, memoryMax}
	if got := ShareOf(pod, v1.PodQOSBurstable); got != want {
		t.Errorf("more than any machine has: %+v, want %+v", got, want)
	}
}

// Each change of a pod leads to one write, and the sums are as if they were added up again.
func TestSumsFollowThePods(t *testing.T) {
	h := newHarness(t)
	h.settle()
	for i := range 1000 {
		h.c.Count(fmt.Sprint(i), burstable(100, 1))
	}
	h.expect("many pods at once", h.settle(), "burstable cpu 102400")
	h.c.Count("500", burstable(600, 1))
	h.expect("another request", h.settle(), "burstable cpu 102912")
	h.c.Count("500", Share{Class: v1.PodQOSGuaranteed, CPU: 600})
	h.expect("another class", h.settle(), "burstable cpu 102297")
	h.c.Count("best", Share{Class: v1.PodQOSBestEffort})
	h.expect("a BestEffort pod", h.settle(), "")
	for i := range 1000 {
		h.c.Drop(fmt.Sprint(i))
	}
	h.expect("no pods", h.settle(), "burstable cpu 2")
	if h.c.Drop("0") || h.c.Sums != (Sums{}) {
		t.Errorf("sums without pods: %+v", h.c.Sums)
	}
}

// A pod waits until its tier has a share for it, and is planned again then. A write that has failed
// holds up no pod.
func TestPodsWaitForTheirTier(t *testing.T) {
	h := newHarness(t)
	waits := func(uid string, class v1.PodQOSClass) bool { return h.c.MustWait(uid, class, h.env()) }
	h.plan()
	if !waits("b", v1.PodQOSBestEffort) || !waits("a", v1.PodQOSGuaranteed) ||
		!waits("b", v1.PodQOSBurstable) {
		t.Error("does not wait for kubepods")
	}
	h.complete(&world.Done{}, nil)
	h.expect("enqueued", strings.Join(h.enqueued, " "), "a b")
	if waits("a", v1.PodQOSGuaranteed) || !waits("b", v1.PodQOSBestEffort) {
		t.Error("with kubepods alone")
	}
	h.settle()
	h.c.Count("c", burstable(1000, 0))
	if waits("b", v1.PodQOSBestEffort) || !waits("c", v1.PodQOSBurstable) {
		t.Error("with a tier that is to grow")
	}
	h.plan()
	h.complete(nil, world.Errorf(world.KindInternal, "SetCgroup", "no space"))
	if waits("c", v1.PodQOSBurstable) {
		t.Error("waits after a failure")
	}
	h.c.Drop("c")
	h.settle()
	if waits("d", v1.PodQOSBurstable) {
		t.Error("waits for a tier that is to shrink")
	}
}

// A pod waits for a write in flight that lowers the weight of its tier below what it needs now.
func TestPodsWaitForATierThatShrinks(t *testing.T) {
	h := newHarness(t)
	waits := func() bool { return h.c.MustWait("b", v1.PodQOSBurstable, h.env()) }
	h.c.Count("a", burstable(1000, 0))
	h.settle()
	h.c.Drop("a")
	h.plan()
	if waits() {
		t.Error("waits for a tier that is to shrink")
	}
	if h.c.Count("b", burstable(500, 0)); !waits() {
		t.Error("does not wait while its tier may shrink below it")
	}
	h.complete(&world.Done{}, nil)
	if !waits() {
		t.Error("does not wait for its tier to grow again")
	}
	h.settle()
	if waits() {
		t.Error("waits for a tier that has grown")
	}
}

// A failed write is repeated with an increasing back-off, of all settings.
func TestFailedWrites(t *testing.T) {
	h := newHarness(t)
	h.settle()
	h.c.Count("a", burstable(1000, 0))
	for _, wait := range []time.Duration{1, 2, 4, 8, 16, 32, 60, 60} {
		if h.plan() == nil {
			t.Fatalf("nothing is written before the wait of %d s", wait)
		}
		h.complete(nil, world.Errorf(world.KindTimeout, "SetCgroup", "late"))
		h.effects.Reset(&h.table, h.now)
		if wake := h.c.Plan(h.env()); wake != h.now.Add(wait*time.Second) {
			t.Errorf("wakes after %v, want %d s", wake.Sub(h.now), wait)
		}
		h.now = h.now.Add(wait * time.Second)
	}
	h.c.Drop("a")
	h.expect("unknown settings are written again", h.settle(), "burstable cpu 2")
	h.c.Count("a", burstable(1000, 0))
	h.plan()
	h.complete(nil, world.Errorf(world.KindInternal, "SetCgroup", "x"))
	if f := h.c.Failures["kubepods/burstable"]; f.Count != 1 || f.RetryAt != h.now.Add(time.Second) {
		t.Errorf("after a success the back-off begins anew: %+v", f)
	}
}

// While the pods use more memory than they may, the limit is tried again and pods go on.
func TestMemoryLimitAboveUsage(t *testing.T) {
	h := newHarness(t)
	h.plan()
	h.complete(&world.CgroupAboveLimit{UsageBytes: 2 << 30}, nil)
	if h.c.MustWait("a", v1.PodQOSGuaranteed, h.env()) {
		t.Error("a pod waits")
	}
	h.expect("the others", h.settle(), "burstable cpu 2; besteffort cpu 2")
	h.now = h.now.Add(time.Second)
	h.expect("once it can be", h.settle(), "kubepods cpu 4096 memory 1073741824 pids 1000")
}

// What the pods of a class request cannot be had by the classes below it.
func TestReservedForHigherClasses(t *testing.T) {
	h := newHarness(t)
	h.c.MemoryPercent = 50
	h.expect("of an unknown amount", h.settle(), "kubepods cpu 4096 memory 1073741824 pids 1000; "+
		"burstable cpu 2; besteffort cpu 2")
	h = newHarness(t)
	h.c.MemoryPercent, h.c.Limits.UnreservedMemory = 50, 10000
	h.expect("without pods", h.settle(), "kubepods cpu 4096 memory 1073741824 pids 1000; "+
		"burstable cpu 2 memory 10000; besteffort cpu 2 memory 10000")
	h.c.Count("a", Share{Class: v1.PodQOSGuaranteed, MemoryBytes: 3051})
	h.expect("a Guaranteed pod", h.settle(),
		"besteffort cpu 2 memory 8475; burstable cpu 2 memory 8475")
	h.c.Count("b", burstable(0, 5000))
	h.expect("a Burstable pod", h.settle(), "besteffort cpu 2 memory 5975")
	for path, set := range h.c.Written {
		if !set.AboveUsage {
			t.Errorf("%s may be limited below its usage", path)
		}
	}
	h.c.Count("c", burstable(0, 50000))
	h.expect("more than there is", h.settle(), "besteffort cpu 2 memory 4096")
	h.c.Count("d", Share{Class: v1.PodQOSGuaranteed, MemoryBytes: 20000})
	h.expect("more in the highest class", h.settle(), "burstable cpu 2 memory 4096")
}

// The protected memory of a parent is that of its children: it grows before theirs, and shrinks
// after it.
func TestProtectedMemory(t *testing.T) {
	h := newHarness(t)
	h.layout.Policy = cgroup.Policy{MemoryQoS: true, ReserveMemory: true, Unified: true}
	h.c.Limits = NodeLimits{CPU: 1000}
	h.settle()
	h.c.Count("a", burstable(0, 500))
	for _, class := range []v1.PodQOSClass{v1.PodQOSGuaranteed, v1.PodQOSBestEffort} {
		if !h.c.MustWait("g", class, h.env()) {
			t.Errorf("a %s pod does not wait for kubepods to grow", class)
		}
	}
	h.plan()
	h.complete(&world.Done{}, nil)
	if !h.c.MustWait("a", v1.PodQOSBurstable, h.env()) {
		t.Error("a pod does not wait for its tier to grow")
	}
	h.c.Drop("a")
	h.settle()
	h.c.Count("a", burstable(0, 500))
	h.expect("growing", h.settle(), "kubepods cpu 1024 min 500 low 0; burstable cpu 2 min 0 low 500")
	h.c.Count("b", Share{Class: v1.PodQOSGuaranteed, MemoryBytes: 70})
	h.expect("a Guaranteed pod", h.settle(), "kubepods cpu 1024 min 570 low 0")
	h.c.Drop("a")
	h.expect("shrinking", h.settle(), "burstable cpu 2; kubepods cpu 1024 min 70 low 0")
}

// The cgroups of the system and of Kubernetes are limited to what is reserved for them.
func TestReservedCgroups(t *testing.T) {
	c := &kubeletconfig.KubeletConfiguration{
		SystemReserved: map[string]string{"cpu": "500m", "memory": "1Ki", "pid": "9"},
		KubeReserved:   map[string]string{"cpu": "1", "memory": "2Ki"},
		EnforceNodeAllocatable: []string{"pods", config.EnforceSystem,
			config.EnforceKubeCompressible},
		SystemReservedCgroup: "/system.slice", KubeReservedCgroup: "/kube-a.slice",
	}
	for systemd, want := range map[bool]string{
		false: "kube-a.slice cpu 1024; system.slice cpu 512 memory 1024 pids 9",
		true:  "kube/a cpu 1024; system cpu 512 memory 1024 pids 9",
	} {
		h := newHarness(t)
		h.settle()
		h.events, h.layout.Systemd = nil, systemd
		h.c.Settings = SettingsFromConfig(c)
		got := h.settle()
		if !strings.HasPrefix(got, "system") && !strings.HasPrefix(got, "kube") {
			t.Errorf("systemd %v: %s", systemd, got)
		}
		for _, part := range strings.Split(want, "; ") {
			if !strings.Contains(got, part) {
				t.Errorf("systemd %v: %s, want %s", systemd, got, part)
			}
		}
	}
	reserved := ReservedFromConfig(c)
	h := newHarness(t)
	h.expect("directories", fmt.Sprint(reserved[0].Directories(), reserved[1].Directories()),
		"[system.slice system.slice] [kube-a.slice kube.slice/kube-a.slice]")
}

// One cgroup may be that of the system and of Kubernetes: each of its limits is the last one that
// is given, and limits of compressible resources come last.
func TestSharedReservedCgroup(t *testing.T) {
	c := &kubeletconfig.KubeletConfiguration{
		SystemReserved:       map[string]string{"cpu": "500m", "memory": "1Ki", "pid": "9"},
		KubeReserved:         map[string]string{"cpu": "1", "memory": "2Ki"},
		SystemReservedCgroup: "/system", KubeReservedCgroup: "/system/",
	}
	for _, test := range []struct{ system, kube, want string }{
		{config.EnforceSystem, config.EnforceKube, "system cpu 1024 memory 2048 min 2048 low 0 pids 9"},
		{config.EnforceSystem, config.EnforceKubeCompressible,
			"system cpu 1024 memory 1024 min 1024 low 0 pids 9"},
		{config.EnforceSystemCompressible, config.EnforceKube,
			"system cpu 512 memory 2048 min 2048 low 0"},
	} {
		h := newHarness(t)
		h.settle()
		h.layout.Policy = cgroup.Policy{MemoryQoS: true, Unified: true}
		c.EnforceNodeAllocatable = []string{test.system, test.kube}
		h.c.Settings = SettingsFromConfig(c)
		var writes []string
		for range 3 {
			set := h.plan()
			if set == nil {
				break
			}
			writes = append(writes, describe(set))
			if !set.Existing || !set.AboveUsage {
				t.Errorf("made, or limited below its usage: %+v", set)
			}
			h.complete(&world.Done{}, nil)
		}
		h.expect(test.system+" and "+test.kube, strings.Join(writes, "; "), test.want)
	}
}

// An amount of zero is the least weight, as in a pod, and one that is not given leaves the weight.
func TestReservedWithoutCPU(t *testing.T) {
	for cpu, want := range map[string]uint64{"": 0, "0": 2, "1m": 2, "1": 1024} {
		c := &kubeletconfig.KubeletConfiguration{SystemReserved: map[string]string{"cpu": cpu},
			EnforceNodeAllocatable: []string{config.EnforceSystemCompressible}}
		if cpu == "" {
			delete(c.SystemReserved, "cpu")
		}
		reserved := ReservedFromConfig(c)
		if set := reserved[0].desired(&cgroup.Layout{}); set.CPUShares != want {
			t.Errorf("cpu %q: %d shares, want %d", cpu, set.CPUShares, want)
		}
	}
}

// Events tell once of each limit that is enforced, and of each series of failures.
func TestEnforcementEvents(t *testing.T) {
	h := newHarness(t)
	h.c.Reserved = []Reserved{{Field: "kubeReservedCgroup", Name: "/kube", Kind: "kube reserved",
		CPUShares: 2}}
	refused := world.Errorf(world.KindInternal, "SetCgroup", "no")
	for range 3 {
		for _, path := range []string{"kubepods", "burstable", "besteffort", "kube"} {
			set := h.plan()
			if h.complete(nil, refused); !strings.HasSuffix(set.Path, path) {
				t.Errorf("%s comes when %s is due", set.Path, path)
			}
		}
		h.now = h.now.Add(time.Minute)
	}
	h.settle()
	h.c.Count("a", burstable(1, 1))
	h.settle()
	h.c.Limits.MemoryBytes++
	h.settle()
	h.c.Limits.MemoryBytes++
	h.plan()
	h.complete(nil, refused)
	h.c.Limits.MemoryBytes--
	h.now = h.now.Add(time.Minute)
	h.settle()
	h.expect("events", strings.Join(h.events, "; "),
		`FailedNodeAllocatableEnforcement: Failed to update Node Allocatable Limits "kubepods": `+
			`SetCgroup: Internal: no; `+
			`FailedNodeAllocatableEnforcement: Failed to enforce Kube Reserved Cgroup Limits on `+
			`"kube": SetCgroup: Internal: no; `+
			"NodeAllocatableEnforced: Updated Node Allocatable limit across pods; "+
			"NodeAllocatableEnforced: Updated limits on kube reserved cgroup /kube; "+
			"NodeAllocatableEnforced: Updated Node Allocatable limit across pods; "+
			`FailedNodeAllocatableEnforcement: Failed to update Node Allocatable Limits "kubepods": `+
			"SetCgroup: Internal: no; "+
			"NodeAllocatableEnforced: Updated Node Allocatable limit across pods")
}

// The words of Events are those of the kubelet, of each kind of enforcement.
func TestEnforcementWords(t *testing.T) {
	c := &kubeletconfig.KubeletConfiguration{SystemReservedCgroup: "/a", KubeReservedCgroup: "/b"}
	for kinds, want := range map[[2]string]string{
		{config.EnforceSystem, config.EnforceKube}: "System Reserved, Kube Reserved",
		{config.EnforceSystemCompressible, config.EnforceKubeCompressible}: "System Reserved " +
			"Compressible, Kube Reserved Compressible",
	} {
		h := newHarness(t)
		c.EnforceNodeAllocatable = kinds[:]
		h.c.Settings = SettingsFromConfig(c)
		var got []string
		for i := range h.c.Reserved {
			set := h.c.Reserved[i].desired(&h.layout)
			_, failed := h.c.enforcement(&set, &h.layout)
			got = append(got, strings.TrimSuffix(strings.TrimPrefix(failed, "Failed to enforce "),
				" Cgroup Limits on"))
		}
		h.expect(fmt.Sprint(kinds), strings.Join(got, ", "), want)
	}
}

func TestSnapshot(t *testing.T) {
	h := newHarness(t)
	h.c.Count("a", burstable(1000, 5))
	h.plan()
	h.c.MustWait("a", v1.PodQOSBurstable, h.env())
	data, err := json.Marshal(&h.c)
	if err != nil {
		t.Fatal(err)
	}
	h.c = Cgroups{}
	if err := json.Unmarshal(data, &h.c); err != nil {
		t.Fatal(err)
	}
	h.complete(&world.Done{}, nil)
	h.expect("after the snapshot", h.settle(), "burstable cpu 1024; besteffort cpu 2")
	h.expect("enqueued", strings.Join(h.enqueued, " "), "a")
}
