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

// replyingContainer returns a world with one running container that follows the given reply rules.
func replyingContainer(t *testing.T, f outcomes, rules ...ReplyRule) (w *simWorld, id string) {
	w = newWorld(1, func(o *Options) {
		o.Faults = f
		o.Behaviour = func(Instance) Script { return Script{Replies: rules} }
	})
	id = w.mustCreate(t, w.mustRun(t, "u1"), "u1", "app", 0)
	w.mustStart(t, id)
	w.facts = nil
	return w, id
}

func execRequest(container string, timeout int64, line ...string) *runtimeapi.ExecSyncRequest {
	return &runtimeapi.ExecSyncRequest{ContainerId: container, Cmd: line, Timeout: timeout}
}

// requestFacts summarizes the facts so far, with the seconds since the first.
func (w *simWorld) requestFacts() string {
	var lines []string
	var first time.Time
	for _, f := range w.facts {
		if first.IsZero() {
			first = f.Time
		}
		line := fmt.Sprint(f.Time.Sub(first).Round(time.Second), " ", f.Kind)
		if f.Kind == truth.HandlerRequested || f.Kind == truth.HandlerEnded {
			line = strings.TrimSpace(fmt.Sprint(line, " ", f.Request, " ", f.Reply))
		}
		lines = append(lines, line)
	}
	return strings.Join(lines, "; ")
}

func (w *simWorld) wantRequestFacts(t *testing.T, want string) {
	t.Helper()
	if got := w.requestFacts(); got != want {
		t.Errorf("facts: %s\nwant:  %s", got, want)
	}
}

func TestExecIsInTheTruthLog(t *testing.T) {
	w, c := replyingContainer(t, nil, ReplyRule{Reply: truth.ReplyFailure, Delay: 3 * time.Second})
	if _, err := w.Call(execRequest(c, 10, "cat", "/ready")); err != nil {
		t.Error(err)
	}
	w.wantRequestFacts(t, "0s Asked exec cat /ready; 3s Replied exec cat /ready bad")
	for _, f := range w.facts {
		if f.Container != "app" || f.ContainerID != c || f.PodUID != "u1" || f.PodName != "web" {
			t.Errorf("%+v", f)
		}
	}
}

func TestExecEndsWithTheAgent(t *testing.T) {
	w, c := replyingContainer(t, nil, ReplyRule{Reply: truth.ReplySuccess, Delay: time.Minute})
	w.send(execRequest(c, 0, "x"))
	w.Sleep(5 * time.Second)
	w.runtime.Disconnect()
	w.Sleep(2 * time.Minute)
	w.wantRequestFacts(t, "0s Asked exec x; 5s Replied exec x none")
}

func TestExecOutlivesTheRuntime(t *testing.T) {
	w, c := replyingContainer(t, nil, ReplyRule{Reply: truth.ReplySuccess, Delay: time.Minute})
	wait := w.Begin(execRequest(c, 2, "x"))
	w.Sleep(time.Second)
	w.runtime.Restart(time.Second)
	if _, err := wait(); !err.Has(world.KindUnavailable) {
		t.Error(err)
	}
	w.Sleep(2 * time.Minute) // the timeout of two seconds is no longer enforced
	w.wantRequestFacts(t, "0s Asked exec x; 1s RuntimeRestarted; 1m0s Replied exec x good")
}

func TestExecWithLostResponse(t *testing.T) {
	w, c := replyingContainer(t, outcomes{"ExecSync": {{ResponseLost: true}}},
		ReplyRule{Reply: truth.ReplyNone})
	w.timeout = 4 * time.Second
	if _, err := w.Call(execRequest(c, 0, "x")); !err.Has(world.KindTimeout) {
		t.Error(err)
	}
	w.wantRequestFacts(t, "0s Asked exec x; 4s Replied exec x none")
}

func TestExecDelayedPastItsDeadlineNeverStarts(t *testing.T) {
	w, c := replyingContainer(t, outcomes{"ExecSync": {{EffectDelay: 10 * time.Second}}})
	w.timeout = 4 * time.Second
	if _, err := w.Call(execRequest(c, 0, "x")); !err.Has(world.KindTimeout) {
		t.Error(err)
	}
	w.Sleep(time.Minute)
	w.wantRequestFacts(t, "")
}

func TestExecEndsWithItsContainer(t *testing.T) {
	w, c := replyingContainer(t, nil, ReplyRule{Reply: truth.ReplyNone})
	wait := w.Begin(execRequest(c, 60, "x"))
	w.Sleep(time.Second)
	w.runtime.Kill("u1", "app", truth.CauseOOM, 137)
	if body, err := wait(); err != nil || body.(*runtimeapi.ExecSyncResponse).ExitCode != 137 {
		t.Error(body, err)
	}
	w.Sleep(2 * time.Minute)
	w.wantRequestFacts(t, "0s Asked exec x; 1s ContainerExited; 1s Replied exec x none")
}

func TestReplyRulesApplyInTheirPeriod(t *testing.T) {
	script := Script{Replies: []ReplyRule{
		{Match: ":80/a", From: time.Second, For: time.Second, Reply: truth.ReplyRefused},
		{Match: ":80/", From: 3 * time.Second, Reply: truth.ReplyFailure, Delay: time.Minute},
	}}
	for _, c := range []struct {
		request string
		age     time.Duration
		reply   truth.Reply
		delay   time.Duration
	}{
		{"http :80/a", 0, truth.ReplySuccess, time.Millisecond},
		{"http :80/a", time.Second, truth.ReplyRefused, time.Millisecond},
		{"http :80/b", time.Second, truth.ReplySuccess, time.Millisecond},
		{"http :80/a", 2 * time.Second, truth.ReplySuccess, time.Millisecond},
		{"http :80/a", time.Hour, truth.ReplyFailure, time.Minute},
		{"tcp :80", time.Hour, truth.ReplySuccess, time.Millisecond},
	} {
		if reply, delay := script.replyTo(c.request, c.age); reply != c.reply || delay != c.delay {
			t.Errorf("%s at %v: %s after %v", c.request, c.age, reply, delay)
		}
	}
}
