package core

import (
	"path"
	"reflect"
	"strings"
	"testing"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"seedlet.dev/core/pleg"
	"seedlet.dev/world"
)

// allowedRoots are the only paths that the agent of a test may access.
var allowedRoots = []string{"/var/lib/kubelet", "/var/log/pods", "/var/log/containers",
	"/manifests", "/etc/hosts", "/etc/resolv.conf", "/var/lib/containerd"}

// pathOutsideRoots returns a path of an effect that is outside of the allowed roots; empty if there
// is none.
func pathOutsideRoots(effect any) string {
	if world.PortOf(effect) != world.PortFS {
		return ""
	}
	v := reflect.ValueOf(effect).Elem()
	for _, name := range []string{"Path", "Dir", "To", "Target"} {
		field := v.FieldByName(name)
		if !field.IsValid() || field.Kind() != reflect.String || field.String() == "" {
			continue
		}
		where, within := field.String(), false
		for _, root := range allowedRoots {
			within = within || where == root || strings.HasPrefix(where, root+"/")
		}
		if !within || path.Clean(where) != where || strings.Contains(where, "\x00") {
			return world.CallName(effect) + " " + where
		}
	}
	return ""
}

// failOnForbiddenEffects fails the test when the agent accesses a path outside of the allowed
// roots, or sends an invalid call to the runtime.
func (n *fakeNode) failOnForbiddenEffects(t *testing.T) {
	n.apiServer.onEffect = func(effect any) {
		if stop, ok := effect.(*runtimeapi.StopContainerRequest); ok && stop.Timeout < 0 {
			t.Errorf("the agent stops a container with %v", stop)
		}
		if where := pathOutsideRoots(effect); where != "" {
			t.Errorf("the agent accesses a path outside of its roots: %q", where)
		}
	}
}

// runAndSnapshot runs an agent for a while, and checks that its state can be restored and served.
func (n *fakeNode) runAndSnapshot(t *testing.T) {
	n.restart()
	n.advance(10 * time.Second)
	if again, err := Restore(snapshotOf(t, n.agent)); err != nil || again == nil {
		t.Fatalf("the state cannot be restored: %v", err)
	}
	n.event(world.Event{Body: &world.PodsRequest{}})
	n.event(world.Event{Body: &world.StateRequest{}})
	n.apiServer.remove("default/web")
	n.advance(2 * time.Minute)
}

func snapshotOf(t *testing.T, a *Agent) []byte {
	t.Helper()
	data, err := a.Snapshot()
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// FuzzRuntime starts with a container of another client in the runtime, with any labels and
// annotations.
func FuzzRuntime(f *testing.F) {
	f.Add("u1", "default", "web", "c", "0", "30", "{}", "1s", "0", "{}")
	f.Add("..", "default", "web", "c", "", "", "", "", "", "")
	f.Add("u2", "default", "other", "../../../etc", "-1", "-5", `{"exec":{}}`, "-1s", "-1", "{")
	f.Add("u2", "a/b", "..", ".", "9999999999999", "9999999999999",
		`{"httpGet":{"port":"x"}}`, "9999999h", "9999999999999", `{"requests":{"cpu":"1e99"}}`)
	f.Fuzz(func(t *testing.T, uid, namespace, pod, name, restarts, grace, hook, backoff, round,
		claim string) {
		n := bootWithPods(nil, apiPodNamed("web", "u1"))
		n.failOnForbiddenEffects(t)
		meta := &runtimeapi.PodSandboxMetadata{Uid: uid, Namespace: namespace, Name: pod}
		n.sandboxes["odd-sandbox"] = &runtimeapi.PodSandbox{Id: "odd-sandbox", Metadata: meta,
			Annotations: map[string]string{pleg.AnnotationAllocation: claim,
				pleg.AnnotationUserNamespace: claim}}
		n.containers["odd-container"] = &runtimeapi.Container{Id: "odd-container",
			PodSandboxId: "odd-sandbox", State: runtimeapi.ContainerState_CONTAINER_RUNNING,
			Metadata: &runtimeapi.ContainerMetadata{Name: name},
			Labels: map[string]string{pleg.LabelPodUID: uid, pleg.LabelPodNamespace: namespace,
				pleg.LabelPodName: pod, pleg.LabelContainer: name},
			Annotations: map[string]string{
				"io.kubernetes.container.restartCount":           restarts,
				"io.kubernetes.pod.terminationGracePeriod":       grace,
				"io.kubernetes.container.preStopHandler":         hook,
				"io.kubernetes.container.terminationMessagePath": hook,
				"io.kubernetes.container.ports":                  hook,
				"seedlet.dev/restart-backoff":                    backoff,
				"seedlet.dev/round":                              round,
				"seedlet.dev/sidecar":                            round,
			}}
		n.runAndSnapshot(t)
	})
}
