package apiserver

import (
	"bytes"
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"seedlet.dev/sim/truth"
	"seedlet.dev/world"
)

// store holds the objects and the history of their changes. Stored objects are never modified.
type store struct {
	objects map[key]world.Object
	keys    []key // of the objects, in their order
	// lists are all objects of a resource, in their order, as list has returned them since the last
	// change of any.
	lists       map[world.Resource][]world.Object
	version     uint64 // of the newest change
	changes     []change
	oldestKnown uint64 // earlier changes have been dropped from the history
}

type key struct {
	resource        world.Resource
	namespace, name string
}

// change is one change of an object. Before is empty for a creation, after is empty for a removal.
type change struct {
	version       uint64
	before, after world.Object
}

func newStore() store {
	return store{objects: map[key]world.Object{}, lists: map[world.Resource][]world.Object{},
		version: 100}
}

func keyOf(o *world.Object) key {
	r, m := o.Meta()
	return key{r, m.GetNamespace(), m.GetName()}
}

func (k key) compare(other key) int {
	return cmp.Or(strings.Compare(string(k.resource), string(other.resource)),
		strings.Compare(k.namespace, other.namespace), strings.Compare(k.name, other.name))
}

// list returns the objects of a resource, by namespace and name. The list must not be modified.
func (st *store) list(r world.Resource) []world.Object {
	list, isKnown := st.lists[r]
	if isKnown {
		return list
	}
	list = []world.Object{}
	first, _ := slices.BinarySearchFunc(st.keys, key{resource: r}, key.compare)
	for _, k := range st.keys[first:] {
		if k.resource != r {
			break
		}
		list = append(list, st.objects[k])
	}
	list = slices.Clip(list)
	st.lists[r] = list
	return list
}

// setObject stores an object.
func (st *store) setObject(k key, o world.Object) {
	if i, exists := slices.BinarySearchFunc(st.keys, k, key.compare); !exists {
		st.keys = slices.Insert(st.keys, i, k)
	}
	st.objects[k] = o
	delete(st.lists, k.resource)
}

// deleteObject removes an object.
func (st *store) deleteObject(k key) {
	if i, exists := slices.BinarySearchFunc(st.keys, k, key.compare); exists {
		st.keys = slices.Delete(st.keys, i, i+1)
	}
	delete(st.objects, k)
	delete(st.lists, k.resource)
}

// put stores the new version of an object. If the object is unchanged it stores nothing and sends
// nothing to watches.
func (s *Server) put(by requester, after world.Object, status bool) world.Object {
	st := &s.store
	k := keyOf(&after)
	before := st.objects[k]
	if _, old := before.Meta(); old != nil {
		_, meta := after.Meta()
		meta.SetResourceVersion(old.GetResourceVersion())
		if bytes.Equal(encode(after), encode(before)) {
			s.recordNeedless(by, k)
			return before
		}
	}
	st.version++
	_, meta := after.Meta()
	meta.SetResourceVersion(strconv.FormatUint(st.version, 10))
	st.setObject(k, after)
	kind := truth.ObjectUpdated
	if before.Resource() == "" {
		kind = truth.ObjectCreated
	}
	s.commit(kind, change{st.version, before, after}, truth.Write{
		Resource: k.resource, Namespace: k.namespace, Name: k.name, Before: before, After: after,
		Status: status, Incarnation: by.incarnation, Client: by.name, SentAt: by.sentAt,
	})
	return after
}

// recordNeedless records that the agent has written what the object already was.
func (s *Server) recordNeedless(by requester, k key) {
	if by.isNode() && s.opts.Truth != nil {
		s.opts.Truth.Add(truth.Fact{Time: s.opts.Agenda.Now(), Kind: truth.WroteNothing,
			Path: fmt.Sprintf("%s %s/%s", k.resource, k.namespace, k.name)})
	}
}

// remove removes an object.
func (s *Server) remove(by requester, o world.Object) {
	st := &s.store
	k := keyOf(&o)
	st.deleteObject(k)
	st.version++
	last := clone(o)
	_, meta := last.Meta()
	meta.SetResourceVersion(strconv.FormatUint(st.version, 10))
	s.commit(truth.ObjectDeleted, change{st.version, last, world.Object{}}, truth.Write{
		Resource: k.resource, Namespace: k.namespace, Name: k.name, Before: o,
		Incarnation: by.incarnation, Client: by.name, SentAt: by.sentAt,
	})
}

func (s *Server) commit(kind truth.Kind, c change, w truth.Write) {
	s.store.changes = append(s.store.changes, c)
	if s.opts.Truth != nil {
		s.opts.Truth.Add(truth.Fact{Time: s.opts.Agenda.Now(), Kind: kind, Write: &w})
	}
	for _, watch := range s.watches {
		s.sendChanges(watch)
	}
}

// now returns the current time as API objects hold it.
func (s *Server) now() metav1.Time { return metav1.NewTime(s.opts.Agenda.Now()) }

// newUID draws a UID of the server's form.
func (s *Server) newUID() string {
	a, b := s.uids.Uint64(), s.uids.Uint64()
	return fmt.Sprintf("%08x-%04x-4%03x-%04x-%012x", uint32(a>>32), uint16(a>>16), a&0xfff,
		0x8000|b>>48&0x3fff, b&0xffffffffffff)
}

// storedObject is an object in the encoding in which a server stores it.
type storedObject interface {
	Marshal() ([]byte, error)
	Unmarshal([]byte) error
}

// clone copies an object by encoding it, as the server's store does. This truncates times to
// seconds. The copy has no apiVersion and kind, as objects of typed clients have none.
func clone(o world.Object) world.Object {
	c := emptyLike(&o)
	if err := runtimeObject(&c).(storedObject).Unmarshal(encode(o)); err != nil {
		panic("apiserver: an object cannot be copied: " + err.Error())
	}
	return c
}

func encode(o world.Object) []byte {
	data, err := runtimeObject(&o).(storedObject).Marshal()
	if err != nil {
		panic("apiserver: an object cannot be encoded: " + err.Error())
	}
	return data
}

// runtimeObject returns the object in its own type, and nil for an empty Object.
func runtimeObject(o *world.Object) runtime.Object {
	_, meta := o.Meta()
	object, _ := meta.(runtime.Object)
	return object
}
