package world

import (
	"encoding/json"

	authenticationv1 "k8s.io/api/authentication/v1"
	certificatesv1beta1 "k8s.io/api/certificates/v1beta1"
	coordinationv1 "k8s.io/api/coordination/v1"
	v1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// The API server port. The core reads desired objects by watches and changes objects by operations.
//
// A watch delivers, for each WatchID:
//
//   - first ObjectsListed, which is never older than the WatchObjects effect (the port does not
//     serve it from a stale cache);
//   - then every change in order: each at most once, and none is skipped;
//   - after a gap of any kind another ObjectsListed, and the changes from there on.
//
// All of these may be delayed. While the server cannot be watched the port delivers WatchFailing
// and keeps retrying.
//
// An operation that fails with KindThrottled, KindConflict, KindExists, KindNotFound, KindInvalid
// or KindRefused has changed nothing. The port retries no operation by itself.

// Resource is a resource of the Kubernetes API, as it is named in the API's paths.
type Resource string

// The resources that the node agent watches, reads or writes.
const (
	ResourcePods           Resource = "pods" // only the pods that are bound to this node
	ResourceNodes          Resource = "nodes"
	ResourceServices       Resource = "services"
	ResourceConfigMaps     Resource = "configmaps"
	ResourceSecrets        Resource = "secrets"
	ResourceRuntimeClasses Resource = "runtimeclasses"
	ResourceLeases         Resource = "leases"
	// ResourceTrustBundles is not served by every API server: a watch of it fails with KindNotFound
	// on a server that does not serve it.
	ResourceTrustBundles Resource = "clustertrustbundles"
	// A node can read single claims, volumes and attachments that are related to its pods, and can
	// watch none of them.
	ResourceClaims      Resource = "persistentvolumeclaims"
	ResourceVolumes     Resource = "persistentvolumes"
	ResourceAttachments Resource = "volumeattachments"
	ResourceCSIDrivers  Resource = "csidrivers"
	ResourceCSINodes    Resource = "csinodes" // a node has one, with its own name
	// A node can read single service accounts that its pods use, and can watch none.
	ResourceServiceAccounts Resource = "serviceaccounts"
	// ResourcePodCertificateRequests is not served by every API server either. All that a node
	// watches are those that name it.
	ResourcePodCertificateRequests Resource = "podcertificaterequests"
)

// Object is one API object. Exactly one of its fields is set.
type Object struct {
	Pod          *v1.Pod               `json:"pod,omitempty"`
	Node         *v1.Node              `json:"node,omitempty"`
	Service      *v1.Service           `json:"service,omitempty"`
	ConfigMap    *v1.ConfigMap         `json:"configMap,omitempty"`
	Secret       *v1.Secret            `json:"secret,omitempty"`
	RuntimeClass *nodev1.RuntimeClass  `json:"runtimeClass,omitempty"`
	Lease        *coordinationv1.Lease `json:"lease,omitempty"`

	TrustBundle *certificatesv1beta1.ClusterTrustBundle `json:"trustBundle,omitempty"`

	Claim      *v1.PersistentVolumeClaim   `json:"claim,omitempty"`
	Volume     *v1.PersistentVolume        `json:"volume,omitempty"`
	Attachment *storagev1.VolumeAttachment `json:"attachment,omitempty"`
	CSIDriver  *storagev1.CSIDriver        `json:"csiDriver,omitempty"`
	CSINode    *storagev1.CSINode          `json:"csiNode,omitempty"`

	ServiceAccount *v1.ServiceAccount `json:"serviceAccount,omitempty"`

	CertificateRequest *certificatesv1beta1.PodCertificateRequest `json:"certificateRequest,omitempty"`
}

// Meta returns the resource and the metadata of the object, and zero values if no field is set.
func (o *Object) Meta() (Resource, metav1.Object) {
	switch {
	case o.Pod != nil:
		return ResourcePods, o.Pod
	case o.Node != nil:
		return ResourceNodes, o.Node
	case o.Service != nil:
		return ResourceServices, o.Service
	case o.ConfigMap != nil:
		return ResourceConfigMaps, o.ConfigMap
	case o.Secret != nil:
		return ResourceSecrets, o.Secret
	case o.RuntimeClass != nil:
		return ResourceRuntimeClasses, o.RuntimeClass
	case o.Lease != nil:
		return ResourceLeases, o.Lease
	case o.TrustBundle != nil:
		return ResourceTrustBundles, o.TrustBundle
	case o.Claim != nil:
		return ResourceClaims, o.Claim
	case o.Volume != nil:
		return ResourceVolumes, o.Volume
	case o.Attachment != nil:
		return ResourceAttachments, o.Attachment
	case o.CSIDriver != nil:
		return ResourceCSIDrivers, o.CSIDriver
	case o.CSINode != nil:
		return ResourceCSINodes, o.CSINode
	case o.ServiceAccount != nil:
		return ResourceServiceAccounts, o.ServiceAccount
	case o.CertificateRequest != nil:
		return ResourcePodCertificateRequests, o.CertificateRequest
	}
	return "", nil
}

// WatchTarget selects what a watch covers: all objects of a resource, or one object.
type WatchTarget struct {
	Resource  Resource `json:"resource"`
	Namespace string   `json:"namespace,omitempty"`
	Name      string   `json:"name,omitempty"` // empty: all objects
}

// WatchID identifies one watch. The core numbers its watches in every incarnation of the agent;
// zero is no watch.
type WatchID uint64

// WatchObjects starts a watch. It has no completion: the port delivers ObjectsListed,
// ObjectChanged, ObjectGone and WatchFailing events until UnwatchObjects.
type WatchObjects struct {
	Watch WatchID `json:"watch"`
	WatchTarget
}

// UnwatchObjects ends a watch. Events that the port has seen before may still be delivered. It has
// no completion.
type UnwatchObjects struct {
	Watch WatchID `json:"watch"`
}

// ObjectsListed holds all objects that a watch covers. An object that is missing from it does not
// exist.
type ObjectsListed struct {
	Watch   WatchID  `json:"watch"`
	Objects []Object `json:"objects"` // sorted by namespace and name
}

// ObjectChanged reports that an object was created or changed.
type ObjectChanged struct {
	Watch  WatchID `json:"watch"`
	Object Object  `json:"object"`
}

// ObjectGone reports that an object was removed, with its last state.
type ObjectGone struct {
	Watch  WatchID `json:"watch"`
	Object Object  `json:"object"`
}

// WatchFailing reports that the objects cannot be watched at present, and why. The port sends it
// once when the failure starts, and again when the reason changes. The next ObjectsListed ends it.
type WatchFailing struct {
	Watch WatchID `json:"watch"`
	Err   *Error  `json:"err"`
}

// ObjectOperation is an operation on objects of one resource.
type ObjectOperation interface{ TargetResource() Resource }

// Resource returns the resource of the object.
func (o *Object) Resource() Resource {
	r, _ := o.Meta()
	return r
}

// TargetResource returns the resource that is read.
func (g *GetObject) TargetResource() Resource { return g.Resource }

// TargetResource returns the resource of the object that is created.
func (c *CreateObject) TargetResource() Resource { return c.Object.Resource() }

// TargetResource returns the resource of the object that is replaced.
func (u *UpdateObject) TargetResource() Resource { return u.Object.Resource() }

// TargetResource returns the resource of the object that is patched.
func (p *PatchObject) TargetResource() Resource { return p.Resource }

// TargetResource returns the resource of the object that is deleted.
func (d *DeleteObject) TargetResource() Resource { return d.Resource }

// GetObject reads one object. The result is not older than the effect. It completes with
// ObjectRead, or with KindNotFound if the object does not exist.
type GetObject struct {
	Resource  Resource `json:"resource"`
	Namespace string   `json:"namespace,omitempty"`
	Name      string   `json:"name"`
}

// ObjectRead is the completion of GetObject and of every operation that stores an object. It holds
// the object as it is after the operation.
type ObjectRead struct {
	Object Object `json:"object"`
}

// CreateObject creates an object. It completes with ObjectRead, or with KindExists if the name is
// taken.
type CreateObject struct {
	Object Object `json:"object"`
}

// UpdateObject replaces an object. It completes with ObjectRead, or with KindConflict if the object
// names a resource version that is not the newest.
type UpdateObject struct {
	Object Object `json:"object"`
}

// PatchObject patches an object, or its status. It completes with ObjectRead, or with KindConflict
// if the patch names another UID or resource version than the object has.
type PatchObject struct {
	Resource  Resource `json:"resource"`
	Namespace string   `json:"namespace,omitempty"`
	Name      string   `json:"name"`
	Status    bool     `json:"status,omitempty"` // patch the status subresource
	// Patch is a strategic merge patch in JSON.
	Patch json.RawMessage `json:"patch"`
}

// DeleteObject deletes an object. A pod is only marked for deletion unless the grace period is
// zero. It completes with Done, or with KindConflict if the object has another UID.
type DeleteObject struct {
	Resource           Resource `json:"resource"`
	Namespace          string   `json:"namespace,omitempty"`
	Name               string   `json:"name"`
	UID                string   `json:"uid,omitempty"`                // empty: any UID
	GracePeriodSeconds *int64   `json:"gracePeriodSeconds,omitempty"` // nil: the pod's own
}

// CreateToken requests a token of a service account (TokenRequest API). It completes with
// TokenCreated, or with KindConflict if the service account has another UID.
type CreateToken struct {
	Namespace      string                            `json:"namespace"`
	ServiceAccount string                            `json:"serviceAccount"`
	UID            string                            `json:"uid,omitempty"` // empty: any UID
	Spec           authenticationv1.TokenRequestSpec `json:"spec"`
}

// TokenCreated is the completion of CreateToken. The token is secret.
type TokenCreated struct {
	Token string `json:"token"`
	// ExpirationSeconds is for how long the token is valid: what was requested, unless the server has
	// shortened it. It does not depend on the server's clock, as the time of expiration does.
	ExpirationSeconds int64 `json:"expirationSeconds"`
}

// RecordEvent records a Kubernetes Event about a pod or the node. It is one-way. The port creates
// the Event objects, aggregates repeated events and drops events above its rate limit, so delivery
// is not guaranteed. Without an API server the event is only logged.
type RecordEvent struct {
	Regarding v1.ObjectReference `json:"regarding"`
	Type      string             `json:"type"`   // v1.EventTypeNormal or v1.EventTypeWarning
	Reason    string             `json:"reason"` // machine-readable, in CamelCase
	Message   string             `json:"message"`
	// Annotations are those of the Event object; it is not aggregated with events of others.
	Annotations map[string]string `json:"annotations,omitempty"`
}
