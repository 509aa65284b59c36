package pod

import (
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
)

// podWithRemovedRun returns a pod whose container has run, and whose record an administrator has
// removed.
func podWithRemovedRun(c Container) *Pod {
	p := podWith(spec(v1.RestartPolicyAlways, "", "web"))
	c.Hash = containerHash(p.specContainer("web"))
	p.addContainer(c)
	p.dropContainer(c.ID)
	p.Status.Reportable = true
	return p
}

func TestRemovedRunsCount(t *testing.T) {
	c := failedRun("web", 3, 20*time.Second)
	c.Restarts, c.SandboxID = 4, "s"
	p := podWithRemovedRun(c)
	next := p.newRun(p.specContainer("web"), &Node{BackoffMax: 5 * time.Minute})
	if next.Attempt != 4 || next.Restarts != 5 || next.Backoff != 40*time.Second {
		t.Errorf("the next is #%d, restart %d, back-off %v", next.Attempt, next.Restarts,
			next.Backoff)
	}
	if got := status(p); got.RestartCount != 4 || got.ContainerID != "" {
		t.Errorf("status with %d restarts, id %q", got.RestartCount, got.ContainerID)
	}
	next.ID = "web4"
	p.addContainer(next)
	if p.RemovedRun("web").IsNewerThan(p.NewestRun("web")) {
		t.Error("the removed run counts as newer than the run after it")
	}
}

func TestBackoffOfRemovedRun(t *testing.T) {
	p := podWithRemovedRun(failedRun("web", 1, 10*time.Second)) // exited a minute after t0
	for _, test := range []struct {
		at   time.Duration
		want Action
	}{{69 * time.Second, Wait}, {70 * time.Second, Create}} {
		if got, _ := p.nextAction(p.specContainer("web"), App, t0.Add(test.at)); got != test.want {
			t.Errorf("after %v: %s, want %s", test.at, got, test.want)
		}
	}
	p = podWithRemovedRun(run("web", 1, Running)) // stopped by the administrator
	if got, _ := p.nextAction(p.specContainer("web"), App, t0); got != Create {
		t.Errorf("a running container was removed: %s, want Create", got)
	}
}

func TestRemovedContainerThatNeverStartedIsNoRun(t *testing.T) {
	if p := podWithRemovedRun(run("web", 2, Created)); p.RemovedRun("web") != nil {
		t.Error("a container that was never started counts as a removed run")
	}
}

// The change of the spec may have fixed the failure.
func TestChangedSpecDoesNotWaitForRemovedRun(t *testing.T) {
	c := failedRun("web", 1, 10*time.Second)
	p := podWithRemovedRun(c)
	p.RemovedRuns[0].Hash = "another"
	if got, _ := p.nextAction(p.specContainer("web"), App, t0); got != Create {
		t.Errorf("%s, want Create", got)
	}
	if got := p.nextBackoff("web", time.Minute); got != 0 {
		t.Errorf("back-off %v", got)
	}
}
