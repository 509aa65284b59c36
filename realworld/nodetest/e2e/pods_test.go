package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"seedlet.dev/realworld/nodetest"
)

// part is something that a pod can ask for, and how it is seen that it gets it.
type part struct {
	name string
	v2   bool // only on the newest containerd
	see  func(t *testing.T, s *scene)
}

// TestPods runs a pod or a few for each part of what pods can ask for, all on one node at a time.
func TestPods(t *testing.T) {
	t.Parallel()
	parts := slices.Concat(restartParts, orderParts, hookParts, probeParts, securityParts,
		environmentParts, volumeParts, logParts, imageParts)
	for _, version := range nodetest.Versions() {
		t.Run(version, func(t *testing.T) {
			t.Parallel()
			s := &scene{node: nodetest.New(t, version)}
			more := ""
			if version == nodetest.V2 { // the only one that tells events
				more = "featureGates: {EventedPLEG: true}\n"
			}
			s.agent = newAgent(t, s.node, more)
			s.agent.start(t)
			t.Run("parts", func(t *testing.T) {
				for _, p := range parts {
					if p.v2 && version != nodetest.V2 {
						continue
					}
					t.Run(p.name, func(t *testing.T) {
						t.Parallel()
						p.see(t, s)
					})
				}
			})
			t.Run("nothing is left", s.allRemoved)
			if t.Failed() {
				t.Logf("the end of the agent's log:\n%s", s.agent.logTail(t, 60))
			}
		})
	}
}

// allRemoved takes away what is left of the manifests, and sees that the pods leave nothing.
func (s *scene) allRemoved(t *testing.T) {
	paths, err := filepath.Glob(s.agent.manifests + "/*.yaml")
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range paths {
		s.agent.remove(t, strings.TrimSuffix(filepath.Base(path), ".yaml"))
	}
	s.leavesNothing(t)
	if code := s.agent.signal(t, syscall.SIGTERM); code != 0 {
		t.Errorf("on TERM the agent ended with %d", code)
	}
}

// leavesNothing waits until neither the runtime nor the disk nor the kernel has anything of a pod.
func (s *scene) leavesNothing(t testing.TB) {
	t.Helper()
	s.recovers(t, "the runtime holds nothing", func() bool {
		return len(s.sandboxes(t, "")) == 0 && len(s.containers(t, "")) == 0
	})
	s.eventually(t, soon, "no pod has a directory or a link", func() bool {
		return len(s.agent.directories(t, "")) == 0
	})
	s.eventually(t, soon, "/pods is empty", func() bool { return len(s.agent.pods(t)) == 0 })
	excused := 0
	residue := func() []string {
		lines, err := s.node.Residue()
		if err != nil {
			t.Fatal(err)
		}
		all := len(lines)
		lines = slices.DeleteFunc(lines, s.interrupted(t))
		excused = all - len(lines)
		return lines
	}
	// What the runtime makes late, for a pod that has gone already, the agent finds within a minute.
	deadline := time.Now().Add(time.Minute + soon)
	for lines := residue(); len(lines) > 0; lines = residue() {
		if time.Now().After(deadline) {
			t.Fatalf("the node still has\n%s", strings.Join(lines, "\n"))
		}
		time.Sleep(500 * time.Millisecond)
	}
	if excused > 0 {
		t.Logf("%d things are left of starts that containerd gave up and forgot", excused)
	}
}

// interrupted tells what containerd has left by itself. When the agent is killed while a sandbox or
// a container starts, containerd gives the start up, and in some of these cases forgets what there
// is of it already: an empty cgroup, the process of runc that would have become the container, its
// mount, the shim. Nobody can ask it to remove what it has forgotten. A process of the container's
// own is never excused.
func (s *scene) interrupted(t testing.TB) func(line string) bool {
	t.Helper()
	id := regexp.MustCompile(`\b[0-9a-f]{64}\b`)
	given := map[string]bool{} // up
	lines := strings.Split(s.runtimeLog(t), "\n")
	for _, l := range lines {
		if strings.Contains(l, "context canceled") {
			for _, found := range id.FindAllString(l, -1) {
				given[found] = true
			}
		}
	}
	for _, l := range lines {
		made := id.FindAllString(l, -1)
		if strings.Contains(l, "CreateContainer within sandbox") && len(made) == 2 {
			given[made[0]] = given[made[0]] || given[made[1]]
		}
	}
	return func(line string) bool {
		switch {
		case strings.HasPrefix(line, "file /run/containerd/s/"): // which shim's is not told
			return len(given) > 0
		case strings.HasPrefix(line, "process ") && !strings.Contains(line, "(containerd-shim)") &&
			!strings.Contains(line, "(runc"):
			return false
		}
		return given[id.FindString(line)]
	}
}

// run adds a pod. Its manifest is the spec in YAML, indented by two, with the sample as the image
// "sample". When the test ends the manifest is taken away; the pod's end is waited for by nobody.
func (s *scene) run(t *testing.T, name, spec string) {
	t.Helper()
	s.agent.add(t, name, manifest(name, spec))
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("/pods says of %s: %s\nthe agent's log says:\n%s", name, s.describe(t, name),
				s.agent.logOf(t, name))
		}
		err := os.Remove(filepath.Join(s.agent.manifests, name+".yaml"))
		if err != nil && !os.IsNotExist(err) {
			t.Error(err)
		}
	})
}

func manifest(name, spec string) string {
	spec = strings.ReplaceAll(spec, "image: sample", "image: seedlet.dev/sample:v1")
	return fmt.Sprintf("apiVersion: v1\nkind: Pod\nmetadata:\n  name: %s\n  labels: {app: %s}\n"+
		"spec:\n%s\n", name, name, strings.Trim(spec, "\n"))
}

// describe is what /pods says of a pod, for failures.
func (s *scene) describe(t *testing.T, name string) string {
	status := s.agent.pod(t, name).Status
	text := fmt.Sprintf("%s %s %s", status.Phase, status.Reason, status.Message)
	for _, c := range slices.Concat(status.InitContainerStatuses, status.ContainerStatuses) {
		text += "\n  " + c.Name + ": ready " + strconv.FormatBool(c.Ready) +
			", restarts " + strconv.Itoa(int(c.RestartCount)) + ", now " + c.State.String() +
			", before " + c.LastTerminationState.String()
	}
	return text
}

// status is what the agent says of one container of a pod; a zero one if it says nothing.
func (s *scene) status(t *testing.T, pod, container string) v1.ContainerStatus {
	t.Helper()
	status := s.agent.pod(t, pod).Status
	for _, c := range slices.Concat(status.InitContainerStatuses, status.ContainerStatuses) {
		if c.Name == container {
			return c
		}
	}
	return v1.ContainerStatus{}
}

// reaches waits until the agent says that a pod is in a phase.
func (s *scene) reaches(t *testing.T, pod string, phase v1.PodPhase) {
	t.Helper()
	s.eventually(t, soon, pod+" is "+string(phase)+" in /pods", func() bool {
		return s.agent.pod(t, pod).Status.Phase == phase
	})
}

// waitsBecause waits until the agent says that a container waits for a reason, and returns the
// message.
func (s *scene) waitsBecause(t *testing.T, pod, container, reason string) string {
	t.Helper()
	message := ""
	s.eventually(t, soon, pod+"/"+container+" waits because of "+reason, func() bool {
		w := s.status(t, pod, container).State.Waiting
		if w == nil || w.Reason != reason {
			return false
		}
		message = w.Message
		return true
	})
	return message
}

// runs waits until an attempt of a container runs, as the runtime says.
func (s *scene) runs(t *testing.T, pod, container string, attempt uint32) {
	t.Helper()
	what := fmt.Sprintf("attempt %d of %s/%s runs", attempt, pod, container)
	s.eventually(t, soon, what, func() bool {
		c := s.container(t, pod, container)
		return c.GetState() == running && c.GetMetadata().GetAttempt() == attempt
	})
}

// ends waits until an attempt of a container has exited, and returns what the runtime says of it.
func (s *scene) ends(t *testing.T, pod, container string,
	attempt uint32) *runtimeapi.ContainerStatus {
	t.Helper()
	var c *runtimeapi.ContainerStatus
	what := fmt.Sprintf("attempt %d of %s/%s has ended", attempt, pod, container)
	s.eventually(t, soon, what, func() bool {
		c = s.container(t, pod, container)
		return c.GetState() == exited && c.GetMetadata().GetAttempt() == attempt
	})
	return c
}

// stays sees that a container's newest attempt does not change for a while.
func (s *scene) stays(t *testing.T, pod, container string, attempt uint32) {
	t.Helper()
	time.Sleep(quiet)
	if got := s.container(t, pod, container).GetMetadata().GetAttempt(); got != attempt {
		t.Errorf("%s/%s is at attempt %d, it should stay at %d", pod, container, got, attempt)
	}
}

// exec runs the sample in the newest instance of a container, and wants it to succeed.
func (s *scene) exec(t *testing.T, pod, container string, args ...string) string {
	t.Helper()
	answer, err := s.node.Runtime().ExecSync(t.Context(), &runtimeapi.ExecSyncRequest{
		ContainerId: s.container(t, pod, container).GetId(),
		Cmd:         append([]string{"/sample"}, args...), Timeout: 10,
	})
	if err != nil || answer.ExitCode != 0 {
		t.Fatalf("running %q in %s/%s: %v, %v", args, pod, container, answer, err)
	}
	return string(answer.Stdout)
}

// sicken and heal change how a container that runs "sample health" answers.
func (s *scene) sicken(t *testing.T, pod, container string) {
	t.Helper()
	s.exec(t, pod, container, "remove", "/tmp/well")
}

func (s *scene) heal(t *testing.T, pod, container string) {
	t.Helper()
	s.exec(t, pod, container, "write", "/tmp/well", "yes")
}
