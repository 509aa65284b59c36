package volume

import (
	"fmt"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"

	"seedlet.dev/world"
)

// measurePeriod is how often the volumes that have a limit are measured, as the kubelet's
// volumeStatsAggPeriod.
const measurePeriod = time.Minute

// Measure is the next volume to measure; nil if there is none for now. The time is when the next
// round begins, zero if no volume has a limit. A file system in memory keeps to its limit itself.
func (s *Set) Measure(pod *Pod, now time.Time) (*Ask, time.Time) {
	limited := false
	for i := range pod.Spec.Spec.Volumes {
		want := &pod.Spec.Spec.Volumes[i]
		if v := s.volume(want.Name); limitOf(want) <= 0 || v == nil || !v.Ready {
			continue
		}
		limited = true
		if s.MeasureOp == 0 && !now.Before(s.NextAt) && !slices.Contains(s.Measured, want.Name) {
			return &Ask{Volume: want.Name,
				Body: &world.MeasureTree{Path: Path(pod.Dir, want)}}, time.Time{}
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

// Began records that a measurement is in flight.
func (s *Set) Began(id world.OpID, volume string) { s.MeasureOp, s.Measuring = id, volume }

// MeasureAnswered takes what a volume was measured to use. One that could not be measured waits
// for the next round.
func (s *Set) MeasureAnswered(spec *v1.PodSpec, ev world.Event) {
	name := s.Measuring
	s.MeasureOp, s.Measuring = 0, ""
	s.Measured = append(s.Measured, name)
	measured, ok := ev.Body.(*world.TreeMeasured)
	if ev.Err != nil || !ok {
		return
	}
	for i := range spec.Volumes {
		want := &spec.Volumes[i]
		if limit := limitOf(want); want.Name == name && limit > 0 && measured.Bytes > limit {
			s.Over = name
		}
	}
}

func limitOf(v *v1.Volume) int64 {
	if v.EmptyDir == nil || v.EmptyDir.Medium != v1.StorageMediumDefault ||
		v.EmptyDir.SizeLimit == nil {
		return 0
	}
	return v.EmptyDir.SizeLimit.Value()
}

// OverMessage is why a pod is ended whose volume was found to be too large, in the kubelet's
// words, which end in a space.
func (s *Set) OverMessage(spec *v1.PodSpec) string {
	for i := range spec.Volumes {
		if v := &spec.Volumes[i]; v.Name == s.Over && v.EmptyDir != nil &&
			v.EmptyDir.SizeLimit != nil {
			return fmt.Sprintf("Usage of EmptyDir volume %q exceeds the limit %q. ",
				v.Name, v.EmptyDir.SizeLimit.String())
		}
	}
	return ""
}
