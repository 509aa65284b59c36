package sim

import (
	"bytes"
	"reflect"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"seedlet.dev/world"
)

// bodies are one of each kind, empty. PodsAnswer is hashed in another way.
func bodies(t *testing.T) []any {
	t.Helper()
	var all []any
	for _, name := range world.BodyNames() {
		form := []byte("{}")
		body, err := world.ParseBody(name, form)
		if err != nil { // a message, not JSON
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

// Whatever is set in a body changes its form, however deep it is.
func TestFormHasEveryField(t *testing.T) {
	var f former
	for _, body := range bodies(t) {
		v := reflect.ValueOf(body).Elem()
		eachField(t, v, world.BodyName(body), func(field string, set, unset func()) {
			without := bytes.Clone(f.of(body))
			set()
			if bytes.Equal(without, f.of(body)) {
				t.Errorf("%s is not in the form", field)
			}
			unset()
			if !bytes.Equal(without, f.of(body)) {
				t.Errorf("%s leaves something in the form", field)
			}
		})
	}
}

// eachField calls try for each field of a struct and of what is in it, with functions that set it
// to something that is not empty, and back. A type is entered only once on the way down.
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
		was, some := reflect.New(value.Type()).Elem(), something(t, value.Type())
		was.Set(value)
		name := path + "." + field.Name
		if value.Kind() != reflect.Struct || leaf(value.Type()) {
			try(name, func() { value.Set(some) }, func() { value.Set(was) })
		}
		value.Set(some)
		inner := value
		if inner.Kind() == reflect.Slice && inner.Len() > 0 {
			inner = inner.Index(0)
		}
		if inner.Kind() == reflect.Pointer {
			inner = inner.Elem()
		}
		if inner.Kind() == reflect.Struct && !leaf(inner.Type()) && !has(above, inner.Type()) {
			eachField(t, inner, name, try, append(above[:len(above):len(above)], inner.Type())...)
		}
		value.Set(was)
	}
}

// leaf says whether a struct is written as a whole.
func leaf(t reflect.Type) bool { return t == timeType || t == quantityType }

func has(types []reflect.Type, t reflect.Type) bool {
	for _, other := range types {
		if other == t {
			return true
		}
	}
	return false
}

// something is a value of a type that is not empty, but for structures.
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

func TestFormTellsApart(t *testing.T) {
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
	var f former
	forms := map[string]any{}
	for _, body := range []any{
		entries(), entries(""), entries("a", "bc"), entries("ab", "c"), entries("abc"),
		labels(), labels("a", ""), labels("a", "b"), labels("b", "a"), labels("a", "b", "b", "a"),
		&runtimeapi.RunPodSandboxRequest{},
		&world.Log{Fields: []any{1}}, &world.Log{Fields: []any{"1"}}, &world.Log{Fields: []any{uint8(1)}},
	} {
		form := string(f.of(body))
		if twin, twice := forms[form]; twice && reflect.TypeOf(twin) == reflect.TypeOf(body) {
			t.Errorf("%v and %v have one form", twin, body)
		}
		forms[form] = body
	}
}

func TestFormDoesNotDependOnTheOrderOfAMap(t *testing.T) {
	labels := map[string]string{}
	for _, key := range []string{"a", "b", "c", "d", "e", "f", "g", "h", "i", "j"} {
		labels[key] = key
	}
	body := &runtimeapi.RunPodSandboxRequest{Config: &runtimeapi.PodSandboxConfig{Labels: labels}}
	var f former
	first := bytes.Clone(f.of(body))
	for range 50 {
		if !bytes.Equal(first, f.of(body)) {
			t.Fatal("the same body has two forms")
		}
	}
}

// What the API shows is hashed once for each pod that is made for it.
func TestHashHasWhatIsShown(t *testing.T) {
	sum := func(phase v1.PodPhase) uint64 {
		var h rolling
		pod := &v1.Pod{Status: v1.PodStatus{Phase: phase}}
		for range 2 {
			h.step(1, world.Event{Time: Start}, []world.Effect{
				{Body: &world.PodsAnswer{Pods: []*v1.Pod{pod}}},
			})
		}
		return h.sum()
	}
	if sum(v1.PodRunning) != sum(v1.PodRunning) || sum(v1.PodRunning) == sum(v1.PodPending) {
		t.Error("the hash does not follow what is shown")
	}
}
