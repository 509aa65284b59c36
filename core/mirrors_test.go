package core

import (
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"seedlet.dev/world"
)

// The mirror of a static pod whose manifest is changed or removed stays until the pod has ended, as
// with the kubelet: the same object, in phase Running.
func TestMirrorStaysUntilStaticPodHasEnded(t *testing.T) {
	changed := strings.Replace(podNamed("a"), "spec: {", "spec: {terminationGracePeriodSeconds: 7,", 1)
	for _, test := range []struct {
		name, manifest string
		restart        bool // of the agent, before it reads the manifest
	}{
		{"changed", changed, false}, {"removed", "", false},
		{"changed while the agent is down", changed, true},
		{"removed while the agent is down", "", true},
	} {
		n := bootWithPods(map[string]string{"a.yaml": podNamed("a")})
		first := n.apiServer.objects["default/a-n1"]
		n.stopsFail = true
		if n.manifests["a.yaml"] = test.manifest; test.manifest == "" {
			delete(n.manifests, "a.yaml")
		}
		if test.restart {
			n.restart()
		}
		n.event(world.Event{Body: &world.FileChanged{Path: "/manifests"}})
		n.advance(time.Minute)
		kept := n.apiServer.objects["default/a-n1"]
		if kept == nil || kept.UID != first.UID || kept.Status.Phase != v1.PodRunning {
			t.Errorf("%s: while the pod terminates, writes %q", test.name, n.apiServer.writes)
		}
		n.stopsFail = false
		n.advance(5 * time.Minute)
		next := n.apiServer.objects["default/a-n1"]
		switch {
		case test.manifest == "" && next != nil:
			t.Errorf("%s: a mirror is left", test.name)
		case test.manifest != "" && (next == nil || next.UID == first.UID ||
			next.Status.Phase != v1.PodRunning):
			t.Errorf("%s: mirror %+v of the next pod", test.name, next)
		}
	}
}

// A static pod that is terminating is reported on its mirror as far as it is not terminal: its
// conditions change.
func TestStatusOfTerminatingStaticPodIsWritten(t *testing.T) {
	n := bootWithPods(map[string]string{"a.yaml": podNamed("a")})
	n.stopsFail = true
	delete(n.manifests, "a.yaml")
	n.event(world.Event{Body: &world.FileChanged{Path: "/manifests"}})
	for _, s := range n.sandboxes {
		s.State = runtimeapi.PodSandboxState_SANDBOX_NOTREADY
	}
	n.advance(time.Minute)
	for _, c := range n.apiServer.objects["default/a-n1"].Status.Conditions {
		if c.Type == v1.PodReadyToStartContainers && c.Status != v1.ConditionFalse {
			t.Errorf("condition %+v", c)
		}
	}
}
