package apiserver

import (
	"encoding/json"
	"fmt"
	"slices"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
	"k8s.io/apimachinery/pkg/util/validation"

	"seedlet.dev/world"
)

// perform does what somebody asks for, if it is permitted.
func (s *Server) perform(who author, body any) (any, *world.Error) {
	if who.isNode() {
		if err := s.permit(body); err != nil {
			return nil, err
		}
	}
	switch m := body.(type) {
	case *world.GetObject:
		o, err := s.find(body, key{m.Resource, m.Namespace, m.Name})
		return read(o, err)
	case *world.CreateObject:
		o, err := s.create(who, m)
		return read(o, err)
	case *world.UpdateObject:
		o, err := s.update(who, m)
		return read(o, err)
	case *world.PatchObject:
		o, err := s.patch(who, m)
		return read(o, err)
	case *world.DeleteObject:
		if err := s.delete(who, m); err != nil {
			return nil, err
		}
		return &world.Done{}, nil
	case *world.CreateToken:
		return s.token(who, m)
	}
	panic("apiserver: no such call: " + world.BodyName(body))
}

func read(o world.Object, err *world.Error) (any, *world.Error) {
	if err != nil {
		return nil, err
	}
	return &world.ObjectRead{Object: o}, nil
}

func (s *Server) find(body any, k key) (world.Object, *world.Error) {
	o, is := s.store.objects[k]
	if !is {
		return o, world.Errorf(world.KindNotFound, world.Call(body), "%s %q not found", k.resource,
			k.name)
	}
	return o, nil
}

func (s *Server) create(who author, m *world.CreateObject) (world.Object, *world.Error) {
	invalid := func(format string, args ...any) (world.Object, *world.Error) {
		return world.Object{}, world.Errorf(world.KindInvalid, world.Call(m), format, args...)
	}
	r := m.Object.Of()
	if r == "" {
		return invalid("there is no object")
	}
	o := clone(m.Object)
	_, meta := o.Get()
	if meta.GetResourceVersion() != "" {
		return invalid("resourceVersion should not be set on objects to be created")
	}
	if meta.GetName() == "" && meta.GetGenerateName() != "" {
		meta.SetName(fmt.Sprintf("%s%05x", meta.GetGenerateName(), s.uids.Uint64()&0xfffff))
	}
	if why := badName(r, meta); why != "" {
		return invalid("%s", why)
	}
	if _, taken := s.store.objects[keyOf(&o)]; taken {
		return world.Object{}, world.Errorf(world.KindExists, world.Call(m), "%s %q already exists",
			r, meta.GetName())
	}
	meta.SetUID(types.UID(s.newUID()))
	meta.SetCreationTimestamp(s.now())
	meta.SetDeletionTimestamp(nil)
	meta.SetDeletionGracePeriodSeconds(nil)
	meta.SetGeneration(0)
	prepareToCreate(&o)
	if why := badObject(&o); why != "" {
		return invalid("%s", why)
	}
	return s.put(who, clone(o), false), nil
}

// namespaced says whether objects of a resource are in namespaces.
func namespaced(r world.Resource) bool {
	return r != world.ResourceNodes && r != world.ResourceRuntimeClasses &&
		r != world.ResourceTrustBundles
}

func badName(r world.Resource, meta metav1.Object) string {
	switch {
	case namespaced(r) && meta.GetNamespace() == "":
		return "an empty namespace may not be set during creation"
	case !namespaced(r) && meta.GetNamespace() != "":
		return "namespace: not allowed on this type"
	case r == world.ResourceTrustBundles: // badBundle knows what they are called
	case len(validation.IsDNS1123Subdomain(meta.GetName())) > 0:
		return fmt.Sprintf("metadata.name: Invalid value: %q", meta.GetName())
	}
	return ""
}

// update replaces an object but for its status.
func (s *Server) update(who author, m *world.UpdateObject) (world.Object, *world.Error) {
	if m.Object.Of() == "" {
		return world.Object{}, world.Errorf(world.KindInvalid, world.Call(m), "there is no object")
	}
	old, err := s.find(m, keyOf(&m.Object))
	if err != nil {
		return old, err
	}
	_, meta := m.Object.Get()
	if r := old.Of(); meta.GetResourceVersion() == "" &&
		slices.Contains([]world.Resource{world.ResourceLeases, world.ResourceRuntimeClasses,
			world.ResourceTrustBundles}, r) {
		return old, world.Errorf(world.KindInvalid, world.Call(m),
			"metadata.resourceVersion: Invalid value: 0: must be specified for an update")
	}
	return s.replace(who, m, old, clone(m.Object), false)
}

func (s *Server) patch(who author, m *world.PatchObject) (world.Object, *world.Error) {
	old, err := s.find(m, key{m.Resource, m.Namespace, m.Name})
	if err != nil {
		return old, err
	}
	invalid := func(err error) (world.Object, *world.Error) {
		return old, world.Errorf(world.KindInvalid, world.Call(m), "%s", err)
	}
	original, e := json.Marshal(typed(&old))
	if e != nil {
		panic("apiserver: " + e.Error())
	}
	patched, e := strategicpatch.StrategicMergePatch(original, m.Patch, typed(&old))
	if e != nil {
		return invalid(e)
	}
	after := emptyLike(&old)
	if e := json.Unmarshal(patched, typed(&after)); e != nil {
		return invalid(e)
	}
	if keyOf(&after) != keyOf(&old) {
		return invalid(fmt.Errorf("the name of the object is not the one in the path"))
	}
	return s.replace(who, m, old, clone(after), m.Status)
}

// emptyLike is an empty object of the same resource.
func emptyLike(o *world.Object) world.Object {
	var empty world.Object
	name := map[world.Resource]string{
		world.ResourcePods: "pod", world.ResourceNodes: "node",
		world.ResourceServices: "service", world.ResourceConfigMaps: "configMap",
		world.ResourceSecrets: "secret", world.ResourceRuntimeClasses: "runtimeClass",
		world.ResourceLeases: "lease", world.ResourceTrustBundles: "trustBundle",
	}[o.Of()]
	if err := json.Unmarshal([]byte(`{"`+name+`":{}}`), &empty); err != nil {
		panic("apiserver: " + err.Error())
	}
	return empty
}

// replace stores an object in place of the one there is, or its status in place of that one's.
func (s *Server) replace(who author, body any, old, o world.Object, status bool) (
	world.Object, *world.Error) {
	fail := func(kind world.ErrorKind, format string, args ...any) (world.Object, *world.Error) {
		return old, world.Errorf(kind, world.Call(body), format, args...)
	}
	_, was := old.Get()
	_, meta := o.Get()
	switch {
	case meta.GetUID() != "" && meta.GetUID() != was.GetUID():
		return fail(world.KindConflict, "Precondition failed: UID in precondition: %s, UID in "+
			"object meta: %s", meta.GetUID(), was.GetUID())
	case meta.GetResourceVersion() != "" && meta.GetResourceVersion() != was.GetResourceVersion():
		return fail(world.KindConflict, "the object has been modified; please apply your changes "+
			"to the latest version and try again")
	}
	meta.SetUID(was.GetUID())
	meta.SetGeneration(was.GetGeneration())
	meta.SetCreationTimestamp(was.GetCreationTimestamp())
	meta.SetDeletionTimestamp(was.GetDeletionTimestamp())
	meta.SetDeletionGracePeriodSeconds(was.GetDeletionGracePeriodSeconds())
	if status {
		prepareStatus(&o, &old)
	} else {
		prepareToReplace(&o, &old)
	}
	if who.isNode() {
		if why := s.restricts(&o, &old); why != "" {
			return fail(world.KindRefused, "%s", why)
		}
	}
	if why := badChange(&o, &old, status); why != "" {
		return fail(world.KindInvalid, "%s", why)
	}
	o = clone(o)
	if _, meta := o.Get(); over(meta) {
		s.drop(who, o) // its last finalizer has gone
		return o, nil
	}
	return s.put(who, o, status), nil
}

// prepareToCreate sets what the server sets in a new object.
func prepareToCreate(o *world.Object) {
	switch {
	case o.Pod != nil:
		preparePod(o.Pod)
	case o.Node != nil:
		// The admission plugin TaintNodesByCondition.
		o.Node.Spec.Taints = append(o.Node.Spec.Taints,
			v1.Taint{Key: v1.TaintNodeNotReady, Effect: v1.TaintEffectNoSchedule})
	case o.Secret != nil:
		inBytes(o.Secret)
		if o.Secret.Type == "" {
			o.Secret.Type = v1.SecretTypeOpaque
		}
	}
}

// inBytes moves what is written as text to where it is read.
func inBytes(s *v1.Secret) {
	for name, text := range s.StringData { //ordered: into a map again
		if s.Data == nil {
			s.Data = map[string][]byte{}
		}
		s.Data[name] = []byte(text)
	}
	s.StringData = nil
}

// prepareToReplace keeps what cannot be changed but through the status subresource.
func prepareToReplace(o, old *world.Object) {
	switch {
	case o.Pod != nil:
		o.Pod.Status = old.Pod.Status
		if !equality.Semantic.DeepEqual(o.Pod.Spec, old.Pod.Spec) {
			o.Pod.Generation++
		}
	case o.Node != nil:
		o.Node.Status = old.Node.Status
	case o.Service != nil:
		o.Service.Status = old.Service.Status
	case o.Secret != nil:
		inBytes(o.Secret)
	}
}

// prepareStatus keeps what cannot be changed through the status subresource.
func prepareStatus(o, old *world.Object) {
	switch {
	case o.Pod != nil:
		preparePodStatus(o.Pod, old.Pod)
	case o.Node != nil:
		o.Node.Spec = old.Node.Spec
	case o.Service != nil:
		o.Service.Spec = old.Service.Spec
	}
}
