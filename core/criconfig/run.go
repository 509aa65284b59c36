package criconfig

import (
	"encoding/json"
	"strconv"
	"time"

	v1 "k8s.io/api/core/v1"

	"seedlet.dev/core/allocation"
)

// Run is what the agent has to know about one run of a container, and what a later incarnation of
// the agent has to know as well: it is stored in the container's annotations.
type Run struct {
	Attempt  uint32        `json:"attempt"`  // 0 for the first run
	Restarts int32         `json:"restarts"` // restartCount of this run
	Hash     string        `json:"hash"`     // of the spec that it was created from
	Backoff  time.Duration `json:"backoff"`  // before the restart after its exit
	Grace    time.Duration `json:"grace"`    // grace period of the pod at creation
	// SidecarOrder is a sidecar's place among the init containers, from one.
	SidecarOrder int `json:"sidecarOrder,omitempty"`
	Round        int `json:"round,omitempty"` // the restart round of its creation

	// Resources are those that it was created with; nil if that is not known.
	Resources *allocation.Amounts `json:"resources,omitempty"`

	Ports   []v1.ContainerPort   `json:"ports,omitempty"`   // for hooks that name a port
	PreStop *v1.LifecycleHandler `json:"preStop,omitempty"` // for a stop without spec
}

// The annotations of containers that the kubelet sets as well, under these names.
const (
	AnnotationHash     = "io.kubernetes.container.hash"
	AnnotationRestarts = "io.kubernetes.container.restartCount"
	AnnotationGrace    = "io.kubernetes.pod.terminationGracePeriod"
	AnnotationPreStop  = "io.kubernetes.container.preStopHandler" // a hook, as JSON
	AnnotationPorts    = "io.kubernetes.container.ports"          // a list, as JSON
	// AnnotationMessagePath and AnnotationMessagePolicy are the container's
	// terminationMessagePath and terminationMessagePolicy.
	AnnotationMessagePath   = "io.kubernetes.container.terminationMessagePath"
	AnnotationMessagePolicy = "io.kubernetes.container.terminationMessagePolicy"
)

// The agent's own annotations of containers.
const (
	// AnnotationBackoff is how long to wait after the container has exited before it is restarted,
	// as a Go duration. The kubelet keeps this in memory and loses it when the kubelet is
	// restarted; here it belongs to the container.
	AnnotationBackoff = "seedlet.dev/restart-backoff"
	// AnnotationSidecar is the place of a sidecar among the init containers, from 1. It gives the
	// order in which a pod is stopped whose manifest no longer exists.
	AnnotationSidecar = "seedlet.dev/sidecar"
	// AnnotationRound is the restart round that a container was created in; containers of the first
	// round have none.
	AnnotationRound = "seedlet.dev/round"
	// AnnotationResources are the resources that a container was created with, as JSON: of those for
	// which it must restart, they tell an agent that was killed meanwhile whether it has.
	AnnotationResources = "seedlet.dev/resources"
)

// annotations returns the annotations of a container that is created for the run.
func (r *Run) annotations(container *v1.Container) map[string]string {
	annotations := map[string]string{
		AnnotationHash:          r.Hash,
		AnnotationRestarts:      strconv.Itoa(int(r.Restarts)),
		AnnotationGrace:         strconv.FormatInt(int64(r.Grace/time.Second), 10),
		AnnotationBackoff:       r.Backoff.String(),
		AnnotationMessagePath:   container.TerminationMessagePath,
		AnnotationMessagePolicy: string(container.TerminationMessagePolicy),
	}
	if r.PreStop != nil {
		annotations[AnnotationPreStop] = marshal(r.PreStop)
	}
	if len(r.Ports) > 0 {
		annotations[AnnotationPorts] = marshal(r.Ports)
	}
	if r.SidecarOrder > 0 {
		annotations[AnnotationSidecar] = strconv.Itoa(r.SidecarOrder)
	}
	if r.Resources != nil {
		annotations[AnnotationResources] = marshal(r.Resources)
	}
	if r.Round > 0 {
		annotations[AnnotationRound] = strconv.Itoa(r.Round)
	}
	return annotations
}

// marshal returns the JSON that an annotation holds.
func marshal(data any) string {
	bytes, err := json.Marshal(data)
	if err != nil {
		panic("criconfig: an annotation cannot be marshaled: " + err.Error())
	}
	return string(bytes)
}

// GracePeriodDefault is the API's default of terminationGracePeriodSeconds.
const GracePeriodDefault = 30 * time.Second

// ReadRun reads the annotations of a container, and reports whether another agent has created it. A
// damaged annotation counts as absent; for example, the container then ends without its preStop
// hook.
func ReadRun(attempt uint32, annotations map[string]string) (run Run, fromOtherAgent bool) {
	run = Run{
		Attempt:      attempt,
		Hash:         annotations[AnnotationHash],
		Restarts:     int32(parseNumber(annotations[AnnotationRestarts], int64(attempt))),
		SidecarOrder: int(parseNumber(annotations[AnnotationSidecar], 0)),
		Round:        int(parseNumber(annotations[AnnotationRound], 0)),
		Grace: time.Second * time.Duration(
			parseNumber(annotations[AnnotationGrace], int64(GracePeriodDefault/time.Second))),
	}
	if d, err := time.ParseDuration(annotations[AnnotationBackoff]); err == nil && d > 0 {
		run.Backoff = d // a container of another agent has none: it may be restarted at once
	}
	if text := annotations[AnnotationPreStop]; text != "" {
		_ = json.Unmarshal([]byte(text), &run.PreStop)
	}
	if text := annotations[AnnotationPorts]; text != "" {
		_ = json.Unmarshal([]byte(text), &run.Ports)
	}
	if text := annotations[AnnotationResources]; text != "" {
		_ = json.Unmarshal([]byte(text), &run.Resources)
	}
	return run, annotations[AnnotationBackoff] == ""
}

// parseNumber returns the number that an annotation holds, or the given one if the annotation is
// absent or damaged.
func parseNumber(text string, otherwise int64) int64 {
	n, err := strconv.ParseInt(text, 10, 32)
	if err != nil || n < 0 {
		return otherwise
	}
	return n
}
