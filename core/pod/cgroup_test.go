package pod

import (
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"seedlet.dev/core/cgroup"
	"seedlet.dev/core/image"
	"seedlet.dev/core/pleg"
	"seedlet.dev/core/runtime"
	"seedlet.dev/core/userns"
	"seedlet.dev/world"
)

func list(cpu, memory string) v1.ResourceList {
	return v1.ResourceList{v1.ResourceCPU: resource.MustParse(cpu),
		v1.ResourceMemory: resource.MustParse(memory)}
}

// fresh is a pod of which nothing has been made, on a node with cgroups and ranges of ids.
func fresh(t *testing.T, change func(*v1.PodSpec)) *rig {
	s := spec(v1.RestartPolicyAlways, "", "web")
	change(&s.Spec)
	r := newRig(t, New(s, true, true, t0))
	r.env.Node.Cgroups, r.env.Node.Resolv.Known = cgroup.Layout{PerPod: true, Settled: true}, true
	r.env.Node.IDs = userns.Layout{Length: 65536, Count: 2}
	r.env.Runtime = &runtime.Runtime{AsOf: t0,
		Handlers: []runtime.Handler{{UserNamespaces: true}}}
	r.env.TakenIDs = func(string, bool) []userns.Range { return nil }
	return r
}

func (r *rig) sandbox() *runtimeapi.PodSandboxConfig {
	r.t.Helper()
	return r.want("RunPodSandbox").Body.(*runtimeapi.RunPodSandboxRequest).Config
}

func TestACgroupBeforeTheSandbox(t *testing.T) {
	r := fresh(t, func(s *v1.PodSpec) {
		s.Containers[0].Resources.Requests = list("1", "1Mi")
		s.Overhead = list("500m", "2Mi")
	}).at(time.Second)
	r.none("RunPodSandbox")
	set := r.want("SetCgroup").Body.(*world.SetCgroup)
	if *set != (world.SetCgroup{Path: "kubepods/burstable/podu", CPUShares: 1536}) {
		t.Fatalf("set %+v", set)
	}
	r.answer("SetCgroup", &world.Done{}, nil)
	linux := r.sandbox().Linux
	if linux.CgroupParent != "/kubepods/burstable/podu" || linux.Resources.CpuShares != 1024 ||
		linux.Resources.MemoryLimitInBytes != 0 || linux.Overhead.CpuQuota != 50_000 ||
		linux.Overhead.CpuShares != 512 || linux.Overhead.MemoryLimitInBytes != 2<<20 {
		t.Errorf("the sandbox is run with %v", linux)
	}
	if got := r.sandbox().Annotations[pleg.AnnotationCgroup]; got != "kubepods/burstable/podu" {
		t.Errorf("annotated with %q", got)
	}
}

func TestNoCgroupIfTheyAreOff(t *testing.T) {
	r := fresh(t, func(*v1.PodSpec) {})
	r.env.Node.Cgroups.PerPod = false
	config := r.at(time.Second).sandbox()
	if config.Linux.CgroupParent != "" || len(config.Annotations) > 0 {
		t.Errorf("a sandbox with %q, %v", config.Linux.CgroupParent, config.Annotations)
	}
}

func TestTheDriverIsAwaited(t *testing.T) {
	r := fresh(t, func(*v1.PodSpec) {})
	r.env.Node.Cgroups.Settled = false
	if r.at(time.Second); len(r.calls()) > 0 {
		t.Errorf("before the driver is known: %v", r.calls())
	}
}

// A cgroup that cannot be set is tried again, later and later, and the pod says why it waits.
func TestACgroupThatCannotBeSet(t *testing.T) {
	r := fresh(t, func(*v1.PodSpec) {}).at(time.Second)
	broken := world.Errorf(world.KindInternal, "SetCgroup", "no space")
	for i, wait := range []time.Duration{1, 2, 4} {
		r.answer("SetCgroup", nil, broken)
		r.pod.Stale = time.Time{}
		if r.at(r.now.Sub(t0)); r.wake != r.now.Add(wait*time.Second) {
			t.Fatalf("failure %d: again at %v, want after %d s", i, r.wake.Sub(r.now), wait)
		}
		r.none("RunPodSandbox")
		r.at(r.wake.Sub(t0))
	}
	waits := status(r.pod).State.Waiting
	pr := r.pod.problem("")
	if waits.Message != "unable to ensure pod container exists: no space" ||
		pr.Reason != "FailedCreatePodContainer" {
		t.Errorf("waits with %+v, %+v", waits, pr)
	}
	r.answer("SetCgroup", &world.Done{}, nil).sandbox()
}

// A sandbox that fails again and again is not tried sooner because its cgroup could be set.
func TestTheCgroupDoesNotSolveTheSandbox(t *testing.T) {
	p := facts(spec(v1.RestartPolicyAlways, "", "web"))
	p.failed("", "RunPodSandbox", world.Errorf(world.KindInternal, "", "x"), t0)
	if p.solved("", "SetCgroup"); p.problem("") == nil {
		t.Error("the sandbox is taken for made")
	}
	p.failed("", "SetCgroup", world.Errorf(world.KindInternal, "", "x"), t0)
	if p.solved("", "RunPodSandbox"); p.problem("") != nil {
		t.Error("the cgroup is still a problem when the sandbox runs")
	}
}

// The cgroup of a sandbox that runs stays where it is, whatever the spec says by now.
func TestTheCgroupOfARunningSandbox(t *testing.T) {
	r := fresh(t, func(s *v1.PodSpec) { s.Containers[0].Resources.Requests = list("1", "1Mi") })
	r.pod = running(func(c *v1.Container) { c.Resources.Requests = list("1", "1Mi") })
	r.pod.Sandboxes[0].Cgroup = "kubepods/besteffort/podu"
	set := r.at(time.Second).want("SetCgroup").Body.(*world.SetCgroup)
	if *set != (world.SetCgroup{Path: "kubepods/besteffort/podu", CPUShares: 1024}) {
		t.Errorf("set %+v", set)
	}
	r.answer("SetCgroup", &world.Done{}, nil).at(time.Minute)
	if r.none("SetCgroup"); r.pod.Op != 0 {
		t.Errorf("and then %v", r.calls())
	}
	r.pod.Sandboxes[0].Cgroup = "system.slice" // not for anybody to say
	if got := r.pod.cgroups(&r.env.Node.Cgroups); strings.Contains(strings.Join(got, " "), "sys") {
		t.Errorf("cgroups %v", got)
	}
}

// A pod goes with its cgroup, after what was in it and before the record that tells of it.
func TestTheCgroupGoesBeforeTheSandbox(t *testing.T) {
	r := fresh(t, func(*v1.PodSpec) {})
	r.pod = Orphan("u", "default", "p", t0)
	r.pod.Observed, r.pod.Record.Read = true, true
	r.pod.addSandbox(Sandbox{ID: "s", Stopped: true, Cgroup: "kubepods/podu"})
	r.pod.Stage, r.pod.Gone, r.pod.LogsGone, r.pod.DirGone = Terminated, true, true, true
	r.pod.Storage.Release = 2
	remove := r.at(time.Second).want("RemoveCgroup").Body.(*world.RemoveCgroup)
	if remove.Path != "kubepods/podu" {
		t.Errorf("removes %s", remove.Path)
	}
	r.none("RemovePodSandbox")
	r.answer("RemoveCgroup", &world.Done{}, nil).want("RemovePodSandbox")
}

// Of a pod of another agent it is not known where its cgroup is.
func TestEveryCgroupOfAStranger(t *testing.T) {
	l := &cgroup.Layout{PerPod: true, Settled: true}
	if got := Orphan("u", "default", "p", t0).cgroups(l); len(got) != 3 {
		t.Errorf("cgroups %v", got)
	}
}

func TestWhatIsNoCgroupIsRemoved(t *testing.T) {
	r := fresh(t, func(*v1.PodSpec) {})
	r.pod.Stage, r.pod.Gone, r.pod.LogsGone, r.pod.DirGone = Terminated, true, true, true
	r.pod.Storage.Release = 2
	r.at(time.Second).answer("RemoveCgroup", nil, world.Errorf(world.KindInvalid, "", "x"))
	if !r.pod.Forgotten {
		t.Errorf("kept by %v", r.pod.Problems)
	}
}

func TestQOSOfAPodAsAWhole(t *testing.T) {
	s := spec(v1.RestartPolicyAlways, "", "web")
	s.Spec.Containers[0].Resources.Requests = list("1", "1Mi")
	for _, test := range []struct {
		own  v1.ResourceRequirements
		want v1.PodQOSClass
	}{
		{v1.ResourceRequirements{}, v1.PodQOSBurstable},
		{v1.ResourceRequirements{Requests: list("1", "1Mi")}, v1.PodQOSBurstable},
		{v1.ResourceRequirements{Requests: list("2", "2Mi"), Limits: list("2", "2Mi")},
			v1.PodQOSGuaranteed},
	} {
		s.Spec.Resources = &test.own
		if got := QOS(s); got != test.want {
			t.Errorf("%v: %s, want %s", test.own, got, test.want)
		}
	}
}

// A container without a limit has the pod's, and its share of what nobody in the pod asks for.
func TestContainersOfAPodWithLimits(t *testing.T) {
	s := spec(v1.RestartPolicyAlways, "init", "web")
	s.Spec.Containers[0].Resources = v1.ResourceRequirements{
		Requests: list("1", "100Mi"), Limits: v1.ResourceList{"cpu": resource.MustParse("1500m")}}
	s.Spec.Resources = &v1.ResourceRequirements{Requests: list("2", "300Mi"),
		Limits: list("3", "1Gi")}
	node := &Node{MemoryBytes: 1000 << 20}
	r := facts(s).resources(&s.Spec.Containers[0], node)
	if r.CpuQuota != 150_000 || r.CpuShares != 1024 || r.MemoryLimitInBytes != 1<<30 ||
		r.OomScoreAdj != 800 {
		t.Errorf("%v", r)
	}
	ref := &v1.ResourceFieldSelector{Resource: "limits.memory"}
	got, err := facts(s).resourceField(ref, &s.Spec.Containers[0], node)
	if got != "1073741824" || err != nil {
		t.Errorf("its environment has %s, %v", got, err)
	}
}

func TestIDsAreAskedFor(t *testing.T) {
	r := fresh(t, func(s *v1.PodSpec) { no := false; s.HostUsers = &no })
	r.env.TakenIDs = func(string, bool) []userns.Range {
		return []userns.Range{{First: 65536,
			Length: 65536}}
	}
	r.pod.Spec.Annotations = map[string]string{pleg.AnnotationIDs: "1+2", "a": "b"}
	config := r.at(time.Second).answer("SetCgroup", &world.Done{}, nil).sandbox()
	got := userns.Mapped(config.Linux.SecurityContext.NamespaceOptions.UsernsOptions)
	if got != (userns.Range{First: 131072, Length: 65536}) ||
		config.Annotations[pleg.AnnotationIDs] != "131072+65536" || config.Annotations["a"] != "b" {
		t.Errorf("asked for %v, annotated %v", got, config.Annotations)
	}
	container := r.pod.containerSecurity(r.pod.want("web"), image.User{}, r.env.Node)
	if userns.Mapped(container.NamespaceOptions.UsernsOptions) != got {
		t.Errorf("its containers have %v", container.NamespaceOptions)
	}
	for _, m := range r.pod.idMapped([]*runtimeapi.Mount{{}}) {
		if m.UidMappings[0].HostId != got.First || m.GidMappings[0].Length != got.Length {
			t.Errorf("mounted with %v", m)
		}
	}
}

func TestWhyThereAreNoIDs(t *testing.T) {
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
		r := fresh(t, func(s *v1.PodSpec) { no := false; s.HostUsers = &no })
		r.env.Runtime.Handlers = test.handlers
		r.env.TakenIDs = func(string, bool) []userns.Range { return test.taken }
		if r.at(time.Second); len(r.calls()) > 0 || r.wake != t0.Add(2*time.Second) {
			t.Errorf("%s: asks for %v, again at %v", test.want, r.calls(), r.wake)
		}
		if got := status(r.pod).State.Waiting.Message; got != test.want {
			t.Errorf("waits with %q, want %q", got, test.want)
		}
	}
}

// Of a sandbox that was there before, the ids go on if nobody else has them.
func TestIDsOfASandboxThatWasThere(t *testing.T) {
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
		r := fresh(t, func(*v1.PodSpec) {})
		r.pod = running(func(*v1.Container) {})
		no := false
		r.pod.Spec.Spec.HostUsers, r.pod.Sandboxes[0].IDs = &no, test.has
		r.env.TakenIDs = func(string, bool) []userns.Range { return test.taken }
		if got := r.pod.idsFit(&r.pod.Sandboxes[0], r.env); got != test.fits ||
			got != (r.pod.IDs == mine) {
			t.Errorf("%s: %v with %v", test.name, got, r.pod.IDs)
		}
	}
}

func TestIDsAreHeldUntilTheSandboxIsDown(t *testing.T) {
	p := facts(spec(v1.RestartPolicyAlways, "", "web"))
	p.Sandboxes[0].IDs = userns.Range{First: 65536, Length: 65536}
	if len(p.IDsHeld()) != 1 {
		t.Error("the ids of a sandbox that runs can be given away")
	}
	p.Sandboxes[0].Ready, p.Sandboxes[0].Stopped = false, true
	if len(p.IDsHeld()) != 0 {
		t.Error("the ids of a sandbox that is down are held")
	}
}
