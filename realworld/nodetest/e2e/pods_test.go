package e2e

import (
	"crypto/sha256"
	"fmt"
	"hash/fnv"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"seedlet.dev/realworld/nodetest"
	"seedlet.dev/realworld/porttest"
)

// part is a feature of pods with a test of its effects.
type part struct {
	name       string
	newestOnly bool // only on the newest containerd
	check      func(t *testing.T, s *suite)
}

// olderSample is of how many parts one is run on the older containerd if RUNTIMES is sample, as in
// make test: what the runtimes do not share is behind few of them.
const olderSample = 3

// isSampled reports whether a part is run on the older containerd. The sample follows from the name
// of the part and the program of the agent: a commit has one sample, and each change another one.
func isSampled(t *testing.T, p *part) bool {
	switch which := os.Getenv("RUNTIMES"); which {
	case "", "all":
		return true
	case "sample":
	default:
		t.Fatalf("RUNTIMES=%s: want all or sample", which)
	}
	sum, err := programSum()
	if err != nil {
		t.Fatal(err)
	}
	h := fnv.New32a()
	h.Write([]byte(p.name))
	h.Write(sum[:])
	return h.Sum32()%olderSample == 0
}

// programSum identifies the program of the agent.
var programSum = sync.OnceValues(func() (sum [sha256.Size]byte, err error) {
	path, err := seedletBinary()
	if err != nil {
		return sum, err
	}
	program, err := os.ReadFile(path)
	return sha256.Sum256(program), err
})

// TestPods runs one pod or a few for each feature of pods. All parts run in parallel on one node.
func TestPods(t *testing.T) {
	t.Parallel()
	parts := slices.Concat(restartParts, initContainerParts, lifecycleHookParts, probeParts,
		securityContextParts, environmentParts, volumeParts, logParts, imageParts,
		containerViewParts)
	for _, version := range nodetest.Versions() {
		t.Run(version, func(t *testing.T) {
			t.Parallel()
			s := &suite{node: nodetest.New(t, version)}
			more := podPidsLimit
			if version == nodetest.V2 { // only this version has container events
				more += "featureGates: {EventedPLEG: true}\n"
			}
			s.agent = newAgent(t, s.node, more)
			s.agent.start(t)
			t.Run("parts", func(t *testing.T) {
				for i := range parts {
					p := &parts[i]
					if version != nodetest.V2 && (p.newestOnly || !isSampled(t, p)) {
						continue
					}
					t.Run(p.name, func(t *testing.T) {
						t.Parallel()
						p.check(t, s)
					})
				}
			})
			t.Run("nothing is left", s.testAllRemoved)
			if t.Failed() {
				t.Logf("the end of the agent's log:\n%s", s.agent.logTail(t, 60))
			}
		})
	}
}

// testAllRemoved removes all manifests, and checks that the pods leave nothing.
func (s *suite) testAllRemoved(t *testing.T) {
	paths, err := filepath.Glob(s.agent.manifestDir + "/*.yaml")
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range paths {
		s.agent.removeManifest(t, strings.TrimSuffix(filepath.Base(path), ".yaml"))
	}
	s.checkNothingLeft(t)
	if code := s.agent.signalAndWait(t, syscall.SIGTERM); code != 0 {
		t.Errorf("on TERM the agent exited with code %d", code)
	}
}

// checkNothingLeft waits until the runtime, the file system and the kernel have nothing of any pod.
func (s *suite) checkNothingLeft(t testing.TB) {
	t.Helper()
	s.eventuallyAfterKill(t, "the runtime has no sandbox and no container", func() bool {
		return len(s.sandboxLines(t, "")) == 0 && len(s.containerLines(t, "")) == 0
	})
	s.eventually(t, "no pod has a directory or a link", func() bool {
		return len(s.agent.podDirectories(t, "")) == 0
	})
	s.eventually(t, "/pods is empty", func() bool {
		return len(s.agent.servedPods(t)) == 0
	})
	excused := 0
	leftovers := func() []string {
		lines, err := s.node.PodLeftovers()
		if err != nil {
			t.Fatal(err)
		}
		lines = slices.DeleteFunc(lines, func(line string) bool {
			return line == "mount "+s.agent.rootDir // the agent's own, see MakeDataDirs of realworld/host
		})
		all := len(lines)
		lines = slices.DeleteFunc(lines, s.leftByInterruptedStart(t))
		excused = all - len(lines)
		return lines
	}
	// The runtime may create an object late, when its pod is removed already. The agent finds it
	// within a minute.
	deadline := time.Now().Add(time.Minute + porttest.Patience)
	for lines := leftovers(); len(lines) > 0; lines = leftovers() {
		if time.Now().After(deadline) {
			t.Fatalf("the node still has\n%s", strings.Join(lines, "\n"))
		}
		time.Sleep(500 * time.Millisecond)
	}
	if excused > 0 {
		t.Logf("%d leftovers of starts that containerd cancelled and forgot are excused", excused)
	}
}

// leftByInterruptedStart returns a function that reports whether containerd caused a leftover. When
// the agent is killed while a sandbox or a container starts, containerd cancels the start. In some
// of these cases it forgets the parts that exist already: an empty cgroup, the process of runc that
// would have become the container, its mount, the shim. No request of the CRI removes them. A
// process of the container itself is never excused.
func (s *suite) leftByInterruptedStart(t testing.TB) func(line string) bool {
	t.Helper()
	id := regexp.MustCompile(`\b[0-9a-f]{64}\b`)
	cancelled := map[string]bool{} // IDs of sandboxes and containers whose start was cancelled
	lines := strings.Split(s.runtimeLog(t), "\n")
	for _, l := range lines {
		if strings.Contains(l, "context canceled") {
			for _, found := range id.FindAllString(l, -1) {
				cancelled[found] = true
			}
		}
	}
	for _, l := range lines {
		// The first ID is the sandbox's, the second one the container's.
		created := id.FindAllString(l, -1)
		if strings.Contains(l, "CreateContainer within sandbox") && len(created) == 2 {
			cancelled[created[0]] = cancelled[created[0]] || cancelled[created[1]]
		}
	}
	return func(line string) bool {
		switch {
		case strings.HasPrefix(line, "file /run/containerd/s/"): // the name has no ID of a sandbox
			return len(cancelled) > 0
		case strings.HasPrefix(line, "process ") && !strings.Contains(line, "(containerd-shim)") &&
			!strings.Contains(line, "(runc"):
			return false
		}
		return cancelled[id.FindString(line)]
	}
}

// runPod adds a static pod. Its spec is YAML, indented by two spaces, in which "sample" is the
// image of cmd/sample. The manifest is removed when the test ends, without waiting for the end of
// the pod.
func (s *suite) runPod(t *testing.T, name, spec string) {
	t.Helper()
	s.agent.addManifest(t, name, podManifest(name, spec))
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("%s in /pods: %s\nthe agent's log of it:\n%s", name, s.describeStatus(t, name),
				s.agent.podLogLines(t, name))
		}
		err := os.Remove(filepath.Join(s.agent.manifestDir, name+".yaml"))
		if err != nil && !os.IsNotExist(err) {
			t.Error(err)
		}
	})
}

// podManifest returns the manifest of a pod with the given spec, in which "sample" is the image of
// cmd/sample.
func podManifest(name, spec string) string {
	spec = strings.ReplaceAll(spec, "image: sample", "image: seedlet.dev/sample:v1")
	return fmt.Sprintf("apiVersion: v1\nkind: Pod\nmetadata:\n  name: %s\n  labels: {app: %s}\n"+
		"spec:\n%s\n", name, name, strings.Trim(spec, "\n"))
}

// describeStatus returns the status of a pod in /pods as text, for messages of failures.
func (s *suite) describeStatus(t *testing.T, name string) string {
	status := s.agent.servedPod(t, name).Status
	text := fmt.Sprintf("%s %s %s", status.Phase, status.Reason, status.Message)
	for _, c := range slices.Concat(status.InitContainerStatuses, status.ContainerStatuses) {
		text += "\n  " + c.Name + ": ready " + strconv.FormatBool(c.Ready) +
			", restarts " + strconv.Itoa(int(c.RestartCount)) + ", state " + c.State.String() +
			", last state " + c.LastTerminationState.String()
	}
	return text
}

// containerStatus returns the status of one container of a pod in /pods; a zero status if there is
// none.
func (s *suite) containerStatus(t *testing.T, pod, container string) v1.ContainerStatus {
	t.Helper()
	status := s.agent.servedPod(t, pod).Status
	for _, c := range slices.Concat(status.InitContainerStatuses, status.ContainerStatuses) {
		if c.Name == container {
			return c
		}
	}
	return v1.ContainerStatus{}
}

// waitPhase waits until a pod is in a phase in /pods.
func (s *suite) waitPhase(t *testing.T, pod string, phase v1.PodPhase) {
	t.Helper()
	s.eventually(t, pod+" is "+string(phase)+" in /pods", func() bool {
		return s.agent.servedPod(t, pod).Status.Phase == phase
	})
}

// waitWaiting waits until a container is waiting with a reason in /pods, and returns the message.
func (s *suite) waitWaiting(t *testing.T, pod, container, reason string) string {
	t.Helper()
	message := ""
	s.eventually(t, pod+"/"+container+" is waiting with reason "+reason, func() bool {
		w := s.containerStatus(t, pod, container).State.Waiting
		if w == nil || w.Reason != reason {
			return false
		}
		message = w.Message
		return true
	})
	return message
}

// waitRunning waits until an attempt of a container runs in the runtime.
func (s *suite) waitRunning(t *testing.T, pod, container string, attempt uint32) {
	t.Helper()
	condition := fmt.Sprintf("attempt %d of %s/%s runs", attempt, pod, container)
	s.eventually(t, condition, func() bool {
		c := s.newestContainer(t, pod, container)
		return c.GetState() == running && c.GetMetadata().GetAttempt() == attempt
	})
}

// waitExited waits until an attempt of a container has exited in the runtime, and returns its
// status.
func (s *suite) waitExited(t *testing.T, pod, container string,
	attempt uint32) *runtimeapi.ContainerStatus {
	t.Helper()
	var c *runtimeapi.ContainerStatus
	condition := fmt.Sprintf("attempt %d of %s/%s has exited", attempt, pod, container)
	s.eventually(t, condition, func() bool {
		c = s.newestContainer(t, pod, container)
		return c.GetState() == exited && c.GetMetadata().GetAttempt() == attempt
	})
	return c
}

// waitRestarted waits until a container was restarted a number of times. It may be restarted more
// often while a busy machine looks at it.
func (s *suite) waitRestarted(t *testing.T, pod, container string, restarts uint32) {
	t.Helper()
	condition := fmt.Sprintf("%s/%s is at attempt %d", pod, container, restarts)
	s.eventually(t, condition, func() bool {
		return s.newestContainer(t, pod, container).GetMetadata().GetAttempt() >= restarts
	})
}

// checkAttemptStays checks that the newest attempt of a container does not change for quietPeriod.
func (s *suite) checkAttemptStays(t *testing.T, pod, container string, attempt uint32) {
	t.Helper()
	time.Sleep(quietPeriod)
	if got := s.newestContainer(t, pod, container).GetMetadata().GetAttempt(); got != attempt {
		t.Errorf("%s/%s is at attempt %d, it should stay at %d", pod, container, got, attempt)
	}
}

// execSample runs a command of the sample in the newest instance of a container, once that runs:
// the log of a container may be ahead of its state in the runtime. The command must succeed.
func (s *suite) execSample(t *testing.T, pod, container string, args ...string) string {
	t.Helper()
	s.eventually(t, pod+"/"+container+" runs", func() bool {
		return s.newestContainer(t, pod, container).GetState() == running
	})
	response, err := s.node.Runtime().ExecSync(t.Context(), &runtimeapi.ExecSyncRequest{
		ContainerId: s.newestContainer(t, pod, container).GetId(),
		Cmd:         append([]string{"/sample"}, args...),
		Timeout:     int64(porttest.Patience.Seconds()),
	})
	if err != nil || response.ExitCode != 0 {
		t.Fatalf("running %q in %s/%s: %v, %v", args, pod, container, response, err)
	}
	return string(response.Stdout)
}

// makeUnhealthy lets the probes of a container that runs "sample health" fail.
func (s *suite) makeUnhealthy(t *testing.T, pod, container string) {
	t.Helper()
	s.execSample(t, pod, container, "remove", "/tmp/well")
}

// makeHealthy lets the probes of a container that runs "sample health" succeed.
func (s *suite) makeHealthy(t *testing.T, pod, container string) {
	t.Helper()
	s.execSample(t, pod, container, "write", "/tmp/well", "yes")
}
