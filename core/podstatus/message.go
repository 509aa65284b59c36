package podstatus

import (
	"fmt"
	"strings"

	v1 "k8s.io/api/core/v1"
)

// messageBytesMaxPod bounds the termination messages of a pod together, as in the kubelet.
const messageBytesMaxPod = 12 << 10

// limitMessages cuts each termination message to its container's share of the pod's bound.
func limitMessages(pod *v1.Pod) {
	containers := len(pod.Spec.InitContainers) + len(pod.Spec.Containers)
	for _, list := range [][]v1.ContainerStatus{
		pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses,
	} {
		for i := range list {
			for _, state := range []*v1.ContainerState{
				&list[i].State, &list[i].LastTerminationState,
			} {
				if t := state.Terminated; t != nil {
					t.Message = truncate(t.Message, messageBytesMaxPod/containers)
				}
			}
		}
	}
}

// truncate shortens a text to so many bytes, between two characters.
func truncate(text string, bytesMax int) string {
	if len(text) <= bytesMax {
		return text
	}
	return strings.ToValidUTF8(text[:bytesMax], "")
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
