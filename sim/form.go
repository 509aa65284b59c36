package sim

import (
	"encoding/binary"
	"fmt"
	"maps"
	"math"
	"reflect"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

// former writes the form of a body that is hashed: its exported fields in order, each text and
// list with its length before it, maps sorted. Equal bodies have equal forms in every process of
// one build, and bodies of one type that differ have different ones; what is empty is taken for
// what is not there, as in protobuf. It is written for each event and effect, so it has to be
// cheap: how a type is written is found out once, and nothing is allocated but the buffer.
type former struct {
	buf     []byte
	keys    []string // of the map being written
	writers map[reflect.Type]*writer
}

// writer writes the values of one type; how is found out when there is the first one.
type writer struct {
	of  reflect.Type
	how func(*former, reflect.Value)
}

func (w *writer) write(f *former, v reflect.Value) {
	if w.how == nil {
		w.how = f.make(w.of)
	}
	w.how(f, v)
}

// of is the form of a body, valid until the next one is written.
func (f *former) of(body any) []byte {
	f.buf = f.buf[:0]
	v := reflect.ValueOf(body)
	f.writer(v.Type()).write(f, v)
	return f.buf
}

// writer is what writes values of a type.
func (f *former) writer(t reflect.Type) *writer {
	w := f.writers[t]
	if w == nil {
		if f.writers == nil {
			f.writers = map[reflect.Type]*writer{}
		}
		w = &writer{of: t}
		f.writers[t] = w
	}
	return w
}

var (
	timeType     = reflect.TypeFor[time.Time]()
	quantityType = reflect.TypeFor[resource.Quantity]()
)

func (f *former) make(t reflect.Type) func(*former, reflect.Value) {
	switch t {
	case timeType:
		return (*former).time
	case quantityType:
		return (*former).quantity
	}
	switch t.Kind() {
	case reflect.String:
		return func(f *former, v reflect.Value) { f.text(v.String()) }
	case reflect.Bool:
		return func(f *former, v reflect.Value) { f.flag(v.Bool()) }
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		return func(f *former, v reflect.Value) { f.number(uint64(v.Int())) }
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		return func(f *former, v reflect.Value) { f.number(v.Uint()) }
	case reflect.Float64:
		return func(f *former, v reflect.Value) { f.number(math.Float64bits(v.Float())) }
	case reflect.Slice:
		return f.list(t)
	case reflect.Map:
		return (*former).dict
	case reflect.Interface:
		return (*former).content
	case reflect.Pointer:
		return f.pointer(t)
	case reflect.Struct:
		return f.structure(t)
	}
	panic(fmt.Sprintf("form: a body has a %s", t))
}

func (f *former) number(n uint64) { f.buf = binary.AppendUvarint(f.buf, n) }

func (f *former) text(s string) {
	f.number(uint64(len(s)))
	f.buf = append(f.buf, s...)
}

func (f *former) flag(b bool) {
	if b {
		f.buf = append(f.buf, 1)
		return
	}
	f.buf = append(f.buf, 0)
}

func (f *former) time(v reflect.Value) {
	at := v.Interface().(time.Time)
	f.number(uint64(at.Unix()))
	f.number(uint64(at.Nanosecond()))
}

func (f *former) quantity(v reflect.Value) {
	q := v.Interface().(resource.Quantity)
	f.text(q.String())
}

func (f *former) list(t reflect.Type) func(*former, reflect.Value) {
	if t.Elem().Kind() == reflect.Uint8 {
		return func(f *former, v reflect.Value) {
			f.number(uint64(v.Len()))
			f.buf = append(f.buf, v.Bytes()...)
		}
	}
	item := f.writer(t.Elem())
	return func(f *former, v reflect.Value) {
		n := v.Len()
		f.number(uint64(n))
		for i := range n {
			item.write(f, v.Index(i))
		}
	}
}

// dict writes a map whose keys are names. Each type of map is listed here.
func (f *former) dict(v reflect.Value) {
	switch m := v.Interface().(type) {
	case map[string]string:
		f.texts(m)
	case map[string][]byte:
		inOrder(f, m)
	case map[v1.ResourceName]resource.Quantity:
		inOrder(f, m)
	case v1.ResourceList:
		inOrder(f, m)
	case map[string]v1.ResourceList:
		inOrder(f, m)
	default:
		panic(fmt.Sprintf("form: a body has a %s", v.Type()))
	}
}

func inOrder[K ~string, V any](f *former, m map[K]V) {
	f.number(uint64(len(m)))
	item := f.writer(reflect.TypeFor[V]())
	for _, key := range slices.Sorted(maps.Keys(m)) {
		f.text(string(key))
		item.write(f, reflect.ValueOf(m[key]))
	}
}

func (f *former) texts(texts map[string]string) {
	f.keys = f.keys[:0]
	for key := range texts { //ordered: sorted below
		f.keys = append(f.keys, key)
	}
	slices.Sort(f.keys)
	f.number(uint64(len(f.keys)))
	for _, key := range f.keys {
		f.text(key)
		f.text(texts[key])
	}
}

// content writes what is in an interface, with its type before it.
func (f *former) content(v reflect.Value) {
	f.flag(!v.IsNil())
	if v.IsNil() {
		return
	}
	is := v.Elem()
	f.text(is.Type().String())
	f.writer(is.Type()).write(f, is)
}

func (f *former) pointer(t reflect.Type) func(*former, reflect.Value) {
	to := f.writer(t.Elem())
	return func(f *former, v reflect.Value) {
		f.flag(!v.IsNil())
		if !v.IsNil() {
			to.write(f, v.Elem())
		}
	}
}

// field is one of a struct.
type field struct {
	index int
	of    *writer
}

func (f *former) structure(t reflect.Type) func(*former, reflect.Value) {
	var fields []field
	for i := range t.NumField() {
		if t.Field(i).IsExported() {
			fields = append(fields, field{i, f.writer(t.Field(i).Type)})
		}
	}
	return func(f *former, v reflect.Value) {
		for i := range fields {
			fields[i].of.write(f, v.Field(fields[i].index))
		}
	}
}
