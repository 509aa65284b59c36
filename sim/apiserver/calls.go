package apiserver

import (
	"fmt"
	"reflect"
	"slices"

	certificatesv1beta1 "k8s.io/api/certificates/v1beta1"
	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/json"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
	"k8s.io/apimachinery/pkg/util/validation"

	"seedlet.dev/world"
)

// execute carries out a request if it is allowed.
func (s *Server) execute(by requester, body any) (any, *world.Error) {
	if by.isNode() {
		if err := s.authorize(body); err != nil {
			return nil, err
		}
	}
	switch m := body.(type) {
	case *world.GetObject:
		o, err := s.find(body, key{m.Resource, m.Namespace, m.Name})
		return objectRead(o, err)
	case *world.CreateObject:
		o, err := s.create(by, m)
		return objectRead(o, err)
	case *world.UpdateObject:
		o, err := s.update(by, m)
		return objectRead(o, err)
	case *world.PatchObject:
		o, err := s.patch(by, m)
		return objectRead(o, err)
	case *world.DeleteObject:
		if err := s.delete(by, m); err != nil {
			return nil, err
		}
		return &world.Done{}, nil
	case *world.CreateToken:
		return s.createToken(by, m)
	}
	panic("apiserver: unknown call: " + world.BodyName(body))
}

func objectRead(o world.Object, err *world.Error) (any, *world.Error) {
	if err != nil {
		return nil, err
	}
	return &world.ObjectRead{Object: o}, nil
}

func (s *Server) find(body any, k key) (world.Object, *world.Error) {
	o, exists := s.store.objects[k]
	if !exists {
		return o, world.Errorf(world.KindNotFound, world.CallName(body), "%s %q not found", k.resource,
			k.name)
	}
	return o, nil
}

func (s *Server) create(by requester, m *world.CreateObject) (world.Object, *world.Error) {
	invalid := func(format string, args ...any) (world.Object, *world.Error) {
		return world.Object{}, world.Errorf(world.KindInvalid, world.CallName(m), format, args...)
	}
	r := m.Object.Resource()
	if r == "" {
		return invalid("there is no object")
	}
	o := clone(m.Object)
	_, meta := o.Meta()
	if meta.GetResourceVersion() != "" {
		return invalid("resourceVersion should not be set on objects to be created")
	}
	if meta.GetName() == "" && meta.GetGenerateName() != "" {
		meta.SetName(fmt.Sprintf("%s%05x", meta.GetGenerateName(), s.uids.Uint64()&0xfffff))
	}
	if reason := validateName(r, meta); reason != "" {
		return invalid("%s", reason)
	}
	if _, taken := s.store.objects[keyOf(&o)]; taken {
		return world.Object{}, world.Errorf(world.KindExists, world.CallName(m), "%s %q already exists",
			r, meta.GetName())
	}
	meta.SetUID(types.UID(s.newUID()))
	meta.SetCreationTimestamp(s.now())
	meta.SetDeletionTimestamp(nil)
	meta.SetDeletionGracePeriodSeconds(nil)
	meta.SetGeneration(0)
	prepareToCreate(&o)
	if reason := validateCreate(&o); reason != "" {
		return invalid("%s", reason)
	}
	return s.put(by, clone(o), false), nil
}

// isNamespaced reports whether objects of a resource are in namespaces.
func isNamespaced(r world.Resource) bool {
	return !slices.Contains([]world.Resource{world.ResourceNodes, world.ResourceRuntimeClasses,
		world.ResourceTrustBundles, world.ResourceVolumes, world.ResourceAttachments,
		world.ResourceCSIDrivers, world.ResourceCSINodes}, r)
}

func validateName(r world.Resource, meta metav1.Object) string {
	switch {
	case isNamespaced(r) && meta.GetNamespace() == "":
		return "an empty namespace may not be set during creation"
	case !isNamespaced(r) && meta.GetNamespace() != "":
		return "namespace: not allowed on this type"
	case r == world.ResourceTrustBundles: // validateTrustBundle checks the name
	case len(validation.IsDNS1123Subdomain(meta.GetName())) > 0:
		return fmt.Sprintf("metadata.name: Invalid value: %q", meta.GetName())
	}
	return ""
}

// update replaces an object except for its status.
func (s *Server) update(by requester, m *world.UpdateObject) (world.Object, *world.Error) {
	if m.Object.Resource() == "" {
		return world.Object{}, world.Errorf(world.KindInvalid, world.CallName(m), "there is no object")
	}
	old, err := s.find(m, keyOf(&m.Object))
	if err != nil {
		return old, err
	}
	_, meta := m.Object.Meta()
	if r := old.Resource(); meta.GetResourceVersion() == "" &&
		slices.Contains([]world.Resource{world.ResourceLeases, world.ResourceRuntimeClasses,
			world.ResourceTrustBundles, world.ResourceAttachments, world.ResourceCSIDrivers,
			world.ResourceCSINodes}, r) {
		return old, world.Errorf(world.KindInvalid, world.CallName(m),
			"metadata.resourceVersion: Invalid value: 0: must be specified for an update")
	}
	return s.replace(by, m, old, clone(m.Object), false)
}

func (s *Server) patch(by requester, m *world.PatchObject) (world.Object, *world.Error) {
	old, err := s.find(m, key{m.Resource, m.Namespace, m.Name})
	if err != nil {
		return old, err
	}
	invalid := func(err error) (world.Object, *world.Error) {
		return old, world.Errorf(world.KindInvalid, world.CallName(m), "%s", err)
	}
	target := old
	if m.Status {
		target = withoutSpec(old)
	}
	// As in the API server, the patch is merged into the object as a map, which is not encoded.
	original, e := runtime.DefaultUnstructuredConverter.ToUnstructured(runtimeObject(&target))
	if e != nil {
		panic("apiserver: " + e.Error())
	}
	var changes map[string]any
	if e := json.Unmarshal(m.Patch, &changes); e != nil {
		return invalid(e)
	}
	patched, e := strategicpatch.StrategicMergeMapPatch(original, changes, runtimeObject(&old))
	if e != nil {
		return invalid(e)
	}
	after := emptyLike(&old)
	if e := runtime.DefaultUnstructuredConverter.FromUnstructured(patched,
		runtimeObject(&after)); e != nil {
		return invalid(e)
	}
	runtimeObject(&after).GetObjectKind().SetGroupVersionKind(schema.GroupVersionKind{})
	if keyOf(&after) != keyOf(&old) {
		return invalid(fmt.Errorf("the name of the object is not the one in the path"))
	}
	return s.replace(by, m, old, after, m.Status)
}

// withoutSpec returns an object without its spec, which no write to the status changes.
func withoutSpec(o world.Object) world.Object {
	switch {
	case o.Pod != nil:
		o.Pod = &v1.Pod{ObjectMeta: o.Pod.ObjectMeta, Status: o.Pod.Status}
	case o.Node != nil:
		o.Node = &v1.Node{ObjectMeta: o.Node.ObjectMeta, Status: o.Node.Status}
	case o.Claim != nil:
		o.Claim = &v1.PersistentVolumeClaim{ObjectMeta: o.Claim.ObjectMeta, Status: o.Claim.Status}
	}
	return o
}

// emptyLike returns an empty object of the same resource.
func emptyLike(o *world.Object) world.Object {
	var empty world.Object
	from, to := reflect.ValueOf(o).Elem(), reflect.ValueOf(&empty).Elem()
	for i := range from.NumField() {
		if field := from.Field(i); !field.IsNil() {
			to.Field(i).Set(reflect.New(field.Type().Elem()))
		}
	}
	return empty
}

// replace stores a new version of an object or, if status is set, of its status. The object is
// decoded, so its times are seconds; objects in the store never change, so versions share parts.
func (s *Server) replace(by requester, body any, old, o world.Object, status bool) (
	world.Object, *world.Error) {
	fail := func(kind world.ErrorKind, format string, args ...any) (world.Object, *world.Error) {
		return old, world.Errorf(kind, world.CallName(body), format, args...)
	}
	_, oldMeta := old.Meta()
	_, meta := o.Meta()
	switch {
	case meta.GetUID() != "" && meta.GetUID() != oldMeta.GetUID():
		return fail(world.KindConflict, "Precondition failed: UID in precondition: %s, UID in "+
			"object meta: %s", meta.GetUID(), oldMeta.GetUID())
	case meta.GetResourceVersion() != "" && meta.GetResourceVersion() != oldMeta.GetResourceVersion():
		return fail(world.KindConflict, "the object has been modified; please apply your changes "+
			"to the latest version and try again")
	}
	meta.SetUID(oldMeta.GetUID())
	meta.SetGeneration(oldMeta.GetGeneration())
	meta.SetCreationTimestamp(oldMeta.GetCreationTimestamp())
	meta.SetDeletionTimestamp(oldMeta.GetDeletionTimestamp())
	meta.SetDeletionGracePeriodSeconds(oldMeta.GetDeletionGracePeriodSeconds())
	if status {
		prepareStatus(&o, &old)
	} else {
		prepareToReplace(&o, &old)
	}
	if by.isNode() {
		if reason := s.restrictionReason(&o, &old); reason != "" {
			return fail(world.KindRefused, "%s", reason)
		}
	}
	if reason := validateUpdate(&o, &old, status, s.now().Time); reason != "" {
		return fail(world.KindInvalid, "%s", reason)
	}
	if o.Pod != nil && status && s.opts.StatusRoom != nil {
		if room := s.opts.StatusRoom(o.Pod.Name); room > 0 && o.Pod.Status.Size() > room {
			return fail(world.KindTooLarge, "etcdserver: request is too large")
		}
	}
	if canRemove(meta) {
		s.remove(by, o) // its last finalizer has been removed
		return o, nil
	}
	return s.put(by, o, status), nil
}

// prepareToCreate sets the fields of a new object that the server sets.
func prepareToCreate(o *world.Object) {
	switch {
	case o.Pod != nil:
		preparePod(o.Pod)
	case o.Node != nil:
		// As the admission plugin TaintNodesByCondition.
		o.Node.Spec.Taints = append(o.Node.Spec.Taints,
			v1.Taint{Key: v1.TaintNodeNotReady, Effect: v1.TaintEffectNoSchedule})
	case o.Claim != nil:
		o.Claim.Status = v1.PersistentVolumeClaimStatus{Phase: v1.ClaimPending}
	case o.Volume != nil:
		o.Volume.Status = v1.PersistentVolumeStatus{Phase: v1.VolumePending}
	case o.Attachment != nil:
		o.Attachment.Status = storagev1.VolumeAttachmentStatus{}
	case o.CertificateRequest != nil:
		o.CertificateRequest.Status = certificatesv1beta1.PodCertificateRequestStatus{}
	case o.CSIDriver != nil:
		setCSIDriverDefaults(&o.CSIDriver.Spec)
	case o.Secret != nil:
		mergeStringData(o.Secret)
		if o.Secret.Type == "" {
			o.Secret.Type = v1.SecretTypeOpaque
		}
	}
}

// mergeStringData moves StringData to Data, as the server does for every Secret.
func mergeStringData(s *v1.Secret) {
	for name, text := range s.StringData { //ordered: into a map again
		if s.Data == nil {
			s.Data = map[string][]byte{}
		}
		s.Data[name] = []byte(text)
	}
	s.StringData = nil
}

// prepareToReplace keeps the fields that can only be changed through the status subresource.
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
	case o.Claim != nil:
		o.Claim.Status = old.Claim.Status
	case o.Volume != nil:
		o.Volume.Status = old.Volume.Status
	case o.Attachment != nil:
		o.Attachment.Status = old.Attachment.Status
	case o.CertificateRequest != nil:
		o.CertificateRequest.Status = old.CertificateRequest.Status
	case o.Secret != nil:
		mergeStringData(o.Secret)
	}
}

// prepareStatus keeps the fields that cannot be changed through the status subresource.
func prepareStatus(o, old *world.Object) {
	switch {
	case o.Pod != nil:
		preparePodStatus(o.Pod, old.Pod)
	case o.Node != nil:
		o.Node.Spec = old.Node.Spec
	case o.Service != nil:
		o.Service.Spec = old.Service.Spec
	case o.Claim != nil:
		o.Claim.Spec = old.Claim.Spec
	case o.Volume != nil:
		o.Volume.Spec = old.Volume.Spec
	case o.Attachment != nil:
		o.Attachment.Spec = old.Attachment.Spec
	case o.CertificateRequest != nil:
		o.CertificateRequest.Spec = old.CertificateRequest.Spec
	}
}
