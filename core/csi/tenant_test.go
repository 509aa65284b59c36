package csi

import (
	"fmt"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"seedlet.dev/core/budget"
	"seedlet.dev/world"
)

// All operations on the volumes of a pod take the share of the pod, also those that undo them:
// otherwise a pod with many volumes has as many shares.
func TestVolumesShareWithTheirPod(t *testing.T) {
	for name, u := range map[string]Use{"a file system": use("a"), "a device": device("a"),
		"inline": inline("a")} {
		n := newReady(t)
		n.tenants = map[string]string{}
		n.need(u)
		n.end("a")
		for call, tenant := range n.tenants {
			if tenant != "a" {
				t.Errorf("%s: the tenant of %s is %q", name, call, tenant)
			}
		}
		if len(n.tenants) < 5 {
			t.Errorf("%s: only %v", name, n.tenants)
		}
	}
	n := newReady(t)
	n.need(use("a"))
	delete(n.pods, "a")
	n.restart()
	n.tenants = map[string]string{}
	n.register()
	if got := n.tenants["UnstageVolume"]; got != "a" {
		t.Errorf("after a restart the tenant is %q", got)
	}
}

// A pod with many volumes does not take the last ones of the node, and pods that were refused one
// are planned when there is room.
func TestRoomForVolumes(t *testing.T) {
	n := newReady(t)
	fill := func(uid string, count int) {
		for range count {
			u := inline(uid)
			u.SpecName = fmt.Sprint("v", len(n.node.Volumes))
			u.Handle = EphemeralHandle(uid, u.SpecName)
			if state, _ := n.node.Use(u, n.now); state.Problem != "" {
				t.Fatalf("refused at %d: %s", len(n.node.Volumes), state.Problem)
			}
		}
	}
	refused := func(uid string) bool {
		state, _ := n.node.Use(inline(uid), n.now)
		return strings.Contains(state.Problem, "CSI volumes")
	}
	fill("greedy", budget.CSIVolumesLargeMax)
	if !refused("greedy") {
		t.Error("a pod with many volumes takes more than its part of the node")
	}
	fill("small", budget.CSIVolumesSmallMax)
	fill("smaller", budget.CSIVolumesSmallMax-1)
	if refused("smaller") {
		t.Error("a pod with few volumes is refused one more")
	}
	n.pods["greedy"], n.pods["small"], n.pods["smaller"] = true, true, true
	n.node.Release("greedy")
	env := n.env()
	planned := 0
	env.EnqueuePods = func() { planned++ }
	for name, v := range n.node.Volumes {
		if len(v.Uses) == 0 {
			n.node.PlanVolume(name, env)
		}
	}
	if planned != 1 {
		t.Errorf("all pods are planned %d times when there is room again, want once", planned)
	}
	if refused("greedy") {
		t.Error("refused although there is room")
	}
}

// A secret that a pod names is read only while the pod, by its budget, may refer to it. The volume
// says why it waits.
func TestSecretOfPod(t *testing.T) {
	n := newReady(t)
	u := inline("a")
	u.PublishSecret = &v1.SecretReference{Namespace: "ns", Name: "s"}
	target := secretTarget(u.PublishSecret)
	if s := n.need(u); s.Ready || !strings.Contains(s.Problem, "the secret is not read") ||
		n.objects.Watch(target) != nil {
		t.Errorf("got %+v", s)
	}
	n.objects.AddReference(target, "a", &n.effects)
	w := n.objects.Watch(target)
	w.Listed = true
	w.Objects = map[string]world.Object{"ns/s": {Secret: &v1.Secret{ObjectMeta: metav1.ObjectMeta{
		Namespace: "ns", Name: "s"}, Data: map[string][]byte{"k": []byte("v")}}}}
	n.wait(time.Minute)
	if !n.isReady(u) {
		t.Errorf("not ready with the secret: %+v", n.node.UseStateOf(&u))
	}
	publish := n.requests[len(n.requests)-1].(*world.PublishVolume)
	if publish.Secrets["k"] != "v" || !n.objects.HasUser(target, watchUser(UniqueName(u.Driver,
		u.Handle))) {
		t.Errorf("published with %v", publish.Secrets)
	}
	n.objects.DeleteReference(target, "a", &n.effects)
	n.end("a")
	if n.objects.Watch(target) != nil {
		t.Error("the secret is still read")
	}
}

// A pod gets no more volumes than their drivers may ask for tokens for. It gets the others once the
// driver asks for none.
func TestTokensOfDrivers(t *testing.T) {
	const perVolume = 3
	n := newReady(t)
	spec := noAttach()
	for i := range perVolume {
		spec.TokenRequests = append(spec.TokenRequests,
			storagev1.TokenRequest{Audience: fmt.Sprint("audience-", i)})
	}
	n.setDriverObject(spec)
	use := func(uid string, i int) Use {
		u := inline(uid)
		u.SpecName = fmt.Sprint("v", i)
		u.Handle = EphemeralHandle(uid, u.SpecName)
		return u
	}
	most := budget.DriverTokensMax / perVolume
	for i := range most {
		if s := n.need(use("greedy", i)); !s.Ready {
			t.Fatalf("volume %d: %+v", i, s)
		}
	}
	last := use("greedy", most)
	s := n.need(last)
	want := "asks for 3 tokens, and other volumes of the pod have 63"
	if s.Ready || !strings.Contains(s.Problem, want) ||
		s.OverBudget != budget.DriverTokens.Name() {
		t.Errorf("the volume after the last one: %+v", s)
	}
	if s := n.need(use("other", 0)); !s.Ready {
		t.Errorf("a volume of another pod: %+v", s)
	}
	n.setDriverObject(noAttach())
	n.wait(5 * time.Minute)
	if s := n.node.UseStateOf(&last); !s.Ready || s.OverBudget != "" {
		t.Errorf("once the driver asks for none: %+v", s)
	}
}
