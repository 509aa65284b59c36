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
	expanded   int
	err        error
}

// beginPlan starts the checks of a plan.
func (c *containerChecks) beginPlan() { c.isCurrent, c.expanded = false, 0 }

// checkContainer returns why a container cannot be created as the spec defines it; nil if it can.
// Once the containers of a plan have exceeded the bound, those after them are not checked.
func (p *Pod) checkContainer(container *v1.Container, cri *criconfig.Pod, env *Env) error {
	checks := &p.checks
	if checks.expanded > budget.ExpandedMax {
		return tooMuchExpanded()
	}
	if !checks.isCurrent {
		if inputs := p.inputsOfChecks(env); checks.byName == nil || !inputs.equal(&checks.inputs) {
			checks.inputs, checks.byName = inputs, map[string]containerCheck{}
		}
		checks.isCurrent = true
	}
	current := containerCheck{}
	if read := p.envFilesOf(container.Name); read != nil {
		current.envFilesAt, current.envFiles = read.ReadAt, len(read.Files)
	}
	check, isKnown := checks.byName[container.Name]
	if !isKnown || check.envFilesAt != current.envFilesAt ||
		check.envFiles != current.envFiles {
		check = current
		check.expanded, check.err = cri.CheckContainer(container)
		checks.byName[container.Name] = check
	}
	checks.expanded += check.expanded
	if check.err == nil && checks.expanded > budget.ExpandedMax {
		return tooMuchExpanded()
	}
	return check.err
}

func tooMuchExpanded() error {
	return budget.ExpandedBytesOfPod.Errorf("the containers of the pod that wait to be created have "+
		"more than %d bytes of environment variables and arguments together", budget.ExpandedMax)
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
