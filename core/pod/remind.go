package pod

import (
	"fmt"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"

	"seedlet.dev/core/image"
)

// What lasts is told again. The server keeps an event for an hour, and a user who looks later than
// that wants to know as well why a pod does not run.

// remindEvery is how often: the kubelet does so each time it sees to a pod.
const remindEvery = time.Minute

// telling is an event of the pod, or of a container of it.
type telling struct{ container, kind, reason, message string }

// Lasting is something that lasts, and when it was told last.
type Lasting struct {
	Container string    `json:"container,omitempty"`
	Reason    string    `json:"reason"`
	Message   string    `json:"message"`
	Told      time.Time `json:"told"`
}

// remind tells again of what lasts. It was told when it began.
func (p *Pod) remind(env *Env, w *waits) {
	var still []Lasting
	for _, t := range p.lasting(env) {
		is := Lasting{t.container, t.reason, t.message, w.now}
		same := func(l Lasting) bool { return l == Lasting{t.container, t.reason, t.message, l.Told} }
		if i := slices.IndexFunc(p.Lasting, same); i >= 0 {
			is = p.Lasting[i]
		}
		if !w.pending(is.Told.Add(remindEvery)) {
			is.Told = w.now
			p.tell(env, t)
			w.pending(is.Told.Add(remindEvery))
		}
		still = append(still, is)
	}
	p.Lasting = still
}

// lasting is what keeps the pod from running and is not tried again, or only after a while. What is
// tried again and fails again is told then.
func (p *Pod) lasting(env *Env) []telling {
	if p.Stage != Syncing || p.Spec == nil {
		return nil
	}
	var all []telling
	if p.RuntimeWait != "" && p.RuntimeWait == env.NetworkNotReady {
		all = append(all, telling{"", warning, "NetworkNotReady", p.RuntimeWait})
	}
	for i := range p.Problems {
		if pr := &p.Problems[i]; pr.Call == callConfigure {
			all = append(all, misconfiguration(pr))
		}
	}
	for i := range p.Needs {
		n := &p.Needs[i]
		if want := p.want(n.Container); n.Problem != nil && want != nil {
			all = append(all, noImageYet(n.Container, p.refOf(n, want), n.Problem)...)
		}
	}
	for i := range p.Containers {
		if c := &p.Containers[i]; c.Inspected == Exited && p.backsOff(c, env.Out.Now()) {
			all = append(all, p.backOff(c))
		}
	}
	return all
}

// refOf is an image that a container waits for, as the spec calls it.
func (p *Pod) refOf(n *Need, want *v1.Container) string {
	if v := p.volume(n.Volume); n.Volume != "" && v != nil && v.Image != nil {
		return v.Image.Reference
	}
	return want.Image
}

// backsOff says whether a container has exited that is run again only after a while.
func (p *Pod) backsOff(c *Container, now time.Time) bool {
	return p.Spec != nil && p.Stage == Syncing && p.want(c.Name) != nil && p.newest(c.Name) == c &&
		p.matches(c) && p.restarts(c) && now.Before(c.restartAt())
}

func (p *Pod) backOff(c *Container) telling {
	return telling{c.Name, warning, reasonBackOff, fmt.Sprintf(
		"Back-off restarting failed container %s in pod %s", c.Name, p.logged())}
}

func misconfiguration(pr *Problem) telling {
	return telling{pr.Container, warning, reasonFailed, "Error: " + pr.Message}
}

// noImage is what is told when it turns out that an image cannot be had.
func noImage(container, ref string, why *image.Problem) []telling {
	still := noImageYet(container, ref, why)
	if still[0].reason != reasonBackOff {
		return still
	}
	return append([]telling{
		{container, warning, reasonFailed, fmt.Sprintf("Failed to pull image %q: %s", ref, why.Cause)},
		{container, warning, reasonFailed, "Error: " + image.ErrPull}}, still...)
}

// noImageYet is what is told while it cannot be had.
func noImageYet(container, ref string, why *image.Problem) []telling {
	failed := telling{container, warning, reasonFailed, "Error: " + why.Reason}
	first := telling{container, warning, "InspectFailed", why.Message}
	switch why.Reason {
	case image.ErrName:
	case image.ErrNeverPull:
		first.reason = image.ErrNeverPull
	case image.ErrInspect:
		first.message = fmt.Sprintf("Failed to inspect image %q: %s", ref, why.Message)
	default:
		first.kind, first.reason = normal, reasonBackOff
		first.message = fmt.Sprintf("Back-off pulling image %q: %s: %s", ref, image.ErrPull, why.Cause)
		failed.message = "Error: " + image.BackOff
	}
	return []telling{first, failed}
}
