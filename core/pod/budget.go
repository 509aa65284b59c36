package pod

import (
	"cmp"
	"errors"
	"fmt"
	"time"

	v1 "k8s.io/api/core/v1"

	"seedlet.dev/core/budget"
	"seedlet.dev/core/criconfig"
	"seedlet.dev/core/token"
	"seedlet.dev/world"
)

// What follows for a pod that exceeds a bound of package budget. It is not started, and its status
// and an event have the number and the bound.

// reasonBudget is the reason of the event about a pod that is not started for what it needs. It is
// not FailedMount, as which kubectl shows a volume that cannot be mounted: nothing was mounted.
const reasonBudget = "BudgetExceeded"

// watchRetryPeriod is how often a pod checks whether the node has watches left.
const watchRetryPeriod = 10 * time.Second

// checkBudget reports whether the pod may not be started, because it needs more than it may have or
// than the node has left, and records why. The objects are those to watch for the pod, and all
// services.
func (p *Pod) checkBudget(objects []world.WatchTarget, env *Env) bool {
	references := max(len(objects)-1, 0)
	for _, object := range objects {
		references += furtherReferences(object)
	}
	problem := checkSpec(p.Spec, references)
	if problem == nil { // these may change: the pod holds its resources
		problem = cmp.Or(budget.CheckImageReferences(&p.Spec.Spec), criconfig.CheckMetadata(p.Spec))
	}
	isFinal := problem != nil
	if !isFinal && env.Objects != nil {
		problem = checkWatchesLeft(objects, references, env) // other pods end
	}
	message := ""
	if problem != nil {
		message = problem.Error()
	}
	if message != "" && message != p.Watches.Problem {
		p.recordEvent(env, "", warning, reasonBudget, "%s", message)
		p.countRefusal(budget.NameOf(problem), env)
	}
	p.Watches.Problem, p.Watches.Complete = message, isFinal
	return problem != nil
}

// ExceedsBudget reports whether the spec of a pod exceeds a bound of one pod, by what does not
// change: ephemeral containers, which may be added at any time, do not count, nor do labels,
// annotations and the references to images. A pod of the API server is never started then: it needs
// nothing of the node, whatever it asks for.
func ExceedsBudget(pod *v1.Pod) bool {
	if len(pod.Spec.EphemeralContainers) > 0 {
		first := *pod
		first.Spec.EphemeralContainers = nil
		pod = &first
	}
	return checkSpec(pod, countReferences(pod)) != nil
}

// checkSpec returns the bound that the spec of a pod exceeds, as an error.
func checkSpec(pod *v1.Pod, references int) error {
	if err := budget.CheckSpec(&pod.Spec, token.Count(pod), references); err != nil {
		return err
	}
	if err := criconfig.CheckAllocation(pod); err != nil {
		return err
	}
	return criconfig.CheckProbes(&pod.Spec)
}

// checkWatchesLeft returns an error if the node has no watches left for a pod.
func checkWatchesLeft(objects []world.WatchTarget, references int, env *Env) error {
	watchesMax, which := budget.WatchesMax, "all pods of the node"
	if references > budget.WatchesSmallMax {
		watchesMax = budget.WatchesLargeMax
		which = fmt.Sprintf("all pods of the node with more than %d", budget.WatchesSmallMax)
	}
	further := max(references-(len(objects)-1), 0) // the volumes of claims, which follow
	if env.Objects.HasRoom(objects, watchesMax-further) {
		return nil
	}
	return budget.SmallPodReferences.Errorf("the pod refers to %d API objects, and %s may refer to "+
		"%d: waiting until other pods have ended", references, which, watchesMax)
}

// countRefusal counts that the pod exceeds a bound, by its name; an empty name is ignored.
func (p *Pod) countRefusal(name string, env *Env) {
	if name != "" && env.CountRefusal != nil {
		env.CountRefusal(name)
	}
}

// WaitsForBudget reports whether the pod is not started because of what it needs. A static pod is
// started all the same: tenants do not write static pods, and must not keep them from starting.
func (p *Pod) WaitsForBudget() bool { return p.BudgetProblem() != "" && !p.IsStatic() }

// BudgetProblem is why a pod waits for its budget; empty if it does not.
func (p *Pod) BudgetProblem() string { return cmp.Or(p.Watches.Problem, p.Watches.Excess.Problem) }

// checkChanged returns an error for a container of a pod that was started and exceeds a bound since
// then: for an ephemeral container, which was added, and for any other if images were changed. The
// containers that run go on.
func (p *Pod) checkChanged(container *v1.Container) error {
	if p.Watches.Problem != "" && !p.IsStatic() &&
		(p.roleOf(container.Name) == Ephemeral || p.specIndex().images != nil) {
		return errors.New(p.Watches.Problem) // counted already
	}
	return nil
}
