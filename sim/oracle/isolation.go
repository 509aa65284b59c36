package oracle

import (
	"fmt"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"

	api "seedlet.dev/world"
)

// isolation fires when an ordinary pod is not run, probed, reported, ended or removed as if it were
// alone on the node, while hostile pods take as much as they get. What progress requires of every
// pod in the end, isolation requires of an ordinary pod at any time, and of a hostile one that it
// can be deleted, unless its driver hangs at the time. After a fault or a restart of the agent the
// agent has the same time once more, from when the effects end.
type isolation struct {
	problems map[*pod]podProblem
}

// podProblem is something that is wrong with a pod, and since when something is.
type podProblem struct {
	text  string
	since time.Time
}

func (*isolation) describe() Entry {
	return Entry{"isolation", "Whatever hostile pods do, every other pod that no fault affects is " +
		"started, probed, reported, ended and removed in time, the Node's status is written, and a " +
		"hostile pod can be deleted."}
}

const (
	// isolationBound is how long something may be wrong with an ordinary pod. It is the time in
	// which a pod is started without a fault, as with restartBound a container is.
	isolationBound = restartBound
	// hostileEndBound is the same for the end of a hostile pod, beside its grace period: its volumes
	// are unmounted one after the other.
	hostileEndBound = 3 * time.Minute
	// hungCallBound is how long a call may still hang that was issued before its driver was mended,
	// and the longest back-off after it.
	hungCallBound = callBound + pluginRetryBound
	// nodeStatusBound is how old the heartbeats of the Node's conditions may be: the report
	// frequency of 5 minutes, which is up to half longer after a change, and a minute.
	nodeStatusBound = 8*time.Minute + 30*time.Second
	// faultSlack is how long after a fault its effects may last: the time between two responses,
	// and a request that was in flight.
	faultSlack = 10 * time.Second
)

func (o *isolation) checkServed(m *model, now time.Time, _ []*v1.Pod) *finding {
	if m.opts.IsHostile == nil {
		return nil
	}
	if o.problems == nil {
		o.problems = map[*pod]podProblem{}
	}
	affectedAt := later(m.agentStartedAt, m.lastFault(now))
	if m.agentDown {
		affectedAt = now
	}
	for _, p := range m.podsInOrder {
		isHung := p.isHostile() && slices.ContainsFunc(m.opts.HungDrivers, p.hasDriverVolume)
		if p.fullName == nil || p.isHostile() && (p.spec != nil || isHung && m.healedAt.IsZero()) {
			continue
		}
		text := p.isolationProblem(now)
		if text == "" {
			delete(o.problems, p)
			continue
		}
		problem := o.problems[p]
		if problem.since.IsZero() {
			problem.since = now
		}
		problem.text = text
		o.problems[p] = problem
		bound := isolationBound
		switch {
		case p.isHostile():
			bound = hostileEndBound + p.maxGrace
		case p.spec == nil:
			bound += p.maxGrace
		case p.needsEviction():
			bound = evictionBound // it is measured periodically
		}
		since := later(later(problem.since, p.desiredAt), affectedAt.Add(faultSlack))
		since = later(since, p.setAsideUntil.Add(faultSlack))
		if isHung {
			since = later(since, m.healedAt.Add(hungCallBound))
		}
		if now.Sub(since) > bound {
			return findingf("pod %s: for %v, with hostile pods on the node: %s", p,
				now.Sub(since).Round(time.Second), text)
		}
	}
	return m.nodeStatusProblem(now, affectedAt)
}

// isHostile reports whether the plan has the pod as a hostile one. Such a pod need not run, but
// must be removed.
func (p *pod) isHostile() bool {
	if p.model.opts.IsHostile == nil || p.fullName == nil {
		return false
	}
	_, name, _ := cutLast(p.fullName.name, "/")
	return p.model.opts.IsHostile(name)
}

// hasDriverVolume reports whether a volume of the pod is one of a CSI driver; empty: of any.
func (p *pod) hasDriverVolume(driver string) bool {
	return slices.ContainsFunc(p.specs, func(spec *v1.Pod) bool {
		return slices.ContainsFunc(p.model.csiUses(spec), func(use csiUse) bool {
			return driver == "" || use.driver == driver
		})
	})
}

// isolationProblem returns what is wrong with an ordinary pod; empty if nothing is.
func (p *pod) isolationProblem(now time.Time) string {
	m := p.model
	if p.spec == nil {
		for _, line := range p.leftovers() {
			return line
		}
		if object := m.objects.pods[p.fullName.name]; object != nil && string(object.UID) == p.uid &&
			object.DeletionTimestamp != nil {
			return deletionProblem(object)
		}
		return ""
	}
	for _, other := range p.fullName.pods {
		if other != p && len(other.leftovers()) > 0 {
			return "" // the pod has to wait for its predecessor, which is judged itself
		}
	}
	if p.lacksObject() || p.lacksImage() {
		return "" // the pod has to wait for it
	}
	if problem := p.runtimeProblem(now); problem != "" {
		return problem
	}
	object := m.objects.pods[p.fullName.name]
	if object == nil || string(object.UID) != p.uid || now.Sub(p.changedAt) <= statusWriteBound {
		return ""
	}
	if problem := m.statusProblem(p, object); problem != "" {
		return "at the API server, " + problem
	}
	return ""
}

// lacksObject reports whether an object that the pod needs, for a volume or for variables, does not
// exist.
func (p *pod) lacksObject() bool {
	h := &p.model.objectHistory
	isMissing := func(key string) bool {
		states := h.states[key]
		return len(states) == 0 || states[len(states)-1] == nil
	}
	for i := range p.spec.Spec.Volumes {
		sources, _ := volumeSources(&p.spec.Spec.Volumes[i], p.spec.Namespace)
		for _, s := range sources {
			if s.bundle == nil && !s.optional && isMissing(s.object) {
				return true
			}
		}
	}
	for i := range p.spec.Spec.Containers {
		for _, from := range p.spec.Spec.Containers[i].EnvFrom {
			if c := from.ConfigMapRef; c != nil && (c.Optional == nil || !*c.Optional) &&
				isMissing(objectKey(api.ResourceConfigMaps, p.spec.Namespace, c.Name)) {
				return true
			}
		}
	}
	return false
}

// lacksImage reports whether an image of a container of the pod is not on the node: a pull takes as
// long as it takes, and may fail.
func (p *pod) lacksImage() bool {
	spec := &p.spec.Spec
	return slices.ContainsFunc(slices.Concat(spec.InitContainers, spec.Containers),
		func(c v1.Container) bool { return p.model.imagesAbsent[c.Image] })
}

// nodeStatusProblem returns a finding if the status of the Node was not written for too long.
func (m *model) nodeStatusProblem(now, affectedAt time.Time) *finding {
	node := m.objects.node
	since := now.Add(-nodeStatusBound)
	if node == nil || !affectedAt.Before(since) || !m.objects.nodeCreatedAt.Before(since) {
		return nil
	}
	for i := range node.Status.Conditions {
		c := &node.Status.Conditions[i]
		if c.Type == v1.NodeReady && c.LastHeartbeatTime.Time.Before(since) {
			return &finding{message: fmt.Sprintf("the last heartbeat of the Node's status was %v ago",
				now.Sub(c.LastHeartbeatTime.Time).Round(time.Second))}
		}
	}
	return nil
}

// lastFault returns when a fault of any kind last applied; zero: none has.
func (m *model) lastFault(now time.Time) time.Time {
	if m.opts.LastFault == nil {
		return time.Time{}
	}
	last := m.opts.LastFault(now)
	m.excuse(!last.IsZero(), "a fault of any call")
	return last
}
