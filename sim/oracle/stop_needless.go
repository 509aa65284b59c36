package oracle

import (
	"fmt"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"

	"seedlet.dev/sim/truth"
)

// needlessStop fires when the agent stops a process without a reason. A reason is: the pod was
// not desired all the time since before the container was created, its spec changed, its sandbox
// is not ready or not the newest, another pod has the full name, a probe or hook failed, or a
// deadline passed. A restart of the agent is none, and is the usual way to such a bug (upstream
// #105523, #118559, #124345). The agent may read a manifest that is being rewritten halfway, so a
// stop is a suspicion until no such write can be the reason.
type needlessStop struct {
	suspects []suspect
}

type suspect struct {
	pod          *pod
	at           time.Time
	timesDesired int // of the pod, at the stop
	timesRemoved int // of the pod, at the stop
	message      string
}

// manifestWriteBound is longer than any write of a manifest takes.
const manifestWriteBound = 10 * time.Second

func (*needlessStop) describe() Entry {
	return Entry{"needless-stop", "A container of an unchanged pod is never stopped without a " +
		"reason; a restart of the agent is none."}
}

func (u *needlessStop) checkFact(m *model, f *truth.Fact) *finding {
	if f.Kind == truth.StopRequested {
		u.addSuspect(m, f)
	}
	return u.confirm(f.Time)
}

func (u *needlessStop) checkServed(_ *model, now time.Time, _ []*v1.Pod) *finding {
	return u.confirm(now)
}

func (u *needlessStop) addSuspect(m *model, f *truth.Fact) {
	c := m.containers[f.ContainerID]
	if c == nil || c.state != running || c.sandbox == nil {
		return
	}
	p := c.pod
	p.measureStorage(f.Time) // its logs may have grown
	// An init container of a pod of the API server stays whatever the new spec is.
	followsSpec := p.spec == nil || p.static || !p.runsToCompletion(c)
	switch {
	case p.spec == nil, p.wasRemoved() && !m.isOfCurrentManifest(c), len(p.fullName.pods) > 1:
	case p.specChanged && followsSpec:
	case p.mayBeKilled(f.Time), m.mayHaveFailed(c, f.Time): // the pod or the container is a reason
	case c.mayBeSuperseded():
	case c.wasLost: // an unknown state is a reason
	case c.mayStillEndForShutdown(f.Time):
	case p.timesDesired > 1 && followsSpec && f.Time.Sub(p.desiredAt) < manifestNoticeBound:
	case p.mustBeReplaced(c), !c.sandbox.ready, c.sandbox != p.newestSandbox():
	case (p.sidecarPosition(c.name) > 0 || p.isEphemeral(c.name)) && p.mustBeTerminal():
		// No container needs it any more.
	default:
		when := "while the agent was down"
		if !m.agentDown {
			when = fmt.Sprintf("%v after the agent's start", f.Time.Sub(m.agentStartedAt))
		}
		u.suspects = append(u.suspects, suspect{p, f.Time, p.timesDesired, p.timesRemoved,
			fmt.Sprintf("%s was stopped without a reason, %s", c, when)})
	}
}

// confirm returns the first suspicion that has lasted long enough.
func (u *needlessStop) confirm(now time.Time) *finding {
	if len(u.suspects) == 0 {
		return nil
	}
	u.suspects = slices.DeleteFunc(u.suspects, func(s suspect) bool {
		return s.pod.timesRemoved != s.timesRemoved || s.pod.timesDesired != s.timesDesired ||
			len(s.pod.fullName.pods) > 1
	})
	if len(u.suspects) == 0 || now.Sub(u.suspects[0].at) < manifestWriteBound {
		return nil
	}
	first := u.suspects[0]
	u.suspects = u.suspects[1:]
	return &finding{message: first.message, time: first.at}
}
