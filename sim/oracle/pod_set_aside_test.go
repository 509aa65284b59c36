package oracle

import (
	"testing"

	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"seedlet.dev/sim/truth"
	api "seedlet.dev/world"
)

// panicOver lets the agent panic over the pod "u1", and starts the next one a second later.
func panicOver(s *script) {
	s.AgentKilled(s.now)
	s.AgentPanicked(s.now, "u1")
	s.wait(1)
	s.AgentStarted(s.now)
}

// sayAside adds the event about the pod, and its status with a reason.
func sayAside(s *script, reason string) {
	s.addFact(truth.EventRecorded, truth.Fact{Reason: reasonSetAside})
	stored := s.pods["u1"].DeepCopy()
	stored.Status.Phase, stored.Status.Reason = v1.PodRunning, reason
	s.CheckFact(truth.Fact{Time: s.now, Kind: truth.ObjectCreated, Write: &truth.Write{
		Resource: api.ResourcePods, Namespace: "ns", Name: "web",
		After: api.Object{Pod: stored}}})
}

// pullFor returns a pull of the image of all pods, for one of them.
func pullFor(uid string) *runtimeapi.PullImageRequest {
	return &runtimeapi.PullImageRequest{Image: &runtimeapi.ImageSpec{Image: "image:1"},
		SandboxConfig: &runtimeapi.PodSandboxConfig{
			Metadata: &runtimeapi.PodSandboxMetadata{Uid: uid}}}
}

func TestSetAside(t *testing.T) {
	ask := func(s *script) {
		s.Called(s.now, &runtimeapi.ContainerStatusRequest{ContainerId: "u1-app#0"})
	}
	runCases(t, []testCase{
		{"asked about afterwards", "", func(s *script) {
			s.startPod(always)
			panicOver(s)
			s.wait(9)
			ask(s)
		}},
		{"asked about too early", "set-aside", func(s *script) {
			s.startPod(always)
			panicOver(s)
			s.wait(8)
			ask(s)
		}},
		{"asked about too early after the second panic", "set-aside", func(s *script) {
			s.startPod(always)
			panicOver(s)
			s.wait(9)
			panicOver(s)
			s.wait(18)
			ask(s)
		}},
		{"the second panic comes too early", "set-aside", func(s *script) {
			s.startPod(always)
			panicOver(s)
			panicOver(s)
		}},
		{"panics are forgotten", "", func(s *script) {
			s.startPod(always)
			for range 5 {
				panicOver(s)
				s.wait(620)
			}
		}},
		{"another pod is asked about", "", func(s *script) {
			s.startPod(always)
			s.sandbox("u2", 0)
			panicOver(s)
			s.Called(s.now, &runtimeapi.StopPodSandboxRequest{PodSandboxId: "u2-s0"})
		}},
		{"the status does not say so", "set-aside", func(s *script) {
			s.startPod(always)
			panicOver(s)
			s.wait(9)
			panicOver(s)
			sayAside(s, "")
			pollEverySecond(s, 9)
		}},
		{"the status says so", "", func(s *script) {
			s.startPod(always)
			panicOver(s)
			s.wait(9)
			panicOver(s)
			sayAside(s, reasonSetAside)
			pollEverySecond(s, 19)
			sayAside(s, "")
		}},
		{"the status still says so", "set-aside", func(s *script) {
			s.startPod(always)
			panicOver(s)
			sayAside(s, reasonSetAside)
			pollEverySecond(s, 60)
		}},
	})
}

func TestPullsForAPodSetAside(t *testing.T) {
	runCases(t, []testCase{
		{"an image is pulled for it too early", "set-aside", func(s *script) {
			s.startPod(always)
			panicOver(s)
			s.Called(s.now, pullFor("u1"))
		}},
		{"its image is pulled for another pod", "", func(s *script) {
			s.startPod(always)
			s.sandbox("u2", 0)
			panicOver(s)
			s.Called(s.now, pullFor("u2"))
		}},
	})
}
