package oracle

import (
	"time"

	v1 "k8s.io/api/core/v1"

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
	return Entry{"pod-cost", "A pod gets at most 64 different tokens, and its CSI drivers as many " +
		"for all of its volumes; a container gets variables with which the kernel can start it, and " +
		"no command of a probe is longer than 32 KiB; the " +
		"status of a pod has at most 64 KiB of mount paths, and as many of images."}
}

// The bounds of what one pod gets.
const (
	tokensOfPodMax  = 64
	driverTokensMax = 64
	variablesMax    = 100_000
	variableMax     = 128 << 10 // bytes, as the kernel's (execve(2))
	environmentMax  = 2 << 20   // bytes, as the kernel's with the default limit of the stack
	commandMax      = 32 << 10  // bytes of the command of a probe
	mountPathsMax   = 64 << 10  // bytes of the paths of all mounts in a status
	imagesMax       = 64 << 10  // bytes of all images in a status, and of their IDs
)

func (o *podCost) checkFact(m *model, f *truth.Fact) *finding {
	switch f.Kind {
	case truth.TokenIssued:
		return o.checkToken(f)
	case truth.VolumePublished:
		return checkDriverTokens(m, f)
	case truth.ContainerCreated:
		return o.checkVariables(f)
	case truth.HandlerRequested:
		return checkCommand(m, f)
	case truth.ObjectUpdated:
		if isAgentStatus(f) && f.Write.After.Pod != nil {
			return checkStatusCost(f)
		}
	}
	return nil
}

// checkCommand checks the command of a probe. Hooks run once, and may have any command.
func checkCommand(m *model, f *truth.Fact) *finding {
	c := m.containers[f.ContainerID]
	if c == nil || len(f.Request) <= len("exec ")+commandMax {
		return nil
	}
	if h := c.handlerOfFact(f); h == nil || h.kind == postStartHook || h.kind == preStopHook {
		return nil
	}
	return findingf("a probe of container %s of %s has a command of %d bytes, one may have %d",
		f.Container, f.PodName, len(f.Request)-len("exec "), commandMax)
}

// checkDriverTokens checks for how many tokens the drivers of a pod's published volumes ask.
func checkDriverTokens(m *model, f *truth.Fact) *finding {
	count := func(driver string) int {
		d := m.csi.drivers[driver]
		if d == nil {
			return 0
		}
		return len(d.Spec.TokenRequests)
	}
	p, tokens := m.podOfTarget(f.Path), count(f.Volume.Driver)
	if p == nil || tokens == 0 {
		return nil
	}
	for at, is := range m.csi.published { //ordered: a sum
		if at != f.Path && m.podOfTarget(at) == p {
			tokens += count(is.driver)
		}
	}
	if tokens > driverTokensMax {
		return findingf("the drivers of the volumes of pod %s ask for %d tokens, one pod may have %d", p,
			tokens, driverTokensMax)
	}
	return nil
}

// checkStatusCost checks what the statuses of all containers have together.
func checkStatusCost(f *truth.Fact) *finding {
	paths, images, ids := 0, 0, 0
	status := &f.Write.After.Pod.Status
	for _, list := range [][]v1.ContainerStatus{status.InitContainerStatuses,
		status.ContainerStatuses, status.EphemeralContainerStatuses} {
		for i := range list {
			images, ids = images+len(list[i].Image), ids+len(list[i].ImageID)
			for k := range list[i].VolumeMounts {
				paths += len(list[i].VolumeMounts[k].MountPath)
			}
		}
	}
	if paths > mountPathsMax || max(images, ids) > imagesMax {
		return findingf("the status of pod %s has %d bytes of mount paths, %d of images and %d of their "+
			"IDs", f.Write.After.Pod.Name, paths, images, ids)
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
