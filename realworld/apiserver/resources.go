package apiserver

import (
	"fmt"

	certificatesv1beta1 "k8s.io/api/certificates/v1beta1"
	coordinationv1 "k8s.io/api/coordination/v1"
	v1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/validation/path"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"seedlet.dev/world"
)

// resourceInfo describes how to request the objects of a resource.
type resourceInfo struct {
	version    schema.GroupVersion
	namespaced bool
	newObject  func() runtime.Object // an empty one
	newList    func() runtime.Object
}

var resources = map[world.Resource]resourceInfo{
	world.ResourcePods: {v1.SchemeGroupVersion, true,
		func() runtime.Object { return &v1.Pod{} },
		func() runtime.Object { return &v1.PodList{} }},
	world.ResourceNodes: {v1.SchemeGroupVersion, false,
		func() runtime.Object { return &v1.Node{} },
		func() runtime.Object { return &v1.NodeList{} }},
	world.ResourceServices: {v1.SchemeGroupVersion, true,
		func() runtime.Object { return &v1.Service{} },
		func() runtime.Object { return &v1.ServiceList{} }},
	world.ResourceConfigMaps: {v1.SchemeGroupVersion, true,
		func() runtime.Object { return &v1.ConfigMap{} },
		func() runtime.Object { return &v1.ConfigMapList{} }},
	world.ResourceSecrets: {v1.SchemeGroupVersion, true,
		func() runtime.Object { return &v1.Secret{} },
		func() runtime.Object { return &v1.SecretList{} }},
	world.ResourceRuntimeClasses: {nodev1.SchemeGroupVersion, false,
		func() runtime.Object { return &nodev1.RuntimeClass{} },
		func() runtime.Object { return &nodev1.RuntimeClassList{} }},
	world.ResourceLeases: {coordinationv1.SchemeGroupVersion, true,
		func() runtime.Object { return &coordinationv1.Lease{} },
		func() runtime.Object { return &coordinationv1.LeaseList{} }},
	world.ResourceTrustBundles: {certificatesv1beta1.SchemeGroupVersion, false,
		func() runtime.Object { return &certificatesv1beta1.ClusterTrustBundle{} },
		func() runtime.Object { return &certificatesv1beta1.ClusterTrustBundleList{} }},
	world.ResourceClaims: {v1.SchemeGroupVersion, true,
		func() runtime.Object { return &v1.PersistentVolumeClaim{} },
		func() runtime.Object { return &v1.PersistentVolumeClaimList{} }},
	world.ResourceVolumes: {v1.SchemeGroupVersion, false,
		func() runtime.Object { return &v1.PersistentVolume{} },
		func() runtime.Object { return &v1.PersistentVolumeList{} }},
	world.ResourceAttachments: {storagev1.SchemeGroupVersion, false,
		func() runtime.Object { return &storagev1.VolumeAttachment{} },
		func() runtime.Object { return &storagev1.VolumeAttachmentList{} }},
	world.ResourceCSIDrivers: {storagev1.SchemeGroupVersion, false,
		func() runtime.Object { return &storagev1.CSIDriver{} },
		func() runtime.Object { return &storagev1.CSIDriverList{} }},
	world.ResourceCSINodes: {storagev1.SchemeGroupVersion, false,
		func() runtime.Object { return &storagev1.CSINode{} },
		func() runtime.Object { return &storagev1.CSINodeList{} }},
	world.ResourceServiceAccounts: {v1.SchemeGroupVersion, true,
		func() runtime.Object { return &v1.ServiceAccount{} },
		func() runtime.Object { return &v1.ServiceAccountList{} }},
	world.ResourcePodCertificateRequests: {certificatesv1beta1.SchemeGroupVersion, true,
		func() runtime.Object { return &certificatesv1beta1.PodCertificateRequest{} },
		func() runtime.Object { return &certificatesv1beta1.PodCertificateRequestList{} }},
}

// objectOf returns an object of the API as the core knows it. It takes ownership of the object.
func objectOf(o runtime.Object) (world.Object, error) {
	var object world.Object
	switch o := o.(type) {
	case *v1.Pod:
		object.Pod = o
	case *v1.Node:
		object.Node = o
	case *v1.Service:
		object.Service = reducedService(o)
	case *v1.ConfigMap:
		object.ConfigMap = o
	case *v1.Secret:
		object.Secret = o
	case *nodev1.RuntimeClass:
		object.RuntimeClass = o
	case *coordinationv1.Lease:
		object.Lease = o
	case *certificatesv1beta1.ClusterTrustBundle:
		object.TrustBundle = o
	case *v1.PersistentVolumeClaim:
		object.Claim = o
	case *v1.PersistentVolume:
		object.Volume = o
	case *storagev1.VolumeAttachment:
		object.Attachment = o
	case *storagev1.CSIDriver:
		object.CSIDriver = o
	case *storagev1.CSINode:
		object.CSINode = o
	case *v1.ServiceAccount:
		object.ServiceAccount = o
	case *certificatesv1beta1.PodCertificateRequest:
		object.CertificateRequest = o
	default:
		return world.Object{}, fmt.Errorf("the server has sent a %T", o)
	}
	_, meta := object.Meta()
	meta.SetManagedFields(nil)
	o.GetObjectKind().SetGroupVersionKind(schema.GroupVersionKind{}) // set by some encodings only
	return object, nil
}

// reducedService returns what the variables of containers are made of. The agent keeps the services
// of all namespaces, and each of them may have 256 KiB of annotations.
func reducedService(s *v1.Service) *v1.Service {
	return &v1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: s.Namespace, Name: s.Name, UID: s.UID,
			ResourceVersion: s.ResourceVersion},
		Spec: v1.ServiceSpec{ClusterIP: s.Spec.ClusterIP, Ports: s.Spec.Ports},
	}
}

// checkName returns an error if no object of that namespace and name can exist.
func checkName(op string, r world.Resource, namespace, name string) error {
	info, ok := resources[r]
	switch {
	case !ok:
		return world.Errorf(world.KindInvalid, op, "there is no resource %q", r)
	case info.namespaced && namespace == "":
		return world.Errorf(world.KindInvalid, op, "no namespace")
	case name == "":
		return world.Errorf(world.KindInvalid, op, "no name")
	}
	for _, segment := range []string{namespace, name} {
		if problems := path.IsValidPathSegmentName(segment); len(problems) > 0 {
			return world.Errorf(world.KindInvalid, op, "%q %s", segment, problems[0])
		}
	}
	return nil
}
