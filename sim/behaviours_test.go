package sim

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"seedlet.dev/sim/plan"
	"seedlet.dev/sim/runtime"
	"seedlet.dev/sim/truth"
)

func TestResponsesOfAProcess(t *testing.T) {
	b := plan.Behaviour{Responses: []plan.HandlerResponse{
		{Match: "a", Reply: truth.ReplyFailure, For: plan.Duration(time.Second), Times: 2},
		{Reply: truth.ReplyNone, From: plan.Duration(time.Minute), Takes: 3},
	}}
	first := runtime.ReplyRule{Match: "a", Reply: truth.ReplyFailure, For: time.Second}
	always := runtime.ReplyRule{Reply: truth.ReplyNone, From: time.Minute, Delay: 3}
	for before, want := range [][]runtime.ReplyRule{{first, always}, {first, always}, {always}} {
		if diff := cmp.Diff(want, responsesOf(&b, before)); diff != "" {
			t.Errorf("after %d other processes: %s", before, diff)
		}
	}
}
