package oracle

import (
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"seedlet.dev/sim/truth"
)

const (
	always    = v1.RestartPolicyAlways
	onFailure = v1.RestartPolicyOnFailure
	never     = v1.RestartPolicyNever
)

func TestOneRun(t *testing.T) {
	judge(t, []tale{
		{"one after the other", "", func(s *story) {
			s.runs(always).exit(1, truth.CauseOwn)
			s.start("u1-s0", "app", 1)
		}},
		{"side by side", "one-run", func(s *story) {
			s.runs(always)
			s.start("u1-s0", "app", 1)
		}},
		{"one lives on in a dead sandbox", "one-run", func(s *story) {
			s.runs(always)
			s.sandboxIs(truth.SandboxStopped, "u1-s0")
			s.start(s.sandbox("u1", 1), "app", 1)
		}},
	})
}

func TestInitOrder(t *testing.T) {
	pod := func(s *story) string {
		s.want(spec("u1", always, "init-1", "init-2", "app"))
		return s.sandbox("u1", 0)
	}
	judge(t, []tale{
		{"in order", "", func(s *story) {
			box := pod(s)
			s.start(box, "init-1", 0).exit(0, truth.CauseOwn)
			s.start(box, "init-2", 0).exit(0, truth.CauseOwn)
			s.start(box, "app", 0)
		}},
		{"second before the first", "init-order", func(s *story) {
			box := pod(s)
			s.start(box, "init-1", 0)
			s.start(box, "init-2", 0)
		}},
		{"app after a failed init container", "init-order", func(s *story) {
			box := pod(s)
			s.start(box, "init-1", 0).exit(0, truth.CauseOwn)
			s.start(box, "init-2", 0).exit(1, truth.CauseOwn)
			s.start(box, "app", 0)
		}},
		{"initialised in the sandbox before", "init-order", func(s *story) {
			box := pod(s)
			s.start(box, "init-1", 0).exit(0, truth.CauseOwn)
			s.start(box, "init-2", 0).exit(0, truth.CauseOwn)
			s.sandboxIs(truth.SandboxStopped, box)
			s.start(s.sandbox("u1", 1), "app", 0)
		}},
		{"by the spec that the agent has not seen replaced", "", func(s *story) {
			box := pod(s)
			s.want(spec("u1", always, "init-3", "app"))
			s.start(box, "init-1", 0).exit(0, truth.CauseOwn)
			s.start(box, "init-2", 0).exit(0, truth.CauseOwn)
			s.start(box, "app", 0)
		}},
	})
}

func TestPolicy(t *testing.T) {
	again := func(policy v1.RestartPolicy, code int32) func(*story) {
		return func(s *story) {
			s.runs(policy).exit(code, truth.CauseOwn)
			s.start("u1-s0", "app", 1)
		}
	}
	judge(t, []tale{
		{"Always after success", "", again(always, 0)},
		{"OnFailure after failure", "", again(onFailure, 1)},
		{"OnFailure after success", "restart-policy", again(onFailure, 0)},
		{"Never after failure", "restart-policy", again(never, 1)},
		{"Never in a new sandbox", "restart-policy", func(s *story) {
			s.runs(never).exit(137, truth.CauseKilled)
			s.sandboxIs(truth.SandboxStopped, "u1-s0")
			s.start(s.sandbox("u1", 1), "app", 1)
		}},
		{"Never, but it could not be started before", "", func(s *story) {
			s.want(spec("u1", never, "app"))
			s.create(s.sandbox("u1", 0), "app", 0).exit(128, truth.CauseStart)
			s.start("u1-s0", "app", 1)
		}},
		{"Never, gone and back", "", func(s *story) {
			r := s.runs(never)
			s.Unwanted(s.now, "u1")
			r.exit(143, truth.CauseStop)
			r.is(truth.ContainerRemoved, "")
			s.sandboxIs(truth.SandboxRemoved, "u1-s0")
			s.want(s.pods["u1"])
			s.start(s.sandbox("u1", 0), "app", 0)
		}},
		{"an init container where it has completed", "restart-policy", func(s *story) {
			s.want(spec("u1", always, "init", "app"))
			s.start(s.sandbox("u1", 0), "init", 0).exit(0, truth.CauseOwn)
			s.start("u1-s0", "init", 1)
		}},
		{"an init container in a new sandbox", "", func(s *story) {
			s.want(spec("u1", never, "init", "app"))
			s.start(s.sandbox("u1", 0), "init", 0).exit(0, truth.CauseOwn)
			s.sandboxIs(truth.SandboxStopped, "u1-s0")
			s.start(s.sandbox("u1", 1), "init", 1)
		}},
	})
}

func TestBackoff(t *testing.T) {
	// crash has the container exit after each run, and restarts it after each wait, in seconds.
	crash := func(runs, cause string, waits ...float64) func(*story) {
		return func(s *story) {
			r := s.runs(always)
			for i, wait := range waits {
				s.wait(map[string]float64{"short": 1, "long": 601}[runs])
				r.exit(1, cause)
				s.wait(wait)
				if i%2 == 1 {
					s.AgentKilled(s.now)
					s.AgentStarted(s.now)
				}
				r = s.start("u1-s0", "app", uint32(i+1))
			}
		}
	}
	own := truth.CauseOwn
	judge(t, []tale{
		{"doubling to the maximum", "", crash("short", own, 0, 10, 20, 40, 80, 160, 300, 300)},
		{"the second restart at once", "back-off", crash("short", own, 0, 0)},
		{"not doubled", "back-off", crash("short", own, 0, 10, 10)},
		{"below the maximum", "back-off", crash("short", own, 0, 10, 20, 40, 80, 160, 299)},
		{"after long runs", "", crash("long", own, 0, 0, 0, 0)},
		{"killed from outside", "back-off", crash("short", truth.CauseKilled, 0, 0)},
		{"stopped by the agent", "", crash("short", truth.CauseStop, 0, 0, 0)},
	})
}

func TestTerminal(t *testing.T) {
	failed := func(s *story) {
		s.runs(never).exit(1, truth.CauseOwn)
		s.shows("u1", v1.PodFailed, "app#0 terminated")
	}
	judge(t, []tale{
		{"for ever", "", func(s *story) {
			failed(s)
			s.AgentStarted(s.now)
			s.shows("u1", v1.PodUnknown)
			s.shows("u1", v1.PodFailed, "app#0 terminated")
		}},
		{"shown as running again", "terminal", func(s *story) {
			failed(s)
			s.shows("u1", v1.PodRunning, "app#0 terminated")
		}},
		{"the other terminal phase", "terminal", func(s *story) {
			failed(s)
			s.shows("u1", v1.PodSucceeded, "app#0 terminated")
		}},
		{"while it runs", "terminal", func(s *story) {
			s.runs(never)
			s.shows("u1", v1.PodSucceeded)
		}},
		{"late", "", func(s *story) {
			s.runs(never).exit(0, truth.CauseOwn)
			s.shows("u1", v1.PodRunning, "app#0 ready")
		}},
		{"then something starts", "terminal", func(s *story) {
			s.want(spec("u1", never, "app", "more"))
			s.start(s.sandbox("u1", 0), "app", 0).exit(1, truth.CauseOwn)
			s.shows("u1", v1.PodFailed)
			s.start("u1-s0", "more", 0)
		}},
		{"its manifest is back", "", func(s *story) {
			failed(s)
			s.Unwanted(s.now, "u1")
			s.want(s.pods["u1"])
			s.shows("u1", v1.PodFailed, "app#0 terminated") // not noticed yet
			s.shows("u1", v1.PodPending)
		}},
		{"while being deleted", "", func(s *story) {
			r := s.runs(always)
			s.Unwanted(s.now, "u1")
			r.exit(0, truth.CauseStop)
			p := s.shown("u1", v1.PodSucceeded, "app#0 terminated")
			p.DeletionTimestamp = &metav1.Time{Time: s.now}
			s.Answer(s.now, []*v1.Pod{p})
		}},
	})
}

func TestCounts(t *testing.T) {
	judge(t, []tale{
		{"counted", "", func(s *story) {
			s.runs(always).exit(1, truth.CauseOwn)
			s.shows("u1", v1.PodRunning, "app#0 waiting")
			s.start("u1-s0", "app", 1)
			s.shows("u1", v1.PodRunning, "app#1 ready")
		}},
		{"an attempt twice", "restart-count", func(s *story) {
			r := s.runs(always)
			r.exit(1, truth.CauseOwn)
			r.is(truth.ContainerRemoved, "")
			s.create("u1-s0", "app", 0)
		}},
		{"an attempt that was never tried", "", func(s *story) {
			s.want(spec("u1", always, "app"))
			s.create(s.sandbox("u1", 0), "app", 0).is(truth.ContainerRemoved, "")
			s.create("u1-s0", "app", 0)
		}},
		{"the annotation goes back", "restart-count", func(s *story) {
			s.runs(always).exit(1, truth.CauseOwn)
			s.fact(truth.ContainerCreated, truth.Fact{SandboxID: "u1-s0", Container: "app",
				ContainerID: "x", Attempt: 1, Annotations: map[string]string{
					annotationRestarts: "0"}})
		}},
		{"what is shown goes back", "restart-count", func(s *story) {
			s.runs(always).exit(1, truth.CauseOwn)
			s.start("u1-s0", "app", 1)
			s.shows("u1", v1.PodRunning, "app#1 ready")
			s.AgentStarted(s.now)
			s.shows("u1", v1.PodUnknown)
			s.shows("u1", v1.PodRunning, "app#0 waiting")
		}},
		{"what is shown is not what was made", "restart-count", func(s *story) {
			s.runs(always)
			p := s.shown("u1", v1.PodRunning, "app#0 ready")
			p.Status.ContainerStatuses[0].RestartCount = 3
			s.Answer(s.now, []*v1.Pod{p})
		}},
		{"gone and back", "", func(s *story) {
			r := s.runs(always)
			r.exit(1, truth.CauseOwn)
			second := s.start("u1-s0", "app", 1)
			s.shows("u1", v1.PodRunning, "app#1 ready")
			s.Unwanted(s.now, "u1")
			s.want(s.pods["u1"])
			second.exit(0, truth.CauseStop)
			r.is(truth.ContainerRemoved, "")
			second.is(truth.ContainerRemoved, "")
			s.shows("u1", v1.PodPending)
			s.start("u1-s0", "app", 0)
			s.shows("u1", v1.PodRunning, "app#0 ready")
		}},
	})
}

func TestGrace(t *testing.T) {
	// end runs a container, wants it gone, and has it asked to end and killed.
	end := func(ran float64, asked bool, waited float64, cause string) func(*story) {
		return func(s *story) {
			r := s.runs(always)
			s.wait(ran)
			s.Unwanted(s.now, "u1")
			if asked {
				r.is(truth.StopRequested, "")
			}
			s.wait(waited)
			r.is(truth.KillRequested, cause)
			r.exit(137, cause)
		}
	}
	judge(t, []tale{
		{"by the book", "", end(100, true, 30, truth.CauseStop)},
		{"too early", "grace", end(100, true, 29, truth.CauseStop)},
		{"with the sandbox, too early", "grace", end(100, true, 2, truth.CauseSandbox)},
		{"with the sandbox, in time", "", end(100, true, 31, truth.CauseSandbox)},
		{"removed while it ran", "grace", end(100, true, 1, truth.CauseRemove)},
		{"without having been asked", "grace", end(100, false, 40, truth.CauseSandbox)},
		{"started too late to know", "", end(1, false, 0, truth.CauseSandbox)},
		{"by somebody on the node", "", end(100, false, 0, truth.CauseKilled)},
		{"its record goes while it runs", "grace", func(s *story) {
			s.runs(always).is(truth.ContainerRemoved, "")
		}},
		{"the shorter grace period after a change", "", func(s *story) {
			r := s.runs(always)
			short, five := spec("u1", always, "app"), int64(5)
			short.Spec.TerminationGracePeriodSeconds = &five
			s.want(short)
			s.Unwanted(s.now, "u1")
			r.is(truth.StopRequested, "")
			s.wait(5)
			r.is(truth.KillRequested, truth.CauseStop)
		}},
	})
}

func TestFullNames(t *testing.T) {
	judge(t, []tale{
		{"one after the other", "", func(s *story) {
			r := s.runs(always)
			s.Unwanted(s.now, "u1")
			s.want(spec("u2", always, "app"))
			r.exit(0, truth.CauseStop)
			s.start(s.sandbox("u2", 0), "app", 0)
		}},
		{"side by side", "full-name", func(s *story) {
			s.runs(always)
			s.Unwanted(s.now, "u1")
			s.want(spec("u2", always, "app"))
			s.start(s.sandbox("u2", 0), "app", 0)
		}},
	})
}

func TestUndisturbed(t *testing.T) {
	stop := func(r run) { r.is(truth.StopRequested, "") }
	restart := func(s *story) {
		s.wait(200)
		s.AgentKilled(s.now)
		s.wait(5)
		s.AgentStarted(s.now)
	}
	judge(t, []tale{
		{"stopped after a restart of the agent", "undisturbed", func(s *story) {
			r := s.runs(always)
			restart(s)
			stop(r)
		}},
		{"its manifest was gone meanwhile", "", func(s *story) {
			r := s.runs(always)
			restart(s)
			s.Unwanted(s.now, "u1")
			stop(r)
		}},
		{"its manifest is being written", "", func(s *story) {
			r := s.runs(always)
			restart(s)
			stop(r)
			s.wait(0.5)
			s.want(s.pods["u1"])
		}},
		{"its sandbox has died", "", func(s *story) {
			r := s.runs(always)
			s.sandboxIs(truth.SandboxStopped, "u1-s0")
			stop(r)
		}},
		{"it was changed", "", func(s *story) {
			r := s.runs(always)
			changed := spec("u1", always, "app")
			changed.Spec.Containers[0].Image = "image:2"
			s.want(changed)
			stop(r)
		}},
		{"another has its name", "", func(s *story) {
			r := s.runs(always)
			s.want(spec("u2", always, "app"))
			stop(r)
		}},
	})
}

func TestReadiness(t *testing.T) {
	judge(t, []tale{
		{"shown late", "", func(s *story) {
			s.runs(always)
			s.shows("u1", v1.PodPending, "app#0 waiting")
			s.shows("u1", v1.PodRunning, "app#0 ready")
			s.AgentStarted(s.now)
			s.shows("u1", v1.PodUnknown)
			s.shows("u1", v1.PodRunning, "app#0 ready")
		}},
		{"taken back by a new life", "readiness", func(s *story) {
			s.runs(always)
			s.shows("u1", v1.PodRunning, "app#0 ready")
			s.AgentStarted(s.now)
			s.shows("u1", v1.PodRunning, "app#0 waiting")
		}},
		{"after its exit", "", func(s *story) {
			r := s.runs(always)
			s.shows("u1", v1.PodRunning, "app#0 ready")
			r.exit(1, truth.CauseOwn)
			s.shows("u1", v1.PodRunning, "app#0 waiting")
		}},
		{"terminated, but it runs", "readiness", func(s *story) {
			s.runs(always)
			s.shows("u1", v1.PodRunning, "app#0 terminated")
		}},
		{"the pod's condition disagrees", "readiness", func(s *story) {
			s.runs(always)
			p := s.shown("u1", v1.PodRunning, "app#0 ready")
			p.Status.Conditions = []v1.PodCondition{
				{Type: v1.PodReady, Status: v1.ConditionFalse},
			}
			s.Answer(s.now, []*v1.Pod{p})
		}},
	})
}

func TestDirectories(t *testing.T) {
	judge(t, []tale{
		{"after the end", "", func(s *story) {
			s.path(truth.PathMade, podsDir+"/u1", "")
			r := s.runs(always)
			s.Unwanted(s.now, "u1")
			r.exit(0, truth.CauseStop)
			s.path(truth.PathRemoved, podsDir+"/u1", "")
		}},
		{"under a process", "directories", func(s *story) {
			s.runs(always)
			s.path(truth.PathRemoved, podsDir+"/u1", "")
		}},
		{"the logs of a process", "directories", func(s *story) {
			s.runs(always)
			s.path(truth.PathRemoved, logsDir+"/ns_web_u1", "")
		}},
		{"by somebody else", "", func(s *story) {
			s.runs(always)
			s.path(truth.PathRemoved, podsDir+"/u1", truth.CauseUser)
		}},
	})
}

func TestSidecarOrder(t *testing.T) {
	pod := func(s *story) (first, second, app run) {
		p := spec("u1", always, "init-1", "init-2", "app")
		restart := v1.ContainerRestartPolicyAlways
		for i := range p.Spec.InitContainers {
			p.Spec.InitContainers[i].RestartPolicy = &restart
		}
		s.want(p)
		box := s.sandbox("u1", 0)
		return s.start(box, "init-1", 0), s.start(box, "init-2", 0), s.start(box, "app", 0)
	}
	judge(t, []tale{
		{"last first, after the app", "", func(s *story) {
			first, second, app := pod(s)
			s.Unwanted(s.now, "u1")
			app.is(truth.StopRequested, "")
			app.exit(143, truth.CauseStop)
			second.is(truth.StopRequested, "")
			second.exit(143, truth.CauseStop)
			first.is(truth.StopRequested, "")
		}},
		{"while the app runs", "sidecar-order", func(s *story) {
			_, second, _ := pod(s)
			s.Unwanted(s.now, "u1")
			second.is(truth.StopRequested, "")
		}},
		{"first first", "sidecar-order", func(s *story) {
			first, _, app := pod(s)
			s.Unwanted(s.now, "u1")
			app.exit(143, truth.CauseStop)
			first.is(truth.StopRequested, "")
		}},
	})
}
