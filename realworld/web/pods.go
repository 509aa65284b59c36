package web

import (
	"encoding/json"
	"net/http"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"seedlet.dev/world"
)

// servePods answers with all pods and their live statuses as a v1.PodList, as the kubelet does.
func (p *Port) servePods(w http.ResponseWriter, r *http.Request) {
	answer, ok := p.ask(w, r, func(id world.RequestID) any {
		return &world.PodsRequest{Request: id}
	})
	if !ok {
		return
	}
	writePods(w, answer.(*world.PodsAnswer).Pods)
}

// serveRunningPods answers with what runs, as the runtime has it.
func (p *Port) serveRunningPods(w http.ResponseWriter, r *http.Request) {
	answer, ok := p.ask(w, r, func(id world.RequestID) any {
		return &world.RunningPodsRequest{Request: id}
	})
	if ok {
		writePods(w, answer.(*world.RunningPodsAnswer).Pods)
	}
}

func writePods(w http.ResponseWriter, pods []*v1.Pod) {
	list := v1.PodList{
		TypeMeta: metav1.TypeMeta{Kind: "PodList", APIVersion: "v1"},
		Items:    make([]v1.Pod, len(pods)),
	}
	for i, pod := range pods {
		list.Items[i] = *pod
	}
	data, err := json.Marshal(list)
	if err != nil {
		http.Error(w, "encoding the pods: "+err.Error(), http.StatusInternalServerError)
		return
	}
	writeJSON(w, data)
}

// serveState answers with the snapshot of the core.
func (p *Port) serveState(w http.ResponseWriter, r *http.Request) {
	answer, ok := p.ask(w, r, func(id world.RequestID) any {
		return &world.StateRequest{Request: id}
	})
	if ok {
		writeJSON(w, answer.(*world.StateAnswer).State)
	}
}

func writeJSON(w http.ResponseWriter, data []byte) {
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(data) // a client that has gone needs no answer
}
