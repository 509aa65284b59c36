package e2e

import (
	"slices"
	"strings"
	"syscall"
	"testing"

	"seedlet.dev/realworld/nodetest"
	"seedlet.dev/realworld/tracing/tracingtest"
)

// TestTraces checks that the agent exports spans for its work on a pod, with its calls to a real
// runtime as child spans.
func TestTraces(t *testing.T) {
	t.Parallel()
	collector := tracingtest.New(t)
	s := &suite{node: nodetest.New(t, nodetest.V2)}
	s.agent = newAgent(t, s.node, "tracing: {endpoint: \""+collector.Address+
		"\", samplingRatePerMillion: 1000000}\n")
	s.agent.start(t)
	s.agent.addManifest(t, "traced", samplePodManifest("traced", "Never", 5, "sleep"))
	s.eventually(t, "the pod runs", func() bool {
		return s.newestContainer(t, "traced", "main").GetState() == running
	})
	for _, call := range []string{"RunPodSandbox", "CreateContainer", "StartContainer"} {
		s.eventually(t, "the collector has a span of "+call, func() bool {
			return slices.ContainsFunc(collector.Spans(), func(span tracingtest.Span) bool {
				return strings.HasPrefix(span.Path, "syncPod > "+call+" > ") &&
					strings.HasSuffix(span.Path, "runtime.v1.RuntimeService/"+call)
			})
		})
	}
	s.agent.removeManifest(t, "traced")
	s.eventually(t, "the pod is removed", func() bool {
		return len(s.sandboxLines(t, "")) == 0
	})
	if code := s.agent.signalAndWait(t, syscall.SIGTERM); code != 0 {
		t.Errorf("on TERM the agent exited with code %d", code)
	}
}
