package core

import (
	"seedlet.dev/core/criconfig"
	"seedlet.dev/core/csi"
	"seedlet.dev/core/objectcache"
	"seedlet.dev/core/pod"
	"seedlet.dev/core/podcertificate"
	"seedlet.dev/core/scsi"
	"seedlet.dev/world"
)

// The objects at the API server that pods refer to.

// objectStore returns where pods find the objects of the API server; nil without an API server.
func (a *Agent) objectStore() *objectcache.Store {
	if !a.state.HasAPIServer {
		return nil
	}
	return &a.state.Objects
}

// enqueueUsers enqueues the pods that refer to an object that has changed. Later changes of
// services do not affect containers that exist.
func (a *Agent) enqueueUsers(watch *objectcache.Watch, body any) {
	if watch.Target == criconfig.AllServices {
		switch body.(type) {
		case *world.ObjectChanged, *world.ObjectGone:
			return
		}
	}
	if watch.Target == podcertificate.AllRequests && a.enqueueRequester(watch, body) {
		return
	}
	if watch.Target.Resource == world.ResourceSecrets {
		pod.DecodePullSecret(watch)
	}
	isStorage := watch.Target.Resource == world.ResourceClaims ||
		watch.Target.Resource == world.ResourceVolumes
	for _, user := range watch.Users {
		a.enqueueKnownPod(user)
		if isStorage { // a volume may have to be expanded
			for _, name := range a.state.CSI.Owners[user] {
				a.queue.enqueue(csi.VolumeKey(name))
			}
		}
		if key, isVolume := csi.KeyOfUser(user); isVolume {
			a.queue.enqueue(key)
		}
		if key, isDisk := scsi.KeyOfUser(user); isDisk {
			a.queue.enqueue(key)
		}
	}
}

// enqueueRequesters enqueues the pods that have certificates requested.
func (a *Agent) enqueueRequesters() {
	if watch := a.state.Objects.Watch(podcertificate.AllRequests); watch != nil {
		for _, user := range watch.Users {
			a.enqueueKnownPod(user)
		}
	}
}

// enqueueRequester enqueues the pod that awaits the request for a certificate which has changed,
// whatever pod the request names, and reports false if the event is not about one request.
func (a *Agent) enqueueRequester(watch *objectcache.Watch, body any) bool {
	var changed *world.Object
	switch body := body.(type) {
	case *world.ObjectChanged:
		changed = &body.Object
	case *world.ObjectGone:
		changed = &body.Object
	default:
		return false
	}
	if _, meta := changed.Meta(); meta != nil {
		if uid, isAwaited := watch.Awaited[meta.GetNamespace()+"/"+meta.GetName()]; isAwaited {
			a.enqueueKnownPod(uid)
		}
	}
	return true
}
