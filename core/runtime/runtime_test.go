package runtime

import "testing"

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
