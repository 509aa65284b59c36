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
)

const (
	running = runtimeapi.ContainerState_CONTAINER_RUNNING
	exited  = runtimeapi.ContainerState_CONTAINER_EXITED

	soon  = 30 * time.Second // for what the agent should do now
	quiet = 4 * time.Second  // in which nothing should happen; several relists long
)

// TestAgent takes one agent through the life of a node. The parts build on each other: what one
// leaves running, the next finds.
func TestAgent(t *testing.T) {
	t.Parallel()
	for _, version := range nodetest.Versions() {
		t.Run(version, func(t *testing.T) {
			t.Parallel()
			s := &scene{node: nodetest.New(t, version)}
			s.agent = newAgent(t, s.node)
			s.agent.start(t)
			parts := []struct {
				name string
				run  func(*testing.T)
			}{
				{"pods reach their states", s.podsReachTheirStates},
				{"broken manifest is reported and skipped", s.brokenManifest},
				{"killed container restarts by policy", s.killedContainer},
				{"kill -9 of the agent restarts nothing", s.agentKilled},
				{"readiness outlives kill -9 of the agent", s.readinessKept},
				{"orderly stop of the agent restarts nothing", s.agentStopped},
				{"kill of containerd restarts nothing", s.runtimeKilled},
				{"removed manifest ends its pod within its grace", s.manifestRemoved},
				{"nothing is left", s.nothingLeft},
			}
			for _, part := range parts {
				if !t.Run(part.name, part.run) {
					t.Fatalf("the end of the agent's log:\n%s", s.agent.logTail(t, 60))
				}
			}
		})
	}
}

// scene is a node, an agent on it, and the view of both. The parts of a test may share it.
type scene struct {
	node  *nodetest.Node
	agent *agent
}

func (s *scene) podsReachTheirStates(t *testing.T) {
	s.agent.addExample(t, "web")
	s.agent.addExample(t, "crasher")
	s.agent.addExample(t, "job")
	s.agent.add(t, "oneshot", pod("oneshot", "Never", 5, "sleep", "--code", "3"))

	s.eventually(t, soon, "web runs after setup completed", func() bool {
		setup, web := s.container(t, "web", "setup"), s.container(t, "web", "web")
		return setup.GetState() == exited && setup.GetExitCode() == 0 &&
			web.GetState() == running && web.GetStartedAt() >= setup.GetFinishedAt()
	})
	s.eventually(t, soon, "job has completed", func() bool {
		job := s.container(t, "job", "job")
		return job.GetState() == exited && job.GetExitCode() == 0
	})
	s.eventually(t, soon, "crasher was restarted twice", func() bool {
		return s.container(t, "crasher", "crasher").GetMetadata().GetAttempt() >= 2
	})
	if got := s.container(t, "job", "job").GetMetadata().GetAttempt(); got != 0 {
		t.Errorf("job with restartPolicy Never is at attempt %d", got)
	}
	for name, phase := range map[string]string{
		"web": "Running", "crasher": "Running", "job": "Succeeded", "oneshot": "Running",
	} {
		s.eventually(t, soon, name+" is "+phase+" in /pods", func() bool {
			return string(s.agent.pod(t, name).Status.Phase) == phase
		})
	}
	s.eventually(t, soon, "/pods says CrashLoopBackOff", func() bool {
		statuses := s.agent.pod(t, "crasher").Status.ContainerStatuses
		return len(statuses) == 1 && statuses[0].State.Waiting != nil &&
			statuses[0].State.Waiting.Reason == "CrashLoopBackOff"
	})
	s.agent.remove(t, "crasher") // it would never hold still for what follows
	s.eventually(t, soon, "crasher is gone", func() bool { return s.gone(t, "crasher") })
}

func (s *scene) brokenManifest(t *testing.T) {
	s.agent.add(t, "broken", "kind: Pod\nmetadata: [\n")
	s.agent.add(t, "beside", pod("beside", "Always", 5, "sleep"))
	s.eventually(t, soon, "the pod beside the broken manifest runs", func() bool {
		return s.container(t, "beside", "main").GetState() == running
	})
	s.eventually(t, soon, "the log names broken.yaml", func() bool {
		return strings.Contains(s.agent.logTail(t, 1000), "broken.yaml")
	})
	s.agent.remove(t, "broken")
}

func (s *scene) killedContainer(t *testing.T) {
	before := s.container(t, "web", "web")
	sandboxes := s.sandboxes(t, "web")
	s.signal(t, before.GetId(), syscall.SIGKILL)
	s.eventually(t, soon, "web was restarted", func() bool {
		web := s.container(t, "web", "web")
		return web.GetState() == running && web.GetMetadata().GetAttempt() == 1 &&
			web.GetId() != before.GetId()
	})
	if got := s.sandboxes(t, "web"); !slices.Equal(got, sandboxes) {
		t.Errorf("the sandbox changed from %v to %v", sandboxes, got)
	}
	s.signal(t, s.container(t, "oneshot", "main").GetId(), syscall.SIGKILL)
	s.eventually(t, soon, "oneshot has failed", func() bool {
		return s.agent.pod(t, "oneshot").Status.Phase == "Failed"
	})
	time.Sleep(quiet)
	oneshot := s.container(t, "oneshot", "main")
	if oneshot.GetState() != exited || oneshot.GetMetadata().GetAttempt() != 0 {
		t.Errorf("oneshot with restartPolicy Never went on: %v", oneshot)
	}
}

func (s *scene) agentKilled(t *testing.T) {
	s.undisturbed(t, func() {
		s.agent.signal(t, syscall.SIGKILL)
		time.Sleep(time.Second)
		s.agent.start(t)
	})
}

// readinessKept looks at /pods all the time while the agent is killed and comes back, ten times.
// What it says of a container that is ready must never be that it is not, nor the other way round.
func (s *scene) readinessKept(t *testing.T) {
	const probe = `
    readinessProbe: {exec: {command: [/sample, check]}, periodSeconds: 2, successThreshold: 2}`
	s.agent.add(t, "ready", manifest("ready", `
  containers:
  - name: main
    image: sample
    args: [health]`+probe))
	s.agent.add(t, "unready", manifest("unready", `
  containers:
  - name: main
    image: sample
    args: [health, --sick]`+probe))
	s.eventually(t, soon, "ready is, and unready runs", func() bool {
		return s.status(t, "ready", "main").Ready &&
			s.status(t, "unready", "main").State.Running != nil
	})
	for range 10 {
		s.agent.signal(t, syscall.SIGKILL)
		s.agent.launch(t)
		told := time.Time{} // since when the phases are known
		over := time.Now().Add(soon)
		for told.IsZero() || time.Since(told) < 500*time.Millisecond {
			if time.Now().After(over) {
				t.Fatal("/pods says nothing of the containers")
			}
			ready, unready := s.glance("ready"), s.glance("unready")
			if told.IsZero() && ready != nil && unready != nil {
				told = time.Now()
			}
			if ready != nil && !*ready || unready != nil && *unready {
				t.Fatalf("readiness flipped:\n%s\n%s", s.describe(t, "ready"),
					s.describe(t, "unready"))
			}
			time.Sleep(10 * time.Millisecond)
		}
	}
	s.agent.remove(t, "ready")
	s.agent.remove(t, "unready")
	s.eventually(t, soon, "both are gone", func() bool {
		return s.gone(t, "ready") && s.gone(t, "unready")
	})
}

// glance is whether the agent says that a pod's container is ready; nil if it says nothing yet,
// or is not there.
func (s *scene) glance(name string) *bool {
	answer, err := client.Get(s.agent.podsURL)
	if err != nil {
		return nil
	}
	defer func() { _ = answer.Body.Close() }() // what was not read is asked for again
	var list v1.PodList
	if err := json.NewDecoder(answer.Body).Decode(&list); err != nil {
		return nil
	}
	for _, p := range list.Items {
		if p.Name == name+"-"+nodeName && len(p.Status.ContainerStatuses) > 0 {
			return &p.Status.ContainerStatuses[0].Ready
		}
	}
	return nil
}

func (s *scene) agentStopped(t *testing.T) {
	s.undisturbed(t, func() {
		if code := s.agent.signal(t, syscall.SIGTERM); code != 0 {
			t.Errorf("on TERM the agent ended with %d", code)
		}
		s.agent.start(t)
	})
}

func (s *scene) runtimeKilled(t *testing.T) {
	s.undisturbed(t, func() {
		if err := s.node.Kill(); err != nil {
			t.Fatal(err)
		}
		time.Sleep(3 * time.Second) // long enough for relists to fail
		if err := s.node.Restart(t.Context()); err != nil {
			t.Fatal(err)
		}
	})
	s.agent.add(t, "later", pod("later", "Always", 5, "sleep"))
	s.eventually(t, soon, "a pod added afterwards runs", func() bool {
		return s.container(t, "later", "main").GetState() == running
	})
}

// undisturbed checks that an interruption changes nothing that runs, nor what is known of it.
func (s *scene) undisturbed(t *testing.T, interrupt func()) {
	t.Helper()
	before := s.alive(t)
	if len(before) < 2 {
		t.Fatalf("too little runs to be disturbed: %v", before)
	}
	interrupt()
	s.eventually(t, soon, "web is Running again in /pods, with its restart counted", func() bool {
		web := s.agent.pod(t, "web").Status
		return web.Phase == "Running" && len(web.ContainerStatuses) == 1 &&
			web.ContainerStatuses[0].Ready && web.ContainerStatuses[0].RestartCount == 1
	})
	s.eventually(t, soon, "finished pods are still finished", func() bool {
		return s.agent.pod(t, "job").Status.Phase == "Succeeded" &&
			s.agent.pod(t, "oneshot").Status.Phase == "Failed"
	})
	time.Sleep(quiet)
	if after := s.alive(t); !slices.Equal(after, before) {
		t.Errorf("what runs changed\nfrom %v\nto   %v", before, after)
	}
}

func (s *scene) manifestRemoved(t *testing.T) {
	const grace = 4 * time.Second
	s.agent.add(t, "stubborn", pod("stubborn", "Always", 4, "sleep", "--ignore-term"))
	s.eventually(t, soon, "stubborn runs", func() bool {
		return s.container(t, "stubborn", "main").GetState() == running
	})
	uid := string(s.agent.pod(t, "stubborn").UID)
	start := time.Now()
	s.agent.remove(t, "stubborn")
	s.eventually(t, soon, "stubborn is gone", func() bool { return s.gone(t, "stubborn") })
	if took := time.Since(start); took < grace-500*time.Millisecond || took > grace+6*time.Second {
		t.Errorf("a pod that ignores TERM took %v to end, its grace is %v", took, grace)
	}
	s.eventually(t, soon, "its directories are gone", func() bool {
		return len(s.agent.directories(t, uid)) == 0
	})

	start = time.Now()
	s.agent.remove(t, "later")
	s.eventually(t, soon, "later is gone", func() bool { return s.gone(t, "later") })
	if took := time.Since(start); took > 4*time.Second {
		t.Errorf("a pod that obeys TERM took %v to end", took)
	}
}

func (s *scene) nothingLeft(t *testing.T) {
	for _, name := range []string{"web", "job", "oneshot", "beside"} {
		s.agent.remove(t, name)
	}
	s.eventually(t, soon, "the runtime holds nothing", func() bool {
		return len(s.sandboxes(t, "")) == 0 && len(s.containers(t, "")) == 0
	})
	s.eventually(t, soon, "no pod has a directory", func() bool {
		return len(s.agent.directories(t, "")) == 0
	})
	s.eventually(t, soon, "/pods is empty", func() bool { return len(s.agent.pods(t)) == 0 })
	s.agent.signal(t, syscall.SIGTERM)
	if _, err := os.Stat(s.agent.manifests); err != nil {
		t.Errorf("the manifest directory is not the agent's to remove: %v", err)
	}
}
