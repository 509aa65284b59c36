package plan

import (
	"strings"
	"testing"
	"testing/fstest"
)

// Scenarios of one pool may have an object in common; two objects of one name are an error that
// names the file.
func TestObjectsOfPool(t *testing.T) {
	scenario := func(name, data string) *fstest.MapFile {
		return &fstest.MapFile{Data: []byte(`apiVersion: sim.seedlet.dev/v1alpha1
kind: Scenario
metadata: {name: ` + name + `}
spec:
  description: Pods with an object.
  duration: 1m
  settle: 10m
  node: {api: true}
  objects:
  - name: settings
    object: {apiVersion: v1, kind: ConfigMap, metadata: {name: settings}, data: {a: ` + data + `}}
  pods:
  - count: 1..1
    api: true
    manifest:
      apiVersion: v1
      kind: Pod
      metadata: {name: web}
      spec: {containers: [{name: app, image: "registry.test/app:1"}]}
`)}
	}
	for other, wanted := range map[string]string{"one": "", "two": `.from[1]: the object "settings"`} {
		dir := fstest.MapFS{"a.yaml": scenario("a", "one"), "b.yaml": scenario("b", other),
			"pool.yaml": {Data: []byte(`apiVersion: sim.seedlet.dev/v1alpha1
kind: Scenario
metadata: {name: pool}
spec:
  description: Pods with an object.
  duration: 1m
  settle: 10m
  node: {api: true}
  pool: {from: [a.yaml, b.yaml], groups: 2..2, each: 1..1}
`)}}
		s, err := ReadScenario(dir, "pool.yaml")
		switch {
		case wanted != "":
			if err == nil || !strings.Contains(err.Error(), wanted) {
				t.Errorf("%v, want %q", err, wanted)
			}
		case err != nil:
			t.Error(err)
		default:
			p, err := Generate(s, 1)
			if err != nil || len(p.Spec.Pods) != 2 || len(p.Spec.Objects) != 1 {
				t.Errorf("%+v, %v, want two pods and one object", p, err)
			}
		}
	}
}
