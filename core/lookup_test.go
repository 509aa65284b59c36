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

// ask asks for a container, by "NAMESPACE/POD CONTAINER", or for a pod alone.
func (n *node) ask(names, uid string) *world.ContainerAnswer {
	full, container, _ := strings.Cut(names, " ")
	namespace, name, _ := strings.Cut(full, "/")
	n.found = nil
	n.event(world.Event{Body: &world.ContainerRequest{
		Request: 7, Namespace: namespace, Pod: name, UID: uid, Container: container}})
	return n.found
}

// is puts what matters of an answer into one line.
func is(a *world.ContainerAnswer) string {
	if a.Err != nil {
		return string(a.Err.Kind) + " " + a.Err.Message
	}
	words := []string{a.UID, a.Phase, a.SandboxID, a.ContainerID}
	if a.Status != nil {
		words = append(words, a.Status.ContainerID)
	}
	return strings.Join(words, " ")
}

func TestWhatNamesMean(t *testing.T) {
	n := joined(map[string]string{"web.yaml": web}, boundPodOf("api", "u1"))
	n.pass(5 * time.Second)
	static := string(n.agent.staticPod("default/web-n1").UID)
	mirror := string(n.server.objects["default/web-n1"].UID)
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
		a := n.ask(test.names, test.uid)
		if got := is(a); got != test.want || a.Request != 7 {
			t.Errorf("%s (uid %q): request %d\n%s\nwant %s", test.names, test.uid, a.Request, got,
				test.want)
		}
	}
}

// Clients attach to a process by it.
func TestTheSpecSaysWhetherThereIsATerminal(t *testing.T) {
	with := boundPodOf("desk", "u1")
	with.Spec.Containers[0].TTY = true
	n := joined(nil, with, boundPodOf("plain", "u2"))
	if !n.ask("default/desk c", "").TTY || n.ask("default/plain c", "").TTY {
		t.Error("not as the specs say")
	}
}

// The pod that had the name runs on while another one waits for the name.
func TestANameMeansThePodThatIsWantedNow(t *testing.T) {
	n := joined(nil, boundPodOf("web", "u1"))
	old := is(n.ask("default/web c", ""))
	n.stuck = true
	n.server.remove("default/web")
	n.pass(2 * time.Second)
	if got := is(n.ask("default/web c", "")); got != old {
		t.Errorf("while nothing else has the name: %s, want %s", got, old)
	}
	n.server.put(boundPodOf("web", "u2"))
	n.pass(2 * time.Second)
	if got := is(n.ask("default/web c", "")); got != "u2 Pending   " {
		t.Errorf("while another one waits for the name: %s", got)
	}
	if got := is(n.ask("default/web c", "u1")); got != old {
		t.Errorf("by its UID: %s, want %s", got, old)
	}
	n.stuck = false
	n.pass(time.Minute)
	if got := is(n.ask("default/web c", "u1")); got != `NotFound pod "web" does not exist` {
		t.Errorf("once it has gone: %s", got)
	}
	if got := is(n.ask("default/web c", "")); !strings.HasPrefix(got, "u2 Running s") {
		t.Errorf("when it runs: %s", got)
	}
}

func TestAnIDIsOfTheNewestRun(t *testing.T) {
	n := joined(nil, boundPodOf("web", "u1"))
	first := n.ask("default/web c", "").ContainerID
	n.containers[first].State = runtimeapi.ContainerState_CONTAINER_EXITED
	n.pass(20 * time.Second)
	second := n.ask("default/web c", "")
	if second.ContainerID == first || second.Status.State.Running == nil ||
		second.Status.ContainerID != "fake://"+second.ContainerID {
		t.Errorf("after %s: %+v", first, second)
	}
	delete(n.containers, second.ContainerID)
	n.stuck = true
	n.server.remove("default/web") // no other run begins
	n.pass(2 * time.Second)
	if third := n.ask("default/web c", ""); third.ContainerID != "" || third.Status == nil {
		t.Errorf("when the record of the newest has gone: %+v", third)
	}
}

func TestPodsOfWhichNothingIsThere(t *testing.T) {
	big := asking(boundPodOf("big", "u1"), "100", 0)
	n := joined(map[string]string{"odd.yaml": `{apiVersion: v1, kind: Pod, metadata: {name: odd},
  spec: {volumes: [{name: v, csi: {driver: d}}],
  containers: [{name: c, image: i}]}}`}, big)
	n.pass(time.Second)
	odd := string(n.agent.staticPod("default/odd-n1").UID)
	for names, want := range map[string]string{
		"default/odd-n1 c": odd + " Pending  ",
		"default/odd-n1 d": `NotFound container "d" not found in pod "odd-n1"`,
		"default/big c":    "u1 Failed   ",
	} {
		if got := is(n.ask(names, "")); got != want {
			t.Errorf("%s: %q, want %q", names, got, want)
		}
	}
}

// What only the runtime has is run by nobody, and shown as running.
func TestOrphansRunAndAreNotFound(t *testing.T) {
	n := joined(nil, boundPodOf("web", "u1"), boundPodOf("app", "u2"))
	n.stuck = true
	delete(n.server.objects, "default/web")
	n.restart()
	n.pass(5 * time.Second)
	if got := is(n.ask("default/web c", "u1")); got != `NotFound pod "web" does not exist` {
		t.Errorf("found: %s", got)
	}
	n.event(world.Event{Body: &world.RunningPodsRequest{}})
	want := []*v1.Pod{runs("app", "u2"), runs("web", "u1")}
	if diff := cmp.Diff(want, n.running); diff != "" {
		t.Errorf("running pods (-want +got):\n%s", diff)
	}
}

func runs(name, uid string) *v1.Pod {
	return &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, UID: types.UID(uid)},
		Spec:       v1.PodSpec{Containers: []v1.Container{{Name: "c"}}},
	}
}

// FuzzNames asks by any names: nothing but an answer ever follows, and what is found is called so.
func FuzzNames(f *testing.F) {
	f.Add("default", "web-n1", "", "web")
	f.Add("default", "../default/web-n1", "u1", "web")
	f.Add("default/api", "", "u1\x00", "../../etc")
	f.Add("", "default/api", "..", "c\x00")
	n := joined(map[string]string{"web.yaml": web}, boundPodOf("api", "u1"))
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
			t.Errorf("%q %q %q %q: %s", namespace, name, uid, container, is(a))
		}
	})
}
