package core

import (
	"seedlet.dev/core/object"
	"seedlet.dev/world"
)

// What pods refer to at the API server.

// services are watched from the start: new pods wait for the first list of them.
var services = world.Watched{Resource: world.ResourceServices}

// objects is what pods are told of by the API server; nil if there is none.
func (a *Agent) objects() *object.Store {
	if !a.state.API {
		return nil
	}
	return &a.state.Objects
}

// touchUsers touches the pods that refer to what there is news of. Services that come and go later
// do not matter to containers that are there.
func (a *Agent) touchUsers(w *object.Watch, body any) {
	if w.About == services {
		switch body.(type) {
		case *world.ObjectChanged, *world.ObjectGone:
			return
		}
	}
	for _, user := range w.Users {
		if a.known(user) {
			a.touchPod(user)
		}
	}
}
