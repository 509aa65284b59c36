package runtime

import (
	"slices"
	"strings"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"seedlet.dev/sim/truth"
)

// Sandbox is the true state of one sandbox.
type Sandbox struct {
	ID                            string
	PodUID, PodNamespace, PodName string
	Attempt                       uint32
	State                         runtimeapi.PodSandboxState
	CreatedAt                     time.Time
	IP                            string // empty after its network has been torn down
}

// Short names of the sandbox states.
const (
	ready    = runtimeapi.PodSandboxState_SANDBOX_READY
	notReady = runtimeapi.PodSandboxState_SANDBOX_NOTREADY
)

type sandbox struct {
	Sandbox
	config       *runtimeapi.PodSandboxConfig
	reservedName string // reserved until the sandbox is removed
	createdSkew  time.Duration
	removed      bool // from the runtime
	stopRecorded bool // SandboxStopped is in the truth log

	cachedListItem *runtimeapi.PodSandbox               // nil after a change
	cachedStatus   *runtimeapi.PodSandboxStatusResponse // nil after a change
}

// Sandboxes returns the true state of all sandboxes, sorted by ID.
func (r *Runtime) Sandboxes() []Sandbox {
	all := make([]Sandbox, len(r.sandboxOrder))
	for i, s := range r.sandboxOrder {
		all[i] = s.Sandbox
	}
	return all
}

// addSandbox adds a sandbox to the runtime's lists.
func (r *Runtime) addSandbox(s *sandbox) {
	r.sandboxes[s.ID] = s
	at, _ := slices.BinarySearchFunc(r.sandboxOrder, s, compareSandboxes)
	r.sandboxOrder = slices.Insert(r.sandboxOrder, at, s)
	r.sandboxList = nil
}

// markSandboxNotReady makes a sandbox not ready: no container can be started in it any more.
func (r *Runtime) markSandboxNotReady(s *sandbox, cause string) {
	s.State, s.cachedListItem, s.cachedStatus = notReady, nil, nil
	r.sandboxList = nil
	if !s.stopRecorded {
		s.stopRecorded = true
		r.recordSandboxFact(s, truth.Fact{Kind: truth.SandboxStopped, Cause: cause})
		r.emitEvent(s.ID, s.ID, eventStopped)
	}
}

// deleteSandbox removes a sandbox from the runtime's lists.
func (r *Runtime) deleteSandbox(s *sandbox, cause string) {
	if s.removed {
		return
	}
	r.emitEvent(s.ID, s.ID, eventDeleted)
	s.removed = true
	delete(r.sandboxes, s.ID)
	delete(r.sandboxNames, s.reservedName)
	at, _ := slices.BinarySearchFunc(r.sandboxOrder, s, compareSandboxes)
	r.sandboxOrder = slices.Delete(r.sandboxOrder, at, at+1)
	r.sandboxList = nil
	r.recordSandboxFact(s, truth.Fact{Kind: truth.SandboxRemoved, Cause: cause})
}

func compareSandboxes(a, b *sandbox) int { return strings.Compare(a.ID, b.ID) }

// containersIn returns the containers of a sandbox, sorted by ID.
func (r *Runtime) containersIn(s *sandbox) []*container {
	var in []*container
	for _, c := range r.containerOrder {
		if c.SandboxID == s.ID {
			in = append(in, c)
		}
	}
	return in
}

// recordSandboxFact adds a fact about a sandbox to the truth log.
func (r *Runtime) recordSandboxFact(s *sandbox, f truth.Fact) {
	f.Time = r.now()
	f.PodUID, f.PodNamespace, f.PodName = s.PodUID, s.PodNamespace, s.PodName
	f.SandboxID, f.Attempt = s.ID, s.Attempt
	r.opts.Truth.Add(f)
}
