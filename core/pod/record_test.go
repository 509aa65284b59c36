package pod

import (
	"encoding/json"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"seedlet.dev/core/probe"
	"seedlet.dev/world"
)

// FuzzRecord gives an agent that begins anew any text for the record of a pod that runs.
func FuzzRecord(f *testing.F) {
	f.Add([]byte(`{"start":"2025-12-31T00:00:00Z","containers":[{"id":"web0","ready":true}]}`))
	f.Add([]byte(`{"end":{"phase":"Failed","at":"9999-12-31T23:59:59Z","grace":-1}}`))
	f.Add([]byte(`{"end":{"grace":9223372036854775807},"round":9223372036854775807}`))
	f.Add([]byte(`{"start":"0000-01-01T00:00:00+23:59","round":-9223372036854775808}`))
	f.Add([]byte("{"))
	f.Fuzz(func(t *testing.T, record []byte) {
		p := running(func(c *v1.Container) {
			c.ReadinessProbe = &v1.Probe{ProbeHandler: exec("ready"), PeriodSeconds: 10}
		})
		p.Record.Read = false
		r := newRig(t, p).at(0)
		r.answer("ReadFiles", &world.FilesRead{Files: []world.File{{Data: record}}}, nil)
		for _, after := range []time.Duration{time.Second, 10 * time.Second, 5 * time.Minute} {
			r.at(after)
			if stop := r.find("StopContainer"); stop != nil &&
				stop.Body.(*runtimeapi.StopContainerRequest).Timeout < 0 {
				t.Errorf("stopped with %v", stop.Body)
			}
			if _, err := json.Marshal(p); err != nil {
				t.Fatalf("the pod cannot be kept: %v", err)
			}
			if _, err := json.Marshal(p.API(r.env.Node, "fake")); err != nil {
				t.Fatalf("the pod cannot be shown: %v", err)
			}
		}
	})
}

// preempted is a pod of which nothing was made before it was ended.
func preempted(t *testing.T, change func(*v1.Pod)) *rig {
	s := spec(v1.RestartPolicyAlways, "", "web")
	change(s)
	p := New(s, true, true, t0)
	p.Preempt(t0)
	p.Stale = time.Time{}
	return newRig(t, p).at(0)
}

// Of a pod that has ended before anything was made of it that is kept as well, and first.
func TestTheEndOfAPodThatHasNothing(t *testing.T) {
	r := preempted(t, func(*v1.Pod) {})
	r.none("WriteFile")
	r.answer("MakeDir", &world.Done{}, nil)
	if p := r.pod; p.Phase == v1.PodFailed || p.Stage != Terminating {
		t.Errorf("%s, %s before it is kept", p.Stage, p.Phase)
	}
	r.answer("WriteFile", &world.Done{}, nil)
	if p := r.pod; p.Phase != v1.PodFailed || p.Stage != Terminated {
		t.Errorf("%s, %s after it was kept", p.Stage, p.Phase)
	}
}

// An end that cannot be kept keeps nothing from others, and is for the API server to keep. Nobody
// else is told, until it is kept after all.
func TestAnEndThatCannotBeKept(t *testing.T) {
	full := world.Errorf(world.KindExhausted, "", "no space left on device")
	r := preempted(t, func(*v1.Pod) {}).answer("MakeDir", nil, full)
	if p := r.pod; p.Stage != Terminated || p.TakesRoom() || p.Phase == v1.PodFailed ||
		p.Untold() != v1.PodFailed {
		t.Errorf("%s, takes room %v, shown as %s, to be told %q", p.Stage, p.TakesRoom(), p.Phase,
			p.Untold())
	}
	r.at(time.Minute).answer("MakeDir", &world.Done{}, nil).answer("WriteFile", nil, full)
	r.at(2*time.Minute).answer("WriteFile", &world.Done{}, nil)
	if p := r.pod; p.Phase != v1.PodFailed || p.Untold() != "" {
		t.Errorf("shown as %s, to be told %q after it was kept", p.Phase, p.Untold())
	}
}

// Who wants a pod to be deleted keeps that it is to end, and no file is needed for it.
func TestADeletionIsKept(t *testing.T) {
	s := spec(v1.RestartPolicyAlways, "", "web")
	s.DeletionTimestamp = &metav1.Time{Time: t0}
	p := New(s, true, true, t0)
	p.Stale = time.Time{}
	if newRig(t, p).at(0).none("MakeDir"); p.Phase != v1.PodFailed {
		t.Errorf("shown as %s", p.Phase)
	}
}

// A record that nobody can write since its directory has gone has it made again.
func TestARecordWithoutADirectory(t *testing.T) {
	r := newRig(t, running(probed(probe.Readiness, nil))).at(0).exec(0)
	r.answer("WriteFile", nil, world.Errorf(world.KindNotFound, "", "no such directory"))
	r.at(time.Minute).answer("MakeDir", &world.Done{}, nil).want("WriteFile")
}
