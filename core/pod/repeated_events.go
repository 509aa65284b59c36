package pod

import (
	"fmt"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"

	"seedlet.dev/core/criconfig"
	"seedlet.dev/core/image"
)

// Events of conditions that persist are repeated. The API server keeps an event for an hour, and a
// user who looks later has to find the reason why a pod does not run, too.

// eventRepeatInterval is how often an event is repeated. The kubelet does so in each sync of the
// pod.
const eventRepeatInterval = time.Minute

// podEvent is an event about the pod, or about one of its containers.
type podEvent struct{ container, kind, reason, message string }

// RepeatedEvent is the event of a condition that persists, and when it was last recorded.
type RepeatedEvent struct {
	Container    string    `json:"container,omitempty"`
	Reason       string    `json:"reason"`
	Message      string    `json:"message"`
	LastRecorded time.Time `json:"lastRecorded"`
}

// repeatEvents records the events of persisting conditions again. They were recorded for the first
// time when the condition began.
func (p *Pod) repeatEvents(env *Env, w *wakeTimer) {
	var ongoing []RepeatedEvent
	for _, event := range p.eventsToRepeat(env) {
		repeated := RepeatedEvent{event.container, event.reason, event.message, w.now}
		same := func(l RepeatedEvent) bool {
			return l == RepeatedEvent{event.container, event.reason, event.message, l.LastRecorded}
		}
		if i := slices.IndexFunc(p.RepeatedEvents, same); i >= 0 {
			repeated = p.RepeatedEvents[i]
		}
		if !w.waitUntil(repeated.LastRecorded.Add(eventRepeatInterval)) {
			repeated.LastRecorded = w.now
			p.recordEvents(env, event)
			w.waitUntil(repeated.LastRecorded.Add(eventRepeatInterval))
		}
		ongoing = append(ongoing, repeated)
	}
	p.RepeatedEvents = ongoing
}

// eventsToRepeat returns the events of the conditions that keep the pod from running, and that are
// retried only after a while or never. The failure of a retry records its own event.
func (p *Pod) eventsToRepeat(env *Env) []podEvent {
	if p.Stage != Syncing || p.Spec == nil {
		return nil
	}
	var events []podEvent
	if p.RuntimeWaitReason != "" && p.RuntimeWaitReason == env.NetworkNotReady {
		events = append(events, podEvent{"", warning, "NetworkNotReady", p.RuntimeWaitReason})
	}
	for i := range p.Problems {
		if pr := &p.Problems[i]; pr.Call == callConfigure {
			events = append(events, configErrorEvent(pr))
		}
	}
	for i := range p.PendingImages {
		pending := &p.PendingImages[i]
		if container := p.specContainer(pending.Container); pending.Problem != nil && container != nil {
			events = append(events, imageBackoffEvents(pending.Container,
				p.imageReference(pending, container), pending.Problem)...)
		}
	}
	for i := range p.Containers {
		if c := &p.Containers[i]; c.Inspected == Exited && p.isInRestartBackoff(c, env.Effects.Now()) {
			events = append(events, p.restartBackoffEvent(c))
		}
	}
	return events
}

// imageReference returns the image that a container waits for, as the spec names it.
func (p *Pod) imageReference(pending *PendingImage, container *v1.Container) string {
	v := p.specVolume(pending.Volume)
	if pending.Volume != "" && v != nil && v.Image != nil {
		return v.Image.Reference
	}
	return container.Image
}

// isInRestartBackoff reports whether a container has exited and its restart has to wait for its
// back-off.
func (p *Pod) isInRestartBackoff(c *Container, now time.Time) bool {
	return p.Spec != nil && p.Stage == Syncing && p.specContainer(c.Name) != nil &&
		p.NewestRun(c.Name) == c && !p.isOutdated(c) && p.ShouldRestart(c) && now.Before(c.restartAt())
}

func (p *Pod) restartBackoffEvent(c *Container) podEvent {
	return podEvent{c.Name, warning, reasonBackOff, fmt.Sprintf(
		"Back-off restarting failed container %s in pod %s", c.Name, criconfig.PodDesc(p.Spec))}
}

// configErrorEvent returns the event for a container, or a sandbox, that cannot be configured.
func configErrorEvent(pr *Problem) podEvent {
	if pr.Container == "" {
		return podEvent{"", warning, reasonFailedCreateSandbox,
			"Failed to create pod sandbox: " + pr.Message}
	}
	return podEvent{pr.Container, warning, reasonFailed, "Error: " + pr.Message}
}

// imageFailureEvents returns the events for the failure of an image when it is found.
func imageFailureEvents(container, ref string, problem *image.Problem) []podEvent {
	events := imageBackoffEvents(container, ref, problem)
	if events[0].reason != reasonBackOff {
		return events
	}
	return append([]podEvent{
		{container, warning, reasonFailed,
			fmt.Sprintf("Failed to pull image %q: %s", ref, problem.Cause)},
		{container, warning, reasonFailed, "Error: " + problem.PullReason}}, events...)
}

// imageBackoffEvents returns the events for the failure of an image while it persists.
func imageBackoffEvents(container, ref string, problem *image.Problem) []podEvent {
	failed := podEvent{container, warning, reasonFailed, "Error: " + problem.Reason}
	first := podEvent{container, warning, "InspectFailed", problem.Message}
	switch problem.Reason {
	case image.ErrInvalidImageName:
	case image.ErrImageNeverPull:
		first.reason = image.ErrImageNeverPull
	case image.ErrImageInspect:
	default:
		first.kind, first.reason = normal, reasonBackOff
		first.message = fmt.Sprintf("Back-off pulling image %q", ref)
		failed.message = "Error: " + image.ErrImagePullBackOff
	}
	return []podEvent{first, failed}
}
