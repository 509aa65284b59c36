package pod

import (
	"errors"
	"fmt"

	"seedlet.dev/world"
)

// handler is what runs the pod in the runtime, by its RuntimeClass; empty is the runtime's own
// choice. It reports false while that is not known, and says why if the class is missing: its
// changes have the pod planned again. Without a server nobody can say what a class means, and the
// pod is not run by something weaker than it asks for.
func (p *Pod) handler(env *Env) (string, bool) {
	class := p.Spec.Spec.RuntimeClassName
	if class == nil || *class == "" {
		return "", true
	}
	why := errors.New("no API server is configured")
	if env.Objects != nil {
		found := env.Objects.Find(world.ResourceRuntimeClasses, "", *class)
		if found.Object != nil {
			return found.Object.RuntimeClass.Handler, true
		}
		if why = found.Err; why == nil {
			return "", false
		}
	}
	message := fmt.Sprintf("Failed to create sandbox for pod %q: %v", p.logged(), why)
	pr := p.problem("")
	if pr == nil {
		p.Problems = append(p.Problems, Problem{})
		pr = &p.Problems[len(p.Problems)-1]
	}
	if pr.Message != message {
		p.event(env, "", warning, reasonSandbox, "Failed to create pod sandbox: %v", why)
	}
	*pr = Problem{Call: "RunPodSandbox", Reason: reasons["RunPodSandbox"], Message: message}
	return "", false
}
