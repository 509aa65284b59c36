package core

import (
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"seedlet.dev/core/pleg"
	"seedlet.dev/core/podstatus"
	"seedlet.dev/world"
)

// staleServedPod compares the cached pods with what would be served without the cache, after each
// step of every test of the agent. It fills the cache for all pods, so that every change of what is
// served has to drop an entry.
func (n *fakeNode) staleServedPod() string {
	a := n.agent
	if len(a.podUIDs) > 8 {
		return "" // it would take too long
	}
	for _, uid := range a.podUIDs {
		current := podstatus.ServedPod(a.state.Pods[uid], &a.state.Node, a.state.Runtime.Name)
		if cached := a.servedPod(uid); !reflect.DeepEqual(current, cached) {
			return uid + " is served from a stale cache (-want +got):\n" + cmp.Diff(current, cached)
		}
	}
	return ""
}

func TestServedPodIsCachedUntilItChanges(t *testing.T) {
	n := bootNode(map[string]string{"web.yaml": web, "other.yaml": podNamed("other")})
	n.advance(5 * time.Second)
	show := func() map[string]any {
		n.event(world.Event{Body: &world.PodsRequest{}})
		shown := map[string]any{}
		for _, pod := range n.pods {
			shown[pod.Name] = pod
		}
		return shown
	}
	before := show()
	n.advance(10 * time.Second)
	for name, pod := range show() {
		if before[name] != pod {
			t.Errorf("%s was made again although nothing has changed", name)
		}
	}
	for _, c := range n.containers {
		if c.Metadata.Name == "web" && c.Labels[pleg.LabelPodName] == "web-n1" {
			c.State = runtimeapi.ContainerState_CONTAINER_EXITED
		}
	}
	n.advance(2 * time.Second)
	after := show()
	if before["web-n1"] == after["web-n1"] || before["other-n1"] != after["other-n1"] {
		t.Error("only the pod whose container has ended must be made again")
	}
}

// A rejected pod that is removed, or replaced, while a long list waits to be applied is neither
// served nor awaited any more.
func TestRejectedPodIsRemovedWhileAListIsPending(t *testing.T) {
	const size = 8 * apiPodsPerStep
	n := newNode(nil)
	n.apiServer, n.measure = newServer(), func(ev world.Event,
		step func(world.Event) []world.Effect) ([]world.Effect, bool) {
		return step(ev), false
	}
	reject := func(p *v1.Pod) { p.Spec.ResourceClaims = []v1.PodResourceClaim{{}} }
	putPods(n, size, reject)
	n.apiServer.undelivered = nil
	n.restart()
	n.advance(5 * time.Second)
	served := func() []*v1.Pod {
		for _, eff := range n.agent.Step(world.Event{Time: n.now, Body: &world.PodsRequest{}}) {
			n.perform(eff.Body)
		}
		return n.pods
	}
	serve := func(want int) {
		t.Helper()
		pods, awaiting := served(), n.agent.podsAwaitingAdmission()
		if len(n.agent.state.PendingAPIPods) == 0 {
			t.Fatal("no list is pending")
		}
		if len(pods) != want || len(awaiting) != want {
			t.Errorf("%d pods are served, %d await admission, not %d", len(pods), len(awaiting), want)
		}
	}
	relist := func() { // one step only: each applies a part of the list
		list := &world.ObjectsListed{Watch: n.apiServer.watch}
		for _, p := range n.apiServer.objects {
			list.Objects = append(list.Objects, world.Object{Pod: p})
		}
		n.agent.Step(world.Event{Time: n.now, Body: list})
	}
	putPods(n, size, reject)
	relist()
	serve(size)
	last := fmt.Sprintf("default/p%05d", size-1)
	gone := n.apiServer.objects[last]
	delete(n.apiServer.objects, last)
	n.agent.Step(world.Event{Time: n.now, Body: &world.ObjectGone{Watch: n.apiServer.watch,
		Object: world.Object{Pod: gone}}})
	serve(size - 1)
	putPods(n, size, func(p *v1.Pod) { // replaced
		reject(p)
		p.UID += "x"
	})
	delete(n.apiServer.objects, fmt.Sprintf("default/p%05d", size-2))
	relist()
	for _, uid := range n.agent.podsAwaitingAdmission() {
		if !strings.HasSuffix(uid, "x") {
			t.Fatalf("%s was replaced and awaits admission", uid)
		}
	}
	clear(n.apiServer.objects)
	relist()
	if left := len(served()); left > 0 {
		t.Errorf("%d pods are served that are gone", left)
	}
	if left := len(n.agent.podsAwaitingAdmission()); left > 0 {
		t.Errorf("%d pods that are gone await admission", left)
	}
}
