package oracle

import (
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"

	"seedlet.dev/sim/truth"
	api "seedlet.dev/world"
)

// store adds a write of a pod at the API server, by an incarnation of the agent or, with 0, by
// another client.
func (s *script) store(life int, before, after *v1.Pod) { s.storeSent(s.now, life, before, after) }

// storeSent is store for a request that was sent at another time.
func (s *script) storeSent(at time.Time, life int, before, after *v1.Pod) {
	m := &truth.Write{Resource: api.ResourcePods, Incarnation: life, SentAt: at,
		Before: api.Object{Pod: before}, After: api.Object{Pod: after}}
	kind, object := truth.ObjectUpdated, after
	switch {
	case before == nil:
		kind = truth.ObjectCreated
	case after == nil:
		kind, object = truth.ObjectDeleted, before
	}
	m.Namespace, m.Name = object.Namespace, object.Name
	s.CheckFact(truth.Fact{Time: s.now, Kind: kind, Write: m})
}

// storePhase adds a write of another phase of the pod "u1", with containers as served has them.
func (s *script) storePhase(life int, before, after v1.PodPhase, runs ...string) {
	s.store(life, s.served("u1", before), s.served("u1", after, runs...))
}

func TestAPITerminalPhase(t *testing.T) {
	runCases(t, []testCase{
		{"once", "", func(s *script) {
			s.startPod(never).exit(0, truth.CauseSelf)
			s.storePhase(1, v1.PodRunning, v1.PodSucceeded)
			s.storePhase(1, v1.PodSucceeded, v1.PodSucceeded)
		}},
		{"taken back", "api-terminal-phase", func(s *script) {
			s.startPod(never).exit(0, truth.CauseSelf)
			s.storePhase(1, v1.PodRunning, v1.PodSucceeded)
			s.storePhase(2, v1.PodSucceeded, v1.PodFailed)
		}},
		{"by another client", "", func(s *script) {
			s.setDesired(spec("u1", never, "app"))
			s.storePhase(0, v1.PodFailed, v1.PodRunning)
		}},
	})
}

// A static pod that is desired may run again after its end, unless the machine shuts down or its
// containers have exited for good.
func TestMirrorRunsAgain(t *testing.T) {
	runs := func(policy v1.RestartPolicy, tell func(*script)) func(*script) {
		return func(s *script) {
			s.model.opts.Shutdown = &Shutdown{Groups: []ShutdownGroup{{Period: 10 * time.Second}}}
			p := spec("u1", policy, "app")
			p.Annotations = map[string]string{annotationSource: "file", annotationUID: "u1"}
			s.setDesired(p)
			s.start(s.sandbox("u1", 0), "app", 0).exit(0, truth.CauseSelf)
			tell(s)
			before, after := s.served("u1", v1.PodFailed), s.served("u1", v1.PodRunning)
			for _, object := range []*v1.Pod{before, after} {
				object.UID = "mirror"
				object.Annotations = map[string]string{v1.MirrorPodAnnotationKey: "u1"}
			}
			s.store(1, before, after)
		}
	}
	restart := func(s *script) {
		s.wait(1)
		s.AgentStarted(s.now)
	}
	announce := func(s *script) {
		s.CheckFact(truth.Fact{Time: s.now, Kind: truth.ShutdownAnnounced})
		s.wait(60)
	}
	runCases(t, []testCase{
		{"with the next agent", "", runs(always, restart)},
		{"with the same agent", "api-terminal-phase", runs(always, func(*script) {})},
		{"has completed", "api-terminal-phase", runs(never, restart)},
		{"while the machine shuts down", "api-terminal-phase", runs(always, announce)},
		{"after a shutdown", "", runs(always, func(s *script) {
			announce(s)
			s.CheckFact(truth.Fact{Time: s.now, Kind: truth.ShutdownCancelled})
		})},
	})
}

func TestAPITerminalStopped(t *testing.T) {
	runCases(t, []testCase{
		{"while it runs", "api-terminal-stopped", func(s *script) {
			s.startPod(never)
			s.storePhase(1, v1.PodRunning, v1.PodFailed)
		}},
		{"of a mirror, sent before the container started", "", writeTerminalMirror(-time.Second)},
		{"of a mirror, sent after the container started", "api-terminal-stopped",
			writeTerminalMirror(time.Second)},
		{"started again", "api-terminal-stopped", func(s *script) {
			s.setDesired(spec("u1", always, "app"))
			s.storePhase(1, v1.PodPending, v1.PodFailed)
			s.start(s.sandbox("u1", 0), "app", 0)
		}},
	})
}

// writeTerminalMirror stores a terminal phase of the mirror of a running static pod, with a request
// that was sent some time after the start of its container.
func writeTerminalMirror(sentAfter time.Duration) func(*script) {
	return func(s *script) {
		s.startPod(never)
		sentAt := s.now.Add(sentAfter)
		s.wait(60)
		before, after := s.served("u1", v1.PodRunning), s.served("u1", v1.PodFailed)
		for _, object := range []*v1.Pod{before, after} {
			object.UID = "mirror"
			object.Annotations = map[string]string{"kubernetes.io/config.mirror": "u1"}
		}
		s.storeSent(sentAt, 1, before, after)
	}
}

func TestAPIIdentity(t *testing.T) {
	report := func(life int, uid string) func(*script) {
		return func(s *script) {
			s.setDesired(spec("u2", always, "app"))
			s.startPod(always)
			other := s.served("u1", v1.PodRunning, "app#0 running")
			other.UID = s.pods[uid].UID
			s.store(life, s.served(uid, v1.PodPending), other)
		}
	}
	runCases(t, []testCase{
		{"its own container", "", report(1, "u1")},
		{"another pod's container", "api-identity", report(1, "u2")},
		{"another pod's container, by another client", "", report(0, "u2")},
	})
}
