package pod

import (
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"seedlet.dev/world"
)

// A pod with a RuntimeClass gets a sandbox once the class exists, with its handler.
func TestRuntimeClass(t *testing.T) {
	class := "gvisor"
	r := newPodHarness(t, func(s *v1.PodSpec) { s.RuntimeClassName = &class })
	p := r.pod
	r.planAt(0).expectNoCall("RunPodSandbox")
	if got := waiting(p); got.Message !=
		`Failed to create sandbox for pod "p_default(u)": no API server is configured` {
		t.Errorf("without a server: %+v", got)
	}
	api := &fakeServer{}
	r.env.Objects = &api.store
	p.Problems = nil
	r.planAt(0).expectNoCall("RunPodSandbox")
	if got := waiting(p); got.Message != "" {
		t.Errorf("before the class is known: %+v", got)
	}
	var watch world.WatchID
	for id, key := range api.store.Keys {
		if key == "runtimeclasses//gvisor" {
			watch = id
		}
	}
	api.store.HandleWatchEvent(&world.ObjectsListed{Watch: watch}, t0)
	r.planAt(time.Second).expectNoCall("RunPodSandbox")
	if got := waiting(p); got.Reason != "ContainerCreating" || got.Message !=
		`Failed to create sandbox for pod "p_default(u)": `+
			`runtimeclass.node.k8s.io "gvisor" not found` {
		t.Errorf("%+v", got)
	}
	api.store.HandleWatchEvent(&world.ObjectChanged{Watch: watch, Object: world.Object{
		RuntimeClass: &nodev1.RuntimeClass{ObjectMeta: metav1.ObjectMeta{Name: class},
			Handler: "runsc"}}}, t0)
	r.planAt(time.Second).complete("SetCgroup", &world.Done{}, nil)
	got := r.expectCall("RunPodSandbox").Body.(*runtimeapi.RunPodSandboxRequest)
	if got.RuntimeHandler != "runsc" {
		t.Errorf("handler %q", got.RuntimeHandler)
	}
}
