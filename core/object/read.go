package object

import (
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

// ConfigMaps and Secrets that are read now and then instead of watched, if the configuration says
// so. Each is followed by one record, however many pods refer to it, and is read when a user comes,
// and again when what is known has become too old. While it cannot be read, what is known stays.

// Component is the component part of the keys of objects that are read.
const Component = "object"

// Strategy is how ConfigMaps and Secrets are followed. Zero: they are watched.
type Strategy struct {
	// Every is the period in which pods are seen to: what is read is used for as long.
	Every time.Duration `json:"every,omitempty"`
	// Cached is that it may be older, if the Node says so: TTL.
	Cached bool          `json:"cached,omitempty"`
	TTL    time.Duration `json:"ttl,omitempty"`
}

// ttlDefault is how old a cached object may become where the Node does not say.
const ttlDefault = time.Minute

// StrategyOf is the strategy of a configuration with defaults.
func StrategyOf(c *kubeletconfig.KubeletConfiguration) Strategy {
	every := c.SyncFrequency.Duration
	switch c.ConfigMapAndSecretChangeDetectionStrategy {
	case kubeletconfig.GetChangeDetectionStrategy:
		return Strategy{Every: every}
	case kubeletconfig.TTLCacheChangeDetectionStrategy:
		return Strategy{Every: every, Cached: true, TTL: ttlDefault}
	}
	return Strategy{}
}

// Within is how long after a change an object is read again, if nothing goes wrong.
func (s Strategy) Within() time.Duration {
	if s.Cached {
		return max(s.Every, s.TTL)
	}
	return s.Every
}

// Heed takes what a Node says of how old objects may become, nil if there is none, and reports
// whether that is news.
func (s *Strategy) Heed(node *v1.Node) bool {
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

// Read is how far the reading of one object is.
type Read struct {
	Op        world.OpID `json:"op,omitempty"` // in flight
	Since     time.Time  `json:"since"`        // what is known has to be as new as this
	AsOf      time.Time  `json:"asOf"`         // when the newest answer was asked for
	Failures  int        `json:"failures,omitempty"`
	NotBefore time.Time  `json:"notBefore"`
}

const (
	readTimeout      = time.Minute
	readFailureFirst = time.Second
	readFailureMax   = 30 * time.Second // the bound to which the wait after a failure doubles
)

// Reads says whether something is read instead of watched, and by which key.
func (s *Store) Reads(about world.Watched) (timer.Key, bool) {
	of := about.Resource == world.ResourceConfigMaps || about.Resource == world.ResourceSecrets
	return timer.Key{Component: Component, Name: Key(about)}, of && s.Strategy != Strategy{}
}

// ReadKeys are the keys of all that is read.
func (s *Store) ReadKeys() []timer.Key {
	var keys []timer.Key
	for _, key := range slices.Sorted(maps.Keys(s.Watches)) {
		if s.Watches[key].Read != nil {
			keys = append(keys, timer.Key{Component: Component, Name: key})
		}
	}
	return keys
}

// Plan reads an object if it has to be, and says when to be called again.
func (s *Store) Plan(key timer.Key, out *op.Out) time.Time {
	w := s.Watches[key.Name]
	if w == nil || w.Read == nil || w.Read.Op != 0 {
		return time.Time{}
	}
	due := w.due(s.Strategy.Within())
	if due.IsZero() || out.Now().Before(due) {
		return due
	}
	w.Read.Op = out.Ask(key, "", readTimeout, &world.GetObject{Resource: w.About.Resource,
		Namespace: w.About.Namespace, Name: w.About.Name})
	return time.Time{}
}

// Demand has an object that is read at each sync be as new as a time, and reports whether it is
// being read for that. What cannot be read is not waited for.
func (s *Store) Demand(about world.Watched, since time.Time) (reading bool) {
	w := s.Watch(about)
	if w == nil || w.Read == nil || s.Strategy.Cached || w.immutable() {
		return false
	}
	r := w.Read
	r.Since = timer.Later(r.Since, since)
	return r.AsOf.Before(since) && !(r.Failures > 0 && r.NotBefore.After(since))
}

// due is when an object is to be read; zero: not any more.
func (w *Watch) due(within time.Duration) time.Time {
	r := w.Read
	switch {
	case r.AsOf.Before(r.Since):
		return timer.Later(r.Since, r.NotBefore)
	case w.immutable():
		return time.Time{}
	case r.Failures > 0 && len(w.Objects) == 0:
		return r.NotBefore // somebody may be waiting for it to be made
	}
	return timer.Later(r.AsOf.Add(within), r.NotBefore)
}

// immutable says whether the object can never become another one. One of its name can.
func (w *Watch) immutable() bool {
	for _, o := range w.Objects { //ordered: there is one at most
		is := (*bool)(nil)
		switch {
		case o.ConfigMap != nil:
			is = o.ConfigMap.Immutable
		case o.Secret != nil:
			is = o.Secret.Immutable
		}
		return is != nil && *is
	}
	return false
}

// Answered takes the answer to a read. It returns what it was about, nil if nobody wants it any
// more, and whether its users should hear of it.
func (s *Store) Answered(id world.OpID, r op.Record, ev world.Event) (*Watch, bool) {
	w := s.Watches[r.Owner.Name]
	if w == nil || w.Read == nil || w.Read.Op != id {
		s.Stray++
		return nil, false
	}
	w.Read.Op = 0
	awaited := !w.Listed || w.Read.AsOf.Before(w.Read.Since)
	failing := w.Failing != nil
	var is []world.Object
	if read, ok := ev.Body.(*world.ObjectRead); ev.Err == nil {
		if !ok || Key(aboutOf(&read.Object)) != Key(w.About) {
			ev.Err = world.Errorf(world.KindInternal, r.Call, "the answer is another object")
		} else {
			is = append(is, read.Object)
		}
	}
	absent := ev.Err.Has(world.KindNotFound)
	if ev.Err != nil {
		w.Read.failed(ev)
		if !absent {
			w.Failing = ev.Err
			if !failing {
				w.Since = ev.Time
			}
			return w, awaited && !failing
		}
	} else {
		w.Read.Failures, w.Read.NotBefore = 0, time.Time{}
	}
	w.Read.AsOf = r.Began
	news := w.listed(is)
	return w, awaited || len(news) > 0
}

func (r *Read) failed(ev world.Event) {
	r.Failures++
	r.NotBefore = ev.Time.Add(max(ev.Err.RetryAfter,
		timer.Backoff(r.Failures, readFailureFirst, readFailureMax)))
}

func aboutOf(o *world.Object) world.Watched {
	r, meta := o.Get()
	if meta == nil {
		return world.Watched{}
	}
	return world.Watched{Resource: r, Namespace: meta.GetNamespace(), Name: meta.GetName()}
}
