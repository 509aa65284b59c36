package oracle

import (
	"fmt"
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"

	"seedlet.dev/core/mirror"
	"seedlet.dev/sim/truth"
	api "seedlet.dev/world"
)

// requests fires when a client of the agent's HTTP API is told of another pod or container than it
// has asked for, or is not told of one that there is, or is not answered at all. Nothing is ever
// done with what was meant for another pod of the same name (logs, exec).
type requests struct{}

func (*requests) entry() Entry {
	return Entry{"requests", "Who asks for a container by names is answered in the same step, " +
		"about the pod that the name means now or has the UID that was given, and with its " +
		"newest run; what runs is found, and nothing is that does not."}
}

// clients is what is known of who can be asked for.
type clients struct {
	sandboxes, runs map[string]owner // all that there ever were, by id
	called          map[called]bool  // all pods that there ever were
	mirrors         map[string]mirrored
}

type owner struct{ uid, full, container string }

// called is a name that the pod of a UID has, or has had.
type called struct{ uid, full string }

// mirrored is a mirror, and the UID of the static pod that it is of.
type mirrored struct {
	called
	made time.Time
	gone bool
}

func newClients() clients {
	return clients{sandboxes: map[string]owner{}, runs: map[string]owner{},
		called: map[called]bool{}, mirrors: map[string]mirrored{}}
}

// take remembers whose everything is.
func (c *clients) take(f *truth.Fact) {
	full := f.PodNamespace + "/" + f.PodName
	switch f.Kind {
	case truth.SandboxCreated:
		c.sandboxes[f.SandboxID] = owner{f.PodUID, full, ""}
	case truth.ContainerCreated:
		c.runs[f.ContainerID] = owner{f.PodUID, full, f.Container}
	case truth.ObjectMade:
		if o := f.Write.After.Pod; o != nil && mirror.Is(o) {
			c.mirrors[string(o.UID)] = mirrored{called{mirror.UID(o), o.Namespace + "/" + o.Name},
				f.Time, false}
		}
	case truth.ObjectWritten, truth.ObjectRemoved:
		if o := f.Write.Before.Pod; o != nil && mirror.Is(o) {
			m := c.mirrors[string(o.UID)]
			m.gone = m.gone || f.Kind == truth.ObjectRemoved ||
				mirror.UID(f.Write.After.Pod) != m.uid
			c.mirrors[string(o.UID)] = m
		}
	}
}

// means is the UID of the pod that is asked for with a UID; empty if none is given.
func (c *clients) means(r *api.ContainerRequest) string {
	if m, is := c.mirrors[r.UID]; is && m.full == r.Namespace+"/"+r.Pod {
		return m.uid
	}
	return r.UID
}

// Asked says that a client has asked for a container, what it was told, and what pods the agent
// has shown at the same instant.
func (p *Panel) Asked(now time.Time, r *api.ContainerRequest, a *api.ContainerAnswer,
	shown []*v1.Pod) {
	w := p.world
	var called []*v1.Pod // by the name, of those that are shown
	for _, pod := range shown {
		if pod.Namespace == r.Namespace && pod.Name == r.Pod {
			called = append(called, pod)
		}
	}
	what := ""
	if a.Err != nil {
		what = w.misrefused(now, r, a, called)
	} else {
		for _, judge := range []func(time.Time, *api.ContainerRequest, *api.ContainerAnswer,
			[]*v1.Pod) string{w.misdirected, w.mistaken, w.mixed, w.outdated} {
			if what == "" {
				what = judge(now, r, a, called)
			}
		}
	}
	if what != "" {
		p.found(&requests{}, &finding{message: fmt.Sprintf(
			"asked for container %q of pod %s/%s (uid %q), the agent %s", r.Container, r.Namespace,
			r.Pod, r.UID, what)}, now)
	}
}

// Unanswered says that an agent that lives has not answered a request in the step that took it.
func (p *Panel) Unanswered(now time.Time, request string) {
	p.found(&requests{}, &finding{message: request + " is not answered"}, now)
}

// misrefused is what is wrong with the answer that there is no such pod or container.
func (w *world) misrefused(now time.Time, r *api.ContainerRequest, a *api.ContainerAnswer,
	called []*v1.Pod) string {
	if a.Err.Kind != api.KindNotFound {
		return "says " + a.Err.Error()
	}
	uid := w.clients.means(r)
	m := w.clients.mirrors[r.UID]
	if uid != r.UID && (m.gone || !w.toldOf(m.made, now)) {
		return "" // it may not know of the mirror
	}
	for _, pod := range called {
		if (uid == "" || uid == string(pod.UID)) && has(pod, r.Container) {
			return fmt.Sprintf("says %q, but shows it with uid %s", a.Err.Message, pod.UID)
		}
	}
	for _, p := range w.order {
		if p.spec != nil && p.full.text == r.Namespace+"/"+r.Pod && (uid == "" || uid == p.uid) &&
			has(p.spec, r.Container) && w.toldOf(p.wishedAt, now) {
			return fmt.Sprintf("says %q, but %s is wanted since %v", a.Err.Message, p, p.wishedAt)
		}
	}
	return ""
}

// has says whether a container, if one is asked for, is in the spec of a pod.
func has(pod *v1.Pod, container string) bool {
	return container == "" || containerOf(pod, container) != nil
}

// toldOf says whether the agent must have been told of what sources have wanted since some time.
func (w *world) toldOf(since, now time.Time) bool {
	since = later(since, w.started)
	return now.Sub(since) > readWithin && !w.struckAny(since, now, "ReadFiles", "FileChanged",
		"FetchManifest", "WatchObjects", "ObjectChanged")
}

// misdirected says that an answer is about another pod than the one that was asked for.
func (w *world) misdirected(now time.Time, r *api.ContainerRequest, a *api.ContainerAnswer,
	shown []*v1.Pod) string {
	full := r.Namespace + "/" + r.Pod
	if !w.clients.called[called{a.UID, full}] {
		return fmt.Sprintf("tells of uid %q, which has never had that name", a.UID)
	}
	if uid := w.clients.means(r); uid != "" {
		if uid != a.UID {
			return "tells of uid " + a.UID
		}
		return ""
	}
	is := w.pods[a.UID]
	for _, pod := range shown {
		if pod.DeletionTimestamp == nil && string(pod.UID) != a.UID && ending(shown, a.UID) {
			return fmt.Sprintf("tells of uid %s, which is ending, but shows one with uid %s", a.UID,
				pod.UID)
		}
	}
	if is.spec != nil && is.full.text == full || !w.toldOf(is.removedAt, now) {
		return ""
	}
	for _, p := range w.order {
		if p.spec != nil && p.full.text == full && w.toldOf(p.wishedFirst, now) {
			return fmt.Sprintf("tells of uid %s, which nobody wants any more, but uid %s is wanted",
				a.UID, p.uid)
		}
	}
	return ""
}

// ending says whether a pod is shown as one that is to go.
func ending(shown []*v1.Pod, uid string) bool {
	return slices.ContainsFunc(shown, func(p *v1.Pod) bool {
		return string(p.UID) == uid && p.DeletionTimestamp != nil
	})
}

// mistaken says that what an answer names in the runtime is not that of the pod and the container.
func (w *world) mistaken(_ time.Time, r *api.ContainerRequest, a *api.ContainerAnswer,
	_ []*v1.Pod) string {
	full := r.Namespace + "/" + r.Pod
	if box := w.clients.sandboxes[a.SandboxID]; a.SandboxID != "" &&
		box != (owner{a.UID, full, ""}) {
		return fmt.Sprintf("tells of sandbox %.12s, which is of pod %s (uid %s)", a.SandboxID,
			box.full, box.uid)
	}
	if run := w.clients.runs[a.ContainerID]; a.ContainerID != "" &&
		run != (owner{a.UID, full, r.Container}) {
		return fmt.Sprintf("tells of container %.12s, which is %s of pod %s (uid %s)",
			a.ContainerID, run.container, run.full, run.uid)
	}
	return ""
}

// mixed says that an answer contradicts itself, or what is shown of the pod at the same instant.
func (w *world) mixed(_ time.Time, r *api.ContainerRequest, a *api.ContainerAnswer,
	shown []*v1.Pod) string {
	if a.Status != nil && a.Status.Name != r.Container {
		return "shows container " + a.Status.Name
	}
	if a.Status != nil && a.Status.ContainerID != "" &&
		!strings.HasSuffix(a.Status.ContainerID, "://"+a.ContainerID) {
		return fmt.Sprintf("tells of container %.12s, but shows %.23s", a.ContainerID,
			a.Status.ContainerID)
	}
	for _, pod := range shown {
		if string(pod.UID) != a.UID {
			continue
		}
		if string(pod.Status.Phase) != a.Phase {
			return fmt.Sprintf("calls it %s, but shows it as %s", a.Phase, pod.Status.Phase)
		}
		var status *v1.ContainerStatus
		for _, list := range append([][]v1.ContainerStatus{pod.Status.EphemeralContainerStatuses},
			pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses) {
			for i := range list {
				if list[i].Name == r.Container {
					status = &list[i]
				}
			}
		}
		if !equality.Semantic.DeepEqual(status, a.Status) {
			return "tells another status of the container than it shows"
		}
	}
	return ""
}

// outdated says that an answer does not have the newest run of a container, although that has been
// running for long enough.
func (w *world) outdated(now time.Time, r *api.ContainerRequest, a *api.ContainerAnswer,
	_ []*v1.Pod) string {
	p := w.pods[a.UID]
	if r.Container == "" || p.spec == nil || !w.listedSince(p.changed, now) {
		return ""
	}
	c := p.newest(r.Container)
	if c == nil || c.state != running || c.lost || c.full != r.Namespace+"/"+r.Pod ||
		c.id == a.ContainerID {
		return ""
	}
	return fmt.Sprintf("tells of container %.12q, the newest is %s, which runs since %v",
		a.ContainerID, c, now.Sub(c.startedAt))
}

// listedSince says whether the agent must have been told what the runtime has had since some time.
func (w *world) listedSince(since, now time.Time) bool {
	since = later(since, w.started)
	return now.Sub(since) > shownWithin && !w.opts.Evented && !w.dead &&
		!w.struckAny(since, now, "ListPodSandbox", "ListContainers")
}

// Runs says which pods the agent has shown as running.
func (p *Panel) Runs(now time.Time, shown []*v1.Pod) {
	if what := p.world.misrun(now, shown); what != "" {
		p.found(&requests{}, &finding{message: "asked for what runs, the agent " + what}, now)
	}
}

// misrun is what is wrong with the pods that are shown as running.
func (w *world) misrun(now time.Time, shown []*v1.Pod) string {
	names := map[string]bool{} // of containers, after the UID of the pod
	for _, pod := range shown {
		full := pod.Namespace + "/" + pod.Name
		p := w.pods[string(pod.UID)]
		if p == nil || !w.clients.called[called{p.uid, full}] {
			return fmt.Sprintf("shows %s (uid %s), which there has never been", full, pod.UID)
		}
		for i := range pod.Spec.Containers {
			name := pod.Spec.Containers[i].Name
			names[p.uid+" "+name] = true
			if w.listedSince(p.changed, now) && p.liveRun(name) == nil {
				return fmt.Sprintf("shows container %s of pod %s, which does not run", name, p)
			}
		}
	}
	for _, p := range w.order {
		if p.live == 0 || !w.listedSince(p.changed, now) {
			continue
		}
		for _, c := range p.containers {
			if c.state == running && !c.lost && !names[p.uid+" "+c.name] {
				return fmt.Sprintf("does not show %s", c)
			}
		}
	}
	return ""
}
