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

// roots are the only places on the disk where the agent of a test has anything to do.
var roots = []string{"/var/lib/kubelet", "/var/log/pods", "/var/log/containers", "/manifests",
	"/etc/hosts", "/etc/resolv.conf"}

// stray is a path that an effect names and that is nowhere where it may be; empty for none.
func stray(effect any) string {
	if world.PortOf(effect) != world.PortFS {
		return ""
	}
	v := reflect.ValueOf(effect).Elem()
	for _, name := range []string{"Path", "Dir", "To", "Target"} {
		field := v.FieldByName(name)
		if !field.IsValid() || field.Kind() != reflect.String || field.String() == "" {
			continue
		}
		is, within := field.String(), false
		for _, root := range roots {
			within = within || is == root || strings.HasPrefix(is, root+"/")
		}
		if !within || path.Clean(is) != is || strings.Contains(is, "\x00") {
			return world.Call(effect) + " " + is
		}
	}
	return ""
}

// watchPaths has a node fail the test when its agent goes where it should not, or asks the runtime
// for what cannot be.
func (n *node) watchPaths(t *testing.T) {
	n.server.seen = func(effect any) {
		if stop, is := effect.(*runtimeapi.StopContainerRequest); is && stop.Timeout < 0 {
			t.Errorf("the agent stops with %v", stop)
		}
		if where := stray(effect); where != "" {
			t.Errorf("the agent goes astray: %q", where)
		}
	}
}

// lives has an agent live for a while, and checks that its state can be kept and shown.
func (n *node) lives(t *testing.T) {
	n.restart()
	n.pass(10 * time.Second)
	if again, err := Restore(snapshotOf(t, n.agent)); err != nil || again == nil {
		t.Fatalf("the state cannot be restored: %v", err)
	}
	n.event(world.Event{Body: &world.PodsRequest{}})
	n.event(world.Event{Body: &world.StateRequest{}})
	n.server.remove("default/web")
	n.pass(2 * time.Minute)
}

func snapshotOf(t *testing.T, a *Agent) []byte {
	t.Helper()
	data, err := a.Snapshot()
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// FuzzRuntime has somebody else make a container in the runtime, with any labels and annotations.
func FuzzRuntime(f *testing.F) {
	f.Add("u1", "default", "web", "c", "0", "30", "{}", "1s", "0", "{}")
	f.Add("..", "default", "web", "c", "", "", "", "", "", "")
	f.Add("u2", "default", "other", "../../../etc", "-1", "-5", `{"exec":{}}`, "-1s", "-1", "{")
	f.Add("u2", "a/b", "..", ".", "9999999999999", "9999999999999",
		`{"httpGet":{"port":"x"}}`, "9999999h", "9999999999999", `{"requests":{"cpu":"1e99"}}`)
	f.Fuzz(func(t *testing.T, uid, namespace, pod, name, restarts, grace, hook, backoff, round,
		claim string) {
		n := joined(nil, boundPodOf("web", "u1"))
		n.watchPaths(t)
		meta := &runtimeapi.PodSandboxMetadata{Uid: uid, Namespace: namespace, Name: pod}
		n.sandboxes["odd-sandbox"] = &runtimeapi.PodSandbox{Id: "odd-sandbox", Metadata: meta,
			Annotations: map[string]string{pleg.AnnotationClaim: claim, pleg.AnnotationIDs: claim}}
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
		n.lives(t)
	})
}
