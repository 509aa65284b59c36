package runtime

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"seedlet.dev/core/op"
	"seedlet.dev/world"
)

func TestNotReadyMessageNeedsReport(t *testing.T) {
	r := &Runtime{}
	if r.NotReadyMessage() != "" || r.NetworkNotReadyMessage() != "" {
		t.Error("not ready before the runtime has reported a status")
	}
	r.Conditions = []Condition{{Type: "RuntimeReady", Status: true},
		{Type: "NetworkReady", Reason: "R", Message: "M"}}
	want := "network is not ready: container runtime network not ready: NetworkReady=false " +
		"reason:R message:M"
	if r.NotReadyMessage() != "" || r.NetworkNotReadyMessage() != want {
		t.Errorf("%q, %q", r.NotReadyMessage(), r.NetworkNotReadyMessage())
	}
	r.Conditions[0].Status = false
	if r.NotReadyMessage() != "container runtime not ready: RuntimeReady=false reason: message:" {
		t.Errorf("%q", r.NotReadyMessage())
	}
}

func TestReadinessProblems(t *testing.T) {
	t0 := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	ready := Condition{Type: "RuntimeReady", Status: true}
	connected := Condition{Type: "NetworkReady", Status: true}
	unconnected := Condition{Type: "NetworkReady", Reason: "R", Message: "M"}
	none := Runtime{}
	for _, c := range []struct {
		name            string
		runtime         Runtime
		after           time.Duration
		itself, network []string
	}{
		{"no status yet", none, 0, []string{"container runtime status check may not have completed " +
			"yet"}, []string{"network state unknown"}},
		{"ready", Runtime{AsOf: t0, ReadyAt: t0, Conditions: []Condition{ready, connected}},
			29 * time.Second, nil, nil},
		{"status too old", Runtime{AsOf: t0, ReadyAt: t0, Conditions: []Condition{ready, connected}},
			30 * time.Second, []string{"container runtime is down"}, nil},
		{"no network", Runtime{AsOf: t0, ReadyAt: t0, Conditions: []Condition{ready, unconnected}},
			0, nil, []string{"container runtime network not ready: NetworkReady=false reason:R " +
				"message:M"}},
		{"condition not reported", Runtime{AsOf: t0, ReadyAt: t0, Conditions: []Condition{connected}}, 0,
			[]string{"container runtime not ready: RuntimeReady is not reported"}, nil},
	} {
		itself, network := c.runtime.ReadinessProblems(t0.Add(c.after))
		if d := cmp.Diff([][]string{c.itself, c.network}, [][]string{itself, network}); d != "" {
			t.Errorf("%s: %s", c.name, d)
		}
	}
}

// The status is requested often until the runtime is ready, but not forever.
func TestStart(t *testing.T) {
	t0 := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	statusAfter := func(r *Runtime, after time.Duration, network bool) time.Duration {
		now := t0.Add(after)
		r.HandleCompletion(op.Record{IssuedAt: now},
			world.Event{Time: now, Body: &runtimeapi.StatusResponse{
				Status: &runtimeapi.RuntimeStatus{Conditions: []*runtimeapi.RuntimeCondition{
					{Type: runtimeapi.RuntimeReady, Status: true},
					{Type: runtimeapi.NetworkReady, Status: network}}}}}, &op.Effects{})
		return r.NextAt.Sub(now)
	}
	r, slow := &Runtime{}, &Runtime{}
	got := []time.Duration{statusAfter(r, 0, false), statusAfter(r, time.Second, true),
		statusAfter(r, 6*time.Second, false), statusAfter(slow, 0, false),
		statusAfter(slow, time.Hour, false)}
	want := []time.Duration{startPeriod, statusPeriod, statusPeriod, startPeriod, statusPeriod}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
}

// A runtime without a name is asked again like one that does not respond, and not at once for ever.
func TestRuntimeWithoutName(t *testing.T) {
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	r, table, effects := &Runtime{}, op.Table{}, op.Effects{}
	effects.Reset(&table, now)
	r.Plan(&effects)
	record, _ := table.Complete(r.Op)
	r.HandleCompletion(record, world.Event{Time: now, Op: r.Op,
		Body: &runtimeapi.VersionResponse{RuntimeVersion: "1"}}, &effects)
	if wake := r.Plan(&effects); r.Op != 0 || wake != now.Add(statusPeriod) || r.Problem == "" {
		t.Errorf("operation %d, asked again at %s, problem %q", r.Op, wake, r.Problem)
	}
}
