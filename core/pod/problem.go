package pod

import (
	"slices"
	"time"

	"seedlet.dev/core/timer"
	"seedlet.dev/world"
)

// Problem is what went wrong with the last operation that failed for a container, or for the
// pod as a whole, in the words of container statuses. It goes when the operation succeeds.
type Problem struct {
	Container string    `json:"container,omitempty"` // empty if it concerns the whole pod
	Call      string    `json:"call"`
	Reason    string    `json:"reason"` // as "CreateContainerError"
	Message   string    `json:"message"`
	Failures  int       `json:"failures"`  // in a row
	NotBefore time.Time `json:"notBefore"` // when to try again
}

// The waits after failed operations.
const (
	failureFirst = time.Second
	failureMax   = 32 * time.Second // the bound to which it doubles
)

// waitAfter is how long to wait after so many failures in a row.
func waitAfter(failures int) time.Duration {
	return timer.Backoff(failures, failureFirst, failureMax)
}

func (p *Pod) problem(container string) *Problem {
	for i := range p.Problems {
		if p.Problems[i].Container == container {
			return &p.Problems[i]
		}
	}
	return nil
}

// holdOff reports whether a failure is too recent to try again.
func (p *Pod) holdOff(container string, w *waits) bool {
	pr := p.problem(container)
	return pr != nil && w.pending(pr.NotBefore)
}

// failed records that an operation has failed.
func (p *Pod) failed(container, call string, err *world.Error, now time.Time) *Problem {
	pr := p.problem(container)
	if pr == nil {
		p.Problems = append(p.Problems, Problem{Container: container})
		pr = &p.Problems[len(p.Problems)-1]
	}
	if pr.Call != call {
		*pr = Problem{Container: container, Call: call}
	}
	pr.Failures++
	pr.Reason, pr.Message = reasons[call], err.Message
	if call == "SetCgroup" {
		pr.Message = "unable to ensure pod container exists: " + err.Message
	}
	pr.NotBefore = now.Add(waitAfter(pr.Failures))
	return pr
}

// reasons are the kubelet's words for a container that waits because an operation failed.
var reasons = map[string]string{
	"RunPodSandbox":   "ContainerCreating",        // as the kubelet, which tells by an event
	"SetCgroup":       "FailedCreatePodContainer", // by an event as well
	"MakeDir":         "CreateContainerError",
	"BindSubPath":     "CreateContainerConfigError",
	"WriteFile":       "CreateContainerConfigError", // /etc/hosts, a message file
	callVerify:        "CreateContainerConfigError",
	"CreateContainer": "CreateContainerError",
	"StartContainer":  "RunContainerError",
}

// steps is the order of the operations that make a container: what was wrong with an earlier one
// no longer matters when a later one has succeeded.
var steps = map[string]int{
	"SetCgroup": -1, // comes before the sandbox
	"MakeDir":   1, "BindSubPath": 1, "WriteFile": 2, callVerify: 3,
	"CreateContainer": 4, "StartContainer": 5,
}

// solved records that an operation has succeeded.
func (p *Pod) solved(container, call string) {
	p.Problems = slices.DeleteFunc(p.Problems, func(pr Problem) bool {
		return pr.Container == container && steps[pr.Call] <= steps[call]
	})
}
