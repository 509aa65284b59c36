package pod

import (
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"seedlet.dev/core/cgroup"
	"seedlet.dev/core/op"
	"seedlet.dev/core/pleg"
	"seedlet.dev/core/runtime"
	"seedlet.dev/core/userns"
	"seedlet.dev/world"
)

func resources(cpu, memory string) v1.ResourceList {
	return v1.ResourceList{v1.ResourceCPU: resource.MustParse(cpu),
		v1.ResourceMemory: resource.MustParse(memory)}
}

// newPodHarness plans a new pod, of which nothing was created, on a node with cgroups and host id
// ranges.
func newPodHarness(t *testing.T, change func(*v1.PodSpec)) *harness {
	s := spec(v1.RestartPolicyAlways, "", "web")
	change(&s.Spec)
	r := newHarness(t, New(s, nil, true, true, t0))
	r.env.Node.Cgroups, r.env.Node.Resolv.Loaded = cgroup.Layout{PerPod: true, DriverKnown: true}, true
	r.env.Node.IDs = userns.Layout{First: 65536, IDsPerPod: 65536, RangesMax: 2}
	r.env.Runtime = &runtime.Runtime{AsOf: t0,
		Handlers: []runtime.Handler{{UserNamespaces: true}}}
	r.env.AllocatedIDs = func(string, bool) []userns.Range { return nil }
	return r
}

func (r *harness) sandboxConfig() *runtimeapi.PodSandboxConfig {
	r.t.Helper()
	return r.expectCall("RunPodSandbox").Body.(*runtimeapi.RunPodSandboxRequest).Config
}

func TestCgroupIsSetBeforeSandboxIsCreated(t *testing.T) {
	r := newPodHarness(t, func(s *v1.PodSpec) {
		s.Containers[0].Resources.Requests = resources("1", "1Mi")
		s.Overhead = resources("500m", "2Mi")
	}).planAt(time.Second)
	r.expectNoCall("RunPodSandbox")
	set := r.expectCall("SetCgroup").Body.(*world.SetCgroup)
	if !set.Equal(&world.SetCgroup{Path: "kubepods/burstable/podu", CPUShares: 1536}) {
		t.Fatalf("set %+v", set)
	}
	r.complete("SetCgroup", &world.Done{}, nil)
	linux := r.sandboxConfig().Linux
	if linux.CgroupParent != "/kubepods/burstable/podu" || linux.Resources.CpuShares != 1024 ||
		linux.Resources.MemoryLimitInBytes != 0 || linux.Overhead.CpuQuota != 50_000 ||
		linux.Overhead.CpuShares != 512 || linux.Overhead.MemoryLimitInBytes != 2<<20 {
		t.Errorf("the sandbox is created with %v", linux)
	}
	if got := r.sandboxConfig().Annotations[pleg.AnnotationCgroup]; got != "kubepods/burstable/podu" {
		t.Errorf("annotated with %q", got)
	}
}

func TestNoCgroupWithoutCgroupsPerPod(t *testing.T) {
	r := newPodHarness(t, func(*v1.PodSpec) {})
	r.env.Node.Cgroups.PerPod = false
	config := r.planAt(time.Second).sandboxConfig()
	if config.Linux.CgroupParent != "" || len(config.Annotations) > 0 {
		t.Errorf("a sandbox with %q, %v", config.Linux.CgroupParent, config.Annotations)
	}
}

func TestPodWaitsForCgroupDriver(t *testing.T) {
	r := newPodHarness(t, func(*v1.PodSpec) {})
	r.env.Node.Cgroups.DriverKnown = false
	if r.planAt(time.Second); len(r.openCalls()) > 0 {
		t.Errorf("before the driver is known: %v", r.openCalls())
	}
}

// A cgroup that cannot be set is retried with an increasing back-off, and the status has the
// reason.
func TestCgroupFailureBacksOff(t *testing.T) {
	r := newPodHarness(t, func(*v1.PodSpec) {}).planAt(time.Second)
	broken := world.Errorf(world.KindInternal, "SetCgroup", "no space")
	for i, wait := range []time.Duration{1, 2, 4} {
		r.complete("SetCgroup", nil, broken)
		r.pod.StaleSince = time.Time{}
		if r.planAt(r.now.Sub(t0)); r.wake != r.now.Add(wait*time.Second) {
			t.Fatalf("failure %d: retried after %v, want after %d s", i, r.wake.Sub(r.now), wait)
		}
		r.expectNoCall("RunPodSandbox")
		r.planAt(r.wake.Sub(t0))
	}
	waiting := status(r.pod).State.Waiting
	pr := r.pod.ProblemOf("")
	if waiting.Message != "unable to ensure pod container exists: no space" ||
		pr.Reason != "FailedCreatePodContainer" {
		t.Errorf("waits with %+v, %+v", waiting, pr)
	}
	r.complete("SetCgroup", &world.Done{}, nil).sandboxConfig()
}

// A sandbox whose creation keeps failing does not lose its back-off because its cgroup was set.
func TestCgroupSuccessDoesNotClearSandboxFailure(t *testing.T) {
	p := podWith(spec(v1.RestartPolicyAlways, "", "web"))
	p.noteFailure("", "RunPodSandbox", world.Errorf(world.KindInternal, "", "x"), t0)
	if p.clearProblems("", "SetCgroup"); p.ProblemOf("") == nil {
		t.Error("setting the cgroup has cleared the failure of the sandbox")
	}
	p.noteFailure("", "SetCgroup", world.Errorf(world.KindInternal, "", "x"), t0)
	if p.clearProblems("", "RunPodSandbox"); p.ProblemOf("") != nil {
		t.Error("the failure of the cgroup was not cleared by the sandbox")
	}
}

// The cgroup of a running sandbox stays where it is, whatever the current spec says.
func TestCgroupOfRunningSandboxStays(t *testing.T) {
	r := newPodHarness(t, func(s *v1.PodSpec) {
		s.Containers[0].Resources.Requests = resources("1", "1Mi")
	})
	r.pod = runningPod(func(c *v1.Container) { c.Resources.Requests = resources("1", "1Mi") })
	r.pod.Sandboxes[0].Cgroup = "kubepods/besteffort/podu"
	set := r.planAt(time.Second).expectCall("SetCgroup").Body.(*world.SetCgroup)
	if !set.Equal(&world.SetCgroup{Path: "kubepods/besteffort/podu", CPUShares: 1024}) {
		t.Errorf("set %+v", set)
	}
	r.complete("SetCgroup", &world.Done{}, nil).planAt(time.Minute)
	if r.expectNoCall("SetCgroup"); r.pod.Op != 0 {
		t.Errorf("then issued %v", r.openCalls())
	}
	r.pod.Sandboxes[0].Cgroup = "system.slice" // not a cgroup of this pod
	if got := r.pod.cgroupPaths(&r.env.Node.Cgroups); strings.Contains(strings.Join(got, " "), "sys") {
		t.Errorf("cgroups %v", got)
	}
}

// The cgroup of a removed pod is removed after the processes in it and before the sandbox, whose
// annotation has its path.
func TestCgroupIsRemovedBeforeSandbox(t *testing.T) {
	r := newPodHarness(t, func(*v1.PodSpec) {})
	r.pod = NewOrphan("u", "default", "p", t0)
	r.pod.Observed, r.pod.Record.Loaded = true, true
	r.pod.addSandbox(Sandbox{ID: "s", Stopped: true, Cgroup: "kubepods/podu"})
	r.pod.Stage, r.pod.NoLongerDesired, r.pod.LogsRemoved, r.pod.DirRemoved = Terminated, true, true,
		true
	r.pod.Storage.ReleaseSteps = 2
	remove := r.planAt(time.Second).expectCall("RemoveCgroup").Body.(*world.RemoveCgroup)
	if remove.Path != "kubepods/podu" {
		t.Errorf("removes %s", remove.Path)
	}
	r.expectNoCall("RemovePodSandbox")
	r.complete("RemoveCgroup", &world.Done{}, nil).expectCall("RemovePodSandbox")
}

// The cgroup of another agent's pod is one of several possible paths.
func TestCgroupPathsOfOrphanedPod(t *testing.T) {
	l := &cgroup.Layout{PerPod: true, DriverKnown: true}
	if got := NewOrphan("u", "default", "p", t0).cgroupPaths(l); len(got) != 3 {
		t.Errorf("cgroups %v", got)
	}
}

func TestInvalidCgroupCountsAsRemoved(t *testing.T) {
	r := newPodHarness(t, func(*v1.PodSpec) {})
	r.pod.Stage, r.pod.NoLongerDesired, r.pod.LogsRemoved, r.pod.DirRemoved = Terminated, true, true,
		true
	r.pod.Storage.ReleaseSteps = 2
	r.planAt(time.Second).complete("RemoveCgroup", nil, world.Errorf(world.KindInvalid, "", "x"))
	if !r.pod.FullyRemoved {
		t.Errorf("not fully removed: %v", r.pod.Problems)
	}
}

func TestSandboxRequestHasIDs(t *testing.T) {
	r := newPodHarness(t, func(s *v1.PodSpec) { no := false; s.HostUsers = &no })
	r.env.AllocatedIDs = func(string, bool) []userns.Range {
		return []userns.Range{{First: 65536,
			Length: 65536}}
	}
	r.pod.Spec.Annotations = map[string]string{pleg.AnnotationUserNamespace: "1+2", "a": "b"}
	r.planAt(time.Second).complete("MakeDir", &world.Done{}, nil).completeWrites()
	config := r.complete("SetCgroup", &world.Done{}, nil).sandboxConfig()
	got := userns.FromUserNamespace(config.Linux.SecurityContext.NamespaceOptions.UsernsOptions)
	if got != (userns.Range{First: 131072, Length: 65536}) ||
		config.Annotations[pleg.AnnotationUserNamespace] != "131072+65536" ||
		config.Annotations["a"] != "b" {
		t.Errorf("requested %v, annotated %v", got, config.Annotations)
	}
}

func TestIDAllocationFailures(t *testing.T) {
	for _, test := range []struct {
		want     string
		handlers []runtime.Handler
		taken    []userns.Range
	}{
		{"runtime handlers are not set", nil, nil},
		{`the handler "" is not known`, []runtime.Handler{{Name: "kata"}}, nil},
		{`RuntimeClass handler "" does not support user namespaces`,
			[]runtime.Handler{{}}, nil},
		{"can't allocate user namespace: could not find an empty slot to allocate a user namespace",
			[]runtime.Handler{{UserNamespaces: true}}, []userns.Range{{First: 1, Length: 1 << 30}}},
	} {
		r := newPodHarness(t, func(s *v1.PodSpec) { no := false; s.HostUsers = &no })
		r.env.Runtime.Handlers = test.handlers
		r.env.AllocatedIDs = func(string, bool) []userns.Range { return test.taken }
		if r.planAt(time.Second); len(r.openCalls()) > 0 || r.wake != t0.Add(2*time.Second) {
			t.Errorf("%s: issued %v, retried at %v", test.want, r.openCalls(), r.wake)
		}
		if got := status(r.pod).State.Waiting.Message; got != test.want {
			t.Errorf("waits with %q, want %q", got, test.want)
		}
	}
}

// A pod takes over the range of an existing sandbox unless the range is allocated to another pod.
func TestIDsOfExistingSandbox(t *testing.T) {
	mine, other := userns.Range{First: 65536, Length: 65536}, userns.Range{First: 1 << 17, Length: 9}
	for _, test := range []struct {
		name  string
		has   userns.Range
		taken []userns.Range
		live  bool
		fits  bool
	}{
		{"free", mine, []userns.Range{other}, true, true},
		{"taken", mine, []userns.Range{mine}, true, false},
		{"none", userns.Range{}, nil, true, false},
	} {
		r := newPodHarness(t, func(*v1.PodSpec) {})
		r.pod = runningPod(func(*v1.Container) {})
		no := false
		r.pod.Spec.Spec.HostUsers, r.pod.Sandboxes[0].IDs = &no, test.has
		r.env.AllocatedIDs = func(string, bool) []userns.Range { return test.taken }
		if got := r.pod.hasMatchingIDs(&r.pod.Sandboxes[0], r.env); got != test.fits ||
			got != (r.pod.IDs == mine) {
			t.Errorf("%s: %v with %v", test.name, got, r.pod.IDs)
		}
	}
}

// A kubelet copies the annotations of a pod to its sandbox, so a pod that was started by one may
// have any range in the agent's own annotation. The runtime's word counts.
func TestIDsThatTheRuntimeReports(t *testing.T) {
	claimed, real := userns.Range{First: 65536, Length: 65536 * 9}, userns.Range{First: 1 << 20,
		Length: 65536}
	host := &runtimeapi.UserNamespace{Mode: runtimeapi.NamespaceMode_NODE}
	for _, test := range []struct {
		name     string
		reported *runtimeapi.UserNamespace
		want     userns.Range
	}{
		{"another range", real.UserNamespace(), real},
		{"the host's", host, userns.Range{}},
		{"nothing", nil, claimed},
	} {
		r := newPodHarness(t, func(*v1.PodSpec) {})
		r.pod = runningPod(func(*v1.Container) {})
		s := &r.pod.Sandboxes[0]
		s.IDs = claimed
		r.pod.handleSandboxStatus(op.Record{Subject: s.ID}, world.Event{
			Body: &runtimeapi.PodSandboxStatusResponse{Status: &runtimeapi.PodSandboxStatus{
				Linux: &runtimeapi.LinuxPodSandboxStatus{Namespaces: &runtimeapi.Namespace{
					Options: &runtimeapi.NamespaceOption{UsernsOptions: test.reported}}}}}})
		if s.IDs != test.want {
			t.Errorf("%s: %v, want %v", test.name, s.IDs, test.want)
		}
	}
}

func TestIDsStayAllocatedUntilSandboxIsDown(t *testing.T) {
	p := podWith(spec(v1.RestartPolicyAlways, "", "web"))
	p.Sandboxes[0].IDs = userns.Range{First: 65536, Length: 65536}
	if len(p.AllocatedIDs()) != 1 {
		t.Error("the ids of a running sandbox are not allocated")
	}
	p.Sandboxes[0].Ready, p.Sandboxes[0].Stopped = false, true
	if len(p.AllocatedIDs()) != 0 {
		t.Error("the ids of a sandbox that is down are still allocated")
	}
}
