package core

import (
	"testing"
	"time"

	"seedlet.dev/world"
)

// After the date was changed, the start of a pod that is rejected and the deletion of one that is
// no longer desired have the new date.
func TestDatesAfterChange(t *testing.T) {
	n := bootWithPods(map[string]string{"s.yaml": `{apiVersion: v1, kind: Pod,
		metadata: {name: static}, spec: {containers: [{name: s, image: i}]}}`})
	n.advance(20 * time.Second)
	n.event(world.Event{Body: &world.ClockStepped{Offset: -3 * time.Hour}})
	isDate := func(what string, at time.Time) {
		t.Helper()
		if late := n.now.Add(-3 * time.Hour).Sub(at); late < -time.Minute || late > time.Minute {
			t.Errorf("%s is %v old", what, late)
		}
	}
	p := apiPodNamed("rejected", "u1")
	p.Spec.NodeSelector = map[string]string{"no": "node"}
	n.apiServer.put(p)
	n.stopsFail = true
	delete(n.manifests, "s.yaml")
	n.advance(30 * time.Second)
	if start := n.apiServer.objects["default/rejected"].Status.StartTime; start == nil {
		t.Error("the rejected pod has no start time")
	} else {
		isDate("the start of a rejected pod", start.Time)
	}
	served := n.agent.listServedPods()
	for i := range served {
		if served[i].Name == "static-n1" && served[i].DeletionTimestamp != nil {
			isDate("the deletion of a pod", served[i].DeletionTimestamp.Time)
			return
		}
	}
	t.Errorf("of %d pods that are served, none is being deleted", len(served))
}
