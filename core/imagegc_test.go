package core

import (
	"testing"
	"time"
)

// Images are removed also while the API server has not been reached since the start, once its pods
// were waited for: the disk fills all the same.
func TestImagesAreCollectedWithoutAPIServer(t *testing.T) {
	n := newNode(map[string]string{"a.yaml": podNamed("a")})
	n.apiServer = newServer()
	n.apiServer.unavailable = true
	n.restart()
	n.advance(podsAwaited - time.Minute)
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
