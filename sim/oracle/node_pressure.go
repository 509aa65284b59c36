package oracle

import (
	"cmp"
	"encoding/json"
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"

	"seedlet.dev/sim/truth"
	"seedlet.dev/world"
)

// nodePressure fires when a pod is evicted for the node that should not have been, when none is
// although one has to be, and when a pressure condition of the Node does not follow from the
// answers to the agent's observations (model_pressure.go). The ranking of the pods is computed from
// them again (node_pressure_ranking.go).
type nodePressure struct{}

func (*nodePressure) describe() Entry {
	return Entry{"node-pressure", "A pod is evicted for the node only if a threshold was met for " +
		"its grace period by an observation that is newer than the end of the last victim; it is the " +
		"pod that ranks first, and one for each observation. A threshold leads to a victim in time, a " +
		"hard one also while the victim of a soft one ends, which then has no time left. No container " +
		"of a victim has longer to end than the threshold leaves it. A pressure " +
		"condition is true from the first observation until the transition period has passed since " +
		"the last one; the time in which its signal cannot be observed does not count."}
}

const (
	// lowPrefix begins the message of an eviction for the node.
	lowPrefix = "The node was low on resource: "
	// starvationBound is how long a threshold may be met beyond its grace period, without a victim
	// that ends: two observations with their timeouts, of which the first may come just before, and a
	// relist.
	starvationBound = 75 * time.Second
	// victimEndBound is how much longer than its grace period a victim may take to end until another
	// pod may be evicted.
	victimEndBound = 30 * time.Second
	// pressureReportBound is how long after its period a condition may stay true: an observation,
	// and the write of the Node's status.
	pressureReportBound = 60 * time.Second
	// usageTriesMax is how often statistics of the pods are requested for a victim before the pods may
	// be ranked by what is known.
	usageTriesMax = 3
	// sampleAgeMax is how old the newest observation of the node may be at an eviction: its period,
	// and a step.
	sampleAgeMax = 12 * time.Second
	// usageAgeMax is how long before an eviction the pods may have been observed: by two requests,
	// each of which has its time limit.
	usageAgeMax = time.Minute
	// freedNoticeBound is how long after the last removal the agent knows that a pod holds nothing.
	freedNoticeBound = time.Second
	// usageNoticeBound is how long before a list of containers a container must have started to be
	// in it for certain.
	usageNoticeBound = 15 * time.Second
)

// pressureCalls are the calls between a threshold that is met and the end of a victim.
var pressureCalls = []string{"MeasureNode", "ListPodSandboxStats", "StopContainer",
	"ListContainers", "ListPodSandbox", "ContainerStatus", "StopPodSandbox", "Unmount", "RemoveTree",
	"MeasureFilesystem", "MeasureTrees", "ImageFsInfo", "ListImages", "RemoveImage"}

// victimCalls are the calls between an eviction and the end of the last process of the victim, with
// those of a reclaim before it is hastened.
var victimCalls = append([]string{"RemoveContainer", "CreateContainer", "StartContainer",
	"RunPodSandbox", "ExecSync", "WriteFile", "ReadFiles"}, pressureCalls...)

// lowResource returns the resource that the message of an eviction for the node names.
func lowResource(message string) (resource string, isLow bool) {
	resource, isLow = strings.CutPrefix(message, lowPrefix)
	resource, _, _ = strings.Cut(resource, ".")
	return resource, isLow
}

// isForDisk reports whether a message is that of an eviction for a file system.
func isForDisk(message string) bool {
	resource, isLow := lowResource(message)
	return isLow && (resource == resourceStorage || resource == resourceInodes)
}

func (*nodePressure) checkFact(m *model, f *truth.Fact) *finding {
	if f.Kind == truth.ContainerStarted {
		return m.pressure.findAdmitted(m, m.pods[f.PodUID], f.Time)
	}
	if f.Kind != truth.EventRecorded || f.Reason != reasonEvicted {
		return nil
	}
	resource, isLow := lowResource(f.Message)
	if p := m.pods[f.PodUID]; isLow && p != nil {
		return m.pressure.findWrongVictim(m, p, resource, f.Time)
	}
	return nil
}

// findAdmitted returns why a pod that starts should have been rejected: a condition has been true
// since before it was desired. Only the first agent that knows a pod admits it. An agent that was
// started after the pod came has the conditions from the Node.
func (n *pressureModel) findAdmitted(m *model, p *pod, now time.Time) *finding {
	if p == nil || len(p.specs) != 1 || !p.firstStartedAt.IsZero() || p.wasRemoved() ||
		p.isCritical() || m.agentStarts != p.firstIncarnation {
		return nil
	}
	if !m.agentStartedAt.Before(p.firstDesiredAt.Add(-time.Second)) &&
		m.anyFaultPossible(m.agentStartedAt, now, "WatchObjects", "ObjectChanged", "GetObject") {
		return nil
	}
	if c := n.conditionAgainst(m, p, now); c != "" {
		return findingf("pod %s starts, although it was desired while the node had %s", p, c)
	}
	return nil
}

// conditionAgainst returns the condition of the node that has been true since before a pod was
// desired, and for which it is rejected; empty if there is none.
func (n *pressureModel) conditionAgainst(m *model, p *pod, now time.Time) v1.NodeConditionType {
	for _, c := range pressureConditions {
		last, since := n.lastMetOf(m, c, now), n.trueSince[c]
		if !since.IsZero() && now.Sub(last) < m.opts.Pressure.Transition &&
			since.Before(p.firstDesiredAt.Add(-time.Second)) &&
			(c != v1.NodeMemoryPressure || p.isRejectedForMemory()) {
			return c
		}
	}
	return ""
}

// findUnrejected returns which pod is not rejected for a condition of the node.
func (n *pressureModel) findUnrejected(m *model, now time.Time, pods []*v1.Pod) *finding {
	return m.findUnrejected(now, pods, func(p *pod) string {
		if c := n.conditionAgainst(m, p, now); c != "" && !p.isCritical() {
			return "while the node had " + string(c)
		}
		return ""
	})
}

// findWrongVictim returns why a pod should not have been evicted.
func (n *pressureModel) findWrongVictim(m *model, p *pod, resource string,
	now time.Time) *finding {
	sources := n.starvedSources(resource)
	switch {
	case len(sources) == 0:
		return findingf("pod %s is evicted for %s, but no threshold of it was met for long enough", p,
			resource)
	case resource == resourcePIDs && len(n.starvedSources(resourceMemory)) > 0:
		return findingf("pod %s is evicted for %s, but memory comes first", p, resource)
	case p.isCritical() && !p.specChanged:
		return findingf("pod %s is evicted, but is critical", p)
	}
	if q := m.endsForItsLimit(now); q != nil && (resource == resourceStorage ||
		resource == resourceInodes) {
		return findingf("pod %s is evicted for %s, while pod %s ends, which was over its own limit", p,
			resource, q)
	}
	var problem *finding
	for _, source := range sources {
		s := n.samples[source]
		if problem = n.findUsedSample(p, source, now); problem == nil {
			kind := lack{resource, source}
			problem = n.findBetterVictim(m, p, kind, later(s.starvedSince, now.Add(-usageAgeMax)))
			if problem != nil && n.usageTries >= usageTriesMax { // nothing may be known of the last try
				problem = n.findBetterVictim(m, p, kind, s.answeredAt)
			}
		}
		if problem == nil { // this one may have been the reason
			return nil
		}
	}
	return problem
}

// endsForItsLimit returns a pod that was evicted for a limit of its own, and runs or has volumes:
// it has its time to give that back. The agent does not wait for one such pod after the other.
func (m *model) endsForItsLimit(now time.Time) *pod {
	var ends *pod
	for _, p := range m.podsInOrder {
		switch evicted := p.limitEvictedAt; {
		case now.Sub(evicted) > 2*victimEndBound:
		case ends != nil:
			return nil
		case now.Sub(evicted) < victimEndBound && evicted.After(m.agentStartedAt) &&
			(p.liveContainers > 0 || p.hasVolumeBytes()):
			ends = p
		default:
			return nil
		}
	}
	return ends
}

// findUsedSample returns why the newest observation of a source must not lead to a victim.
func (n *pressureModel) findUsedSample(p *pod, source string, now time.Time) *finding {
	s, v := n.samples[source], n.victim
	asked := s.askedAt.Format(time.TimeOnly)
	switch failed, freed := n.failedAt[source], n.freedAt[source]; {
	case s.used:
		return findingf("pod %s is the second victim of one observation", p)
	case s.askedAt.Before(failed):
		return findingf("pod %s is evicted for an observation of %s that was asked for at %s, but one "+
			"has failed since, at %s", p, source, asked, failed.Format(time.TimeOnly))
	case s.askedAt.Before(freed):
		return findingf("pod %s is evicted for an observation of %s that was asked for at %s, but an "+
			"image or container was removed for it since, at %s", p, source, asked,
			freed.Format(time.TimeOnly))
	}
	if q := p.model.freedByLimit(source, s.askedAt, now); q != nil && source != fromNode {
		return findingf("pod %s is evicted for an observation of %s that was asked for at %s, but pod "+
			"%s, which was over its own limit, has given back what it held since, at %s", p, source, asked,
			q, q.limitFreedFrom(source).Format(time.TimeOnly))
	}
	switch {
	case now.Sub(s.answeredAt) > sampleAgeMax &&
		!p.model.anyFaultPossible(s.answeredAt, now, "MeasureNode", "MeasureFilesystem", "ImageFsInfo"):
		return findingf("pod %s is evicted for an observation of %s, and the node has not been observed "+
			"since", p, s.answeredAt.Format(time.TimeOnly))
	case v == nil || !s.askedAt.Before(n.victimDeadline):
	case v.liveContainers > 0 && now.Before(n.victimDeadline):
		return findingf("pod %s is evicted while the last victim, %s, still runs", p, v)
	case n.victimHoldsDisk && len(v.containers) > 0:
		return findingf("pod %s is evicted for a file system while the last victim, %s, still has "+
			"containers, with their writable layers and logs", p, v)
	case n.victimHoldsDisk && p.model.hasLayers(source) && n.heldLayers[v.uid] > 0:
		return findingf("pod %s is evicted for a file system while the runtime still holds writable "+
			"layers of the last victim, %s", p, v)
	case n.victimHoldsDisk && v.hasVolumeBytes():
		return findingf("pod %s is evicted for a file system while the last victim, %s, still has its "+
			"volumes", p, v)
	case n.victimFreedAt(p.model, source).After(s.askedAt):
		return findingf("pod %s is evicted for an observation that was asked for at %s, before the last "+
			"victim, %s, had ended", p, asked, v)
	}
	return nil
}

// freedByLimit returns a pod that was evicted for a limit of its own, and has given back all that
// it held of what a source observes since a time, as the agent knows.
func (m *model) freedByLimit(source string, since, now time.Time) *pod {
	for _, p := range m.podsInOrder {
		freed := p.limitFreedFrom(source)
		if p.spec != nil && !p.wasRemoved() && p.limitEvictedAt.After(m.agentStartedAt) &&
			since.Before(freed) && now.Sub(freed) > freedNoticeBound && len(p.containers) == 0 &&
			!p.hasVolumeBytes() &&
			!m.anyFaultPossible(freed, now, "RemoveContainer", "RemoveTree", "Unmount") {
			return p
		}
	}
	return nil
}

// hasVolumeBytes reports whether the pod's volumes take space on the node's disk. Those of a pod
// whose manifest was removed and came back may be of its next time.
func (p *pod) hasVolumeBytes() bool {
	return p.model.opts.DiskUsage != nil && p.timesDesired <= 1 &&
		p.model.opts.DiskUsage(p.model.opts.PodsDir+"/"+p.uid+"/volumes") > 0
}

// checkServed finds a threshold that is met for long without a victim, and a pressure
// condition that stays.
func (*nodePressure) checkServed(m *model, now time.Time, pods []*v1.Pod) *finding {
	n := &m.pressure
	if m.opts.NodeUsage == nil || m.agentDown {
		return nil
	}
	if f := cmp.Or(n.findStarvation(m, now), n.findUnrejected(m, now, pods)); f != nil {
		return f
	}
	if v := n.victim; v != nil && !n.victimIsSoft && v.liveContainers > 0 &&
		now.Sub(n.victimHardSince) > victimEndBound &&
		!m.anyFaultPossible(n.victimHardSince.Add(-reclaimTime), now, victimCalls...) {
		return findingf("a hard threshold leaves pod %s a second, but the pod has run for %v since", v,
			now.Sub(n.victimHardSince).Round(time.Second))
	}
	for _, c := range pressureConditions {
		since := later(n.trueSince[c], m.agentStartedAt)
		lastMet := n.lastMetOf(m, c, now)
		if !n.trueSince[c].IsZero() && now.Sub(lastMet) < m.opts.Pressure.Transition &&
			!n.stored[c] && m.objects.node != nil && now.Sub(since) > pressureReportBound &&
			!m.anyFaultPossible(since, now, "PatchObject", "CreateObject", "WatchObjects",
				"ObjectChanged", "GetObject") {
			return findingf("the Node does not have %s, although a threshold of it was met at %s", c,
				n.trueSince[c].Format(time.TimeOnly))
		}
		ended := lastMet.Add(m.opts.Pressure.Transition + pressureReportBound)
		if n.stored[c] && now.After(ended) && now.After(m.agentStartedAt.Add(pressureReportBound)) &&
			!m.anyFaultPossible(ended.Add(-pressureReportBound), now, "MeasureNode", "MeasureFilesystem",
				"PatchObject",
				"WatchObjects", "ObjectChanged", "GetObject") {
			return findingf("the Node has %s, although no threshold of it was met since %s", c,
				lastMet.Format(time.TimeOnly))
		}
	}
	return nil
}

// lastMetOf returns when a threshold of a condition was last met: now, if one was met when its
// signal was last observed. Images are removed, or a victim ends, while nothing is observed.
func (n *pressureModel) lastMetOf(m *model, c v1.NodeConditionType, now time.Time) time.Time {
	for i := range n.states {
		if m.opts.Pressure.Thresholds[i].condition() == c && !n.states[i].metSince.IsZero() {
			return now
		}
	}
	return n.lastMet[c]
}

func (n *pressureModel) findStarvation(m *model, now time.Time) *finding {
	usage := m.opts.NodeUsage()
	for i := range m.opts.Pressure.Thresholds {
		t := &m.opts.Pressure.Thresholds[i]
		var observed any = &usage
		if t.source() != fromNode {
			filesystem := m.opts.Filesystem(t.source())
			observed = &filesystem
		}
		available, isKnown := availableOf(t.Signal, observed, m.opts.Pressure.PodsMemoryMax)
		if !isKnown || available >= t.Amount {
			n.starvedSince[i] = time.Time{}
			continue
		}
		if n.starvedSince[i].IsZero() || t.Grace > 0 && m.endsForTheNode(now) {
			n.starvedSince[i] = now
		}
		since := later(n.starvedSince[i], later(m.agentStartedAt, n.victimFreedAt(m, t.source())))
		victimCounts := !n.victimIsSoft || t.Grace > 0 // a hard threshold hastens that of a soft one
		if now.Sub(since) <= t.Grace+starvationBound || victimCounts && now.Before(n.victimDeadline) ||
			m.anyFaultPossible(since, now, pressureCalls...) {
			continue
		}
		for _, p := range m.podsInOrder {
			if n.isCertainCandidate(m, p) {
				return findingf("%d of %s are available, below the threshold of %d for %v since %s, but no "+
					"pod is evicted, not even %s", available, t.Signal, t.Amount, t.Grace,
					since.Format(time.TimeOnly), p)
			}
		}
	}
	return nil
}

// endsForTheNode reports whether a pod that this agent or an earlier one has evicted for the node
// still runs, within the time that it has to end. No other pod is evicted for a soft threshold
// meanwhile.
func (m *model) endsForTheNode(now time.Time) bool {
	return slices.ContainsFunc(m.podsInOrder, func(p *pod) bool {
		grace := min(p.maxGrace, p.pressureGraceMax) // minGrace may be of before the eviction
		return !p.pressureEvictedAt.IsZero() && p.liveContainers > 0 &&
			now.Before(p.pressureEvictedAt.Add(grace+victimEndBound))
	})
}

// checkConditions checks the pressure conditions in a patch of the Node as the agent sends it.
func (m *model) checkConditions(now time.Time, request any) *finding {
	patch, isPatch := request.(*world.PatchObject)
	if !isPatch || patch.Resource != world.ResourceNodes || m.opts.NodeUsage == nil {
		return nil
	}
	var sent struct {
		Status struct {
			Conditions []v1.NodeCondition `json:"conditions"`
		} `json:"status"`
	}
	if json.Unmarshal(patch.Patch, &sent) != nil {
		return nil
	}
	n, period := &m.pressure, m.opts.Pressure.Transition
	for _, c := range sent.Status.Conditions {
		if !isPressureCondition(c.Type) {
			continue
		}
		_, met := n.lastMet[c.Type]
		last := n.lastMetOf(m, c.Type, now)
		isTrue, wasTrue := c.Status == v1.ConditionTrue, n.stored[c.Type]
		if isTrue != wasTrue {
			n.flippedAt = now
		}
		switch {
		case !isTrue && wasTrue && now.Sub(last) < period-time.Second:
			return findingf("%s ends %v after a threshold was met, before the transition period of %v",
				c.Type, now.Sub(last).Round(time.Second), period)
		case isTrue && !met:
			return findingf("%s is reported, but no threshold of it was met", c.Type)
		case isTrue && now.Sub(last) > period+pressureReportBound &&
			!m.anyFaultPossible(last, now, "MeasureNode", "MeasureFilesystem",
				"PatchObject", "WatchObjects", "ObjectChanged"):
			return findingf("%s is reported %v after a threshold was met", c.Type,
				now.Sub(last).Round(time.Second))
		}
	}
	return nil
}
