package world

import (
	"encoding/json"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	certificatesv1beta1 "k8s.io/api/certificates/v1beta1"
	coordinationv1 "k8s.io/api/coordination/v1"
	v1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// The API server port. What is wanted of it is watched; what is to be changed there is asked for.
//
// The contract of a watch: the first thing told is a list, and it is no older than when it was
// asked for (it is never served from a cache that is behind). Then come the changes, in their
// order, each at most once, none left out. After a gap of any kind comes a list again, and again
// the changes from there. All may be late. While the server does not let itself be watched, that
// is told, and the port goes on trying.
//
// The contract of an operation: Throttled, Conflict, Exists, NotFound, Invalid and Refused say
// that nothing has changed. The port repeats nothing by itself.

// Resource is a kind of objects, as paths of the API name it.
type Resource string

// The resources that a node has to do with.
const (
	ResourcePods           Resource = "pods" // those of this node only
	ResourceNodes          Resource = "nodes"
	ResourceServices       Resource = "services"
	ResourceConfigMaps     Resource = "configmaps"
	ResourceSecrets        Resource = "secrets"
	ResourceRuntimeClasses Resource = "runtimeclasses"
	ResourceLeases         Resource = "leases"
	// ResourceTrustBundles is one that a server may not have: a watch of it fails with
	// KindNotFound then.
	ResourceTrustBundles Resource = "clustertrustbundles"
)

// Object is one object of the API: exactly one of its fields is set.
type Object struct {
	Pod          *v1.Pod               `json:"pod,omitempty"`
	Node         *v1.Node              `json:"node,omitempty"`
	Service      *v1.Service           `json:"service,omitempty"`
	ConfigMap    *v1.ConfigMap         `json:"configMap,omitempty"`
	Secret       *v1.Secret            `json:"secret,omitempty"`
	RuntimeClass *nodev1.RuntimeClass  `json:"runtimeClass,omitempty"`
	Lease        *coordinationv1.Lease `json:"lease,omitempty"`

	TrustBundle *certificatesv1beta1.ClusterTrustBundle `json:"trustBundle,omitempty"`
}

// Get is the resource that the object is of, and what all objects have; empty for an empty one.
func (o *Object) Get() (Resource, metav1.Object) {
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
	}
	return "", nil
}

// Watched is what a watch is about: all objects of a resource, or one of them.
type Watched struct {
	Resource  Resource `json:"resource"`
	Namespace string   `json:"namespace,omitempty"`
	Name      string   `json:"name,omitempty"` // empty: all
}

// WatchID names one watch. The core numbers its watches in every life; zero is none.
type WatchID uint64

// WatchObjects begins to watch. It is not answered: ObjectsListed, ObjectChanged, ObjectGone and
// WatchFailing tell what is seen, until UnwatchObjects.
type WatchObjects struct {
	Watch WatchID `json:"watch"`
	Watched
}

// UnwatchObjects ends a watch. What was seen before may still be told. It is not answered.
type UnwatchObjects struct {
	Watch WatchID `json:"watch"`
}

// ObjectsListed tells all objects that a watch is about. What it does not have does not exist.
type ObjectsListed struct {
	Watch   WatchID  `json:"watch"`
	Objects []Object `json:"objects"` // by namespace and name
}

// ObjectChanged tells that an object was made or changed.
type ObjectChanged struct {
	Watch  WatchID `json:"watch"`
	Object Object  `json:"object"`
}

// ObjectGone tells that an object was removed, and how it was last.
type ObjectGone struct {
	Watch  WatchID `json:"watch"`
	Object Object  `json:"object"`
}

// WatchFailing tells that nothing can be seen at present, and why: once when it begins, and again
// when the reason is another. A list ends it.
type WatchFailing struct {
	Watch WatchID `json:"watch"`
	Err   *Error  `json:"err"`
}

// OnObjects is an operation on objects of one resource.
type OnObjects interface{ Of() Resource }

// Of is the resource of the object.
func (o *Object) Of() Resource {
	r, _ := o.Get()
	return r
}

// Of is the resource that is read.
func (g *GetObject) Of() Resource { return g.Resource }

// Of is the resource of what is made.
func (c *CreateObject) Of() Resource { return c.Object.Of() }

// Of is the resource of what is replaced.
func (u *UpdateObject) Of() Resource { return u.Object.Of() }

// Of is the resource of what is changed.
func (p *PatchObject) Of() Resource { return p.Resource }

// Of is the resource of what is removed.
func (d *DeleteObject) Of() Resource { return d.Resource }

// GetObject reads one object, no older than when it was asked for. Answered by ObjectRead; one
// that does not exist is KindNotFound.
type GetObject struct {
	Resource  Resource `json:"resource"`
	Namespace string   `json:"namespace,omitempty"`
	Name      string   `json:"name"`
}

// ObjectRead answers GetObject, and every operation that stores: the object as it is then.
type ObjectRead struct {
	Object Object `json:"object"`
}

// CreateObject makes an object. Answered by ObjectRead; one of that name is KindExists.
type CreateObject struct {
	Object Object `json:"object"`
}

// UpdateObject replaces an object. If it has a resource version and that is not the newest it is
// KindConflict. Answered by ObjectRead.
type UpdateObject struct {
	Object Object `json:"object"`
}

// PatchObject changes parts of an object, or of its status. Answered by ObjectRead. A patch that
// names another uid or resource version than the object has is KindConflict.
type PatchObject struct {
	Resource  Resource `json:"resource"`
	Namespace string   `json:"namespace,omitempty"`
	Name      string   `json:"name"`
	Status    bool     `json:"status,omitempty"` // the status subresource
	// Patch is a strategic merge patch, in JSON.
	Patch json.RawMessage `json:"patch"`
}

// DeleteObject removes an object; a pod, unless the grace period is zero, is only marked. Answered
// by Done. One that has another UID is KindConflict.
type DeleteObject struct {
	Resource           Resource `json:"resource"`
	Namespace          string   `json:"namespace,omitempty"`
	Name               string   `json:"name"`
	UID                string   `json:"uid,omitempty"`                // empty: whichever
	GracePeriodSeconds *int64   `json:"gracePeriodSeconds,omitempty"` // nil: the pod's own
}

// CreateToken asks for a token of a service account. Answered by TokenCreated.
type CreateToken struct {
	Namespace      string                            `json:"namespace"`
	ServiceAccount string                            `json:"serviceAccount"`
	Spec           authenticationv1.TokenRequestSpec `json:"spec"`
}

// TokenCreated answers CreateToken. The token is secret.
type TokenCreated struct {
	Token   string    `json:"token"`
	Expires time.Time `json:"expires"`
}

// RecordEvent tells the users of a cluster that something happened to a pod or to the node. It is
// a statement. The port makes Event objects of such, folds those that say the same, and drops what
// is too much: none is certain to arrive. Without an API server it is a log line only.
type RecordEvent struct {
	Regarding v1.ObjectReference `json:"regarding"`
	Type      string             `json:"type"`   // v1.EventTypeNormal or v1.EventTypeWarning
	Reason    string             `json:"reason"` // a word that programs know
	Message   string             `json:"message"`
}
