package web

import (
	"encoding/json"
	"net/http"

	v1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"

	"seedlet.dev/world"
)

// servePods writes all pods with their current statuses as a v1.PodList, as the kubelet does.
func (p *Port) servePods(w http.ResponseWriter, r *http.Request) {
	answer, ok := p.request(w, r, func(id world.RequestID) any {
		return &world.PodsRequest{Request: id}
	})
	if !ok {
		return
	}
	writePods(w, answer.(*world.PodsAnswer).Pods)
}

// serveRunningPods writes the pods of which the runtime has running containers.
func (p *Port) serveRunningPods(w http.ResponseWriter, r *http.Request) {
	answer, ok := p.request(w, r, func(id world.RequestID) any {
		return &world.RunningPodsRequest{Request: id}
	})
	if ok {
		writePods(w, answer.(*world.RunningPodsAnswer).Pods)
	}
}

// podListHead is how the encoding of a v1.PodList begins, up to its items.
const podListHead = `{"kind":"PodList","apiVersion":"v1","metadata":{},"items":[`

// writePods writes a v1.PodList. Its items are encoded one by one while they are sent: the pods are
// shared with the core and with other clients, so a client that reads slowly occupies the memory of
// one encoded pod.
func writePods(w http.ResponseWriter, pods []*v1.Pod) {
	w.Header().Set("Content-Type", "application/json")
	next := []byte(podListHead)
	for i, pod := range pods {
		data, err := json.Marshal(pod)
		if err != nil {
			// The header is sent, so only the end of the connection shows that pods are missing.
			klog.ErrorS(err, "encoding a pod failed", "pod", klog.KObj(pod))
			panic(http.ErrAbortHandler)
		}
		if i > 0 {
			next = append(next, ',')
		}
		if _, err := w.Write(append(next, data...)); err != nil {
			return // the client has disconnected
		}
		next = next[:0]
	}
	_, _ = w.Write(append(next, "]}"...)) // the client may have disconnected
}

// serveState writes the redacted snapshot of the core, to one client at a time: the core is busy
// while it takes the snapshot, and a snapshot is large.
func (p *Port) serveState(w http.ResponseWriter, r *http.Request) {
	if !p.state.TryLock() {
		p.pending.addRefused(errStateBusy)
		writeUnavailable(w, errStateBusy)
		return
	}
	defer p.state.Unlock()
	answer, ok := p.request(w, r, func(id world.RequestID) any {
		return &world.StateRequest{Request: id}
	})
	if ok {
		writeJSON(w, answer.(*world.StateAnswer).State)
	}
}

func writeJSON(w http.ResponseWriter, data []byte) {
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(data) // the client may have disconnected
}
