package criconfig

import (
	"errors"
	"fmt"
	"maps"
	"slices"

	v1 "k8s.io/api/core/v1"

	"seedlet.dev/core/objectcache"
	"seedlet.dev/world"
)

// Environment variables from the keys of ConfigMaps and Secrets.

// findObject returns an object that the pod refers to.
func (p *Pod) findObject(r world.Resource, name string) objectcache.LookupResult {
	if p.Objects == nil {
		return objectcache.LookupResult{Err: errors.New("no API server is configured")}
	}
	return p.Objects.Lookup(r, p.Spec.Namespace, name)
}

// keyValue returns the value of one key. An optional key may not be found.
func (p *Pod) keyValue(from *v1.EnvVarSource) (value []byte, found bool, err error) {
	var name, key, kind string
	var optional *bool
	var result objectcache.LookupResult
	switch ref, secret := from.ConfigMapKeyRef, from.SecretKeyRef; {
	case ref != nil:
		name, key, kind, optional = ref.Name, ref.Key, "ConfigMap", ref.Optional
		result = p.findObject(world.ResourceConfigMaps, name)
	default:
		name, key, kind, optional = secret.Name, secret.Key, "Secret", secret.Optional
		result = p.findObject(world.ResourceSecrets, name)
	}
	namespace := p.Spec.Namespace
	switch {
	case result.Known && result.Object == nil && isTrue(optional):
		return nil, false, nil
	case result.Err != nil:
		return nil, false, result.Err
	case result.Object == nil:
		return nil, false, fmt.Errorf("%s %s/%s is not known yet", kind, namespace, name)
	}
	value, found = dataValue(result.Object, key)
	if !found && !isTrue(optional) {
		err = fmt.Errorf("couldn't find key %v in %s %v/%v", key, kind, namespace, name)
	}
	return value, found, err
}

// addEnvFrom adds a variable for every key of an object, in order. Every name that a key can have
// is a valid name of a variable as well (KEP-4369).
func (p *Pod) addEnvFrom(variables *Variables, from *v1.EnvFromSource) error {
	var name string
	var optional *bool
	var result objectcache.LookupResult
	switch {
	case from.ConfigMapRef != nil:
		name, optional = from.ConfigMapRef.Name, from.ConfigMapRef.Optional
		result = p.findObject(world.ResourceConfigMaps, name)
	case from.SecretRef != nil:
		name, optional = from.SecretRef.Name, from.SecretRef.Optional
		result = p.findObject(world.ResourceSecrets, name)
	default:
		return nil
	}
	switch {
	case result.Known && result.Object == nil && isTrue(optional):
		return nil
	case result.Err != nil:
		return result.Err
	case result.Object == nil:
		return fmt.Errorf("%s/%s is not known yet", p.Spec.Namespace, name)
	}
	if err := variables.grow(dataCount(result.Object), "with those of "+name); err != nil {
		return err
	}
	for _, key := range p.sortedKeys(result.Object) {
		value, _ := dataValue(result.Object, key)
		if err := variables.add(from.Prefix+key, value); err != nil {
			return err
		}
	}
	return nil
}

// sortedKeys returns the keys of an object. They are sorted once, as many containers may take
// variables from one object.
func (p *Pod) sortedKeys(o *world.Object) []string {
	keys, isKnown := p.keysOf[o]
	if !isKnown {
		if p.keysOf == nil {
			p.keysOf = map[*world.Object][]string{}
		}
		keys = sortedKeys(o)
		p.keysOf[o] = keys
	}
	return keys
}

// sortedKeys returns the keys of a ConfigMap or Secret. Those of binary data of a ConfigMap are
// left out: no variable is taken from it.
func sortedKeys(o *world.Object) []string {
	switch {
	case o.Secret != nil:
		return slices.Sorted(maps.Keys(o.Secret.Data))
	case o.ConfigMap != nil:
		return slices.Sorted(maps.Keys(o.ConfigMap.Data))
	}
	return nil
}

// dataCount returns how many keys sortedKeys returns.
func dataCount(o *world.Object) int {
	switch {
	case o.Secret != nil:
		return len(o.Secret.Data)
	case o.ConfigMap != nil:
		return len(o.ConfigMap.Data)
	}
	return 0
}

// dataValue returns the text that a ConfigMap or Secret has under a key.
func dataValue(o *world.Object, key string) (value []byte, found bool) {
	switch {
	case o.Secret != nil:
		value, found = o.Secret.Data[key]
	case o.ConfigMap != nil:
		var text string
		text, found = o.ConfigMap.Data[key]
		value = []byte(text)
	}
	return value, found
}
