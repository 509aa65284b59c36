package plan

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

// Requests are generated from a stream of their own: every other entry of the plan stays as it is.
func TestRequestsHaveTheirOwnStream(t *testing.T) {
	kinds := map[RequestKind]int{}
	for seed := range uint64(30) {
		with := generate(t, respondingPods+"  requests: 10..50\n", "", seed)
		for i, q := range with.Spec.Requests {
			kinds[q.Kind]++
			if i > 0 && q.At < with.Spec.Requests[i-1].At {
				t.Errorf("seed %d: request %d is earlier than the one before it", seed, i)
			}
		}
		with.Spec.Requests = nil
		if diff := cmp.Diff(generate(t, respondingPods, "", seed).Spec, with.Spec); diff != "" {
			t.Fatalf("seed %d: %s", seed, diff)
		}
	}
	for _, kind := range requestKinds {
		if kinds[kind] < 10 {
			t.Errorf("%d requests of kind %s, want at least 10", kinds[kind], kind)
		}
	}
}

func TestRequestsRoundTrip(t *testing.T) {
	p := generate(t, respondingPods+"  requests: 50\n", "", 2)
	again, err := Parse("plan.yaml", p.YAML())
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(p.Spec.Requests, again.Spec.Requests); diff != "" {
		t.Error(diff)
	}
}

func TestInvalidRequests(t *testing.T) {
	p := generate(t, respondingPods, "", 3)
	for _, test := range []struct {
		request Request
		want    string
	}{
		{Request{Kind: "logs"}, "of: want one of [container running pods health metrics state], " +
			`have "logs"`},
		{Request{Kind: RequestContainer}, "pod: want one of a container, and only there"},
		{Request{Kind: RequestContainer, Pod: "x"}, `pod: no pod is called "x"`},
		{Request{Kind: RequestPods, UID: "mine"},
			`uid: want one of [ current previous mirror stranger], have "mine"`},
		{Request{Kind: RequestPods, At: p.Spec.Duration + 1}, "at: 1m0.000000001s is after " +
			"spec.duration, 1m0s"},
	} {
		p.Spec.Requests = []Request{test.request}
		err := p.Validate()
		if want := "spec.requests[0]." + test.want; err == nil || err.Error() != want {
			t.Errorf("have %v\nwant %s", err, want)
		}
	}
}
