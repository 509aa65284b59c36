package core

// waitingPods is an index of the pods of the API server that wait for admission, and of those among
// them that wait for one thing, by UID. Each end of a pod and each check of another pod asks for
// them, and thousands may wait.
type waitingPods struct {
	all           map[string]bool
	preempting    map[string]bool // other pods are being terminated for them
	awaitingOther map[string]bool // it is not known yet whether another pod has ended
	awaitingNode  map[string]bool // the Node is read for them
}

// set sets what a pod waits for, if it waits.
func (w *waitingPods) set(uid string, r Rejection) {
	w.remove(uid)
	for _, part := range []struct {
		uids *map[string]bool
		isIn bool
	}{{&w.all, r.Waiting}, {&w.preempting, r.isPreempting()},
		{&w.awaitingOther, r == awaitingOtherPod}, {&w.awaitingNode, r.NodeOp != 0}} {
		if !part.isIn {
			continue
		}
		if *part.uids == nil {
			*part.uids = map[string]bool{}
		}
		(*part.uids)[uid] = true
	}
}

// remove removes a pod that no longer waits.
func (w *waitingPods) remove(uid string) {
	for _, uids := range []map[string]bool{w.all, w.preempting, w.awaitingOther, w.awaitingNode} {
		delete(uids, uid)
	}
}
