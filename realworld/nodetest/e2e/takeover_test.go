package e2e

import (
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"seedlet.dev/realworld/cluster"
)

// TestTakeOver replaces a kubelet by the agent and the agent by the kubelet, on a node of a cluster
// with pods of every kind, with the same flags, configuration and directories: once by TERM and
// once by KILL in each direction. Nothing changes at the runtime, on the disk, in cgroups and at
// the API server, and the successor goes on with what the other has started. It runs beside no
// other test of the package: a kubelet that is slow forgets what was ready.
func TestTakeOver(t *testing.T) {
	start := time.Now()
	log := func(format string, args ...any) {
		t.Logf("%5.1f s: %s", time.Since(start).Seconds(), fmt.Sprintf(format, args...))
	}
	t.Cleanup(func() { log("everything is removed") }) // after what the suite cleans up
	c := newTakeOverSuite(t)
	log("there is a cluster")
	c.startIsolated(t, c.cluster.KubeletPath())
	c.makePods(t)
	log("the kubelet has %d pods with %d containers", c.history.countPresent(""),
		len(c.listContainers(t, "", "")))
	for _, swap := range []struct {
		signal  syscall.Signal
		program string
	}{
		{syscall.SIGKILL, c.seedlet},
		{syscall.SIGKILL, c.cluster.KubeletPath()},
		{syscall.SIGTERM, c.seedlet},
		{syscall.SIGTERM, c.cluster.KubeletPath()},
	} {
		name := fmt.Sprintf("%s after %s", filepath.Base(swap.program), swap.signal)
		c.swap(t, name, swap.signal, swap.program)
		if c.checkLogsAndExec(t, name); swap.signal == syscall.SIGTERM {
			c.checkGoesOn(t, name)
		}
		log("%s: checked", name)
	}
	c.agent.signalAndWait(t, syscall.SIGTERM)
	c.history.stopWatch()
	c.history.mu.Lock()
	defer c.history.mu.Unlock()
	for _, violation := range nodeViolations(c.history.nodeStates) {
		t.Error(violation)
	}
}

// quietWindow is how long the node is watched after a swap: three syncs of each pod.
const quietWindow = 12 * time.Second

// swap ends the program that runs with a signal and starts the other. Nothing may change.
func (c *takeOverSuite) swap(t *testing.T, name string, signal syscall.Signal, program string) {
	t.Helper()
	c.waitOld(t)
	before := c.look(t)
	c.program = program
	code := c.agent.signalAndWait(t, signal)
	if signal == syscall.SIGTERM && code != 0 {
		t.Errorf("the program before %s exited with %d", name, code)
	}
	c.startIsolated(t, program)
	time.Sleep(quietWindow)
	changes, expected := c.changes(t, before), 0
	for _, change := range changes {
		if c.isExpected(program == c.seedlet, change) {
			expected++
		} else {
			t.Errorf("%s: %s", name, change)
		}
	}
	t.Logf("%s: %d sandboxes and %d containers are the same, %d differences are its own", name,
		len(before.lines["sandboxes"]), len(before.lines["containers"]), expected)
}

// waitOld waits until every container has run longer than the ten seconds in which a kubelet that
// starts takes it for a new one, which is not ready (kubeletRestartGracePeriod).
func (c *takeOverSuite) waitOld(t *testing.T) {
	t.Helper()
	newest := time.Time{}
	for _, p := range c.apiPods(t, "") {
		for _, s := range slices.Concat(p.Status.InitContainerStatuses, p.Status.ContainerStatuses) {
			if r := s.State.Running; r != nil && r.StartedAt.After(newest) && p.Name != crasher {
				newest = r.StartedAt.Time
			}
		}
	}
	time.Sleep(time.Until(newest.Add(11 * time.Second)))
}

// takeOverSuite is a cluster whose node has a kubelet or the agent.
type takeOverSuite struct {
	*clusterSuite
	machineDir string // has what a program of the node would write to fixed paths of the machine
	seedlet    string
	program    string // that runs
	planePort  int
	crasherUID string
	events     *runtimeEvents
}

func newTakeOverSuite(t *testing.T) *takeOverSuite {
	t.Helper()
	seedlet, err := seedletBinary()
	if err != nil {
		t.Fatal(err)
	}
	c := &takeOverSuite{clusterSuite: newClusterSuiteWithoutAgent(t, cluster.Options{}),
		seedlet: seedlet, planePort: freePort(t)}
	c.history, c.connections = newWatchHistory(t, c.api), newConnectionRecorder(t)
	c.events = watchRuntime(t, c.node)
	c.newIsolatedAgent(t, "syncFrequency: 4s\n", "clusterDNS: [10.96.0.10]\n")
	t.Cleanup(func() { c.agent.killIfRunning() })
	return c
}

// manifest returns a manifest without placeholders.
func (c *takeOverSuite) manifest(text string) string {
	return strings.NewReplacer("PLANEPORT", fmt.Sprint(c.planePort), "MARKS", c.marksDir()).
		Replace(c.replacePlaceholders(text))
}

// marksDir is the directory in which preStop hooks leave a file.
func (c *takeOverSuite) marksDir() string { return filepath.Join(c.node.Dir, "marks") }

// makePods makes pods of every kind and waits until each is as it stays.
func (c *takeOverSuite) makePods(t *testing.T) {
	t.Helper()
	c.kubectl(t, "create", "namespace", testNamespace)
	c.kubectl(t, "wait", "--for=create", patience, "serviceaccount/default")
	for _, name := range slices.Sorted(maps.Keys(takeOverStatics)) {
		c.agent.addManifest(t, name, c.manifest(takeOverStatics[name]))
	}
	var pods strings.Builder
	for _, name := range slices.Sorted(maps.Keys(takeOverPods)) {
		seconds := 5
		if name == "hooked" {
			seconds = hookTime
		}
		fmt.Fprintf(&pods, "---\napiVersion: v1\nkind: Pod\nmetadata: {name: %s, namespace: town, "+
			"labels: {app: %[1]s}}\nspec:\n  terminationGracePeriodSeconds: %d%s\n", name, seconds,
			takeOverPods[name])
	}
	if err := c.cluster.Apply(t.Context(), c.manifest(takeOverObjects+"---\n"+takeOverWorkloads+
		pods.String())); err != nil {
		t.Fatal(err)
	}
	c.kubectl(t, "wait", "--for=condition=Complete", patience, "job/chore")
	c.waitSettled(t, len(takeOverPods)+len(takeOverStatics)+podsOfControllers)
	c.signalContainer(t, onlyContainerID(c.apiPod(t, "restarted").Status.ContainerStatuses),
		syscall.SIGKILL)
	c.resize(t, "main", "60m", "80Mi")
	c.kubectl(t, "debug", "debugged", "--image="+c.agent.sampleImage, "--container=look", "--",
		"/sample", "hold", c.connections.address(c.node), "look")
	c.waitResized(t)
	c.waitUntil(t, "a container was restarted, another added", func() bool {
		added := c.apiPod(t, "debugged").Status.EphemeralContainerStatuses
		return totalRestarts(c.apiPod(t, "restarted")) == 1 && len(added) == 1 &&
			added[0].State.Running != nil
	})
	c.waitSettled(t, 0)
	c.crasherUID = string(c.apiPod(t, crasher).UID)
}

// podsOfControllers are the pods of takeOverWorkloads.
const podsOfControllers = 3 + 1 + 2 + 2 + 1 + 1

// holders are pods whose readiness does not say that they are connected to the recorder.
var holders = []string{"plain", "sidecars", "beside", "restarted", "half", "debugged", "frozen",
	"look"}

// waitSettled waits until each pod is as it stays, and has its connection.
func (c *takeOverSuite) waitSettled(t *testing.T, podsMin int) {
	t.Helper()
	c.waitUntil(t, "all pods are as they stay", func() bool {
		list, err := c.api.CoreV1().Pods("").List(t.Context(), metav1.ListOptions{})
		if err != nil {
			t.Fatal(err)
		}
		connected := map[string]bool{}
		for _, r := range c.connections.allRuns() {
			connected[strings.Fields(r.name)[0]] = r.ended.IsZero()
		}
		missing := holders
		if podsMin > 0 {
			missing = holders[:len(holders)-1] // the last one is added later
		}
		return len(list.Items) >= podsMin &&
			!slices.ContainsFunc(missing, func(name string) bool { return !connected[name] }) &&
			!slices.ContainsFunc(list.Items, func(p v1.Pod) bool { return !isSettled(&p) })
	})
}

// isSettled reports whether a pod is as it stays.
func isSettled(p *v1.Pod) bool {
	if p.DeletionTimestamp != nil {
		return false
	}
	exited := 0
	for _, s := range p.Status.ContainerStatuses {
		if s.State.Terminated != nil {
			exited++
		}
	}
	switch p.Name {
	case "initing":
		return len(p.Status.InitContainerStatuses) == 2 &&
			p.Status.InitContainerStatuses[1].State.Running != nil
	case "sick", "starting", "gated":
		return p.Status.Phase == v1.PodRunning
	case "crasher":
		return totalRestarts(p) > 0
	case "half", "frozen-e2e":
		return exited == len(p.Status.ContainerStatuses)-1 && p.Status.Phase == v1.PodRunning
	}
	return isPodReady(p) || hasTerminalPhase(p)
}
