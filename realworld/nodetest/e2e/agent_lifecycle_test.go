package e2e

import (
	"encoding/json"
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"seedlet.dev/realworld/nodetest"
	"seedlet.dev/realworld/porttest"
)

const (
	running = runtimeapi.ContainerState_CONTAINER_RUNNING
	exited  = runtimeapi.ContainerState_CONTAINER_EXITED

	quietPeriod = 4 * time.Second // in which nothing may change; several relists long
)

// TestAgent takes one agent through the life of a node. The parts build on each other: pods that
// one part leaves running are used by the next.
func TestAgent(t *testing.T) {
	t.Parallel()
	for _, version := range nodetest.Versions() {
		t.Run(version, func(t *testing.T) {
			t.Parallel()
			s := &suite{node: nodetest.New(t, version)}
			s.agent = newAgent(t, s.node)
			s.agent.start(t)
			parts := []struct {
				name string
				run  func(*testing.T)
			}{
				{"pods reach their states", s.testPodStates},
				{"broken manifest is reported and skipped", s.testBrokenManifest},
				{"killed container restarts by policy", s.testContainerKilled},
				{"kill -9 of the agent restarts nothing", s.testAgentKilled},
				{"readiness survives kill -9 of the agent", s.testReadinessAcrossKills},
				{"orderly stop of the agent restarts nothing", s.testAgentStopped},
				{"kill of containerd restarts nothing", s.testRuntimeKilled},
				{"removed manifest ends its pod within its grace period", s.testManifestRemoved},
				{"nothing is left", s.testNothingLeft},
			}
			for _, part := range parts {
				if !t.Run(part.name, part.run) {
					t.Fatalf("the end of the agent's log:\n%s", s.agent.logTail(t, 60))
				}
			}
		})
	}
}

func (s *suite) testPodStates(t *testing.T) {
	s.agent.addExample(t, "web")
	s.agent.addExample(t, "crasher")
	s.agent.addExample(t, "job")
	s.agent.addManifest(t, "oneshot",
		samplePodManifest("oneshot", "Never", 5, "sleep", "--code", "3"))

	s.eventually(t, "web runs after setup completed", func() bool {
		setup, web := s.newestContainer(t, "web", "setup"), s.newestContainer(t, "web", "web")
		return setup.GetState() == exited && setup.GetExitCode() == 0 &&
			web.GetState() == running && web.GetStartedAt() >= setup.GetFinishedAt()
	})
	s.eventually(t, "job has completed", func() bool {
		job := s.newestContainer(t, "job", "job")
		return job.GetState() == exited && job.GetExitCode() == 0
	})
	s.eventually(t, "crasher was restarted twice", func() bool {
		return s.newestContainer(t, "crasher", "crasher").GetMetadata().GetAttempt() >= 2
	})
	if got := s.newestContainer(t, "job", "job").GetMetadata().GetAttempt(); got != 0 {
		t.Errorf("job with restartPolicy Never is at attempt %d", got)
	}
	for name, phase := range map[string]string{
		"web": "Running", "crasher": "Running", "job": "Succeeded", "oneshot": "Running",
	} {
		s.eventually(t, name+" is "+phase+" in /pods", func() bool {
			return string(s.agent.servedPod(t, name).Status.Phase) == phase
		})
	}
	s.eventually(t, "crasher is in CrashLoopBackOff in /pods", func() bool {
		statuses := s.agent.servedPod(t, "crasher").Status.ContainerStatuses
		return len(statuses) == 1 && statuses[0].State.Waiting != nil &&
			statuses[0].State.Waiting.Reason == "CrashLoopBackOff"
	})
	s.agent.removeManifest(t, "crasher") // its restarts would disturb the following parts
	s.eventually(t, "crasher is removed", func() bool {
		return s.isRemoved(t, "crasher")
	})
}

func (s *suite) testBrokenManifest(t *testing.T) {
	s.agent.addManifest(t, "broken", "kind: Pod\nmetadata: [\n")
	s.agent.addManifest(t, "beside", samplePodManifest("beside", "Always", 5, "sleep"))
	s.eventually(t, "the pod beside the broken manifest runs", func() bool {
		return s.newestContainer(t, "beside", "main").GetState() == running
	})
	s.eventually(t, "the log names broken.yaml", func() bool {
		return strings.Contains(s.agent.logTail(t, 1000), "broken.yaml")
	})
	s.agent.removeManifest(t, "broken")
}

func (s *suite) testContainerKilled(t *testing.T) {
	before := s.newestContainer(t, "web", "web")
	sandboxes := s.sandboxLines(t, "web")
	s.signalContainer(t, before.GetId(), syscall.SIGKILL)
	s.eventually(t, "web was restarted", func() bool {
		web := s.newestContainer(t, "web", "web")
		return web.GetState() == running && web.GetMetadata().GetAttempt() == 1 &&
			web.GetId() != before.GetId()
	})
	if got := s.sandboxLines(t, "web"); !slices.Equal(got, sandboxes) {
		t.Errorf("the sandbox changed from %v to %v", sandboxes, got)
	}
	s.signalContainer(t, s.newestContainer(t, "oneshot", "main").GetId(), syscall.SIGKILL)
	s.eventually(t, "oneshot has failed", func() bool {
		return s.agent.servedPod(t, "oneshot").Status.Phase == "Failed"
	})
	time.Sleep(quietPeriod)
	oneshot := s.newestContainer(t, "oneshot", "main")
	if oneshot.GetState() != exited || oneshot.GetMetadata().GetAttempt() != 0 {
		t.Errorf("oneshot with restartPolicy Never was restarted: %v", oneshot)
	}
}

func (s *suite) testAgentKilled(t *testing.T) {
	s.checkUndisturbed(t, func() {
		s.agent.signalAndWait(t, syscall.SIGKILL)
		time.Sleep(time.Second)
		s.agent.start(t)
	})
}

// testReadinessAcrossKills polls /pods while the agent is killed and restarted ten times. A ready
// container must never be served as not ready, nor an unready one as ready.
func (s *suite) testReadinessAcrossKills(t *testing.T) {
	const probe = `
    readinessProbe: {exec: {command: [/sample, check]}, periodSeconds: 2, successThreshold: 2,
      timeoutSeconds: 60}`
	s.agent.addManifest(t, "ready", podManifest("ready", `
  containers:
  - name: main
    image: sample
    args: [health]`+probe))
	s.agent.addManifest(t, "unready", podManifest("unready", `
  containers:
  - name: main
    image: sample
    args: [health, --sick]`+probe))
	s.eventually(t, "pod ready is ready and pod unready runs", func() bool {
		return s.containerStatus(t, "ready", "main").Ready &&
			s.containerStatus(t, "unready", "main").State.Running != nil
	})
	for range 10 {
		s.agent.signalAndWait(t, syscall.SIGKILL)
		s.agent.startProcess(t)
		served := time.Time{} // when /pods first had the statuses of both containers
		deadline := time.Now().Add(porttest.Patience)
		for served.IsZero() || time.Since(served) < 500*time.Millisecond {
			if time.Now().After(deadline) {
				t.Fatal("/pods has no statuses of the containers")
			}
			ready, unready := s.servedReadiness("ready"), s.servedReadiness("unready")
			if served.IsZero() && ready != nil && unready != nil {
				served = time.Now()
			}
			if ready != nil && !*ready || unready != nil && *unready {
				t.Fatalf("readiness flipped:\n%s\n%s", s.describeStatus(t, "ready"),
					s.describeStatus(t, "unready"))
			}
			time.Sleep(10 * time.Millisecond)
		}
	}
	s.agent.removeManifest(t, "ready")
	s.agent.removeManifest(t, "unready")
	s.eventually(t, "both pods are removed", func() bool {
		return s.isRemoved(t, "ready") && s.isRemoved(t, "unready")
	})
}

// servedReadiness returns the readiness of a pod's first container in /pods. It returns nil while
// /pods has no status of the container, or the agent does not run.
func (s *suite) servedReadiness(name string) *bool {
	response, err := client.Get(s.agent.podsURL)
	if err != nil {
		return nil
	}
	defer func() { _ = response.Body.Close() }() // the caller polls; the next request reads it again
	var list v1.PodList
	if err := json.NewDecoder(response.Body).Decode(&list); err != nil {
		return nil
	}
	for _, p := range list.Items {
		if p.Name == name+"-"+nodeName && len(p.Status.ContainerStatuses) > 0 {
			return &p.Status.ContainerStatuses[0].Ready
		}
	}
	return nil
}

func (s *suite) testAgentStopped(t *testing.T) {
	s.checkUndisturbed(t, func() {
		if code := s.agent.signalAndWait(t, syscall.SIGTERM); code != 0 {
			t.Errorf("on TERM the agent exited with code %d", code)
		}
		s.agent.start(t)
	})
}

func (s *suite) testRuntimeKilled(t *testing.T) {
	s.checkUndisturbed(t, func() {
		if err := s.node.Kill(); err != nil {
			t.Fatal(err)
		}
		time.Sleep(3 * time.Second) // several relists fail meanwhile
		if err := s.node.Restart(t.Context()); err != nil {
			t.Fatal(err)
		}
	})
	s.agent.addManifest(t, "later", samplePodManifest("later", "Always", 1000, "sleep"))
	s.eventually(t, "a pod added afterwards runs", func() bool {
		return s.newestContainer(t, "later", "main").GetState() == running
	})
}

// checkUndisturbed checks that an interruption changes neither the running containers nor the
// statuses in /pods.
func (s *suite) checkUndisturbed(t *testing.T, interrupt func()) {
	t.Helper()
	before := s.runningLines(t)
	if len(before) < 2 {
		t.Fatalf("too few containers and sandboxes run before the interruption: %v", before)
	}
	interrupt()
	s.eventually(t, "web is Running again in /pods with restart count 1", func() bool {
		web := s.agent.servedPod(t, "web").Status
		return web.Phase == "Running" && len(web.ContainerStatuses) == 1 &&
			web.ContainerStatuses[0].Ready && web.ContainerStatuses[0].RestartCount == 1
	})
	s.eventually(t, "terminal pods keep their phases", func() bool {
		return s.agent.servedPod(t, "job").Status.Phase == "Succeeded" &&
			s.agent.servedPod(t, "oneshot").Status.Phase == "Failed"
	})
	time.Sleep(quietPeriod)
	if after := s.runningLines(t); !slices.Equal(after, before) {
		t.Errorf("the running containers and sandboxes changed\nfrom %v\nto   %v", before, after)
	}
}

func (s *suite) testManifestRemoved(t *testing.T) {
	const grace = 4 * time.Second
	s.agent.addManifest(t, "stubborn",
		samplePodManifest("stubborn", "Always", 4, "sleep", "--ignore-term"))
	s.waitLogLine(t, "stubborn", "main", "0", "sleeping") // it ignores TERM from now on
	uid := string(s.agent.servedPod(t, "stubborn").UID)
	start := time.Now()
	s.agent.removeManifest(t, "stubborn")
	s.eventually(t, "stubborn is removed", func() bool {
		return s.isRemoved(t, "stubborn")
	})
	if took := time.Since(start); took < grace-500*time.Millisecond {
		t.Errorf("a pod that ignores TERM took %v to end, its grace period is %v", took, grace)
	}
	s.eventually(t, "the directories of stubborn are removed", func() bool {
		return len(s.agent.podDirectories(t, uid)) == 0
	})

	s.agent.removeManifest(t, "later") // obeys TERM: nothing waits for its long grace period
	s.eventually(t, "later is removed", func() bool { return s.isRemoved(t, "later") })
}

func (s *suite) testNothingLeft(t *testing.T) {
	for _, name := range []string{"web", "job", "oneshot", "beside"} {
		s.agent.removeManifest(t, name)
	}
	s.eventually(t, "the runtime has no sandbox and no container", func() bool {
		return len(s.sandboxLines(t, "")) == 0 && len(s.containerLines(t, "")) == 0
	})
	s.eventually(t, "no pod has a directory", func() bool {
		return len(s.agent.podDirectories(t, "")) == 0
	})
	s.eventually(t, "/pods is empty", func() bool {
		return len(s.agent.servedPods(t)) == 0
	})
	s.agent.signalAndWait(t, syscall.SIGTERM)
	if _, err := os.Stat(s.agent.manifestDir); err != nil {
		t.Errorf("the agent removed the manifest directory: %v", err)
	}
}
