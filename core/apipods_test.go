package core

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"seedlet.dev/world"
)

func TestAPIPodRunsAndIsReported(t *testing.T) {
	n := bootWithPods(nil, apiPodNamed("web", "u1"))
	if got := n.apiServer.objects["default/web"].Status; got.Phase != v1.PodRunning ||
		len(got.ContainerStatuses) != 1 || got.ContainerStatuses[0].State.Running == nil {
		t.Errorf("status %+v", got)
	}
	wrote := len(n.apiServer.writes)
	n.advance(time.Minute)
	if n.apiServer.writes = n.apiServer.writes[wrote:]; len(n.apiServer.writes) > 0 {
		t.Errorf("written at rest: %q", n.apiServer.writes)
	}
}

func TestStatusHasObservedGeneration(t *testing.T) {
	web := apiPodNamed("web", "u1")
	web.Generation = 3
	status := bootWithPods(nil, web).apiServer.objects["default/web"].Status
	if status.ObservedGeneration != 3 {
		t.Errorf("the status is of generation %d", status.ObservedGeneration)
	}
	for _, c := range status.Conditions {
		if c.ObservedGeneration != 3 {
			t.Errorf("condition %s is of generation %d", c.Type, c.ObservedGeneration)
		}
	}
}

func TestDeletedPodIsTerminalBeforeItsRemoval(t *testing.T) {
	n := bootWithPods(nil, apiPodNamed("web", "u1"))
	n.apiServer.writes = nil
	n.markDeleted("default/web", 5)
	last := n.apiServer.writes[max(0, len(n.apiServer.writes)-2):]
	if d := cmp.Diff([]string{"web Succeeded", "delete web"}, last); d != "" {
		t.Errorf("%s in %q", d, n.apiServer.writes)
	}
	if len(n.sandboxes)+len(n.containers)+len(n.agent.state.Pods) > 0 ||
		len(n.agent.state.StatusWriter.Entries)+len(n.agent.state.APIPodUIDs) > 0 {
		t.Errorf("left: %v %v %v", n.sandboxes, n.containers, n.agent.state.APIPodUIDs)
	}
}

func TestPodIsKeptUntilItsLastStatusIsWritten(t *testing.T) {
	n := bootWithPods(nil, apiPodNamed("web", "u1"))
	n.apiServer.unavailable = true
	n.markDeleted("default/web", 1)
	if len(n.containers) != 1 {
		t.Fatal("the container was removed before its exit was reported")
	}
	n.apiServer.unavailable = false
	n.advance(2 * time.Minute)
	if len(n.apiServer.objects)+len(n.containers) > 0 {
		t.Errorf("left: %v, %v", n.apiServer.objects, n.containers)
	}
}

func TestTerminalPodStaysTerminal(t *testing.T) {
	p := apiPodNamed("web", "u1")
	p.Status.Phase = v1.PodFailed
	n := bootWithPods(nil, p)
	if len(n.containers) > 0 || n.apiServer.objects["default/web"].Status.Phase != v1.PodFailed {
		t.Errorf("a terminal pod runs again: %v, %q", n.containers, n.apiServer.writes)
	}
}

func TestForcedDeletionTerminatesThePod(t *testing.T) {
	n := bootWithPods(nil, apiPodNamed("web", "u1"))
	n.apiServer.remove("default/web")
	n.apiServer.put(apiPodNamed("web", "u2"))
	n.apiServer.writes = nil
	n.advance(time.Minute)
	if len(n.containers) != 1 {
		t.Errorf("containers %v", n.containers)
	}
	got := n.apiServer.objects["default/web"]
	if got.UID != "u2" || got.Status.Phase != v1.PodRunning {
		t.Errorf("the new pod is %s, %s", got.UID, got.Status.Phase)
	}
}

func TestStaticPodHasAMirror(t *testing.T) {
	n := bootWithPods(map[string]string{"a.yaml": podNamed("a")})
	m := n.apiServer.objects["default/a-n1"]
	if m == nil || m.Status.Phase != v1.PodRunning || m.Annotations[v1.MirrorPodAnnotationKey] == "" ||
		len(m.OwnerReferences) != 1 || m.OwnerReferences[0].UID != "node-uid" {
		t.Fatalf("mirror %+v, writes %q", m, n.apiServer.writes)
	}
	containers := len(n.calls)
	n.markDeleted("default/a-n1", 30)
	n.advance(time.Minute)
	if again := n.apiServer.objects["default/a-n1"]; again == nil || again.UID == m.UID ||
		again.Status.Phase != v1.PodRunning {
		t.Errorf("mirror %+v", again)
	}
	if len(n.calls) != containers {
		t.Errorf("the static pod was changed: %q", n.calls[containers:])
	}
	delete(n.manifests, "a.yaml")
	n.event(world.Event{Body: &world.FileChanged{Path: "/manifests"}})
	n.advance(time.Minute)
	if len(n.apiServer.objects) > 0 {
		t.Errorf("left: %v", n.apiServer.objects)
	}
}

// A manifest is removed and added again while the API server fails to delete the mirror. The status
// that was reported for the first pod does not affect the second one.
func TestMirrorOfRecreatedStaticPod(t *testing.T) {
	for _, ends := range []bool{false, true} {
		manifests := map[string]string{"a.yaml": strings.Replace(podNamed("a"), "spec: {",
			"spec: {restartPolicy: Never,", 1)}
		n := bootWithPods(manifests)
		for _, c := range n.containers {
			if ends {
				c.State = runtimeapi.ContainerState_CONTAINER_EXITED
			}
		}
		n.advance(10 * time.Second)
		n.failingCalls = map[string]bool{"DeleteObject": true}
		text := n.manifests["a.yaml"]
		delete(n.manifests, "a.yaml")
		n.event(world.Event{Body: &world.FileChanged{Path: "/manifests"}})
		n.advance(time.Minute)
		if got := n.apiServer.objects["default/a-n1"].Status.Phase; !ends && got != v1.PodRunning {
			t.Errorf("the mirror of a removed static pod is %s", got)
		}
		n.manifests["a.yaml"], n.failingCalls = text, nil
		n.event(world.Event{Body: &world.FileChanged{Path: "/manifests"}})
		n.advance(2 * time.Minute)
		if got := n.apiServer.objects["default/a-n1"].Status.Phase; got != v1.PodRunning {
			t.Errorf("first pod ended %v: the mirror of the second one is %s", ends, got)
		}
	}
}

func TestStaticPodsRunWithoutTheServer(t *testing.T) {
	n := newNode(map[string]string{"a.yaml": podNamed("a")})
	n.apiServer = newServer()
	n.apiServer.unavailable = true
	n.restart()
	n.advance(time.Minute)
	if len(n.containers) != 1 {
		t.Errorf("containers %v", n.containers)
	}
}

// A restart of the agent alone changes nothing and reports nothing.
func TestRestartReportsNothing(t *testing.T) {
	ended := apiPodNamed("over", "u2")
	ended.Status.Phase = v1.PodSucceeded
	n := bootWithPods(map[string]string{"a.yaml": podNamed("a")}, apiPodNamed("web", "u1"), ended)
	n.advance(time.Minute)
	n.calls, n.apiServer.writes = nil, nil
	n.restart()
	n.advance(time.Minute)
	if len(n.calls)+len(n.apiServer.writes) > 0 {
		t.Errorf("a restart led to %q and %q", n.calls, n.apiServer.writes)
	}
}

func TestPodsAboveTheMaximumFail(t *testing.T) {
	n := newNode(nil)
	n.apiServer, n.podsMax = newServer(), 1
	n.apiServer.put(apiPodNamed("a", "u1"))
	n.restart()
	n.advance(5 * time.Second)
	n.apiServer.put(apiPodNamed("b", "u2"))
	n.advance(5 * time.Second)
	if got := n.apiServer.objects["default/b"].Status; got.Phase != v1.PodFailed ||
		got.Reason != "OutOfpods" {
		t.Errorf("status %+v", got)
	}
	if got := n.apiServer.objects["default/a"].Status.Phase; got != v1.PodRunning {
		t.Errorf("the pod that was running is %s", got)
	}
	n.markDeleted("default/b", 0)
	if n.apiServer.objects["default/b"] != nil {
		t.Error("the rejected pod still exists")
	}
}

func TestSnapshotWithAServer(t *testing.T) {
	n := bootWithPods(map[string]string{"a.yaml": podNamed("a")}, apiPodNamed("web", "u1"))
	data, err := n.agent.Snapshot()
	if err != nil {
		t.Fatal(err)
	}
	n.agent, err = Restore(data)
	if err != nil {
		t.Fatal(err)
	}
	n.calls, n.apiServer.writes = nil, nil
	n.markDeleted("default/web", 1)
	if n.apiServer.objects["default/web"] != nil {
		t.Errorf("the restored agent did %q, and wrote %q", n.calls, n.apiServer.writes)
	}
}

// A critical pod waits until other pods have been preempted; any other pod that does not fit fails.
func TestCriticalPodPreempts(t *testing.T) {
	n := bootWithPods(nil, withRequests(apiPodNamed("a", "u1"), "1500m", 0))
	n.apiServer.put(withRequests(apiPodNamed("b", "u2"), "1", 0))
	n.advance(5 * time.Second)
	if got := n.apiServer.objects["default/b"].Status; got.Reason != "OutOfcpu" {
		t.Errorf("the pod that does not fit: %+v", got)
	}
	n.apiServer.put(withRequests(apiPodNamed("c", "u3"), "1", 2_000_000_000))
	n.advance(30 * time.Second)
	a, c := n.apiServer.objects["default/a"].Status, n.apiServer.objects["default/c"].Status
	if a.Phase != v1.PodFailed || a.Reason != "Preempting" || c.Phase != v1.PodRunning {
		t.Errorf("the preempted pod is %s (%s), the critical one %s", a.Phase, a.Reason, c.Phase)
	}
	n.restart()
	n.advance(time.Minute)
	if got := n.apiServer.objects["default/c"].Status.Phase; got != v1.PodRunning {
		t.Errorf("after a restart of the agent the critical one is %s", got)
	}
}

// Of two pods of the same priority the Burstable one is preempted, although it requests more.
func TestGuaranteedPodIsSpared(t *testing.T) {
	resources := func(cpu, memory string) v1.ResourceList {
		return v1.ResourceList{"cpu": resource.MustParse(cpu), "memory": resource.MustParse(memory)}
	}
	burstable := withRequests(apiPodNamed("burstable", "u1"), "900m", 0)
	burstable.Spec.Containers[0].Resources.Requests = resources("900m", "64Mi")
	guaranteed := withRequests(apiPodNamed("guaranteed", "u2"), "800m", 0)
	guaranteed.Spec.Containers[0].Resources = v1.ResourceRequirements{
		Requests: resources("800m", "1Mi"), Limits: resources("800m", "1Mi")}
	n := bootWithPods(nil, burstable, guaranteed)
	n.apiServer.put(withRequests(apiPodNamed("critical", "u3"), "1", 2_000_000_000))
	n.advance(30 * time.Second)
	want := map[string]v1.PodPhase{"burstable": v1.PodFailed, "guaranteed": v1.PodRunning,
		"critical": v1.PodRunning}
	if d := cmp.Diff(want, n.phases()); d != "" {
		t.Error(d)
	}
}

// A rejected pod stays rejected, even if the watch delivers an old version of it late and it would
// fit now.
func TestRejectedPodStaysRejected(t *testing.T) {
	n := bootWithPods(nil, withRequests(apiPodNamed("a", "u1"), "1500m", 0))
	n.apiServer.put(withRequests(apiPodNamed("b", "u2"), "1", 0))
	n.apiServer.delayedPod = "b"
	n.advance(5 * time.Second)
	n.markDeleted("default/a", 1)
	n.advance(30 * time.Second)
	before := withRequests(apiPodNamed("b", "u2"), "1", 0)
	before.ResourceVersion = "1"
	n.apiServer.undelivered = append(n.apiServer.undelivered,
		&world.ObjectChanged{Watch: n.apiServer.watch, Object: world.Object{Pod: before}})
	n.advance(30 * time.Second)
	if got := n.apiServer.objects["default/b"].Status; got.Phase != v1.PodFailed ||
		len(n.containers) > 0 {
		t.Errorf("status %+v, containers %v", got, n.containers)
	}
}

// Running pods are not checked for admission again after a restart (upstream #105523).
func TestRestartRejectsNothing(t *testing.T) {
	n := bootWithPods(nil, withRequests(apiPodNamed("a", "u1"), "1", 0),
		withRequests(apiPodNamed("b", "u2"), "1", 0))
	n.apiServer.put(withRequests(apiPodNamed("a", "u1"), "2", 0)) // its spec requests more now
	n.restart()
	n.advance(time.Minute)
	for _, name := range []string{"default/a", "default/b"} {
		if got := n.apiServer.objects[name].Status.Phase; got != v1.PodRunning {
			t.Errorf("%s is %s", name, got)
		}
	}
}

// Restarts before a reboot count, although the runtime has no record of them.
func TestRestartCountSurvivesReboot(t *testing.T) {
	n := bootWithPods(nil, apiPodNamed("web", "u1"))
	clear(n.sandboxes)
	clear(n.containers)
	n.restart()
	n.advance(time.Minute)
	if got := n.apiServer.objects["default/web"].Status.ContainerStatuses[0]; got.RestartCount != 1 ||
		got.State.Running == nil {
		t.Errorf("status %+v", got)
	}
}

// When the API server is available again, failed writes are retried at once.
func TestWritesAreRetriedWhenTheServerReturns(t *testing.T) {
	n := bootWithPods(map[string]string{"a.yaml": podNamed("a")}, apiPodNamed("web", "u1"))
	n.markDeleted("default/web", 1)
	n.apiServer.put(apiPodNamed("db", "u2"))
	n.advance(10 * time.Second)
	n.apiServer.unavailable = true
	n.markDeleted("default/db", 1)
	delete(n.apiServer.objects, "default/a-n1")
	n.advance(5 * time.Minute)
	n.apiServer.unavailable = false
	list := &world.ObjectsListed{Watch: n.apiServer.watch}
	for _, p := range n.apiServer.objects {
		list.Objects = append(list.Objects, world.Object{Pod: p})
	}
	n.event(world.Event{Body: list})
	n.advance(2 * time.Second)
	if n.apiServer.objects["default/db"] != nil || n.apiServer.objects["default/a-n1"] == nil {
		t.Errorf("2 s after it became available it has %v", n.apiServer.objects)
	}
}

// A readiness gate is opened by another client.
func TestReadinessGate(t *testing.T) {
	p := apiPodNamed("web", "u1")
	p.Spec.ReadinessGates = []v1.PodReadinessGate{{ConditionType: "example.com/gate"}}
	n := bootWithPods(nil, p)
	ready := func() v1.PodCondition {
		for _, c := range n.apiServer.objects["default/web"].Status.Conditions {
			if c.Type == v1.PodReady {
				return c
			}
		}
		return v1.PodCondition{}
	}
	if got := ready(); got.Status != v1.ConditionFalse || got.Reason != "ReadinessGatesNotReady" {
		t.Errorf("before it is open: %+v", got)
	}
	open := n.apiServer.objects["default/web"].DeepCopy()
	open.Status.Conditions = append(open.Status.Conditions, v1.PodCondition{
		Type: "example.com/gate", Status: v1.ConditionTrue})
	n.apiServer.put(open)
	n.advance(2 * time.Second)
	if got := ready(); got.Status != v1.ConditionTrue {
		t.Errorf("once it is open: %+v", got)
	}
}

// A terminal phase is reported to the API server even if the disk is full and it cannot be made
// durable here, so that other pods can use the resources. It is served once the API server has it.
// The terminal phase of a static pod is not reported, because only the agent's record keeps it.
func TestTerminalPhaseOnAFullDisk(t *testing.T) {
	bound, limit := apiPodNamed("a", "u1"), int64(1)
	bound.Spec.ActiveDeadlineSeconds = &limit
	n := newNode(map[string]string{"s.yaml": strings.Replace(podNamed("s"), "spec: {",
		"spec: {activeDeadlineSeconds: 1,", 1)})
	n.apiServer, n.failingCalls = newServer(), map[string]bool{"MakeDir": true}
	n.apiServer.put(bound)
	n.apiServer.undelivered = nil
	first := true
	n.apiServer.onEffect = func(effect any) {
		patch, ok := effect.(*world.PatchObject)
		if !ok || patch.Name != "a" || !strings.Contains(string(patch.Patch), `"phase":"Failed"`) {
			return
		}
		if first && !strings.Contains(string(patch.Patch), `"resourceVersion"`) {
			t.Errorf("reported without a resource version: %s", patch.Patch)
		}
		if shown := n.phases()["a"]; first && shown == v1.PodFailed {
			t.Error("served before the server has it")
		}
		first = false
	}
	n.restart()
	n.advance(time.Minute)
	stored := func(name string) v1.PodPhase {
		return n.apiServer.objects["default/"+name].Status.Phase
	}
	if got := n.phases(); stored("a") != v1.PodFailed || got["a"] != v1.PodFailed ||
		stored("s-n1") == v1.PodFailed || got["s-n1"] == v1.PodFailed {
		t.Errorf("the server has %s, %s; served %v", stored("a"), stored("s-n1"), got)
	}
	n.failingCalls = nil
	n.advance(10 * time.Minute)
	if got := n.phases(); stored("s-n1") != v1.PodFailed || got["s-n1"] != v1.PodFailed {
		t.Errorf("once there is space: %s, served %v", stored("s-n1"), got)
	}
}
