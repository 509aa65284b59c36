package canonical

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

// Encoder writes the canonical encoding of a body: its exported fields in order, each text and list
// preceded by its length, each map in the order of its keys. Every event and effect of a run is
// encoded, so encoding has to be cheap: the encoder of a type is made once, and nothing but the
// buffer is allocated.
type Encoder struct {
	buf          []byte
	keys         []string // of the map being encoded
	typeEncoders map[reflect.Type]*typeEncoder
}

// typeEncoder encodes the values of one type. Its function is made when the first value is encoded,
// because a type may contain itself.
type typeEncoder struct {
	valueType reflect.Type
	encode    func(*Encoder, reflect.Value)
}

func (t *typeEncoder) write(e *Encoder, v reflect.Value) {
	if t.encode == nil {
		t.encode = e.newEncodeFunc(t.valueType)
	}
	t.encode(e, v)
}

// Encode returns the encoding of a body. It is valid until the next call.
func (e *Encoder) Encode(body any) []byte {
	e.buf = e.buf[:0]
	v := reflect.ValueOf(body)
	e.typeEncoder(v.Type()).write(e, v)
	return e.buf
}

// typeEncoder returns the encoder of a type.
func (e *Encoder) typeEncoder(t reflect.Type) *typeEncoder {
	encoder := e.typeEncoders[t]
	if encoder == nil {
		if e.typeEncoders == nil {
			e.typeEncoders = map[reflect.Type]*typeEncoder{}
		}
		encoder = &typeEncoder{valueType: t}
		e.typeEncoders[t] = encoder
	}
	return encoder
}

var (
	timeType     = reflect.TypeFor[time.Time]()
	quantityType = reflect.TypeFor[resource.Quantity]()
)

func (e *Encoder) newEncodeFunc(t reflect.Type) func(*Encoder, reflect.Value) {
	switch t {
	case timeType:
		return (*Encoder).timeValue
	case quantityType:
		return (*Encoder).quantityValue
	}
	switch t.Kind() {
	case reflect.String:
		return func(e *Encoder, v reflect.Value) { e.str(v.String()) }
	case reflect.Bool:
		return func(e *Encoder, v reflect.Value) { e.boolean(v.Bool()) }
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		return func(e *Encoder, v reflect.Value) { e.uvarint(uint64(v.Int())) }
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		return func(e *Encoder, v reflect.Value) { e.uvarint(v.Uint()) }
	case reflect.Float64:
		return func(e *Encoder, v reflect.Value) { e.uvarint(math.Float64bits(v.Float())) }
	case reflect.Slice:
		return e.listFunc(t)
	case reflect.Map:
		return (*Encoder).mapValue
	case reflect.Interface:
		return (*Encoder).interfaceValue
	case reflect.Pointer:
		return e.pointerFunc(t)
	case reflect.Struct:
		return e.structFunc(t)
	}
	panic(fmt.Sprintf("canonical: cannot encode a %s", t))
}

func (e *Encoder) uvarint(n uint64) { e.buf = binary.AppendUvarint(e.buf, n) }

func (e *Encoder) str(s string) {
	e.uvarint(uint64(len(s)))
	e.buf = append(e.buf, s...)
}

func (e *Encoder) boolean(b bool) {
	if b {
		e.buf = append(e.buf, 1)
		return
	}
	e.buf = append(e.buf, 0)
}

func (e *Encoder) timeValue(v reflect.Value) {
	at := v.Interface().(time.Time)
	e.uvarint(uint64(at.Unix()))
	e.uvarint(uint64(at.Nanosecond()))
}

func (e *Encoder) quantityValue(v reflect.Value) {
	q := v.Interface().(resource.Quantity)
	e.str(q.String())
}

func (e *Encoder) listFunc(t reflect.Type) func(*Encoder, reflect.Value) {
	if t.Elem().Kind() == reflect.Uint8 {
		return func(e *Encoder, v reflect.Value) {
			e.uvarint(uint64(v.Len()))
			e.buf = append(e.buf, v.Bytes()...)
		}
	}
	item := e.typeEncoder(t.Elem())
	return func(e *Encoder, v reflect.Value) {
		n := v.Len()
		e.uvarint(uint64(n))
		for i := range n {
			item.write(e, v.Index(i))
		}
	}
}

// mapValue encodes a map whose keys are names. Every type of map that bodies have is listed here.
func (e *Encoder) mapValue(v reflect.Value) {
	switch m := v.Interface().(type) {
	case map[string]string:
		e.stringMap(m)
	case map[string][]byte:
		sortedMap(e, m)
	case map[v1.ResourceName]resource.Quantity:
		sortedMap(e, m)
	case v1.ResourceList:
		sortedMap(e, m)
	case map[string]v1.ResourceList:
		sortedMap(e, m)
	case map[v1.ResourceName]v1.ClaimResourceStatus:
		sortedMap(e, m)
	default:
		panic(fmt.Sprintf("canonical: cannot encode a %s", v.Type()))
	}
}

func sortedMap[K ~string, V any](e *Encoder, m map[K]V) {
	e.uvarint(uint64(len(m)))
	item := e.typeEncoder(reflect.TypeFor[V]())
	for _, key := range slices.Sorted(maps.Keys(m)) {
		e.str(string(key))
		item.write(e, reflect.ValueOf(m[key]))
	}
}

func (e *Encoder) stringMap(m map[string]string) {
	e.keys = e.keys[:0]
	for key := range m { //ordered: sorted below
		e.keys = append(e.keys, key)
	}
	slices.Sort(e.keys)
	e.uvarint(uint64(len(e.keys)))
	for _, key := range e.keys {
		e.str(key)
		e.str(m[key])
	}
}

// interfaceValue encodes the value in an interface, preceded by the name of its type.
func (e *Encoder) interfaceValue(v reflect.Value) {
	e.boolean(!v.IsNil())
	if v.IsNil() {
		return
	}
	value := v.Elem()
	e.str(value.Type().String())
	e.typeEncoder(value.Type()).write(e, value)
}

func (e *Encoder) pointerFunc(t reflect.Type) func(*Encoder, reflect.Value) {
	target := e.typeEncoder(t.Elem())
	return func(e *Encoder, v reflect.Value) {
		e.boolean(!v.IsNil())
		if !v.IsNil() {
			target.write(e, v.Elem())
		}
	}
}

// structField is an exported field of a struct.
type structField struct {
	index   int
	encoder *typeEncoder
}

func (e *Encoder) structFunc(t reflect.Type) func(*Encoder, reflect.Value) {
	var fields []structField
	for i := range t.NumField() {
		if t.Field(i).IsExported() {
			fields = append(fields, structField{i, e.typeEncoder(t.Field(i).Type)})
		}
	}
	return func(e *Encoder, v reflect.Value) {
		for i := range fields {
			fields[i].encoder.write(e, v.Field(fields[i].index))
		}
	}
}
