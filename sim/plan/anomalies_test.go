package plan

import (
	"encoding/json"
	"testing"
	"time"
)

func TestSignedDuration(t *testing.T) {
	for text, want := range map[string]time.Duration{ //ordered: each alone
		`"+5m"`: 5 * time.Minute, `"-1h"`: -time.Hour, `"3s"`: 3 * time.Second,
	} {
		var s, again SignedDuration
		if err := json.Unmarshal([]byte(text), &s); err != nil || time.Duration(s) != want {
			t.Errorf("%s decodes to %v, %v", text, time.Duration(s), err)
		}
		data, err := json.Marshal(s)
		if err == nil {
			err = json.Unmarshal(data, &again)
		}
		if err != nil || again != s {
			t.Errorf("%s is encoded as %s: %v", text, data, err)
		}
	}
	var s SignedDuration
	if json.Unmarshal([]byte(`"1 hour"`), &s) == nil ||
		json.Unmarshal([]byte(`"-1000h"`), &s) == nil {
		t.Error("an invalid text was decoded")
	}
}

// Clock steps add up, and are undone when the faults heal.
func TestClockSkew(t *testing.T) {
	s := &Spec{Duration: Duration(time.Minute), ClockSteps: []ClockStep{
		{At: Duration(10 * time.Second), By: SignedDuration(-time.Hour)},
		{At: Duration(20 * time.Second), By: SignedDuration(time.Minute)},
	}}
	for at, want := range map[time.Duration]time.Duration{ //ordered: each alone
		9 * time.Second: 0, 10 * time.Second: -time.Hour, 20 * time.Second: -59 * time.Minute,
		time.Minute: 0,
	} {
		if got := s.ClockSkew(Start.Add(at)); got != want {
			t.Errorf("after %v: %v, want %v", at, got, want)
		}
	}
}

// Changes of the date add up in the same way, and are changes of the runtime's clock as well.
func TestDateOffset(t *testing.T) {
	s := &Spec{Duration: Duration(time.Minute), Acts: []Act{
		{At: Duration(10 * time.Second), Verb: VerbDate, Node: true, By: SignedDuration(-time.Hour)},
		{At: Duration(20 * time.Second), Verb: VerbDate, Node: true, By: SignedDuration(time.Minute)},
	}, ClockSteps: []ClockStep{{At: Duration(30 * time.Second), By: SignedDuration(time.Second)}}}
	for at, want := range map[time.Duration]time.Duration{ //ordered: each alone
		9 * time.Second: 0, 10 * time.Second: -time.Hour, 30 * time.Second: -59 * time.Minute,
		time.Minute: 0,
	} {
		if got := s.DateOffset(Start.Add(at)); got != want {
			t.Errorf("after %v: %v, want %v", at, got, want)
		}
	}
	if got := s.ClockSkew(Start.Add(30 * time.Second)); got != time.Second-59*time.Minute {
		t.Errorf("the runtime's clock is wrong by %v", got)
	}
}

func TestAnomaliesAreValidated(t *testing.T) {
	pod := Pod{Name: "web", Manifest: map[string]any{"spec": map[string]any{
		"containers": []any{map[string]any{"name": "app"}}}}}
	for i, s := range []Spec{
		{LostContainers: []LostContainer{{Pod: "web", Container: "other"}}},
		{LostContainers: []LostContainer{{Pod: "other", Container: "app"}}},
		{SandboxRemovals: []SandboxRemoval{{Pod: "other"}}},
	} {
		s.Pods = []Pod{pod}
		if s.validateAnomalies() == nil {
			t.Errorf("plan %d is valid, want an error", i)
		}
	}
	good := Spec{Pods: []Pod{pod}, LostContainers: []LostContainer{{Pod: "web", Container: "app"}},
		SandboxRemovals: []SandboxRemoval{{Pod: "web"}}}
	if err := good.validateAnomalies(); err != nil {
		t.Error(err)
	}
}
