package oracle

import (
	"fmt"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"

	"seedlet.dev/sim/truth"
)

// undisturbed fires when the agent stops a process that has every right to run: its pod has been
// wanted all the time since before it was made, with one spec, its sandbox is ready and the newest,
// no other pod claims the name, no probe or hook of it has failed, and no deadline has passed.
// Whether the agent was restarted does not matter, and is the usual way to get there (upstream
// #105523, #118559, #124345). A manifest that is being rewritten may be read halfway, so judgement
// waits until nobody can turn out to have been at it.
type undisturbed struct {
	suspects []suspect
}

type suspect struct {
	pod     *pod
	at      time.Time
	wishes  int // of the pod, when it was disturbed
	removed int // likewise
	message string
}

// writtenWithin is longer than anybody takes to write a manifest.
const writtenWithin = 10 * time.Second

func (*undisturbed) entry() Entry {
	return Entry{"undisturbed", "A restart of the agent, or nothing at all, is no reason to stop " +
		"a container of an unchanged pod."}
}

func (u *undisturbed) fact(w *world, f *truth.Fact) *finding {
	if f.Kind == truth.StopRequested {
		u.suspect(w, f)
	}
	return u.confirm(f.Time)
}

func (u *undisturbed) answer(_ *world, now time.Time, _ []*v1.Pod) *finding {
	return u.confirm(now)
}

func (u *undisturbed) suspect(w *world, f *truth.Fact) {
	c := w.containers[f.ContainerID]
	if c == nil || c.state != running || c.sandbox == nil {
		return
	}
	p := c.pod
	switch {
	case p.spec == nil, p.loose() && !w.ofThisWish(c), p.respecified, len(p.full.pods) > 1:
	case p.maybeKilled(f.Time), w.failed(c, f.Time): // there is a reason
	case c.restarted():
	case c.lost: // and so is that nobody knows how it is
	case p.wishes > 1 && f.Time.Sub(p.wishedAt) < noticedAfter:
	case !p.current(c), !c.sandbox.ready, c.sandbox != p.newestSandbox():
	case (p.sidecar(c.name) > 0 || p.isEphemeral(c.name)) && p.over(): // nobody needs it any more
	default:
		when := "while the agent was down"
		if !w.dead {
			when = fmt.Sprintf("%v after the agent's start", f.Time.Sub(w.started))
		}
		u.suspects = append(u.suspects, suspect{p, f.Time, p.wishes, p.removals,
			fmt.Sprintf("%s was stopped for no reason, %s", c, when)})
	}
}

// confirm finds the first suspicion that has lasted.
func (u *undisturbed) confirm(now time.Time) *finding {
	if len(u.suspects) == 0 {
		return nil
	}
	u.suspects = slices.DeleteFunc(u.suspects, func(s suspect) bool {
		return s.pod.removals != s.removed || s.pod.wishes != s.wishes || len(s.pod.full.pods) > 1
	})
	if len(u.suspects) == 0 || now.Sub(u.suspects[0].at) < writtenWithin {
		return nil
	}
	first := u.suspects[0]
	u.suspects = u.suspects[1:]
	return &finding{message: first.message, time: first.at}
}
