package oracle

import (
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"seedlet.dev/sim/truth"
	api "seedlet.dev/world"
)

// transitions fires when the agent gives a condition of a pod a wrong time of its last transition
// (updateLastTransitionTime in the kubelet's status_manager.go). Controllers take how long a pod
// has been ready from it, such as minReadySeconds of a Deployment.
type transitions struct {
	reported map[string]report // by namespace/name: the newest write of the agent
}

// report is a status that the agent has written.
type report struct {
	uid        types.UID
	issuedAt   time.Time
	conditions []v1.PodCondition
}

func (*transitions) describe() Entry {
	return Entry{"transitions", "A condition of a pod at the API server keeps the time of its last " +
		"transition while its status stays, and one whose status the agent changes has a date from " +
		"after the agent's report of the old status."}
}

// agentConditions are the conditions of pods that the agent owns. Those of others, such as the
// conditions of readiness gates, are not its to date.
var agentConditions = []v1.PodConditionType{
	v1.PodReadyToStartContainers, v1.PodInitialized, v1.ContainersReady, v1.PodReady,
	v1.PodScheduled, v1.AllContainersRestarting, v1.DisruptionTarget,
}

// transitionCalls are those whose faults leave the agent with an older status than the stored one.
var transitionCalls = []string{"PatchObject", "GetObject", "WatchObjects", "ObjectChanged"}

// noteStatusWrite records when a write of a pod's status was issued: its content is of that time.
func (o *apiObjects) noteStatusWrite(now time.Time, request any) {
	if r, ok := request.(*api.PatchObject); ok && r.Resource == api.ResourcePods && r.Status {
		o.statusIssuedAt[r.Namespace+"/"+r.Name] = now
	}
}

func (o *transitions) checkFact(m *model, f *truth.Fact) *finding {
	if !isAgentStatus(f) || f.Write.Before.Pod == nil {
		return nil
	}
	before, after := f.Write.Before.Pod, f.Write.After.Pod
	name := f.Write.Namespace + "/" + f.Write.Name
	last := o.reported[name]
	if last.uid != after.UID {
		last = report{}
	}
	if o.reported == nil {
		o.reported = map[string]report{}
	}
	o.reported[name] = report{after.UID, m.objects.statusIssuedAt[name], after.Status.Conditions}
	if m.anyFaultPossible(f.Time.Add(-reconnectBound), f.Time, transitionCalls...) {
		return nil
	}
	for i := range after.Status.Conditions {
		c := &after.Status.Conditions[i]
		if !slices.Contains(agentConditions, c.Type) {
			continue
		}
		if problem := o.checkCondition(m, c, before, &last, f); problem != nil {
			return problem
		}
	}
	return nil
}

// checkCondition checks a condition that the agent has written. Last is its report before this one.
func (*transitions) checkCondition(m *model, c *v1.PodCondition, before *v1.Pod, last *report,
	f *truth.Fact) *finding {
	stored := podCondition(before.Status.Conditions, c.Type)
	if stored != nil && stored.Status == c.Status {
		if c.LastTransitionTime.Equal(&stored.LastTransitionTime) {
			return nil
		}
		return findingf("condition %s of pod %s/%s stays %s, and its last transition was moved from "+
			"%v to %v", c.Type, f.Write.Namespace, f.Write.Name, c.Status,
			stored.LastTransitionTime.UTC(), c.LastTransitionTime.UTC())
	}
	var since time.Time // a static pod may be older than its mirror
	if !isMirror(before) {
		since = before.CreationTimestamp.Time
	}
	// The agent sets a status back that another client has changed, with the date of its own.
	reported := podCondition(last.conditions, c.Type)
	if !last.issuedAt.IsZero() && (reported == nil && stored == nil ||
		reported != nil && stored != nil && reported.Status == stored.Status) {
		since = last.issuedAt
	}
	if m.wasDate(c.LastTransitionTime, since, f.Time) {
		return nil
	}
	return findingf("the transition of condition %s of pod %s/%s to %s has the date %v, but it came "+
		"between %v and %v", c.Type, f.Write.Namespace, f.Write.Name, c.Status,
		c.LastTransitionTime.UTC(), since.UTC(), f.Time)
}

// wasDate reports whether a date in whole seconds was that of the machine between two times.
func (m *model) wasDate(date metav1.Time, from, to time.Time) bool {
	isWithin := func(offset time.Duration) bool {
		at := date.Add(-offset) // or up to a second later
		return at.After(from.Add(-time.Second)) && !at.After(to) &&
			(m.dateOffset(at) == offset || m.dateOffset(at.Add(time.Second)) == offset)
	}
	if isWithin(m.dateOffset(to)) {
		return true
	}
	for at := later(from, to.Add(-transitionSearchMax)); at.Before(to); at = at.Add(time.Second) {
		if isWithin(m.dateOffset(at)) {
			return true
		}
	}
	return false
}

// transitionSearchMax is how far back changes of the date are looked for: longer than a run takes.
const transitionSearchMax = 2 * time.Hour

// podCondition returns a condition of a pod; nil if it is not there.
func podCondition(conditions []v1.PodCondition, t v1.PodConditionType) *v1.PodCondition {
	i := slices.IndexFunc(conditions, func(c v1.PodCondition) bool { return c.Type == t })
	if i < 0 {
		return nil
	}
	return &conditions[i]
}
