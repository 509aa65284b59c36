package status

import (
	"encoding/json"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// What a status of a pod may say, given what the API server has of it. Others write there too:
// conditions that are not the node's stay theirs.

// conditions are the node's own.
var conditions = []v1.PodConditionType{
	v1.PodReadyToStartContainers, v1.PodInitialized, v1.PodReady, v1.ContainersReady,
	v1.PodScheduled,
}

// merge is the status to be stored. What has ended does not go back: of a pod that is over, only
// how its containers ended is still told.
func merge(stored, is *v1.PodStatus) *v1.PodStatus {
	merged := is.DeepCopy()
	seconds(merged)
	if stored.StartTime != nil {
		merged.StartTime = stored.StartTime
	}
	if stored.QOSClass != "" {
		merged.QOSClass = stored.QOSClass // it never changes
	}
	remember(merged.InitContainerStatuses, stored.InitContainerStatuses)
	remember(merged.ContainerStatuses, stored.ContainerStatuses)
	if Terminal(merged) {
		lost(merged.InitContainerStatuses, stored.InitContainerStatuses)
		lost(merged.ContainerStatuses, stored.ContainerStatuses)
	}
	if Terminal(stored) {
		merged.Phase, merged.Reason, merged.Message = stored.Phase, stored.Reason, stored.Message
		endings(merged.InitContainerStatuses, stored.InitContainerStatuses)
		endings(merged.ContainerStatuses, stored.ContainerStatuses)
		endings(merged.EphemeralContainerStatuses, stored.EphemeralContainerStatuses)
	}
	merged.Conditions = nil
	for _, c := range is.Conditions {
		second(&c.LastTransitionTime)
		i := slices.IndexFunc(stored.Conditions, func(o v1.PodCondition) bool {
			return o.Type == c.Type
		})
		if i >= 0 && stored.Conditions[i].Status == c.Status {
			c.LastTransitionTime = stored.Conditions[i].LastTransitionTime
		}
		if i >= 0 {
			c.LastProbeTime = stored.Conditions[i].LastProbeTime
		}
		merged.Conditions = append(merged.Conditions, c)
	}
	return merged
}

// lost says of every container of a pod that is over that it has ended, if it was told to run:
// nobody knows any more how it did.
func lost(is, stored []v1.ContainerStatus) {
	for i := range is {
		j := named(stored, is[i].Name)
		if j < 0 || stored[j].State.Running == nil || is[i].State.Terminated != nil {
			continue
		}
		is[i].State = unknown(&stored[j], "terminated")
		is[i].RestartCount = max(is[i].RestartCount, stored[j].RestartCount)
	}
}

// remember keeps how the last run of a container ended that has no record any more.
func remember(is, stored []v1.ContainerStatus) {
	for i := range is {
		j := named(stored, is[i].Name)
		if j < 0 || is[i].ContainerID != "" || is[i].RestartCount != stored[j].RestartCount ||
			is[i].LastTerminationState.Terminated != nil {
			continue
		}
		is[i].ContainerID, is[i].ImageID = stored[j].ContainerID, stored[j].ImageID
		switch state := stored[j].State; {
		case state.Terminated != nil:
			is[i].LastTerminationState = state
		case state.Running != nil:
			is[i].LastTerminationState = unknown(&stored[j], "deleted.  The container used to be Running")
		default:
			is[i].LastTerminationState = stored[j].LastTerminationState
		}
	}
}

// unknown is the end of a container of which nobody knows any more how it was, in the kubelet's
// words.
func unknown(c *v1.ContainerStatus, when string) v1.ContainerState {
	return v1.ContainerState{Terminated: &v1.ContainerStateTerminated{
		Reason: "ContainerStatusUnknown", ExitCode: 137, ContainerID: c.ContainerID,
		Message: "The container could not be located when the pod was " + when,
	}}
}

// endings keeps of every container what is stored, unless it is known how it ended and that is
// news.
func endings(is, stored []v1.ContainerStatus) {
	for i := range is {
		j := named(stored, is[i].Name)
		if j >= 0 && (is[i].State.Terminated == nil || stored[j].State.Terminated != nil) {
			is[i] = stored[j]
		}
	}
}

// seconds cuts the times of a status to what the API keeps of them.
func seconds(status *v1.PodStatus) {
	second(status.StartTime)
	for _, list := range [][]v1.ContainerStatus{status.InitContainerStatuses,
		status.ContainerStatuses, status.EphemeralContainerStatuses} {
		for i := range list {
			for _, state := range []*v1.ContainerState{&list[i].State,
				&list[i].LastTerminationState} {
				if state.Running != nil {
					second(&state.Running.StartedAt)
				}
				if state.Terminated != nil {
					second(&state.Terminated.StartedAt)
					second(&state.Terminated.FinishedAt)
				}
			}
		}
	}
}

func second(t *metav1.Time) {
	if t != nil && !t.IsZero() {
		*t = metav1.NewTime(t.Truncate(time.Second))
	}
}

// owned is a status without what is not the node's to write.
func owned(status *v1.PodStatus) *v1.PodStatus {
	mine := *status
	mine.Conditions = nil
	for _, t := range conditions {
		for _, c := range status.Conditions {
			if c.Type == t {
				mine.Conditions = append(mine.Conditions, c)
			}
		}
	}
	mine.NominatedNodeName, mine.ResourceClaimStatuses = "", nil
	mine.ExtendedResourceClaimStatus, mine.NodeAllocatableResourceClaimStatuses = nil, nil
	return &mine
}

// patch says all of a status that is the node's, not only what is different: so it is right
// whatever the stored status was made of.
func patch(object *v1.Pod, status *v1.PodStatus) json.RawMessage {
	data, err := json.Marshal(owned(status))
	if err != nil {
		panic("status: a status cannot be written: " + err.Error())
	}
	var fields map[string]any
	if err := json.Unmarshal(data, &fields); err != nil {
		panic("status: a status cannot be read back: " + err.Error())
	}
	removeMissing(fields, "phase", "reason", "message", "hostIP", "podIP", "startTime",
		"initContainerStatuses", "containerStatuses", "ephemeralContainerStatuses", "resize",
		"allocatedResources", "resources")
	conditions, _ := fields["conditions"].([]any) // each is merged with the one of its type
	for _, c := range conditions {
		removeMissing(c.(map[string]any), "reason", "message")
	}
	// These lists are merged by key unless they say otherwise.
	for _, field := range []string{"podIPs", "hostIPs"} {
		ips := []any{map[string]any{"$patch": "replace"}}
		if list, is := fields[field].([]any); is {
			ips = append(ips, list...)
		}
		fields[field] = ips
	}
	// It is about this object, and what was known of it. It may be delayed on its way for longer than
	// anybody waits, and must not undo then what was written after it; and what somebody has written
	// whom the watch has not told of yet it must not undo either.
	metadata := map[string]any{
		"uid": string(object.UID), "resourceVersion": object.ResourceVersion,
	}
	data, err = json.Marshal(map[string]any{"metadata": metadata, "status": fields})
	if err != nil {
		panic("status: a patch cannot be written: " + err.Error())
	}
	return data
}

// removeMissing has the server remove the fields that a patch would leave as they are.
func removeMissing(fields map[string]any, names ...string) {
	for _, name := range names {
		if _, is := fields[name]; !is {
			fields[name] = nil
		}
	}
}

func named(list []v1.ContainerStatus, name string) int {
	return slices.IndexFunc(list, func(o v1.ContainerStatus) bool { return o.Name == name })
}
