package oracle

import (
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"

	"seedlet.dev/sim/truth"
)

// events fires when an Event is about something that has not happened: more containers created or
// started than there were, a pull of an image that was not pulled, a container that is being
// stopped but runs on, an ID that the runtime has given twice; or when one incarnation of the agent
// reports more restart back-offs than there were exits, apart from repeats while the back-off
// lasts. An Event that is missing is no violation: a response may be lost, and so may an Event.
type events struct{}

func (*events) describe() Entry {
	return Entry{"events", "No Event reports a container as created, started or stopped, or an " +
		"image as pulled, that was not, and none reports one exit twice. None says that the runtime " +
		"has given an ID twice."}
}

// repeatedID is in the message of an Event about an ID that the runtime has given before. The
// simulated runtime gives each once.
const repeatedID = "the runtime has answered with the ID of another object"

// killBound is how much longer than its grace period a container may take to be stopped after its
// Killing event. The container may have to wait for others.
const killBound = time.Minute

// recordedEvents counts what happened against the Events that report it.
type recordedEvents struct {
	unreportedCreates, unreportedStarts map[containerKey]int // of which no event was recorded
	exits                               map[containerKey]int
	backOffs                            map[containerKey]int // recorded by the agent that runs
	lastBackOff                         map[containerKey]time.Time
	incarnation                         time.Time
	pulled                              map[string]bool
	// killingSince is the time of the Killing event, if no stop or exit followed it.
	killingSince map[containerKey]time.Time
}

type containerKey struct{ uid, container string }

func newRecordedEvents() recordedEvents {
	return recordedEvents{
		unreportedCreates: map[containerKey]int{}, unreportedStarts: map[containerKey]int{},
		exits: map[containerKey]int{}, backOffs: map[containerKey]int{},
		lastBackOff: map[containerKey]time.Time{}, pulled: map[string]bool{},
		killingSince: map[containerKey]time.Time{}}
}

func (t *recordedEvents) apply(f *truth.Fact, life time.Time) {
	if !life.Equal(t.incarnation) {
		t.incarnation = life
		clear(t.backOffs)
		clear(t.lastBackOff)
	}
	key := containerKey{f.PodUID, f.Container}
	if f.Kind == truth.ContainerExited {
		t.exits[key]++
	}
	switch f.Kind {
	case truth.ContainerCreated:
		t.unreportedCreates[key]++
	case truth.ContainerStarted:
		t.unreportedStarts[key]++
		delete(t.killingSince, key)
	case truth.ContainerExited, truth.ContainerLost, truth.StopRequested, truth.KillRequested:
		delete(t.killingSince, key)
	case truth.ImagePulled:
		t.pulled[f.Image] = true
	case truth.EventRecorded:
		t.applyEvent(key, f)
	}
}

func (t *recordedEvents) applyEvent(key containerKey, f *truth.Fact) {
	switch f.Reason {
	case "Created":
		t.unreportedCreates[key]--
	case "Started":
		t.unreportedStarts[key]--
	case "Killing":
		if _, known := t.killingSince[key]; !known {
			t.killingSince[key] = f.Time
		}
	case "BackOff":
		if isRestartBackOff(f) && !t.isRepeat(key, f) {
			t.backOffs[key]++
		}
		t.lastBackOff[key] = f.Time
	}
}

// repeatInterval is the time after which the agent may record the event of a lasting condition
// again.
const repeatInterval = time.Minute

func (t *recordedEvents) isRepeat(key containerKey, f *truth.Fact) bool {
	last, recorded := t.lastBackOff[key]
	return recorded && f.Time.Sub(last) >= repeatInterval
}

// isRestartBackOff reports whether a BackOff event is about restarts, not image pulls.
func isRestartBackOff(f *truth.Fact) bool {
	return strings.HasPrefix(f.Message, "Back-off restarting")
}

func (*events) checkFact(m *model, f *truth.Fact) *finding {
	if f.Kind != truth.EventRecorded {
		return nil
	}
	key, t, wrong := containerKey{f.PodUID, f.Container}, &m.events, false
	switch f.Reason {
	case "Created":
		wrong = t.unreportedCreates[key] <= 0
	case "Started":
		wrong = t.unreportedStarts[key] <= 0
	case "BackOff":
		wrong = isRestartBackOff(f) && m.agentStartedAt.Equal(t.incarnation) &&
			t.backOffs[key] >= t.exits[key] && !t.isRepeat(key, f)
	case "Pulled":
		rest, pull := strings.CutPrefix(f.Message, "Successfully pulled image \"")
		image, _, _ := strings.Cut(rest, "\"")
		wrong = pull && !t.pulled[image]
	}
	if !wrong && !strings.Contains(f.Message, repeatedID) {
		return nil
	}
	return findingf("pod %s/%s, container %s: Event %s: %q, which did not happen, or not as often",
		f.PodNamespace, f.PodName, f.Container, f.Reason, f.Message)
}

// checkServed finds a container that runs on long after its Killing event.
func (*events) checkServed(m *model, now time.Time, _ []*v1.Pod) *finding {
	for _, p := range m.podsInOrder {
		for _, c := range p.containers {
			at, reported := m.events.killingSince[containerKey{p.uid, c.name}]
			deadline := at.Add(c.maxGrace() + killBound)
			if !reported || c.state != running || now.Before(deadline) || m.agentDown ||
				m.agentStartedAt.After(at) || m.anyFaultPossible(at, now, "StopContainer",
				"ListContainers", "ListPodSandbox") {
				continue
			}
			return findingf("%s runs on, although its Killing event was recorded at %s", c,
				at.Format(time.TimeOnly))
		}
	}
	return nil
}
