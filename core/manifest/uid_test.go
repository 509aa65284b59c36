package manifest

import (
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"

	"seedlet.dev/core/document"
	"seedlet.dev/world/yamljson"
)

// The UIDs are those that the kubelet of the release gives. Lines of testdata/static-pods.txt are
// what `go -C realworld/cluster/tools run ./podtypes MANIFEST...` prints.
func TestUIDsAreTheKubelets(t *testing.T) {
	lines, err := os.ReadFile("testdata/static-pods.txt")
	if err != nil {
		t.Fatal(err)
	}
	rows := strings.Split(strings.TrimSpace(string(lines)), "\n")
	if paths, _ := filepath.Glob("testdata/static/*"); len(paths) != len(rows) {
		t.Errorf("%d manifests, %d rows", len(paths), len(rows))
	}
	for _, row := range rows {
		fields := strings.Fields(row)
		data, err := os.ReadFile("testdata/static/" + fields[0])
		if err != nil {
			t.Fatal(err)
		}
		doc, err := yamljson.Parse(data)
		if err != nil {
			t.Fatal(err)
		}
		for i, from := range []location{
			{OriginFile, "/etc/kubernetes/manifests/" + fields[0], "node-1"},
			{OriginHTTP, "http://manifests.test/" + fields[0], "node-1"},
		} {
			pod := &v1.Pod{}
			if _, err := document.Decode(doc, pod); err != nil {
				t.Fatalf("%s: %v", fields[0], err)
			}
			SetDefaults(pod)
			if got := contentUID(pod, from); string(got) != fields[i+1] {
				var text strings.Builder
				writeInternal(&text, pod)
				t.Errorf("the UID of %s is %s, want %s\n%s", fields[0], got, fields[i+1], &text)
			}
		}
	}
}

// Every type that a pod has can be written.
func TestUIDsOfEveryType(t *testing.T) {
	known := map[reflect.Type]bool{}
	var check func(of reflect.Type)
	check = func(of reflect.Type) {
		if known[of] || of == reflect.TypeFor[*time.Location]() {
			return
		}
		known[of] = true
		switch of.Kind() {
		case reflect.Struct:
			for i := range of.NumField() {
				check(of.Field(i).Type)
			}
		case reflect.Pointer, reflect.Slice:
			check(of.Elem())
		case reflect.Map:
			if !of.ConvertibleTo(reflect.TypeFor[v1.ResourceList]()) &&
				of != reflect.TypeFor[map[string]string]() {
				t.Errorf("a map of type %s", of)
			}
		case reflect.Interface, reflect.Func, reflect.Chan, reflect.Float32, reflect.Float64:
			t.Errorf("the type %s", of)
		}
	}
	check(reflect.TypeFor[v1.Pod]())
}
