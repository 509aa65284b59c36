package sim

import (
	"fmt"
	"runtime"
	"strings"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"seedlet.dev/sim/plan"
	"seedlet.dev/world"
	"seedlet.dev/world/panics"
)

// Panics of the agent over a pod. The core has no switch that makes it panic: a response of the
// runtime about the pod is replaced by one of another kind, as of a broken port. What follows is
// what the agent's process does in reality (cmd/seedlet/panic.go): the pod that the core was
// working on is noted, the process ends, and the next one gets the record in its boot event.

// panicDown is how long the service manager takes to start the agent again after a panic.
const panicDown = plan.Duration(time.Second)

// notePanic records a panic over the pod that the core names; nothing if it names none.
func (r *run) notePanic(uid string, now time.Time) {
	if uid != "" {
		r.panics.Note(uid, "", now)
	}
}

// setAside returns the record for the boot event of an agent that starts.
func (r *run) setAside(now time.Time) []world.PodSetAside {
	var earlier []panics.Entry
	if r.panics != nil {
		earlier = r.panics.Entries()
	}
	r.panics = panics.Open(earlier, now)
	return r.panics.SetAside(now)
}

// plannedPanic is the panic that a replaced response may cause; empty for none.
type plannedPanic struct {
	name, uid string // of the pod
	text      string // of the panic
	function  string // that panics, with its package; empty: the text is of no other function
}

// difference returns how a panic differs from the planned one; empty if it does not. Over is the
// pod that the agent names, and function the one that has panicked.
func (p *plannedPanic) difference(broken any, over, function string) string {
	switch text := fmt.Sprint(broken); {
	case p.uid == "" || text != p.text:
		return text
	case p.function != "" && function != p.function:
		return fmt.Sprintf("%s in %s, not in %s", text, function, p.function)
	case over != p.uid:
		return fmt.Sprintf("the agent names the pod %q after a panic over %q: %s", over, p.uid, text)
	}
	return ""
}

// panickedFunction returns the function that has panicked, with its package. It is called by the
// deferred function that recovers. The functions of package runtime that raise the panic are above
// it on the stack.
func panickedFunction() string {
	callers := make([]uintptr, 32)
	frames := runtime.CallersFrames(callers[:runtime.Callers(1, callers)])
	for raised := false; ; {
		frame, more := frames.Next()
		isRuntime := strings.HasPrefix(frame.Function, "runtime.")
		switch {
		case raised && !isRuntime, !more:
			return frame.Function
		case isRuntime:
			raised = true
		}
	}
}

// spoil replaces a response over which the agent is to panic. It returns that panic; empty if the
// event stays as it is.
func (r *run) spoil(ev world.Event) (spoilt world.Event, planned plannedPanic) {
	if len(r.panicsLeft) == 0 || r.healed || ev.Err != nil {
		return ev, plannedPanic{}
	}
	var name, uid, text, function string
	spoilt = ev
	switch body := ev.Body.(type) {
	case *runtimeapi.RunPodSandboxResponse:
		name, uid = r.podOfSandbox(body.PodSandboxId)
		spoilt.Body = &runtimeapi.CreateContainerResponse{ContainerId: body.PodSandboxId}
		text, function = textNoContainer, functionNoContainer
	case *runtimeapi.PodSandboxStatusResponse:
		name, uid = r.podOfSandbox(body.GetStatus().GetId())
		spoilt.Body = &world.Done{}
		text = conversionText(spoilt.Body, body)
	case *runtimeapi.ContainerStatusResponse:
		for _, c := range r.runtime.Containers() {
			if c.ID == body.GetStatus().GetId() {
				name, uid = withoutNodeSuffix(c.PodName), c.PodUID
			}
		}
		spoilt.Body = &world.Done{}
		text = conversionText(spoilt.Body, body)
	}
	if r.panicsLeft[name] == 0 {
		return ev, plannedPanic{}
	}
	return spoilt, plannedPanic{name: name, uid: uid, text: text, function: function}
}

// The panic over the creation of a container that the agent has not asked for: there is no
// container to add. Many a bug has the same text, so the function counts as well.
const (
	textNoContainer     = "runtime error: invalid memory address or nil pointer dereference"
	functionNoContainer = "seedlet.dev/core/pod.(*Pod).handleCreation"
)

// conversionText returns the text of the panic over a response of another type than is wanted.
func conversionText(got, want any) string {
	return fmt.Sprintf("interface conversion: interface {} is %T, not %T", got, want)
}

// podOfSandbox returns the name and the UID of a sandbox's pod; empty if there is no such sandbox.
func (r *run) podOfSandbox(id string) (name, uid string) {
	for _, s := range r.runtime.Sandboxes() {
		if s.ID == id {
			return withoutNodeSuffix(s.PodName), s.PodUID
		}
	}
	return "", ""
}

// panicsOfPlan returns how often the agent is to panic over each pod, by name.
func panicsOfPlan(spec *plan.Spec) map[string]int {
	counts := map[string]int{}
	for i := range spec.Pods {
		if p := &spec.Pods[i]; p.Panics > 0 {
			counts[plan.ManifestName(p.Manifest)] = p.Panics
		}
	}
	return counts
}
