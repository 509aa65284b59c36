package core

import (
	"fmt"
	"maps"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"seedlet.dev/world"
)

const staticPodRequestingCPU = `{apiVersion: v1, kind: Pod, metadata: {name: s}, spec: {
  containers: [{name: web, image: i, resources: {requests: {cpu: "1"}}}]}}`

// A pod that runs keeps its resources while the API server is unavailable and the agent does not
// know its spec. A static pod preempts it as soon as it is known which pods can be preempted.
func TestRunningPodKeepsItsResources(t *testing.T) {
	n := bootWithPods(map[string]string{}, withRequests(apiPodNamed("a", "u1"), "1500m", 0))
	n.apiServer.unavailable = true
	n.manifests["s.yaml"] = staticPodRequestingCPU
	n.restart()
	n.advance(time.Minute)
	if len(n.containers) != 1 {
		t.Fatalf("containers %v", n.containers)
	}
	n.apiServer.unavailable = false
	n.restart()
	n.advance(time.Minute)
	if a := n.apiServer.objects["default/a"].Status; a.Reason != "Preempting" || len(n.pods) > 0 {
		t.Errorf("the pod to preempt: %+v", a)
	}
	if s := n.apiServer.objects["default/s-n1"]; s == nil || s.Status.Phase != v1.PodRunning {
		t.Errorf("the static pod: %+v", s)
	}
}

// A static pod that runs counts once also before the agent has its spec from the manifest that it
// has just read.
func TestRunningStaticPodCountsOnce(t *testing.T) {
	n := bootNode(map[string]string{"s.yaml": staticPodRequestingCPU})
	p := n.agent.state.Pods[n.agent.podUIDs[0]]
	spec := p.Spec
	p.Spec = nil
	if got := n.agent.activePods([]*v1.Pod{spec}); len(got) != 1 || got[0] != spec {
		t.Errorf("%d pods count, want the spec once", len(got))
	}
}

// nodeWithoutNodeObject returns a node whose agent does not see its Node. The pod "a" of the API
// server has a node selector that does not match.
func nodeWithoutNodeObject(uid string) *fakeNode {
	n := newNode(nil)
	n.apiServer = newServer()
	n.apiServer.silentWatch = world.ResourceNodes
	p := apiPodNamed("a", uid)
	p.Spec.NodeSelector = map[string]string{"disk": "ssd"}
	n.apiServer.put(p)
	return n
}

// Without an API server a static pod is checked against the Node that the agent would register.
func TestStaticPodOfAnotherNode(t *testing.T) {
	manifest := func(name, label string) string {
		return `{apiVersion: v1, kind: Pod, metadata: {name: ` + name + `}, spec: {nodeSelector: {` +
			label + `}, containers: [{name: web, image: i}]}}`
	}
	n := bootNode(map[string]string{"here.yaml": manifest("here", v1.LabelHostname+": n1"),
		"there.yaml": manifest("there", "disk: ssd")})
	n.advance(5 * time.Second)
	got := map[string]string{}
	for _, p := range n.agent.listServedPods() {
		got[p.Name] = string(p.Status.Phase) + " " + p.Status.Reason
	}
	want := map[string]string{"here-n1": "Running ", "there-n1": "Pending NodeAffinity"}
	if !maps.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}

// A pod that needs a feature of the runtime waits until the runtime has reported its features.
func TestStrictGroupsNeedTheRuntime(t *testing.T) {
	policy := v1.SupplementalGroupsPolicyStrict
	p := apiPodNamed("a", "u1")
	p.Spec.SecurityContext = &v1.PodSecurityContext{SupplementalGroupsPolicy: &policy}
	for _, isSupported := range []bool{false, true} {
		n := newNode(nil)
		n.apiServer = newServer()
		n.apiServer.put(p.DeepCopy())
		n.apiServer.undelivered = nil
		n.failingCalls = map[string]bool{"Status": true}
		n.restart()
		n.advance(5 * time.Second)
		if got := n.apiServer.objects["default/a"].Status; got.Phase != v1.PodPending ||
			len(n.sandboxes) > 0 {
			t.Fatalf("%v, sandboxes %v, before the runtime has reported", got, n.sandboxes)
		}
		n.failingCalls = nil
		n.status.Features = &runtimeapi.RuntimeFeatures{SupplementalGroupsPolicy: isSupported}
		n.advance(10 * time.Second)
		got, want := n.apiServer.objects["default/a"].Status, "SupplementalGroupsPolicyNotSupported"
		if isSupported {
			want = ""
		}
		if got.Reason != want || (got.Phase == v1.PodRunning) != isSupported {
			t.Errorf("supported %v: %+v", isSupported, got)
		}
	}
}

// A pod that needs a feature which the node does not declare fails, unless the gate is off.
func TestUndeclaredFeature(t *testing.T) {
	p := apiPodNamed("a", "u1")
	p.Spec.HostNetwork, p.Spec.HostUsers = true, new(bool)
	n := bootWithPods(nil, p)
	n.advance(5 * time.Second)
	if got := n.apiServer.objects["default/a"].Status; got.Phase != v1.PodFailed ||
		got.Reason != "PodFeatureUnsupported" {
		t.Errorf("%+v", got)
	}
	n = newNode(nil)
	n.restart()
	n.agent.state.ChecksFeatures = false
	if got := n.agent.permanentRejection(p); got != (Rejection{}) {
		t.Errorf("without the gate: %+v", got)
	}
}

// Of two reasons the one counts that the kubelet checks first.
func TestOrderOfPermanentRejections(t *testing.T) {
	inOrder := []struct {
		reason string
		set    func(*v1.Pod)
	}{
		{"Refused", func(p *v1.Pod) {
			p.Spec.ResourceClaims = []v1.PodResourceClaim{{Name: "x"}}
		}},
		{"SysctlForbidden", func(p *v1.Pod) {
			p.Spec.SecurityContext.Sysctls = []v1.Sysctl{{Name: "kernel.msgmax", Value: "1"}}
		}},
		{"PodOSSelectorNodeLabelDoesNotMatch", func(p *v1.Pod) {
			p.Labels = map[string]string{v1.LabelOSStable: "windows"}
		}},
		{"PodOSNotSupported", func(p *v1.Pod) { p.Spec.OS = &v1.PodOS{Name: v1.Windows} }},
		{"AppArmor", func(p *v1.Pod) {
			p.Spec.SecurityContext.AppArmorProfile = &v1.AppArmorProfile{
				Type: v1.AppArmorProfileTypeRuntimeDefault}
		}},
		{"PodFeatureUnsupported", func(p *v1.Pod) {
			p.Spec.HostNetwork, p.Spec.HostUsers = true, new(bool)
		}},
		{"OutOfcpu", func(p *v1.Pod) {
			p.Spec.Containers[0].Resources.Requests = v1.ResourceList{
				v1.ResourceCPU: resource.MustParse("1000")}
		}},
	}
	for i, first := range inOrder {
		for _, second := range inOrder[i+1:] {
			p := apiPodNamed("a", "u1")
			p.Spec.SecurityContext = &v1.PodSecurityContext{}
			second.set(p)
			first.set(p)
			n := bootWithPods(nil, p)
			n.advance(5 * time.Second)
			if got := n.apiServer.objects["default/a"].Status; got.Reason != first.reason {
				t.Errorf("%s and %s: %s %q", first.reason, second.reason, got.Reason, got.Message)
			}
		}
	}
}

// No pod that may not fit the Node is admitted before it is known what the Node is.
func TestPodsWaitForTheNode(t *testing.T) {
	n := nodeWithoutNodeObject("u1")
	n.apiServer.put(apiPodNamed("b", "u2"))
	n.apiServer.undelivered = nil
	n.restart()
	n.advance(time.Minute)
	if len(n.containers) > 0 || n.apiServer.objects["default/a"].Status.Phase != v1.PodPending {
		t.Fatalf("containers %v, writes %q", n.containers, n.apiServer.writes)
	}
	n.apiServer.silentWatch = ""
	n.restart()
	n.advance(time.Minute)
	if got := n.apiServer.objects["default/a"].Status; got.Reason != "NodeAffinity" ||
		len(n.containers) != 1 {
		t.Errorf("containers %v, status %+v", n.containers, got)
	}
}

// While the Node does not exist a pod is checked against the Node that the agent registers.
func TestAdmissionWithoutANodeObject(t *testing.T) {
	n := newNode(nil)
	n.apiServer = newServer()
	n.apiServer.node, n.apiServer.nodeWrites.nodeCallsTimeOut = nil, true
	for name, labels := range map[string]map[string]string{"a": {"disk": "ssd"},
		"b": {v1.LabelHostname: "n1"}} {
		p := apiPodNamed(name, "u-"+name)
		p.Spec.NodeSelector = labels
		n.apiServer.put(p)
	}
	n.apiServer.undelivered = nil
	n.restart()
	n.advance(5 * time.Second)
	if got := n.apiServer.objects["default/a"].Status; got.Reason != "NodeAffinity" {
		t.Errorf("a pod of another node: %+v", got)
	}
	if got := n.apiServer.objects["default/b"].Status; got.Phase != v1.PodRunning {
		t.Errorf("a pod of this node: %+v", got)
	}
}

// Pods that come before the event of the Node's new label are admitted: the Node is read once for
// all of them. While it cannot be read they wait, and say so.
func TestNodeIsReadBeforeItsLabelsReject(t *testing.T) {
	for _, isLabeled := range []bool{true, false} {
		n := bootWithPods(nil)
		if isLabeled { // without an event
			n.apiServer.node = n.apiServer.node.DeepCopy()
			n.apiServer.node.Labels = map[string]string{"disk": "ssd"}
		}
		n.apiServer.nodeWrites.nodeCallsTimeOut = true
		reads := 0
		n.apiServer.onEffect = func(effect any) {
			if get, ok := effect.(*world.GetObject); ok && get.Resource == world.ResourceNodes {
				reads++
			}
		}
		const pods = 60
		for i := range pods {
			p := apiPodNamed(fmt.Sprint("p", i), fmt.Sprint("u", i))
			p.Spec.NodeSelector = map[string]string{"disk": "ssd"}
			n.apiServer.put(p)
		}
		n.advance(time.Minute)
		for name, p := range n.apiServer.objects {
			if p.Status.Phase != v1.PodPending || !strings.Contains(p.Status.Message, "read the Node") {
				t.Fatalf("%s without an answer: %+v", name, p.Status)
			}
		}
		n.restart() // in the middle: the pods wait again
		n.advance(30 * time.Second)
		n.apiServer.nodeWrites.nodeCallsTimeOut, reads = false, 0
		n.advance(time.Minute)
		want := "Failed NodeAffinity"
		if isLabeled {
			want = "Running "
		}
		for name, p := range n.apiServer.objects {
			if got := string(p.Status.Phase) + " " + p.Status.Reason; got != want {
				t.Fatalf("%s: %s, want %s: %s", name, got, want, p.Status.Message)
			}
		}
		if reads > 3 || reads == 0 && !isLabeled { // the new agent's watch has the label
			t.Errorf("the Node was read %d times", reads)
		}
	}
}

// countReadsOfNode counts the reads of the Node, and the statuses which say that a pod waits for
// it.
func countReadsOfNode(n *fakeNode) (reads, waits *int) {
	reads, waits = new(int), new(int)
	n.apiServer.onEffect = func(effect any) {
		switch e := effect.(type) {
		case *world.GetObject:
			if e.Resource == world.ResourceNodes {
				*reads++
			}
		case *world.PatchObject:
			if strings.Contains(string(e.Patch), "waiting to read the Node") {
				*waits++
			}
		}
	}
	return reads, waits
}

// putPodForLabel puts a pod that selects a label of the Node.
func putPodForLabel(n *fakeNode) *v1.Pod {
	p := apiPodNamed("a", "u1")
	p.Spec.NodeSelector = map[string]string{"disk": "ssd"}
	return n.apiServer.put(p)
}

// deliver delivers a version of a pod at once, before anything else happens.
func deliver(n *fakeNode, p *v1.Pod) {
	n.apiServer.undelivered = nil
	n.event(world.Event{Body: &world.ObjectChanged{Watch: n.apiServer.watch,
		Object: world.Object{Pod: p}}})
}

// labelNode gives the Node the label, without an event.
func labelNode(n *fakeNode) {
	n.apiServer.node = n.apiServer.node.DeepCopy()
	n.apiServer.node.Labels = map[string]string{"disk": "ssd"}
	n.apiServer.version++
	n.apiServer.node.ResourceVersion = fmt.Sprint(n.apiServer.version)
}

// The answer of a read decides, whatever the watch has reported: nothing, no Node, or an older one.
// An answer from before the pod was seen does not.
func TestReadOfNodeDecides(t *testing.T) {
	for _, watch := range []string{"an older Node", "no Node"} {
		n := bootWithPods(nil)
		if watch == "no Node" {
			w := n.agent.state.Objects.Watch(n.agent.nodeWatch())
			clear(w.Objects)
		}
		labelNode(n)
		reads, waits := countReadsOfNode(n)
		putPodForLabel(n)
		n.advance(time.Second)
		if got := n.apiServer.objects["default/a"].Status; got.Phase == v1.PodFailed || *reads != 1 ||
			*waits != 0 {
			t.Errorf("the watch has %s: %d reads, %d statuses, then %s %s", watch, *reads, *waits,
				got.Phase, got.Reason)
		}
	}
	n := bootWithPods(nil)
	labelNode(n)
	n.agent.state.NodeObject.Answered = n.agent.state.Ops.LastID // by the newest operation
	deliver(n, putPodForLabel(n))
	n.advance(time.Second)
	if got := n.apiServer.objects["default/a"].Status; got.Phase == v1.PodFailed {
		t.Errorf("an answer from before decides: %s %s", got.Phase, got.Reason)
	}
}

// The versions of an API server that was restored from a backup are lower than before. Pods are
// admitted by the Node that it has now.
func TestAdmissionAfterRestoreOfServer(t *testing.T) {
	n := bootWithPods(nil)
	n.apiServer.version = 5_000_000
	labelNode(n)
	observeNode(n)
	n.advance(time.Second)
	n.apiServer.node.Labels, n.apiServer.version = nil, 3
	labelNode(n)
	observeNode(n)
	putPodForLabel(n)
	n.advance(5 * time.Second)
	if got := n.apiServer.objects["default/a"].Status; got.Phase != v1.PodRunning {
		t.Errorf("%s %s: %s", got.Phase, got.Reason, got.Message)
	}
}

// observeNode has the watch report the Node.
func observeNode(n *fakeNode) {
	n.event(world.Event{Body: &world.ObjectChanged{
		Watch:  n.agent.state.Objects.Watch(n.agent.nodeWatch()).ID,
		Object: world.Object{Node: n.apiServer.node}}})
}

// An agent that is restored while the Node is read, or between two reads, decides by the answer,
// although no event follows.
func TestRestoredWhileNodeIsRead(t *testing.T) {
	restore := func(n *fakeNode) {
		data, err := n.agent.Snapshot()
		if err != nil {
			t.Fatal(err)
		}
		if n.agent, err = Restore(data); err != nil {
			t.Fatal(err)
		}
	}
	for _, isLabeled := range []bool{false, true} {
		for _, fails := range []bool{false, true} {
			n := bootWithPods(nil)
			if isLabeled {
				labelNode(n)
			}
			n.apiServer.nodeWrites.nodeCallsTimeOut = fails
			if !fails {
				n.apiServer.onEffect = func(effect any) {
					get, ok := effect.(*world.GetObject)
					if ok && get.Resource == world.ResourceNodes {
						restore(n)
					}
				}
			}
			putPodForLabel(n)
			n.advance(time.Second)
			if fails {
				restore(n)
				n.apiServer.nodeWrites.nodeCallsTimeOut = false
			}
			n.advance(8 * time.Second)
			want := v1.PodFailed
			if isLabeled {
				want = v1.PodRunning
			}
			if got := n.apiServer.objects["default/a"].Status; got.Phase != want {
				t.Errorf("labeled %v, the first read fails %v: %s %s %s", isLabeled, fails, got.Phase,
					got.Reason, got.Message)
			}
		}
	}
}

// A pod that is deleted while it waits for the Node waits no longer.
func TestDeletedWhileNodeIsRead(t *testing.T) {
	n := bootWithPods(nil)
	n.apiServer.nodeWrites.nodeCallsTimeOut = true
	p := putPodForLabel(n)
	n.advance(time.Second)
	if !n.agent.isNodeAwaited() {
		t.Fatal("the pod does not wait")
	}
	p = p.DeepCopy()
	at, grace := metav1.NewTime(n.now.Add(30*time.Second)), int64(30)
	p.DeletionTimestamp, p.DeletionGracePeriodSeconds = &at, &grace
	deliver(n, n.apiServer.put(p))
	if n.agent.isNodeAwaited() {
		t.Error("a deleted pod waits for the Node")
	}
}

// A late sandbox, which an earlier agent requested, does not admit a pod that awaits admission.
func TestLateSandboxDoesNotAdmitItsPod(t *testing.T) {
	n := nodeWithoutNodeObject("u1")
	n.apiServer.undelivered = nil
	n.restart()
	n.advance(5 * time.Second)
	n.perform(&runtimeapi.RunPodSandboxRequest{Config: &runtimeapi.PodSandboxConfig{
		Metadata: &runtimeapi.PodSandboxMetadata{Name: "a", Namespace: "default", Uid: "u1"},
	}})
	n.apiServer.onEffect = func(effect any) {
		if _, ok := effect.(*runtimeapi.StopPodSandboxRequest); ok { // then the Node becomes known
			watch := n.agent.state.Objects.Watch(n.agent.nodeWatch())
			n.apiServer.undelivered = append(n.apiServer.undelivered, &world.ObjectsListed{Watch: watch.ID,
				Objects: []world.Object{{Node: n.apiServer.node}}})
		}
	}
	n.advance(time.Minute)
	if got := n.apiServer.objects["default/a"].Status; got.Reason != "NodeAffinity" ||
		len(n.containers)+len(n.sandboxes) > 0 {
		t.Errorf("%v, %v, status %+v", n.sandboxes, n.containers, got)
	}
}

// A pod that has ended, but whose end no agent has reported, takes no resources after a restart.
func TestAdmissionWaitsForPodsThatMayHaveEnded(t *testing.T) {
	ended := withRequests(apiPodNamed("a", "u1"), "1500m", 0)
	ended.Spec.RestartPolicy = v1.RestartPolicyNever
	n := bootWithPods(nil, ended)
	for _, c := range n.containers {
		c.State = runtimeapi.ContainerState_CONTAINER_EXITED
	}
	for _, s := range n.sandboxes {
		s.State = runtimeapi.PodSandboxState_SANDBOX_NOTREADY
	}
	n.apiServer.put(withRequests(apiPodNamed("b", "u2"), "1500m", 0))
	n.apiServer.undelivered = nil
	waited := false
	n.apiServer.onEffect = func(effect any) {
		patch, ok := effect.(*world.PatchObject)
		waited = waited || ok && patch.Name == "b" &&
			strings.Contains(string(patch.Patch), awaitingOtherPod.Message)
	}
	n.restart()
	n.advance(time.Minute)
	if !waited || n.apiServer.objects["default/b"].Status.Message != "" {
		t.Errorf("reported as waiting: %v; then %+v", waited, n.apiServer.objects["default/b"].Status)
	}
	if got := n.apiServer.objects["default/b"].Status; got.Phase != v1.PodRunning {
		t.Errorf("the new pod is %s (%s), writes %q", got.Phase, got.Reason, n.apiServer.writes)
	}
}

// Pods that an earlier agent has started come first, then those that it has admitted, then older
// pods.
func TestSortForAdmission(t *testing.T) {
	at := func(name, uid string, second int) *v1.Pod {
		p := apiPodNamed(name, uid)
		p.CreationTimestamp = metav1.Unix(int64(second), 0)
		return p
	}
	admitted, started := at("y", "u4", 4), at("z", "u3", 3)
	admitted.Status.StartTime = &metav1.Time{Time: time.Unix(4, 0)}
	started.Status.StartTime, started.Status.Phase = admitted.Status.StartTime, v1.PodRunning
	n := newNode(nil)
	n.apiServer = newServer()
	n.apiServer.silentWatch = world.ResourceNodes // so that none of them is admitted yet
	for _, p := range []*v1.Pod{at("a", "u1", 2), at("b", "u2", 1), admitted, started} {
		n.apiServer.put(p)
	}
	n.apiServer.undelivered = nil
	n.restart()
	got := n.agent.sortForAdmission([]string{"default/a", "default/b", "default/y", "default/z"})
	if want := []string{"default/z", "default/y", "default/b", "default/a"}; !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}

// A pod with a directory was admitted by an earlier agent, even if neither the runtime nor the API
// server shows that. No new pod is admitted before the directories have been listed.
func TestPodWithDirectoryIsNotAdmittedAgain(t *testing.T) {
	for _, test := range []struct {
		podDirs []string
		broken  bool
		want    v1.PodPhase
	}{
		{nil, false, v1.PodFailed}, {[]string{"u1"}, false, v1.PodRunning},
		{[]string{"u1"}, true, v1.PodPending},
	} {
		n := newNode(nil)
		n.apiServer, n.podDirs = newServer(), test.podDirs
		n.failingCalls = map[string]bool{"ListDir": test.broken}
		n.apiServer.put(withRequests(apiPodNamed("a", "u1"), "3", 0))
		n.apiServer.undelivered = nil
		n.restart()
		n.advance(time.Minute)
		if got := n.apiServer.objects["default/a"].Status; got.Phase != test.want {
			t.Errorf("directories %v, listing fails %v: %s %s", test.podDirs, test.broken, got.Phase,
				got.Reason)
		}
	}
}

// A pod that an earlier agent has admitted and not started is admitted again: what other pods have
// been admitted since may leave no room for it. One of which a container was created stays.
func TestPodIsAdmittedAgainUntilItHasStarted(t *testing.T) {
	start := metav1.Unix(1, 0)
	created := []v1.ContainerStatus{{Name: "app", ContainerID: "containerd://c"}}
	restarted := []v1.ContainerStatus{{Name: "app", RestartCount: 1}}
	for _, test := range []struct {
		name   string
		status v1.PodStatus
		want   v1.PodPhase
	}{
		{"admitted", v1.PodStatus{Phase: v1.PodPending, StartTime: &start}, v1.PodFailed},
		{"created", v1.PodStatus{Phase: v1.PodPending, ContainerStatuses: created}, v1.PodRunning},
		{"restarted", v1.PodStatus{Phase: v1.PodPending, ContainerStatuses: restarted}, v1.PodRunning},
		{"init", v1.PodStatus{Phase: v1.PodPending, InitContainerStatuses: created}, v1.PodRunning},
		{"debugged", v1.PodStatus{Phase: v1.PodPending, EphemeralContainerStatuses: created},
			v1.PodRunning},
		{"running", v1.PodStatus{Phase: v1.PodRunning, StartTime: &start}, v1.PodRunning},
	} {
		n := newNode(nil)
		n.apiServer = newServer()
		p := withRequests(apiPodNamed("a", "u1"), "3", 0)
		p.Status = test.status
		n.apiServer.put(p)
		n.apiServer.undelivered = nil
		n.restart()
		n.advance(time.Minute)
		if got := n.apiServer.objects["default/a"].Status; got.Phase != test.want {
			t.Errorf("%s: %s %s", test.name, got.Phase, got.Reason)
		}
	}
}

// A pod that an earlier agent has admitted does not fail for a condition that it has left.
func TestAdmittedPodIsKeptUnderPressure(t *testing.T) {
	start := metav1.Unix(1, 0)
	for _, isAdmitted := range []bool{true, false} {
		n := newNode(nil)
		n.apiServer = newServer()
		n.restart()
		for i := range n.apiServer.node.Status.Conditions {
			if c := &n.apiServer.node.Status.Conditions[i]; c.Type == v1.NodeDiskPressure {
				c.Status = v1.ConditionTrue
			}
		}
		p := apiPodNamed("a", "u1")
		if p.Status.Phase = v1.PodPending; isAdmitted {
			p.Status.StartTime = &start
		}
		n.apiServer.put(p)
		n.apiServer.undelivered = nil
		n.restart()
		n.advance(20 * time.Second)
		got := n.apiServer.objects["default/a"].Status
		if (got.Phase == v1.PodRunning) != isAdmitted {
			t.Errorf("admitted %t: %s %s", isAdmitted, got.Phase, got.Message)
		}
	}
}

// withResourceClaim returns a pod with a field that is not supported.
func withResourceClaim(p *v1.Pod) *v1.Pod {
	p.Spec.ResourceClaims = []v1.PodResourceClaim{{Name: "x"}}
	return p
}

// No status, and no directory, starts a pod that can never be run as specified. Its deletion works.
func TestUnsupportedAPIPodIsRejectedWhateverItsStatus(t *testing.T) {
	started := metav1.Unix(1, 0)
	for _, c := range []struct {
		name    string
		status  v1.PodStatus
		podDirs []string
	}{
		{"new", v1.PodStatus{Phase: v1.PodPending}, nil},
		{"started", v1.PodStatus{Phase: v1.PodRunning, StartTime: &started}, nil},
		{"with a directory", v1.PodStatus{Phase: v1.PodPending}, []string{"u1"}},
		{"ended", v1.PodStatus{Phase: v1.PodSucceeded, StartTime: &started}, nil},
	} {
		n := newNode(nil)
		n.apiServer, n.podDirs = newServer(), c.podDirs
		p := withResourceClaim(apiPodNamed("a", "u1"))
		p.Status = c.status
		n.apiServer.put(p)
		n.apiServer.undelivered = nil
		n.restart()
		n.advance(time.Minute)
		got := n.apiServer.objects["default/a"].Status
		if len(n.sandboxes) > 0 || len(n.agent.state.Pods) > 0 && c.status.Phase != v1.PodSucceeded {
			t.Errorf("%s: sandboxes %v, status %+v", c.name, n.sandboxes, got)
		}
		if want := c.status.Phase == v1.PodSucceeded; want != (got.Phase == v1.PodSucceeded) ||
			want == (got.Reason == "Refused") {
			t.Errorf("%s: status %+v", c.name, got)
		}
		if calls := n.takeCalls(); calls != "" {
			t.Errorf("%s: %s", c.name, calls)
		}
		if !n.agent.housekeepingEnv().IsKnownPod("u1") {
			t.Errorf("%s: its directory counts as orphaned", c.name)
		}
		n.markDeleted("default/a", 1)
		n.advance(time.Minute)
		if n.apiServer.objects["default/a"] != nil || len(n.agent.state.Pods) > 0 {
			t.Errorf("%s: not deleted: %+v", c.name, n.apiServer.objects["default/a"])
		}
	}
}

// An agent that takes over a node leaves what runs of pods alone that it can never run as
// specified, until they are no longer desired.
func TestTakenOverPodThatCannotRun(t *testing.T) {
	n := bootWithPods(nil, apiPodNamed("a", "u1"), apiPodNamed("b", "u2"))
	n.advance(time.Minute)
	if len(n.containers) != 2 {
		t.Fatalf("containers %v", n.containers)
	}
	for _, name := range []string{"default/a", "default/b"} {
		withResourceClaim(n.apiServer.objects[name]) // a kubelet could have started it
	}
	n.takeCalls()
	n.restart()
	n.advance(10 * time.Minute) // some relists
	if got := n.takeCalls(); got != "" || len(n.containers) != 2 {
		t.Fatalf("a take-over led to %q", got)
	}
	if got := n.apiServer.objects["default/a"].Status; got.Phase != v1.PodRunning {
		t.Errorf("status %+v", got)
	}
	n.markDeleted("default/a", 1)
	n.advance(time.Minute)
	if n.apiServer.objects["default/a"] != nil || len(n.containers) != 1 {
		t.Errorf("a deletion leaves %v, %v", n.apiServer.objects["default/a"], n.containers)
	}
	n.apiServer.remove("default/b")
	n.advance(time.Minute)
	if len(n.containers) != 0 {
		t.Errorf("a removal leaves %v", n.containers)
	}
}

// The same for a static pod.
func TestTakenOverStaticPodThatCannotRun(t *testing.T) {
	manifest := func(more string) map[string]string {
		return map[string]string{"s.yaml": `{apiVersion: v1, kind: Pod, metadata: {name: s, uid: u},
		  spec: {containers: [{name: web, image: i` + more + `}]}}`}
	}
	n := bootUnsupporting(manifest(""))
	n.advance(time.Minute)
	n.takeCalls()
	n.manifests = manifest(", " + unsupported)
	n.restart()
	n.advance(10 * time.Minute)
	if got := n.takeCalls(); got != "" || len(n.containers) != 1 {
		t.Errorf("a take-over led to %q", got)
	}
}

// The status of a rejected pod is its rejection, also after the watch has shown it to the agent,
// and after a restart: it is written once, and has no containers.
func TestRejectionIsTheWholeStatus(t *testing.T) {
	n := bootWithPods(nil, withRequests(apiPodNamed("a", "u1"), "64", 0))
	n.advance(time.Minute)
	n.restart()
	n.advance(time.Minute)
	got := n.apiServer.objects["default/a"].Status
	if got.Phase != v1.PodFailed || got.Reason != "OutOfcpu" || got.StartTime == nil ||
		len(got.ContainerStatuses)+len(got.Conditions) > 0 || got.HostIP != "" {
		t.Errorf("%+v", got)
	}
	count := 0
	for _, write := range n.apiServer.writes {
		if strings.HasPrefix(write, "a ") {
			count++
		}
	}
	if count != 1 {
		t.Errorf("written %q", n.apiServer.writes)
	}
}

// Each pod that is checked asks for the pods that others are preempted for. Pods that are rejected
// for another reason cost it nothing but a look.
func TestPreemptorsAmongManyRejections(t *testing.T) {
	n := bootWithPods(nil)
	n.agent.state.APIRejections = map[string]Rejection{}
	for i := range 10_000 {
		n.agent.setRejection(fmt.Sprint("u", i), failedRejection("OutOfpods", "full"))
	}
	if allocations := testing.AllocsPerRun(5, func() { n.agent.preemptors() }); allocations > 0 {
		t.Errorf("%v allocations, although there is none", allocations)
	}
}

// A pod that comes while the pods of a list wait for their turn is sorted with them: the oldest
// pods have the room.
func TestLaterPodIsSortedWithThoseThatWait(t *testing.T) {
	const pods = 3 * apiPodsPerStep
	n := bootWithPods(nil)
	list := &world.ObjectsListed{Watch: n.apiServer.watch}
	at := func(i int, name string) *v1.Pod {
		p := apiPodNamed(name, name)
		p.CreationTimestamp = metav1.Time{Time: time.Unix(int64(1000+i), 0)}
		return p
	}
	for i := range pods {
		list.Objects = append(list.Objects, world.Object{Pod: at(i, fmt.Sprintf("p%03d", i))})
	}
	n.agent.Step(world.Event{Time: n.now, Body: list})
	n.agent.Step(world.Event{Time: n.now, Body: &world.ObjectChanged{Watch: n.apiServer.watch,
		Object: world.Object{Pod: at(-1, "oldest")}}})
	pending := n.agent.state.PendingAPIPods
	isNext := len(pending) > 0 && pending[0] == "default/oldest"
	if n.agent.state.APIPodUIDs["default/oldest"] == "" && !isNext {
		t.Errorf("%d pods wait, the first is %v", len(pending), pending[:min(1, len(pending))])
	}
}

// Of the pods that wait for their turn, one that changes keeps its place, unless it has become
// older or is one that runs already; a new one comes behind those of its age.
func TestChangedPodKeepsItsTurn(t *testing.T) {
	n := bootWithPods(nil)
	at := func(second int, name string) *v1.Pod {
		p := apiPodNamed(name, name)
		p.CreationTimestamp = metav1.Time{Time: time.Unix(int64(second), 0)}
		return p
	}
	list := &world.ObjectsListed{Watch: n.apiServer.watch}
	for i := range 100 {
		list.Objects = append(list.Objects, world.Object{Pod: at(1000+i/10, fmt.Sprintf("p%02d", i))})
	}
	n.agent.Step(world.Event{Time: n.now, Body: list})
	s := &n.agent.state
	for _, test := range []struct {
		pod    *v1.Pod
		before string // the name of the pod that has the turn after it
	}{
		{at(1005, "p55"), "p56"},
		{at(1005, "new"), "p60"},
		{at(1007, "p54"), "p80"},
		{at(1004, "p95"), "p50"},
		{at(2000, "last"), ""},
	} {
		s.Objects.HandleWatchEvent(&world.ObjectChanged{Watch: n.apiServer.watch,
			Object: world.Object{Pod: test.pod}}, n.now)
		n.agent.keepPending([]string{"default/" + test.pod.Name}, n.now)
		i := slices.Index(s.PendingAPIPods, "default/"+test.pod.Name)
		next := append(s.PendingAPIPods[i+1:len(s.PendingAPIPods):len(s.PendingAPIPods)], "default/")[0]
		if i < 0 || next != "default/"+test.before {
			t.Errorf("%s: place %d, before %s; want before %q", test.pod.Name, i, next, test.before)
		}
	}
	// A pod that is removed has no place any more, and hides none from a search.
	s.Objects.HandleWatchEvent(&world.ObjectGone{Watch: n.apiServer.watch,
		Object: world.Object{Pod: at(1006, "p66")}}, n.now)
	n.agent.keepPending([]string{"default/p66"}, n.now)
	s.Objects.HandleWatchEvent(&world.ObjectChanged{Watch: n.apiServer.watch,
		Object: world.Object{Pod: at(1, "oldest")}}, n.now)
	n.agent.keepPending([]string{"default/oldest"}, n.now)
	if i := slices.Index(s.PendingAPIPods, "default/oldest"); i != 0 ||
		slices.Contains(s.PendingAPIPods, "default/p66") {
		t.Errorf("the oldest pod has place %d of %v", i, s.PendingAPIPods)
	}
	waiting := slices.Clone(s.PendingAPIPods)
	if n.agent.sortForAdmission(s.PendingAPIPods); !slices.Equal(waiting, s.PendingAPIPods) {
		t.Errorf("not in the order of admission: %v", waiting)
	}
}

// The pods of a list that are rejected are held against the pods of the node, which are collected
// once for all of them.
func TestRejectionsCollectActivePodsOnce(t *testing.T) {
	step := func(active int) uint64 {
		n := newNode(nil)
		n.apiServer, n.podsMax, n.stepsMax = newServer(), active, 1_000_000
		putPods(n, active, func(*v1.Pod) {})
		n.restart()
		n.advance(5 * time.Second)
		if len(n.sandboxes) != active {
			t.Fatalf("%d of %d pods run", len(n.sandboxes), active)
		}
		w := n.agent.state.Objects.Watch(podsWatch)
		list := &world.ObjectsListed{Watch: n.apiServer.watch}
		for _, object := range w.Objects { //ordered: the agent sorts them
			list.Objects = append(list.Objects, object)
		}
		for i := range apiPodsPerStep {
			name := fmt.Sprint("rejected", i)
			list.Objects = append(list.Objects, world.Object{Pod: apiPodNamed(name, name)})
		}
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		n.agent.Step(world.Event{Time: n.now, Body: list})
		for len(n.agent.state.PendingAPIPods) > 0 {
			n.agent.Step(world.Event{Time: n.now})
		}
		runtime.ReadMemStats(&after)
		if got := len(n.agent.state.APIRejections); got != apiPodsPerStep {
			t.Fatalf("%d pods are rejected", got)
		}
		return after.TotalAlloc - before.TotalAlloc
	}
	few, many := step(10), step(310)
	if perPod := (float64(many) - float64(few)) / 300; perPod > 1500 {
		t.Errorf("%.0f bytes for an active pod", perPod)
	} else {
		t.Logf("%.0f bytes for an active pod", perPod)
	}
}
