// Package objectcache holds the API server's objects that the agent watches or reads, as the
// kubelet's ConfigMap and Secret managers and its informers do.
//
// Facts: every watch, its users, and the objects that it has reported. Plan: only for the
// ConfigMaps and Secrets that are read instead of watched (read.go); a watch starts with its first
// user and ends with its last. Events: lists, changes and deletions of a watch, and completed
// reads. Server and port deliver the events of a watch in order, so the last one is the newest.
// Before the first list of a watch the absence of an object is unknown. Start reading at Store.
package objectcache

import (
	"slices"
	"time"

	"seedlet.dev/core/budget"
	"seedlet.dev/world"
)

// Store holds all watches. The zero value is ready.
type Store struct {
	LastID  world.WatchID            `json:"lastID"`            // the newest ID of a watch
	Watches map[string]*Watch        `json:"watches,omitempty"` // by Key of their targets
	Keys    map[world.WatchID]string `json:"keys,omitempty"`
	// Dropped counts the events and completions for watches that have ended.
	Dropped uint64 `json:"dropped"`

	Strategy Strategy `json:"strategy"` // for ConfigMaps and Secrets
	// SyncPeriod is the setting syncFrequency; zero: its default.
	SyncPeriod time.Duration `json:"syncPeriod,omitempty"`
}

// Watch is the state of some objects that are watched, or of one that is read.
type Watch struct {
	ID     world.WatchID     `json:"id"`
	Target world.WatchTarget `json:"target"`
	Users  []string          `json:"users"`  // sorted
	Listed bool              `json:"listed"` // the first list is complete
	// Objects are the existing objects, by namespace/name. Bytes is what they count in
	// budget.ReferenceBytes, if they are ConfigMaps or Secrets.
	Objects map[string]world.Object `json:"objects,omitempty"`
	Bytes   int                     `json:"bytes,omitempty"`
	// Awaited are the users that await an object, by namespace/name. It matters to a watch that keeps
	// no others (awaited.go).
	Awaited map[string]string `json:"awaited,omitempty"`
	// Failing is why the objects cannot be observed, nil if they can. FailingSince is when that began.
	Failing      *world.Error `json:"failing,omitempty"`
	FailingSince time.Time    `json:"failingSince"`
	// Read is the state of the reads of an object that is not watched: such an object has no ID.
	Read *ReadState `json:"read,omitempty"`

	memo    memo   // the last result of Memoize; empty after a change of the objects
	changes uint64 // see Changes
}

type memo struct {
	key   string
	value any
}

// Effects takes the requests to watch.
type Effects interface {
	Emit(body any)
	Now() time.Time
}

// Key returns the key of a target: "configmaps/NAMESPACE/NAME", or "pods//" for all pods.
func Key(target world.WatchTarget) string {
	return string(target.Resource) + "/" + target.Namespace + "/" + target.Name
}

// AddReference adds a user of a target, and starts to watch or read the target for the first user.
// Adding a user twice has no effect. AddReference returns false if there are too many watches.
func (s *Store) AddReference(target world.WatchTarget, user string, effects Effects) bool {
	key := Key(target)
	w := s.Watches[key]
	if w == nil {
		if len(s.Watches) >= budget.WatchesMax {
			return false
		}
		if s.Watches == nil {
			s.Watches = map[string]*Watch{}
		}
		w = s.start(target, effects)
		s.Watches[key] = w
	}
	if i, found := slices.BinarySearch(w.Users, user); !found {
		w.Users = slices.Insert(w.Users, i, user)
		if w.Read != nil {
			w.Read.NeededSince = effects.Now()
		}
	}
	return true
}

// HasUser reports whether a target is watched or read for a user.
func (s *Store) HasUser(target world.WatchTarget, user string) bool {
	w := s.Watches[Key(target)]
	if w == nil {
		return false
	}
	_, found := slices.BinarySearch(w.Users, user)
	return found
}

// HasRoom reports whether all these targets can have a user, so that no more than a number of
// targets is watched. A user that needs several adds them all or none: users that hold a part each
// would wait for each other.
func (s *Store) HasRoom(targets []world.WatchTarget, watchesMax int) bool {
	added := 0
	for _, target := range targets {
		if s.Watches[Key(target)] == nil {
			added++
		}
	}
	return added == 0 || len(s.Watches)+added <= watchesMax
}

// start starts a watch, unless the target is read.
func (s *Store) start(target world.WatchTarget, effects Effects) *Watch {
	if _, isRead := s.ReadKey(target); isRead {
		return &Watch{Target: target, Read: &ReadState{}}
	}
	if s.Keys == nil { // the first watch
		s.Keys = map[world.WatchID]string{}
	}
	s.LastID++
	s.Keys[s.LastID] = Key(target)
	effects.Emit(&world.WatchObjects{Watch: s.LastID, WatchTarget: target})
	return &Watch{ID: s.LastID, Target: target}
}

// DeleteReference removes a user of a target. Without users the watch ends.
func (s *Store) DeleteReference(target world.WatchTarget, user string, effects Effects) {
	key := Key(target)
	w := s.Watches[key]
	if w == nil {
		return
	}
	if i, found := slices.BinarySearch(w.Users, user); found {
		w.Users = slices.Delete(w.Users, i, i+1)
		w.releaseAll(user)
		s.SetUsable(target, user, true, time.Time{})
	}
	if len(w.Users) == 0 {
		delete(s.Watches, key)
		if w.Read == nil {
			delete(s.Keys, w.ID)
			effects.Emit(&world.UnwatchObjects{Watch: w.ID})
		}
	}
}

// Watch returns the state of a target; nil if it has no user.
func (s *Store) Watch(target world.WatchTarget) *Watch { return s.Watches[Key(target)] }

// Get returns the object of a target with a single object. The object is known after the first
// list; known and nil means that the object does not exist.
func (s *Store) Get(r world.Resource, namespace, name string) (o *world.Object, known bool) {
	w := s.Watch(world.WatchTarget{Resource: r, Namespace: namespace, Name: name})
	if w == nil || !w.Listed {
		return nil, false
	}
	if found, exists := w.Objects[namespace+"/"+name]; exists {
		return &found, true
	}
	return nil, true
}

// HandleWatchEvent applies an event of a watch. It returns the watch, nil if the watch has ended or
// the body is no event of a watch, and the sorted names (namespace/name) of the objects that
// changed. The first list is a change even if it is empty.
func (s *Store) HandleWatchEvent(body any, now time.Time) (*Watch, []string) {
	switch body := body.(type) {
	case *world.ObjectsListed:
		if w := s.byID(body.Watch); w != nil {
			return w, w.replaceObjects(body.Objects)
		}
	case *world.ObjectChanged:
		if w := s.byID(body.Watch); w != nil {
			name := fullName(&body.Object)
			if !w.keeps(name) {
				return w, nil
			}
			w.setObject(name, body.Object)
			return w, []string{name}
		}
	case *world.ObjectGone:
		if w := s.byID(body.Watch); w != nil {
			name := fullName(&body.Object)
			delete(w.Objects, name)
			w.noteChange()
			return w, []string{name}
		}
	case *world.WatchFailing:
		if w := s.byID(body.Watch); w != nil {
			if w.Failing == nil {
				w.FailingSince = now
			}
			w.Failing = body.Err
			w.changes++
			return w, nil
		}
	}
	return nil, nil
}

func (s *Store) byID(id world.WatchID) *Watch {
	w := s.Watches[s.Keys[id]]
	if w == nil {
		s.Dropped++
	}
	return w
}

// Memoize returns compute's result for the objects and a key. Only the result for the newest key is
// kept, and a change of the objects drops it. Callers share it and do not change it.
func (w *Watch) Memoize(key string, compute func() any) any {
	if w.memo.value == nil || w.memo.key != key {
		w.memo = memo{key, compute()}
	}
	return w.memo.value
}

// replaceObjects replaces all objects, and returns the names of those that changed.
func (w *Watch) replaceObjects(objects []world.Object) []string {
	before := w.Objects
	w.Objects, w.Listed, w.Failing, w.FailingSince = nil, true, nil, time.Time{}
	w.noteChange()
	if len(objects) > 0 && !w.keepsOnlyAwaited() {
		w.Objects = make(map[string]world.Object, len(objects))
	}
	var changed []string
	for i := range objects {
		name := fullName(&objects[i])
		if !w.keeps(name) {
			continue
		}
		w.setObject(name, objects[i])
		if old, existed := before[name]; !existed || !isSameVersion(&old, &objects[i]) {
			changed = append(changed, name)
		}
	}
	for name := range before { //ordered: sorted below
		if _, exists := w.Objects[name]; !exists {
			changed = append(changed, name)
		}
	}
	slices.Sort(changed)
	return changed
}

func (w *Watch) setObject(name string, o world.Object) {
	if w.Objects == nil {
		w.Objects = map[string]world.Object{}
	}
	w.Objects[name] = condensed(o)
	w.noteChange()
}

// noteChange records that the objects have changed.
func (w *Watch) noteChange() {
	w.memo = memo{}
	w.changes++
	if w.HasBytes() {
		w.Bytes = 0
		for _, o := range w.Objects { //ordered: a sum
			w.Bytes += bytesOf(&o)
		}
	}
}

// HasBytes reports whether the objects count in budget.ReferenceBytes: those of a size that the
// authors of pods choose.
func (w *Watch) HasBytes() bool {
	return w.Target.Resource == world.ResourceConfigMaps || w.Target.Resource == world.ResourceSecrets
}

// bytesOf returns what a ConfigMap or Secret counts in budget.ReferenceBytes.
func bytesOf(o *world.Object) int {
	switch {
	case o.ConfigMap != nil:
		keys := len(o.ConfigMap.Data) + len(o.ConfigMap.BinaryData)
		return o.ConfigMap.Size() + keys*budget.ReferenceKey
	case o.Secret != nil:
		return o.Secret.Size() + len(o.Secret.Data)*budget.ReferenceKey
	}
	return 0
}

// Changes returns a number that is another one after each change of what lookups find. It starts
// again with another process, and with another watch of the same target.
func (w *Watch) Changes() uint64 { return w.changes }

// isSameVersion reports whether two objects have the same Version, without making two strings for
// each object of a long list.
func isSameVersion(x, y *world.Object) bool {
	_, own := x.Meta()
	_, other := y.Meta()
	return own.GetUID() == other.GetUID() && own.GetResourceVersion() == other.GetResourceVersion()
}

// Version identifies a version of an object by UID and resource version. So an object that was
// deleted and created again has another version.
func Version(o *world.Object) string {
	_, meta := o.Meta()
	return string(meta.GetUID()) + "/" + meta.GetResourceVersion()
}

func fullName(o *world.Object) string {
	_, meta := o.Meta()
	if meta == nil {
		return "" // an event without an object
	}
	return meta.GetNamespace() + "/" + meta.GetName()
}

// Names returns the sorted names of the existing objects.
func (w *Watch) Names() []string {
	names := make([]string, 0, len(w.Objects))
	for name := range w.Objects { //ordered: sorted below
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}
