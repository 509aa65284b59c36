package pod

import (
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"

	"seedlet.dev/core/probe"
)

// What the status at the API server says about containers, when the agent starts. Another agent may
// have written it after the record, such as a kubelet that this agent has replaced. What its probes
// had found still counts, so the pod stays as it is (the kubelet's setReadyStateOnKubeletRestart).

// ReasonReadinessGates is the reason of the condition Ready of a pod whose containers are ready,
// but not all of its readiness gates.
const ReasonReadinessGates = "ReadinessGatesNotReady"

// Reported is what the status of a pod at the API server says about its running containers.
type Reported struct {
	// IsRead reports that it was read. That of a mirror comes before the record or after it.
	IsRead bool `json:"isRead,omitempty"`
	// Since is the last change of the condition ContainersReady. Nothing in the status is older than a
	// record that was written before it.
	Since time.Time `json:"since,omitzero"`
	// LostAt is when the node controller has set the condition Ready to False, as the node had sent no
	// heartbeats; zero if it has not. No container is ready then until it is probed again.
	LostAt     time.Time         `json:"lostAt,omitzero"`
	Containers []ContainerRecord `json:"containers,omitempty"`
}

// forget drops everything, but not that it was read.
func (r *Reported) forget() { *r = Reported{IsRead: r.IsRead} }

// ObserveReported applies the status that the API server has for a static pod, which is that of its
// mirror, and reports whether a container is healthier for it than was known. Later changes of the
// status are of this agent.
func (p *Pod) ObserveReported(status *v1.PodStatus) bool {
	if p.Reported.IsRead && p.Record.Loaded {
		return false
	}
	if p.Reported = reportedHealth(status); !p.Record.Loaded {
		return false // applyRecord takes it
	}
	p.keepNewerReports()
	p.Reported.LostAt = time.Time{} // probes have run since the record was read
	var adopted []ContainerRecord
	for _, r := range p.Reported.Containers {
		i := slices.IndexFunc(p.Containers, func(c Container) bool { return c.ID == r.ID })
		if p.adoptHealth(&p.Containers[i], p.persistedContainer(r.ID)) {
			adopted = append(adopted, r)
		}
	}
	p.Reported.Containers = adopted
	changed := len(adopted) > 0
	if changed {
		p.Record.WritesReported = false
	} else {
		p.Reported.forget()
	}
	return changed
}

// keepNewerReports drops what is older than the record: if that was written after the last change
// of the status, it has what this agent has found of its own containers, and of those of another
// agent that it names. Times of conditions are in whole seconds.
func (p *Pod) keepNewerReports() {
	written := p.Record.Written.Truncate(time.Second)
	isNewer := p.Reported.Since.After(written)
	if !p.Reported.LostAt.After(written) {
		p.Reported.LostAt = time.Time{}
	}
	p.Reported.Containers = slices.DeleteFunc(p.Reported.Containers, func(r ContainerRecord) bool {
		isOf := func(c Container) bool {
			return c.ID == r.ID && (isNewer ||
				c.FromOtherAgent && indexOfRecord(p.Record.Containers, r.ID) < 0)
		}
		return !slices.ContainsFunc(p.Containers, isOf)
	})
}

// reportedHealth returns what a status says about running containers.
func reportedHealth(status *v1.PodStatus) Reported {
	reported := Reported{IsRead: true}
	ready, isReady := &v1.PodCondition{}, false
	for i := range status.Conditions {
		switch c := &status.Conditions[i]; c.Type {
		case v1.PodReady:
			ready = c
		case v1.ContainersReady:
			reported.Since, isReady = c.LastTransitionTime.Time, c.Status == v1.ConditionTrue
		}
	}
	if isReady && ready.Status == v1.ConditionFalse && ready.Reason != ReasonReadinessGates {
		reported.LostAt = ready.LastTransitionTime.Time
	}
	for _, list := range [][]v1.ContainerStatus{status.InitContainerStatuses,
		status.ContainerStatuses} {
		for i := range list {
			s := &list[i]
			if id := RunID(s.ContainerID); s.State.Running != nil && id != "" {
				started := s.Started != nil && *s.Started
				reported.Containers = append(reported.Containers,
					ContainerRecord{ID: id, PostStarted: started, Started: started, Ready: started && s.Ready})
			}
		}
	}
	return reported
}

// RunID returns the runtime's ID of a container from the one in a status, which begins with the
// name of the runtime; empty if there is none.
func RunID(containerID string) string {
	_, id, _ := strings.Cut(containerID, "://")
	return id
}

// adoptHealth sets the results of probes that have none, and reports whether there are any.
func (p *Pod) adoptHealth(c *Container, record ContainerRecord) bool {
	container, adopted := p.specContainer(c.Name), false
	for _, kind := range []probe.Kind{probe.Startup, probe.Readiness} {
		succeeded := record.Started && kind == probe.Startup || record.Ready && kind == probe.Readiness
		if !succeeded || container == nil || probe.SpecOf(container, kind) == nil {
			continue
		}
		if pr := c.prober(kind); pr.Result == probe.Unknown {
			pr.Result, adopted = probe.Success, true
		}
	}
	return adopted
}
