package core

import (
	"slices"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"seedlet.dev/core/pod"
	"seedlet.dev/core/shutdown"
	"seedlet.dev/world"
)

// delayShutdowns has shutdowns of a running node delayed for 30 seconds.
func (n *fakeNode) delayShutdowns() {
	c := defaults()
	c.ShutdownGracePeriod = metav1.Duration{Duration: 30 * time.Second}
	c.ShutdownGracePeriodCriticalPods = metav1.Duration{Duration: 10 * time.Second}
	n.agent.state.Shutdown = shutdown.New(c, "/r/"+shutdown.FileName)
	n.answer = func(effect any) any {
		switch effect.(type) {
		case *world.DelayShutdown:
			return &world.ShutdownDelayed{Max: time.Hour}
		case *world.PermitShutdown:
			return &world.Done{}
		}
		return nil
	}
	n.agent.queue.enqueue(shutdown.Owner)
	n.event(world.Event{})
}

// A pod that becomes known after its group was reached ends as well, and the shutdown waits for it
// with its group, or as one of an earlier group that is late.
func TestPodKnownAfterItsGroupWasReached(t *testing.T) {
	for _, c := range []struct {
		name    string
		group   int
		groupAt bool // the group has been reached
		ends    bool
		late    bool
		deleted bool // the pod ends already, in its own time
	}{
		{"its group has not been reached", 0, false, false, false, false},
		{"its group ends", 0, true, true, false, false},
		{"a later group ends", 1, true, true, true, false},
		{"it is being deleted", 1, true, true, true, true},
	} {
		n := bootWithPods(nil, apiPodNamed("a", "u1"))
		n.delayShutdowns()
		now := &shutdown.Shutdown{StartedAt: n.now, KnownAt: n.now, Group: c.group,
			Remaining: map[string]bool{"other": true}}
		if c.groupAt {
			now.Deadline = n.now
		}
		n.agent.state.Shutdown.Now = now
		p := n.agent.state.Pods["u1"]
		if c.deleted {
			hour := int64(3600)
			p.Spec.Spec.TerminationGracePeriodSeconds = &hour
			p.ClearDesired(n.now)
		}
		n.agent.endLatecomer(p)
		if ends := p.Stage == pod.Terminating; ends != c.ends ||
			now.Remaining["u1"] != (c.ends && !c.late) || now.Late["u1"] != c.late {
			t.Errorf("%s: stage %s, remaining %v, late %v", c.name, p.Stage, now.Remaining, now.Late)
		}
		if grace := p.Termination.Grace; grace > 20*time.Second {
			t.Errorf("%s: it has %v, more than its group", c.name, grace)
		}
	}
}

// The start of a shutdown and its cancellation are Events of the Node, once each.
func TestShutdownIsAnEventOfTheNode(t *testing.T) {
	n := bootNode(nil)
	n.delayShutdowns()
	var got []string
	for _, cancelled := range []bool{true, false, false, true} {
		n.advance(5 * time.Second)
		n.events = nil
		n.event(world.Event{Body: &world.MachineShutdown{Cancelled: cancelled}})
		got = append(got, n.events...)
	}
	want := []string{"Normal NodeShutdown n1: Shutdown manager detected shutdown event\n",
		"Normal NodeShutdown n1: Shutdown manager detected shutdown cancellation\n"}
	if !slices.Equal(got, want) {
		t.Errorf("events %q, want %q", got, want)
	}
}
