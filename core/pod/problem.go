package pod

import (
	"slices"
	"time"

	"seedlet.dev/core/budget"
	"seedlet.dev/core/timer"
	"seedlet.dev/world"
)

// Problem is the last failed operation of a container, or of the pod as a whole, in the terms of a
// waiting container's status. A problem is cleared when the operation, or a later one, succeeds.
type Problem struct {
	Container string    `json:"container,omitempty"` // empty for the whole pod
	Call      string    `json:"call"`
	Reason    string    `json:"reason"` // such as "CreateContainerError"
	Message   string    `json:"message"`
	Failures  int       `json:"failures"`  // in a row
	NotBefore time.Time `json:"notBefore"` // when the back-off ends
}

// The back-off after failed operations.
const (
	failureBackoffInitial = time.Second
	failureBackoffMax     = 32 * time.Second // the back-off doubles up to this
)

// failureBackoff returns the back-off after so many failures in a row.
func failureBackoff(failures int) time.Duration {
	return timer.Backoff(failures, failureBackoffInitial, failureBackoffMax)
}

// ProblemOf returns the problem of a container, or with an empty name of the pod as a whole; nil
// without a problem.
func (p *Pod) ProblemOf(container string) *Problem {
	for i := range p.Problems {
		if p.Problems[i].Container == container {
			return &p.Problems[i]
		}
	}
	return nil
}

// isBackingOff reports whether the operations of a container have to wait for the back-off after a
// failure.
func (p *Pod) isBackingOff(container string, w *wakeTimer) bool {
	pr := p.ProblemOf(container)
	return pr != nil && w.waitUntil(pr.NotBefore)
}

// noteFailure records the failure of an operation as a problem.
func (p *Pod) noteFailure(container, call string, err *world.Error, now time.Time) *Problem {
	pr := p.ProblemOf(container)
	if pr == nil {
		p.Problems = append(p.Problems, Problem{Container: container})
		pr = &p.Problems[len(p.Problems)-1]
	}
	if pr.Call != call {
		*pr = Problem{Container: container, Call: call}
	}
	pr.Failures++
	pr.Reason, pr.Message = waitingReasons[call], budget.CutMessage(err.Message)
	if call == "SetCgroup" {
		pr.Message = "unable to ensure pod container exists: " + pr.Message
	}
	pr.NotBefore = now.Add(failureBackoff(pr.Failures))
	return pr
}

// waitingReasons are the kubelet's reasons for a waiting container, by the operation that failed.
var waitingReasons = map[string]string{
	"RunPodSandbox":    "ContainerCreating", // as in the kubelet: an event has the failure
	callInspectSandbox: "ContainerCreating",
	"SetCgroup":        "FailedCreatePodContainer", // as in the kubelet: an event has the failure
	"MakeDir":          "CreateContainerError",
	"BindSubPath":      "CreateContainerConfigError",
	"WriteFile":        "CreateContainerConfigError", // /etc/hosts, a message file
	callVerifyImage:    "CreateContainerConfigError",
	"CreateContainer":  "CreateContainerError",
	"StartContainer":   "RunContainerError",
}

// creationSteps is the order of the operations that create a container. The problem of an earlier
// operation no longer matters once a later one has succeeded.
var creationSteps = map[string]int{
	"SetCgroup": -1, // precedes the sandbox
	"MakeDir":   1, "BindSubPath": 1, "WriteFile": 2, callVerifyImage: 3,
	"CreateContainer": 4, "StartContainer": 5,
	callInspectSandbox: 6, // the problem of a sandbox outlives the creation of the next one
}

const callInspectSandbox = "PodSandboxStatus"

// clearProblems removes the problems that do not matter any more once an operation has succeeded.
func (p *Pod) clearProblems(container, call string) {
	p.Problems = slices.DeleteFunc(p.Problems, func(pr Problem) bool {
		return pr.Container == container && creationSteps[pr.Call] <= creationSteps[call]
	})
}
