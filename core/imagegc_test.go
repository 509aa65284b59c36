package core

import (
	"strings"
	"testing"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"seedlet.dev/core/imagegc"
	"seedlet.dev/core/op"
	"seedlet.dev/world"
)

// Images are removed also while the API server has not been reached since the start, once its pods
// were waited for: the disk fills all the same.
func TestImagesAreCollectedWithoutAPIServer(t *testing.T) {
	n := newNode(map[string]string{"a.yaml": podNamed("a")})
	n.apiServer = newServer()
	n.apiServer.unavailable = true
	n.restart()
	n.advance(4 * time.Minute)
	if !n.agent.state.ImageGC.NextAt.IsZero() {
		t.Error("the pods of the API server were not waited for")
	}
	n.advance(2 * time.Minute)
	if n.agent.state.ImageGC.NextAt.IsZero() {
		t.Error("no round has ended")
	}
	if env := n.agent.imageGCEnv(); !env.Ready || env.KnowsPods {
		t.Errorf("ready %t, knows the pods %t: images may be removed for their age", env.Ready,
			env.KnowsPods)
	}
}

// No container is created with an image whose removal is in flight: it is pulled after that.
func TestNoContainerOfImageThatIsRemoved(t *testing.T) {
	n := bootWithPods(nil)
	gc := &n.agent.state.ImageGC
	gc.Records = map[string]*imagegc.Record{
		"sha256:1": {Names: []string{"docker.io/library/i:latest"}}}
	gc.Round = &imagegc.Round{Step: imagegc.StepSpace, All: true, Removing: "sha256:1", Op: 9999}
	n.apiServer.put(apiPodNamed("a", "u1"))
	n.event(world.Event{})
	n.advance(time.Minute)
	if calls := n.takeCalls(); calls != "run sandbox" {
		t.Errorf("during the removal: %s", calls)
	}
	n.agent.handleImageGCCompletion(op.Record{Owner: imagegc.Owner, Call: "RemoveImage",
		Subject: "sha256:1"}, world.Event{Time: n.now, Body: &runtimeapi.RemoveImageResponse{}})
	n.advance(time.Second)
	if calls := n.takeCalls(); !strings.HasPrefix(calls, "create c") {
		t.Errorf("after the removal: %s", calls)
	}
}
