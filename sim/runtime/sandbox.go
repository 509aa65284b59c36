package runtime

import (
	"slices"
	"strings"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"seedlet.dev/sim/truth"
)

// Sandbox is what is true about one sandbox.
type Sandbox struct {
	ID                            string
	PodUID, PodNamespace, PodName string
	Attempt                       uint32
	State                         runtimeapi.PodSandboxState
	CreatedAt                     time.Time
	IP                            string // empty once its network has been taken down
}

// The states, by their shorter names.
const (
	ready    = runtimeapi.PodSandboxState_SANDBOX_READY
	notReady = runtimeapi.PodSandboxState_SANDBOX_NOTREADY
)

type sandbox struct {
	Sandbox
	config   *runtimeapi.PodSandboxConfig
	reserved string // the name that is taken until it is removed
	skewed   time.Duration
	gone     bool // removed
	stopped  bool // the truth knows that it is not ready any more

	item   *runtimeapi.PodSandbox               // as lists show it; nil after a change
	status *runtimeapi.PodSandboxStatusResponse // nil after a change
}

// Sandboxes returns the true state of all sandboxes, by id.
func (r *Runtime) Sandboxes() []Sandbox {
	all := make([]Sandbox, len(r.sandboxOrder))
	for i, s := range r.sandboxOrder {
		all[i] = s.Sandbox
	}
	return all
}

// addSandbox makes a sandbox visible.
func (r *Runtime) addSandbox(s *sandbox) {
	r.sandboxes[s.ID] = s
	at, _ := slices.BinarySearchFunc(r.sandboxOrder, s, compareSandboxes)
	r.sandboxOrder = slices.Insert(r.sandboxOrder, at, s)
	r.sandboxList = nil
}

// haltSandbox makes a sandbox one in which nothing can be started any more.
func (r *Runtime) haltSandbox(s *sandbox, cause string) {
	s.State, s.item, s.status = notReady, nil, nil
	r.sandboxList = nil
	if !s.stopped {
		s.stopped = true
		r.tellSandbox(s, truth.Fact{Kind: truth.SandboxStopped, Cause: cause})
		r.emit(s.ID, s.ID, eventStopped)
	}
}

// dropSandbox makes a sandbox disappear.
func (r *Runtime) dropSandbox(s *sandbox, cause string) {
	if s.gone {
		return
	}
	r.emit(s.ID, s.ID, eventDeleted)
	s.gone = true
	delete(r.sandboxes, s.ID)
	delete(r.sandboxNames, s.reserved)
	at, _ := slices.BinarySearchFunc(r.sandboxOrder, s, compareSandboxes)
	r.sandboxOrder = slices.Delete(r.sandboxOrder, at, at+1)
	r.sandboxList = nil
	r.tellSandbox(s, truth.Fact{Kind: truth.SandboxRemoved, Cause: cause})
}

func compareSandboxes(a, b *sandbox) int { return strings.Compare(a.ID, b.ID) }

// inSandbox returns the containers of a sandbox, by id.
func (r *Runtime) inSandbox(s *sandbox) []*container {
	var in []*container
	for _, c := range r.containerOrder {
		if c.SandboxID == s.ID {
			in = append(in, c)
		}
	}
	return in
}

// tellSandbox adds a fact about a sandbox to the truth.
func (r *Runtime) tellSandbox(s *sandbox, f truth.Fact) {
	f.Time = r.now()
	f.PodUID, f.PodNamespace, f.PodName = s.PodUID, s.PodNamespace, s.PodName
	f.SandboxID, f.Attempt = s.ID, s.Attempt
	r.opts.Truth.Add(f)
}
