package pod

import (
	"encoding/json"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"

	"seedlet.dev/core/probe"
	"seedlet.dev/world"
)

func probed(kind probe.Kind, grace *int64) func(*v1.Container) {
	return func(c *v1.Container) {
		p := &v1.Probe{ProbeHandler: exec("check"), PeriodSeconds: 10, TimeoutSeconds: 1,
			SuccessThreshold: 1, FailureThreshold: 2, TerminationGracePeriodSeconds: grace}
		switch kind {
		case probe.Startup:
			c.StartupProbe = p
		case probe.Liveness:
			c.LivenessProbe = p
		case probe.Readiness:
			c.ReadinessProbe = p
		}
	}
}

// Readiness is shown once it is on the disk, and not before.
func TestReadinessIsKeptBeforeItIsShown(t *testing.T) {
	r := newRig(t, running(probed(probe.Readiness, nil)))
	r.at(0).exec(0)
	if s := status(r.pod); s.Ready || !*s.Started {
		t.Errorf("shown as ready %v, started %v before it was kept", s.Ready, *s.Started)
	}
	r.answer("WriteFile", &world.Done{}, nil)
	if !status(r.pod).Ready {
		t.Error("not ready after it was kept")
	}
}

// What cannot be kept is shown all the same.
func TestReadinessWithoutADisk(t *testing.T) {
	r := newRig(t, running(probed(probe.Readiness, nil)))
	r.at(0).exec(0)
	r.answer("WriteFile", nil, world.Errorf(world.KindExhausted, "", "no space"))
	if !status(r.pod).Ready {
		t.Error("a full disk keeps the container from being ready")
	}
}

// A new agent takes up what the file says, and asks no earlier than a period from then.
func TestReadinessOutlivesTheAgent(t *testing.T) {
	p := running(probed(probe.Readiness, nil))
	p.Record.Read = false
	r := newRig(t, p)
	r.at(0).none("ExecSync")
	if p.API(r.env.Node, "c").Status.Phase != v1.PodUnknown {
		t.Error("something is claimed before the record was read")
	}
	data, _ := json.Marshal(content{Start: t0, Containers: []Mark{{ID: "web0", Ready: true}}})
	r.answer("ReadFiles", &world.FilesRead{Files: []world.File{{Data: data}}}, nil)
	if !status(p).Ready {
		t.Error("readiness was lost")
	}
	r.at(10 * time.Second).exec(1)
	if !status(p).Ready {
		t.Error("readiness flips with one failure, the threshold is 2")
	}
	r.at(20*time.Second).exec(1).answer("WriteFile", &world.Done{}, nil)
	if status(p).Ready {
		t.Error("still ready after two failures")
	}
}

// A record that is damaged, or cannot be read, holds up nothing for ever.
func TestRecordThatCannotBeRead(t *testing.T) {
	for _, answer := range []func(*rig){
		func(r *rig) {
			r.answer("ReadFiles", &world.FilesRead{Files: []world.File{{Data: []byte("{")}}}, nil)
		},
		func(r *rig) {
			for i := range recordReadsMax {
				r.at(time.Duration(i) * time.Minute)
				r.answer("ReadFiles", nil, world.Errorf(world.KindInternal, "", "bad sector"))
			}
		},
		func(r *rig) { r.answer("ReadFiles", nil, world.Errorf(world.KindNotFound, "", "")) },
	} {
		p := running(probed(probe.Readiness, nil))
		p.Record.Read = false
		r := newRig(t, p).at(0)
		answer(r)
		if !p.Record.Read || status(p).Ready {
			t.Errorf("read: %v, ready: %v; want true, false", p.Record.Read, status(p).Ready)
		}
		r.at(time.Hour).want("ExecSync")
	}
}

// Liveness waits for startup, startup is asked until it has succeeded once.
func TestStartupComesFirst(t *testing.T) {
	r := newRig(t, running(func(c *v1.Container) {
		probed(probe.Startup, nil)(c)
		probed(probe.Liveness, nil)(c)
		c.LivenessProbe.ProbeHandler = v1.ProbeHandler{TCPSocket: &v1.TCPSocketAction{}}
	}))
	r.at(0).none("TCPConnect")
	r.exec(1).none("TCPConnect")
	r.at(10 * time.Second).exec(0).want("TCPConnect")
	r.answer("TCPConnect", &world.Done{}, nil).at(20 * time.Second).none("ExecSync")
	r.want("TCPConnect")
}

// A container that fails its liveness probe is ended with the probe's grace period, and nothing is
// asked of it any more.
func TestLivenessEndsAContainer(t *testing.T) {
	grace := int64(5)
	r := newRig(t, running(probed(probe.Liveness, &grace)))
	r.at(0).exec(1).at(10 * time.Second)
	r.exec(1)
	if got := stopTimeout(r); got != 5 {
		t.Errorf("it has %d s to end, want the probe's 5", got)
	}
	r.at(20 * time.Second).none("ExecSync")
	if len(r.pod.Containers) != 1 || r.pod.Stage != Syncing {
		t.Errorf("the pod is %s", r.pod.Stage)
	}
}

// An answer that comes after the end has begun changes nothing.
func TestLateAnswerToAProbe(t *testing.T) {
	r := newRig(t, running(probed(probe.Readiness, nil)))
	r.at(0)
	r.pod.Unwant(t0)
	r.at(0).want("StopContainer")
	r.exec(0)
	if r.pod.Containers[0].result(probe.Readiness) != probe.Undecided {
		t.Error("a probe counts although the end had begun")
	}
}

// The probes of a replacement start with nothing (upstream #141155).
func TestProbesBelongToOneContainer(t *testing.T) {
	r := newRig(t, running(probed(probe.Startup, nil)))
	r.at(0).exec(0)
	r.answer("WriteFile", &world.Done{}, nil)
	if !*status(r.pod).Started {
		t.Fatal("not started")
	}
	r.pod.Containers[0].advance(Exited, t0)
	next := run("web", 1, Running)
	next.SandboxID, next.Hash, next.Ran = "s", r.pod.Containers[0].Hash, t0
	r.pod.addContainer(next)
	if s := status(r.pod); *s.Started || s.Ready {
		t.Error("the replacement is shown as started for what the old one has answered")
	}
}

// A port without a name in the container is no failure of the container.
func TestProbeOfNoPort(t *testing.T) {
	r := newRig(t, running(func(c *v1.Container) {
		probed(probe.Liveness, nil)(c)
		c.LivenessProbe.ProbeHandler = v1.ProbeHandler{GRPC: nil}
	}))
	for i := range 5 {
		r.at(time.Duration(i) * 10 * time.Second).none("StopContainer")
	}
	if r.wake.IsZero() {
		t.Error("nothing is tried again")
	}
}

func TestSpreadIsWithinAPeriod(t *testing.T) {
	seen := map[time.Duration]bool{}
	for _, id := range []string{"a", "b", "c", "d"} {
		d := spread(7, id, 10)
		if d < 0 || d >= 10*time.Second || d != spread(7, id, 10) {
			t.Errorf("%s: %v", id, d)
		}
		seen[d] = true
	}
	if len(seen) < 3 {
		t.Errorf("containers are asked at the same times: %v", seen)
	}
}

// Whether a write that failed has taken effect is not known: the file is written again even if
// what it should say is what it said before.
func TestAWriteThatFailedIsRepeated(t *testing.T) {
	r := newRig(t, running(probed(probe.Readiness, nil))).at(0).exec(0)
	r.answer("WriteFile", nil, world.Errorf(world.KindTimeout, "", "no answer"))
	r.at(10 * time.Second).exec(1).at(20 * time.Second).exec(1) // not ready any more
	r.answer("WriteFile", nil, world.Errorf(world.KindTimeout, "", "no answer"))
	r.at(time.Minute).want("WriteFile") // it should say what it said at first
}

// A probe that was never sent says nothing about the container.
func TestAProbeThatWasNotSent(t *testing.T) {
	r := newRig(t, running(func(c *v1.Container) {
		probed(probe.Liveness, nil)(c)
		c.LivenessProbe.FailureThreshold = 1
		c.LivenessProbe.ProbeHandler = v1.ProbeHandler{TCPSocket: &v1.TCPSocketAction{}}
	}))
	r.at(0).answer("TCPConnect", nil, world.Errorf(world.KindCanceled, "", "no free place"))
	r.none("StopContainer")
}

// A container that was ended for its probe runs anew, even if it took TERM so well that it exited
// with 0; not if it is never to run again.
func TestAilingContainersRunAnew(t *testing.T) {
	for policy, want := range map[v1.RestartPolicy]bool{
		v1.RestartPolicyAlways: true, v1.RestartPolicyOnFailure: true,
		v1.RestartPolicyNever: false,
	} {
		p := running(probed(probe.Liveness, nil))
		p.Spec.Spec.RestartPolicy = policy
		r := newRig(t, p)
		r.at(0).exec(1).at(10 * time.Second)
		r.exec(1).want("StopContainer")
		c := &p.Containers[0]
		c.advance(Exited, r.now)
		c.Inspected = Exited
		if got := p.restarts(c); got != want {
			t.Errorf("%s: runs anew %v", policy, got)
		}
	}
}
