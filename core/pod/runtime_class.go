package pod

import (
	"errors"
	"fmt"

	"seedlet.dev/core/criconfig"
	"seedlet.dev/world"
)

// runtimeHandler returns the runtime handler of the pod's RuntimeClass; empty for the runtime's
// default handler. It reports false while the handler is not known; the pod is planned again when
// the RuntimeClass changes. A missing class is a problem of the pod. Without an API server the
// handler of a class cannot be known, and the pod does not run with a weaker isolation than it
// demands.
func (p *Pod) runtimeHandler(env *Env) (string, bool) {
	class := p.Spec.Spec.RuntimeClassName
	if class == nil || *class == "" {
		return "", true
	}
	cause := errors.New("no API server is configured")
	if env.Objects != nil {
		found := env.Objects.Lookup(world.ResourceRuntimeClasses, "", *class)
		if found.Object != nil {
			return found.Object.RuntimeClass.Handler, true
		}
		if cause = found.Err; cause == nil {
			return "", false
		}
	}
	message := fmt.Sprintf("Failed to create sandbox for pod %q: %v", criconfig.PodDesc(p.Spec), cause)
	pr := p.ProblemOf("")
	if pr == nil {
		p.Problems = append(p.Problems, Problem{})
		pr = &p.Problems[len(p.Problems)-1]
	}
	if pr.Message != message {
		p.recordEvent(env, "", warning, reasonFailedCreateSandbox,
			"Failed to create pod sandbox: %v", cause)
	}
	*pr = Problem{Call: "RunPodSandbox", Reason: waitingReasons["RunPodSandbox"], Message: message}
	return "", false
}
