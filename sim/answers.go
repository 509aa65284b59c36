package sim

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"seedlet.dev/sim/runtime"
	"seedlet.dev/sim/truth"
)

// Answer is how the processes of a container answer probes and hooks for a while. The first
// entry that fits a request counts; what none is about is answered well, at once.
type Answer struct {
	// Match is a part of the request, which is written "exec cat /ready", "http :80/healthz",
	// "tcp :80" or "grpc :90/name". Absent: it fits every request.
	Match string      `json:"match,omitempty"`
	From  Duration    `json:"from,omitempty"` // since the start of the process
	For   Duration    `json:"for,omitempty"`  // absent: until its end
	Reply truth.Reply `json:"reply"`          // one of truth.Replies, as good, bad or none
	Takes Duration    `json:"takes,omitempty"`
	Times int         `json:"times,omitempty"` // only the first so many processes; absent: all
}

// AnswerRange is how the processes of one container may answer for a while.
type AnswerRange struct {
	Match string        `json:"match,omitempty"` // as in Answer
	From  Span          `json:"from,omitempty"`
	For   *Span         `json:"for,omitempty"`   // absent: until the process ends
	Reply []truth.Reply `json:"reply,omitempty"` // drawn from; absent: good
	Takes Span          `json:"takes,omitempty"`
	// Times is how many processes answer so, the later ones do not. Absent: all of them.
	Times *Count `json:"times,omitempty"`
	// Probability is the share of containers that it is true of; a seed may leave such entries
	// out altogether. Absent: it is true of all, in every seed.
	Probability *Share `json:"probability,omitempty"`
}

// answers draws how the processes of a container answer. Each entry has a stream of its own.
func (d *drawing) answers(pod string, b *BehaviourRange) []Answer {
	var drawn []Answer
	weight := d.weight("answers", false)
	for i := range b.Answers {
		r := d.stream(fmt.Sprintf("answers %s %s %d", pod, b.Container, i))
		if a, is := b.Answers[i].draw(r, weight); is {
			drawn = append(drawn, a)
		}
	}
	return drawn
}

func (a *AnswerRange) draw(r *rand.Rand, weight float64) (Answer, bool) {
	if a.Probability != nil && r.Float64() >= a.Probability.draw(r)*weight {
		return Answer{}, false
	}
	drawn := Answer{Match: a.Match, From: Duration(a.From.draw(r)), Reply: truth.ReplyGood,
		Takes: Duration(a.Takes.draw(r))}
	if a.For != nil {
		drawn.For = Duration(max(a.For.draw(r), time.Millisecond))
	}
	if len(a.Reply) > 0 {
		drawn.Reply = a.Reply[r.IntN(len(a.Reply))]
	}
	if a.Times != nil {
		if drawn.Times = a.Times.draw(r); drawn.Times == 0 {
			return Answer{}, false
		}
	}
	return drawn, true
}

func (a *AnswerRange) validate() error {
	for i, reply := range a.Reply {
		if err := checkReply(reply); err != nil {
			return fmt.Errorf("reply[%d]: %w", i, err)
		}
	}
	return nil
}

func (a *Answer) validate() error {
	if a.Times < 0 {
		return fmt.Errorf("times: want 0 or more, have %d", a.Times)
	}
	if err := checkReply(a.Reply); err != nil {
		return fmt.Errorf("reply: %w", err)
	}
	return nil
}

func checkReply(reply truth.Reply) error {
	if !slices.Contains(truth.Replies, reply) {
		return fmt.Errorf("want one of %v, have %q", truth.Replies, reply)
	}
	return nil
}

// answers are those of one process, by how many ran before it in its container.
func (b *Behaviour) answers(before int) []runtime.Answer {
	var all []runtime.Answer
	for _, a := range b.Answers {
		if a.Times == 0 || before < a.Times {
			all = append(all, runtime.Answer{
				Match: a.Match, From: time.Duration(a.From), For: time.Duration(a.For),
				Reply: a.Reply, Takes: time.Duration(a.Takes),
			})
		}
	}
	return all
}
