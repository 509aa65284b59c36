package e2e

import (
	"slices"
	"strings"
	"syscall"
	"testing"

	"seedlet.dev/realworld/nodetest"
	"seedlet.dev/realworld/tracing/tracingtest"
)

// TestTraces has a collector told of what the agent does for a pod, and of its calls to a real
// runtime as parts of that.
func TestTraces(t *testing.T) {
	told := tracingtest.New(t)
	s := &scene{node: nodetest.New(t, nodetest.V2)}
	s.agent = newAgent(t, s.node, "tracing: {endpoint: \""+told.Address+
		"\", samplingRatePerMillion: 1000000}\n")
	s.agent.start(t)
	s.agent.add(t, "traced", pod("traced", "Never", 5, "sleep"))
	s.eventually(t, soon, "the pod runs", func() bool {
		return s.container(t, "traced", "main").GetState() == running
	})
	for _, call := range []string{"RunPodSandbox", "CreateContainer", "StartContainer"} {
		s.eventually(t, soon, "it is told of "+call, func() bool {
			return slices.ContainsFunc(told.Spans(), func(is tracingtest.Span) bool {
				return strings.HasPrefix(is.Path, "syncPod > "+call+" > ") &&
					strings.HasSuffix(is.Path, "runtime.v1.RuntimeService/"+call)
			})
		})
	}
	s.agent.remove(t, "traced")
	s.eventually(t, soon, "nothing is left", func() bool { return len(s.sandboxes(t, "")) == 0 })
	if code := s.agent.signal(t, syscall.SIGTERM); code != 0 {
		t.Errorf("on TERM the agent ended with %d", code)
	}
}
