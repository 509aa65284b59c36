package pod

import (
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
)

// gone is a pod whose container had run, and whose record somebody has removed.
func gone(c Container) *Pod {
	p := facts(spec(v1.RestartPolicyAlways, "", "web"))
	c.Hash = hashOf(p.want("web"))
	p.addContainer(c)
	p.dropContainer(c.ID)
	p.Known = true
	return p
}

func TestRunsThatHaveGoneCount(t *testing.T) {
	c := failed("web", 3, 20*time.Second)
	c.Restarts, c.SandboxID = 4, "s"
	p := gone(c)
	next := p.run(p.want("web"), &Node{BackoffMax: 5 * time.Minute})
	if next.Attempt != 4 || next.Restarts != 5 || next.Backoff != 40*time.Second {
		t.Errorf("the next is #%d, restart %d, back-off %v", next.Attempt, next.Restarts,
			next.Backoff)
	}
	if got := status(p); got.RestartCount != 4 || got.ContainerID != "" {
		t.Errorf("shown with %d restarts, id %q", got.RestartCount, got.ContainerID)
	}
	next.ID = "web4"
	p.addContainer(next)
	if p.past("web").newer(p.newest("web")) {
		t.Error("what has gone is newer than what came after it")
	}
}

func TestARunThatHasGoneIsWaitedFor(t *testing.T) {
	p := gone(failed("web", 1, 10*time.Second)) // it ended a minute after t0
	for _, test := range []struct {
		at   time.Duration
		want Action
	}{{69 * time.Second, Wait}, {70 * time.Second, Create}} {
		if got, _ := p.next(p.want("web"), App, t0.Add(test.at)); got != test.want {
			t.Errorf("after %v: %s, want %s", test.at, got, test.want)
		}
	}
	p = gone(run("web", 1, Running)) // it was ended by whoever removed it
	if got, _ := p.next(p.want("web"), App, t0); got != Create {
		t.Errorf("one that ran: %s, want Create", got)
	}
}

func TestWhatNeverRanIsNoRun(t *testing.T) {
	if p := gone(run("web", 2, Created)); p.past("web") != nil {
		t.Error("it is remembered")
	}
}

// What has changed may be what was wrong.
func TestAChangedSpecDoesNotWait(t *testing.T) {
	c := failed("web", 1, 10*time.Second)
	p := gone(c)
	p.Past[0].Hash = "another"
	if got, _ := p.next(p.want("web"), App, t0); got != Create {
		t.Errorf("%s, want Create", got)
	}
	if got := p.nextBackoff("web", time.Minute); got != 0 {
		t.Errorf("back-off %v", got)
	}
}
