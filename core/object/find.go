package object

import (
	"fmt"

	"seedlet.dev/world"
)

// Finding is what is known about one object.
type Finding struct {
	// Known says whether it is known at all. If not, and there is no error, it soon will be.
	Known bool
	// Object is nil if it does not exist, or if that is not known.
	Object *world.Object
	// Err is why there is no object, in the words of the kubelet.
	Err error
}

// kinds are how the kubelet calls an object in its messages.
var kinds = map[world.Resource]string{
	world.ResourceConfigMaps: "configmap", world.ResourceSecrets: "secret",
	world.ResourceRuntimeClasses: "runtimeclass.node.k8s.io",
}

// Find is One for who needs the object, and has to say what is wrong if it cannot be had.
func (s *Store) Find(r world.Resource, namespace, name string) Finding {
	o, known := s.One(r, namespace, name)
	kind := kinds[r]
	switch {
	case o != nil:
		return Finding{Known: true, Object: o}
	case known:
		return Finding{Known: true, Err: fmt.Errorf("%s %q not found", kind, name)}
	}
	w := s.Watch(world.Watched{Resource: r, Namespace: namespace, Name: name})
	if w == nil || w.Failing == nil {
		return Finding{}
	}
	return Finding{Err: fmt.Errorf("failed to sync %s cache: timed out waiting for the condition",
		kind)}
}

// Version tells apart two states of what is called by one name, objects that were removed and
// made again included.
func Version(o *world.Object) string { return version(o) }
