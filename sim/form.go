package sim

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"math"
	"reflect"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"
)

// former writes the form of a body that is hashed: its exported fields in order, each text and
// list with its length before it, maps sorted. Equal bodies have equal forms in every process of
// one build, and bodies of one type that differ have different ones; what is empty is taken for
// what is not there, as in protobuf. It is written for each event and effect, so it has to be
// cheap: nothing is allocated but the buffer.
type former struct {
	buf    []byte
	keys   []string // of the map being written
	fields map[reflect.Type][]int
}

// of is the form of a body, valid until the next one is written.
func (f *former) of(body any) []byte {
	f.buf = f.buf[:0]
	f.value(reflect.ValueOf(body))
	return f.buf
}

func (f *former) value(v reflect.Value) {
	switch v.Kind() {
	case reflect.String:
		f.text(v.String())
	case reflect.Bool:
		f.flag(v.Bool())
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		f.number(uint64(v.Int()))
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		f.number(v.Uint())
	case reflect.Float64:
		f.number(math.Float64bits(v.Float()))
	case reflect.Slice:
		f.list(v)
	case reflect.Map:
		f.dict(v)
	case reflect.Pointer, reflect.Interface:
		f.pointer(v)
	case reflect.Struct:
		f.structure(v)
	default:
		panic(fmt.Sprintf("form: a body has a %s", v.Type()))
	}
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

func (f *former) list(v reflect.Value) {
	n := v.Len()
	f.number(uint64(n))
	if v.Type().Elem().Kind() == reflect.Uint8 {
		f.buf = append(f.buf, v.Bytes()...)
		return
	}
	for i := range n {
		f.value(v.Index(i))
	}
}

// dict writes a map whose keys are names.
func (f *former) dict(v reflect.Value) {
	if texts, is := v.Interface().(map[string]string); is {
		f.texts(texts)
		return
	}
	keys := v.MapKeys()
	slices.SortFunc(keys, func(x, y reflect.Value) int { return cmp.Compare(x.String(), y.String()) })
	f.number(uint64(len(keys)))
	for _, key := range keys {
		f.text(key.String())
		f.value(v.MapIndex(key))
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

// pointer writes what v points to or has in it. What is in an interface has its type before it.
func (f *former) pointer(v reflect.Value) {
	f.flag(!v.IsNil())
	if v.IsNil() {
		return
	}
	if v.Kind() == reflect.Interface {
		f.text(v.Elem().Type().String())
	}
	f.value(v.Elem())
}

var (
	timeType     = reflect.TypeFor[time.Time]()
	quantityType = reflect.TypeFor[resource.Quantity]()
)

func (f *former) structure(v reflect.Value) {
	t := v.Type()
	if t == timeType {
		at := v.Interface().(time.Time)
		f.number(uint64(at.Unix()))
		f.number(uint64(at.Nanosecond()))
		return
	}
	if t == quantityType {
		q := v.Interface().(resource.Quantity)
		f.text(q.String())
		return
	}
	fields, known := f.fields[t]
	if !known {
		fields = exported(t)
		if f.fields == nil {
			f.fields = map[reflect.Type][]int{}
		}
		f.fields[t] = fields
	}
	for _, i := range fields {
		f.value(v.Field(i))
	}
}

// exported are the indices of a struct's exported fields.
func exported(t reflect.Type) []int {
	var fields []int
	for i := range t.NumField() {
		if t.Field(i).IsExported() {
			fields = append(fields, i)
		}
	}
	return fields
}
