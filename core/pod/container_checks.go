package pod

import (
	"fmt"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"

	"seedlet.dev/core/budget"
	"seedlet.dev/core/criconfig"
	"seedlet.dev/core/objectcache"
)

// A container that waits for its images, or that is misconfigured, is checked in every plan of its
// pod, and a check builds up to 7 MiB. So the results are kept until something changes that they
// depend on, and what all containers of a pod expand in one plan has a bound.

// containerChecks are the results of the checks of the containers that wait to be created.
type containerChecks struct {
	inputs checkInputs
	byName map[string]containerCheck

	isCurrent bool // the inputs are those of this plan
	expanded  int  // what the containers count in this plan, see budget.ExpandedBytesOfPod
}

// checkInputs are what the checks of all containers of a pod depend on.
type checkInputs struct {
	spec    *v1.Pod // which is never changed in place
	facts   string  // about the node and the sandbox
	watches []watchState
}

// watchState identifies what a watch has found.
type watchState struct {
	watch   *objectcache.Watch
	changes uint64
}

// containerCheck is the result of the check of a container.
type containerCheck struct {
	envFilesAt time.Time // when the files were read that variables are taken from
	envFiles   int
	bytesMax   int // what the container was allowed to expand
	expanded   int
	err        error
}

// beginPlan starts the checks of a plan.
func (c *containerChecks) beginPlan() { c.isCurrent, c.expanded = false, 0 }

// checkContainer returns why a container cannot be created as the spec defines it; nil if it can.
// The containers of a plan expand what budget.ExpandedBytesOfPod allows together.
func (p *Pod) checkContainer(container *v1.Container, cri *criconfig.Pod, env *Env) error {
	checks := &p.checks
	if !checks.isCurrent {
		if inputs := p.inputsOfChecks(env); checks.byName == nil || !inputs.equal(&checks.inputs) {
			checks.inputs, checks.byName = inputs, map[string]containerCheck{}
		}
		checks.isCurrent = true
	}
	current := containerCheck{bytesMax: max(budget.ExpandedMax-checks.expanded, 1)}
	if read := p.envFilesOf(container.Name); read != nil {
		current.envFilesAt, current.envFiles = read.ReadAt, len(read.Files)
	}
	check, isKnown := checks.byName[container.Name]
	if !isKnown || check.envFilesAt != current.envFilesAt || check.envFiles != current.envFiles ||
		check.dependsOn(current.bytesMax) {
		check = current
		check.expanded, check.err = cri.CheckContainer(container, current.bytesMax)
		checks.byName[container.Name] = check
	}
	checks.expanded += check.expanded
	env.Effects.CountWork(check.expanded) // also of a kept check: work depends on the state alone
	return check.err
}

// dependsOn reports whether the check may have another result if the container may expand so many
// bytes. Of several bounds that are exceeded, the first one found counts.
func (c *containerCheck) dependsOn(bytesMax int) bool {
	if c.err != nil {
		return c.bytesMax != bytesMax
	}
	return c.expanded > bytesMax
}

// inputsOfChecks returns what the checks of the pod's containers depend on now.
func (p *Pod) inputsOfChecks(env *Env) checkInputs {
	node := env.Node
	inputs := checkInputs{spec: p.Spec, facts: fmt.Sprintln(p.IPs(node), p.IDs, node.IPs,
		node.Allocatable, node.RecursiveReadOnly, node.SELinux, node.SeccompDefault, node.NoEnvFiles)}
	if env.Objects == nil {
		return inputs
	}
	for _, target := range append(slices.Clip(p.Watches.Objects), criconfig.AllServices) {
		if w := env.Objects.Watch(target); w != nil {
			inputs.watches = append(inputs.watches, watchState{w, w.Changes()})
		}
	}
	return inputs
}

// equal reports whether checks have the same results with either inputs.
func (i *checkInputs) equal(other *checkInputs) bool {
	return i.spec == other.spec && i.facts == other.facts && slices.Equal(i.watches, other.watches)
}
