package manifest

import (
	"encoding/hex"
	"hash/fnv"
	"io"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// contentUID returns the UID of a decoded pod without one, with its defaults: 32 hex digits. It is
// the one that a kubelet of the release gives, so that an agent takes over the static pods of
// the other and restarts none: the FNV-1a hash of the pod as text, and of where it was found. The
// text has the types and the order of the fields that the pod has inside the kubelet (applyDefaults
// in its pkg/kubelet/config, DeepHashObject in pkg/util/hash). So the UID depends on the content
// of a manifest and not on how it is written, and changes with the types of a release
// (kubernetes issues 63814 and 129385).
//
// A time, such as a creationTimestamp, is without the time zone that the kubelet's text has.
func contentUID(pod *v1.Pod, from location) types.UID {
	h := fnv.New128a()
	writeInternal(h, pod)
	// Writes to a hash do not fail.
	if from.origin == OriginFile {
		_, _ = io.WriteString(h, "host:"+from.node+"file:"+from.address)
	} else {
		_, _ = io.WriteString(h, "url:"+from.address)
	}
	return types.UID(hex.EncodeToString(h.Sum(nil)))
}

// writeInternal writes a pod as the text that the kubelet hashes.
func writeInternal(w io.Writer, pod *v1.Pod) {
	internal := *pod
	internal.TypeMeta.Reset()
	if grace := pod.Spec.TerminationGracePeriodSeconds; grace != nil && *grace < 0 {
		internal.Spec.TerminationGracePeriodSeconds = new(int64(1))
	}
	internal.Annotations = maps.Clone(pod.Annotations)
	for _, state := range []string{"init-containers", "init-container-statuses"} {
		delete(internal.Annotations, "pod.alpha.kubernetes.io/"+state)
		delete(internal.Annotations, "pod.beta.kubernetes.io/"+state)
	}
	t := text{w: w, spec: reflect.ValueOf(&internal.Spec).Elem(),
		fields: map[reflect.Type][]internalField{}}
	t.buffer = append(t.buffer, "(*core.Pod)"...)
	t.writeValue(reflect.ValueOf(&internal))
	t.flush()
}

// text writes values as the kubelet does: with the Go syntax of their types where a field has them,
// followed pointers, and maps in the order of their keys.
type text struct {
	w      io.Writer
	buffer []byte
	spec   reflect.Value                    // the v1.PodSpec
	fields map[reflect.Type][]internalField // of the structs so far
}

// internalField is a field of a struct of the internal API.
type internalField struct {
	label  string // its name and its type
	index  []int  // in the struct of API v1
	ofSpec bool   // whether it is in the v1.PodSpec instead
}

// bufferMax is the size from which on the buffer is flushed.
const bufferMax = 4 << 10

func (t *text) flush() {
	_, _ = t.w.Write(t.buffer) // a hash, which does not fail
	t.buffer = t.buffer[:0]
}

// writeValue writes a value without its type.
func (t *text) writeValue(v reflect.Value) {
	switch v.Kind() {
	case reflect.Bool:
		t.buffer = strconv.AppendBool(t.buffer, v.Bool())
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		t.buffer = strconv.AppendInt(t.buffer, v.Int(), 10)
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		t.buffer = strconv.AppendUint(t.buffer, v.Uint(), 10)
	case reflect.String:
		t.buffer = append(t.buffer, v.String()...)
	case reflect.Struct:
		t.writeStruct(v)
	case reflect.Pointer:
		if v.IsNil() || v.Type() == reflect.TypeFor[*time.Location]() {
			t.buffer = append(t.buffer, "<nil>"...)
		} else {
			t.writeValue(v.Elem())
		}
	case reflect.Slice:
		t.writeSlice(v)
	case reflect.Map:
		t.writeMap(v)
	default:
		panic("manifest: no text for the type " + v.Type().String())
	}
	if len(t.buffer) > bufferMax {
		t.flush()
	}
}

func (t *text) writeSlice(v reflect.Value) {
	if v.IsNil() {
		t.buffer = append(t.buffer, "<nil>"...)
		return
	}
	t.buffer = append(t.buffer, '[')
	for i := range v.Len() {
		if i > 0 {
			t.buffer = append(t.buffer, ' ')
		}
		t.writeValue(v.Index(i))
	}
	t.buffer = append(t.buffer, ']')
}

// writeMap writes a map. A pod has maps of two types.
func (t *text) writeMap(v reflect.Value) {
	if v.IsNil() {
		t.buffer = append(t.buffer, "<nil>"...)
		return
	}
	t.buffer = append(t.buffer, "map["...)
	space := ""
	if list := reflect.TypeFor[v1.ResourceList](); v.CanConvert(list) {
		list := v.Convert(list).Interface().(v1.ResourceList)
		for _, key := range slices.Sorted(maps.Keys(list)) {
			t.buffer = append(append(append(t.buffer, space...), key...), ':')
			t.writeValue(reflect.ValueOf(list[key]))
			space = " "
		}
	} else {
		texts := v.Interface().(map[string]string)
		for _, key := range slices.Sorted(maps.Keys(texts)) {
			t.buffer = append(append(append(t.buffer, space...), key...), ':')
			t.buffer = append(t.buffer, texts[key]...)
			space = " "
		}
	}
	t.buffer = append(t.buffer, ']')
}

func (t *text) writeStruct(v reflect.Value) {
	fields, known := t.fields[v.Type()]
	if !known {
		fields = t.fieldsOf(v.Type())
		t.fields[v.Type()] = fields
	}
	t.buffer = append(t.buffer, '{')
	for i, f := range fields {
		if i > 0 {
			t.buffer = append(t.buffer, ' ')
		}
		t.buffer = append(t.buffer, f.label...)
		if f.ofSpec {
			t.writeValue(t.spec.FieldByIndex(f.index))
		} else {
			t.writeValue(v.FieldByIndex(f.index))
		}
	}
	t.buffer = append(t.buffer, '}')
}

// fieldsOf returns the fields that a struct has in the internal API.
func (t *text) fieldsOf(of reflect.Type) []internalField {
	var names []string
	if order := internalFields[of.Name()]; order != "" && isAPI(of) {
		names = strings.Fields(order)
	} else {
		for i := range of.NumField() {
			names = append(names, of.Field(i).Name)
		}
	}
	fields := make([]internalField, len(names))
	for i, name := range names {
		found, own := of.FieldByName(name)
		if !own { // the host namespaces of v1.PodSpec, in the security context of the internal one
			found, _ = t.spec.Type().FieldByName(name)
		}
		fields[i] = internalField{name + ":(" + internalName(found.Type) + ")", found.Index, !own}
	}
	return fields
}

// isAPI reports whether a type is one of API v1 that the internal API has as well.
func isAPI(t reflect.Type) bool { return t.PkgPath() == reflect.TypeFor[v1.Pod]().PkgPath() }

// internalName returns the name of a type as code of the internal API has it.
func internalName(t reflect.Type) string {
	switch {
	case isAPI(t):
		return "core." + t.Name()
	case t.Name() != "":
		return t.String()
	case t.Kind() == reflect.Pointer:
		return "*" + internalName(t.Elem())
	case t.Kind() == reflect.Slice:
		return "[]" + internalName(t.Elem())
	case t.Kind() == reflect.Map:
		return "map[" + internalName(t.Key()) + "]" + internalName(t.Elem())
	}
	return t.String()
}
