package oracle

import (
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"

	"seedlet.dev/sim/truth"
)

func TestTerminationMessage(t *testing.T) {
	shows := func(s *script, message string) {
		p := s.served("u1", v1.PodRunning, "app#0 terminated")
		p.Status.ContainerStatuses[0].State.Terminated = &v1.ContainerStateTerminated{
			Message: message, ContainerID: "sim://u1-app#0"}
		s.CheckServed(s.now, []*v1.Pod{p})
	}
	ends := func(said, logged, policy string, code int32) func(*script) {
		return func(s *script) {
			r := s.startPod(never)
			s.model.containers["u1-app#0"].fallbackToLog = policy != ""
			f := r.fact
			f.ExitCode, f.Cause, f.Message, f.LogTail = code, truth.CauseSelf, said, logged
			s.addFact(truth.ContainerExited, f)
		}
	}
	long := strings.Repeat("x", 5000)
	runCases(t, []testCase{
		{"its message", "", func(s *script) {
			ends("no cheese", "a\n", "fallback", 1)(s)
			shows(s, "no cheese")
		}},
		{"another message", "termination-message", func(s *script) {
			ends("no cheese", "", "", 1)(s)
			shows(s, "no wine")
		}},
		{"no message", "termination-message", func(s *script) {
			ends("no cheese", "", "", 1)(s)
			shows(s, "")
		}},
		{"no message after a loss of power", "", func(s *script) {
			ends("no cheese", "", "", 1)(s)
			s.losePower()
			shows(s, "")
		}},
		{"unreadable", "", func(s *script) {
			ends("no cheese", "", "", 1)(s)
			shows(s, unreadablePrefix+"log /x: I/O error")
		}},
		{"the last bytes of a long message", "", func(s *script) {
			ends("y"+long, "", "", 1)(s)
			shows(s, long[:4096])
		}},
		{"the end of the log", "", func(s *script) {
			ends("", "one\ntwo\n", "fallback", 1)(s)
			shows(s, "one\ntwo\n")
		}},
		{"the last eighty lines", "", func(s *script) {
			ends("", strings.Repeat("x\n", 100), "fallback", 1)(s)
			shows(s, strings.Repeat("x\n", 80))
		}},
		{"the log after success", "termination-message", func(s *script) {
			ends("", "one\n", "fallback", 0)(s)
			shows(s, "one\n")
		}},
		{"the log without the policy", "termination-message", func(s *script) {
			ends("", "one\n", "", 1)(s)
			shows(s, "one\n")
		}},
	})
}
