package objectcache

import (
	certificatesv1beta1 "k8s.io/api/certificates/v1beta1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"seedlet.dev/core/budget"
	"seedlet.dev/world"
)

// The requests for certificates that name the node come by one watch, and a client that may create
// such requests can fill it. So of these objects only those are kept that a user awaits by name,
// and of each what its user needs.

// keepsOnlyAwaited reports whether a watch keeps only the objects that a user awaits.
func (w *Watch) keepsOnlyAwaited() bool {
	return w.Target.Resource == world.ResourcePodCertificateRequests
}

// Await has the object of a name (namespace/name) kept for a user from now on.
func (w *Watch) Await(name, user string) {
	if w.Awaited == nil {
		w.Awaited = map[string]string{}
	}
	w.Awaited[name] = user
}

// Release drops an object that was awaited.
func (w *Watch) Release(name string) {
	delete(w.Awaited, name)
	delete(w.Objects, name)
}

// releaseAll drops the objects that a user awaits.
func (w *Watch) releaseAll(user string) {
	for name, owner := range w.Awaited { //ordered: each is dropped by itself
		if owner == user {
			w.Release(name)
		}
	}
}

// keeps reports whether the object of a name is kept.
func (w *Watch) keeps(name string) bool { return !w.keepsOnlyAwaited() || w.Awaited[name] != "" }

// condensed returns what is kept of an object. The metadata of a request can have as many bytes as
// its author likes, and so can a spec that is not the user's: such a request has neither spec nor
// status here, so it is not the one that its user has created.
func condensed(o world.Object) world.Object {
	r := o.CertificateRequest
	if r == nil {
		return o
	}
	kept := &certificatesv1beta1.PodCertificateRequest{ObjectMeta: metav1.ObjectMeta{
		Namespace: r.Namespace, Name: r.Name, UID: r.UID, ResourceVersion: r.ResourceVersion}}
	if r.Spec.Size()+r.Status.Size() <= budget.CertificateRequestMax {
		kept.Spec, kept.Status = r.Spec, r.Status
	}
	return world.Object{CertificateRequest: kept}
}
