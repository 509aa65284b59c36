package oracle

import (
	"slices"
	"time"

	"seedlet.dev/sim/truth"
)

// sandboxRate fires when the agent creates sandboxes of a pod without a back-off, whether their
// creation fails or they are lost after it.
type sandboxRate struct{}

func (*sandboxRate) describe() Entry {
	return Entry{"sandbox-rate", "No more than 12 sandboxes of a pod are created within 30 s."}
}

// A back-off that begins with one second and doubles allows five sandboxes in this time, and ten if
// every other one is created in spite of an error.
const (
	sandboxesMax   = 12
	sandboxesSpell = 30 * time.Second
)

func (*sandboxRate) checkFact(m *model, f *truth.Fact) *finding {
	p := m.pods[f.PodUID]
	if f.Kind != truth.SandboxCreated || p == nil {
		return nil
	}
	// An agent that starts, and a pod that comes, have no back-off yet.
	since := later(f.Time.Add(-sandboxesSpell), later(m.agentStartedAt, p.desiredAt))
	p.sandboxesCreated = slices.DeleteFunc(p.sandboxesCreated,
		func(at time.Time) bool { return at.Before(since) })
	p.sandboxesCreated = append(p.sandboxesCreated, f.Time)
	if created := len(p.sandboxesCreated); created > sandboxesMax {
		return findingf("%d sandboxes of pod %s were created within %v", created, p,
			f.Time.Sub(p.sandboxesCreated[0]).Round(time.Millisecond))
	}
	return nil
}
