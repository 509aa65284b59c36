package oracle

import (
	"fmt"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"

	"seedlet.dev/sim/truth"
)

// events fires when an event tells of something that has not happened: of more containers made or
// started than there were, of a pull of an image that was not pulled, or that a container is being
// stopped that runs on; and when one life of the agent tells more often that a container backs off
// than it has exited, but for reminders of what lasts. That something happened and was not told is
// no violation: an answer may be lost, and so may an event.
type events struct{}

func (*events) entry() Entry {
	return Entry{"events", "No event tells of a container made, started or stopped, or of an image " +
		"pulled, that was not, and none tells of one exit twice."}
}

// killSpan is how much longer than its grace period a container may take to be asked to end once
// users were told that it is: it may have to wait for others.
const killSpan = time.Minute

// tellings is what users were told, and how often that was true.
type tellings struct {
	made, started map[who]int // how often more than was told
	exits         map[who]int
	backOffs      map[who]int // that were told by the agent that lives since then
	backedOff     map[who]time.Time
	life          time.Time
	pulled        map[string]bool
	killing       map[who]time.Time // since when it is told, of those of which nothing followed
}

type who struct{ uid, container string }

func newTellings() tellings {
	return tellings{made: map[who]int{}, started: map[who]int{}, exits: map[who]int{},
		backOffs: map[who]int{}, backedOff: map[who]time.Time{}, pulled: map[string]bool{},
		killing: map[who]time.Time{}}
}

func (t *tellings) take(f *truth.Fact, life time.Time) {
	if !life.Equal(t.life) {
		t.life = life
		clear(t.backOffs)
		clear(t.backedOff)
	}
	is := who{f.PodUID, f.Container}
	if f.Kind == truth.ContainerExited {
		t.exits[is]++
	}
	switch f.Kind {
	case truth.ContainerCreated:
		t.made[is]++
	case truth.ContainerStarted:
		t.started[is]++
		delete(t.killing, is)
	case truth.ContainerExited, truth.ContainerLost, truth.StopRequested, truth.KillRequested:
		delete(t.killing, is)
	case truth.ImagePulled:
		t.pulled[f.Image] = true
	case truth.EventTold:
		t.told(is, f)
	}
}

func (t *tellings) told(is who, f *truth.Fact) {
	switch f.Reason {
	case "Created":
		t.made[is]--
	case "Started":
		t.started[is]--
	case "Killing":
		if _, known := t.killing[is]; !known {
			t.killing[is] = f.Time
		}
	case "BackOff":
		if restarting(f) && !t.reminds(is, f) {
			t.backOffs[is]++
		}
		t.backedOff[is] = f.Time
	}
}

// reminders is how long after an event it may be told again that what it told of lasts.
const reminders = time.Minute

func (t *tellings) reminds(is who, f *truth.Fact) bool {
	last, told := t.backedOff[is]
	return told && f.Time.Sub(last) >= reminders
}

// restarting says whether a back-off is one of restarts, and not of pulls.
func restarting(f *truth.Fact) bool { return strings.HasPrefix(f.Message, "Back-off restarting") }

func (*events) fact(w *world, f *truth.Fact) *finding {
	if f.Kind != truth.EventTold {
		return nil
	}
	is, t, wrong := who{f.PodUID, f.Container}, &w.tellings, false
	switch f.Reason {
	case "Created":
		wrong = t.made[is] <= 0
	case "Started":
		wrong = t.started[is] <= 0
	case "BackOff":
		wrong = restarting(f) && w.started.Equal(t.life) && t.backOffs[is] >= t.exits[is] &&
			!t.reminds(is, f)
	case "Pulled":
		rest, pull := strings.CutPrefix(f.Message, "Successfully pulled image \"")
		image, _, _ := strings.Cut(rest, "\"")
		wrong = pull && !t.pulled[image]
	}
	if !wrong {
		return nil
	}
	return &finding{message: fmt.Sprintf("pod %s/%s, container %s: it is told as %s that %q, which "+
		"did not happen, or not once more", f.PodNamespace, f.PodName, f.Container, f.Reason, f.Message)}
}

// answer looks at what runs although it is told that it is being stopped.
func (*events) answer(w *world, now time.Time, _ []*v1.Pod) *finding {
	for _, p := range w.order {
		for _, c := range p.containers {
			at, told := w.tellings.killing[who{p.uid, c.name}]
			over := at.Add(c.graceMost() + killSpan)
			if !told || c.state != running || now.Before(over) || w.dead || w.started.After(at) ||
				w.struckAny(at, now, "StopContainer", "ListContainers", "ListPodSandbox") {
				continue
			}
			return &finding{message: fmt.Sprintf("%s runs on, and it was told at %s that it is "+
				"being stopped", c, at.Format(time.TimeOnly))}
		}
	}
	return nil
}
