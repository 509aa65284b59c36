package core

import (
	"encoding/json"
	"path"
	"strings"
	"testing"
	"time"

	"seedlet.dev/core/manifest"
	"seedlet.dev/world"
)

// Whatever others read has the date, also after the date was changed: the annotation config.seen of
// static pods, the names of rotated logs, and the record of a pod.
func TestDatesThatOthersReadFollowTheClock(t *testing.T) {
	const step = -5 * time.Hour
	n := bootNode(map[string]string{"web.yaml": web})
	n.advance(10 * time.Second)
	var rotated string
	var recorded struct {
		End struct{ At time.Time }
	}
	n.answer = func(effect any) any {
		switch e := effect.(type) {
		case *world.Rename:
			rotated = path.Base(e.To)
			return &world.Done{}
		case *world.WriteFile:
			if strings.HasSuffix(e.Path, "/seedlet.json") {
				if err := json.Unmarshal(e.Data, &recorded); err != nil {
					t.Error(err)
				}
			}
		}
		return nil
	}
	n.event(world.Event{Time: n.now, Body: &world.ClockStepped{Offset: step}})
	stepped := n.now
	for _, logs := range n.logs {
		logs[0].Size = 100 << 20
	}
	n.manifests["job.yaml"] = `{apiVersion: v1, kind: Pod, metadata: {name: job}, spec: {
		restartPolicy: Never, containers: [{name: setup, image: i}]}}`
	n.advance(2 * time.Minute)
	isDate := func(at time.Time) bool {
		return !at.Before(stepped.Add(step)) && !at.After(n.now.Add(step))
	}
	seen := time.Time{}
	for _, p := range n.agent.state.Manifests.Pods() {
		if strings.HasPrefix(p.Name, "job") {
			var err error
			seen, err = time.Parse(time.RFC3339Nano, p.Annotations[manifest.ConfigSeenAnnotation])
			if err != nil {
				t.Error(err)
			}
		}
	}
	if !isDate(seen) {
		t.Errorf("config.seen is %v", seen)
	}
	suffix, err := time.Parse("20060102-150405", strings.TrimPrefix(rotated, "0.log."))
	if err != nil || !isDate(suffix) {
		t.Errorf("the log is renamed to %q: %v", rotated, err)
	}
	if !isDate(recorded.End.At) {
		t.Errorf("end.at is %v", recorded.End.At)
	}
}

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
