package sim

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// What clients ask for takes no draw away from anything else, and changes nothing that happens.
func TestRequestsDrawFromAStreamOfTheirOwn(t *testing.T) {
	draw := func(text string, seed uint64) *Plan {
		s, err := ParseScenario("asking.yaml", []byte(strings.Replace(text, "ANSWERS", "", 1)), nil)
		if err != nil {
			t.Fatal(err)
		}
		p, err := Draw(s, seed)
		if err != nil {
			t.Fatal(err)
		}
		return p
	}
	asked := map[Asked]int{}
	for seed := range uint64(30) {
		with := draw(asking+"  requests: 10..50\n", seed)
		for i, q := range with.Spec.Requests {
			asked[q.Of]++
			if i > 0 && q.At < with.Spec.Requests[i-1].At {
				t.Errorf("seed %d: request %d comes before the one before it", seed, i)
			}
		}
		before, err := Run(with, Options{})
		if err != nil || before.Failure != nil {
			t.Fatalf("seed %d: %v, %v", seed, err, before.Failure)
		}
		with.Spec.Requests = nil
		if diff := cmp.Diff(draw(asking, seed).Spec, with.Spec); diff != "" {
			t.Fatalf("seed %d: %s", seed, diff)
		}
		after, err := Run(with, Options{})
		if err != nil || after.Effects != before.Effects || after.Restarts != before.Restarts {
			t.Errorf("seed %d: %+v, without requests %+v", seed, before, after)
		}
	}
	for _, of := range askedFor {
		if asked[of] < 10 {
			t.Errorf("%s is asked for %d times", of, asked[of])
		}
	}
}

func TestRequestsSurviveTheFile(t *testing.T) {
	s, err := ParseScenario("asking.yaml", []byte(strings.Replace(asking, "ANSWERS", "", 1)+
		"  requests: 50\n"), nil)
	if err != nil {
		t.Fatal(err)
	}
	p, err := Draw(s, 2)
	if err != nil {
		t.Fatal(err)
	}
	again, err := ParsePlan("plan.yaml", p.YAML())
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(p.Spec.Requests, again.Spec.Requests); diff != "" {
		t.Error(diff)
	}
}

func TestBadRequests(t *testing.T) {
	p := drawAsking(t, "", 3)
	for _, test := range []struct {
		is   Request
		want string
	}{
		{Request{Of: "logs"}, "of: want one of [container running pods health metrics state], " +
			`have "logs"`},
		{Request{Of: AskedContainer}, "pod: want one of a container, and only there"},
		{Request{Of: AskedContainer, Pod: "x"}, `pod: no pod is called "x"`},
		{Request{Of: AskedPods, UID: "mine"}, `uid: want one of [ current previous mirror stranger], ` +
			`have "mine"`},
		{Request{Of: AskedPods, At: p.Spec.Duration + 1}, "at: 1m0.000000001s is after " +
			"spec.duration, 1m0s"},
	} {
		p.Spec.Requests = []Request{test.is}
		err := p.Validate()
		if want := "spec.requests[0]." + test.want; err == nil || err.Error() != want {
			t.Errorf("have %v\nwant %s", err, want)
		}
	}
}
