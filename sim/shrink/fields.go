package shrink

import (
	"maps"
	"slices"

	"seedlet.dev/sim/plan"
)

// simplifyDocuments removes the fields of manifests and of the node's configuration that do not
// contribute to the failure, and entries of their lists, such as containers and volumes.
func (s *shrinker) simplifyDocuments() {
	for i := range s.best.Spec.Pods {
		for _, top := range []string{"spec", "metadata"} {
			s.removeFields([]any{top}, document{
				of: func(p *plan.Spec) map[string]any { return p.Pods[i].Manifest },
				set: func(p *plan.Spec, manifest map[string]any) {
					p.Pods = slices.Clone(p.Pods)
					pod := &p.Pods[i]
					pod.Behaviours = behavioursOf(pod.Behaviours, pod.Manifest, manifest)
					pod.Manifest = manifest
				},
			})
		}
	}
	s.removeFields(nil, document{
		of:  func(p *plan.Spec) map[string]any { return p.Node.Config },
		set: func(p *plan.Spec, config map[string]any) { p.Node.Config = config },
	})
}

// document is a tree of fields and lists within a plan.
type document struct {
	of  func(*plan.Spec) map[string]any
	set func(*plan.Spec, map[string]any)
}

// removeFields removes what is below a path of a document, largest parts first: a field with all
// that it holds, and only then what it holds.
func (s *shrinker) removeFields(path []any, d document) {
	switch below := valueAt(d.of(&s.best.Spec), path).(type) {
	case map[string]any:
		for _, field := range slices.Sorted(maps.Keys(below)) {
			s.removeField(append(slices.Clip(path), field), d)
		}
	case []any:
		for i := len(below) - 1; i >= 0; i-- { // from the end, so that indices stay valid
			s.removeField(append(slices.Clip(path), i), d)
		}
	}
}

// required are the fields without which a real API server takes no pod. That of the simulator takes
// any.
var required = []any{"name", "image", "containers"}

// removeField removes one field or entry, or parts of it.
func (s *shrinker) removeField(path []any, d document) {
	above, last := path[:len(path)-1], path[len(path)-1]
	if list, isList := valueAt(d.of(&s.best.Spec), above).([]any); slices.Contains(required, last) ||
		isList && len(list) == 1 && above[len(above)-1] == "containers" {
		s.removeFields(path, d)
		return
	}
	smaller := s.best.Clone()
	d.set(&smaller.Spec, without(d.of(&smaller.Spec), path).(map[string]any))
	if !s.try(smaller) {
		s.removeFields(path, d)
	}
}

// valueAt returns what is at a path of field names and indices.
func valueAt(tree any, path []any) any {
	for _, step := range path {
		switch step := step.(type) {
		case string:
			fields, _ := tree.(map[string]any)
			tree = fields[step]
		case int:
			tree = tree.([]any)[step]
		}
	}
	return tree
}

// without returns a tree without what is at a path. The given tree does not change; what is off the
// path is shared.
func without(tree any, path []any) any {
	switch step := path[0].(type) {
	case string:
		fields := maps.Clone(tree.(map[string]any))
		if len(path) == 1 {
			delete(fields, step)
		} else {
			fields[step] = without(fields[step], path[1:])
		}
		return fields
	default:
		i, list := step.(int), slices.Clone(tree.([]any))
		if len(path) == 1 {
			return slices.Delete(list, i, i+1)
		}
		list[i] = without(list[i], path[1:])
		return list
	}
}

// behavioursOf returns the behaviours without those of containers that a manifest has lost.
func behavioursOf(all []plan.Behaviour, before, after map[string]any) []plan.Behaviour {
	left := containersOf(after)
	lost := slices.DeleteFunc(containersOf(before), func(name any) bool {
		return slices.Contains(left, name)
	})
	return slices.DeleteFunc(slices.Clone(all), func(b plan.Behaviour) bool {
		return slices.Contains(lost, any(b.Container))
	})
}

// containersOf returns the names of the containers in a manifest.
func containersOf(manifest map[string]any) []any {
	var names []any
	for _, list := range []string{"initContainers", "containers"} {
		containers, _ := valueAt(manifest, []any{"spec", list}).([]any)
		for _, c := range containers {
			names = append(names, valueAt(c, []any{"name"}))
		}
	}
	return names
}
