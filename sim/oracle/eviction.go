package oracle

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"

	"seedlet.dev/core/volume"
	"seedlet.dev/sim/truth"
)

// eviction fires when a pod is ended because a volume has become too large that never was, and when
// one goes on whose volume has been too large for long. That nothing undoes it is for the oracle
// terminal.
type eviction struct{}

func (*eviction) entry() Entry {
	return Entry{"eviction", "A pod is evicted if an emptyDir of it stays above its limit, and " +
		"not if none ever was; it says which. One in memory never holds more than its limit."}
}

const (
	reasonEvicted = "Evicted"
	// evictedWithin is how long a volume may be too large until its pod has ended: two rounds of
	// measuring, and the time that the end takes.
	evictedWithin = 150 * time.Second
	evictionGrace = time.Second
	priorityMin   = 2_000_000_000 // of what is critical, and not evicted
	// memorySlack is what directories take, which do not count for a file system in memory.
	memorySlack = 64 << 10
)

// measuring are the calls on the way from a volume that is too large to the end of its pod.
var measuring = []string{"MeasureTree", "StatPath", "MakeDir", "MountMemory", "WriteDir",
	"BindSubPath", "ShareWithGroup", "WriteFile", "ReadFiles", "ListContainers", "ListPodSandbox",
	"ContainerStatus", "PodSandboxStatus", "CreateContainer", "StartContainer", "StopContainer",
	"SetCgroup"}

func (*eviction) answer(w *world, now time.Time, pods []*v1.Pod) *finding {
	for _, shown := range pods {
		p := w.pods[string(shown.UID)]
		if p == nil || len(p.specs) == 0 || shown.Status.Reason != reasonEvicted {
			continue
		}
		switch over := p.everOver(); {
		case len(over) == 0:
			return says("pod %s is shown as evicted, but no volume of it was ever above its limit",
				p)
		case p.critical() && !p.respecified:
			return says("pod %s is shown as evicted, but is critical", p)
		case !slices.ContainsFunc(over, func(name string) bool {
			return strings.Contains(shown.Status.Message, strconv.Quote(name))
		}):
			return says("pod %s is shown as evicted with %q, but what was above its limit is %v",
				p, shown.Status.Message, over)
		}
	}
	for _, p := range w.order {
		if what := p.uncontained(now); what != "" {
			return says("pod %s: %s", p, what)
		}
	}
	return nil
}

// uncontained says what a volume of a pod should have been kept from.
func (p *pod) uncontained(now time.Time) string {
	w, over := p.world, p.overSince()
	from := later(over, w.started)
	switch {
	case p.overflow != "":
		return p.overflow
	case over.IsZero() || !p.evictable() || p.live == 0 || p.ended() || w.dead:
	case now.Sub(from) <= evictedWithin || w.struckAny(from, now, measuring...):
	default:
		return fmt.Sprintf("%v has been above its limit for %v, and %s runs", p.everOver(),
			now.Sub(over).Round(time.Second), p.anyLive())
	}
	return ""
}

// filling is how full a volume is that has a limit.
type filling struct {
	name  string
	since time.Time // since when it has been above its limit; zero: it is not
	last  time.Time // when it was last above it; zero: never
}

// measured takes that something has changed on the disk.
func (w *world) measured(f *truth.Fact) {
	switch f.Kind {
	case truth.PathMade, truth.PathWritten, truth.PathRemoved, truth.FileSized, truth.Mounted,
		truth.Unmounted:
		if uid, below := childOf(w.opts.PodsDir, f.Path); below && w.pods[uid] != nil {
			w.pods[uid].measure(f.Time)
		}
	case truth.PowerLost:
		for _, p := range w.order {
			p.measure(f.Time)
		}
	}
}

// measure looks how full the volumes of a pod are that have, or had, a limit.
func (p *pod) measure(now time.Time) {
	dir := p.world.opts.PodsDir + "/" + p.uid
	for _, spec := range p.specs {
		for i := range spec.Spec.Volumes {
			v := &spec.Spec.Volumes[i]
			if v.EmptyDir == nil || v.EmptyDir.SizeLimit == nil || p.world.opts.Usage == nil {
				continue
			}
			limit, bytes := v.EmptyDir.SizeLimit.Value(), p.world.opts.Usage(volume.Path(dir, v))
			switch v.EmptyDir.Medium {
			case v1.StorageMediumDefault:
				p.fill(now, v.Name, bytes > limit)
			case v1.StorageMediumMemory:
				if bytes > limit+memorySlack {
					p.overflow = fmt.Sprintf("volume %s holds %d bytes in memory, its limit is %d",
						v.Name, bytes, limit)
				}
			}
		}
	}
}

func (p *pod) fill(now time.Time, name string, over bool) {
	i := slices.IndexFunc(p.fillings, func(f filling) bool { return f.name == name })
	if i < 0 {
		i = len(p.fillings)
		p.fillings = append(p.fillings, filling{name: name})
	}
	f := &p.fillings[i]
	if over || !f.since.IsZero() {
		f.last = now
	}
	switch {
	case !over:
		f.since = time.Time{}
	case f.since.IsZero():
		f.since = now
		p.graceLeast = min(p.graceLeast, evictionGrace)
	}
}

// everOver are the volumes that were above their limits at some time.
func (p *pod) everOver() []string {
	var names []string
	for _, f := range p.fillings {
		if !f.last.IsZero() {
			names = append(names, f.name)
		}
	}
	return names
}

// overSince is since when some volume has been above its limit; zero if none is.
func (p *pod) overSince() time.Time {
	var since time.Time
	for _, f := range p.fillings {
		if !f.since.IsZero() && (since.IsZero() || f.since.Before(since)) {
			since = f.since
		}
	}
	return since
}

// evictable says whether a pod has one spec, by which it is to be evicted if it is too large.
func (p *pod) evictable() bool {
	return p.spec != nil && !p.respecified && !p.loose() && !p.critical()
}

// critical says whether the pod is static, or the newest spec has a priority of the system's.
func (p *pod) critical() bool { return p.static || p.priority() >= priorityMin }

// maybeEvicted says whether a pod may have been evicted, or may be at any moment. One that nobody
// has called so long after all has come right has not been.
func (p *pod) maybeEvicted(now time.Time) bool {
	var last time.Time
	for _, f := range p.fillings {
		if last = later(last, f.last); !f.since.IsZero() {
			last = now
		}
	}
	w := p.world
	if last.IsZero() || len(p.specs) == 1 && p.critical() {
		return false
	}
	return w.healed.IsZero() || p.terminal != "" || !p.evictable() ||
		now.Sub(later(later(last, w.healed), w.started)) <= evictedWithin
}

// toBeEvicted says whether a volume is above its limit now. Unless it becomes smaller, the pod has
// to end, and its volumes go then.
func (p *pod) toBeEvicted() bool {
	return !p.overSince().IsZero() && p.evictable() && !p.ended()
}

// surelyEvicted says whether a volume has been above its limit for so long, with nothing going
// wrong, that nothing of the pod may run any more.
func (p *pod) surelyEvicted(now time.Time) bool {
	w, over := p.world, p.overSince()
	return !over.IsZero() && !w.healed.IsZero() && p.evictable() &&
		now.Sub(later(later(over, w.healed), w.started)) > evictedWithin
}

// maybeKilled says whether the agent may have a reason of the pod's own to end it for good.
func (p *pod) maybeKilled(now time.Time) bool {
	return p.maybeLate(now) || p.maybeEvicted(now) || p.maybePreempted(now) || p.called != ""
}

// surelyKilled says whether it must have ended it by now.
func (p *pod) surelyKilled(now time.Time) bool {
	return p.surelyLate(now) || p.surelyEvicted(now) || p.preempted || p.called != ""
}

// misexplained says what is wrong with the reason that is shown of a pod's end.
func (p *pod) misexplained(now time.Time, shown *v1.Pod) string {
	switch reason := shown.Status.Reason; {
	case p.called != "": // whoever has ended it has given a reason, or none
	case p.ended() || p.maybeLate(now) && p.maybeEvicted(now):
	case p.surelyLate(now) && reason != reasonDeadline:
		return fmt.Sprintf("its active deadline has passed, but the reason that is shown is %q",
			reason)
	case p.surelyEvicted(now) && reason != reasonEvicted:
		return fmt.Sprintf("%v is above its limit, but the reason that is shown is %q",
			p.everOver(), reason)
	}
	return ""
}
