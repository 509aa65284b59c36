package canonical

import (
	"bytes"
	"reflect"
	"slices"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"
	"k8s.io/apimachinery/pkg/api/resource"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"seedlet.dev/world"
)

// bodies returns an empty body of each kind. PodsAnswer is missing: Hash encodes it in another way.
func bodies(t *testing.T) []any {
	t.Helper()
	var all []any
	for _, name := range world.BodyNames() {
		body, err := world.ParseBody(name, []byte("{}"))
		if err != nil { // a protobuf message, not JSON
			body, err = world.ParseBody(name, nil)
		}
		if err != nil {
			t.Fatal(err)
		}
		if _, pods := body.(*world.PodsAnswer); !pods {
			all = append(all, body)
		}
	}
	return all
}

// A change of any field of a body, at any depth, changes the encoding.
func TestEncodingHasEveryField(t *testing.T) {
	var e Encoder
	for _, body := range bodies(t) {
		v := reflect.ValueOf(body).Elem()
		eachField(t, v, world.BodyName(body), func(field string, set, unset func()) {
			before := bytes.Clone(e.Encode(body))
			set()
			if bytes.Equal(before, e.Encode(body)) {
				t.Errorf("%s does not change the encoding", field)
			}
			unset()
			if !bytes.Equal(before, e.Encode(body)) {
				t.Errorf("the encoding changes when %s is set and unset", field)
			}
		})
	}
}

// eachField calls try for each field of a struct and of the structs in it, with functions that set
// the field to a value that is not empty, and back. A type is entered only once on the way down.
func eachField(t *testing.T, v reflect.Value, path string, try func(string, func(), func()),
	above ...reflect.Type) {
	for i := range v.NumField() {
		field, value := v.Type().Field(i), v.Field(i)
		if !field.IsExported() {
			if _, message := v.Addr().Interface().(proto.Message); !message {
				t.Errorf("%s has a field that is not exported, %s", path, field.Name)
			}
			continue
		}
		old, filled := reflect.New(value.Type()).Elem(), something(t, value.Type())
		old.Set(value)
		name := path + "." + field.Name
		if value.Kind() != reflect.Struct || isLeaf(value.Type()) {
			try(name, func() { value.Set(filled) }, func() { value.Set(old) })
		}
		value.Set(filled)
		inner := value
		if inner.Kind() == reflect.Slice && inner.Len() > 0 {
			inner = inner.Index(0)
		}
		if inner.Kind() == reflect.Pointer {
			inner = inner.Elem()
		}
		if inner.Kind() == reflect.Struct && !isLeaf(inner.Type()) &&
			!slices.Contains(above, inner.Type()) {
			eachField(t, inner, name, try, append(above[:len(above):len(above)], inner.Type())...)
		}
		value.Set(old)
	}
}

// isLeaf reports whether a struct is encoded as a whole.
func isLeaf(t reflect.Type) bool { return t == timeType || t == quantityType }

// something returns a value of a type that is not empty, except for structs.
func something(t *testing.T, typ reflect.Type) reflect.Value {
	v := reflect.New(typ).Elem()
	switch typ.Kind() {
	case reflect.String:
		v.SetString("x")
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Int, reflect.Int32, reflect.Int64:
		v.SetInt(1)
	case reflect.Uint8, reflect.Uint32, reflect.Uint64:
		v.SetUint(1)
	case reflect.Float64:
		v.SetFloat(1)
	case reflect.Slice:
		v = reflect.Append(v, something(t, typ.Elem()))
	case reflect.Map:
		v = reflect.MakeMap(typ)
		v.SetMapIndex(something(t, typ.Key()), something(t, typ.Elem()))
	case reflect.Pointer:
		v.Set(reflect.New(typ.Elem()))
	case reflect.Interface:
		v.Set(reflect.ValueOf(1))
	case reflect.Struct:
		if typ == timeType {
			v.Set(reflect.ValueOf(time.Unix(1, 0)))
		}
		if typ == quantityType {
			v.Set(reflect.ValueOf(resource.MustParse("1")))
		}
	default:
		t.Fatalf("a body has a %s", typ)
	}
	return v
}

func TestEncodingsOfDifferentBodiesDiffer(t *testing.T) {
	entries := func(names ...string) any {
		listed := &world.DirListed{}
		for _, name := range names {
			listed.Entries = append(listed.Entries, world.DirEntry{Name: name})
		}
		return listed
	}
	labels := func(texts ...string) any {
		m := map[string]string{}
		for i := 0; i < len(texts); i += 2 {
			m[texts[i]] = texts[i+1]
		}
		return &runtimeapi.RunPodSandboxRequest{Config: &runtimeapi.PodSandboxConfig{Labels: m}}
	}
	var e Encoder
	encodings := map[string]any{}
	for _, body := range []any{
		entries(), entries(""), entries("a", "bc"), entries("ab", "c"), entries("abc"),
		labels(), labels("a", ""), labels("a", "b"), labels("b", "a"), labels("a", "b", "b", "a"),
		&runtimeapi.RunPodSandboxRequest{},
		&world.Log{Fields: []any{1}}, &world.Log{Fields: []any{"1"}}, &world.Log{Fields: []any{uint8(1)}},
	} {
		encoding := string(e.Encode(body))
		if twin, twice := encodings[encoding]; twice && reflect.TypeOf(twin) == reflect.TypeOf(body) {
			t.Errorf("%v and %v have the same encoding", twin, body)
		}
		encodings[encoding] = body
	}
}

func TestEncodingDoesNotDependOnTheOrderOfAMap(t *testing.T) {
	labels := map[string]string{}
	for _, key := range []string{"a", "b", "c", "d", "e", "f", "g", "h", "i", "j"} {
		labels[key] = key
	}
	body := &runtimeapi.RunPodSandboxRequest{Config: &runtimeapi.PodSandboxConfig{Labels: labels}}
	var e Encoder
	first := bytes.Clone(e.Encode(body))
	for range 50 {
		if !bytes.Equal(first, e.Encode(body)) {
			t.Fatal("the same body has two encodings")
		}
	}
}
