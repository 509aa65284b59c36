package core

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"seedlet.dev/world"
)

// resolve sends a request for a container, "NAMESPACE/POD CONTAINER", or for a pod alone.
func (n *fakeNode) resolve(names, uid string) *world.ContainerAnswer {
	full, container, _ := strings.Cut(names, " ")
	namespace, name, _ := strings.Cut(full, "/")
	n.resolved = nil
	n.event(world.Event{Body: &world.ContainerRequest{
		Request: 7, Namespace: namespace, Pod: name, UID: uid, Container: container}})
	return n.resolved
}

// answerLine returns what matters of an answer in one line.
func answerLine(a *world.ContainerAnswer) string {
	if a.Err != nil {
		return string(a.Err.Kind) + " " + a.Err.Message
	}
	words := []string{a.UID, a.Phase, a.SandboxID, a.ContainerID}
	if a.Status != nil {
		words = append(words, a.Status.ContainerID)
	}
	return strings.Join(words, " ")
}

func TestResolveContainer(t *testing.T) {
	n := bootWithPods(map[string]string{"web.yaml": web}, apiPodNamed("api", "u1"))
	n.advance(5 * time.Second)
	static := string(n.agent.staticPod("default/web-n1").UID)
	mirror := string(n.apiServer.objects["default/web-n1"].UID)
	ids := map[string]string{}
	for id, c := range n.containers {
		ids[c.Metadata.Name] = id + " fake://" + id
		ids[c.Metadata.Name+" in"] = c.PodSandboxId
	}
	running := static + " Running " + ids["web in"] + " "
	for _, test := range []struct{ names, uid, want string }{
		{"default/web-n1 web", "", running + ids["web"]},
		{"default/web-n1 setup", "", running + ids["setup"]},
		{"default/web-n1 web", static, running + ids["web"]},
		{"default/web-n1 web", mirror, running + ids["web"]},
		{"default/web-n1", mirror, running},
		{"default/web-n1 web", "u1", `NotFound pod "web-n1" does not exist`},
		{"default/api c", "u1", "u1 Running " + ids["c in"] + " " + ids["c"]},
		{"default/api c", mirror, `NotFound pod "api" does not exist`},
		{"default/api web", "", `NotFound container "web" not found in pod "api"`},
		{"default/web web", "", `NotFound pod "web" does not exist`},
		{"other/api c", "", `NotFound pod "api" does not exist`},
		{"default/../default/api c", "", `NotFound pod "../default/api" does not exist`},
		{"/ ", "", `NotFound pod "" does not exist`},
	} {
		a := n.resolve(test.names, test.uid)
		if got := answerLine(a); got != test.want || a.Request != 7 {
			t.Errorf("%s (uid %q): request %d\n%s\nwant %s", test.names, test.uid, a.Request, got,
				test.want)
		}
	}
}

// A client that attaches to a container sets its terminal by the TTY of the answer.
func TestResolvedContainerHasItsTTY(t *testing.T) {
	with := apiPodNamed("desk", "u1")
	with.Spec.Containers[0].TTY = true
	n := bootWithPods(nil, with, apiPodNamed("plain", "u2"))
	if !n.resolve("default/desk c", "").TTY || n.resolve("default/plain c", "").TTY {
		t.Error("TTY differs from the spec")
	}
}

// The earlier pod of the name still runs while the desired one waits for the name.
func TestNameResolvesToTheDesiredPod(t *testing.T) {
	n := bootWithPods(nil, apiPodNamed("web", "u1"))
	old := answerLine(n.resolve("default/web c", ""))
	n.stopsFail = true
	n.apiServer.remove("default/web")
	n.advance(2 * time.Second)
	if got := answerLine(n.resolve("default/web c", "")); got != old {
		t.Errorf("while no other pod has the name: %s, want %s", got, old)
	}
	n.apiServer.put(apiPodNamed("web", "u2"))
	n.advance(2 * time.Second)
	if got := answerLine(n.resolve("default/web c", "")); got != "u2 Pending   " {
		t.Errorf("while another pod waits for the name: %s", got)
	}
	if got := answerLine(n.resolve("default/web c", "u1")); got != old {
		t.Errorf("by its UID: %s, want %s", got, old)
	}
	n.stopsFail = false
	n.advance(time.Minute)
	const notFound = `NotFound pod "web" does not exist`
	if got := answerLine(n.resolve("default/web c", "u1")); got != notFound {
		t.Errorf("after its removal: %s", got)
	}
	if got := answerLine(n.resolve("default/web c", "")); !strings.HasPrefix(got, "u2 Running s") {
		t.Errorf("when it runs: %s", got)
	}
}

func TestResolvedIDIsOfTheNewestRun(t *testing.T) {
	web := apiPodNamed("web", "u1")
	web.Spec.Containers = append(web.Spec.Containers, v1.Container{Name: "d", Image: "i"})
	n := bootWithPods(nil, web)
	first := n.resolve("default/web c", "").ContainerID
	n.containers[first].State = runtimeapi.ContainerState_CONTAINER_EXITED
	n.advance(20 * time.Second)
	second := n.resolve("default/web c", "")
	if second.ContainerID == first || second.Status.State.Running == nil ||
		second.Status.ContainerID != "fake://"+second.ContainerID {
		t.Errorf("after %s: %+v", first, second)
	}
	delete(n.containers, second.ContainerID)
	n.stopsFail = true
	n.apiServer.remove("default/web") // no other run starts, and d does not end
	n.advance(2 * time.Second)
	if third := n.resolve("default/web c", ""); third.ContainerID != "" || third.Status == nil {
		t.Errorf("after the record of the newest run was removed: %+v", third)
	}
}

func TestResolvePodThatNeverStarted(t *testing.T) {
	big := withRequests(apiPodNamed("big", "u1"), "100", 0)
	n := bootWithPods(map[string]string{"odd.yaml": `{apiVersion: v1, kind: Pod, metadata: {name: odd},
  spec: {securityContext: {sysctls: [{name: kernel.msgmax, value: '1'}]},
  containers: [{name: c, image: i}]}}`}, big)
	n.advance(time.Second)
	odd := string(n.agent.staticPod("default/odd-n1").UID)
	for names, want := range map[string]string{
		"default/odd-n1 c": odd + " Failed  ",
		"default/odd-n1 d": `NotFound container "d" not found in pod "odd-n1"`,
		"default/big c":    "u1 Failed   ",
	} {
		if got := answerLine(n.resolve(names, "")); got != want {
			t.Errorf("%s: %q, want %q", names, got, want)
		}
	}
}

// A pod that only the runtime has cannot be resolved, but is served as running.
func TestOrphansAreRunningButNotResolved(t *testing.T) {
	n := bootWithPods(nil, apiPodNamed("web", "u1"), apiPodNamed("app", "u2"))
	n.stopsFail = true
	delete(n.apiServer.objects, "default/web")
	n.restart()
	n.advance(5 * time.Second)
	const notFound = `NotFound pod "web" does not exist`
	if got := answerLine(n.resolve("default/web c", "u1")); got != notFound {
		t.Errorf("found: %s", got)
	}
	n.event(world.Event{Body: &world.RunningPodsRequest{}})
	want := []*v1.Pod{runningPodNamed("app", "u2"), runningPodNamed("web", "u1")}
	if diff := cmp.Diff(want, n.running); diff != "" {
		t.Errorf("running pods (-want +got):\n%s", diff)
	}
}

func runningPodNamed(name, uid string) *v1.Pod {
	return &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, UID: types.UID(uid)},
		Spec:       v1.PodSpec{Containers: []v1.Container{{Name: "c"}}},
	}
}

// FuzzNames resolves any names: the only effect is an answer, and the pod found has the name.
func FuzzNames(f *testing.F) {
	f.Add("default", "web-n1", "", "web")
	f.Add("default", "../default/web-n1", "u1", "web")
	f.Add("default/api", "", "u1\x00", "../../etc")
	f.Add("", "default/api", "..", "c\x00")
	n := bootWithPods(map[string]string{"web.yaml": web}, apiPodNamed("api", "u1"))
	f.Fuzz(func(t *testing.T, namespace, name, uid, container string) {
		effects := n.agent.Step(world.Event{Time: n.now, Body: &world.ContainerRequest{
			Namespace: namespace, Pod: name, UID: uid, Container: container}})
		if len(effects) != 1 || effects[0].Op != 0 {
			t.Fatalf("%d effects", len(effects))
		}
		a := effects[0].Body.(*world.ContainerAnswer)
		called := namespace == "default" && (name == "api" || name == "web-n1")
		if a.Err == nil && !called || a.Err != nil && (a.Err.Kind != world.KindNotFound ||
			called && uid == "" && container == "") {
			t.Errorf("%q %q %q %q: %s", namespace, name, uid, container, answerLine(a))
		}
	})
}
