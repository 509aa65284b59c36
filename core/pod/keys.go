package pod

import (
	"errors"
	"fmt"
	"maps"
	"slices"

	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"seedlet.dev/core/object"
	"seedlet.dev/world"
)

// Variables from the keys of ConfigMaps and Secrets.

// find is an object that the pod refers to.
func (p *Pod) find(r world.Resource, name string, env *Env) object.Finding {
	if env.Objects == nil {
		return object.Finding{Err: errors.New("no API server is configured")}
	}
	return env.Objects.Find(r, p.Namespace, name)
}

// keyOf is the value of one key. What is optional may not be found.
func (p *Pod) keyOf(from *v1.EnvVarSource, env *Env) (value []byte, found bool, err error) {
	var name, key, kind string
	var optional *bool
	var is object.Finding
	switch ref, secret := from.ConfigMapKeyRef, from.SecretKeyRef; {
	case ref != nil:
		name, key, kind, optional = ref.Name, ref.Key, "ConfigMap", ref.Optional
		is = p.find(world.ResourceConfigMaps, name, env)
	default:
		name, key, kind, optional = secret.Name, secret.Key, "Secret", secret.Optional
		is = p.find(world.ResourceSecrets, name, env)
	}
	switch {
	case is.Known && is.Object == nil && isTrue(optional):
		return nil, false, nil
	case is.Err != nil:
		return nil, false, is.Err
	case is.Object == nil:
		return nil, false, fmt.Errorf("%s %s/%s is not known yet", kind, p.Namespace, name)
	}
	value, found = data(is.Object)[key]
	if !found && !isTrue(optional) {
		err = fmt.Errorf("couldn't find key %v in %s %v/%v", key, kind, p.Namespace, name)
	}
	return value, found, err
}

// envFrom adds a variable for every key of an object, in order. All names that keys can have are
// names of variables as well (KEP-4369).
func (p *Pod) envFrom(from *v1.EnvFromSource, to []*runtimeapi.KeyValue,
	env *Env) ([]*runtimeapi.KeyValue, error) {
	var name string
	var optional *bool
	var is object.Finding
	switch {
	case from.ConfigMapRef != nil:
		name, optional = from.ConfigMapRef.Name, from.ConfigMapRef.Optional
		is = p.find(world.ResourceConfigMaps, name, env)
	case from.SecretRef != nil:
		name, optional = from.SecretRef.Name, from.SecretRef.Optional
		is = p.find(world.ResourceSecrets, name, env)
	default:
		return to, nil
	}
	switch {
	case is.Known && is.Object == nil && isTrue(optional):
		return to, nil
	case is.Err != nil:
		return nil, is.Err
	case is.Object == nil:
		return nil, fmt.Errorf("%s/%s is not known yet", p.Namespace, name)
	}
	values := data(is.Object)
	for _, key := range slices.Sorted(maps.Keys(values)) {
		to = set(to, from.Prefix+key, values[key])
	}
	return to, nil
}

// data is what a ConfigMap or Secret says as text: variables are not taken from binary data.
func data(o *world.Object) map[string][]byte {
	if o.Secret != nil {
		return o.Secret.Data
	}
	values := map[string][]byte{}
	if o.ConfigMap != nil {
		for key, text := range o.ConfigMap.Data { //ordered: into a map
			values[key] = []byte(text)
		}
	}
	return values
}
