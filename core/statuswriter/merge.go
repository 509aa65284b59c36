package statuswriter

import (
	"cmp"
	"encoding/json"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"seedlet.dev/core/budget"
)

// The content of a status, given the stored status. Other clients write there too: conditions that
// are not the node's stay as they are.

// ownedConditions are the conditions that the node writes.
var ownedConditions = []v1.PodConditionType{
	v1.PodReadyToStartContainers, v1.PodInitialized, v1.PodReady, v1.ContainersReady,
	v1.PodScheduled, v1.AllContainersRestarting, v1.DisruptionTarget, v1.PodResizePending,
	v1.PodResizeInProgress,
}

// passingConditions are those that the node removes when they no longer hold.
var passingConditions = []v1.PodConditionType{v1.PodResizePending, v1.PodResizeInProgress}

// sharedConditions are those that the node writes for some pods only. DisruptionTarget is written
// by other clients as well, such as the taint manager. The stored one stays unless the node has its
// own.
var sharedConditions = []v1.PodConditionType{v1.AllContainersRestarting, v1.DisruptionTarget}

// merge returns the status to store. A terminal status never goes back: only the terminations of
// containers are still added to it. One without containers, such as that of a rejected pod, stays
// as it is until one has run: the kubelet starts no worker for such a pod, and clients would see an
// exit code instead of the reason.
func merge(spec *v1.PodSpec, stored, desired *v1.PodStatus) *v1.PodStatus {
	merged := desired.DeepCopy()
	truncateTimes(merged)
	if IsTerminal(stored) && !keepKnownOrRun(merged, stored) {
		return stored.DeepCopy()
	}
	if stored.StartTime != nil {
		merged.StartTime = stored.StartTime
	}
	if stored.QOSClass != "" {
		merged.QOSClass = stored.QOSClass // it never changes
	}
	if merged.PodIP == "" { // an agent that was restarted does not know those of a stopped sandbox
		merged.PodIP, merged.PodIPs = stored.PodIP, stored.PodIPs
	}
	if IsTerminal(merged) {
		keepEnds(merged.InitContainerStatuses, stored.InitContainerStatuses)
		keepEnds(merged.ContainerStatuses, stored.ContainerStatuses)
		keepEnds(merged.EphemeralContainerStatuses, stored.EphemeralContainerStatuses)
	}
	keepUninspected(merged.InitContainerStatuses, stored.InitContainerStatuses)
	keepUninspected(merged.ContainerStatuses, stored.ContainerStatuses)
	keepLastTermination(merged.InitContainerStatuses, stored.InitContainerStatuses)
	keepLastTermination(merged.ContainerStatuses, stored.ContainerStatuses)
	if IsTerminal(merged) {
		recorded := recordedRuns(desired)
		terminateLost(merged.InitContainerStatuses, stored.InitContainerStatuses, recorded)
		terminateLost(merged.ContainerStatuses, stored.ContainerStatuses, recorded)
		terminateUnstarted(spec, merged, recorded)
	}
	if IsTerminal(stored) {
		merged.Phase, merged.Reason, merged.Message = stored.Phase, stored.Reason, stored.Message
		keepTerminated(merged.InitContainerStatuses, stored.InitContainerStatuses)
		keepTerminated(merged.ContainerStatuses, stored.ContainerStatuses)
		keepTerminated(merged.EphemeralContainerStatuses, stored.EphemeralContainerStatuses)
	}
	merged.Conditions = nil
	for _, c := range desired.Conditions {
		truncateTime(&c.LastTransitionTime)
		i := slices.IndexFunc(stored.Conditions, func(o v1.PodCondition) bool {
			return o.Type == c.Type
		})
		if c.Type == v1.DisruptionTarget && IsTerminal(stored) && i < 0 {
			continue // it comes with the terminal phase, or not at all
		}
		if i >= 0 && stored.Conditions[i].Status == c.Status &&
			(stored.Conditions[i].Reason == c.Reason || !slices.Contains(passingConditions, c.Type)) {
			c.LastTransitionTime = stored.Conditions[i].LastTransitionTime
		}
		if i >= 0 {
			c.LastProbeTime = stored.Conditions[i].LastProbeTime
		}
		merged.Conditions = append(merged.Conditions, c)
	}
	for _, c := range stored.Conditions {
		isWritten := slices.ContainsFunc(desired.Conditions, func(o v1.PodCondition) bool {
			return o.Type == c.Type
		})
		if !isWritten && staysUnwritten(c.Type) {
			merged.Conditions = append(merged.Conditions, c)
		}
	}
	return merged
}

// runsAgain reports whether a static pod runs whose mirror says that it has ended, as after a
// shutdown of the node: the pod of a manifest is the same after each boot. One that is not always
// restarted may have completed for good until a container of it runs. The API server lets the phase
// go back, and a container only if it is to be restarted. A kubelet writes such a status, too.
func runsAgain(object *v1.Pod, desired *v1.PodStatus) bool {
	stored := &object.Status
	_, isMirror := object.Annotations[v1.MirrorPodAnnotationKey]
	switch {
	case !isMirror || !IsTerminal(stored):
		return false
	case IsTerminal(desired): // it has ended once more, before any status said that it ran
		return slices.ContainsFunc(desired.ContainerStatuses, func(c v1.ContainerStatus) bool {
			i := indexByName(stored.ContainerStatuses, c.Name, 0)
			return i >= 0 && c.State.Terminated != nil && stored.ContainerStatuses[i].ContainerID != "" &&
				c.RestartCount > stored.ContainerStatuses[i].RestartCount
		})
	}
	return desired.Phase == v1.PodRunning &&
		(object.Spec.RestartPolicy == v1.RestartPolicyAlways ||
			slices.ContainsFunc(desired.ContainerStatuses, func(c v1.ContainerStatus) bool {
				return c.State.Running != nil
			}))
}

// withoutEnd returns a terminal status as that of a pod that runs.
func withoutEnd(status *v1.PodStatus) *v1.PodStatus {
	running := *status
	running.Phase, running.Reason, running.Message = v1.PodRunning, "", ""
	return &running
}

// What a status says that is too large to be stored, unless it has a reason of its own.
const (
	reasonTooLarge  = "StatusTooLarge"
	messageTooLarge = "The API server takes no larger status of this pod: those of its containers " +
		"are left out."
	leastMessageMax = 1 << 10
)

// withoutLists returns the least of a status: the phase, the reason, the message, the conditions
// and the IPs.
func withoutLists(status *v1.PodStatus) *v1.PodStatus {
	least := *status
	least.InitContainerStatuses, least.ContainerStatuses = nil, nil
	least.EphemeralContainerStatuses = nil
	least.AllocatedResources, least.Resources = nil, nil
	if least.Reason == "" && least.Message == "" {
		least.Reason, least.Message = reasonTooLarge, messageTooLarge
	}
	least.Message = budget.Cut(least.Message, leastMessageMax)
	least.Conditions = slices.Clone(status.Conditions)
	for i := range least.Conditions {
		least.Conditions[i].Message = budget.Cut(least.Conditions[i].Message, leastMessageMax)
	}
	return &least
}

// staysUnwritten reports whether a condition of the stored status stays that the new one lacks: a
// patch that does not name it leaves it. A pod that waits for admission a second time, because its
// first one was not recorded, still has the conditions of the first.
func staysUnwritten(t v1.PodConditionType) bool {
	return slices.Contains(sharedConditions, t) ||
		slices.Contains(ownedConditions, t) && !slices.Contains(passingConditions, t)
}

// keepKnownOrRun drops the containers without a run that the stored status does not have, and
// reports whether any container is left.
func keepKnownOrRun(status, stored *v1.PodStatus) bool {
	keep := func(statuses, stored []v1.ContainerStatus) []v1.ContainerStatus {
		return slices.DeleteFunc(statuses, func(c v1.ContainerStatus) bool {
			return c.ContainerID == "" && indexByName(stored, c.Name, 0) < 0
		})
	}
	inits := keep(status.InitContainerStatuses, stored.InitContainerStatuses)
	apps := keep(status.ContainerStatuses, stored.ContainerStatuses)
	ephemeral := keep(status.EphemeralContainerStatuses, stored.EphemeralContainerStatuses)
	status.InitContainerStatuses, status.ContainerStatuses = inits, apps
	status.EphemeralContainerStatuses = ephemeral
	return len(inits)+len(apps)+len(ephemeral) > 0
}

// keepUninspected keeps what the stored status has of a running container that an agent which has
// just started could not inspect yet.
func keepUninspected(statuses, stored []v1.ContainerStatus) {
	for i := range statuses {
		s := &statuses[i]
		j := indexByName(stored, s.Name, i)
		if j < 0 || s.ContainerID == "" || stored[j].ContainerID != s.ContainerID {
			continue
		}
		s.ImageID = cmp.Or(s.ImageID, stored[j].ImageID)
		s.User = cmp.Or(s.User, stored[j].User)
		if now, was := s.State.Running, stored[j].State.Running; now != nil && was != nil &&
			now.StartedAt.IsZero() {
			s.State.Running = was
		}
	}
}

// keepEnds keeps the stored termination of each container of a terminal pod whose run the runtime
// does not have any more (convertToAPIContainerStatuses in pkg/kubelet/kubelet_pods.go).
func keepEnds(statuses, stored []v1.ContainerStatus) {
	for i := range statuses {
		j := indexByName(stored, statuses[i].Name, i)
		if j >= 0 && stored[j].State.Terminated != nil && statuses[i].ContainerID == "" &&
			statuses[i].RestartCount <= stored[j].RestartCount {
			statuses[i] = *stored[j].DeepCopy()
		}
	}
}

// recordedRuns returns the names of the containers of which the runtime has a run. One that runs,
// or whose exit is not known yet, in a pod that another client has given a terminal phase, is not
// lost: how it ends will be known.
func recordedRuns(desired *v1.PodStatus) map[string]bool {
	names := map[string]bool{}
	for _, list := range [][]v1.ContainerStatus{desired.InitContainerStatuses,
		desired.ContainerStatuses} {
		for i := range list {
			names[list[i].Name] = list[i].ContainerID != ""
		}
	}
	return names
}

// terminateLost marks the containers of a terminal pod as terminated that were stored as running
// and whose termination is unknown.
func terminateLost(statuses, stored []v1.ContainerStatus, recorded map[string]bool) {
	for i := range statuses {
		j := indexByName(stored, statuses[i].Name, i)
		if j < 0 || stored[j].State.Running == nil || statuses[i].State.Terminated != nil ||
			recorded[statuses[i].Name] {
			continue
		}
		statuses[i].State = unknownTermination(&stored[j], "terminated")
		statuses[i].RestartCount = max(statuses[i].RestartCount, stored[j].RestartCount)
	}
}

// terminateUnstarted marks the containers of a terminal pod as terminated that have never run: the
// app containers, if the pod was initialized, and the init containers up to the last one that was
// started, at least the first one (TerminatePod in status_manager.go). Clients would show such a
// container as being created.
func terminateUnstarted(spec *v1.PodSpec, status *v1.PodStatus, recorded map[string]bool) {
	inits, initialized := status.InitContainerStatuses, wasInitialized(spec, status)
	last := len(inits) - 1
	for last > 0 && !wasStarted(&inits[last]) {
		last--
	}
	for i := range inits[:last+1] {
		terminateIfUnknown(&inits[i], recorded)
	}
	if initialized {
		for i := range status.ContainerStatuses {
			terminateIfUnknown(&status.ContainerStatuses[i], recorded)
		}
	}
}

func terminateIfUnknown(c *v1.ContainerStatus, recorded map[string]bool) {
	if c.State.Terminated == nil && !recorded[c.Name] {
		c.State = unknownTermination(&v1.ContainerStatus{}, "terminated")
	}
}

// wasStarted reports whether a container has a run that was started.
func wasStarted(c *v1.ContainerStatus) bool {
	return c.State.Waiting == nil || c.LastTerminationState.Terminated != nil
}

// wasInitialized reports whether the init containers of a pod have completed: there are none, an
// app container was started, or the last one has exited with 0. A sidecar that is the last one
// counts only while it runs and has started (hasPodInitialized in status_manager.go).
func wasInitialized(spec *v1.PodSpec, status *v1.PodStatus) bool {
	inits := status.InitContainerStatuses
	if len(inits) == 0 || slices.ContainsFunc(status.ContainerStatuses,
		func(c v1.ContainerStatus) bool { return wasStarted(&c) }) {
		return true
	}
	last := &inits[len(inits)-1]
	if isSidecar(spec, last.Name) {
		return last.State.Running != nil && last.Started != nil && *last.Started
	}
	for _, state := range []*v1.ContainerState{&last.State, &last.LastTerminationState} {
		if state.Terminated != nil && state.Terminated.ExitCode == 0 {
			return true
		}
	}
	return false
}

// isSidecar reports whether an init container of a spec is restartable.
func isSidecar(spec *v1.PodSpec, name string) bool {
	return slices.ContainsFunc(spec.InitContainers, func(c v1.Container) bool {
		return c.Name == name && c.RestartPolicy != nil &&
			*c.RestartPolicy == v1.ContainerRestartPolicyAlways
	})
}

// keepLastTermination keeps the termination of the last run of a container without a record, and
// that of the run before one that has exited, whose record was removed since.
func keepLastTermination(statuses, stored []v1.ContainerStatus) {
	for i := range statuses {
		j := indexByName(stored, statuses[i].Name, i)
		if j >= 0 && hasExited(&statuses[i]) && isOfEarlierRun(&stored[j], statuses[i].ContainerID) {
			statuses[i].LastTerminationState = stored[j].LastTerminationState
		}
		if j < 0 || statuses[i].ContainerID != "" || statuses[i].RestartCount != stored[j].RestartCount ||
			statuses[i].LastTerminationState.Terminated != nil {
			continue
		}
		statuses[i].ContainerID, statuses[i].ImageID = stored[j].ContainerID, stored[j].ImageID
		switch state := stored[j].State; {
		case state.Terminated != nil:
			statuses[i].LastTerminationState = state
		case state.Running != nil:
			statuses[i].LastTerminationState = unknownTermination(&stored[j],
				"deleted.  The container used to be Running")
		default:
			statuses[i].LastTerminationState = stored[j].LastTerminationState
		}
	}
}

// hasExited reports whether a container has exited, and no run before that one is known.
func hasExited(c *v1.ContainerStatus) bool {
	return c.State.Terminated != nil && c.ContainerID != "" && c.LastTerminationState.Terminated == nil
}

// isOfEarlierRun reports whether the stored status of a run has the termination of the run before.
func isOfEarlierRun(stored *v1.ContainerStatus, id string) bool {
	last := stored.LastTerminationState.Terminated
	return stored.ContainerID == id && last != nil && last.ContainerID != id
}

// unknownTermination returns the state of a container whose termination is unknown, in the
// kubelet's words.
func unknownTermination(c *v1.ContainerStatus, when string) v1.ContainerState {
	return v1.ContainerState{Terminated: &v1.ContainerStateTerminated{
		Reason: "ContainerStatusUnknown", ExitCode: 137, ContainerID: c.ContainerID,
		Message: "The container could not be located when the pod was " + when,
	}}
}

// keepTerminated keeps the stored status of each container of a terminal pod, unless the container
// is known to have terminated and the stored status does not have that yet.
func keepTerminated(statuses, stored []v1.ContainerStatus) {
	for i := range statuses {
		j := indexByName(stored, statuses[i].Name, i)
		if j >= 0 && (statuses[i].State.Terminated == nil || stored[j].State.Terminated != nil) {
			statuses[i] = stored[j]
		}
	}
}

// truncateTimes truncates the times of a status to the precision of the API.
func truncateTimes(status *v1.PodStatus) {
	truncateTime(status.StartTime)
	for _, list := range [][]v1.ContainerStatus{status.InitContainerStatuses,
		status.ContainerStatuses, status.EphemeralContainerStatuses} {
		for i := range list {
			for _, state := range []*v1.ContainerState{&list[i].State,
				&list[i].LastTerminationState} {
				if state.Running != nil {
					truncateTime(&state.Running.StartedAt)
				}
				if state.Terminated != nil {
					truncateTime(&state.Terminated.StartedAt)
					truncateTime(&state.Terminated.FinishedAt)
				}
			}
		}
	}
}

func truncateTime(t *metav1.Time) {
	if t != nil && !t.IsZero() {
		*t = metav1.NewTime(t.Truncate(time.Second))
	}
}

// ownedStatus returns a status without the fields that the node does not write.
func ownedStatus(status *v1.PodStatus) *v1.PodStatus {
	own := *status
	own.Conditions = nil
	for _, t := range ownedConditions {
		for _, c := range status.Conditions {
			if c.Type == t {
				own.Conditions = append(own.Conditions, c)
			}
		}
	}
	own.NominatedNodeName, own.ResourceClaimStatuses = "", nil
	own.ExtendedResourceClaimStatus, own.NodeAllocatableResourceClaimStatuses = nil, nil
	return &own
}

// removeAmounts has a patch to the fields of a status remove the resources of the pod as a whole
// that the stored status has and the new one lacks: the API server merges them by name.
func removeAmounts(fields map[string]any, stored *v1.PodStatus) {
	remove := func(within map[string]any, field string, list v1.ResourceList) {
		amounts, isMap := within[field].(map[string]any)
		if _, isSet := within[field]; isSet && !isMap {
			return // all are removed
		}
		for name := range list { //ordered: into a map
			if _, stays := amounts[string(name)]; !stays {
				if amounts == nil {
					amounts = map[string]any{}
					within[field] = amounts
				}
				amounts[string(name)] = nil
			}
		}
	}
	remove(fields, "allocatedResources", stored.AllocatedResources)
	if whole, exists := fields["resources"].(map[string]any); exists && stored.Resources != nil {
		remove(whole, "requests", stored.Resources.Requests)
		remove(whole, "limits", stored.Resources.Limits)
	}
}

// newPatch returns the patch to a status with all fields that the node writes, not only the
// differences: the result is right whatever the stored status is.
func newPatch(object *v1.Pod, status *v1.PodStatus) json.RawMessage {
	fields := statusFields(ownedStatus(status))
	removeMissing(fields, "phase", "reason", "message", "hostIP", "podIP", "startTime",
		"initContainerStatuses", "containerStatuses", "ephemeralContainerStatuses", "resize",
		"allocatedResources", "resources")
	conditions, _ := fields["conditions"].([]any) // the API server merges conditions by type
	for _, c := range conditions {
		removeMissing(c.(map[string]any), "reason", "message")
	}
	for _, t := range passingConditions {
		isOf := func(c v1.PodCondition) bool { return c.Type == t }
		if slices.ContainsFunc(object.Status.Conditions, isOf) &&
			!slices.ContainsFunc(status.Conditions, isOf) {
			conditions = append(conditions, map[string]any{"type": t, "$patch": "delete"})
			fields["conditions"] = conditions
		}
	}
	removeAmounts(fields, &object.Status)
	// The API server merges these lists by key unless they have a directive.
	for _, field := range []string{"podIPs", "hostIPs"} {
		ips := []any{map[string]any{"$patch": "replace"}}
		if list, ok := fields[field].([]any); ok {
			ips = append(ips, list...)
		}
		fields[field] = ips
	}
	// The patch is for this version of this object. A patch may be delayed beyond its timeout, and
	// must not undo later writes then; nor must it undo the writes of other clients that the watch has
	// not reported yet.
	metadata := map[string]any{
		"uid": string(object.UID), "resourceVersion": object.ResourceVersion,
	}
	data, err := json.Marshal(map[string]any{"metadata": metadata, "status": fields})
	if err != nil {
		panic("statuswriter: marshaling a patch: " + err.Error())
	}
	return data
}

// statusFields returns the fields of a status by their names. The statuses of containers, which are
// most of it, stay as they are, so that they are encoded once.
func statusFields(status *v1.PodStatus) map[string]any {
	rest := *status
	rest.InitContainerStatuses, rest.ContainerStatuses = nil, nil
	rest.EphemeralContainerStatuses = nil
	data, err := json.Marshal(&rest)
	if err != nil {
		panic("statuswriter: marshaling a status: " + err.Error())
	}
	var fields map[string]any
	if err := json.Unmarshal(data, &fields); err != nil {
		panic("statuswriter: unmarshaling a status: " + err.Error())
	}
	setList := func(name string, list []v1.ContainerStatus) {
		if len(list) > 0 {
			fields[name] = list
		}
	}
	setList("initContainerStatuses", status.InitContainerStatuses)
	setList("containerStatuses", status.ContainerStatuses)
	setList("ephemeralContainerStatuses", status.EphemeralContainerStatuses)
	return fields
}

// removeMissing sets missing fields to null, which removes them.
func removeMissing(fields map[string]any, names ...string) {
	for _, name := range names {
		if _, exists := fields[name]; !exists {
			fields[name] = nil
		}
	}
}

// indexByName returns the index of a container's status; -1 if there is none. It looks at one index
// first: two lists of the same containers have the same order.
func indexByName(list []v1.ContainerStatus, name string, first int) int {
	if first < len(list) && list[first].Name == name {
		return first
	}
	return slices.IndexFunc(list, func(o v1.ContainerStatus) bool { return o.Name == name })
}
