package sim

import (
	"encoding/json"
	"testing"
	"time"
)

func TestShift(t *testing.T) {
	for text, want := range map[string]time.Duration{ //ordered: each alone
		`"+5m"`: 5 * time.Minute, `"-1h"`: -time.Hour, `"3s"`: 3 * time.Second,
	} {
		var s, again Shift
		if err := json.Unmarshal([]byte(text), &s); err != nil || time.Duration(s) != want {
			t.Errorf("%s is %v, %v", text, time.Duration(s), err)
		}
		data, err := json.Marshal(s)
		if err == nil {
			err = json.Unmarshal(data, &again)
		}
		if err != nil || again != s {
			t.Errorf("%s is written %s: %v", text, data, err)
		}
	}
	var s Shift
	if json.Unmarshal([]byte(`"1 hour"`), &s) == nil ||
		json.Unmarshal([]byte(`"-1000h"`), &s) == nil {
		t.Error("what is no shift was read")
	}
}

// Steps add up, and end with the faults.
func TestSkew(t *testing.T) {
	s := &PlanSpec{Duration: Duration(time.Minute), Clock: []ClockStep{
		{At: Duration(10 * time.Second), By: Shift(-time.Hour)},
		{At: Duration(20 * time.Second), By: Shift(time.Minute)},
	}}
	for at, want := range map[time.Duration]time.Duration{ //ordered: each alone
		9 * time.Second: 0, 10 * time.Second: -time.Hour, 20 * time.Second: -59 * time.Minute,
		time.Minute: 0,
	} {
		if got := s.skew(Start.Add(at)); got != want {
			t.Errorf("after %v: %v, want %v", at, got, want)
		}
	}
}

func TestOddPlansAreChecked(t *testing.T) {
	pod := PlanPod{Name: "web", Manifest: map[string]any{"spec": map[string]any{
		"containers": []any{map[string]any{"name": "app"}}}}}
	for i, s := range []PlanSpec{
		{Lost: []Lost{{Pod: "web", Container: "other"}}},
		{Lost: []Lost{{Pod: "other", Container: "app"}}},
		{Removals: []Removal{{Pod: "other"}}},
	} {
		s.Pods = []PlanPod{pod}
		if s.validateOdd() == nil {
			t.Errorf("%d: nothing is wrong", i)
		}
	}
	good := PlanSpec{Pods: []PlanPod{pod}, Lost: []Lost{{Pod: "web", Container: "app"}},
		Removals: []Removal{{Pod: "web"}}}
	if err := good.validateOdd(); err != nil {
		t.Error(err)
	}
}
