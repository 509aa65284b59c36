package oracle

import (
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"

	"seedlet.dev/sim/truth"
	"seedlet.dev/world"
)

// shutdownScript starts "u1", and a critical pod "u2", under an agent that holds the lock.
func shutdownScript(s *script) (ordinary, critical run) {
	s.model.opts.Shutdown = &Shutdown{Groups: []ShutdownGroup{{Period: 20 * time.Second},
		{Priority: systemCriticalPriority, Period: 10 * time.Second}}}
	s.AgentStarted(s.now)
	s.machine(truth.ShutdownDelayed, "")
	for _, p := range []*v1.Pod{spec("u1", always, "app"), spec("u2", always, "app")} {
		p.Annotations = map[string]string{annotationSource: sourceFile}
		s.pods[string(p.UID)] = p
	}
	s.setDesired(s.pods["u1"])
	p := s.pods["u2"]
	priority := int32(systemCriticalPriority)
	p.Name, p.Spec.Priority = "dns", &priority
	s.setDesired(p)
	ordinary = s.start(s.sandbox("u1", 0), "app", 0)
	critical = s.start(s.sandbox("u2", 0), "app", 0)
	s.wait(60)
	return ordinary, critical
}

// addNamed adds a pod with a name.
func (s *script) addNamed(uid, name string) {
	p := spec(uid, always, "app")
	p.Name = name
	s.setDesired(p)
}

// machine adds a fact about a shutdown.
func (s *script) machine(kind truth.Kind, cause string) {
	s.CheckFact(truth.Fact{Time: s.now, Kind: kind, Cause: cause})
}

// end stops a container, which exits after some seconds.
func (r run) end(seconds float64) {
	r.change(truth.StopRequested, "")
	r.script.wait(seconds)
	r.exit(143, truth.CauseStop)
}

func TestOrderOfGroups(t *testing.T) {
	runCases(t, []testCase{
		{"the groups end in order", "", func(s *script) {
			ordinary, critical := shutdownScript(s)
			s.machine(truth.ShutdownAnnounced, "")
			ordinary.end(5)
			critical.end(5)
			s.machine(truth.ShutdownPermitted, "")
			s.losePower()
		}},
		{"a critical pod is stopped before the others have ended", "needless-stop", func(s *script) {
			_, critical := shutdownScript(s)
			s.machine(truth.ShutdownAnnounced, "")
			s.wait(10)
			critical.change(truth.StopRequested, "")
			s.wait(1)
			s.machine(truth.ShutdownCancelled, "")
		}},
		{"a pod of a later group is stopped in the second shutdown", "needless-stop", func(s *script) {
			ordinary, critical := shutdownScript(s)
			s.machine(truth.ShutdownAnnounced, "")
			ordinary.end(5)
			critical.end(5)
			s.machine(truth.ShutdownCancelled, "")
			s.wait(60)
			ordinary = s.start("u1-s0", "app", 1)
			critical = s.start("u2-s0", "app", 1)
			s.wait(60)
			s.machine(truth.ShutdownAnnounced, "")
			critical.end(5)
			ordinary.end(5)
			s.machine(truth.ShutdownCancelled, "")
		}},
		{"the next group after the period", "", func(s *script) {
			ordinary, critical := shutdownScript(s)
			s.machine(truth.ShutdownAnnounced, "")
			ordinary.change(truth.StopRequested, "")
			s.wait(20)
			critical.end(9)
			ordinary.exit(137, truth.CauseStop)
			s.machine(truth.ShutdownPermitted, "")
			s.losePower()
		}},
		{"a group is killed before its period", "grace-period", func(s *script) {
			ordinary, _ := shutdownScript(s)
			s.machine(truth.ShutdownAnnounced, "")
			ordinary.change(truth.StopRequested, "")
			s.wait(19)
			ordinary.kill()
			s.losePower()
		}},
		{"a group is killed after its period", "", func(s *script) {
			ordinary, _ := shutdownScript(s)
			s.machine(truth.ShutdownAnnounced, "")
			ordinary.change(truth.StopRequested, "")
			s.wait(20)
			ordinary.kill()
			s.losePower()
		}},
	})
}

func TestLockOfShutdown(t *testing.T) {
	runCases(t, []testCase{
		{"the lock is released while a pod has time", "shutdown", func(s *script) {
			shutdownScript(s)
			s.machine(truth.ShutdownAnnounced, "")
			s.wait(19)
			s.machine(truth.ShutdownPermitted, "")
			s.losePower()
		}},
		{"the lock is released without the final status of a pod of the API server", "shutdown",
			func(s *script) {
				ordinary, critical := shutdownScript(s)
				s.addNamed("u3", "api")
				other := s.start(s.sandbox("u3", 0), "app", 0)
				s.wait(60)
				s.machine(truth.ShutdownAnnounced, "")
				ordinary.end(5)
				other.end(1)
				critical.end(5)
				s.machine(truth.ShutdownPermitted, "")
				s.losePower()
			}},
		{"the lock is released for nothing", "shutdown", func(s *script) {
			shutdownScript(s)
			s.machine(truth.ShutdownPermitted, "")
		}},
		{"the lock ends with the agent", "", func(s *script) {
			shutdownScript(s)
			s.machine(truth.ShutdownPermitted, truth.CauseKilled)
		}},
		{"the shutdown is delayed for nothing", "shutdown", func(s *script) {
			ordinary, critical := shutdownScript(s)
			s.machine(truth.ShutdownAnnounced, "")
			ordinary.end(5)
			critical.end(5)
			s.CheckServed(s.now, nil)
			s.wait(20)
			s.CheckServed(s.now, nil)
			s.losePower()
		}},
	})
}

// The time of a shutdown counts from the start of an earlier one, if the agent has heard neither of
// the end of that one nor of the start of this one.
func TestTimeOfMissedShutdown(t *testing.T) {
	second := func(cause string, heard bool) func(*script) {
		return func(s *script) {
			ordinary, critical := shutdownScript(s)
			s.addNamed("u3", "api")
			other := s.start(s.sandbox("u3", 0), "app", 0)
			s.wait(60)
			s.machine(truth.ShutdownAnnounced, "")
			ordinary.end(5)
			other.end(1)
			critical.end(5)
			s.machine(truth.ShutdownCancelled, cause)
			if heard {
				s.machine(truth.ShutdownDelayed, "")
			}
			s.wait(18)
			s.machine(truth.ShutdownAnnounced, cause)
			s.wait(1)
			s.machine(truth.ShutdownPermitted, "")
			s.losePower()
		}
	}
	runCases(t, []testCase{
		{"missed", "", second(truth.CauseUnwatched, false)},
		{"heard later", "shutdown", second(truth.CauseUnwatched, true)},
		{"heard", "shutdown", second("", false)},
	})
}

func TestNewPodInShutdown(t *testing.T) {
	runCases(t, []testCase{
		{"a new pod is started", "shutdown", func(s *script) {
			shutdownScript(s)
			s.machine(truth.ShutdownAnnounced, "")
			s.wait(1)
			s.addNamed("u3", "new")
			s.sandbox("u3", 0)
			s.losePower()
		}},
		{"a new pod is started that the agent cannot know of", "", func(s *script) {
			shutdownScript(s)
			s.machine(truth.ShutdownAnnounced, truth.CauseUnwatched)
			s.wait(1)
			s.addNamed("u3", "new")
			s.sandbox("u3", 0)
			s.losePower()
		}},
	})
}

func TestNewPodAfterShutdown(t *testing.T) {
	serveAfter := func(seconds float64, reason string, meanwhile func(s *script)) func(*script) {
		return func(s *script) {
			shutdownScript(s)
			s.machine(truth.ShutdownAnnounced, "")
			s.wait(1)
			s.addNamed("u3", "new")
			s.wait(1)
			s.machine(truth.ShutdownCancelled, "")
			meanwhile(s)
			s.wait(seconds)
			p := s.served("u3", v1.PodPending)
			p.Status.Reason = reason
			s.CheckServed(s.now, []*v1.Pod{p})
			s.PodNoLongerDesired(s.now, "u3")
		}
	}
	none := func(*script) {}
	runCases(t, []testCase{
		{"it waits", "shutdown", serveAfter(21, reasonInShutdown, none)},
		{"it waits for a while", "", serveAfter(19, reasonInShutdown, none)},
		{"it waits for something else", "", serveAfter(21, "", none)},
		{"with a fault", "", serveAfter(21, reasonInShutdown, func(s *script) {
			last := s.now.Add(17 * time.Second)
			s.model.opts.LastFault = func(time.Time) time.Time { return last }
		})},
	})
}

// An agent that is started during a shutdown, on a bus that does not respond, knows of it from the
// state file alone; it admits nothing before its third request has failed.
func TestNewPodWithoutBus(t *testing.T) {
	at := func(seconds int) string {
		return begin.Add(time.Duration(seconds) * time.Second).Format(time.RFC3339Nano)
	}
	for _, c := range []struct {
		name     string
		want     string
		failures int
		file     string
		then     func(s *script)
	}{
		{"before the third failure", "shutdown", lockFailuresMax - 1, "", nil},
		{"after the third failure", "", lockFailuresMax, "", nil},
		{"before the third request has timed out", "shutdown", lockFailuresMax - 1, "", func(s *script) {
			s.ask(9, &world.DelayShutdown{})
			s.wait(29)
		}},
		{"after the third request has timed out", "", lockFailuresMax - 1, "", func(s *script) {
			s.ask(9, &world.DelayShutdown{})
			s.wait(31)
		}},
		{"after an answer", "shutdown", lockFailuresMax, "", func(s *script) {
			s.ask(9, &world.DelayShutdown{})
			s.answer(9, world.Errorf(world.KindConflict, "DelayShutdown", "under way"))
		}},
		{"that another agent waited for", "shutdown", lockFailuresMax, "", func(s *script) {
			s.AgentKilled(s.now)
			s.AgentStarted(s.now)
		}},
		{"while the file says that pods end", "shutdown", lockFailuresMax,
			`{"startTime":"` + at(60) + `","endTime":"0001-01-01T00:00:00Z"}`, nil},
		{"when pods have had their time by the file", "", lockFailuresMax,
			`{"startTime":"` + at(30) + `","endTime":"0001-01-01T00:00:00Z"}`, nil},
		{"when pods have ended by the file", "", lockFailuresMax,
			`{"startTime":"` + at(60) + `","endTime":"` + at(61) + `"}`, nil},
		{"with a damaged file", "", lockFailuresMax, `{"startTime":`, nil},
	} {
		runCases(t, []testCase{{c.name, c.want, func(s *script) {
			s.model.opts.ReadFile = func(path string) ([]byte, bool) {
				return []byte(c.file), path == "/var/lib/kubelet/graceful_node_shutdown_state"
			}
			shutdownScript(s)
			s.machine(truth.ShutdownAnnounced, "")
			s.wait(2)
			s.AgentKilled(s.now)
			s.AgentStarted(s.now)
			for id := range world.OpID(c.failures) {
				s.ask(id+1, &world.DelayShutdown{})
				s.answer(id+1, world.Errorf(world.KindUnavailable, "DelayShutdown", "no bus"))
			}
			if c.then != nil {
				c.then(s)
			}
			s.addNamed("u3", "new")
			s.sandbox("u3", 0)
			s.losePower()
		}}})
	}
}

// kill has the runtime kill a container on a request of the agent.
func (r run) kill() {
	r.change(truth.KillRequested, truth.CauseStop)
	r.exit(137, truth.CauseStop)
}

// ask has the agent issue a call.
func (s *script) ask(id world.OpID, body any) {
	s.CallIssued(s.now, &world.Effect{Op: id, Body: body, Deadline: s.now.Add(30 * time.Second)})
	s.wait(0.01)
}

// answer gives the agent the answer to a call.
func (s *script) answer(id world.OpID, body any) {
	ev := &world.Event{Op: id, Body: body}
	if err, isError := body.(*world.Error); isError {
		ev.Body, ev.Err = nil, err
	}
	s.EventReceived(s.now, ev)
	s.wait(0.01)
}

func TestLockIsHeldAndReleasedOnce(t *testing.T) {
	lock := func(s *script, id world.OpID) {
		s.ask(id, &world.DelayShutdown{})
		s.answer(id, &world.ShutdownDelayed{})
	}
	begin := func(s *script) {
		shutdownScript(s)
		lock(s, 1)
	}
	runCases(t, []testCase{
		{"the lock is asked for a second time", "shutdown", func(s *script) {
			begin(s)
			s.ask(2, &world.DelayShutdown{})
		}},
		{"again after a loss of the bus", "", func(s *script) {
			begin(s)
			s.answer(0, &world.ShutdownUnwatched{})
			lock(s, 2)
		}},
		{"again after a loss of the bus before the answer", "", func(s *script) {
			shutdownScript(s)
			s.ask(1, &world.DelayShutdown{})
			s.answer(0, &world.ShutdownUnwatched{})
			s.answer(1, &world.ShutdownDelayed{})
			lock(s, 2)
		}},
		{"again by another agent", "", func(s *script) {
			begin(s)
			s.AgentKilled(s.now)
			s.AgentStarted(s.now)
			lock(s, 2)
		}},
		{"again after its release", "", func(s *script) {
			begin(s)
			s.ask(2, &world.PermitShutdown{})
			s.answer(2, &world.Done{})
			lock(s, 3)
		}},
		{"the lock is released a second time", "shutdown", func(s *script) {
			begin(s)
			s.ask(2, &world.PermitShutdown{})
			s.answer(2, &world.Done{})
			s.ask(3, &world.PermitShutdown{})
		}},
		{"released again after a failure", "", func(s *script) {
			begin(s)
			s.ask(2, &world.PermitShutdown{})
			s.answer(2, world.Errorf(world.KindUnavailable, "PermitShutdown", "no bus"))
			s.ask(3, &world.PermitShutdown{})
		}},
	})
}

func TestTurnOfGroup(t *testing.T) {
	serve := func(seconds float64) func(*script) {
		return func(s *script) {
			_, critical := shutdownScript(s)
			s.wait(startNoticeBound.Seconds())
			s.machine(truth.ShutdownAnnounced, "")
			s.wait(seconds)
			s.CheckServed(s.now, nil)
			s.machine(truth.ShutdownCancelled, "")
			critical.exit(0, truth.CauseSelf)
		}
	}
	afterDeleted := func(seconds float64) func(*script) {
		return func(s *script) {
			ordinary, _ := shutdownScript(s)
			s.PodNoLongerDesired(s.now, "u1")
			ordinary.change(truth.StopRequested, "")
			s.wait(startNoticeBound.Seconds())
			s.machine(truth.ShutdownAnnounced, "")
			s.wait(15)
			s.CheckServed(s.now, nil)
			ordinary.exit(143, truth.CauseStop)
			s.wait(seconds)
			s.CheckServed(s.now, nil)
			s.losePower()
		}
	}
	runCases(t, []testCase{
		{"the first group does not begin to end", "shutdown", serve(6)},
		{"the first group has just had its turn", "", serve(4)},
		{"a pod of the first group that is deleted is waited for", "", afterDeleted(4)},
		{"the second group does not begin to end after it", "shutdown", afterDeleted(6)},
		{"the second group does not begin to end", "shutdown", func(s *script) {
			ordinary, _ := shutdownScript(s)
			s.machine(truth.ShutdownAnnounced, "")
			ordinary.end(1)
			s.wait(6)
			s.CheckServed(s.now, nil)
			s.losePower()
		}},
	})
}

// An agent that does not know all pods when a shutdown is announced waits ten seconds for them.
func TestAwaitedPodsInShutdown(t *testing.T) {
	const never, before = 1000, -1
	for _, c := range []struct {
		name          string
		want          string
		listed, after float64 // seconds after the announcement: of the list, and of the response
		watch         world.WatchID
		fault         string
	}{
		{"all pods are known", "shutdown", before, 6, 7, ""},
		{"all pods of another watch are", "", before, 6, 8, ""},
		{"they have just become known", "", 3, 7, 7, ""},
		{"they have become known", "shutdown", 3, 9, 7, ""},
		{"they do not become known", "", never, 14, 7, ""},
		{"they do not become known, and the time has passed", "shutdown", never, 16, 7, ""},
		{"they have become known after the time", "shutdown", 14, 16, 7, ""},
		{"those of the manifest URL may not be known", "", before, 14, 7, "FetchManifest"},
		{"those of the manifest URL may not, and the time has passed", "shutdown", before, 16, 7,
			"FetchManifest"},
	} {
		runCases(t, []testCase{{c.name, c.want, func(s *script) {
			list := func(isDue bool) {
				if isDue {
					s.EventReceived(s.now, &world.Event{Body: &world.ObjectsListed{Watch: c.watch}})
				}
			}
			s.model.opts.FaultPossible = func(call string, _, _ time.Time) bool { return call == c.fault }
			shutdownScript(s)
			s.EffectIssued(s.now, &world.Effect{Body: &world.WatchObjects{Watch: 7,
				WatchTarget: world.WatchTarget{Resource: world.ResourcePods}}})
			list(c.listed < 0)
			s.machine(truth.ShutdownAnnounced, "")
			early := min(max(c.listed, 0), c.after)
			s.wait(early)
			list(c.listed >= 0 && c.listed < c.after)
			s.wait(c.after - early)
			s.CheckServed(s.now, nil)
			s.losePower()
		}}})
	}
}

func TestTurnOfGroupAfterRestart(t *testing.T) {
	// restart has another agent learn of the shutdown that goes on.
	restart := func(s *script) {
		s.machine(truth.ShutdownAnnounced, "")
		s.wait(2)
		s.AgentKilled(s.now)
		s.AgentStarted(s.now)
		s.ask(1, &world.DelayShutdown{})
		s.answer(1, world.Errorf(world.KindConflict, "DelayShutdown", "under way"))
	}
	restarted := func(seconds float64) func(*script) {
		return func(s *script) {
			shutdownScript(s)
			restart(s)
			s.wait(seconds)
			s.CheckServed(s.now, nil)
			s.losePower()
		}
	}
	latecomer := func(isGiven bool) func(*script) {
		return func(s *script) {
			ordinary, _ := shutdownScript(s)
			s.addNamed("u3", "api")
			s.start(s.sandbox("u3", 0), "app", 0)
			s.model.opts.FaultPossible = func(call string, _, _ time.Time) bool {
				return call == "WatchObjects"
			}
			s.wait(60)
			restart(s)
			ordinary.end(1)
			s.wait(25)
			if isGiven {
				s.EventReceived(s.now, &world.Event{
					Body: &world.ObjectChanged{Object: world.Object{Pod: s.pods["u3"]}}})
			}
			s.wait(6)
			s.CheckServed(s.now, nil)
			s.losePower()
		}
	}
	runCases(t, []testCase{
		{"the first group does not begin to end after a restart", "shutdown", restarted(21)},
		{"the first group has just had its turn after a restart", "", restarted(19)},
		{"a pod that the agent may not know does not end", "", latecomer(false)},
		{"a pod does not end that the agent was given late", "shutdown", latecomer(true)},
	})
}

// A pod that came during a shutdown does not stay pending.
func TestPendingInShutdown(t *testing.T) {
	for _, c := range []struct {
		name          string
		want          string
		cause         string  // of the announcement
		came, pending float64 // seconds after the announcement, and after that
	}{
		{"it is pending", "shutdown", "", 2, 6},
		{"it has just come", "", "", 2, 4},
		{"it came with the announcement", "", "", 0.5, 6},
		{"it came before", "", "", -1, 6},
		{"the agent cannot know of the shutdown", "", truth.CauseUnwatched, 2, 6},
	} {
		s := newScript()
		ordinary, critical := shutdownScript(s)
		s.ask(1, &world.DelayShutdown{})
		s.answer(1, &world.ShutdownDelayed{})
		s.wait(60)
		if c.came < 0 {
			s.addNamed("u3", "new")
			s.wait(-c.came)
		}
		s.machine(truth.ShutdownAnnounced, c.cause)
		ordinary.end(0.1)
		critical.end(0.1)
		if c.came >= 0 {
			s.wait(c.came - 0.2)
			s.addNamed("u3", "new")
		}
		s.wait(c.pending)
		s.serve("u3", v1.PodPending)
		if got := s.violated(); got != c.want {
			t.Errorf("%s: violated %q, want %q: %v", c.name, got, c.want, s.Violations())
		}
	}
}

// The Node says why it is not ready.
func TestNodeInShutdown(t *testing.T) {
	for _, c := range []struct {
		name            string
		want            string
		status          v1.ConditionStatus
		reason, message string
	}{
		{"it is ready", "shutdown", v1.ConditionTrue, "KubeletReady", ""},
		{"it says why", "", v1.ConditionFalse, reasonNotReady, notReadyText},
		{"it says more", "", v1.ConditionFalse, reasonNotReady, "[container runtime is down, " +
			notReadyText + "]"},
		{"it has another reason", "shutdown", v1.ConditionFalse, "NodeShutdown", notReadyText},
		{"it has another message", "shutdown", v1.ConditionFalse, reasonNotReady, "going down"},
		{"it is given up", "", v1.ConditionUnknown, "NodeStatusUnknown", ""},
	} {
		s := newScript()
		shutdownScript(s)
		s.machine(truth.ShutdownAnnounced, "")
		s.wait(notReadyBound.Seconds() + 1)
		node := &v1.Node{}
		node.Status.Conditions = []v1.NodeCondition{{Type: v1.NodeReady, Status: c.status,
			Reason: c.reason, Message: c.message}}
		s.model.objects.node = node
		for _, p := range s.model.podsInOrder { // they end in time
			p.shutDown = false
		}
		s.CheckServed(s.now, nil)
		if got := s.violated(); got != c.want {
			t.Errorf("%s: violated %q, want %q: %v", c.name, got, c.want, s.Violations())
		}
	}
}
