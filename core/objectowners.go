package core

import (
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"seedlet.dev/core/pod"
)

// An ID names one object of the runtime. A runtime that answers a creation with the ID of another
// pod's object is not believed, or the one pod would stop and remove what the other runs. The index
// below finds the pod of an ID without a search of all pods.

// indexObjects makes the index of IDs again, from the pods as a relist has left them.
func (a *Agent) indexObjects() {
	if a.objectOwners == nil {
		a.objectOwners = map[string]string{}
	}
	clear(a.objectOwners)
	for uid, e := range a.state.SetAside { //ordered: an object is in the list of one pod
		for _, id := range e.ObjectIDs {
			a.objectOwners[id] = uid
		}
	}
	for _, uid := range a.podUIDs {
		p := a.state.Pods[uid]
		for i := range p.Sandboxes {
			a.objectOwners[p.Sandboxes[i].ID] = uid
		}
		for i := range p.Containers {
			a.objectOwners[p.Containers[i].ID] = uid
		}
	}
}

// indexCreated adds what a completed operation has created to the index.
func (a *Agent) indexCreated(p *pod.Pod, body any) {
	var id string
	switch body := body.(type) {
	case *runtimeapi.RunPodSandboxResponse:
		id = body.PodSandboxId
	case *runtimeapi.CreateContainerResponse:
		id = body.ContainerId
	default:
		return
	}
	if p.HasObject(id) { // otherwise the answer was not believed
		a.objectOwners[id] = p.UID
	}
}

// objectOwner returns the UID of the pod that has a sandbox or container with the ID; empty if none
// has. Objects that were removed since the last relist are still in the index.
func (a *Agent) objectOwner(id string) string {
	uid := a.objectOwners[id]
	if p := a.state.Pods[uid]; p != nil && p.HasObject(id) || a.isSetAside(uid) {
		return uid
	}
	return ""
}
