package core

import (
	"reflect"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"seedlet.dev/core/pleg"
	"seedlet.dev/world"
)

// stale is what is kept of how pods are shown and is not so any more, after each step of every
// test of the agent. What is kept is made for all pods, so that each change has to have it made
// anew.
func (n *node) stale() string {
	a := n.agent
	if len(a.uids) > 8 {
		return "" // it would take too long
	}
	for _, uid := range a.uids {
		is := a.state.Pods[uid].API(&a.state.Node, a.state.Runtime.Name)
		if shown := a.show(uid); !reflect.DeepEqual(is, shown) {
			return uid + " is shown as it was (-is +shown):\n" + cmp.Diff(is, shown)
		}
	}
	return ""
}

func TestAPodIsShownAnewOnlyWhenItHasChanged(t *testing.T) {
	n := boot(map[string]string{"web.yaml": web, "other.yaml": podNamed("other")})
	n.pass(5 * time.Second)
	show := func() map[string]any {
		n.event(world.Event{Body: &world.PodsRequest{}})
		shown := map[string]any{}
		for _, pod := range n.pods {
			shown[pod.Name] = pod
		}
		return shown
	}
	before := show()
	n.pass(10 * time.Second)
	for name, pod := range show() {
		if before[name] != pod {
			t.Errorf("%s was made anew although nothing has happened", name)
		}
	}
	for _, c := range n.containers {
		if c.Metadata.Name == "web" && c.Labels[pleg.LabelPodName] == "web-n1" {
			c.State = runtimeapi.ContainerState_CONTAINER_EXITED
		}
	}
	n.pass(2 * time.Second)
	after := show()
	if before["web-n1"] == after["web-n1"] || before["other-n1"] != after["other-n1"] {
		t.Error("not the pod was made anew of which a container has ended")
	}
}
