package pod

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	podresources "k8s.io/component-helpers/resource"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"seedlet.dev/core/allocation"
	"seedlet.dev/core/cgroup"
	"seedlet.dev/world"
)

// resizeHarness plans a pod whose container runs with the resources that it was created with.
type resizeHarness struct {
	*harness
	usage func(id string) uint64 // of memory, in bytes
}

func newResizeHarness(t *testing.T, cpu, memory string,
	policy ...v1.ContainerResizePolicy) *resizeHarness {
	r := newPodHarness(t, func(*v1.PodSpec) {})
	r.pod = runningPod(func(c *v1.Container) {
		c.Resources = v1.ResourceRequirements{Requests: resources(cpu, memory),
			Limits: resources(cpu, memory)}
		c.ResizePolicy = policy
	})
	r.pod.Sandboxes[0].Cgroup = "kubepods/podu"
	amounts := allocation.AmountsOf(r.pod.Spec, &r.pod.Spec.Spec.Containers[0])
	r.pod.Containers[0].Resources = &amounts
	r.planAt(0).complete("SetCgroup", &world.Done{}, nil).planAt(0)
	return &resizeHarness{r, func(string) uint64 { return 30 << 20 }}
}

// addSecondContainer gives the pod another container like the first, which runs too.
func (r *resizeHarness) addSecondContainer() {
	object := r.pod.Source().DeepCopy()
	side := *object.Spec.Containers[0].DeepCopy()
	side.Name = "side"
	object.Spec.Containers = append(object.Spec.Containers, side)
	r.pod.Spec = object
	running := r.pod.Containers[0]
	running.Name, running.ID, running.Hash = "side", "c2", containerHash(&side)
	r.pod.Containers = slices.Insert(r.pod.Containers, 0, running) // sorted by name
}

// allocate has the pod ask for resources, and allocates them.
func (r *resizeHarness) allocate(cpu, memory string) {
	object := r.pod.Source().DeepCopy()
	object.Generation++
	object.Spec.Containers[0].Resources = v1.ResourceRequirements{
		Requests: resources(cpu, memory), Limits: resources(cpu, memory)}
	r.pod.SetDesired(object, nil, r.now)
	if r.pod.Resize.Desired != nil {
		r.pod.Grant()
		r.pod.ApplyGrant(r.env)
	}
}

// inspected notes that the status of all containers is known.
func (r *resizeHarness) inspected() {
	for i := range r.pod.Containers {
		r.pod.Containers[i].Inspected = Running
	}
}

// next plans the pod and completes its next operation, of which it returns a description.
func (r *resizeHarness) next(err *world.Error) string {
	r.planAt(r.now.Sub(t0))
	for _, call := range r.openCalls() {
		switch m := r.findCall(call).Body.(type) {
		case *runtimeapi.UpdatePodSandboxResourcesRequest:
			text := fmt.Sprintf("announce %d", m.Resources.MemoryLimitInBytes>>20)
			r.complete(call, &runtimeapi.UpdatePodSandboxResourcesResponse{}, err)
			return text
		case *world.SetCgroup:
			r.complete(call, &world.Done{}, err)
			return fmt.Sprintf("pod %d", m.MemoryBytes>>20)
		case *runtimeapi.ContainerStatsRequest:
			r.complete(call, &runtimeapi.ContainerStatsResponse{Stats: &runtimeapi.ContainerStats{
				Memory: &runtimeapi.MemoryUsage{
					UsageBytes: &runtimeapi.UInt64Value{Value: r.usage(m.ContainerId)}}}}, err)
			return "measure"
		case *runtimeapi.UpdateContainerResourcesRequest:
			r.complete(call, &runtimeapi.UpdateContainerResourcesResponse{}, err)
			return fmt.Sprintf("container %d", m.Linux.MemoryLimitInBytes>>20)
		}
	}
	return ""
}

func (r *resizeHarness) expect(want string) {
	r.t.Helper()
	var got []string
	for step := r.next(nil); step != ""; step = r.next(nil) {
		got = append(got, step)
	}
	if text := strings.Join(got, ", "); text != want {
		r.t.Errorf("%s\nwant %s", text, want)
	}
}

// The cgroup of a pod grows before its container and shrinks after it.
func TestOrderOfResize(t *testing.T) {
	r := newResizeHarness(t, "1", "100Mi")
	r.expect("")
	r.allocate("1", "200Mi")
	r.expect("announce 200, pod 200, container 200")
	r.allocate("1", "50Mi")
	r.expect("measure, container 50, announce 50, pod 50")
	r.allocate("2", "50Mi")
	r.expect("announce 50, pod 50, container 50")
	completed := func(cpu, memory string, generation int) string {
		list := fmt.Sprintf(`{"cpu":%q,"memory":%q}`, cpu, memory)
		return fmt.Sprintf(`ResizeCompleted: Pod resize completed: {"containers":[{"name":"web",`+
			`"resources":{"limits":%s,"requests":%s}}],"generation":%d}`, list, list, generation)
	}
	r.expectEvents(completed("1", "200Mi", 1), completed("1", "50Mi", 2), completed("2", "50Mi", 3))
}

// An update of unknown outcome may take effect late: the pod's cgroup bounds it until the runtime
// has taken another one.
func TestResizeOfUnknownOutcome(t *testing.T) {
	r := newResizeHarness(t, "1", "100Mi")
	r.allocate("1", "300Mi")
	for _, want := range []string{"announce 300", "pod 300"} {
		if got := r.next(nil); got != want {
			t.Fatalf("%s, want %s", got, want)
		}
	}
	if r.next(world.Errorf(world.KindTimeout, "UpdateContainerResources", "late")) != "container 300" {
		t.Fatal("no update")
	}
	if s := r.pod.Resize.InProgress; s == nil || s.Reason != v1.PodReasonError {
		t.Errorf("in progress: %+v", s)
	}
	r.allocate("1", "100Mi")
	r.expect("measure, container 100, announce 100, pod 100")
}

// A limit is not set below what the container uses: the condition says so, until it uses less.
func TestResizeBelowUsage(t *testing.T) {
	r := newResizeHarness(t, "1", "100Mi")
	r.allocate("1", "20Mi")
	r.expect("measure")
	s := r.pod.Resize.InProgress
	if s == nil || s.Reason != "Error" || s.Message != "cannot decrease memory limits: attempting to "+
		`set container "web" memory limit (20971520) below current usage (31457280)` {
		t.Fatalf("in progress: %+v", s)
	}
	if want := r.now.Add(failureBackoffInitial); !r.wake.Equal(want) {
		t.Errorf("tried again at %v, want %v", r.wake, want)
	}
	r.now = r.now.Add(time.Minute)
	r.expect("measure")
	r.allocate("1", "40Mi")
	r.expect("measure, container 40, announce 40, pod 40")
	if r.pod.Resize.InProgress != nil {
		t.Errorf("in the end %+v", r.pod.Resize)
	}
}

// A pod whose cgroup keeps its limit because of what the pod uses has that limit: containers start
// in it, also after a restart of the agent. The lower limit is tried again.
func TestPodLimitBelowUsage(t *testing.T) {
	for _, limit := range []int64{200 << 20, 0} {
		r := newResizeHarness(t, "1", "100Mi")
		r.pod.Cgroup = Cgroup{}
		set := r.planAt(0).expectCall("SetCgroup").Body.(*world.SetCgroup)
		if !set.NotBelowUsage || set.AboveUsage {
			t.Errorf("set is %+v", set)
		}
		above := &world.CgroupAboveLimit{UsageBytes: 150 << 20, LimitBytes: limit}
		r.complete("SetCgroup", above, nil)
		s, applied := r.pod.Resize.InProgress, r.pod.Cgroup.Applied
		if s == nil || s.Message != "cannot decrease memory limits: attempting to set pod memory limit "+
			"(104857600) below current usage (157286400)" || applied == nil ||
			applied.Cgroup.MemoryBytes != limit || !r.pod.hasRoom(r.pod.CurrentSandbox(), r.env) {
			t.Fatalf("in progress: %+v, applied %+v", s, applied)
		}
		r.pod.Containers = nil
		r.planAt(0).complete("MakeDir", &world.Done{}, nil) // of the logs of a new container
		r.complete("MakeDir", nil, world.Errorf(world.KindInternal, "MakeDir", "no"))
		r.pod.StaleSince = time.Time{}
		r.planAt(time.Minute)
		if r.findCall("UpdatePodSandboxResources") != nil {
			r.complete("UpdatePodSandboxResources", &runtimeapi.UpdatePodSandboxResourcesResponse{}, nil)
		}
		r.complete("SetCgroup", &world.Done{}, nil)
		if r.pod.Resize.InProgress != nil || r.pod.Cgroup.Applied.Cgroup.MemoryBytes != 100<<20 {
			t.Errorf("in the end %+v, %+v", r.pod.Resize, r.pod.Cgroup.Applied)
		}
	}
}

// The volumes of running containers are kept up to date while the pod's cgroup cannot be set,
// however long that is. That is tried all the same, and new containers wait for it.
func TestVolumesWhileCgroupCannotBeSet(t *testing.T) {
	for _, refused := range []string{"UpdatePodSandboxResources", "SetCgroup"} {
		r := newResizeHarness(t, "1", "100Mi")
		r.pod.Spec = r.pod.Spec.DeepCopy()
		r.pod.Spec.Spec.Volumes = withVolume(v1.VolumeMount{}).Spec.Spec.Volumes
		side := *r.pod.Spec.Spec.Containers[0].DeepCopy()
		side.Name = "side"
		r.pod.Spec.Spec.Containers = append(r.pod.Spec.Spec.Containers, side)
		r.pod.Cgroup, r.pod.Resize.InProgress = Cgroup{}, &ResizeState{}
		tries := 0
		for second := range 60 {
			r.planAt(time.Duration(second) * time.Second)
			for _, call := range r.openCalls() {
				switch {
				case call == refused:
					tries++
					r.complete(call, nil, world.Errorf(world.KindInternal, call, "no"))
					r.pod.StaleSince = time.Time{}
				case call == "StatPath":
					r.complete(call, nil, world.Errorf(world.KindNotFound, call, "none"))
				case call == "UpdatePodSandboxResources":
					r.complete(call, &runtimeapi.UpdatePodSandboxResourcesResponse{}, nil)
				default:
					r.complete(call, &world.Done{}, nil)
				}
			}
			r.expectNoCall("CreateContainer")
		}
		if ready := r.pod.Storage.Volumes.Ready(&r.pod.Spec.Spec); !ready || tries < 5 {
			t.Errorf("%s: tried %d times, the volume is ready: %t", refused, tries, ready)
		}
	}
}

// A container restarts for the resources that demand it, and no other.
func TestResizeWithRestart(t *testing.T) {
	r := newResizeHarness(t, "1", "100Mi", v1.ContainerResizePolicy{
		ResourceName: v1.ResourceMemory, RestartPolicy: v1.RestartContainer})
	r.allocate("2", "100Mi")
	r.expect("announce 100, pod 100, container 100")
	r.allocate("2", "200Mi")
	r.expect("announce 200, pod 200")
	r.expectCall("StopContainer")
	if !strings.Contains(r.events[len(r.events)-1].Message, "Container web resize requires restart") {
		t.Errorf("the event says %q", r.events[len(r.events)-1].Message)
	}
}

// A runtime that does not know the announcement is no obstacle; one that refuses it is.
func TestRefusedAnnouncement(t *testing.T) {
	for _, refused := range []*world.Error{
		world.Errorf(world.KindUnimplemented, "UpdatePodSandboxResources", "unknown method"),
		world.Errorf(world.KindInternal, "UpdatePodSandboxResources", "not implemented"),
	} {
		r := newResizeHarness(t, "1", "100Mi")
		r.allocate("1", "200Mi")
		r.next(refused)
		r.expect("pod 200, container 200")
	}
	for _, refused := range []*world.Error{
		world.Errorf(world.KindInternal, "UpdatePodSandboxResources", "no"),
		world.Errorf(world.KindInvalid, "UpdatePodSandboxResources", "cannot plug that much"),
	} {
		r := newResizeHarness(t, "1", "100Mi")
		r.allocate("1", "200Mi")
		r.next(refused)
		r.expect("")
		r.now = r.now.Add(time.Minute)
		r.expect("announce 200, pod 200, container 200")
	}
}

// A pod whose cgroup cannot grow yet gets no container that is larger than it.
func TestNoContainerAboveItsPod(t *testing.T) {
	r := newResizeHarness(t, "1", "100Mi")
	r.allocate("1", "200Mi")
	r.next(world.Errorf(world.KindInternal, "UpdatePodSandboxResources", "no"))
	r.pod.Containers = nil
	r.planAt(0)
	r.expectNoCall("CreateContainer")
	r.now = r.now.Add(time.Minute)
	r.expect("announce 200, pod 200")
}

// A container that was created before a resize and not started is created again.
func TestResizeOfCreatedContainer(t *testing.T) {
	r := newResizeHarness(t, "1", "100Mi")
	r.pod.Containers[0].State = Created
	r.allocate("1", "50Mi")
	r.expect("announce 50, pod 50")
	r.expectCall("RemoveContainer")
}

// After a restart of the agent the records say what a container has. Without records the runtime's
// status does.
func TestAmountsAfterRestart(t *testing.T) {
	old := allocation.Amounts{CPURequest: 1000, CPULimit: 1000, MemoryRequest: 50 << 20,
		MemoryLimit: 50 << 20}
	for name, test := range map[string]struct {
		recorded, created *allocation.Amounts
		reported          *runtimeapi.LinuxContainerResources
		want              string
	}{
		"recorded":            {&old, nil, nil, "announce 100, pod 100, container 100"},
		"created and changed": {&old, &allocation.Amounts{}, nil, "announce 100, pod 100, container 100"},
		"created":             {nil, &old, nil, "announce 100, pod 100, container 100"},
		"reported": {nil, nil, &runtimeapi.LinuxContainerResources{CpuShares: 1024, CpuPeriod: 100_000,
			CpuQuota: 100_000, MemoryLimitInBytes: 50 << 20},
			"announce 100, pod 100, measure, container 100"},
		"reported as it is to be": {nil, nil, &runtimeapi.LinuxContainerResources{CpuShares: 1024,
			CpuPeriod: 100_000, CpuQuota: 100_000, MemoryLimitInBytes: 100 << 20}, "pod 100"},
		"nothing": {nil, nil, nil, "pod 100"},
	} {
		r := newResizeHarness(t, "1", "100Mi")
		c := &r.pod.Containers[0]
		r.pod.Cgroup, c.Actuation, c.Inspected = Cgroup{}, Actuation{}, Running
		c.Resources, c.Actuation.Reported = test.created, reportedAmounts(test.reported)
		r.env.RecordedAmounts = func(string, string) (allocation.Amounts, bool) {
			if test.recorded == nil {
				return allocation.Amounts{}, false
			}
			return *test.recorded, true
		}
		t.Log(name)
		r.expect(test.want)
	}
}

// A container that restarts for another limit has the one that it was created with, whatever was
// recorded: it is stopped.
func TestRestartDemandedBeforeRestartOfAgent(t *testing.T) {
	r := newResizeHarness(t, "1", "100Mi", v1.ContainerResizePolicy{ResourceName: v1.ResourceMemory,
		RestartPolicy: v1.RestartContainer})
	c := &r.pod.Containers[0]
	recorded := *c.Resources
	c.Resources = &allocation.Amounts{CPURequest: 1000, CPULimit: 1000, MemoryRequest: 50 << 20,
		MemoryLimit: 50 << 20}
	r.takeOver(recorded)
	r.expect("announce 100, pod 100")
	r.expectCall("StopContainer")
}

// takeOver has another agent find the pod, with the amounts of its container that the one before
// has recorded.
func (r *resizeHarness) takeOver(recorded allocation.Amounts) {
	c := &r.pod.Containers[0]
	r.pod.Cgroup, c.Actuation, c.Inspected = Cgroup{}, Actuation{}, Running
	r.env.RecordedAmounts = func(string, string) (allocation.Amounts, bool) { return recorded, true }
}

// takeOverResized has another agent take over a pod that may have been resized, and returns its
// container.
func takeOverResized(t *testing.T) (*resizeHarness, *Container) {
	r := newResizeHarness(t, "1", "100Mi")
	r.pod.Spec = r.pod.Spec.DeepCopy()
	r.pod.Spec.Generation = 2
	c := &r.pod.Containers[0]
	r.takeOver(*c.Resources)
	r.expect("pod 100")
	return r, c
}

// In a pod that may have been resized, the runtime is asked once more when no update of an earlier
// agent can be in flight any more. What has taken effect late is put right.
func TestLateUpdateOfEarlierAgent(t *testing.T) {
	r, c := takeOverResized(t)
	if want := r.now.Add(r.env.Node.RuntimeTimeout); !c.Actuation.VerifyAt.Equal(want) {
		t.Fatalf("asked at %v, want %v", c.Actuation.VerifyAt, want)
	}
	r.now = r.now.Add(r.env.Node.RuntimeTimeout)
	r.planAt(r.now.Sub(t0)).expectCall("ContainerStatus")
	c.Inspected, c.Actuation.Reported = Running, reportedAmounts(&runtimeapi.LinuxContainerResources{
		CpuShares: 1024, CpuPeriod: 100_000, CpuQuota: 100_000, MemoryLimitInBytes: 200 << 20})
	r.expect("announce 200, pod 200, measure, container 100, announce 100, pod 100")
}

// A runtime that reports other resources than a container was given, as one with NRI plugins does,
// is corrected once. Without an update of unknown outcome it is not asked again.
func TestVerificationEnds(t *testing.T) {
	r, c := takeOverResized(t)
	r.now = r.now.Add(r.env.Node.RuntimeTimeout)
	r.planAt(r.now.Sub(t0)).expectCall("ContainerStatus")
	c.Inspected, c.Actuation.Reported = Running, reportedAmounts(&runtimeapi.LinuxContainerResources{
		CpuShares: 1024, CpuPeriod: 100_000, CpuQuota: 100_000, MemoryLimitInBytes: 200 << 20})
	r.expect("announce 200, pod 200, measure, container 100, announce 100, pod 100")
	if !c.Actuation.VerifyAt.IsZero() || c.Actuation.Verifying {
		t.Errorf("it is asked again: %+v", c.Actuation)
	}
}

// While a container is being given other resources, what the runtime reports of it is no late
// update.
func TestVerificationWaitsForUpdate(t *testing.T) {
	r := newResizeHarness(t, "1", "100Mi")
	r.allocate("1", "300Mi")
	a := &r.pod.Containers[0].Actuation
	a.Verifying, a.Reported = true, reportedAmounts(&runtimeapi.LinuxContainerResources{
		CpuShares: 1024, CpuPeriod: 100_000, CpuQuota: 100_000, MemoryLimitInBytes: 100 << 20})
	r.pod.Containers[0].Inspected = Running
	r.planAt(0)
	if !a.Verifying || a.Attempted != nil {
		t.Errorf("verified before the update: %+v", a)
	}
}

// What a source asks for waits beside what is allocated, also if other fields change meanwhile.
func TestDesiredAndAllocated(t *testing.T) {
	r := newResizeHarness(t, "1", "100Mi")
	object := r.pod.Spec.DeepCopy()
	object.Generation = 2
	object.Spec.Containers[0].Resources.Requests = resources("9", "100Mi")
	r.pod.SetDesired(object, nil, t0)
	r.pod.DenyResize("Deferred", "no room", r.env)
	labelled := object.DeepCopy()
	labelled.Labels, labelled.Generation = map[string]string{"a": "b"}, 3
	r.pod.UpdateObject(labelled, t0)
	p := r.pod
	if p.Spec.Spec.Containers[0].Resources.Requests.Cpu().String() != "1" || p.Source() != labelled ||
		p.Spec.Labels["a"] != "b" || p.Resize.Pending == nil || !p.IncreasesRequests() {
		t.Errorf("allocated %+v, %+v", p.Spec, p.Resize)
	}
	back := labelled.DeepCopy()
	back.Generation, back.Spec.Containers[0].Resources = 4, p.Spec.Spec.Containers[0].Resources
	if p.UpdateObject(back, t0); p.Resize.Desired != nil || p.Resize.Pending != nil || p.Spec != back {
		t.Errorf("after the source has taken it back: %+v", p.Resize)
	}
}

// An API server that counts no generations may change resources all the same.
func TestResizeWithoutGeneration(t *testing.T) {
	r := newResizeHarness(t, "1", "100Mi")
	object := r.pod.Spec.DeepCopy()
	object.Spec.Containers[0].Resources.Requests = resources("9", "100Mi")
	if r.pod.SetDesired(object, nil, t0); r.pod.Resize.Desired != object {
		t.Errorf("allocated at once: %+v", r.pod.Spec.Spec.Containers[0].Resources)
	}
}

// A cgroup of an earlier sandbox has no room for a container of this one.
func TestRoomOfEarlierSandbox(t *testing.T) {
	r := newResizeHarness(t, "1", "100Mi")
	sandbox := r.pod.CurrentSandbox()
	if !r.pod.hasRoom(sandbox, r.env) {
		t.Fatal("at rest there is no room")
	}
	if sandbox.Attempt++; r.pod.hasRoom(sandbox, r.env) {
		t.Error("the cgroup of an earlier sandbox has room")
	}
}

// An init container that runs gets other resources as well.
func TestResizeOfInitContainer(t *testing.T) {
	r := newResizeHarness(t, "1", "100Mi")
	spec := r.pod.Spec.DeepCopy()
	init := *spec.Spec.Containers[0].DeepCopy()
	init.Name = "setup"
	spec.Spec.InitContainers = []v1.Container{init}
	r.pod.Spec, r.pod.Containers[0].Name = spec, "setup"
	r.pod.Containers[0].Hash = containerHash(&init)
	object := spec.DeepCopy()
	object.Generation++
	object.Spec.InitContainers[0].Resources = v1.ResourceRequirements{
		Requests: resources("1", "200Mi"), Limits: resources("1", "200Mi")}
	r.pod.SetDesired(object, nil, r.now)
	if r.pod.Resize.Desired == nil {
		t.Fatal("no resize")
	}
	r.pod.Grant()
	r.pod.ApplyGrant(r.env)
	r.expect("announce 200, pod 200, container 200")
}

// The resources of a pod as a whole bound those of its containers at every step. A container
// without a limit has that of the pod.
func TestResizeOfPodLevelResources(t *testing.T) {
	r := newResizeHarness(t, "1", "100Mi")
	whole := func(cpu, memory string) {
		object := r.pod.Source().DeepCopy()
		object.Generation++
		object.Spec.Containers[0].Resources = v1.ResourceRequirements{}
		object.Spec.Resources = &v1.ResourceRequirements{
			Requests: resources(cpu, memory), Limits: resources(cpu, memory)}
		r.pod.SetDesired(object, nil, r.now)
		r.pod.Grant()
		r.pod.ApplyGrant(r.env)
	}
	whole("1", "100Mi")
	r.expect("container 100")
	whole("1", "200Mi")
	r.expect("announce 200, pod 200, container 200")
	whole("500m", "50Mi")
	if got := r.pod.desiredShare(); got.CPU != 1000 || got.MemoryBytes != 200<<20 {
		t.Errorf("the cgroups above it make room for %+v before it shrinks", got)
	}
	r.expect("measure, container 50, announce 50, pod 50")
	if got := r.pod.desiredShare(); got.CPU != 500 || got.MemoryBytes != 50<<20 {
		t.Errorf("then they make room for %+v", got)
	}
}

// An ephemeral container has the limits of its pod as a whole. It shrinks before the pod: cgroup v1
// refuses a pod less CPU than a container in it has.
func TestResizeWithEphemeralContainer(t *testing.T) {
	r := newResizeHarness(t, "1", "50Mi")
	r.pod.Spec = r.pod.Spec.DeepCopy()
	r.pod.Spec.Spec.Resources = &v1.ResourceRequirements{
		Requests: resources("1", "200Mi"), Limits: resources("2", "200Mi")}
	debug := v1.EphemeralContainer{EphemeralContainerCommon: v1.EphemeralContainerCommon{
		Name: "debug", Image: "debug"}}
	r.pod.Spec.Spec.EphemeralContainers = []v1.EphemeralContainer{debug}
	run, container := r.pod.Containers[0], r.pod.specContainer("debug")
	run.ID, run.Name, run.Hash = "c-debug", "debug", containerHash(container)
	amounts := allocation.AmountsOf(r.pod.Spec, container)
	run.Resources, run.Actuation = &amounts, Actuation{Last: &amounts, Recalled: true}
	r.pod.Containers = append([]Container{run}, r.pod.Containers...) // by name
	r.expect("announce 200, pod 200")
	object := r.pod.Source().DeepCopy()
	object.Generation++
	object.Spec.Resources = &v1.ResourceRequirements{
		Requests: resources("1", "100Mi"), Limits: resources("1", "100Mi")}
	r.pod.SetDesired(object, nil, r.now)
	r.pod.Grant()
	r.pod.ApplyGrant(r.env)
	r.expect("measure, container 100, announce 100, pod 100")
	if amounts, known := r.pod.ActuatedAmounts(); !known || len(amounts) != 1 {
		t.Errorf("recorded are %v", amounts)
	}
}

// After a restart of the agent, a pod has at least the weight of a container whose smaller one was
// not set yet.
func TestWeightOfPodAfterRestart(t *testing.T) {
	r := newResizeHarness(t, "2", "100Mi")
	r.pod.Spec.Spec.Resources = &v1.ResourceRequirements{
		Requests: resources("2", "100Mi"), Limits: resources("2", "100Mi")}
	r.allocate("1", "100Mi")
	object := r.pod.Source().DeepCopy()
	object.Generation++
	object.Spec.Resources = &v1.ResourceRequirements{
		Requests: resources("1", "100Mi"), Limits: resources("1", "100Mi")}
	r.pod.SetDesired(object, nil, r.now)
	r.pod.Grant()
	r.pod.ApplyGrant(r.env)
	r.pod.Cgroup = Cgroup{}
	set := r.pod.cgroupLimits("kubepods/podu", &r.env.Node.Cgroups)
	if set.CPUShares != 2048 || set.CPUQuota != 200_000 {
		t.Errorf("%+v", set)
	}
}

// Which of two resizes is first depends on what the pods request in all.
func TestIncreasesRequests(t *testing.T) {
	r := newResizeHarness(t, "1", "100Mi")
	spec := r.pod.Spec.DeepCopy()
	spec.Spec.Containers = append(spec.Spec.Containers, *spec.Spec.Containers[0].DeepCopy())
	spec.Spec.Containers[1].Name = "side"
	for _, c := range []struct {
		web, side string
		want      bool
	}{{"1500m", "500m", false}, {"1500m", "600m", true}, {"900m", "1", false}} {
		r.pod.Spec, r.pod.Resize = spec, Resize{}
		object := spec.DeepCopy()
		object.Generation++
		object.Spec.Containers[0].Resources.Requests = resources(c.web, "100Mi")
		object.Spec.Containers[1].Resources.Requests = resources(c.side, "100Mi")
		r.pod.SetDesired(object, nil, r.now)
		if got := r.pod.IncreasesRequests(); got != c.want {
			t.Errorf("%s and %s: %v", c.web, c.side, got)
		}
	}
}

// An Event tells of a reason and of a resize once; the message of the condition is that of now.
func TestEventsOfWaitingResize(t *testing.T) {
	r := newResizeHarness(t, "1", "100Mi")
	ask := func(cpu string) {
		object := r.pod.Source().DeepCopy()
		object.Generation++
		object.Spec.Containers[0].Resources.Requests = resources(cpu, "100Mi")
		r.pod.SetDesired(object, nil, r.now)
	}
	events := func() string {
		var reasons []string
		r.collect()
		r.planAt(0)
		for _, e := range r.events {
			reasons = append(reasons, e.Reason)
		}
		r.events = nil
		return strings.Join(reasons, " ")
	}
	ask("8")
	r.pod.DenyResize("Deferred", "used: 1", r.env)
	changed := r.pod.DenyResize("Deferred", "used: 2", r.env)
	if got := events(); got != "ResizeDeferred" || !changed ||
		r.pod.Resize.Pending.Message != "used: 2" {
		t.Errorf("%s, %+v", got, r.pod.Resize.Pending)
	}
	ask("9")
	r.pod.DenyResize("Deferred", "used: 2", r.env)
	r.pod.DenyResize("Infeasible", "never", r.env)
	if got := events(); got != "ResizeDeferred ResizeInfeasible" {
		t.Error(got)
	}
}

// Another agent takes over what the status says: an Event is not recorded again, and the end of a
// resize is.
func TestResizeOfEarlierAgent(t *testing.T) {
	condition := func(t v1.PodConditionType, reason, message string) v1.PodCondition {
		return v1.PodCondition{Type: t, Status: v1.ConditionTrue, Reason: reason, Message: message,
			ObservedGeneration: 7}
	}
	r := newResizeHarness(t, "1", "100Mi")
	held := allocation.Of(r.pod.Spec)
	object := r.pod.Spec.DeepCopy()
	object.Generation = 8
	object.Spec.Containers[0].Resources.Requests = resources("9", "100Mi")
	object.Status.Conditions = []v1.PodCondition{
		condition(v1.PodResizePending, "Deferred", "no room"),
		condition(v1.PodResizeInProgress, "Error", "broken")}
	r.pod.Spec = nil
	r.pod.SetDesired(object, &held, r.now)
	if s := r.pod.Resize.Pending; s == nil || s.Generation != 7 || s.Message != "no room" {
		t.Errorf("pending %+v", s)
	}
	r.expect("")
	r.expectEvents(`ResizeCompleted: Pod resize completed: {"containers":[{"name":"web","resources":` +
		`{"limits":{"cpu":"1","memory":"100Mi"},"requests":{"cpu":"1","memory":"100Mi"}}}],` +
		`"generation":7}`)
	r.pod.Spec, r.pod.Resize = nil, Resize{}
	object.Spec.Containers[0].Resources = held.Containers["web"]
	object.Status.Conditions = object.Status.Conditions[:1]
	if r.pod.SetDesired(object, &held, r.now); r.pod.Resize.Pending != nil {
		t.Error("a resize that was taken back while no agent ran is still pending")
	}
}

// Memory is not resized in place where that changes the swap of a container.
func TestResizesSwap(t *testing.T) {
	for _, c := range []struct {
		name            string
		policy          cgroup.Policy
		request, limit  string
		toRequest, toMi string
		want            bool
	}{
		{"swap", cgroup.Policy{SwapLimits: true, Unified: true, LimitedSwap: true},
			"50Mi", "100Mi", "60Mi", "100Mi", true},
		{"cgroup v1", cgroup.Policy{SwapLimits: true, LimitedSwap: true},
			"50Mi", "100Mi", "60Mi", "100Mi", false},
		{"no swap", cgroup.Policy{SwapLimits: true, Unified: true},
			"50Mi", "100Mi", "60Mi", "100Mi", false},
		{"Guaranteed", cgroup.Policy{SwapLimits: true, Unified: true, LimitedSwap: true},
			"100Mi", "100Mi", "110Mi", "110Mi", false},
		{"only the limit", cgroup.Policy{SwapLimits: true, Unified: true, LimitedSwap: true},
			"50Mi", "100Mi", "50Mi", "110Mi", false},
	} {
		r := newResizeHarness(t, "1", c.limit)
		r.env.Node.Cgroups.Policy = c.policy
		r.pod.Spec.Spec.Containers[0].Resources.Requests = resources("1", c.request)
		object := r.pod.Spec.DeepCopy()
		object.Generation++
		object.Spec.Containers[0].Resources = v1.ResourceRequirements{
			Requests: resources("1", c.toRequest), Limits: resources("1", c.toMi)}
		r.pod.SetDesired(object, nil, r.now)
		if got := r.pod.ResizesSwap(r.env); got != c.want {
			t.Errorf("%s: %v", c.name, got)
		}
	}
}

// The cgroups above that of a pod make room for what it may have: by a write in flight, or by one
// whose outcome is not known.
func TestShareOfUnknownCgroup(t *testing.T) {
	r := newResizeHarness(t, "1", "100Mi")
	expect := func(when string, cpu int64) {
		t.Helper()
		if got := r.pod.Share(&r.env.Node.Cgroups); got.CPU != cpu {
			t.Errorf("%s: %+v, want %d", when, got, cpu)
		}
	}
	expect("at rest", 1000)
	r.allocate("2", "100Mi")
	if got := r.next(nil); got != "announce 100" {
		t.Fatal(got)
	}
	r.planAt(0).expectCall("SetCgroup")
	r.allocate("500m", "100Mi")
	expect("in flight", 2000)
	r.complete("SetCgroup", nil, world.Errorf(world.KindTimeout, "SetCgroup", "late"))
	expect("of unknown outcome", 2000)
	r.pod.StaleSince, r.now = time.Time{}, r.now.Add(time.Minute)
	r.expect("announce 100, pod 100, container 100, announce 100, pod 100")
	expect("settled", 500)
}

// A cgroup that was never set, because each write has failed, counts until it is removed.
func TestShareOfCgroupNeverSet(t *testing.T) {
	r := newPodHarness(t, func(s *v1.PodSpec) {
		s.Containers[0].Resources.Requests = resources("1", "1Mi")
	}).planAt(time.Second)
	r.complete("SetCgroup", nil, world.Errorf(world.KindTimeout, "SetCgroup", "late"))
	r.pod.NoLongerDesired, r.pod.Stage = true, Terminated
	if !r.pod.HasShare() {
		t.Error("before it is removed it counts for nothing")
	}
	r.pod.Cgroup.Possible = nil
	if r.pod.HasShare() {
		t.Error("after it is removed it still counts")
	}
}

// A limit that is just what the container uses is too low.
func TestResizeToUsage(t *testing.T) {
	r := newResizeHarness(t, "1", "100Mi")
	r.allocate("1", "30Mi")
	r.expect("measure")
	if s := r.pod.Resize.InProgress; s == nil || s.Reason != v1.PodReasonError {
		t.Errorf("in progress: %+v", s)
	}
	r = newResizeHarness(t, "1", "100Mi")
	r.allocate("1", "31Mi")
	r.expect("measure, container 31, announce 31, pod 31")
}

// The condition of a resize that fails has the generation that asked for the resize, whatever has
// changed since.
func TestGenerationOfFailedResize(t *testing.T) {
	r := newResizeHarness(t, "1", "100Mi")
	r.allocate("1", "20Mi")
	asked := r.pod.Spec.Generation
	labelled := r.pod.Spec.DeepCopy()
	labelled.Labels, labelled.Generation = map[string]string{"a": "b"}, asked+1
	r.pod.UpdateObject(labelled, r.now)
	r.expect("measure")
	if s := r.pod.Resize.InProgress; s == nil || s.Generation != asked || s.Message == "" {
		t.Errorf("in progress: %+v, want generation %d", s, asked)
	}
}

// Of two containers the one that gets less is first. After each update the status of the container
// is read again.
func TestShrinkingContainersFirst(t *testing.T) {
	r := newResizeHarness(t, "1", "100Mi")
	r.addSecondContainer()
	object := r.pod.Source().DeepCopy()
	r.expect("announce 200, pod 200")
	object.Generation++
	for i, memory := range []string{"120Mi", "80Mi"} {
		object.Spec.Containers[i].Resources = v1.ResourceRequirements{
			Requests: resources("1", memory), Limits: resources("1", memory)}
	}
	r.pod.SetDesired(object, nil, r.now)
	r.pod.Grant()
	r.pod.ApplyGrant(r.env)
	r.inspected()
	r.expect("announce 220, pod 220, measure, container 80, container 120, announce 200, pod 200")
	for i := range r.pod.Containers {
		if c := &r.pod.Containers[i]; c.Inspected != "" {
			t.Errorf("the status of %s is not read again", c.Name)
		}
	}
}

// The memory of a container is lowered by a measurement that has just arrived. One that arrives
// during a back-off, because of another container, is not used at its end.
func TestMemoryIsMeasuredForEachAttempt(t *testing.T) {
	r := newResizeHarness(t, "1", "100Mi")
	r.addSecondContainer()
	r.expect("announce 200, pod 200")
	object := r.pod.Source().DeepCopy()
	object.Generation++
	for i := range object.Spec.Containers {
		object.Spec.Containers[i].Resources = v1.ResourceRequirements{
			Requests: resources("1", "50Mi"), Limits: resources("1", "50Mi")}
	}
	r.pod.SetDesired(object, nil, r.now)
	r.pod.Grant()
	r.pod.ApplyGrant(r.env)
	r.inspected()
	web := r.pod.Containers[1].ID
	usage := map[string]uint64{web: 10 << 20, "c2": 90 << 20}
	r.usage = func(id string) uint64 { return usage[id] }
	r.expect("measure, measure")
	r.now = r.now.Add(time.Minute)
	usage[web] = 70 << 20 // more than when it was measured
	r.expect("measure, measure")
	usage[web], usage["c2"] = 10<<20, 10<<20
	r.now = r.now.Add(time.Minute)
	r.expect("measure, container 50, measure, container 50, announce 100, pod 100")
}

// An update of unknown outcome may take effect after a later one: the runtime is asked.
func TestLateUpdateIsLookedFor(t *testing.T) {
	r := newResizeHarness(t, "1", "100Mi")
	r.allocate("1", "300Mi")
	for range 2 {
		r.next(nil)
	}
	r.next(world.Errorf(world.KindTimeout, "UpdateContainerResources", "late"))
	a := &r.pod.Containers[0].Actuation
	if !a.VerifyAt.IsZero() {
		t.Error("asked before there is a later update")
	}
	r.now = r.now.Add(time.Minute)
	r.expect("container 300")
	if want := r.now.Add(r.env.Node.RuntimeTimeout); !a.VerifyAt.Equal(want) {
		t.Errorf("asked at %v, want %v", a.VerifyAt, want)
	}
}

// What the runtime reports beyond the records was set by an agent that could not record it any
// more: the pod's cgroup holds it.
func TestReportedBeyondRecords(t *testing.T) {
	r := newResizeHarness(t, "1", "100Mi")
	r.pod.Spec = r.pod.Spec.DeepCopy()
	r.pod.Spec.Generation = 2
	c := &r.pod.Containers[0]
	recorded := allocation.AmountsOf(r.pod.Spec, &r.pod.Spec.Spec.Containers[0])
	r.pod.Cgroup, c.Actuation, c.Inspected = Cgroup{}, Actuation{}, Running
	c.Actuation.Reported = reportedAmounts(&runtimeapi.LinuxContainerResources{CpuShares: 1024,
		CpuPeriod: 100_000, CpuQuota: 100_000, MemoryLimitInBytes: 200 << 20})
	r.env.RecordedAmounts = func(string, string) (allocation.Amounts, bool) { return recorded, true }
	r.expect("announce 200, pod 200, measure, container 100, announce 100, pod 100")
}

// A limit of memory that was lowered before the agent could record it is not lowered once more: a
// container may use as much as its limit. The resize goes on: the pod's cgroup may not be set.
func TestLoweredBeyondRecords(t *testing.T) {
	for _, test := range []struct {
		request int64
		want    string
	}{{100 << 20, "announce 100, pod 100"}, {50 << 20, "announce 100, pod 100, container 100"}} {
		r := newResizeHarness(t, "1", "100Mi")
		r.pod.Spec = r.pod.Spec.DeepCopy()
		r.pod.Spec.Generation = 2
		c := &r.pod.Containers[0]
		recorded := *c.Resources
		recorded.MemoryRequest, recorded.MemoryLimit = test.request, 200<<20
		r.pod.Cgroup, c.Actuation, c.Inspected = Cgroup{}, Actuation{}, Running
		c.Resources = &recorded
		c.Actuation.Reported = reportedAmounts(&runtimeapi.LinuxContainerResources{CpuShares: 1024,
			CpuPeriod: 100_000, CpuQuota: 100_000, MemoryLimitInBytes: 100 << 20})
		r.env.RecordedAmounts = func(string, string) (allocation.Amounts, bool) { return recorded, true }
		r.expect(test.want)
	}
}

// A container that has its limit of CPU from the pod as a whole is recalled as it was: the runtime
// reports the limit as its request.
func TestRecallOfLimitOfPodAsWhole(t *testing.T) {
	r := newResizeHarness(t, "1", "100Mi")
	r.pod.Spec = r.pod.Spec.DeepCopy()
	r.pod.Spec.Generation = 2
	r.pod.Spec.Spec.Resources = &v1.ResourceRequirements{Limits: resources("2", "100Mi")}
	r.pod.Spec.Spec.Containers[0].Resources = v1.ResourceRequirements{}
	c := &r.pod.Containers[0]
	recorded := allocation.AmountsOf(r.pod.Spec, &r.pod.Spec.Spec.Containers[0])
	r.pod.Cgroup, c.Actuation, c.Inspected, c.Resources = Cgroup{}, Actuation{}, Running, nil
	c.Actuation.Reported = reportedAmounts(&runtimeapi.LinuxContainerResources{CpuShares: 2048,
		CpuPeriod: 100_000, CpuQuota: 200_000, MemoryLimitInBytes: 100 << 20})
	r.env.RecordedAmounts = func(string, string) (allocation.Amounts, bool) { return recorded, true }
	r.expect("pod 100")
	if r.pod.Resize.InProgress != nil || c.Actuation.Attempted != nil {
		t.Errorf("a resize out of nothing: %+v, %+v", r.pod.Resize.InProgress, c.Actuation)
	}
}

// An agent that was killed between the record of what is allocated to a pod as a whole and its
// cgroup goes on with that. Until it is done, the pod holds what it had.
func TestRecallOfPodAsWhole(t *testing.T) {
	r := newResizeHarness(t, "1", "100Mi")
	r.pod.Spec = r.pod.Spec.DeepCopy()
	r.pod.Spec.Spec.Resources = &v1.ResourceRequirements{Requests: resources("1", "100Mi"),
		Limits: resources("1", "100Mi")}
	r.pod.Cgroup, r.pod.Resize.WholeRecalled = Cgroup{}, false
	r.env.RecordedWhole = func(string) *v1.ResourceRequirements {
		return &v1.ResourceRequirements{Requests: resources("3", "100Mi"),
			Limits: resources("3", "100Mi")}
	}
	requested := func() string {
		all := podresources.PodRequests(r.pod.AllocatedPod(), podresources.PodResourcesOptions{})
		return all.Cpu().String()
	}
	got := r.next(nil)
	if got != "announce 100" || requested() != "3" {
		t.Errorf("%s, and the pod holds %s CPUs", got, requested())
	}
	r.expect("pod 100")
	if requested() != "1" || r.pod.Resize.InProgress != nil {
		t.Errorf("in the end it holds %s CPUs: %+v", requested(), r.pod.Resize)
	}
}

// What is recorded of a pod as a whole leads to a resize if that is something else than what is
// allocated; a resize that is known is the same one.
func TestRecordOfPodAsWhole(t *testing.T) {
	allocated := &v1.ResourceRequirements{Requests: resources("1", "100Mi")}
	other := &v1.ResourceRequirements{Requests: resources("3", "100Mi")}
	known := &ResizeState{Generation: 3, Since: t0.Add(-time.Hour)}
	for name, c := range map[string]struct { //ordered: each by itself
		recorded   *v1.ResourceRequirements
		inProgress *ResizeState
		want       int64 // the generation of the resize; zero: none
	}{
		"none":            {nil, nil, 0},
		"the allocated":   {allocated.DeepCopy(), nil, 0},
		"others":          {other, nil, 5},
		"others, resized": {other, known, 3},
	} {
		r := newResizeHarness(t, "1", "100Mi")
		r.pod.Spec = r.pod.Spec.DeepCopy()
		r.pod.Spec.Spec.Resources, r.pod.Spec.Generation = allocated, 5
		r.pod.Resize = Resize{InProgress: c.inProgress}
		r.env.RecordedWhole = func(string) *v1.ResourceRequirements { return c.recorded }
		r.pod.recallWhole(r.env)
		got := int64(0)
		if s := r.pod.Resize.InProgress; s != nil {
			got = s.Generation
		}
		if got != c.want || (r.pod.Resize.HeldAsWhole != nil) != (c.want != 0) {
			t.Errorf("%s: a resize of generation %d, want %d; held %v", name, got, c.want,
				r.pod.Resize.HeldAsWhole)
		}
		r.pod.Resize.InProgress = nil // it is done
		if r.pod.recallWhole(r.env); r.pod.Resize.InProgress != nil {
			t.Errorf("%s: the record is looked up again", name)
		}
	}
}

// An update of the object that asks for the same as before changes no resources: what waits still
// waits, and what is allocated stays. Anything else of the object counts at once.
func TestUpdateOfSameGeneration(t *testing.T) {
	r := newResizeHarness(t, "1", "100Mi")
	labelled := r.pod.Spec.DeepCopy()
	labelled.Generation, labelled.Labels = 2, map[string]string{"a": "b"}
	r.pod.UpdateObject(labelled, t0)
	changed := labelled.DeepCopy()
	if r.pod.UpdateObject(changed, t0); r.pod.Spec != changed {
		t.Error("an update of the same generation does not count")
	}
	larger := changed.DeepCopy()
	larger.Status.Conditions = []v1.PodCondition{{Type: v1.PodResizeInProgress,
		Status: v1.ConditionTrue}} // of a resize that is done since
	larger.Generation = 3
	larger.Spec.Containers[0].Resources.Requests = resources("9", "100Mi")
	r.pod.SetDesired(larger, nil, t0)
	again := larger.DeepCopy()
	r.pod.UpdateObject(again, t0)
	cpu := r.pod.Spec.Spec.Containers[0].Resources.Requests.Cpu().String()
	if cpu != "1" || r.pod.Resize.Desired != again || r.pod.Resize.InProgress != nil {
		t.Errorf("allocated %s CPUs, %+v", cpu, r.pod.Resize)
	}
}

// Without a record a pod that may have been resized has what its containers were created with.
func TestAllocatedWithoutRecord(t *testing.T) {
	for generation, want := range map[int64]string{1: "9", 2: "1", 3: "1"} { //ordered: each by itself
		r := newResizeHarness(t, "1", "100Mi")
		object := r.pod.Spec.DeepCopy()
		object.Generation = generation
		object.Spec.Containers[0].Resources.Requests = resources("9", "100Mi")
		r.pod.Spec = nil
		r.pod.SetDesired(object, nil, t0)
		cpu := r.pod.Spec.Spec.Containers[0].Resources.Requests.Cpu().String()
		if cpu != want || (r.pod.Resize.Desired == nil) != (want == "9") {
			t.Errorf("generation %d: allocated %s, want %s; desired %v", generation, cpu, want,
				r.pod.Resize.Desired)
		}
	}
}

// Room is made for what a pod asks for: a pod that asks for something else has none made yet, and
// one that asks for the same goes on.
func TestRoomIsMadeForOneResize(t *testing.T) {
	for _, c := range []struct {
		making bool
		cpu    string
		want   bool
	}{{true, "9", true}, {true, "8", false}, {true, "1", false}, {false, "9", false}} {
		r := newResizeHarness(t, "1", "100Mi")
		object := r.pod.Spec.DeepCopy()
		for i, cpu := range []string{"9", c.cpu} {
			object = object.DeepCopy()
			object.Generation = int64(2 + i)
			object.Spec.Containers[0].Resources.Requests = resources(cpu, "100Mi")
			r.pod.SetDesired(object, nil, t0)
			if i == 0 {
				r.pod.Resize.MakingRoom = c.making
			}
		}
		if got := r.pod.Resize.MakingRoom; got != c.want {
			t.Errorf("%+v: room is made: %t", c, got)
		}
	}
}

// The cgroup of a pod whose resources as a whole are changed twice may have the first or the second
// ones: the pod holds the larger amount of each.
func TestHeldAsWholeOfTwoGrants(t *testing.T) {
	r := newResizeHarness(t, "1", "100Mi")
	r.pod.Spec = r.pod.Spec.DeepCopy()
	r.pod.Spec.Spec.Containers[0].Resources = v1.ResourceRequirements{}
	for _, step := range []struct{ cpu, memory, want string }{
		{"1", "300Mi", "1 300Mi"}, {"3", "100Mi", "3 300Mi"}, {"1", "100Mi", "3 300Mi"},
	} {
		object := r.pod.Source().DeepCopy()
		object.Generation++
		object.Spec.Resources = &v1.ResourceRequirements{Requests: resources(step.cpu, step.memory)}
		r.pod.SetDesired(object, nil, r.now)
		r.pod.Grant()
		r.pod.ApplyGrant(r.env)
		all := podresources.PodRequests(r.pod.AllocatedPod(), podresources.PodResourcesOptions{})
		if got := all.Cpu().String() + " " + all.Memory().String(); got != step.want {
			t.Errorf("%+v: it holds %s", step, got)
		}
	}
}

// A pod that gives up resources holds them until it has given them up.
func TestHeldWhileResizing(t *testing.T) {
	r := newResizeHarness(t, "2", "100Mi")
	requested := func() string {
		all := podresources.PodRequests(r.pod.AllocatedPod(), podresources.PodResourcesOptions{})
		return all.Cpu().String() + " " + all.Memory().String()
	}
	for _, step := range []struct {
		cpu, memory, during, after string
	}{
		{"1", "200Mi", "2 200Mi", "1 200Mi"},
		{"3", "200Mi", "3 200Mi", "3 200Mi"},
	} {
		r.allocate(step.cpu, step.memory)
		if got := requested(); got != step.during {
			t.Errorf("%+v: it holds %s", step, got)
		}
		for r.next(nil) != "" {
		}
		if got := requested(); got != step.after {
			t.Errorf("%+v: in the end it holds %s", step, got)
		}
	}
	smaller := r.pod.Source().DeepCopy()
	smaller.Generation++
	smaller.Spec.Containers[0].Resources.Requests = resources("1", "100Mi")
	r.pod.SetDesired(smaller, nil, r.now)
	if r.pod.Grant(); requested() != "3 200Mi" {
		t.Errorf("before the decision is on the disk it holds %s", requested())
	}
}

// What was recorded of a pod as a whole does not replace what a grant has made it hold.
func TestRecallAfterGrantOfPodAsWhole(t *testing.T) {
	r := newResizeHarness(t, "1", "100Mi")
	r.pod.Spec = r.pod.Spec.DeepCopy()
	r.pod.Spec.Spec.Resources = &v1.ResourceRequirements{Requests: resources("1", "100Mi")}
	r.pod.Cgroup, r.pod.Resize.WholeRecalled = Cgroup{}, false
	r.pod.Resize.HeldAsWhole = &v1.ResourceRequirements{Requests: resources("1", "300Mi")}
	r.env.RecordedWhole = func(string) *v1.ResourceRequirements {
		return &v1.ResourceRequirements{Requests: resources("3", "100Mi")}
	}
	r.next(nil)
	all := podresources.PodRequests(r.pod.AllocatedPod(), podresources.PodResourcesOptions{})
	if got := all.Cpu().String() + " " + all.Memory().String(); got != "3 300Mi" {
		t.Errorf("it holds %s", got)
	}
}

// A resize that fails again keeps the time of its condition.
func TestResizeFailsAgain(t *testing.T) {
	r := newResizeHarness(t, "1", "64Mi")
	r.allocate("2", "64Mi")
	p := r.pod
	p.failResize("no", r.env)
	since := p.Resize.InProgress.Since
	for i, message := range []string{"no", "never"} {
		r.planAt(time.Duration(1+i) * time.Minute)
		p.failResize(message, r.env)
		if s := p.Resize.InProgress; !s.Since.Equal(since) || s.Message != message ||
			s.Reason != v1.PodReasonError {
			t.Errorf("after %q: %+v, want it since %v", message, s, since)
		}
	}
}

// An orphaned pod holds what was allocated to its containers last, as far as the record of that and
// the runtime tell.
func TestOrphanedPodHoldsWhatIsRecorded(t *testing.T) {
	cpu := func(amount string) v1.ResourceRequirements {
		return v1.ResourceRequirements{Requests: v1.ResourceList{"cpu": resource.MustParse(amount)}}
	}
	whole := cpu("3")
	for _, c := range []struct {
		name     string
		states   map[string]State
		recorded allocation.Resources
		want     string
	}{
		{"nothing is recorded", nil, allocation.Resources{}, "700m"},
		{"less than at its creation", map[string]State{"a": Running},
			allocation.Resources{Containers: map[string]v1.ResourceRequirements{"a": cpu("100m")}}, "700m"},
		{"containers that run together", map[string]State{"a": Running, "b": Running, "c": Exited},
			allocation.Resources{Containers: map[string]v1.ResourceRequirements{"a": cpu("600m"),
				"b": cpu("500m"), "c": cpu("400m"), "other": cpu("9")}}, "1100m"},
		{"one that has completed", map[string]State{"a": Exited, "b": Running},
			allocation.Resources{Containers: map[string]v1.ResourceRequirements{"a": cpu("2"),
				"b": cpu("500m")}}, "2"},
		{"the pod as a whole", map[string]State{"a": Running},
			allocation.Resources{Pod: &whole}, "3"},
	} {
		p := NewOrphan("u", "default", "p", t0)
		p.Sandboxes = []Sandbox{{ID: "s", Ready: true,
			Allocation: `{"resources":{"requests":{"cpu":"700m"}}}`}}
		for _, name := range slices.Sorted(maps.Keys(c.states)) {
			p.addContainer(run(name, 0, c.states[name]))
		}
		held := podresources.PodRequests(p.OrphanedPod(&c.recorded), podresources.PodResourcesOptions{})
		if got := held.Cpu(); got.Cmp(resource.MustParse(c.want)) != 0 {
			t.Errorf("%s: it holds %s, want %s", c.name, got, c.want)
		}
	}
}

// A resize that is granted before the containers of an earlier agent are recalled does not free yet
// what was allocated before.
func TestGrantBeforeContainersAreRecalled(t *testing.T) {
	for _, recalled := range []bool{false, true} {
		r := newResizeHarness(t, "2", "100Mi")
		if !recalled {
			r.pod.Containers[0].Actuation = Actuation{}
		}
		r.allocate("1", "100Mi")
		r.allocate("1", "50Mi")
		requests := resizableRequests(r.pod.AllocatedPod())
		if got := requests.Cpu().String() + " " + requests.Memory().String(); got != "2 100Mi" {
			t.Errorf("recalled: %t; the pod holds %s, want what it had", recalled, got)
		}
	}
}

// A generation is observed once it was decided about the resources that it asks for. It never goes
// back, and a pod that ends waits for no decision.
func TestObservedGeneration(t *testing.T) {
	r := newResizeHarness(t, "1", "100Mi")
	p := r.pod
	ask := func(generation int64, cpu string) {
		object := p.Source().DeepCopy()
		object.Generation = generation
		object.Spec.Containers[0].Resources = v1.ResourceRequirements{
			Requests: resources(cpu, "100Mi"), Limits: resources(cpu, "100Mi")}
		p.SetDesired(object, nil, r.now)
	}
	expect := func(when string, want int64) {
		t.Helper()
		if got := p.ObservedGeneration(); got != want {
			t.Errorf("%s: %d, want %d", when, got, want)
		}
	}
	ask(1, "1")
	expect("nothing is asked for", 1)
	ask(2, "2")
	expect("undecided", 1)
	p.DenyResize("Deferred", "no room", r.env)
	expect("denied", 2)
	ask(3, "3")
	expect("a newer one", 2)
	p.Grant()
	expect("not recorded yet", 2)
	ask(4, "1")
	expect("taken back before the record", 2)
	p.ApplyGrant(r.env)
	expect("granted", 3)
	p.Grant()
	p.ApplyGrant(r.env)
	expect("what it was taken back to is granted", 4)
	ask(5, "2")
	p.Stage = Terminating
	expect("it ends", 5)
}

// An agent that is started again observes no less than the one before it.
func TestObservedGenerationOfEarlierAgent(t *testing.T) {
	for _, c := range []struct {
		reported, want int64
	}{{2, 2}, {3, 3}} {
		r := newResizeHarness(t, "1", "100Mi")
		recorded := allocation.Of(r.pod.Spec)
		object := r.pod.Spec.DeepCopy()
		object.Generation, object.Status.ObservedGeneration = 3, c.reported
		object.Spec.Containers[0].Resources.Requests = resources("2", "100Mi")
		r.pod.Spec = nil
		r.pod.setSpec(object, &recorded, r.now)
		if got := r.pod.ObservedGeneration(); got != c.want {
			t.Errorf("%d was reported: %d, want %d", c.reported, got, c.want)
		}
	}
}

// An agent that is started again does not say that a resize is complete which the one before it may
// not have carried out: the cgroup of the pod is set first.
func TestUnreportedGenerationOfEarlierAgent(t *testing.T) {
	for _, isReported := range []bool{false, true} {
		r := newResizeHarness(t, "1", "100Mi")
		object := r.pod.Spec.DeepCopy()
		object.Generation, object.Status.ObservedGeneration = 3, 2
		if isReported {
			object.Status.ObservedGeneration = 3
		}
		recorded := allocation.Of(object)
		r.pod.Spec, r.pod.Cgroup, r.pod.Resize = nil, Cgroup{}, Resize{}
		r.pod.setSpec(object, &recorded, r.now)
		r.inspected()
		r.planAt(0)
		if got, want := r.pod.ObservedGeneration(), object.Status.ObservedGeneration; got != want {
			t.Errorf("before the cgroup is set: generation %d, want %d", got, want)
		}
		r.expect("pod 100")
		if got := r.pod.ObservedGeneration(); got != 3 {
			t.Errorf("once the cgroup is set: generation %d, want 3", got)
		}
	}
}
