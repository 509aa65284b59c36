package oracle

import (
	"fmt"
	"slices"

	v1 "k8s.io/api/core/v1"

	"seedlet.dev/sim/truth"
)

// policy fires when a container runs again although its pod's restart policy says no. A changed
// container may run again, and a new sandbox is initialised again.
type policy struct{}

func (*policy) entry() Entry {
	return Entry{"restart-policy", "Never: no container runs twice. OnFailure: none runs again " +
		"after exit code 0. A container's own policy and rules go first. No init container " +
		"runs again where it has completed."}
}

func (*policy) fact(w *world, f *truth.Fact) *finding {
	c := w.containers[f.ContainerID]
	if f.Kind != truth.ContainerStarted || c == nil || c.pod.loosest == "" {
		return nil
	}
	last := c.pod.runsOf(c.name).last
	if last == nil || last == c || last.hash != c.hash || !last.ran() {
		return nil
	}
	if c.pod.byHand { // its record may have gone before anybody knew how it ended
		return nil
	}
	if c.round > last.round {
		return nil // all containers run again, which others judge
	}
	if last.rule() == v1.ContainerRestartRuleActionRestartAllContainers && !c.pod.respecified {
		return &finding{message: fmt.Sprintf("%s ran again alone, but had exited with %d, for "+
			"which its rule is to restart all containers", c, last.code)}
	}
	if c.pod.sidecar(c.name) > 0 || c.spec == nil && c.pod.ruled(c.name) {
		return nil // it runs again whatever the pod's policy says, or that cannot be told
	}
	if !last.stopAt.IsZero() && last.spec != nil && (last.spec.LivenessProbe != nil ||
		last.spec.StartupProbe != nil) && c.pod.loosest != v1.RestartPolicyNever {
		return nil // it was ended to be run anew, however it took that
	}
	init := c.pod.isInit(c.name)
	if init && last.sandbox != c.sandbox {
		return nil
	}
	because := ""
	switch {
	case init && c.sandbox != nil && slices.Contains(c.sandbox.ended, c.name):
		because = "it had completed in this sandbox"
	case restarts(last.spec, c.pod.loosest, last.code):
		return nil
	case last.spec != nil && last.spec.RestartPolicy != nil:
		because = fmt.Sprintf("its restart policy is %s, and no rule of it is for exit code %d",
			*last.spec.RestartPolicy, last.code)
	case c.pod.loosest == v1.RestartPolicyNever:
		because = "its pod's restart policy is Never"
	default:
		because = "its pod's restart policy is OnFailure and it had exited with 0"
	}
	return &finding{message: fmt.Sprintf("%s ran again, but %s", c, because)}
}
