package podstatus

import (
	"fmt"
	"strings"

	v1 "k8s.io/api/core/v1"

	"seedlet.dev/core/budget"
)

// messageBytesMaxPod bounds the termination messages of a pod together, as in the kubelet.
const messageBytesMaxPod = 12 << 10

// Limit cuts what a status says to what a status may have, so that the API server takes it whatever
// the pod, its images or the runtime have written. Each termination message is cut to its
// container's share of the pod's bound as well.
func Limit(pod *v1.Pod) {
	status := &pod.Status
	status.Message = budget.CutMessage(status.Message)
	for i := range status.Conditions {
		c := &status.Conditions[i]
		c.Message = budget.CutMessage(c.Message)
	}
	lists := [][]v1.ContainerStatus{status.InitContainerStatuses, status.ContainerStatuses,
		status.EphemeralContainerStatuses}
	containers := len(pod.Spec.InitContainers) + len(pod.Spec.Containers)
	reported := len(lists[0]) + len(lists[1]) + len(lists[2]) // fewer than a pod over its budget has
	share := min(budget.ContainerMessagesOfPodMax/max(reported, 1), budget.MessageMax)
	for k, list := range lists {
		terminated := share
		if k < 2 { // as in the kubelet, ephemeral containers have no part in it
			terminated = min(messageBytesMaxPod/max(containers, 1), share)
		}
		for i := range list {
			limitRepeated(&list[i], max(reported, 1))
			for _, state := range []*v1.ContainerState{&list[i].State,
				&list[i].LastTerminationState} {
				if state.Waiting != nil {
					state.Waiting.Message = budget.Cut(state.Waiting.Message, share)
				}
				if state.Terminated != nil {
					state.Terminated.Reason = budget.Cut(state.Terminated.Reason, share)
					state.Terminated.Message = budget.Cut(state.Terminated.Message, terminated)
				}
			}
		}
	}
}

// limitRepeated cuts what one of so many containers has from its image or from the runtime.
func limitRepeated(c *v1.ContainerStatus, containers int) {
	bytes := min(budget.ContainerImagesOfPodMax/containers, budget.ImageReferenceMax)
	c.Image, c.ImageID = budget.Cut(c.Image, bytes), budget.IdentifierWithin(c.ImageID, bytes)
	groupsMax := budget.ContainerGroupsOfPodMax / containers
	if c.User != nil && c.User.Linux != nil && len(c.User.Linux.SupplementalGroups) > groupsMax {
		user := *c.User.Linux // that of the pod's facts stays
		user.SupplementalGroups = user.SupplementalGroups[:groupsMax]
		c.User = &v1.ContainerUser{Linux: &user}
	}
}

// listBytesMax bounds the lists in messages of conditions. The kubelet's have no bound, and are as
// long as the spec of the pod.
const listBytesMax = 4 << 10

// list is the text of a list in the message of a condition, without the items that exceed its
// bound.
type list struct {
	separator string
	text      strings.Builder
	items     int
	omitted   int
}

func (l *list) isFull() bool { return l.text.Len() >= listBytesMax }

// add adds an item.
func (l *list) add(item string) {
	if l.isFull() {
		l.omit()
		return
	}
	if l.items++; l.items > 1 {
		l.text.WriteString(l.separator)
	}
	l.text.WriteString(item)
}

// omit counts an item that is left out.
func (l *list) omit() {
	l.items++
	l.omitted++
}

// String returns the text, and how many items it lacks.
func (l *list) String() string {
	if l.omitted == 0 {
		return l.text.String()
	}
	return fmt.Sprintf("%s%sand %d more", l.text.String(), l.separator, l.omitted)
}
