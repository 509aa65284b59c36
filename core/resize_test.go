package core

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	podresources "k8s.io/component-helpers/resource"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"seedlet.dev/core/allocation"
	"seedlet.dev/core/budget"
	"seedlet.dev/core/config"
	"seedlet.dev/core/pod"
	"seedlet.dev/core/shutdown"
	"seedlet.dev/world"
)

// resizeNode is a node that records the updates of containers, by their CPU shares.
type resizeNode struct {
	*fakeNode
	updates []int64
	full    bool // the disk
}

func newResizeNode(pods ...*v1.Pod) *resizeNode {
	r := &resizeNode{fakeNode: bootWithPods(nil, pods...)}
	r.answer = func(effect any) any {
		switch e := effect.(type) {
		case *runtimeapi.UpdatePodSandboxResourcesRequest:
			return &runtimeapi.UpdatePodSandboxResourcesResponse{}
		case *runtimeapi.UpdateContainerResourcesRequest:
			r.updates = append(r.updates, e.Linux.CpuShares)
			return &runtimeapi.UpdateContainerResourcesResponse{}
		case *world.WriteFile:
			if r.full && strings.HasSuffix(e.Path, allocation.AllocatedFile) {
				return world.Errorf(world.KindExhausted, "WriteFile", "no space")
			}
		}
		return nil
	}
	return r
}

// keepFiles has files that are written from now on read as they are.
func (r *resizeNode) keepFiles() {
	files, inner := map[string][]byte{}, r.answer
	r.answer = func(effect any) any {
		switch e := effect.(type) {
		case *world.WriteFile:
			files[e.Path] = e.Data
		case *world.ReadFiles:
			if data, exists := files[e.Path]; exists {
				return &world.FilesRead{Files: []world.File{{Data: data}}}
			}
		}
		return inner(effect)
	}
}

// resize has a pod of the API server ask for an amount of CPU.
func (r *resizeNode) resize(name, cpu string) {
	p := r.apiServer.objects["default/"+name].DeepCopy()
	p.Generation++
	p.Spec.Containers[0].Resources.Requests = v1.ResourceList{"cpu": resource.MustParse(cpu)}
	r.apiServer.put(p)
	r.advance(time.Second)
}

func (r *resizeNode) pending(name string) string {
	for _, c := range r.apiServer.objects["default/"+name].Status.Conditions {
		if c.Type == v1.PodResizePending && c.Reason != "" { // the fake server does not remove it
			return c.Reason + ": " + c.Message
		}
	}
	return ""
}

func (r *resizeNode) allocated(name string) string {
	return r.apiServer.objects["default/"+name].Status.ContainerStatuses[0].AllocatedResources.
		Cpu().String()
}

// A resize takes effect, and is reported, once it is on the disk: an agent that is killed before
// knows nothing of it.
func TestResizeIsDurableFirst(t *testing.T) {
	r := newResizeNode(withRequests(apiPodNamed("a", "u1"), "1", 0))
	r.full = true
	r.resize("a", "1500m")
	r.advance(time.Minute)
	if len(r.updates) > 0 || r.allocated("a") != "1" {
		t.Errorf("updates %v, allocated %s", r.updates, r.allocated("a"))
	}
	r.full = false
	r.advance(2 * time.Minute)
	if len(r.updates) != 1 || r.updates[0] != 1536 || r.allocated("a") != "1500m" {
		t.Errorf("then updates %v, allocated %s", r.updates, r.allocated("a"))
	}
}

// A resize waits until another pod ends, and is allocated then. Of two that wait, the one of the
// higher priority is first; one that asks for less does not wait.
func TestResizesWaitForRoom(t *testing.T) {
	r := newResizeNode(withRequests(apiPodNamed("a", "u1"), "1", 0),
		withRequests(apiPodNamed("low", "u2"), "400m", 1),
		withRequests(apiPodNamed("high", "u3"), "400m", 2))
	r.resize("low", "1")
	r.resize("high", "1200m")
	want := "Deferred: Node didn't have enough resource: cpu, requested: 1000, used: 1400, " +
		"capacity: 2000"
	if got := r.pending("low"); got != want {
		t.Errorf("low waits: %q\nwant %q", got, want)
	}
	r.resize("a", "900m")
	if r.allocated("a") != "900m" || r.allocated("low") != "400m" || r.allocated("high") != "400m" {
		t.Errorf("allocated %s, %s, %s", r.allocated("a"), r.allocated("low"), r.allocated("high"))
	}
	p := r.apiServer.objects["default/a"].DeepCopy()
	p.Status.Phase = v1.PodFailed
	r.apiServer.put(p)
	r.advance(5 * time.Second)
	if r.allocated("high") != "1200m" || r.pending("high") != "" || r.allocated("low") != "400m" {
		t.Errorf("then %s, %s, %q", r.allocated("high"), r.allocated("low"), r.pending("high"))
	}
	r.resize("low", "400m")
	if r.pending("low") != "" {
		t.Errorf("after it was taken back: %q", r.pending("low"))
	}
}

// After a restart the recorded allocation counts, not what the spec asks for.
func TestAllocationAfterRestart(t *testing.T) {
	r := newResizeNode(withRequests(apiPodNamed("a", "u1"), "1", 0),
		withRequests(apiPodNamed("b", "u2"), "900m", 0))
	r.keepFiles()
	r.resize("b", "950m")
	r.resize("a", "1800m")
	r.restart()
	r.advance(10 * time.Second)
	if r.allocated("a") != "1" || r.allocated("b") != "950m" ||
		!strings.HasPrefix(r.pending("a"), "Deferred: ") || len(r.updates) != 1 {
		t.Errorf("allocated %s, %s; %q; updates %v", r.allocated("a"), r.allocated("b"), r.pending("a"),
			r.updates)
	}
}

// The resources of a pod as a whole are resized as those of its containers are; the status has
// those that are allocated, and those of the cgroup.
func TestResizeOfPodAsAWhole(t *testing.T) {
	p := apiPodNamed("a", "u1")
	p.Spec.Resources = &v1.ResourceRequirements{
		Requests: v1.ResourceList{"cpu": resource.MustParse("1"), "memory": resource.MustParse("8Mi")},
		Limits:   v1.ResourceList{"memory": resource.MustParse("16Mi")}}
	r := newResizeNode(p)
	whole := func(cpu string) {
		p := r.apiServer.objects["default/a"].DeepCopy()
		p.Generation++
		p.Spec.Resources.Requests["cpu"] = resource.MustParse(cpu)
		r.apiServer.put(p)
		r.advance(time.Second)
	}
	expect := func(cpu string, shares uint64) {
		t.Helper()
		status := r.apiServer.objects["default/a"].Status
		has, allocated := status.Resources, status.AllocatedResources
		if has == nil || has.Requests.Cpu().String() != cpu || allocated.Cpu().String() != cpu ||
			has.Requests.Memory().String() != "8Mi" || has.Limits.Memory().String() != "16Mi" ||
			allocated.Memory().String() != "8Mi" || len(has.Limits) != 1 {
			t.Errorf("the status has %+v and %+v", has, allocated)
		}
		if got := r.cgroups["kubepods/burstable/podu1"].CPUShares; got != shares {
			t.Errorf("the cgroup has %d shares, want %d", got, shares)
		}
		stored := r.agent.state.Allocation.Actuated.Get("u1").Resources.Pod
		if stored == nil || stored.Requests.Cpu().String() != cpu {
			t.Errorf("recorded %+v", stored)
		}
	}
	expect("1", 1024)
	whole("1500m")
	expect("1500m", 1536)
	whole("3")
	if got := r.pending("a"); !strings.HasPrefix(got, "Deferred: ") {
		t.Errorf("more than the node has is %q", got)
	}
	expect("1500m", 1536)
}

// No resize is allocated before all pods are known: what runs may have more than it seems.
func TestResizesWaitForAllPods(t *testing.T) {
	r := newResizeNode(withRequests(apiPodNamed("a", "u1"), "1", 0))
	r.agent.state.Manifests.HTTP.Ready = false
	r.resize("a", "1500m")
	r.advance(time.Minute)
	if len(r.updates) > 0 || r.allocated("a") != "1" || r.pending("a") != "" {
		t.Errorf("updates %v, allocated %s, %q", r.updates, r.allocated("a"), r.pending("a"))
	}
	r.agent.state.Manifests.HTTP.Ready = true
	r.advance(time.Minute)
	if len(r.updates) != 1 || r.allocated("a") != "1500m" {
		t.Errorf("then updates %v, allocated %s", r.updates, r.allocated("a"))
	}
}

// A list is applied in parts. No resize is decided between two of them: after a restart a pod of a
// later part counts by its sandbox, which was made before the pod grew.
func TestResizesWaitForWholeList(t *testing.T) {
	for _, late := range []string{"ListPodSandbox", "ListDir"} {
		pods := []*v1.Pod{withRequests(apiPodNamed("p00", "u00"), "10m", 2_000_000_000)}
		for i := range 59 {
			name := fmt.Sprintf("%02d", i+1)
			pods = append(pods, withRequests(apiPodNamed("p"+name, "u"+name), "10m", 0))
		}
		r := newResizeNode(pods...)
		r.advance(time.Minute)
		r.keepFiles()
		r.resize("p59", "1300m")
		if r.advance(time.Minute); r.allocated("p59") != "1300m" {
			t.Fatalf("allocated are %s, %q", r.allocated("p59"), r.pending("p59"))
		}
		r.podDirs = nil
		for _, p := range pods {
			r.podDirs = append(r.podDirs, string(p.UID))
		}
		for name, cpu := range map[string]string{"p00": "100m", "p01": "1"} {
			object := r.apiServer.objects["default/"+name].DeepCopy()
			object.Generation++
			object.Spec.Containers[0].Resources.Requests["cpu"] = resource.MustParse(cpu)
			r.apiServer.put(object)
		}
		r.apiServer.undelivered = nil
		r.failingCalls = map[string]bool{late: true}
		r.restart()
		if r.advance(20 * time.Second); r.allocated("p00") != "10m" {
			t.Errorf("%s: before all is listed: %s", late, r.allocated("p00"))
		}
		r.failingCalls = nil
		r.advance(time.Minute)
		if r.allocated("p00") != "100m" || r.allocated("p01") != "10m" ||
			!strings.HasPrefix(r.pending("p01"), "Deferred: ") {
			t.Errorf("%s: allocated are %s and %s, %q", late, r.allocated("p00"), r.allocated("p01"),
				r.pending("p01"))
		}
	}
}

// A resize is checked for what the pod needs of the runtime too.
func TestResizeOfPodWithStrictGroups(t *testing.T) {
	policy := v1.SupplementalGroupsPolicyStrict
	p := withRequests(apiPodNamed("a", "u1"), "1", 0)
	p.Spec.SecurityContext = &v1.PodSecurityContext{SupplementalGroupsPolicy: &policy}
	r := newResizeNode()
	r.status.Features = &runtimeapi.RuntimeFeatures{SupplementalGroupsPolicy: true}
	r.advance(time.Minute)
	r.apiServer.put(p)
	r.advance(5 * time.Second)
	if r.resize("a", "1500m"); len(r.updates) != 1 || r.pending("a") != "" {
		t.Errorf("updates %v, %q", r.updates, r.pending("a"))
	}
}

// A resize waits while the node runs out of a resource, unless a new pod would be admitted then.
func TestResizeUnderPressure(t *testing.T) {
	r := newResizeNode(withRequests(apiPodNamed("a", "u1"), "1", 0))
	pressure := &r.agent.state.Eviction.Pressure
	*pressure = []v1.NodeConditionType{v1.NodeMemoryPressure}
	if r.resize("a", "1200m"); r.allocated("a") != "1200m" {
		t.Errorf("with too little memory %s, %q", r.allocated("a"), r.pending("a"))
	}
	*pressure = []v1.NodeConditionType{v1.NodeDiskPressure}
	r.resize("a", "1500m")
	const want = "Deferred: The node had condition: [DiskPressure]. "
	if got := r.pending("a"); got != want || r.allocated("a") != "1200m" {
		t.Errorf("with too little disk %s, %q, want %q", r.allocated("a"), got, want)
	}
	*pressure = nil
	if r.advance(resizeRetryPeriod); r.allocated("a") != "1500m" || r.pending("a") != "" {
		t.Errorf("later %s, %q", r.allocated("a"), r.pending("a"))
	}
}

// No resize is allocated while the machine shuts down, nor before it is known whether it does.
func TestResizeDuringShutdown(t *testing.T) {
	r := newResizeNode(withRequests(apiPodNamed("a", "u1"), "1", 0))
	m := &r.agent.state.Shutdown
	m.Groups, m.Lock.Delay.NotBefore = []shutdown.Group{{}}, r.now.Add(time.Hour)
	r.resize("a", "1200m")
	if r.advance(time.Minute); r.allocated("a") != "1" || r.pending("a") != "" {
		t.Errorf("not known yet: %s, %q", r.allocated("a"), r.pending("a"))
	}
	m.Groups, m.Now = nil, &shutdown.Shutdown{}
	r.advance(time.Minute)
	if got := r.pending("a"); got != "Deferred: "+shutdown.RejectionMessage {
		t.Errorf("under way: %q", got)
	}
}

// What is preempted for a critical pod is no room for the resize of another one.
func TestPreemptedRoomIsNoRoomForResizes(t *testing.T) {
	r := newResizeNode(withRequests(apiPodNamed("a", "u1"), "1", 0),
		withRequests(apiPodNamed("b", "u2"), "400m", 0))
	r.failingCalls = map[string]bool{"StopContainer": true}
	r.apiServer.put(withRequests(apiPodNamed("c", "u3"), "1500m", 2_000_000_000))
	r.advance(time.Second)
	if r.resize("b", "600m"); r.allocated("b") != "400m" {
		t.Errorf("while a pod is preempted: %s", r.allocated("b"))
	}
	if r.resize("b", "300m"); r.allocated("b") != "300m" {
		t.Errorf("a resize that asks for less: %s, %q", r.allocated("b"), r.pending("b"))
	}
	r.resize("b", "600m")
	r.failingCalls = nil
	r.advance(time.Minute)
	b, c := r.apiServer.objects["default/b"].Status, r.apiServer.objects["default/c"].Status
	if b.Phase != v1.PodRunning || c.Phase != v1.PodRunning || r.allocated("b") != "300m" {
		t.Errorf("then %s with %s (%s), and the critical one %s", b.Phase, r.allocated("b"),
			b.Reason, c.Phase)
	}
}

// A change of what one pod requests is written to its own cgroup and to its tier, however many pods
// there are: the tier grows before the pod, and shrinks after it.
func TestCgroupWritesOfOneResize(t *testing.T) {
	for _, count := range []int{10, 100} {
		var pods []*v1.Pod
		for i := range count {
			name := fmt.Sprint(i)
			pods = append(pods, withRequests(apiPodNamed("p"+name, "u"+name), "10m", 0))
		}
		r := newResizeNode(pods...)
		r.advance(time.Minute)
		for _, test := range []struct{ cpu, want string }{
			{"500m", "kubepods/burstable kubepods/burstable/podu7"},
			{"20m", "kubepods/burstable/podu7 kubepods/burstable"},
		} {
			r.cgroupWrites, r.updates = nil, nil
			r.resize("p7", test.cpu)
			r.advance(5 * time.Minute)
			if got := strings.Join(r.cgroupWrites, " "); got != test.want || len(r.updates) != 1 {
				t.Errorf("%d pods, to %s: written are %s, updates %v", count, test.cpu, got, r.updates)
			}
		}
	}
}

// A pod that the node cannot do without makes room for its resize, as for its start.
func TestCriticalResizePreempts(t *testing.T) {
	r := newResizeNode(withRequests(apiPodNamed("a", "u1"), "1", 0),
		withRequests(apiPodNamed("c", "u2"), "500m", 2_000_000_000))
	r.resize("c", "1500m")
	r.advance(time.Minute)
	if a := r.apiServer.objects["default/a"].Status; a.Reason != "Preempting" ||
		r.allocated("c") != "1500m" {
		t.Errorf("the other pod is %s (%s), allocated are %s", a.Phase, a.Reason, r.allocated("c"))
	}
}

// No pod is preempted while another one may have ended by itself. If it has, its room is enough; if
// not, one is preempted then.
func TestCriticalResizeAwaitsEnds(t *testing.T) {
	for _, restart := range []v1.RestartPolicy{v1.RestartPolicyNever, v1.RestartPolicyAlways} {
		ending := withRequests(apiPodNamed("a", "u1"), "600m", 1)
		ending.Spec.RestartPolicy = restart
		r := newResizeNode(ending, withRequests(apiPodNamed("b", "u2"), "600m", 0),
			withRequests(apiPodNamed("c", "u3"), "500m", 2_000_000_000))
		r.failingCalls = map[string]bool{"ContainerStatus": true}
		for _, c := range r.containers {
			if r.sandboxes[c.PodSandboxId].Metadata.Uid == "u1" {
				c.State = runtimeapi.ContainerState_CONTAINER_EXITED
			}
		}
		r.advance(2 * time.Second)
		r.resize("c", "1100m")
		phase := func(name string) string {
			s := r.apiServer.objects["default/"+name].Status
			return string(s.Phase) + " " + s.Reason
		}
		r.advance(5 * time.Second)
		if got := phase("a") + phase("b"); got != "Running Running " ||
			!strings.HasPrefix(r.pending("c"), "Deferred: ") {
			t.Errorf("%s: before the exit is known a and b are %s; %q", restart, got, r.pending("c"))
		}
		r.failingCalls = nil
		r.advance(time.Minute)
		want := "Succeeded Running "
		if restart == v1.RestartPolicyAlways {
			want = "Failed PreemptingRunning "
		}
		if got := phase("a") + phase("b"); got != want || r.allocated("c") != "1100m" {
			t.Errorf("%s: then a and b are %s, allocated are %s", restart, got, r.allocated("c"))
		}
	}
}

// A critical pod that grows does not wait for the room of another one: the two would wait for each
// other.
func TestCriticalResizeTakesPreemptedRoom(t *testing.T) {
	r := newResizeNode(withRequests(apiPodNamed("a", "u1"), "1", 0),
		withRequests(apiPodNamed("b", "u2"), "400m", 2_000_000_000))
	r.failingCalls = map[string]bool{"StopContainer": true}
	r.apiServer.put(withRequests(apiPodNamed("c", "u3"), "1500m", 2_000_000_000))
	r.advance(time.Second)
	if r.resize("b", "600m"); r.allocated("b") != "600m" {
		t.Errorf("allocated %s, %q", r.allocated("b"), r.pending("b"))
	}
}

// A static pod that waits for room is admitted once a resize leaves room for it.
func TestResizeMakesRoomForPod(t *testing.T) {
	r := newResizeNode(withRequests(apiPodNamed("a", "u1"), "1500m", 2_000_000_000))
	r.manifests = map[string]string{"s.yaml": staticPodRequestingCPU}
	if r.advance(time.Minute); len(r.agent.state.StaticRejections) != 1 {
		t.Fatal("the static pod does not wait")
	}
	r.resize("a", "500m")
	r.advance(5 * time.Second)
	if len(r.agent.state.StaticRejections) > 0 || len(r.containers) != 2 {
		t.Errorf("%v, %d containers", r.agent.state.StaticRejections, len(r.containers))
	}
}

// The room that is preempted for a resize is no room for another pod, nor for its resize.
func TestRoomOfCriticalResizeIsReserved(t *testing.T) {
	r := newResizeNode(withRequests(apiPodNamed("a", "u1"), "1", 0),
		withRequests(apiPodNamed("b", "u2"), "300m", 1),
		withRequests(apiPodNamed("c", "u3"), "400m", 2_000_000_000))
	r.failingCalls = map[string]bool{"StopContainer": true}
	r.resize("c", "1500m")
	r.resize("b", "600m")
	changed := r.apiServer.objects["default/c"].DeepCopy() // another client changes its status
	changed.Status.Message = "x"
	r.apiServer.put(changed)
	r.apiServer.put(withRequests(apiPodNamed("d", "u4"), "300m", 0))
	r.advance(time.Second)
	r.failingCalls = nil
	r.advance(time.Minute)
	status := func(name string) v1.PodStatus { return r.apiServer.objects["default/"+name].Status }
	a, b, d := status("a"), status("b"), status("d")
	if a.Reason != "Preempting" || b.Phase != v1.PodRunning || r.allocated("b") != "300m" ||
		r.allocated("c") != "1500m" || d.Reason != "OutOfcpu" {
		t.Errorf("a is %s, b %s with %s, c has %s, d is %s (%s)", a.Reason, b.Phase, r.allocated("b"),
			r.allocated("c"), d.Phase, d.Reason)
	}
	if r.resize("c", "1600m"); r.allocated("c") != "1600m" || status("b").Phase != v1.PodRunning {
		t.Errorf("then c has %s, b is %s", r.allocated("c"), status("b").Phase)
	}
}

// Room is reserved while a pod waits for it, as long as the pod is to run and asks for it. The list
// of pods that the reservation is added to stays as it is.
func TestReservationOfRoom(t *testing.T) {
	r := newResizeNode(withRequests(apiPodNamed("a", "u1"), "1", 0),
		withRequests(apiPodNamed("c", "u3"), "400m", 2_000_000_000))
	r.failingCalls = map[string]bool{"StopContainer": true}
	counted := func() string {
		var got []string
		pods := r.agent.activePods(nil)
		before := slices.Clone(pods)
		for _, p := range r.agent.withPreemptors(pods) {
			requests := podresources.PodRequests(p, podresources.PodResourcesOptions{})
			got = append(got, p.Name+" "+requests.Cpu().String())
		}
		if !slices.Equal(pods, before) {
			t.Error("the pods themselves are replaced")
		}
		return strings.Join(got, ", ")
	}
	r.resize("c", "1500m")
	if got := counted(); got != "a 1, c 1500m" {
		t.Errorf("while it waits: %s", got)
	}
	object := r.apiServer.objects["default/c"].DeepCopy()
	object.Spec.Containers[0].Resources.Requests["cpu"] = resource.MustParse("400m")
	object.Generation++
	r.apiServer.put(object)
	if r.advance(time.Second); counted() != "a 1, c 400m" {
		t.Errorf("after it was taken back: %s", counted())
	}
	r.resize("c", "1600m")
	r.agent.state.Shutdown.Now = &shutdown.Shutdown{}
	r.advance(resizeRetryPeriod)
	if got := counted(); got != "a 1, c 400m" {
		t.Errorf("while the machine shuts down: %s", got)
	}
	r.agent.state.Shutdown.Now = nil
	r.advance(resizeRetryPeriod)
	if got := counted(); got != "a 1, c 1600m" {
		t.Errorf("afterwards: %s", got)
	}
	r.markDeleted("default/c", 30)
	if r.advance(time.Second); counted() != "a 1, c 400m" {
		t.Errorf("while it ends: %s", counted())
	}
}

// A resize that asks for no more than before is first, whatever the priorities.
func TestOrderOfResizes(t *testing.T) {
	r := newResizeNode(withRequests(apiPodNamed("low", "u1"), "500m", 0),
		withRequests(apiPodNamed("high", "u2"), "500m", 9))
	low, high := r.agent.state.Pods["u1"], r.agent.state.Pods["u2"]
	for _, test := range []struct {
		low, high string
		isLower   bool
	}{{"400m", "600m", true}, {"600m", "600m", false}, {"400m", "400m", false}} {
		low.Resize.Desired = withRequests(low.Spec.DeepCopy(), test.low, 0)
		high.Resize.Desired = withRequests(high.Spec.DeepCopy(), test.high, 9)
		if got := compareResizes(rankResize(low), rankResize(high)); (got < 0) != test.isLower {
			t.Errorf("%+v: %d", test, got)
		}
	}
}

// Of equal resizes the one that waits longest is first; one that was not looked at yet is last.
func TestOrderOfWaitingResizes(t *testing.T) {
	r := newResizeNode(withRequests(apiPodNamed("a", "u1"), "500m", 0),
		withRequests(apiPodNamed("b", "u2"), "500m", 0))
	a, b := r.agent.state.Pods["u1"], r.agent.state.Pods["u2"]
	a.Resize.Desired = withRequests(a.Spec.DeepCopy(), "600m", 0)
	b.Resize.Desired = withRequests(b.Spec.DeepCopy(), "600m", 0)
	since := func(seconds int) *pod.ResizeState {
		if seconds < 0 {
			return nil
		}
		return &pod.ResizeState{Since: time.Unix(int64(seconds), 0)}
	}
	for _, test := range []struct{ a, b, want int }{{1, 2, -1}, {2, 1, 1}, {1, -1, -1}, {-1, 1, 1},
		{-1, -1, 0}, {3, 3, 0}} {
		a.Resize.Pending, b.Resize.Pending = since(test.a), since(test.b)
		if got := compareResizes(rankResize(a), rankResize(b)); got != test.want {
			t.Errorf("%+v: %d", test, got)
		}
	}
}

// Of two resizes of one priority that of a Guaranteed pod is first.
func TestOrderOfResizesByClass(t *testing.T) {
	r := newResizeNode(withRequests(apiPodNamed("a", "u1"), "500m", 0),
		withRequests(apiPodNamed("b", "u2"), "500m", 0))
	burstable, guaranteed := r.agent.state.Pods["u1"], r.agent.state.Pods["u2"]
	for _, p := range []*pod.Pod{burstable, guaranteed} {
		p.Resize.Desired = withRequests(p.Spec.DeepCopy(), "600m", 0)
	}
	resources := &guaranteed.Spec.Spec.Containers[0].Resources
	resources.Requests = v1.ResourceList{"cpu": resource.MustParse("500m"),
		"memory": resource.MustParse("1Mi")}
	resources.Limits = resources.Requests
	if got := compareResizes(rankResize(guaranteed), rankResize(burstable)); got >= 0 {
		t.Errorf("the Guaranteed pod compares as %d", got)
	}
}

// A pod that asks for nothing any more does not change the order of those that wait.
func TestOrderBesideGrantedResize(t *testing.T) {
	r := newResizeNode(withRequests(apiPodNamed("a", "u1"), "500m", 0),
		withRequests(apiPodNamed("b", "u2"), "500m", 0), withRequests(apiPodNamed("c", "u3"), "500m", 9))
	for _, uid := range []string{"u1", "u2", "u3"} {
		r.agent.markResizing(uid)
		if p := r.agent.state.Pods[uid]; uid != "u2" {
			p.Resize.Desired = withRequests(p.Spec.DeepCopy(), "600m", *p.Spec.Spec.Priority)
		}
	}
	if got := strings.Join(r.agent.sortedResizes(), " "); got != "u2 u3 u1" {
		t.Errorf("looked at in the order %s", got)
	}
}

// A pod that is being resized keeps its class when others look for one to preempt, whatever it
// holds meanwhile.
func TestClassOfResizedVictim(t *testing.T) {
	guaranteed := apiPodNamed("a", "u1")
	all := v1.ResourceList{"cpu": resource.MustParse("600m"), "memory": resource.MustParse("16Mi")}
	guaranteed.Spec.Containers[0].Resources = v1.ResourceRequirements{Requests: all, Limits: all}
	burstable := withRequests(apiPodNamed("b", "u2"), "800m", 0)
	burstable.Spec.Containers[0].Resources.Requests["memory"] = resource.MustParse("32Mi")
	r := newResizeNode(guaranteed, burstable)
	larger := r.apiServer.objects["default/a"].DeepCopy()
	larger.Generation++
	for _, list := range []v1.ResourceList{larger.Spec.Containers[0].Resources.Requests,
		larger.Spec.Containers[0].Resources.Limits} {
		list["cpu"] = resource.MustParse("700m")
	}
	r.full = true // it is granted, and not on the disk
	r.apiServer.put(larger)
	if r.advance(time.Second); r.agent.state.Pods["u1"].Resize.Granted == nil {
		t.Fatal("the resize is not granted")
	}
	r.apiServer.put(withRequests(apiPodNamed("c", "u3"), "1", 2_000_000_000))
	r.advance(time.Minute)
	a, b := r.apiServer.objects["default/a"].Status, r.apiServer.objects["default/b"].Status
	if a.Reason != "" || b.Reason != "Preempting" {
		t.Errorf("the guaranteed pod is %s (%s), the other one %s (%s)", a.Phase, a.Reason, b.Phase,
			b.Reason)
	}
}

// What is recorded of pods that are gone is dropped; that of all others stays.
func TestOrphanedResources(t *testing.T) {
	r := newResizeNode(withRequests(apiPodNamed("a", "u1"), "1", 0))
	r.manifests = map[string]string{"s.yaml": staticPodRequestingCPU}
	r.advance(time.Minute)
	static := string(r.agent.state.Manifests.Pods()[0].UID)
	store := &r.agent.state.Allocation.Allocated
	store.Set("gone", allocation.Resources{})
	delete(r.agent.state.Pods, static) // not reconciled yet
	if r.agent.dropOrphanedResources(); store.Get("gone") != nil || store.Get("u1") == nil ||
		store.Get(static) == nil {
		t.Errorf("recorded are %+v", store.Pods)
	}
}

// A pod as a whole is recorded to have what is allocated once its cgroup has it.
func TestActuatedPodAsAWhole(t *testing.T) {
	p := withRequests(apiPodNamed("a", "u1"), "100m", 0)
	p.Spec.Resources = &v1.ResourceRequirements{
		Requests: v1.ResourceList{"cpu": resource.MustParse("1")}}
	r := newResizeNode(p)
	fails, inner := true, r.answer
	r.answer = func(effect any) any {
		if set, isSet := effect.(*world.SetCgroup); isSet && fails {
			return world.Errorf(world.KindInternal, "SetCgroup", "%s: no", set.Path)
		}
		return inner(effect)
	}
	actuated := func() string {
		return r.agent.state.Allocation.Actuated.Get("u1").Resources.Pod.Requests.Cpu().String()
	}
	p = r.apiServer.objects["default/a"].DeepCopy()
	p.Generation++
	p.Spec.Resources.Requests["cpu"] = resource.MustParse("1500m")
	r.apiServer.put(p)
	if r.advance(10 * time.Second); actuated() != "1" {
		t.Errorf("before its cgroup is set: %s", actuated())
	}
	fails = false
	if r.advance(2 * time.Minute); actuated() != "1500m" {
		t.Errorf("then %s", actuated())
	}
}

// A kubelet without the feature records nothing of the resources of a pod as a whole: the pod has
// those that it was created with. A pod that may have been resized was given them, if the feature
// is on.
func TestRecordWithoutPodAsWhole(t *testing.T) {
	r := newResizeNode()
	own := &v1.ResourceRequirements{Requests: v1.ResourceList{"cpu": resource.MustParse("1")}}
	r.agent.state.Allocation.Allocated.Set("u1", allocation.Resources{})
	p := apiPodNamed("a", "u1")
	p.Spec.Resources = own
	for _, test := range []struct {
		generation int64
		features   []string
		known      bool
	}{
		{1, []string{config.FeaturePodLevelResize}, true},
		{2, []string{config.FeaturePodLevelResize}, false},
		{2, nil, true},
	} {
		r.agent.state.NodeObject.Settings.DeclaredFeatures = test.features
		p.Generation = test.generation
		if got := r.agent.allocatedTo(p).Pod; (got == own) != test.known {
			t.Errorf("%+v: %v", test, got)
		}
	}
}

// A pod of which nothing is recorded was not started. If it may have been resized meanwhile, it is
// admitted like any other.
func TestResizedBeforeItsRecord(t *testing.T) {
	r := newResizeNode()
	started := apiPodNamed("a", "u1")
	now := metav1.NewTime(r.now)
	started.Status.StartTime, started.Status.Phase = &now, v1.PodRunning
	for _, test := range []struct {
		generation       int64
		recorded, broken bool
		want             bool
	}{
		{1, false, false, true}, {2, false, false, false},
		{2, true, false, true}, {2, false, true, true},
	} {
		f := &r.agent.state.Allocation.Allocated
		if f.Remove("u1"); test.recorded {
			f.Set("u1", allocation.Resources{})
		}
		started.Generation, f.Unreadable = test.generation, test.broken
		if got := r.agent.wasStarted(started); got != test.want {
			t.Errorf("%+v: %t", test, got)
		}
	}
}

// What a pod requests is summed once for its place among the waiting resizes, and only the
// resources that can be resized.
func TestCostOfSortedResizes(t *testing.T) {
	const count = 64
	r := newResizeNode()
	for i := range count {
		name := fmt.Sprint("p", i)
		p := withRequests(apiPodNamed(name, name), "10m", 0)
		for k := range 1000 {
			p.Spec.Containers[0].Resources.Requests[v1.ResourceName(fmt.Sprint("example.com/r", k))] =
				resource.MustParse("1")
		}
		known := pod.New(p, nil, true, true, r.now)
		known.Resize.Desired = withRequests(p.DeepCopy(), "20m", 0)
		r.agent.addPod(known)
		r.agent.markResizing(name)
	}
	allocations := testing.AllocsPerRun(1, func() { r.agent.sortedResizes() })
	if allocations > 100*count {
		t.Errorf("%v allocations for %d resizes", allocations, count)
	}
}

// A pod over its budget holds nothing of the node, so no resize of it is allocated; a resize beyond
// the budget leaves a pod the room that it has.
func TestResizeBeyondBudget(t *testing.T) {
	p := withRequests(apiPodNamed("a", "u1"), "1500m", 0)
	for i := range budget.ResourcesMax - 1 {
		p.Spec.Containers[0].Resources.Requests[v1.ResourceName(fmt.Sprint("example.com/r", i))] =
			resource.MustParse("1")
	}
	p.Spec.Containers = append(p.Spec.Containers, v1.Container{Name: "b", Image: "i"})
	r := newResizeNode(p)
	larger := r.apiServer.objects["default/a"].DeepCopy()
	larger.Generation++
	larger.Spec.Containers[1].Resources.Requests = v1.ResourceList{"cpu": resource.MustParse("1m"),
		"memory": resource.MustParse("1")}
	r.apiServer.put(larger)
	r.advance(time.Second)
	want := "Infeasible: The pod needs more than one pod may have."
	if got := r.pending("a"); got != want || !r.agent.state.Pods["u1"].HoldsResources() {
		t.Errorf("%q, want %q; it holds resources: %t", got, want,
			r.agent.state.Pods["u1"].HoldsResources())
	}
}

// An agent that is started in the middle of a resize to less counts what the pod still has, before
// it has looked at its containers: another resize is not granted in the same step.
func TestShrinkingPodAfterRestart(t *testing.T) {
	r := newResizeNode(withRequests(apiPodNamed("a", "u1"), "1500m", 0),
		withRequests(apiPodNamed("b", "u2"), "400m", 0))
	r.advance(time.Minute)
	r.keepFiles()
	refused, inner := true, r.answer
	r.answer = func(effect any) any {
		if e, isUpdate := effect.(*runtimeapi.UpdateContainerResourcesRequest); isUpdate && refused &&
			e.Linux.CpuShares == 512 {
			return world.Errorf(world.KindInternal, "UpdateContainerResources", "no")
		}
		return inner(effect)
	}
	r.resize("b", "410m")
	r.resize("a", "500m")
	r.resize("b", "1")
	if r.advance(time.Minute); r.allocated("a") != "500m" || r.allocated("b") != "410m" {
		t.Fatalf("allocated are %s and %s", r.allocated("a"), r.allocated("b"))
	}
	r.podDirs = []string{"u1", "u2"}
	r.restart()
	for range 30 {
		r.advance(time.Second)
		if r.allocated("b") != "410m" {
			t.Fatalf("after a restart %s are allocated, while the other pod still has its own",
				r.allocated("b"))
		}
	}
	refused = false
	if r.advance(2 * time.Minute); r.allocated("b") != "1" || len(r.agent.state.Pods) != 2 ||
		r.agent.state.Pods["u1"].Resize.HeldEarlier != nil {
		t.Errorf("in the end %s are allocated, %q", r.allocated("b"), r.pending("b"))
	}
}

// If the record of what is allocated is lost, a pod that may have been resized has what its
// containers had last.
func TestLostAllocation(t *testing.T) {
	r := newResizeNode()
	p := withRequests(apiPodNamed("a", "u1"), "3", 0)
	p.Spec.Containers[0].Resources.Requests["example.com/x"] = resource.MustParse("1")
	r.agent.state.Allocation.SetActuated("u1", map[string]allocation.Amounts{
		p.Spec.Containers[0].Name: {CPURequest: 2000}}, nil)
	if r.agent.allocatedTo(p) != nil {
		t.Error("a pod that was never resized has another allocation than its spec")
	}
	p.Generation = 2
	requests := r.agent.allocatedTo(p).Containers[p.Spec.Containers[0].Name].Requests
	if x := requests["example.com/x"]; requests.Cpu().String() != "2" || x.Value() != 1 {
		t.Errorf("allocated are %v", requests)
	}
	whole := func(cpu string) *v1.ResourceRequirements {
		return &v1.ResourceRequirements{Requests: v1.ResourceList{"cpu": resource.MustParse(cpu)}}
	}
	if p.Spec.Resources = whole("4"); r.agent.allocatedTo(p).Pod.Requests.Cpu().String() != "4" {
		t.Errorf("nothing is recorded of the whole, allocated are %v", r.agent.allocatedTo(p).Pod)
	}
	r.agent.state.Allocation.SetActuated("u1", nil, whole("3"))
	if got := r.agent.allocatedTo(p).Pod; got.Requests.Cpu().String() != "3" {
		t.Errorf("allocated to the pod as a whole are %v", got)
	}
}

// Room that is being made for a resize stays reserved while another pod may have ended.
func TestReservedRoomWhileAnotherMayHaveEnded(t *testing.T) {
	r := newResizeNode(withRequests(apiPodNamed("a", "u1"), "1", 0),
		withRequests(apiPodNamed("b", "u2"), "300m", 1),
		withRequests(apiPodNamed("c", "u3"), "400m", 2_000_000_000))
	r.failingCalls = map[string]bool{"StopContainer": true, "ContainerStatus": true}
	if r.resize("c", "1500m"); !r.agent.state.Pods["u3"].Resize.MakingRoom {
		t.Fatal("no pod is preempted")
	}
	for _, c := range r.containers {
		if r.sandboxes[c.PodSandboxId].Metadata.Uid == "u2" {
			c.State = runtimeapi.ContainerState_CONTAINER_EXITED
		}
	}
	r.advance(2 * time.Second)
	r.agent.checkResize(r.agent.state.Pods["u3"])
	if s := r.agent.state.Pods["u3"].Resize; !s.AwaitsOther || !s.MakingRoom {
		t.Errorf("awaits another pod: %t, room is reserved: %t", s.AwaitsOther, s.MakingRoom)
	}
}

// A pod is not rejected for what another one has only by the record of an earlier agent.
func TestAdmissionAwaitsWhatIsRecorded(t *testing.T) {
	r := newResizeNode(withRequests(apiPodNamed("a", "u1"), "1500m", 0))
	p := r.agent.state.Pods["u1"]
	recorded := allocation.Of(withRequests(apiPodNamed("a", "u1"), "1900m", 0))
	check := func() Rejection {
		return r.agent.checkAdmission(withRequests(apiPodNamed("b", "u2"), "400m", 0), false,
			r.agent.activePods(nil), false)
	}
	p.HoldEarlier(&recorded)
	if got := check(); got != awaitingOtherPod {
		t.Errorf("before its containers are looked at: %+v", got)
	}
	p.Resize.HeldEarlier = nil
	if got := check(); got != (Rejection{}) {
		t.Errorf("then %+v", got)
	}
}

// A static pod with a UID of its own whose resources have changed while the agent was down keeps
// those that are allocated to it, also if the runtime is listed before the record of them is read:
// what its manifest asks for has to fit like any resize.
func TestStaticPodWaitsForItsRecord(t *testing.T) {
	static := func(cpu string) map[string]string {
		return map[string]string{"s.yaml": strings.ReplaceAll(strings.ReplaceAll(
			staticPodRequestingCPU, `"1"`, `"`+cpu+`"`), "{name: s}", "{name: s, uid: u7}")}
	}
	for _, withServer := range []bool{false, true} {
		r := newResizeNode()
		if !withServer {
			r.fakeNode = newNode(nil)
			r.restart()
		}
		r.manifests = static("500m")
		r.answer = func(any) any { return nil }
		r.keepFiles()
		r.advance(time.Minute)
		inner, failed := r.answer, 0
		r.answer = func(effect any) any {
			if read, isRead := effect.(*world.ReadFiles); isRead && failed < 2 &&
				strings.HasSuffix(read.Path, allocation.AllocatedFile) {
				failed++
				return world.Errorf(world.KindInternal, "ReadFiles", "%s: input/output error", read.Path)
			}
			return inner(effect)
		}
		r.manifests = static("3") // of the two CPUs
		r.restart()
		r.advance(500 * time.Millisecond)
		if p := r.agent.state.Pods["u7"]; p == nil || p.Spec != nil || p.NoLongerDesired {
			t.Errorf("API server: %t: the pod is taken, or ends, before the record is read", withServer)
		}
		r.advance(time.Minute)
		p := r.agent.state.Pods["u7"]
		if got := p.Spec.Spec.Containers[0].Resources.Requests.Cpu().String(); got != "500m" ||
			p.Resize.Pending == nil || len(r.containers) != 1 {
			t.Errorf("API server: %t: allocated %s, waits for %+v, %d containers", withServer, got,
				p.Resize.Pending, len(r.containers))
		}
	}
}

// A resize waits for a pod that may have ended, not for one that ends and makes room anyway.
func TestMayHaveEnded(t *testing.T) {
	r := newResizeNode(apiPodNamed("a", "u1"))
	r.advance(time.Minute)
	p := r.agent.state.Pods["u1"]
	expect := func(want bool, what string) {
		t.Helper()
		if r.agent.mayHaveEnded(apiPodNamed("a", p.UID)) != want {
			t.Errorf("%s: it may have ended: %t", what, !want)
		}
	}
	expect(false, "a pod that runs")
	p.Record.Loaded = false
	expect(true, "a pod whose record is not read")
	p.Stage, p.Containers, p.Sandboxes = pod.Terminating, nil, nil
	expect(false, "a pod that ends")
	if !p.MayBecomeTerminal() {
		t.Error("the pod that ends cannot become terminal")
	}
	delete(r.agent.state.Pods, p.UID)
	expect(false, "a pod that is not known")
}

// A pod that an earlier agent has admitted and not started needs what is allocated to it, whatever
// it has asked for since.
func TestAdmissionByRecordedAllocation(t *testing.T) {
	r := newResizeNode()
	p := withRequests(apiPodNamed("a", "u1"), "100", 0)
	check := func() string {
		return r.agent.checkAdmission(p, false, r.agent.activePods(nil), false).Reason
	}
	if got := check(); got != "OutOfcpu" {
		t.Fatalf("without a record it is rejected with %q", got)
	}
	r.agent.allocate("u1", allocation.Of(withRequests(apiPodNamed("a", "u1"), "1", 0)))
	if got := check(); got != "" {
		t.Errorf("with one it is rejected with %q", got)
	}
}

// A static pod that was admitted and not started counts for others with what is allocated to it,
// whatever its manifest asks for since.
func TestOthersSeeTheRecordedAllocation(t *testing.T) {
	r := newResizeNode()
	p := withRequests(apiPodNamed("a", "u1"), "1", 0)
	r.agent.allocate("u1", allocation.Of(withRequests(apiPodNamed("a", "u1"), "3", 0)))
	active := r.agent.activePods([]*v1.Pod{p})
	if len(active) != 1 || active[0].Spec.Containers[0].Resources.Requests.Cpu().String() != "3" {
		t.Errorf("%+v", active)
	}
}
