package core

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	"seedlet.dev/core/pod"
)

// Snapshot returns the whole state as JSON.
func (a *Agent) Snapshot() ([]byte, error) { return json.Marshal(&a.state) }

// Restore returns an agent with the state of a snapshot. It behaves exactly as the original would.
func Restore(data []byte) (*Agent, error) {
	a := &Agent{}
	if err := json.Unmarshal(data, &a.state); err != nil {
		return nil, fmt.Errorf("reading a snapshot: %w", err)
	}
	if a.state.Pods == nil {
		a.state.Pods = map[string]*pod.Pod{}
	}
	for _, uid := range slices.Sorted(maps.Keys(a.state.Pods)) {
		p := a.state.Pods[uid]
		a.indexPod(p)
		if r := &p.Resize; r.Desired != nil || r.Granted != nil {
			a.markResizing(uid)
		}
	}
	a.indexObjects()
	for uid, rejection := range a.state.APIRejections { //ordered: each for itself
		a.setRejection(uid, rejection)
	}
	return a, nil
}
