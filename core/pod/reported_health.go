package pod

import (
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"

	"seedlet.dev/core/probe"
)

// What the status at the API server says about containers that another agent has created, such as
// the kubelet that this agent has replaced: no record has them. What their probes had found then
// still counts, so the pod stays ready (the kubelet's setReadyStateOnKubeletRestart).

// ObserveReported applies the status that the API server has for a static pod, which is that of its
// mirror, and reports whether a container is healthier for it than was known.
func (p *Pod) ObserveReported(status *v1.PodStatus) bool {
	reported := reportedHealth(status)
	if !p.Record.Loaded {
		p.Reported = reported // applyRecord takes it
		return false
	}
	changed := false
	for _, record := range reported {
		i := slices.IndexFunc(p.Containers, func(c Container) bool { return c.ID == record.ID })
		if i >= 0 && p.Containers[i].FromOtherAgent && p.adoptHealth(&p.Containers[i], record) {
			p.Reported = append(p.Reported, record)
			p.Record.WritesReported, changed = false, true
		}
	}
	return changed
}

// keepReportedByOthers drops what was reported about containers that other agents have not created.
func (p *Pod) keepReportedByOthers() {
	if !p.IsStatic() {
		p.Reported = reportedHealth(&p.Spec.Status)
	}
	p.Reported = slices.DeleteFunc(p.Reported, func(r ContainerRecord) bool {
		isOf := func(c Container) bool { return c.ID == r.ID && c.FromOtherAgent }
		return !slices.ContainsFunc(p.Containers, isOf)
	})
}

// reportedHealth returns what a status says about containers that have started.
func reportedHealth(status *v1.PodStatus) []ContainerRecord {
	var records []ContainerRecord
	for _, list := range [][]v1.ContainerStatus{status.InitContainerStatuses,
		status.ContainerStatuses} {
		for i := range list {
			s := &list[i]
			id := RunID(s.ContainerID)
			if s.Started != nil && *s.Started && s.State.Running != nil && id != "" {
				records = append(records, ContainerRecord{ID: id, Started: true, Ready: s.Ready})
			}
		}
	}
	return records
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
