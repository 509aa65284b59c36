package runtime

import (
	"fmt"
	"strings"
	"testing"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"seedlet.dev/sim/truth"
	"seedlet.dev/world"
)

// asked is a world with one container, which answers as it is told.
func asked(t *testing.T, f fates, answers ...Answer) (w *simWorld, container string) {
	w = newWorld(1, func(o *Options) {
		o.Faults = f
		o.Behaviour = func(Instance) Script { return Script{Answers: answers} }
	})
	container = w.mustCreate(t, w.mustRun(t, "u1"), "u1", "app", 0)
	w.mustStart(t, container)
	w.facts = nil
	return w, container
}

func run(container string, timeout int64, line ...string) *runtimeapi.ExecSyncRequest {
	return &runtimeapi.ExecSyncRequest{ContainerId: container, Cmd: line, Timeout: timeout}
}

// replies are the facts about requests so far, with the seconds since the first.
func (w *simWorld) replies() string {
	var lines []string
	var first time.Time
	for _, f := range w.facts {
		if first.IsZero() {
			first = f.Time
		}
		line := fmt.Sprint(f.Time.Sub(first).Round(time.Second), " ", f.Kind)
		if f.Kind == truth.Asked || f.Kind == truth.Replied {
			line = strings.TrimSpace(fmt.Sprint(line, " ", f.Request, " ", f.Reply))
		}
		lines = append(lines, line)
	}
	return strings.Join(lines, "; ")
}

func (w *simWorld) wantReplies(t *testing.T, want string) {
	t.Helper()
	if got := w.replies(); got != want {
		t.Errorf("facts: %s\nwant:  %s", got, want)
	}
}

func TestTruthOfACommand(t *testing.T) {
	w, c := asked(t, nil, Answer{Reply: truth.ReplyBad, Takes: 3 * time.Second})
	if _, err := w.Call(run(c, 10, "cat", "/ready")); err != nil {
		t.Error(err)
	}
	w.wantReplies(t, "0s Asked exec cat /ready; 3s Replied exec cat /ready bad")
	for _, f := range w.facts {
		if f.Container != "app" || f.ContainerID != c || f.PodUID != "u1" || f.PodName != "web" {
			t.Errorf("%+v", f)
		}
	}
}

func TestACommandDiesWithTheAgent(t *testing.T) {
	w, c := asked(t, nil, Answer{Reply: truth.ReplyGood, Takes: time.Minute})
	w.send(run(c, 0, "x"))
	w.Sleep(5 * time.Second)
	w.runtime.Disconnect()
	w.Sleep(2 * time.Minute)
	w.wantReplies(t, "0s Asked exec x; 5s Replied exec x none")
}

func TestACommandOutlivesTheRuntime(t *testing.T) {
	w, c := asked(t, nil, Answer{Reply: truth.ReplyGood, Takes: time.Minute})
	wait := w.Begin(run(c, 2, "x"))
	w.Sleep(time.Second)
	w.runtime.Restart(time.Second)
	if _, err := wait(); !err.Has(world.KindUnavailable) {
		t.Error(err)
	}
	w.Sleep(2 * time.Minute) // nobody looks at its two seconds any more
	w.wantReplies(t, "0s Asked exec x; 1s RuntimeRestarted; 1m0s Replied exec x good")
}

func TestACommandWhoseAnswerIsLost(t *testing.T) {
	w, c := asked(t, fates{"ExecSync": {{Lost: true}}}, Answer{Reply: truth.ReplyNone})
	w.timeout = 4 * time.Second
	if _, err := w.Call(run(c, 0, "x")); !err.Has(world.KindTimeout) {
		t.Error(err)
	}
	w.wantReplies(t, "0s Asked exec x; 4s Replied exec x none")
}

func TestACommandThatNobodyWaitsForIsNotBegun(t *testing.T) {
	w, c := asked(t, fates{"ExecSync": {{EffectDelay: 10 * time.Second}}})
	w.timeout = 4 * time.Second
	if _, err := w.Call(run(c, 0, "x")); !err.Has(world.KindTimeout) {
		t.Error(err)
	}
	w.Sleep(time.Minute)
	w.wantReplies(t, "")
}

func TestACommandEndsWithItsContainer(t *testing.T) {
	w, c := asked(t, nil, Answer{Reply: truth.ReplyNone})
	wait := w.Begin(run(c, 60, "x"))
	w.Sleep(time.Second)
	w.runtime.Kill("u1", "app", truth.CauseOOM, 137)
	if body, err := wait(); err != nil || body.(*runtimeapi.ExecSyncResponse).ExitCode != 137 {
		t.Error(body, err)
	}
	w.Sleep(2 * time.Minute)
	w.wantReplies(t, "0s Asked exec x; 1s ContainerExited; 1s Replied exec x none")
}

func TestAnswersHoldForAWhile(t *testing.T) {
	script := Script{Answers: []Answer{
		{Match: ":80/a", From: time.Second, For: time.Second, Reply: truth.ReplyRefused},
		{Match: ":80/", From: 3 * time.Second, Reply: truth.ReplyBad, Takes: time.Minute},
	}}
	for _, c := range []struct {
		request string
		age     time.Duration
		reply   truth.Reply
		takes   time.Duration
	}{
		{"http :80/a", 0, truth.ReplyGood, time.Millisecond},
		{"http :80/a", time.Second, truth.ReplyRefused, time.Millisecond},
		{"http :80/b", time.Second, truth.ReplyGood, time.Millisecond},
		{"http :80/a", 2 * time.Second, truth.ReplyGood, time.Millisecond},
		{"http :80/a", time.Hour, truth.ReplyBad, time.Minute},
		{"tcp :80", time.Hour, truth.ReplyGood, time.Millisecond},
	} {
		if reply, takes := script.answer(c.request, c.age); reply != c.reply || takes != c.takes {
			t.Errorf("%s at %v: %s after %v", c.request, c.age, reply, takes)
		}
	}
}
