package containergc

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"seedlet.dev/core/op"
)

var t0 = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// A step that fails for longer than a round is reported once in each round in which it fails.
func TestEventOncePerFailingRound(t *testing.T) {
	var rounds Rounds
	var table op.Table
	var removal, list Failure
	var events []string
	for second := range 600 {
		now := t0.Add(time.Duration(second) * time.Second)
		switch {
		case second == 30:
			list.Note(now, "no list") // once, and then it succeeds
		case second == 31:
			list = Failure{}
		case second >= 90 && second < 240 && second%10 == 0:
			removal.Note(now, "cannot remove")
		case second == 400:
			removal = Failure{}
		}
		effects := &op.Effects{}
		effects.Reset(&table, now)
		rounds.Plan(&Env{Effects: effects, Failures: func() []Failure { return []Failure{removal, list} },
			Warn: func(reason, message string) {
				events = append(events, fmt.Sprintf("%d %s: %s", second, reason, message))
			}})
	}
	got := strings.Join(events, "; ")
	want := "180 ContainerGCFailed: cannot remove; 240 ContainerGCFailed: cannot remove"
	if got != want {
		t.Errorf("events %q, want %q", got, want)
	}
}

func TestMessagesOfOneRound(t *testing.T) {
	rounds := Rounds{LastAt: t0}
	var table op.Table
	effects := &op.Effects{}
	effects.Reset(&table, t0.Add(2*period))
	message := func(failures ...Failure) (message string) {
		rounds.LastAt = t0
		rounds.Plan(&Env{Effects: effects, Failures: func() []Failure { return failures },
			Warn: func(_, m string) { message = m }})
		return message
	}
	failing := func(m string) Failure {
		return Failure{Since: t0, Last: t0.Add(period), Message: m}
	}
	if got := message(); got != "" {
		t.Errorf("nothing has failed: %q", got)
	}
	if got := message(failing("a"), failing("b"), failing("a")); got != "[a, b]" {
		t.Errorf("two: %q", got)
	}
	var many []Failure
	for i := range messagesMax + 2 {
		many = append(many, failing(fmt.Sprint(i)))
	}
	if got := message(many...); got != "[0, 1, 2, 3, 4, 5, 6, 7, and 2 more]" {
		t.Errorf("many: %q", got)
	}
}
