package objectcache

import (
	"fmt"

	"seedlet.dev/world"
)

// LookupResult is the result of looking up one object.
type LookupResult struct {
	// Known reports whether the object or its absence is known. If not, and without an error, a list
	// or a read is in progress.
	Known bool
	// Object is nil if the object does not exist, or is not known.
	Object *world.Object
	// Err is why there is no object, in the kubelet's words.
	Err error
}

// kindNames are the kubelet's names of resources in its messages.
var kindNames = map[world.Resource]string{
	world.ResourceConfigMaps: "configmap", world.ResourceSecrets: "secret",
	world.ResourceRuntimeClasses: "runtimeclass.node.k8s.io",
}

// Lookup is Get with an error for users that need the object.
func (s *Store) Lookup(r world.Resource, namespace, name string) LookupResult {
	o, known := s.Get(r, namespace, name)
	kind := kindNames[r]
	switch {
	case o != nil:
		return LookupResult{Known: true, Object: o}
	case known:
		return LookupResult{Known: true, Err: fmt.Errorf("%s %q not found", kind, name)}
	}
	w := s.Watch(world.WatchTarget{Resource: r, Namespace: namespace, Name: name})
	if w == nil || w.Failing == nil {
		return LookupResult{}
	}
	return LookupResult{Err: fmt.Errorf("failed to sync %s cache: timed out waiting for the condition",
		kind)}
}
