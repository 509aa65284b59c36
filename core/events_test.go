package core

import (
	"testing"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"seedlet.dev/world"
)

// The stream is opened only if the feature gate asks for it, and what it tells of a pod that
// nobody knows has the runtime listed, but makes no pod.
func TestEventsAreAnOption(t *testing.T) {
	for _, on := range []bool{false, true} {
		config := defaults()
		config.FeatureGates = map[string]bool{"EventedPLEG": on}
		a := New(Options{Config: config, NodeName: "n1", RootDir: "/var/lib/kubelet"})
		now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
		opened := false
		for _, eff := range a.Step(world.Event{Time: now, Body: &world.Boot{}}) {
			if _, is := eff.Body.(*runtimeapi.GetEventsRequest); is {
				opened = true
			}
		}
		if opened != on {
			t.Errorf("gate %t: stream asked for: %t", on, opened)
		}
		a.Step(world.Event{Time: now.Add(1), Body: &runtimeapi.ContainerEventResponse{
			ContainerId: "c", PodSandboxStatus: &runtimeapi.PodSandboxStatus{
				Metadata: &runtimeapi.PodSandboxMetadata{Uid: "nobody"}}}})
		if !a.state.Relist.Needed.Equal(now.Add(1)) || len(a.state.Pods) != 0 {
			t.Errorf("needed since %s, pods %v", a.state.Relist.Needed, a.state.Pods)
		}
	}
}
