package core

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"seedlet.dev/world"
)

// server is an API server that answers at once.
type server struct {
	objects map[string]*v1.Pod // by namespace/name
	node    *v1.Node
	version int
	away    bool           // it answers nothing but Unavailable
	hides   world.Resource // of which no watch is told anything
	writes  []string
	told    []any // what is to be told to the agent
	watch   world.WatchID
	beats   heartbeats
	others  map[string]world.Object // ConfigMaps and Secrets, by name
	seen    func(effect any)        // every effect of the agent; nil if nobody looks
	late    string                  // a pod of whose changes the watch has not told yet
}

func newServer() *server {
	return &server{objects: map[string]*v1.Pod{}, node: &v1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: "n1", UID: "node-uid"}}}
}

func (s *server) put(p *v1.Pod) *v1.Pod {
	s.version++
	p = p.DeepCopy()
	p.ResourceVersion = fmt.Sprint(s.version)
	if p.UID == "" {
		p.UID = types.UID(fmt.Sprintf("made-%d", s.version))
	}
	s.objects[p.Namespace+"/"+p.Name] = p
	if p.Name != s.late {
		s.told = append(s.told, &world.ObjectChanged{Watch: s.watch, Object: world.Object{Pod: p}})
	}
	return p
}

func (s *server) remove(name string) {
	p := s.objects[name]
	delete(s.objects, name)
	s.told = append(s.told, &world.ObjectGone{Watch: s.watch, Object: world.Object{Pod: p}})
}

// do answers one effect; an error is told as such.
func (s *server) do(effect any) any {
	if _, isWatch := effect.(*world.WatchObjects); s.away && !isWatch {
		return world.Errorf(world.KindUnavailable, world.Call(effect), "away")
	}
	if body, is := s.heartbeat(effect); is {
		return body
	}
	switch e := effect.(type) {
	case *world.WatchObjects:
		list := &world.ObjectsListed{Watch: e.Watch}
		switch {
		case e.Resource == world.ResourceNodes:
			if s.node != nil {
				list.Objects = []world.Object{{Node: s.node}}
			}
		case e.Resource == world.ResourcePods:
			s.watch = e.Watch
			for _, p := range s.objects {
				list.Objects = append(list.Objects, world.Object{Pod: p})
			}
		default:
			if is, there := s.others[e.Name]; there && is.Of() == e.Resource {
				list.Objects = []world.Object{is}
			}
		}
		if !s.away && e.Resource != s.hides {
			s.told = append(s.told, list)
		}
	case *world.PatchObject:
		if s.objects[e.Namespace+"/"+e.Name] == nil {
			return world.Errorf(world.KindNotFound, "PatchObject", "no pod %s", e.Name)
		}
		p := s.objects[e.Namespace+"/"+e.Name].DeepCopy()
		var patch v1.Pod
		text := strings.NewReplacer(`{"$patch":"replace"},`, "", `{"$patch":"replace"}`, "").
			Replace(string(e.Patch))
		if err := json.Unmarshal([]byte(text), &patch); err != nil {
			panic(err)
		}
		if patch.UID != p.UID {
			return world.Errorf(world.KindConflict, "PatchObject", "another uid")
		}
		s.writes = append(s.writes, fmt.Sprintf("%s %s", e.Name, patch.Status.Phase))
		for _, c := range p.Status.Conditions { // those of others stay
			if strings.Contains(string(c.Type), "/") {
				patch.Status.Conditions = append(patch.Status.Conditions, c)
			}
		}
		p.Status = patch.Status
		return &world.ObjectRead{Object: world.Object{Pod: s.put(p)}}
	case *world.CreateObject:
		s.writes = append(s.writes, "create "+e.Object.Pod.Name)
		return &world.ObjectRead{Object: world.Object{Pod: s.put(e.Object.Pod)}}
	case *world.CreateToken:
		return &world.TokenCreated{Token: "hidden-token"}
	case *world.DeleteObject:
		s.writes = append(s.writes, "delete "+e.Name)
		s.remove(e.Namespace + "/" + e.Name)
		return &world.Done{}
	}
	return nil
}

// joined is a node that has an API server with these pods.
func joined(manifests map[string]string, pods ...*v1.Pod) *node {
	n := newNode(manifests)
	n.server = newServer()
	for _, p := range pods {
		n.server.put(p)
	}
	n.server.told = nil
	n.restart()
	n.pass(5 * time.Second)
	return n
}

func boundPodOf(name, uid string) *v1.Pod {
	return &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, UID: types.UID(uid)},
		Spec: v1.PodSpec{NodeName: "n1", RestartPolicy: v1.RestartPolicyAlways,
			Containers: []v1.Container{{Name: "c", Image: "i"}}},
		Status: v1.PodStatus{Phase: v1.PodPending},
	}
}

func (n *node) markDeleted(name string, grace int64) {
	p := n.server.objects[name].DeepCopy()
	at := metav1.NewTime(n.now.Add(time.Duration(grace) * time.Second))
	p.DeletionTimestamp, p.DeletionGracePeriodSeconds = &at, &grace
	n.server.put(p)
	n.pass(10 * time.Second)
}

func TestBoundPodRunsAndIsTold(t *testing.T) {
	n := joined(nil, boundPodOf("web", "u1"))
	if got := n.server.objects["default/web"].Status; got.Phase != v1.PodRunning ||
		len(got.ContainerStatuses) != 1 || got.ContainerStatuses[0].State.Running == nil {
		t.Errorf("status %+v", got)
	}
	wrote := len(n.server.writes)
	n.pass(time.Minute)
	if n.server.writes = n.server.writes[wrote:]; len(n.server.writes) > 0 {
		t.Errorf("written at rest: %q", n.server.writes)
	}
}

func TestTheStatusSaysOfWhichSpecItIs(t *testing.T) {
	web := boundPodOf("web", "u1")
	web.Generation = 3
	status := joined(nil, web).server.objects["default/web"].Status
	if status.ObservedGeneration != 3 {
		t.Errorf("the status is of generation %d", status.ObservedGeneration)
	}
	for _, c := range status.Conditions {
		if c.ObservedGeneration != 3 {
			t.Errorf("condition %s is of generation %d", c.Type, c.ObservedGeneration)
		}
	}
}

func TestDeletedPodIsOverBeforeItGoes(t *testing.T) {
	n := joined(nil, boundPodOf("web", "u1"))
	n.server.writes = nil
	n.markDeleted("default/web", 5)
	last := n.server.writes[max(0, len(n.server.writes)-2):]
	if d := cmp.Diff([]string{"web Succeeded", "delete web"}, last); d != "" {
		t.Errorf("%s in %q", d, n.server.writes)
	}
	if len(n.sandboxes)+len(n.containers)+len(n.agent.state.Pods) > 0 ||
		len(n.agent.state.Status.Entries)+len(n.agent.state.Bound) > 0 {
		t.Errorf("left: %v %v %v", n.sandboxes, n.containers, n.agent.state.Bound)
	}
}

func TestPodWaitsForItsLastStatusToBeKnown(t *testing.T) {
	n := joined(nil, boundPodOf("web", "u1"))
	n.server.away = true
	n.markDeleted("default/web", 1)
	if len(n.containers) != 1 {
		t.Fatal("how the container ended was forgotten before anybody was told")
	}
	n.server.away = false
	n.pass(2 * time.Minute)
	if len(n.server.objects)+len(n.containers) > 0 {
		t.Errorf("left: %v, %v", n.server.objects, n.containers)
	}
}

func TestWhatIsOverStaysSo(t *testing.T) {
	p := boundPodOf("web", "u1")
	p.Status.Phase = v1.PodFailed
	n := joined(nil, p)
	if len(n.containers) > 0 || n.server.objects["default/web"].Status.Phase != v1.PodFailed {
		t.Errorf("it runs again: %v, %q", n.containers, n.server.writes)
	}
}

func TestForcedRemovalEndsThePod(t *testing.T) {
	n := joined(nil, boundPodOf("web", "u1"))
	n.server.remove("default/web")
	n.server.put(boundPodOf("web", "u2"))
	n.server.writes = nil
	n.pass(time.Minute)
	if len(n.containers) != 1 {
		t.Errorf("containers %v", n.containers)
	}
	if got := n.server.objects["default/web"]; got.UID != "u2" || got.Status.Phase != v1.PodRunning {
		t.Errorf("the new pod is %s, %s", got.UID, got.Status.Phase)
	}
}

func TestStaticPodHasAMirror(t *testing.T) {
	n := joined(map[string]string{"a.yaml": podNamed("a")})
	m := n.server.objects["default/a-n1"]
	if m == nil || m.Status.Phase != v1.PodRunning || m.Annotations[v1.MirrorPodAnnotationKey] == "" ||
		len(m.OwnerReferences) != 1 || m.OwnerReferences[0].UID != "node-uid" {
		t.Fatalf("mirror %+v, writes %q", m, n.server.writes)
	}
	containers := len(n.calls)
	n.markDeleted("default/a-n1", 30)
	n.pass(time.Minute)
	if again := n.server.objects["default/a-n1"]; again == nil || again.UID == m.UID ||
		again.Status.Phase != v1.PodRunning {
		t.Errorf("mirror %+v", again)
	}
	if len(n.calls) != containers {
		t.Errorf("the static pod was touched: %q", n.calls[containers:])
	}
	delete(n.manifests, "a.yaml")
	n.event(world.Event{Body: &world.FileChanged{Path: "/manifests"}})
	n.pass(time.Minute)
	if len(n.server.objects) > 0 {
		t.Errorf("left: %v", n.server.objects)
	}
}

// A manifest goes and comes back while the server does not take the removal of the mirror. What is
// told of the pod's first life is nothing that its second one has to live with.
func TestMirrorOfTheNextLife(t *testing.T) {
	for _, ends := range []bool{false, true} {
		manifests := map[string]string{"a.yaml": strings.Replace(podNamed("a"), "spec: {",
			"spec: {restartPolicy: Never,", 1)}
		n := joined(manifests)
		for _, c := range n.containers {
			if ends {
				c.State = runtimeapi.ContainerState_CONTAINER_EXITED
			}
		}
		n.pass(10 * time.Second)
		n.broken = map[string]bool{"DeleteObject": true}
		text := n.manifests["a.yaml"]
		delete(n.manifests, "a.yaml")
		n.event(world.Event{Body: &world.FileChanged{Path: "/manifests"}})
		n.pass(time.Minute)
		if got := n.server.objects["default/a-n1"].Status.Phase; !ends && got != v1.PodRunning {
			t.Errorf("the mirror of a pod that nobody wants is %s", got)
		}
		n.manifests["a.yaml"], n.broken = text, nil
		n.event(world.Event{Body: &world.FileChanged{Path: "/manifests"}})
		n.pass(2 * time.Minute)
		if got := n.server.objects["default/a-n1"].Status.Phase; got != v1.PodRunning {
			t.Errorf("ended first %v: the mirror of its second life is %s", ends, got)
		}
	}
}

func TestStaticPodsRunWithoutTheServer(t *testing.T) {
	n := newNode(map[string]string{"a.yaml": podNamed("a")})
	n.server = newServer()
	n.server.away = true
	n.restart()
	n.pass(time.Minute)
	if len(n.containers) != 1 {
		t.Errorf("containers %v", n.containers)
	}
}

// A restart of the agent alone changes nothing, and has nothing new to tell.
func TestRestartTellsNothingNew(t *testing.T) {
	over := boundPodOf("over", "u2")
	over.Status.Phase = v1.PodSucceeded
	n := joined(map[string]string{"a.yaml": podNamed("a")}, boundPodOf("web", "u1"), over)
	n.pass(time.Minute)
	n.calls, n.server.writes = nil, nil
	n.restart()
	n.pass(time.Minute)
	if len(n.calls)+len(n.server.writes) > 0 {
		t.Errorf("a restart led to %q and %q", n.calls, n.server.writes)
	}
}

func TestPodsAboveTheMaximumFail(t *testing.T) {
	n := newNode(nil)
	n.server, n.podsMax = newServer(), 1
	n.server.put(boundPodOf("a", "u1"))
	n.restart()
	n.pass(5 * time.Second)
	n.server.put(boundPodOf("b", "u2"))
	n.pass(5 * time.Second)
	if got := n.server.objects["default/b"].Status; got.Phase != v1.PodFailed ||
		got.Reason != "OutOfpods" {
		t.Errorf("status %+v", got)
	}
	if got := n.server.objects["default/a"].Status.Phase; got != v1.PodRunning {
		t.Errorf("the pod that was there is %s", got)
	}
	n.markDeleted("default/b", 0)
	if n.server.objects["default/b"] != nil {
		t.Error("the pod that was refused is still there")
	}
}

func TestSnapshotWithAServer(t *testing.T) {
	n := joined(map[string]string{"a.yaml": podNamed("a")}, boundPodOf("web", "u1"))
	data, err := n.agent.Snapshot()
	if err != nil {
		t.Fatal(err)
	}
	n.agent, err = Restore(data)
	if err != nil {
		t.Fatal(err)
	}
	n.calls, n.server.writes = nil, nil
	n.markDeleted("default/web", 1)
	if n.server.objects["default/web"] != nil {
		t.Errorf("the restored agent did %q, and wrote %q", n.calls, n.server.writes)
	}
}

func asking(p *v1.Pod, cpu string, priority int32) *v1.Pod {
	p.Spec.Containers[0].Resources.Requests = v1.ResourceList{"cpu": resource.MustParse(cpu)}
	p.Spec.Priority = &priority
	return p
}

// A critical pod waits until others have made room; any other one that does not fit fails.
func TestCriticalPodGetsRoom(t *testing.T) {
	n := joined(nil, asking(boundPodOf("a", "u1"), "1500m", 0))
	n.server.put(asking(boundPodOf("b", "u2"), "1", 0))
	n.pass(5 * time.Second)
	if got := n.server.objects["default/b"].Status; got.Reason != "OutOfcpu" {
		t.Errorf("the pod for which there is no room: %+v", got)
	}
	n.server.put(asking(boundPodOf("c", "u3"), "1", 2_000_000_000))
	n.pass(30 * time.Second)
	a, c := n.server.objects["default/a"].Status, n.server.objects["default/c"].Status
	if a.Phase != v1.PodFailed || a.Reason != "Preempting" || c.Phase != v1.PodRunning {
		t.Errorf("the pod in the way %s (%s), the critical one %s", a.Phase, a.Reason, c.Phase)
	}
	n.restart()
	n.pass(time.Minute)
	if got := n.server.objects["default/c"].Status.Phase; got != v1.PodRunning {
		t.Errorf("after a restart of the agent the critical one is %s", got)
	}
}

// What was rejected stays so, even if the watch tells late how it was before and there is room now.
func TestRejectedStaysSo(t *testing.T) {
	n := joined(nil, asking(boundPodOf("a", "u1"), "1500m", 0))
	n.server.put(asking(boundPodOf("b", "u2"), "1", 0))
	n.server.late = "b"
	n.pass(5 * time.Second)
	n.markDeleted("default/a", 1)
	n.pass(30 * time.Second)
	before := asking(boundPodOf("b", "u2"), "1", 0)
	before.ResourceVersion = "1"
	n.server.told = append(n.server.told,
		&world.ObjectChanged{Watch: n.server.watch, Object: world.Object{Pod: before}})
	n.pass(30 * time.Second)
	if got := n.server.objects["default/b"].Status; got.Phase != v1.PodFailed ||
		len(n.containers) > 0 {
		t.Errorf("status %+v, containers %v", got, n.containers)
	}
}

// What runs when the agent is restarted is not asked for admission again (upstream #105523).
func TestRestartRejectsNothing(t *testing.T) {
	n := joined(nil, asking(boundPodOf("a", "u1"), "1", 0), asking(boundPodOf("b", "u2"), "1", 0))
	n.server.put(asking(boundPodOf("a", "u1"), "2", 0)) // it asks for more by now
	n.restart()
	n.pass(time.Minute)
	for _, name := range []string{"default/a", "default/b"} {
		if got := n.server.objects[name].Status.Phase; got != v1.PodRunning {
			t.Errorf("%s is %s", name, got)
		}
	}
}

// What the runtime forgets in a reboot is still counted.
func TestRestartsAreCountedOn(t *testing.T) {
	n := joined(nil, boundPodOf("web", "u1"))
	clear(n.sandboxes)
	clear(n.containers)
	n.restart()
	n.pass(time.Minute)
	if got := n.server.objects["default/web"].Status.ContainerStatuses[0]; got.RestartCount != 1 ||
		got.State.Running == nil {
		t.Errorf("status %+v", got)
	}
}

// When the server is back nothing waits out what it had to wait because it was away.
func TestServerThatIsBack(t *testing.T) {
	n := joined(map[string]string{"a.yaml": podNamed("a")}, boundPodOf("web", "u1"))
	n.markDeleted("default/web", 1)
	n.server.put(boundPodOf("db", "u2"))
	n.pass(10 * time.Second)
	n.server.away = true
	n.markDeleted("default/db", 1)
	delete(n.server.objects, "default/a-n1")
	n.pass(5 * time.Minute)
	n.server.away = false
	list := &world.ObjectsListed{Watch: n.server.watch}
	for _, p := range n.server.objects {
		list.Objects = append(list.Objects, world.Object{Pod: p})
	}
	n.event(world.Event{Body: list})
	n.pass(2 * time.Second)
	if n.server.objects["default/db"] != nil || n.server.objects["default/a-n1"] == nil {
		t.Errorf("2 s after it came back it has %v", n.server.objects)
	}
}

// Others open a readiness gate.
func TestReadinessGate(t *testing.T) {
	p := boundPodOf("web", "u1")
	p.Spec.ReadinessGates = []v1.PodReadinessGate{{ConditionType: "example.com/gate"}}
	n := joined(nil, p)
	ready := func() v1.PodCondition {
		for _, c := range n.server.objects["default/web"].Status.Conditions {
			if c.Type == v1.PodReady {
				return c
			}
		}
		return v1.PodCondition{}
	}
	if got := ready(); got.Status != v1.ConditionFalse || got.Reason != "ReadinessGatesNotReady" {
		t.Errorf("before it is open: %+v", got)
	}
	open := n.server.objects["default/web"].DeepCopy()
	open.Status.Conditions = append(open.Status.Conditions, v1.PodCondition{
		Type: "example.com/gate", Status: v1.ConditionTrue})
	n.server.put(open)
	n.pass(2 * time.Second)
	if got := ready(); got.Status != v1.ConditionTrue {
		t.Errorf("once it is open: %+v", got)
	}
}

// That a pod has ended is told to the API server even if it cannot be kept on the disk, so that
// others can take its place, and shown once the server has it. A static pod nobody else keeps.
func TestAnEndOnAFullDisk(t *testing.T) {
	bound, limit := boundPodOf("a", "u1"), int64(1)
	bound.Spec.ActiveDeadlineSeconds = &limit
	n := newNode(map[string]string{"s.yaml": strings.Replace(podNamed("s"), "spec: {",
		"spec: {activeDeadlineSeconds: 1,", 1)})
	n.server, n.broken = newServer(), map[string]bool{"MakeDir": true}
	n.server.put(bound)
	n.server.told = nil
	first := true
	n.server.seen = func(effect any) {
		patch, is := effect.(*world.PatchObject)
		if !is || patch.Name != "a" || !strings.Contains(string(patch.Patch), `"phase":"Failed"`) {
			return
		}
		if first && !strings.Contains(string(patch.Patch), `"resourceVersion"`) {
			t.Errorf("told whatever others have written: %s", patch.Patch)
		}
		if shown := n.phases()["a"]; first && shown == v1.PodFailed {
			t.Error("shown before the server has it")
		}
		first = false
	}
	n.restart()
	n.pass(time.Minute)
	is := func(name string) v1.PodPhase { return n.server.objects["default/"+name].Status.Phase }
	if got := n.phases(); is("a") != v1.PodFailed || got["a"] != v1.PodFailed ||
		is("s-n1") == v1.PodFailed || got["s-n1"] == v1.PodFailed {
		t.Errorf("the server has %s, %s; shown %v", is("a"), is("s-n1"), got)
	}
	n.broken = nil
	n.pass(10 * time.Minute)
	if got := n.phases(); is("s-n1") != v1.PodFailed || got["s-n1"] != v1.PodFailed {
		t.Errorf("once there is space: %s, shown %v", is("s-n1"), got)
	}
}

// phases are those that are shown, by name.
func (n *node) phases() map[string]v1.PodPhase {
	phases := map[string]v1.PodPhase{}
	for _, p := range n.agent.list() {
		phases[p.Name] = p.Status.Phase
	}
	return phases
}
