package objectcache

import (
	"cmp"
	"maps"
	"slices"
	"strconv"
	"time"

	v1 "k8s.io/api/core/v1"
	kubeletconfig "k8s.io/kubelet/config/v1beta1"

	"seedlet.dev/core/op"
	"seedlet.dev/core/timer"
	"seedlet.dev/world"
)

// With the change detection strategies Get and Cache, ConfigMaps and Secrets are read instead of
// watched. Claims, volumes and attachments are always read: a node is authorized to read those that
// are related to its pods, and to watch none (the node authorizer). Each object has one record,
// however many pods refer to it. It is read for a new user, and again when the known version is too
// old. While reads fail, the known version stays.

// Component is the component of the keys of objects that are read.
const Component = "object"

// Strategy is how changes of ConfigMaps and Secrets are detected. The zero value: by watches.
type Strategy struct {
	// SyncPeriod is the period of pod syncs. A version is used for that long after it was read.
	SyncPeriod time.Duration `json:"syncPeriod,omitempty"`
	// Cached is set for the strategy Cache: a version is used for TTL, if that is longer than
	// SyncPeriod. An annotation of the Node can set TTL.
	Cached bool          `json:"cached,omitempty"`
	TTL    time.Duration `json:"ttl,omitempty"`
}

// ttlDefault is the TTL without an annotation of the Node.
const ttlDefault = time.Minute

// StrategyFromConfig returns the strategy of a configuration with defaults.
func StrategyFromConfig(c *kubeletconfig.KubeletConfiguration) Strategy {
	syncPeriod := c.SyncFrequency.Duration
	switch c.ConfigMapAndSecretChangeDetectionStrategy {
	case kubeletconfig.GetChangeDetectionStrategy:
		return Strategy{SyncPeriod: syncPeriod}
	case kubeletconfig.TTLCacheChangeDetectionStrategy:
		return Strategy{SyncPeriod: syncPeriod, Cached: true, TTL: ttlDefault}
	}
	return Strategy{}
}

// AgeMax returns how long after a change an object is read again, if no read fails.
func (s Strategy) AgeMax() time.Duration {
	if s.Cached {
		return max(s.SyncPeriod, s.TTL)
	}
	return s.SyncPeriod
}

// ObserveNode applies the TTL annotation of a Node, nil without one, and reports whether the TTL
// has changed.
func (s *Strategy) ObserveNode(node *v1.Node) bool {
	ttl := ttlDefault
	if node != nil {
		n, err := strconv.Atoi(node.Annotations[v1.ObjectTTLAnnotationKey])
		if err == nil && n >= 0 {
			ttl = time.Duration(n) * time.Second
		}
	}
	if !s.Cached || s.TTL == ttl {
		return false
	}
	s.TTL = ttl
	return true
}

// ReadState is the state of the reads of one object.
type ReadState struct {
	Op          world.OpID `json:"op,omitempty"` // the read in flight
	NeededSince time.Time  `json:"neededSince"`  // the known version must be as new as this
	AsOf        time.Time  `json:"asOf"`         // when the newest completed read was issued
	// Failures is the number of consecutive reads that failed, or found an object that its users
	// cannot use yet.
	Failures  int       `json:"failures,omitempty"`
	NotBefore time.Time `json:"notBefore"`
	// UnusableTo are the users that cannot use the object as it is, sorted.
	UnusableTo []string `json:"unusableTo,omitempty"`
}

const (
	readTimeout      = time.Minute
	readBackoffFirst = time.Second
	readBackoffMax   = 30 * time.Second // the limit of the doubling back-off
	// unusableBackoffFirst is the first back-off of an object that exists and that a pod cannot use. A
	// kubelet reads it ten times a second.
	unusableBackoffFirst = 250 * time.Millisecond
	// syncPeriodDefault is the default of the setting syncFrequency, and syncPeriodMin bounds it.
	syncPeriodDefault = time.Minute
	syncPeriodMin     = time.Second
)

// StoragePeriod returns the period of what a kubelet does in each sync of a pod that has volumes:
// the age at which a claim, a volume or an attachment that is in use is read again, since it
// changes when a volume is expanded.
func (s *Store) StoragePeriod() time.Duration {
	return max(syncPeriodMin, cmp.Or(s.SyncPeriod, syncPeriodDefault))
}

// isStorage reports whether a resource is one of storage that a node can only read.
func isStorage(r world.Resource) bool {
	return r == world.ResourceClaims || r == world.ResourceVolumes || r == world.ResourceAttachments
}

// ReadKey returns the key of a target, and reports whether the target is read instead of watched.
func (s *Store) ReadKey(target world.WatchTarget) (timer.Key, bool) {
	readable := target.Resource == world.ResourceConfigMaps || target.Resource == world.ResourceSecrets
	return timer.Key{Component: Component, Name: Key(target)},
		isStorage(target.Resource) || readable && s.Strategy != Strategy{}
}

// ageMax returns the age at which an object is read again.
func (s *Store) ageMax(w *Watch) time.Duration {
	if isStorage(w.Target.Resource) {
		return s.StoragePeriod()
	}
	return s.Strategy.AgeMax()
}

// ReadKeys returns the sorted keys of all targets that are read.
func (s *Store) ReadKeys() []timer.Key {
	var keys []timer.Key
	for _, key := range slices.Sorted(maps.Keys(s.Watches)) {
		if s.Watches[key].Read != nil {
			keys = append(keys, timer.Key{Component: Component, Name: key})
		}
	}
	return keys
}

// Plan reads an object if due, and returns when to plan again.
func (s *Store) Plan(key timer.Key, effects *op.Effects) time.Time {
	w := s.Watches[key.Name]
	if w == nil || w.Read == nil || w.Read.Op != 0 {
		return time.Time{}
	}
	due := w.nextReadAt(s.ageMax(w))
	if due.IsZero() || effects.Now().Before(due) {
		return due
	}
	// Several pods share an object, all of the namespace that the object is in. An object without a
	// namespace, such as the volume of a claim, is read for one of its users.
	tenant := "namespace/" + w.Target.Namespace
	if w.Target.Namespace == "" && len(w.Users) > 0 {
		tenant = w.Users[0]
	}
	w.Read.Op = effects.IssueFor(tenant, key, "", readTimeout,
		&world.GetObject{Resource: w.Target.Resource, Namespace: w.Target.Namespace,
			Name: w.Target.Name})
	return time.Time{}
}

// RequireSince requires the version of an object to be as new as a time, with the strategy Get, and
// reports whether the caller has to wait for a read. The caller does not wait for an object that
// cannot be read.
func (s *Store) RequireSince(target world.WatchTarget, since time.Time) (reading bool) {
	w := s.Watch(target)
	if w == nil || w.Read == nil || s.Strategy.Cached || w.isImmutable() ||
		isStorage(target.Resource) {
		return false
	}
	r := w.Read
	r.NeededSince = timer.Later(r.NeededSince, since)
	return r.AsOf.Before(since) && !(r.Failures > 0 && r.NotBefore.After(since))
}

// nextReadAt returns when to read an object; zero: never again.
func (w *Watch) nextReadAt(ageMax time.Duration) time.Time {
	r := w.Read
	switch {
	case r.AsOf.Before(r.NeededSince):
		return timer.Later(r.NeededSince, r.NotBefore)
	case w.isImmutable():
		return time.Time{}
	case r.Failures > 0 && !w.isUsable():
		return r.NotBefore // a pod may wait for the object to be created, or for a claim to be bound
	}
	return timer.Later(r.AsOf.Add(ageMax), r.NotBefore)
}

// SetUsable records whether a user can use an object of storage as it is. One that is bound may be
// another pod's, for example. While a user waits for another state, the object is read again with a
// back-off, which a changed object does not reset: a tenant changes it as often as he likes.
// SetUsable reports whether to plan the next read.
func (s *Store) SetUsable(target world.WatchTarget, user string, usable bool, now time.Time) bool {
	w := s.Watch(target)
	if w == nil || w.Read == nil {
		return false
	}
	r := w.Read
	i, waits := slices.BinarySearch(r.UnusableTo, user)
	switch {
	case usable && waits:
		// An object that has gone, or is bound no more, is not usable either: the back-off of its
		// reads goes on.
		if r.UnusableTo = slices.Delete(r.UnusableTo, i, i+1); w.isUsable() {
			r.Failures, r.NotBefore = 0, time.Time{}
		}
	case !usable && !waits && len(w.Objects) > 0: // one that does not exist is read again anyway
		r.UnusableTo = slices.Insert(r.UnusableTo, i, user)
		if len(r.UnusableTo) == 1 {
			r.Failures = max(r.Failures, 1)
			r.NotBefore = timer.Later(r.NotBefore, now.Add(unusableBackoffFirst))
			return true
		}
	}
	return false
}

// isUsable reports whether the object exists, no user waits for another state of it and, if it is
// one of storage, it is bound or attached.
func (w *Watch) isUsable() bool {
	for _, o := range w.Objects { //ordered: there is one at most
		switch {
		case w.Read != nil && len(w.Read.UnusableTo) > 0:
			return false
		case o.Claim != nil:
			return o.Claim.Status.Phase == v1.ClaimBound && o.Claim.Spec.VolumeName != ""
		case o.Volume != nil:
			return o.Volume.Spec.ClaimRef != nil
		case o.Attachment != nil:
			return o.Attachment.Status.Attached
		}
		return true
	}
	return false
}

// isImmutable reports whether an object can never change. Another object with its name may exist
// later.
func (w *Watch) isImmutable() bool {
	for _, o := range w.Objects { //ordered: there is one at most
		immutable := (*bool)(nil)
		switch {
		case o.ConfigMap != nil:
			immutable = o.ConfigMap.Immutable
		case o.Secret != nil:
			immutable = o.Secret.Immutable
		}
		return immutable != nil && *immutable
	}
	return false
}

// HandleCompletion applies the completion of a read. It returns the target's state, nil if the
// target has no user any more, and whether to plan its users.
func (s *Store) HandleCompletion(id world.OpID, r op.Record, ev world.Event) (*Watch, bool) {
	w := s.Watches[r.Owner.Name]
	if w == nil || w.Read == nil || w.Read.Op != id {
		s.Dropped++
		return nil, false
	}
	w.Read.Op = 0
	awaited := !w.Listed || w.Read.AsOf.Before(w.Read.NeededSince)
	wasFailing := w.Failing != nil
	var objects []world.Object
	if read, ok := ev.Body.(*world.ObjectRead); ev.Err == nil {
		if !ok || Key(targetOf(&read.Object)) != Key(w.Target) {
			ev.Err = world.Errorf(world.KindInternal, r.Call, "the answer is another object")
		} else {
			objects = append(objects, read.Object)
		}
	}
	absent := ev.Err.Has(world.KindNotFound)
	if ev.Err != nil {
		w.Read.recordFailure(ev)
		if !absent {
			if isStorage(w.Target.Resource) && w.Listed && w.isUsable() { // no pod waits for it
				w.Read.NotBefore = timer.Later(w.Read.NotBefore, ev.Time.Add(s.StoragePeriod()))
			}
			w.Failing = ev.Err
			w.changes++
			if !wasFailing {
				w.FailingSince = ev.Time
			}
			return w, awaited // one that waits for this read goes on with what is known
		}
	}
	w.Read.AsOf = r.IssuedAt
	changed := w.replaceObjects(objects)
	switch {
	case ev.Err != nil:
	case w.isUsable():
		w.Read.Failures, w.Read.NotBefore = 0, time.Time{}
	default:
		w.Read.recordFailure(ev)
	}
	return w, awaited || len(changed) > 0
}

// recordFailure counts a read that found no object that can be used, and sets the back-off.
func (r *ReadState) recordFailure(ev world.Event) {
	r.Failures++
	first := readBackoffFirst
	if len(r.UnusableTo) > 0 {
		first = unusableBackoffFirst
	}
	r.NotBefore = ev.Time.Add(timer.Backoff(r.Failures, first, readBackoffMax))
	if ev.Err != nil {
		r.NotBefore = timer.Later(r.NotBefore, ev.Time.Add(ev.Err.RetryAfter))
	}
}

func targetOf(o *world.Object) world.WatchTarget {
	r, meta := o.Meta()
	if meta == nil {
		return world.WatchTarget{}
	}
	return world.WatchTarget{Resource: r, Namespace: meta.GetNamespace(), Name: meta.GetName()}
}
