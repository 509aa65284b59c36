package volume

import (
	"fmt"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"

	"seedlet.dev/world"
)

// measurePeriod is the period of measuring volumes with a limit: the kubelet's
// volumeStatsAggPeriod.
const measurePeriod = time.Minute

// NextMeasurement returns the next measurement to issue, or nil. The time is when the next pass
// starts, zero if no volume has a limit. A file system in memory enforces its limit itself.
func (s *Set) NextMeasurement(pod *Pod, now time.Time) (*Operation, time.Time) {
	limited := false
	for i := range pod.Spec.Spec.Volumes {
		spec := &pod.Spec.Spec.Volumes[i]
		if v := s.find(spec.Name); sizeLimit(spec) <= 0 || v == nil || !v.Ready {
			continue
		}
		limited = true
		if s.MeasureOp == 0 && !now.Before(s.NextAt) && !slices.Contains(s.Measured, spec.Name) {
			return &Operation{Volume: spec.Name,
				Body: &world.MeasureTree{Path: Path(pod.Dir, spec)}}, time.Time{}
		}
	}
	switch {
	case !limited || s.MeasureOp != 0:
		return nil, time.Time{}
	case !now.Before(s.NextAt):
		s.Measured, s.NextAt = nil, now.Add(measurePeriod)
	}
	return nil, s.NextAt
}

// MeasurementIssued records that a measurement is in flight.
func (s *Set) MeasurementIssued(id world.OpID, volume string) {
	s.MeasureOp, s.Measuring = id, volume
}

// unfinishedMax is the number of consecutive unfinished measurements from which a volume counts as
// over its limit. One is not enough: a tree that changes fast, or whose inodes have to be read from
// a busy disk, can be measured a minute later. Without a bound a pod could evade its limit with a
// tree that takes too long.
const unfinishedMax = 3

// HandleMeasurement applies a completed measurement. A volume whose measurement failed waits for
// the next pass.
//
// Only the port knows whether a measurement failed because of the tree (TreeMeasured.Unfinished).
// An error never counts as usage, neither does a timeout: the disk may be slow, or the operation
// may have waited for those of other pods, and a pod is not evicted for that.
func (s *Set) HandleMeasurement(spec *v1.PodSpec, ev world.Event) {
	name := s.Measuring
	s.MeasureOp, s.Measuring = 0, ""
	s.Measured = append(s.Measured, name)
	measured, ok := ev.Body.(*world.TreeMeasured)
	if ev.Err != nil || !ok {
		return
	}
	unfinishedTooOften := s.countUnfinished(name, measured)
	for i := range spec.Volumes {
		volume := &spec.Volumes[i]
		limit := sizeLimit(volume)
		if volume.Name != name || limit <= 0 {
			continue
		}
		if unfinishedTooOften || measured.Bytes > limit {
			s.OverLimit = name
		}
	}
}

// countUnfinished counts the consecutive unfinished measurements of a volume, and reports whether
// there are too many.
func (s *Set) countUnfinished(name string, measured *world.TreeMeasured) bool {
	if !measured.Unfinished {
		delete(s.Unfinished, name)
		return false
	}
	if s.Unfinished == nil {
		s.Unfinished = map[string]int{}
	}
	s.Unfinished[name]++
	return s.Unfinished[name] >= unfinishedMax
}

func sizeLimit(v *v1.Volume) int64 {
	if v.EmptyDir == nil || v.EmptyDir.Medium != v1.StorageMediumDefault ||
		v.EmptyDir.SizeLimit == nil {
		return 0
	}
	return v.EmptyDir.SizeLimit.Value()
}

// OverLimitMessage returns why a pod is evicted whose volume exceeds its limit, in the kubelet's
// words, which end in a space.
func (s *Set) OverLimitMessage(spec *v1.PodSpec) string {
	for i := range spec.Volumes {
		if v := &spec.Volumes[i]; v.Name == s.OverLimit && v.EmptyDir != nil &&
			v.EmptyDir.SizeLimit != nil {
			return fmt.Sprintf("Usage of EmptyDir volume %q exceeds the limit %q. ",
				v.Name, v.EmptyDir.SizeLimit.String())
		}
	}
	return ""
}
