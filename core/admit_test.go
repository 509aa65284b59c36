package core

import (
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"seedlet.dev/world"
)

const staticAsking = `{apiVersion: v1, kind: Pod, metadata: {name: s}, spec: {
  containers: [{name: web, image: i, resources: {requests: {cpu: "1"}}}]}}`

// What runs has its room, although nobody can say yet what it is; and a static pod gets some as
// soon as it is known that others can make it.
func TestWhatRunsHasItsRoom(t *testing.T) {
	n := joined(map[string]string{}, asking(boundPodOf("a", "u1"), "1500m", 0))
	n.server.away = true
	n.manifests["s.yaml"] = staticAsking
	n.restart()
	n.pass(time.Minute)
	if len(n.containers) != 1 {
		t.Fatalf("containers %v", n.containers)
	}
	n.server.away = false
	n.restart()
	n.pass(time.Minute)
	if a := n.server.objects["default/a"].Status; a.Reason != "Preempting" || len(n.pods) > 0 {
		t.Errorf("the pod in the way: %+v", a)
	}
	if s := n.server.objects["default/s-n1"]; s == nil || s.Status.Phase != v1.PodRunning {
		t.Errorf("the static pod: %+v", s)
	}
}

// waiting is a node whose agent is not told of the Node, with pod "a" of the API server, for which
// it is no place.
func waiting(uid string) *node {
	n := newNode(nil)
	n.server = newServer()
	n.server.hides = world.ResourceNodes
	p := boundPodOf("a", uid)
	p.Spec.NodeSelector = map[string]string{"disk": "ssd"}
	n.server.put(p)
	return n
}

// Without an API server a static pod is held against what the node would register as.
func TestStaticPodOfAnotherNode(t *testing.T) {
	manifest := func(name, label string) string {
		return `{apiVersion: v1, kind: Pod, metadata: {name: ` + name + `}, spec: {nodeSelector: {` +
			label + `}, containers: [{name: web, image: i}]}}`
	}
	n := boot(map[string]string{"here.yaml": manifest("here", v1.LabelHostname+": n1"),
		"there.yaml": manifest("there", "disk: ssd")})
	n.pass(5 * time.Second)
	got := map[string]string{}
	for _, p := range n.agent.list() {
		got[p.Name] = string(p.Status.Phase) + " " + p.Status.Reason
	}
	want := map[string]string{"here-n1": "Running ", "there-n1": "Pending NodeAffinity"}
	if !maps.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}

// Before it is known what the Node is no pod is taken that it may be no place for.
func TestNodeIsAwaited(t *testing.T) {
	n := waiting("u1")
	n.server.put(boundPodOf("b", "u2"))
	n.server.told = nil
	n.restart()
	n.pass(time.Minute)
	if len(n.containers) > 0 || n.server.objects["default/a"].Status.Phase != v1.PodPending {
		t.Fatalf("containers %v, writes %q", n.containers, n.server.writes)
	}
	n.server.hides = ""
	n.restart()
	n.pass(time.Minute)
	if got := n.server.objects["default/a"].Status; got.Reason != "NodeAffinity" ||
		len(n.containers) != 1 {
		t.Errorf("containers %v, status %+v", n.containers, got)
	}
}

// While there is no Node a pod is held against what the node registers as.
func TestBeforeThereIsANode(t *testing.T) {
	n := newNode(nil)
	n.server = newServer()
	n.server.node, n.server.beats.hangs = nil, true
	for name, labels := range map[string]map[string]string{"a": {"disk": "ssd"},
		"b": {v1.LabelHostname: "n1"}} {
		p := boundPodOf(name, "u-"+name)
		p.Spec.NodeSelector = labels
		n.server.put(p)
	}
	n.server.told = nil
	n.restart()
	n.pass(5 * time.Second)
	if got := n.server.objects["default/a"].Status; got.Reason != "NodeAffinity" {
		t.Errorf("of another node: %+v", got)
	}
	if got := n.server.objects["default/b"].Status; got.Phase != v1.PodRunning {
		t.Errorf("of this node: %+v", got)
	}
}

// A sandbox that an earlier agent asked for, and that comes late, admits no pod that still waits.
func TestWhatComesLateAdmitsNobody(t *testing.T) {
	n := waiting("u1")
	n.server.told = nil
	n.restart()
	n.pass(5 * time.Second)
	n.do(&runtimeapi.RunPodSandboxRequest{Config: &runtimeapi.PodSandboxConfig{
		Metadata: &runtimeapi.PodSandboxMetadata{Name: "a", Namespace: "default", Uid: "u1"},
	}})
	n.server.seen = func(effect any) {
		if _, ends := effect.(*runtimeapi.StopPodSandboxRequest); ends { // what the Node is told then
			watch := n.agent.state.Objects.Watch(n.agent.nodeWatched())
			n.server.told = append(n.server.told, &world.ObjectsListed{Watch: watch.ID,
				Objects: []world.Object{{Node: n.server.node}}})
		}
	}
	n.pass(time.Minute)
	if got := n.server.objects["default/a"].Status; got.Reason != "NodeAffinity" ||
		len(n.containers)+len(n.sandboxes) > 0 {
		t.Errorf("%v, %v, status %+v", n.sandboxes, n.containers, got)
	}
}

// A pod that has ended, which nobody has heard of yet, keeps nobody from the node after a restart.
func TestWhatHasEndedIsLookedAtFirst(t *testing.T) {
	ended := asking(boundPodOf("a", "u1"), "1500m", 0)
	ended.Spec.RestartPolicy = v1.RestartPolicyNever
	n := joined(nil, ended)
	for _, c := range n.containers {
		c.State = runtimeapi.ContainerState_CONTAINER_EXITED
	}
	for _, s := range n.sandboxes {
		s.State = runtimeapi.PodSandboxState_SANDBOX_NOTREADY
	}
	n.server.put(asking(boundPodOf("b", "u2"), "1500m", 0))
	n.server.told = nil
	waited := false
	n.server.seen = func(effect any) {
		patch, is := effect.(*world.PatchObject)
		waited = waited || is && patch.Name == "b" &&
			strings.Contains(string(patch.Patch), roomUnknown.Message)
	}
	n.restart()
	n.pass(time.Minute)
	if !waited || n.server.objects["default/b"].Status.Message != "" {
		t.Errorf("told that it waits: %v; then %+v", waited, n.server.objects["default/b"].Status)
	}
	if got := n.server.objects["default/b"].Status; got.Phase != v1.PodRunning {
		t.Errorf("the new pod is %s (%s), writes %q", got.Phase, got.Reason, n.server.writes)
	}
}

// Those that have been taken come first, then the older ones.
func TestByArrival(t *testing.T) {
	at := func(name, uid string, second int) *v1.Pod {
		p := boundPodOf(name, uid)
		p.CreationTimestamp = metav1.Unix(int64(second), 0)
		return p
	}
	taken := at("z", "u3", 3)
	taken.Status.StartTime = &metav1.Time{Time: time.Unix(4, 0)}
	n := newNode(nil)
	n.server = newServer()
	n.server.hides = world.ResourceNodes // so that none of them is taken now
	for _, p := range []*v1.Pod{at("a", "u1", 2), at("b", "u2", 1), taken} {
		n.server.put(p)
	}
	n.server.told = nil
	n.restart()
	got := n.agent.byArrival([]string{"default/a", "default/b", "default/z"})
	if want := []string{"default/z", "default/b", "default/a"}; !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}

// A pod that an earlier agent has begun was taken, even if neither the runtime nor the API server
// has anything of that; no new one is taken before it is known which those are.
func TestWhatWasBegunIsNotAskedAgain(t *testing.T) {
	for _, test := range []struct {
		begun  []string
		broken bool
		want   v1.PodPhase
	}{
		{nil, false, v1.PodFailed}, {[]string{"u1"}, false, v1.PodRunning},
		{[]string{"u1"}, true, v1.PodPending},
	} {
		n := newNode(nil)
		n.server, n.begun = newServer(), test.begun
		n.broken = map[string]bool{"ListDir": test.broken}
		n.server.put(asking(boundPodOf("a", "u1"), "3", 0))
		n.server.told = nil
		n.restart()
		n.pass(time.Minute)
		if got := n.server.objects["default/a"].Status; got.Phase != test.want {
			t.Errorf("begun %v, not to be listed %v: %s %s", test.begun, test.broken, got.Phase,
				got.Reason)
		}
	}
}
