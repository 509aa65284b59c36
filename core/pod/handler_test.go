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

// A pod that names a RuntimeClass gets a sandbox once that is there, with its handler.
func TestRuntimeClass(t *testing.T) {
	class := "gvisor"
	r := fresh(t, func(s *v1.PodSpec) { s.RuntimeClassName = &class })
	p := r.pod
	r.at(0).none("RunPodSandbox")
	if got := p.waiting("web", App); got.Message !=
		`Failed to create sandbox for pod "p_default(u)": no API server is configured` {
		t.Errorf("without a server: %+v", got)
	}
	api := &server{}
	r.env.Objects = &api.store
	p.Problems = nil
	r.at(0).none("RunPodSandbox")
	if got := p.waiting("web", App); got.Message != "" {
		t.Errorf("before it is known: %+v", got)
	}
	var watch world.WatchID
	for id, key := range api.store.Keys {
		if key == "runtimeclasses//gvisor" {
			watch = id
		}
	}
	api.store.Take(&world.ObjectsListed{Watch: watch}, t0)
	r.at(time.Second).none("RunPodSandbox")
	if got := p.waiting("web", App); got.Reason != "ContainerCreating" || got.Message !=
		`Failed to create sandbox for pod "p_default(u)": `+
			`runtimeclass.node.k8s.io "gvisor" not found` {
		t.Errorf("%+v", got)
	}
	api.store.Take(&world.ObjectChanged{Watch: watch, Object: world.Object{
		RuntimeClass: &nodev1.RuntimeClass{ObjectMeta: metav1.ObjectMeta{Name: class},
			Handler: "runsc"}}}, t0)
	r.at(time.Second).answer("SetCgroup", &world.Done{}, nil)
	got := r.want("RunPodSandbox").Body.(*runtimeapi.RunPodSandboxRequest)
	if got.RuntimeHandler != "runsc" {
		t.Errorf("handler %q", got.RuntimeHandler)
	}
}
