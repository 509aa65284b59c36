package oracle

import (
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"seedlet.dev/world"
)

// runtimeReady fires when the agent asks a runtime for what it has said that it cannot do now. That
// pods run once it can is checked by progress.
type runtimeReady struct{}

func (*runtimeReady) describe() Entry {
	return Entry{"runtime-ready", "While the runtime says that it is not ready, no sandbox or " +
		"container is created, no container started and no image pulled; while its network is not " +
		"ready, no sandbox is created but in the node's network."}
}

// runtimeReadiness is what the runtime has reported to the agent. The zero value is that of
// an agent to which it has reported nothing.
type runtimeReadiness struct {
	op       world.OpID // of the newest request for it
	deadline time.Time

	notReady, networkNotReady bool
	hasReported               bool
	since                     time.Time // when the report was first such
}

func (r *runtimeReadiness) received(now time.Time, ev *world.Event) {
	if ev.Op == 0 || ev.Op != r.op {
		return
	}
	r.op = 0
	response, isStatus := ev.Body.(*runtimeapi.StatusResponse)
	if ev.Err != nil || !isStatus || now.After(r.deadline) {
		return
	}
	before := *r
	r.notReady, r.networkNotReady = false, false
	for _, c := range response.GetStatus().GetConditions() {
		switch {
		case c.Status:
		case c.Type == runtimeapi.RuntimeReady:
			r.notReady = true
		case c.Type == runtimeapi.NetworkReady:
			r.networkNotReady = true
		}
	}
	if !r.hasReported || r.notReady != before.notReady ||
		r.networkNotReady != before.networkNotReady {
		r.since = now
	}
	r.hasReported = true
}

// asked returns why the agent should not have issued a call.
func (r *runtimeReadiness) asked(eff *world.Effect) *finding {
	needsNetwork := false
	switch body := eff.Body.(type) {
	case *runtimeapi.StatusRequest:
		r.op, r.deadline = eff.Op, eff.Deadline
		return nil
	case *runtimeapi.RunPodSandboxRequest:
		needsNetwork = body.GetConfig().GetLinux().GetSecurityContext().GetNamespaceOptions().
			GetNetwork() != runtimeapi.NamespaceMode_NODE
	case *runtimeapi.CreateContainerRequest, *runtimeapi.StartContainerRequest,
		*runtimeapi.PullImageRequest:
	default:
		return nil
	}
	call := world.CallName(eff.Body)
	switch {
	case r.notReady:
		return findingf("pod %s: %s was called, although the runtime has said that it is not ready",
			eff.Pod, call)
	case r.networkNotReady && needsNetwork:
		return findingf("pod %s: %s was called, although the runtime has said that its network is "+
			"not ready", eff.Pod, call)
	}
	return nil
}
