package plan

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"
)

// Request is one request of a client of the agent's HTTP API.
type Request struct {
	Kind RequestKind `json:"of"`
	// Pod, of a request for a container, is the name of an entry of pods. Suffix is appended to it
	// to make a name that no pod has.
	Pod       string    `json:"pod,omitempty"`
	Suffix    string    `json:"suffix,omitempty"`
	Container string    `json:"container,omitempty"` // empty: the request names none
	UID       UIDSource `json:"uid,omitempty"`
}

// RequestKind is what a client requests.
type RequestKind string

// The kinds of requests.
const (
	RequestContainer   RequestKind = "container" // resolves names to a container of the runtime
	RequestRunningPods RequestKind = "running"   // pods as the runtime has them
	RequestPods        RequestKind = "pods"
	RequestHealth      RequestKind = "health"
	RequestMetrics     RequestKind = "metrics"
	RequestState       RequestKind = "state"
)

var requestKinds = []RequestKind{RequestContainer, RequestRunningPods, RequestPods, RequestHealth,
	RequestMetrics, RequestState}

// UIDSource is where a client has the UID of a pod from. Absent: the request has no UID.
type UIDSource string

// The sources of a UID.
const (
	UIDCurrent  UIDSource = "current"  // the newest pod of the name
	UIDPrevious UIDSource = "previous" // the pod of the name before that one
	UIDMirror   UIDSource = "mirror"   // its newest mirror pod
	UIDUnknown  UIDSource = "stranger" // a UID that no pod has
)

var uidSources = []UIDSource{"", UIDCurrent, UIDPrevious, UIDMirror, UIDUnknown}

// addRequests generates the requests, half of them within 20 seconds of another entry of the plan.
// It is the last step of the generation: requests change nothing else in a run.
func (g *generator) addRequests() {
	r := g.stream("clients")
	times := append(g.plan.Times(), 0)
	for range g.occurrences("clients", g.scenario.Spec.Requests, false) {
		at := g.randomTime(r)
		if r.IntN(2) == 0 {
			at = times[r.IntN(len(times))] + Duration(r.Int64N(int64(20*time.Second)))
			at = min(max(at, Duration(time.Millisecond)), g.plan.Spec.Duration)
		}
		q := &Request{Kind: RequestContainer}
		if r.IntN(4) == 0 || len(g.plan.Spec.Pods) == 0 {
			q.Kind = requestKinds[1+r.IntN(len(requestKinds)-1)]
		} else {
			g.chooseContainer(q, r)
		}
		g.add(at, q)
	}
}

// chooseContainer draws which container a request names. The name may be absent, unknown, or an
// attempt to escape from a path.
func (g *generator) chooseContainer(q *Request, r *rand.Rand) {
	pod := &g.plan.Spec.Pods[r.IntN(len(g.plan.Spec.Pods))]
	q.Pod = pod.Name
	names := containerNames(pod.Manifest)
	q.Container = names[r.IntN(len(names))]
	switch r.IntN(16) {
	case 0:
		q.Container = ""
	case 1:
		q.Container += "-x"
	case 2:
		q.Suffix = "-x"
	case 3:
		q.Suffix = "/../" + pod.Name
	}
	switch r.IntN(10) {
	case 0, 1, 2:
		q.UID = UIDCurrent
	case 3, 4:
		q.UID = UIDPrevious
	case 5:
		q.UID = UIDMirror
	case 6:
		q.UID = UIDUnknown
	}
}

// Length implements Deed.
func (q *Request) Length() Duration { return 0 }

// PodEntry implements Deed.
func (q *Request) PodEntry() string { return q.Pod }

func (q *Request) validate(s *Spec) error {
	switch {
	case !slices.Contains(requestKinds, q.Kind):
		return fmt.Errorf("of: want one of %v, have %q", requestKinds, q.Kind)
	case (q.Kind == RequestContainer) != (q.Pod != ""):
		return errors.New("pod: want one of a container, and only there")
	case q.Pod != "" && s.PodNamed(q.Pod) == nil:
		return fmt.Errorf("pod: no pod is called %q", q.Pod)
	case !slices.Contains(uidSources, q.UID):
		return fmt.Errorf("uid: want one of %v, have %q", uidSources, q.UID)
	}
	return nil
}
