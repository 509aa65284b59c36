// Package object keeps what the agent watches at the API server.
//
// It keeps: every watch, who wants it, and the objects that it has told of. A watch begins with the
// first that wants it and ends with the last, without a plan; a plan have the ConfigMaps and
// Secrets that are read instead (read.go). It takes: lists, changes and removals, and what was
// read. The server and the port promise the order of a watch, so what was told last is the newest.
// A watch that has not been listed yet says nothing about what does not exist. Start reading at
// Store.
package object

import (
	"slices"
	"time"

	"seedlet.dev/world"
)

// WatchesMax bounds the watches: a full node has a few ConfigMaps and Secrets for each pod.
const WatchesMax = 8192

// Store is everything that is watched. The zero value is ready.
type Store struct {
	Last    world.WatchID            `json:"last"`              // the newest number handed out
	Watches map[string]*Watch        `json:"watches,omitempty"` // by Key of what they are about
	Keys    map[world.WatchID]string `json:"keys,omitempty"`
	Stray   uint64                   `json:"stray"` // what was told to watches that have ended

	Strategy Strategy `json:"strategy"` // of ConfigMaps and Secrets
}

// Watch is what is known about some objects that are watched, or about one that is read.
type Watch struct {
	ID     world.WatchID `json:"id"`
	About  world.Watched `json:"about"`
	Users  []string      `json:"users"`  // who wants it, sorted
	Listed bool          `json:"listed"` // everything that there is has been told once
	// Objects are those that exist, by namespace/name.
	Objects map[string]world.Object `json:"objects,omitempty"`
	// Failing is why nothing can be seen, nil while it can; Since is when that began.
	Failing *world.Error `json:"failing,omitempty"`
	Since   time.Time    `json:"since"`
	// Read is how the object is followed if it is not watched: it has no ID then.
	Read *Read `json:"read,omitempty"`
}

// Out is where a store says what it wants watched.
type Out interface {
	Tell(body any)
	Now() time.Time
}

// Key is what a watch is known by: "configmaps/NAMESPACE/NAME", or "pods//" for all of them.
func Key(about world.Watched) string {
	return string(about.Resource) + "/" + about.Namespace + "/" + about.Name
}

// Want has something watched for a user, until it is dropped. Wanting it twice is wanting it
// once. It reports false if there are too many watches.
func (s *Store) Want(about world.Watched, user string, out Out) bool {
	key := Key(about)
	w := s.Watches[key]
	if w == nil {
		if len(s.Watches) >= WatchesMax {
			return false
		}
		if s.Watches == nil {
			s.Watches = map[string]*Watch{}
		}
		w = s.begin(about, out)
		s.Watches[key] = w
	}
	if i, found := slices.BinarySearch(w.Users, user); !found {
		w.Users = slices.Insert(w.Users, i, user)
		if w.Read != nil {
			w.Read.Since = out.Now()
		}
	}
	return true
}

// begin begins to watch, unless the object is read.
func (s *Store) begin(about world.Watched, out Out) *Watch {
	if _, read := s.Reads(about); read {
		return &Watch{About: about, Read: &Read{}}
	}
	if s.Keys == nil { // nothing was watched so far
		s.Keys = map[world.WatchID]string{}
	}
	s.Last++
	s.Keys[s.Last] = Key(about)
	out.Tell(&world.WatchObjects{Watch: s.Last, Watched: about})
	return &Watch{ID: s.Last, About: about}
}

// Drop says that a user does not want something watched any more.
func (s *Store) Drop(about world.Watched, user string, out Out) {
	key := Key(about)
	w := s.Watches[key]
	if w == nil {
		return
	}
	if i, found := slices.BinarySearch(w.Users, user); found {
		w.Users = slices.Delete(w.Users, i, i+1)
	}
	if len(w.Users) == 0 {
		delete(s.Watches, key)
		if w.Read == nil {
			delete(s.Keys, w.ID)
			out.Tell(&world.UnwatchObjects{Watch: w.ID})
		}
	}
}

// Watch is what is known about something that is watched; nil if it is not.
func (s *Store) Watch(about world.Watched) *Watch { return s.Watches[Key(about)] }

// One is the only object that a watch of one object is about. It is known once the watch has
// been listed; known and nil is one that does not exist.
func (s *Store) One(r world.Resource, namespace, name string) (o *world.Object, known bool) {
	w := s.Watch(world.Watched{Resource: r, Namespace: namespace, Name: name})
	if w == nil || !w.Listed {
		return nil, false
	}
	if found, is := w.Objects[namespace+"/"+name]; is {
		return &found, true
	}
	return nil, true
}

// Take takes what a watch tells. It returns the watch, nil if nobody wants it any more or body is
// none of a watch, and the names of the objects about which there is news, as namespace/name,
// sorted. The first list is news even if it is empty.
func (s *Store) Take(body any, now time.Time) (*Watch, []string) {
	switch body := body.(type) {
	case *world.ObjectsListed:
		if w := s.byID(body.Watch); w != nil {
			return w, w.listed(body.Objects)
		}
	case *world.ObjectChanged:
		if w := s.byID(body.Watch); w != nil {
			name := fullName(&body.Object)
			w.set(name, body.Object)
			return w, []string{name}
		}
	case *world.ObjectGone:
		if w := s.byID(body.Watch); w != nil {
			name := fullName(&body.Object)
			delete(w.Objects, name)
			return w, []string{name}
		}
	case *world.WatchFailing:
		if w := s.byID(body.Watch); w != nil {
			if w.Failing == nil {
				w.Since = now
			}
			w.Failing = body.Err
			return w, nil
		}
	}
	return nil, nil
}

func (s *Store) byID(id world.WatchID) *Watch {
	w := s.Watches[s.Keys[id]]
	if w == nil {
		s.Stray++
	}
	return w
}

// listed replaces all objects, and returns the names of those that differ.
func (w *Watch) listed(objects []world.Object) []string {
	before := w.Objects
	w.Objects, w.Listed, w.Failing, w.Since = nil, true, nil, time.Time{}
	var news []string
	for i := range objects {
		name := fullName(&objects[i])
		w.set(name, objects[i])
		if was, is := before[name]; !is || version(&was) != version(&objects[i]) {
			news = append(news, name)
		}
	}
	for name := range before { //ordered: sorted below
		if _, still := w.Objects[name]; !still {
			news = append(news, name)
		}
	}
	slices.Sort(news)
	return news
}

func (w *Watch) set(name string, o world.Object) {
	if w.Objects == nil {
		w.Objects = map[string]world.Object{}
	}
	w.Objects[name] = o
}

// version is what tells apart two states of what is called by one name.
func version(o *world.Object) string {
	_, meta := o.Get()
	return string(meta.GetUID()) + "/" + meta.GetResourceVersion()
}

func fullName(o *world.Object) string {
	_, meta := o.Get()
	if meta == nil {
		return "" // the port told of nothing
	}
	return meta.GetNamespace() + "/" + meta.GetName()
}

// Names are the names of the objects that exist, sorted.
func (w *Watch) Names() []string {
	names := make([]string, 0, len(w.Objects))
	for name := range w.Objects { //ordered: sorted below
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}
