package sim

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"seedlet.dev/sim/truth"
)

// startTimes measures the start latency of pods, for Expectation.StartsWithin: the time from when a
// pod is desired until its first container runs. Pods are known by the names in their manifests.
type startTimes struct {
	desired, started map[string]time.Time
}

func newStartTimes() startTimes {
	return startTimes{map[string]time.Time{}, map[string]time.Time{}}
}

// setDesired records that a pod is desired.
func (s *startTimes) setDesired(pod string, now time.Time) { setOnce(s.desired, pod, now) }

// clearDesired records that a pod is no longer desired. If it has not started it need not start.
func (s *startTimes) clearDesired(pod string) {
	if _, started := s.started[pod]; !started {
		delete(s.desired, pod)
	}
}

// observe subscribes to the truth.
func (s *startTimes) observe(f truth.Fact) {
	if f.Kind == truth.ContainerStarted {
		setOnce(s.started, withoutNodeSuffix(f.PodName), f.Time)
	}
}

// setOnce sets the time of a pod that has none.
func setOnce(times map[string]time.Time, pod string, now time.Time) {
	if _, known := times[pod]; !known {
		times[pod] = now
	}
}

// lateStart returns a message about the first pod with a name prefix that did not start within a
// bound; empty if all did.
func (s *startTimes) lateStart(prefix string, bound time.Duration) string {
	for _, pod := range slices.Sorted(maps.Keys(s.desired)) {
		started, hasStarted := s.started[pod]
		late := !hasStarted || started.Sub(s.desired[pod]) > bound
		if strings.HasPrefix(pod, prefix) && late {
			return fmt.Sprintf("pod %s did not start within %v of its manifest, although nothing "+
				"that it needs went wrong", pod, bound)
		}
	}
	return ""
}
