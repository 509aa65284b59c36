package apiserver

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"seedlet.dev/sim/truth"
	"seedlet.dev/world"
)

// store is the objects there are and how they came to be. What is in it is never changed.
type store struct {
	objects map[key]world.Object
	version uint64 // of the newest change
	changes []change
	oldest  uint64 // changes before this version are not told to watches any more
}

type key struct {
	resource        world.Resource
	namespace, name string
}

// change is one change: what there was before and is after, each empty if there is none.
type change struct {
	version       uint64
	before, after world.Object
}

func newStore() store { return store{objects: map[key]world.Object{}, version: 100} }

func keyOf(o *world.Object) key {
	r, m := o.Get()
	return key{r, m.GetNamespace(), m.GetName()}
}

func (k key) compare(other key) int {
	return cmp.Or(strings.Compare(string(k.resource), string(other.resource)),
		strings.Compare(k.namespace, other.namespace), strings.Compare(k.name, other.name))
}

func (st *store) list(wanted func(*world.Object) bool) []world.Object {
	list := []world.Object{}
	for _, k := range slices.SortedFunc(maps.Keys(st.objects), key.compare) {
		if o := st.objects[k]; wanted(&o) {
			list = append(list, o)
		}
	}
	return list
}

// put stores an object as it has become. One that has not changed is left as it is, which nobody
// is told of.
func (s *Server) put(who author, after world.Object, status bool) world.Object {
	st := &s.store
	k := keyOf(&after)
	before := st.objects[k]
	if _, old := before.Get(); old != nil {
		_, meta := after.Get()
		meta.SetResourceVersion(old.GetResourceVersion())
		if bytes.Equal(encode(after), encode(before)) {
			return before
		}
	}
	st.version++
	_, meta := after.Get()
	meta.SetResourceVersion(strconv.FormatUint(st.version, 10))
	st.objects[k] = after
	kind := truth.ObjectWritten
	if before.Of() == "" {
		kind = truth.ObjectMade
	}
	s.changed(kind, change{st.version, before, after}, truth.Write{
		Resource: k.resource, Namespace: k.namespace, Name: k.name, Before: before, After: after,
		Status: status, Life: who.life, By: who.name,
	})
	return after
}

// drop removes an object.
func (s *Server) drop(who author, o world.Object) {
	st := &s.store
	k := keyOf(&o)
	delete(st.objects, k)
	st.version++
	last := clone(o)
	_, meta := last.Get()
	meta.SetResourceVersion(strconv.FormatUint(st.version, 10))
	s.changed(truth.ObjectRemoved, change{st.version, last, world.Object{}}, truth.Write{
		Resource: k.resource, Namespace: k.namespace, Name: k.name, Before: o,
		Life: who.life, By: who.name,
	})
}

func (s *Server) changed(kind truth.Kind, c change, w truth.Write) {
	s.store.changes = append(s.store.changes, c)
	if s.opts.Truth != nil {
		s.opts.Truth.Add(truth.Fact{Time: s.opts.Agenda.Now(), Kind: kind, Write: &w})
	}
	for _, watch := range s.watches {
		s.pump(watch)
	}
}

// now is the time as objects have it.
func (s *Server) now() metav1.Time { return metav1.NewTime(s.opts.Agenda.Now()) }

// newUID draws an id as the server makes them.
func (s *Server) newUID() string {
	a, b := s.uids.Uint64(), s.uids.Uint64()
	return fmt.Sprintf("%08x-%04x-4%03x-%04x-%012x", uint32(a>>32), uint16(a>>16), a&0xfff,
		0x8000|b>>48&0x3fff, b&0xffffffffffff)
}

// clone copies an object as it comes out of the server: by way of its text, which drops fractions
// of seconds. What kind it is it does not say, as typed clients have it.
func clone(o world.Object) world.Object {
	var c world.Object
	data := encode(o)
	if err := json.Unmarshal(data, &c); err != nil {
		panic("apiserver: an object cannot be copied: " + err.Error())
	}
	typed(&c).GetObjectKind().SetGroupVersionKind(schema.GroupVersionKind{})
	return c
}

func encode(o world.Object) []byte {
	data, err := json.Marshal(o)
	if err != nil {
		panic("apiserver: an object cannot be written: " + err.Error())
	}
	return data
}

// typed is the object in its own type; nil if there is none.
func typed(o *world.Object) runtime.Object {
	switch {
	case o.Pod != nil:
		return o.Pod
	case o.Node != nil:
		return o.Node
	case o.Service != nil:
		return o.Service
	case o.ConfigMap != nil:
		return o.ConfigMap
	case o.Secret != nil:
		return o.Secret
	case o.RuntimeClass != nil:
		return o.RuntimeClass
	case o.Lease != nil:
		return o.Lease
	case o.TrustBundle != nil:
		return o.TrustBundle
	}
	return nil
}
