package pod

import (
	"cmp"
	"errors"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"

	"seedlet.dev/core/budget"
	"seedlet.dev/core/timer"
	"seedlet.dev/world"
)

// The size of the objects that a pod refers to. It is known when they were read, and may change
// while the pod runs. Objects of too many bytes are dropped, the largest first, so the agent does
// not keep them. They are watched again from time to time, since only that shows whether they have
// become smaller.

// ObjectExcess is what follows from objects with more bytes than those of one pod may have.
type ObjectExcess struct {
	// Problem is set until all objects are known to be within the bound.
	Problem string `json:"problem,omitempty"`
	// Dropped are the objects of the spec that are not watched, until RetryAt.
	Dropped []world.WatchTarget `json:"dropped,omitempty"`
	Tries   int                 `json:"tries,omitempty"` // that ended with dropped objects
	RetryAt time.Time           `json:"retryAt"`
}

// The back-off until dropped objects are watched again. Each try reads all of them once.
const (
	excessBackoffFirst = time.Minute
	excessBackoffMax   = 30 * time.Minute
)

// divide returns the excess of a changed spec, without dropped objects that it no longer refers to,
// and the objects that are to be watched.
func (e ObjectExcess) divide(objects []world.WatchTarget) (ObjectExcess, []world.WatchTarget) {
	if len(e.Dropped) == 0 {
		return e, objects
	}
	isDropped := map[world.WatchTarget]bool{}
	for _, object := range e.Dropped {
		isDropped[object] = true
	}
	e.Dropped = nil
	var watched []world.WatchTarget
	for _, object := range objects {
		if isDropped[object] {
			e.Dropped = append(e.Dropped, object)
		} else {
			watched = append(watched, object)
		}
	}
	return e, watched
}

// checkObjectBytes keeps the objects that are watched for the pod within their bound.
func (p *Pod) checkObjectBytes(env *Env, w *wakeTimer) {
	if env.Objects == nil || !p.Watches.Complete || p.Watches.Problem != "" {
		return
	}
	excess := &p.Watches.Excess
	if len(excess.Dropped) > 0 && !w.waitUntil(excess.RetryAt) {
		p.watchDropped(env)
	}
	sum, areKnown := p.objectBytes(env)
	switch {
	case sum > budget.ReferenceBytesMax:
		p.dropObjects(sum, env)
	case areKnown && len(excess.Dropped) == 0:
		*excess = ObjectExcess{}
	}
	if len(excess.Dropped) > 0 {
		w.waitUntil(excess.RetryAt)
	}
}

// objectBytes returns the bytes of the objects that are watched for the pod and known, and whether
// all of them are known.
func (p *Pod) objectBytes(env *Env) (sum int, areKnown bool) {
	areKnown = true
	for _, object := range p.Watches.Objects {
		if w := env.Objects.Watch(object); w != nil && w.HasBytes() {
			sum += w.Bytes
			areKnown = areKnown && w.Listed
		}
	}
	return sum, areKnown
}

// dropObjects ends the watches of the largest objects, so that the others are within the bound.
func (p *Pod) dropObjects(sum int, env *Env) {
	excess := &p.Watches.Excess
	if excess.Problem == "" {
		err := budget.ReferenceBytes.Errorf("the ConfigMaps and Secrets that the pod refers to have %d "+
			"bytes or more, and those of one pod may have %d: the largest are not read", sum,
			budget.ReferenceBytesMax)
		excess.Problem = err.Error()
		p.recordEvent(env, "", warning, reasonBudget, "%s", excess.Problem)
		p.countRefusal(budget.NameOf(err), env)
	}
	if len(excess.Dropped) == 0 {
		excess.Tries++
		excess.RetryAt = env.Effects.Now().Add(timer.Backoff(excess.Tries, excessBackoffFirst,
			excessBackoffMax))
	}
	bytesOf := func(object world.WatchTarget) int { return env.Objects.Watch(object).Bytes }
	bySize := slices.Clone(p.Watches.Objects)
	slices.SortStableFunc(bySize, func(a, b world.WatchTarget) int {
		return cmp.Compare(bytesOf(b), bytesOf(a))
	})
	for _, object := range bySize {
		if sum <= budget.ReferenceBytesMax {
			break
		}
		sum -= bytesOf(object)
		env.Objects.DeleteReference(object, p.UID, env.Effects)
		excess.Dropped = append(excess.Dropped, object)
	}
	_, p.Watches.Objects = excess.divide(p.Watches.Objects)
	p.planSharedVolumes(env)
}

// watchDropped watches the dropped objects again, if the node has as many watches left.
func (p *Pod) watchDropped(env *Env) {
	excess := &p.Watches.Excess
	all := slices.Concat(p.Watches.Objects, excess.Dropped)
	if checkWatchesLeft(all, len(all)-1, env) != nil {
		excess.RetryAt = env.Effects.Now().Add(watchRetryPeriod)
		return
	}
	for _, object := range excess.Dropped {
		p.watch(object, env)
	}
	p.Watches.Objects, excess.Dropped = all, nil
	p.planSharedVolumes(env)
}

// lacksDroppedObject reports whether a container takes variables from an object that was dropped,
// and records that as its problem.
func (p *Pod) lacksDroppedObject(container *v1.Container, env *Env) bool {
	lacks := false
	if len(p.Watches.Excess.Dropped) > 0 {
		envReferences(container, func(r world.Resource, name string) {
			object := world.WatchTarget{Resource: r, Namespace: p.Namespace, Name: name}
			lacks = lacks || isWatchPending(env, object) &&
				slices.Contains(p.Watches.Excess.Dropped, object)
		})
	}
	return lacks && p.recordConfigError(container, errors.New(p.Watches.Excess.Problem), env)
}
