package pod

import (
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"seedlet.dev/core/budget"
)

// A runtime answers with up to 16 MiB. Texts are cut when they are recorded. An image ID of that
// length is left out: a part of it would name another image.
func TestLongTextsOfTheRuntimeAreCut(t *testing.T) {
	long := strings.Repeat("x", 1<<20)
	p := runningPod(func(*v1.Container) {})
	p.Containers[0].Inspected = Created
	r := newHarness(t, p)
	r.planAt(0).complete("ContainerStatus", &runtimeapi.ContainerStatusResponse{
		Status: &runtimeapi.ContainerStatus{Id: p.Containers[0].ID, Message: long, Reason: long,
			ImageRef: long, Image: &runtimeapi.ImageSpec{Image: long},
			State: runtimeapi.ContainerState_CONTAINER_RUNNING}}, nil)
	c := &p.Containers[0]
	if len(c.Message) != budget.MessageMax || len(c.Reason) != budget.ReasonMax || c.ImageID != "" ||
		len(c.Image) != budget.ImageReferenceMax {
		t.Errorf("message of %d bytes, reason of %d, image ID of %d, image of %d", len(c.Message),
			len(c.Reason), len(c.ImageID), len(c.Image))
	}
	for _, call := range []string{"CreateContainer", "SetCgroup"} {
		pr := p.noteFailure("web", call, internalError(long), t0)
		if len(pr.Message) > budget.MessageMax+100 {
			t.Errorf("%s: a problem of %d bytes", call, len(pr.Message))
		}
	}
}
