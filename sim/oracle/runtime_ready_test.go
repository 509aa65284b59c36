package oracle

import (
	"testing"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"seedlet.dev/world"
)

// reportReadiness has the runtime answer a request for its status.
func (s *script) reportReadiness(id world.OpID, runtimeReady, networkReady bool) {
	s.ask(id, &runtimeapi.StatusRequest{})
	s.answer(id, &runtimeapi.StatusResponse{Status: &runtimeapi.RuntimeStatus{
		Conditions: []*runtimeapi.RuntimeCondition{
			{Type: runtimeapi.RuntimeReady, Status: runtimeReady},
			{Type: runtimeapi.NetworkReady, Status: networkReady},
		}}})
}

func sandboxIn(network runtimeapi.NamespaceMode) *runtimeapi.RunPodSandboxRequest {
	return &runtimeapi.RunPodSandboxRequest{Config: &runtimeapi.PodSandboxConfig{
		Linux: &runtimeapi.LinuxPodSandboxConfig{
			SecurityContext: &runtimeapi.LinuxSandboxSecurityContext{
				NamespaceOptions: &runtimeapi.NamespaceOption{Network: network}}}}}
}

func TestRuntimeReady(t *testing.T) {
	inPod, inNode := sandboxIn(runtimeapi.NamespaceMode_POD), sandboxIn(runtimeapi.NamespaceMode_NODE)
	runCases(t, []testCase{
		{"a sandbox before the runtime has said anything", "", func(s *script) {
			s.ask(9, inPod)
		}},
		{"a sandbox while the runtime is not ready", "runtime-ready", func(s *script) {
			s.reportReadiness(1, false, true)
			s.ask(9, inNode)
		}},
		{"a container while the runtime is not ready", "runtime-ready", func(s *script) {
			s.reportReadiness(1, false, true)
			s.ask(9, &runtimeapi.CreateContainerRequest{})
		}},
		{"a start while the runtime is not ready", "runtime-ready", func(s *script) {
			s.reportReadiness(1, false, true)
			s.ask(9, &runtimeapi.StartContainerRequest{})
		}},
		{"a pull while the runtime is not ready", "runtime-ready", func(s *script) {
			s.reportReadiness(1, false, true)
			s.ask(9, &runtimeapi.PullImageRequest{})
		}},
		{"a stop while the runtime is not ready", "", func(s *script) {
			s.reportReadiness(1, false, true)
			s.ask(9, &runtimeapi.StopContainerRequest{})
		}},
		{"a sandbox while the network is not ready", "runtime-ready", func(s *script) {
			s.reportReadiness(1, true, false)
			s.ask(9, inPod)
		}},
		{"a sandbox in the node's network meanwhile", "", func(s *script) {
			s.reportReadiness(1, true, false)
			s.ask(9, inNode)
		}},
		{"a container meanwhile", "", func(s *script) {
			s.reportReadiness(1, true, false)
			s.ask(9, &runtimeapi.CreateContainerRequest{})
		}},
		{"a sandbox when both are ready again", "", func(s *script) {
			s.reportReadiness(1, false, false)
			s.reportReadiness(2, true, true)
			s.ask(9, inPod)
		}},
		{"a failure says nothing new", "runtime-ready", func(s *script) {
			s.reportReadiness(1, false, true)
			s.ask(2, &runtimeapi.StatusRequest{})
			s.answer(2, &world.Error{Kind: world.KindUnavailable})
			s.ask(9, inPod)
		}},
		{"a response that comes too late is none", "", func(s *script) {
			s.ask(1, &runtimeapi.StatusRequest{})
			s.wait(31)
			s.answer(1, &runtimeapi.StatusResponse{Status: &runtimeapi.RuntimeStatus{
				Conditions: []*runtimeapi.RuntimeCondition{{Type: runtimeapi.RuntimeReady}}}})
			s.ask(9, inPod)
		}},
		{"another agent has not been told", "", func(s *script) {
			s.reportReadiness(1, false, false)
			s.AgentKilled(s.now)
			s.AgentStarted(s.now)
			s.ask(9, inPod)
		}},
	})
}
