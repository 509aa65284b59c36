package oracle

import (
	"fmt"
	"time"

	v1 "k8s.io/api/core/v1"

	"seedlet.dev/core/volume"
	api "seedlet.dev/world"
)

// contentLate fires when a change of an object does not arrive in the volumes of a pod that runs,
// although nothing went wrong: what is watched soon, what is read once it may be too old.
type contentLate struct {
	good map[string]time.Time // by volume: up to which change it is known to have all
}

func (*contentLate) entry() Entry {
	return Entry{"content-late", "A change of an object of the API server is in the volumes of the " +
		"pods that run within a bound, when nothing goes wrong."}
}

// Bounds: of a volume that is written after news of it, and of a watch that has begun again.
const (
	arrivesWithin = 3 * time.Minute
	ttlMost       = 150 * time.Second // that actors write into the Node
)

// bundlesName is what stands for all trust bundles in the times of changes.
var bundlesName = string(api.ResourceTrustBundles)

// arriving are the calls that a change needs to arrive in a volume.
var arriving = []string{"WatchObjects", "ObjectChanged", "GetObject", "CreateToken", "MakeDir",
	"MountMemory", "WriteDir", "ListPodSandbox", "ListContainers"}

func (o *contentLate) answer(w *world, now time.Time, _ []*v1.Pod) *finding {
	if w.opts.Read == nil || w.dead {
		return nil
	}
	within := arrivesWithin
	if s := w.opts.Follows; s.Every > 0 {
		s.TTL = max(s.TTL, ttlMost)
		within += s.Within()
	}
	for _, p := range w.order {
		if p.spec == nil || p.live == 0 || p.spec.DeletionTimestamp != nil {
			continue
		}
		for i := range p.spec.Spec.Volumes {
			if what := o.judge(w, p, &p.spec.Spec.Volumes[i], now, within); what != nil {
				return what
			}
		}
	}
	return nil
}

// judge judges one volume. It is written when all of it is there.
func (o *contentLate) judge(w *world, p *pod, v *v1.Volume, now time.Time,
	within time.Duration) *finding {
	all, _ := sourcesOf(v, p.spec.Namespace)
	path := volume.Path(w.opts.PodsDir+"/"+p.uid, v)
	since := time.Time{}
	for k := range all {
		states := w.sources.of(&all[k])
		if len(states) == 0 || states[len(states)-1] == nil && !all[k].optional {
			return nil
		}
		since = later(since, w.sources.changedAt(&all[k]))
	}
	if len(all) == 0 || o.good[path].Equal(since) {
		return nil
	}
	from := later(later(since, p.wishedAt), later(w.started, p.startedFirst))
	healed := !w.healed.IsZero() && now.Sub(later(from, w.healed)) > within
	if !healed && (now.Sub(from) <= within || w.struckAny(from.Add(-reconnects), now, arriving...)) {
		return nil
	}
	for k := range all {
		states := w.sources.of(&all[k])
		if !w.matches(path, &all[k], states[len(states)-1]) {
			return &finding{message: fmt.Sprintf("%s does not hold the newest version of %s, "+
				"which is %v old, and %s runs", path, all[k].object,
				now.Sub(since).Round(time.Second), p.anyLive())}
		}
	}
	if o.good == nil {
		o.good = map[string]time.Time{}
	}
	o.good[path] = since
	return nil
}

// reconnects is how long before a change a fault may have begun what delays it.
const reconnects = time.Minute

// changedAt is when a source changed last.
func (o *sources) changedAt(s *source) time.Time {
	if s.bundle != nil {
		return o.changed[bundlesName]
	}
	return o.changed[s.object]
}
