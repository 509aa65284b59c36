package plan

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"seedlet.dev/sim/truth"
)

// HandlerResponse is how the processes of a container respond to probes and lifecycle hooks for a
// while. The first entry that matches a request applies. A request that matches no entry succeeds
// at once.
type HandlerResponse struct {
	// Match is a part of the request, which is written "exec cat /ready", "http :80/healthz",
	// "tcp :80" or "grpc :90/name". Absent: the entry matches every request.
	Match string      `json:"match,omitempty"`
	From  Duration    `json:"from,omitempty"`  // since the start of the process
	For   Duration    `json:"for,omitempty"`   // absent: until the process ends
	Reply truth.Reply `json:"reply"`           // one of truth.Replies, as good, bad or none
	Takes Duration    `json:"takes,omitempty"` // how long the response takes
	Times int         `json:"times,omitempty"` // the first so many processes only; absent: all
}

// HandlerResponseRange is a HandlerResponse that a container may have.
type HandlerResponseRange struct {
	Match string        `json:"match,omitempty"` // as in HandlerResponse
	From  Span          `json:"from,omitempty"`
	For   *Span         `json:"for,omitempty"`   // absent: until the process ends
	Reply []truth.Reply `json:"reply,omitempty"` // one of them is drawn; absent: good
	Takes Span          `json:"takes,omitempty"`
	// Times is how many processes respond like this; later ones do not. Absent: all of them.
	Times *Count `json:"times,omitempty"`
	// Probability is the share of containers that have the entry. A seed may leave all such entries
	// out. Absent: every container has it, in every seed.
	Probability *Share `json:"probability,omitempty"`
}

// responses generates the handler responses of a container. Each entry has a stream of its own.
func (g *generator) responses(pod string, b *BehaviourRange) []HandlerResponse {
	var responses []HandlerResponse
	weight := g.swarmWeight("answers", false)
	for i := range b.Responses {
		r := g.stream(fmt.Sprintf("answers %s %s %d", pod, b.Container, i))
		if response, ok := b.Responses[i].draw(r, weight); ok {
			responses = append(responses, response)
		}
	}
	return responses
}

func (a *HandlerResponseRange) draw(r *rand.Rand, weight float64) (HandlerResponse, bool) {
	if a.Probability != nil && r.Float64() >= a.Probability.draw(r)*weight {
		return HandlerResponse{}, false
	}
	response := HandlerResponse{Match: a.Match, From: Duration(a.From.draw(r)),
		Reply: truth.ReplySuccess, Takes: Duration(a.Takes.draw(r))}
	if a.For != nil {
		response.For = Duration(max(a.For.draw(r), time.Millisecond))
	}
	if len(a.Reply) > 0 {
		response.Reply = a.Reply[r.IntN(len(a.Reply))]
	}
	if a.Times != nil {
		if response.Times = a.Times.draw(r); response.Times == 0 {
			return HandlerResponse{}, false
		}
	}
	return response, true
}

func (a *HandlerResponseRange) validate() error {
	for i, reply := range a.Reply {
		if err := validateReply(reply); err != nil {
			return fmt.Errorf("reply[%d]: %w", i, err)
		}
	}
	return nil
}

func (a *HandlerResponse) validate() error {
	if a.Times < 0 {
		return fmt.Errorf("times: want 0 or more, have %d", a.Times)
	}
	if err := validateReply(a.Reply); err != nil {
		return fmt.Errorf("reply: %w", err)
	}
	return nil
}

func validateReply(reply truth.Reply) error {
	if !slices.Contains(truth.Replies, reply) {
		return fmt.Errorf("want one of %v, have %q", truth.Replies, reply)
	}
	return nil
}
