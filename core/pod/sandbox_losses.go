package pod

import "time"

// SandboxLosses are the sandboxes in a row that were lost soon after the agent had learned of them:
// each died or vanished from the runtime, although the agent had not stopped it. Such a loss counts
// like a failed creation: the next sandbox waits for a back-off. (The kubelet's SyncPod fails if it
// finds no status of the sandbox that it has just created, and its pod worker backs off.)
type SandboxLosses struct {
	Count     int       `json:"count,omitempty"`
	NotBefore time.Time `json:"notBefore"` // when the back-off ends
}

// sandboxLossSoon is the age from which the loss of a sandbox is not regarded as a failed creation.
const sandboxLossSoon = 10 * time.Second

// loseSandbox records that a sandbox is not ready, or is gone.
func (p *Pod) loseSandbox(s *Sandbox, now time.Time) {
	wasReady, stopRequested := s.Ready, s.Op != 0 || s.Failures > 0
	s.Ready = false
	switch {
	case !wasReady || stopRequested || p.Stage != Syncing:
	case now.Sub(s.LearnedAt) >= sandboxLossSoon:
		p.SandboxLosses = SandboxLosses{}
	default:
		p.SandboxLosses.Count++
		p.SandboxLosses.NotBefore = now.Add(failureBackoff(p.SandboxLosses.Count))
	}
}
