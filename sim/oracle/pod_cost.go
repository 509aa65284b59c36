package oracle

import (
	"time"

	"seedlet.dev/sim/truth"
)

// podCost fires when one pod gets more of what all pods share than one pod may have. The bounds are
// those of docs/budgets.md, written out again: an oracle does not read the core's constants. That
// pods do not take API objects, operations and lanes from each other is checked by isolation.
type podCost struct {
	tokens map[string]map[tokenIdentity]bool // by UID of the pod
}

// tokenIdentity is what two tokens of one projection have in common.
type tokenIdentity struct {
	audience string
	lifetime time.Duration
}

func (*podCost) describe() Entry {
	return Entry{"pod-cost", "A pod gets at most 64 different tokens; a container gets variables " +
		"with which the kernel can start it."}
}

// The bounds of what one pod gets.
const (
	tokensOfPodMax = 64
	variablesMax   = 100_000
	variableMax    = 128 << 10 // bytes, as the kernel's (execve(2))
	environmentMax = 2 << 20   // bytes, as the kernel's with the default limit of the stack
)

func (o *podCost) checkFact(m *model, f *truth.Fact) *finding {
	switch f.Kind {
	case truth.TokenIssued:
		return o.checkToken(f)
	case truth.ContainerCreated:
		return o.checkVariables(f)
	}
	return nil
}

func (o *podCost) checkToken(f *truth.Fact) *finding {
	if o.tokens == nil {
		o.tokens = map[string]map[tokenIdentity]bool{}
	}
	if o.tokens[f.PodUID] == nil {
		o.tokens[f.PodUID] = map[tokenIdentity]bool{}
	}
	o.tokens[f.PodUID][tokenIdentity{f.Audience, f.Expires.Sub(f.Time).Round(time.Minute)}] = true
	if n := len(o.tokens[f.PodUID]); n > tokensOfPodMax {
		return findingf("pod %s got %d different tokens, one pod may have %d", f.PodName, n,
			tokensOfPodMax)
	}
	return nil
}

func (o *podCost) checkVariables(f *truth.Fact) *finding {
	bytes := 0
	for name, value := range f.Env { //ordered: a sum, and one finding is enough
		length := len(name) + len(value) + len("=\x00")
		if bytes += length; length > variableMax {
			return findingf("container %s of %s was created with a variable of %d bytes, the kernel "+
				"takes %d", f.Container, f.PodName, length, variableMax)
		}
	}
	switch {
	case bytes > environmentMax:
		return findingf("container %s of %s was created with %d bytes of variables, the kernel takes "+
			"%d", f.Container, f.PodName, bytes, environmentMax)
	case len(f.Env) > variablesMax:
		return findingf("container %s of %s was created with %d variables, it may have %d",
			f.Container, f.PodName, len(f.Env), variablesMax)
	}
	return nil
}
