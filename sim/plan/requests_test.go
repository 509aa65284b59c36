package plan

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// Requests are generated from a stream of their own: every other entry of the plan stays as it is.
func TestRequestsHaveTheirOwnStream(t *testing.T) {
	kinds := map[RequestKind]int{}
	for seed := range uint64(30) {
		with := generate(t, respondingPods+"  requests: 10..50\n", "", seed)
		for _, h := range with.Spec.Happenings {
			if h.Request != nil {
				kinds[h.Request.Kind]++
			}
		}
		with.Spec.Happenings = slices.DeleteFunc(with.Spec.Happenings, func(h Happening) bool {
			return h.Request != nil
		})
		without := generate(t, respondingPods, "", seed)
		if diff := cmp.Diff(without.Spec, with.Spec); diff != "" {
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
	if diff := cmp.Diff(p.Spec.Happenings, again.Spec.Happenings); diff != "" {
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
	} {
		p.Spec.Happenings = []Happening{{Request: &test.request}}
		err := p.Validate()
		if want := "spec.happenings[0].request." + test.want; err == nil || err.Error() != want {
			t.Errorf("have %v\nwant %s", err, want)
		}
	}
}
