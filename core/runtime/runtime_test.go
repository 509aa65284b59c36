package runtime

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestOnlyWhatTheRuntimeSaysHoldsBack(t *testing.T) {
	r := &Runtime{}
	if r.NotReady() != "" || r.NetworkNotReady() != "" {
		t.Error("held back before the runtime has said anything")
	}
	r.Conditions = []Condition{{Type: "RuntimeReady", Status: true},
		{Type: "NetworkReady", Reason: "R", Message: "M"}}
	want := "network is not ready: container runtime network not ready: NetworkReady=false " +
		"reason:R message:M"
	if r.NotReady() != "" || r.NetworkNotReady() != want {
		t.Errorf("%q, %q", r.NotReady(), r.NetworkNotReady())
	}
	r.Conditions[0].Status = false
	if r.NotReady() != "container runtime not ready: RuntimeReady=false reason: message:" {
		t.Errorf("%q", r.NotReady())
	}
}

func TestUnfit(t *testing.T) {
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
		{"never asked", none, 0, []string{"container runtime status check may not have completed " +
			"yet"}, []string{"network state unknown"}},
		{"ready", Runtime{AsOf: t0, ReadyAt: t0, Conditions: []Condition{ready, connected}},
			29 * time.Second, nil, nil},
		{"not heard of", Runtime{AsOf: t0, ReadyAt: t0, Conditions: []Condition{ready, connected}},
			30 * time.Second, []string{"container runtime is down"}, nil},
		{"no network", Runtime{AsOf: t0, ReadyAt: t0, Conditions: []Condition{ready, unconnected}},
			0, nil, []string{"container runtime network not ready: NetworkReady=false reason:R " +
				"message:M"}},
		{"it does not say", Runtime{AsOf: t0, ReadyAt: t0, Conditions: []Condition{connected}}, 0,
			[]string{"container runtime not ready: RuntimeReady is not reported"}, nil},
	} {
		itself, network := c.runtime.Unfit(t0.Add(c.after))
		if d := cmp.Diff([][]string{c.itself, c.network}, [][]string{itself, network}); d != "" {
			t.Errorf("%s: %s", c.name, d)
		}
	}
}
