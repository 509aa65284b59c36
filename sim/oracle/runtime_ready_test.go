package oracle

import (
	"testing"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"seedlet.dev/world"
)

func TestRuntimeReady(t *testing.T) {
	says := func(s *script, id world.OpID, runtimeReady, networkReady bool) {
		s.ask(id, &runtimeapi.StatusRequest{})
		s.answer(id, &runtimeapi.StatusResponse{Status: &runtimeapi.RuntimeStatus{
			Conditions: []*runtimeapi.RuntimeCondition{
				{Type: runtimeapi.RuntimeReady, Status: runtimeReady},
				{Type: runtimeapi.NetworkReady, Status: networkReady},
			}}})
	}
	runSandbox := func(s *script, network runtimeapi.NamespaceMode) {
		s.ask(9, &runtimeapi.RunPodSandboxRequest{Config: &runtimeapi.PodSandboxConfig{
			Linux: &runtimeapi.LinuxPodSandboxConfig{
				SecurityContext: &runtimeapi.LinuxSandboxSecurityContext{
					NamespaceOptions: &runtimeapi.NamespaceOption{Network: network}}}}})
	}
	runCases(t, []testCase{
		{"a sandbox before the runtime has said anything", "", func(s *script) {
			runSandbox(s, runtimeapi.NamespaceMode_POD)
		}},
		{"a sandbox while the runtime is not ready", "runtime-ready", func(s *script) {
			says(s, 1, false, true)
			runSandbox(s, runtimeapi.NamespaceMode_NODE)
		}},
		{"a container while the runtime is not ready", "runtime-ready", func(s *script) {
			says(s, 1, false, true)
			s.ask(9, &runtimeapi.CreateContainerRequest{})
		}},
		{"a start while the runtime is not ready", "runtime-ready", func(s *script) {
			says(s, 1, false, true)
			s.ask(9, &runtimeapi.StartContainerRequest{})
		}},
		{"a pull while the runtime is not ready", "runtime-ready", func(s *script) {
			says(s, 1, false, true)
			s.ask(9, &runtimeapi.PullImageRequest{})
		}},
		{"a stop while the runtime is not ready", "", func(s *script) {
			says(s, 1, false, true)
			s.ask(9, &runtimeapi.StopContainerRequest{})
		}},
		{"a sandbox while the network is not ready", "runtime-ready", func(s *script) {
			says(s, 1, true, false)
			runSandbox(s, runtimeapi.NamespaceMode_POD)
		}},
		{"a sandbox in the node's network meanwhile", "", func(s *script) {
			says(s, 1, true, false)
			runSandbox(s, runtimeapi.NamespaceMode_NODE)
		}},
		{"a container meanwhile", "", func(s *script) {
			says(s, 1, true, false)
			s.ask(9, &runtimeapi.CreateContainerRequest{})
		}},
		{"a sandbox when both are ready again", "", func(s *script) {
			says(s, 1, false, false)
			says(s, 2, true, true)
			runSandbox(s, runtimeapi.NamespaceMode_POD)
		}},
		{"a failure says nothing new", "runtime-ready", func(s *script) {
			says(s, 1, false, true)
			s.ask(2, &runtimeapi.StatusRequest{})
			s.answer(2, &world.Error{Kind: world.KindUnavailable})
			runSandbox(s, runtimeapi.NamespaceMode_POD)
		}},
		{"a response that comes too late is none", "", func(s *script) {
			s.ask(1, &runtimeapi.StatusRequest{})
			s.wait(31)
			s.answer(1, &runtimeapi.StatusResponse{Status: &runtimeapi.RuntimeStatus{
				Conditions: []*runtimeapi.RuntimeCondition{{Type: runtimeapi.RuntimeReady}}}})
			runSandbox(s, runtimeapi.NamespaceMode_POD)
		}},
		{"another agent has not been told", "", func(s *script) {
			says(s, 1, false, false)
			s.AgentKilled(s.now)
			s.AgentStarted(s.now)
			runSandbox(s, runtimeapi.NamespaceMode_POD)
		}},
	})
}
