package podstatus

import (
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
