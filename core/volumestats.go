package core

import (
	"maps"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"

	"seedlet.dev/core/budget"
	"seedlet.dev/core/claim"
	"seedlet.dev/core/op"
	"seedlet.dev/core/pod"
	"seedlet.dev/core/volumestats"
	"seedlet.dev/world"
)

// The usage of volumes that storage backs, which is measured from time to time.

// enqueueVolumeStats plans the measurements of the volumes of a pod, if it has such volumes.
func (a *Agent) enqueueVolumeStats(p *pod.Pod) {
	if p.HasBackedVolumes() {
		a.queue.enqueue(volumestats.Key(p.UID))
	}
}

// planVolumeStats plans the measurements of a pod. A volume of a driver that is not registered is
// looked at again after a period.
func (a *Agent) planVolumeStats(uid string) time.Time {
	s := &a.state
	p := s.Pods[uid]
	if p == nil || p.Spec == nil {
		s.VolumeStats.Forget(uid)
		return time.Time{}
	}
	var targets []volumestats.Target
	for i := range p.Spec.Spec.Volumes {
		v := &p.Spec.Spec.Volumes[i]
		if t, has := a.volumeToMeasure(p, v); has {
			t.Name, t.Claim = v.Name, claim.Name(p.Spec, v)
			targets = append(targets, t)
		}
	}
	wake := s.VolumeStats.Plan(p.Spec.Namespace, uid, targets, &a.effects)
	if wake.IsZero() && s.VolumeStats.Period > 0 {
		wake = s.Now.Add(s.VolumeStats.Period)
	}
	return wake
}

// volumeToMeasure returns how a volume of a pod is measured; false if it is not set up.
func (a *Agent) volumeToMeasure(p *pod.Pod, v *v1.Volume) (t volumestats.Target, has bool) {
	request, use := p.MeasuredVolume(v, &a.state.Node)
	switch {
	case use != nil:
		ask, hasCondition, isPublished := a.state.CSI.StatsRequest(use)
		if ask != nil {
			t = volumestats.Target{Request: ask, HasCondition: hasCondition}
		}
		return t, isPublished
	case request != nil:
		return volumestats.Target{Request: request}, true
	}
	return t, false
}

// handleVolumeStatsCompletion handles a measurement.
func (a *Agent) handleVolumeStatsCompletion(id world.OpID, r op.Record, ev world.Event) {
	var ref v1.ObjectReference
	if p := a.state.Pods[r.Owner.Name]; p != nil && p.Spec != nil {
		ref = pod.ObjectReference(p.Spec)
	} else {
		a.state.VolumeStats.Forget(r.Owner.Name)
	}
	if source := a.measuredBy(r); source != "" {
		a.state.Metrics.recordVolumeMeasured(source, r, ev.Time)
	}
	a.state.VolumeStats.HandleCompletion(id, r, ev, ref, &a.effects)
}

// measuredBy returns what was asked for a measurement, as recordVolumeMeasured takes it; empty if
// that is not known any more, as the pod has gone.
func (a *Agent) measuredBy(r op.Record) string {
	switch r.Call {
	case "MeasureFilesystem":
		return "statfs"
	case "MeasureDevice":
		return "block"
	}
	p := a.state.Pods[r.Owner.Name]
	if p == nil || p.Spec == nil {
		return ""
	}
	for i := range p.Spec.Spec.Volumes {
		v := &p.Spec.Spec.Volumes[i]
		if v.Name != r.Subject {
			continue
		}
		if _, use := p.MeasuredVolume(v, &a.state.Node); use != nil {
			return a.driverLabel(use.Driver)
		}
	}
	return ""
}

// addVolumeStats adds the usage of claims. Of a claim that several pods have, one pod's is shown.
// Pods with more claims than others are cut first, as in listProbeMetrics.
func (a *Agent) addVolumeStats(m *metricList) {
	usage, counts := a.state.VolumeStats.List(), map[string]int{}
	usage = slices.DeleteFunc(usage, func(u world.VolumeUsage) bool { return u.Claim == "" })
	for i := range usage {
		counts[usage[i].UID]++
	}
	ofPod := shareEqually(slices.Sorted(maps.Values(counts)), budget.VolumeMetricsMax)
	shown, shownOf := map[string]bool{}, map[string]int{}
	for i := range usage {
		u := &usage[i]
		name := u.Namespace + "/" + u.Claim
		if shown[name] || shownOf[u.UID] == ofPod {
			continue
		}
		shown[name] = true
		shownOf[u.UID]++
		add := func(what, help string, v int64) {
			*m = append(*m, world.Metric{Name: "kubelet_volume_stats_" + what, Help: help,
				Value:  float64(v),
				Labels: newLabels([]string{"namespace", u.Namespace, "persistentvolumeclaim", u.Claim})})
		}
		s := &u.Stats
		add("capacity_bytes", "Size of the volume of a claim.", s.CapacityBytes)
		add("available_bytes", "What can still be written to it.", s.AvailableBytes)
		add("used_bytes", "What is used of it.", s.UsedBytes)
		add("inodes", "Inodes that it can have.", s.Inodes)
		add("inodes_free", "Inodes that it can still have.", s.InodesFree)
		add("inodes_used", "Inodes that it has.", s.InodesUsed)
		if s.Condition != nil {
			abnormal := int64(0)
			if s.Condition.Abnormal {
				abnormal = 1
			}
			add("health_status_abnormal", "1 if the driver says that the volume is unhealthy, otherwise 0.",
				abnormal)
		}
	}
}
