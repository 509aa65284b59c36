// Package volumestats measures the usage and health of volumes that storage backs: those of CSI
// drivers, which the driver is asked for, and those of the kinds local, nfs, iscsi and fc, of which
// the file system is; of volumeMode Block, only the size of the device is known.
// (Volumes that the node itself fills are measured where their limits are, in package
// localstorage.)
//
// Facts: for each volume of a pod the newest measurement, the one in flight, and when the next one
// is due. Plan: the measurements that are due (Stats.Plan). Each volume is measured by itself, once
// in a period, and each call has a deadline. A pod has two measurements in flight at most, and one
// that hangs remains one of them: a driver or server that hangs delays other volumes of the pod, as
// with a kubelet, which measures one after the other, and no volume of another pod. A failed
// measurement leaves no usage, as with a kubelet: an old one would look like a new one. Upstream:
// pkg/kubelet/server/stats/volume_stat_calculator.go. Start reading at Stats.Plan.
package volumestats

import (
	"maps"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"

	"seedlet.dev/core/budget"
	"seedlet.dev/core/op"
	"seedlet.dev/core/timer"
	"seedlet.dev/world"
)

// timeout is how long a measurement may take (csiTimeout upstream).
const timeout = 2 * time.Minute

// inFlightMax is how many volumes of a pod are measured at once, those included whose file system
// has not answered an earlier measurement.
const inFlightMax = 2

// Component is the component of the keys of pods.
const Component = "volumestats"

// Key returns the key of the volumes of a pod.
func Key(uid string) timer.Key { return timer.Key{Component: Component, Name: uid} }

// Stats is what is known of the usage of volumes.
type Stats struct {
	Period time.Duration `json:"period"` // between two measurements of a volume; zero or less: none
	// Health reports whether the conditions of volumes are reported (CSIVolumeHealth, KEP-1432).
	Health bool            `json:"health,omitempty"`
	Pods   map[string]*Pod `json:"pods,omitempty"` // by UID
}

// Pod is the volumes of a pod.
type Pod struct {
	Namespace string             `json:"namespace"`
	Volumes   map[string]*Volume `json:"volumes"` // by name in the spec
}

// Volume is the measurements of a volume.
type Volume struct {
	Claim  string     `json:"claim,omitempty"`
	Op     world.OpID `json:"op,omitempty"` // the measurement in flight
	NextAt time.Time  `json:"nextAt,omitzero"`
	// Hung is set if the file system has not answered until the deadline: the call may go on for ever.
	// The next one is refused as long as the first has no answer.
	Hung bool `json:"hung,omitempty"`
	// HasCondition reports whether the driver reports the health of the volume.
	HasCondition bool                  `json:"hasCondition,omitempty"`
	Latest       *world.CSIVolumeStats `json:"latest,omitempty"`
	MeasuredAt   time.Time             `json:"measuredAt,omitzero"` // the date
}

// Target is a volume that is set up.
type Target struct {
	Name    string // in the spec of the pod
	Claim   string // empty: the volume has none
	Request any    // the operation that measures it; nil: its driver is missing, or cannot
	// HasCondition is that of Volume.
	HasCondition bool
}

// Plan issues the measurements of a pod that are due, and returns when to plan again. A volume that
// is unmounted has no usage, and one of a driver that is missing when it is due has none either.
func (s *Stats) Plan(namespace, uid string, targets []Target, effects *op.Effects) time.Time {
	var wake time.Time
	if s.Period <= 0 {
		return wake
	}
	p := s.Pods[uid]
	if p == nil {
		p = &Pod{Namespace: namespace, Volumes: map[string]*Volume{}}
	}
	p.keep(targets, effects.Now())
	var due []*Target
	for i := range targets {
		t := &targets[i]
		v := p.Volumes[t.Name]
		if v == nil {
			v = &Volume{}
			p.Volumes[t.Name] = v
		}
		switch v.Claim, v.HasCondition = t.Claim, t.HasCondition; {
		case v.Op != 0:
		case effects.Now().Before(v.NextAt):
			wake = timer.Soonest(wake, v.NextAt)
		case t.Request == nil:
			v.Latest = nil
		default:
			due = append(due, t)
		}
	}
	p.issue(uid, due, effects)
	switch {
	case len(p.Volumes) == 0:
		delete(s.Pods, uid)
	case s.Pods == nil:
		s.Pods = map[string]*Pod{uid: p}
	default:
		s.Pods[uid] = p
	}
	return wake
}

// issue issues the measurements of the volumes that are due, the one that is due for longest first,
// as many as the pod may have in flight. The others are issued as these complete. A volume that
// hangs is asked again, and takes no other place for that. If nothing else is left, the others have
// no usage.
func (p *Pod) issue(uid string, due []*Target, effects *op.Effects) {
	inFlight, hung := 0, 0
	for _, v := range p.Volumes { //ordered: a count
		if v.Hung {
			hung++
		} else if v.Op != 0 {
			inFlight++
		}
	}
	slices.SortStableFunc(due, func(x, y *Target) int {
		return p.Volumes[x.Name].NextAt.Compare(p.Volumes[y.Name].NextAt)
	})
	for _, t := range due {
		v := p.Volumes[t.Name]
		switch {
		case v.Hung:
		case inFlight+hung < inFlightMax:
			inFlight++
		case hung >= inFlightMax:
			v.Latest = nil
			continue
		default:
			continue
		}
		v.Op = effects.IssueFor(uid, Key(uid), t.Name, timeout, t.Request)
	}
}

// keep forgets the usage of the volumes that are not among those that are set up. A measurement in
// flight is waited for, so that there is one for each volume, and so is the end of the period: a
// volume is set up again with each sandbox of its pod.
func (p *Pod) keep(targets []Target, now time.Time) {
	maps.DeleteFunc(p.Volumes, func(name string, v *Volume) bool {
		if slices.ContainsFunc(targets, func(t Target) bool { return t.Name == name }) {
			return false
		}
		v.Latest = nil
		return v.Op == 0 && !now.Before(v.NextAt)
	})
}

// Forget forgets a pod that has gone.
func (s *Stats) Forget(uid string) { delete(s.Pods, uid) }

// HandleCompletion applies a measurement of a volume of a pod, which may have gone.
func (s *Stats) HandleCompletion(id world.OpID, r op.Record, ev world.Event,
	pod v1.ObjectReference, effects *op.Effects) {
	p := s.Pods[r.Owner.Name]
	if p == nil || p.Volumes[r.Subject] == nil || p.Volumes[r.Subject].Op != id {
		return
	}
	v := p.Volumes[r.Subject]
	v.Op, v.NextAt, v.Latest = 0, ev.Time.Add(s.Period), nil
	v.Hung = r.Call == "MeasureFilesystem" &&
		(ev.Err.Has(world.KindTimeout) || v.Hung && ev.Err.Has(world.KindUnavailable))
	if ev.Err != nil {
		return
	}
	stats, ok := statsOf(ev.Body)
	if !ok {
		return
	}
	switch {
	case !s.Health || !v.HasCondition:
		stats.Condition = nil
	case stats.Condition == nil:
		stats.Condition = &world.CSIVolumeCondition{} // as protobuf reads it
	}
	v.Latest, v.MeasuredAt = &stats, effects.Date()
	if c := stats.Condition; c != nil && c.Abnormal {
		effects.RecordEvent(pod, v1.EventTypeWarning, "VolumeConditionAbnormal", "Volume %s: %s",
			r.Subject, budget.CutMessage(c.Message))
	}
}

// statsOf returns what was measured; false if the answer says nothing of the usage.
func statsOf(body any) (world.CSIVolumeStats, bool) {
	switch b := body.(type) {
	case *world.FilesystemMeasured:
		return atLeastZero(world.CSIVolumeStats{CapacityBytes: b.CapacityBytes,
			AvailableBytes: b.AvailableBytes, UsedBytes: b.CapacityBytes - b.FreeBytes,
			Inodes: b.Inodes, InodesFree: b.InodesFree, InodesUsed: b.Inodes - b.InodesFree}), true
	case *world.DeviceMeasured:
		return atLeastZero(world.CSIVolumeStats{CapacityBytes: b.CapacityBytes}), true
	case *world.CSIVolumeStats:
		return atLeastZero(*b), *b != world.CSIVolumeStats{}
	}
	return world.CSIVolumeStats{}, false
}

// atLeastZero replaces negative numbers, which only a wrong answer has.
func atLeastZero(s world.CSIVolumeStats) world.CSIVolumeStats {
	for _, n := range []*int64{&s.CapacityBytes, &s.AvailableBytes, &s.UsedBytes, &s.Inodes,
		&s.InodesFree, &s.InodesUsed} {
		*n = max(0, *n)
	}
	if s.Condition != nil {
		c := *s.Condition
		c.Message = budget.CutMessage(c.Message)
		s.Condition = &c
	}
	return s
}

// List returns the usage of all volumes that is known, sorted by UID and name.
func (s *Stats) List() []world.VolumeUsage {
	list := []world.VolumeUsage{}
	for _, uid := range slices.Sorted(maps.Keys(s.Pods)) {
		p := s.Pods[uid]
		for _, name := range slices.Sorted(maps.Keys(p.Volumes)) {
			if v := p.Volumes[name]; v.Latest != nil {
				list = append(list, world.VolumeUsage{UID: uid, Namespace: p.Namespace, Volume: name,
					Claim: v.Claim, MeasuredAt: v.MeasuredAt, Stats: *v.Latest})
			}
		}
	}
	return list
}
