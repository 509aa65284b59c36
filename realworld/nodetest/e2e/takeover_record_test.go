package e2e

import (
	"context"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"seedlet.dev/realworld/nodetest"
)

// crasher is the pod one of whose containers goes on to restart: what happens to it is no change.
const crasher = "crasher"

// runtimeEvents are the container events of the runtime since a test began.
type runtimeEvents struct {
	mu    sync.Mutex
	lines []string
	pods  map[string]string // by the ID of a container or sandbox: the name of its pod
}

// watchRuntime records the runtime's events until the test ends.
func watchRuntime(t testing.TB, n *nodetest.Node) *runtimeEvents {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	stream, err := n.Runtime().GetContainerEvents(ctx, &runtimeapi.GetEventsRequest{})
	if err != nil {
		t.Fatal(err)
	}
	r, done := &runtimeEvents{pods: map[string]string{}}, make(chan struct{})
	go func() {
		defer close(done)
		for {
			e, err := stream.Recv()
			if err != nil {
				return // the test has ended, or the runtime, which a later check sees
			}
			r.add(e)
		}
	}()
	t.Cleanup(func() { cancel(); <-done })
	return r
}

func (r *runtimeEvents) add(e *runtimeapi.ContainerEventResponse) {
	r.mu.Lock()
	defer r.mu.Unlock()
	name := e.GetPodSandboxStatus().GetMetadata().GetName()
	for _, id := range []string{e.ContainerId, e.GetPodSandboxStatus().GetId()} {
		if name != "" && id != "" {
			r.pods[id] = name
		}
	}
	r.lines = append(r.lines, fmt.Sprintf("%s %s of pod %s", e.ContainerEventType, e.ContainerId,
		r.pods[e.ContainerId]))
}

// since returns the events after the first n.
func (r *runtimeEvents) since(n int) []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.lines[n:])
}

// isOfCrasher reports whether a text has the ID of a container or sandbox of the crasher.
func (r *runtimeEvents) isOfCrasher(text string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, id := range containerID.FindAllString(text, -1) {
		if r.pods[id] == crasher {
			return true
		}
	}
	return false
}

var containerID = regexp.MustCompile(`[0-9a-f]{64}`)

// moment is what a node has at one time, as lines by their kind. Lines of crashers are left out.
type moment struct {
	lines      map[string][]string
	pods       map[types.UID]*v1.Pod
	node       *v1.Node
	podStates  map[types.UID]int // how many states the watch had reported
	nodeStates int
	events     int // of the runtime
	runs       []containerRun
	log        int64 // the size of the runtime's log
	apiEvents  map[types.UID]int32
}

// look returns what the node has now.
func (c *takeOverSuite) look(t testing.TB) moment {
	t.Helper()
	m := moment{lines: map[string][]string{}, pods: map[types.UID]*v1.Pod{},
		podStates: map[types.UID]int{}, node: c.apiNode(t), events: len(c.events.since(0)),
		runs: c.connections.allRuns()}
	info, err := os.Stat(c.node.LogFile())
	if err != nil {
		t.Fatal(err)
	}
	m.log = info.Size()
	c.history.mu.Lock()
	m.nodeStates = len(c.history.nodeStates)
	for uid, states := range c.history.podStates {
		if m.podStates[uid] = len(states); !c.history.deleted[uid] {
			m.pods[uid] = states[len(states)-1]
		}
	}
	c.history.mu.Unlock()
	m.lines["containers"] = c.statusLines(t)
	m.lines["sandboxes"] = c.sandboxLines(t, "")
	m.lines["files"] = c.treeLines(t, c.agent.rootDir, c.machineDir, c.agent.podLogDir,
		c.agent.certDir)
	m.lines["cgroups"] = c.cgroupLines(t)
	m.lines["mounts"] = c.mountLines(t)
	m.lines["certificate requests"] = c.requestLines(t)
	m.apiEvents = c.eventCounts(t)
	return m
}

// statusLines returns the runtime's containers but those of crashers.
func (c *takeOverSuite) statusLines(t testing.TB) []string {
	var lines []string
	for _, r := range c.listContainers(t, "", "") {
		if r.Labels["io.kubernetes.pod.name"] == crasher && r.Metadata.Name == "main" {
			continue
		}
		response, err := c.node.Runtime().ContainerStatus(t.Context(),
			&runtimeapi.ContainerStatusRequest{ContainerId: r.Id})
		if err != nil {
			t.Fatal(err)
		}
		s := response.Status
		lines = append(lines, fmt.Sprintf("%s/%s#%d %s %.12s started %d finished %d",
			r.Labels["io.kubernetes.pod.name"], r.Metadata.Name, r.Metadata.Attempt, s.State, s.Id,
			s.StartedAt, s.FinishedAt))
	}
	slices.Sort(lines)
	return lines
}

// dataDir matches the directory of the content of an atomically written volume: its name is a time.
var dataDir = regexp.MustCompile(`\.\.[0-9_]+\.[0-9]+`)

// treeLines returns the files below directories.
func (c *takeOverSuite) treeLines(t testing.TB, dirs ...string) []string {
	var lines []string
	isOfCrasher := func(path string) bool {
		return c.crasherUID != "" && strings.Contains(path, c.crasherUID) ||
			strings.Contains(path, "/"+crasher+"_") || strings.Contains(path, "_"+crasher+"_")
	}
	for _, dir := range dirs {
		err := filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
			if err != nil || isOfCrasher(path) {
				return nil // it was removed meanwhile
			}
			if info, err := e.Info(); err == nil {
				lines = append(lines, fmt.Sprintf("%s %s", info.Mode(),
					dataDir.ReplaceAllString(strings.TrimPrefix(path, c.node.Dir), "..DATA")))
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	return lines
}

// cgroupLines returns the cgroups of the agent with their limits.
func (c *takeOverSuite) cgroupLines(t testing.TB) []string {
	var lines []string
	for _, root := range []string{"cpu", "memory", "pids", "cpuset", "hugetlb", "unified", "."} {
		dir := filepath.Join("/sys/fs/cgroup", root, nodetest.CgroupRoot(c.node.Dir))
		_ = filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
			if err != nil || !e.IsDir() {
				return nil // this hierarchy does not exist, or the cgroup was removed meanwhile
			}
			if c.crasherUID != "" && strings.Contains(path, c.crasherUID) {
				return fs.SkipDir
			}
			line := strings.TrimPrefix(path, "/sys/fs/cgroup/")
			for _, name := range []string{"cpu.shares", "cpu.cfs_quota_us", "cpu.cfs_period_us",
				"cpu.weight", "cpu.max", "memory.limit_in_bytes", "memory.max", "memory.low",
				"memory.min", "memory.high", "pids.max", "cpuset.cpus"} {
				if data, err := os.ReadFile(filepath.Join(path, name)); err == nil {
					line += fmt.Sprintf(" %s=%s", name, strings.TrimSpace(string(data)))
				}
			}
			lines = append(lines, line)
			return nil
		})
	}
	slices.Sort(lines)
	return lines
}

// mountLines returns the mounts below the node's directory.
func (c *takeOverSuite) mountLines(t testing.TB) []string {
	data, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		t.Fatal(err)
	}
	var lines []string
	for _, line := range strings.Split(string(data), "\n") {
		if f := strings.Fields(line); len(f) > 5 && strings.HasPrefix(f[4], c.agent.rootDir) {
			lines = append(lines, strings.TrimPrefix(f[4], c.node.Dir)+" "+f[5])
		}
	}
	slices.Sort(lines)
	return lines
}

// requestLines returns the requests for certificates.
func (c *takeOverSuite) requestLines(t testing.TB) []string {
	list, err := c.api.CertificatesV1().CertificateSigningRequests().List(t.Context(),
		metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	var lines []string
	for _, r := range list.Items {
		lines = append(lines, r.Name+" "+r.Spec.Username)
	}
	slices.Sort(lines)
	return lines
}

// eventCounts returns how often each Event of the API server was counted.
func (c *takeOverSuite) eventCounts(t testing.TB) map[types.UID]int32 {
	list, err := c.api.CoreV1().Events("").List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	counts := map[types.UID]int32{}
	for _, e := range list.Items {
		counts[e.UID] = e.Count
	}
	return counts
}

// newEvents returns the Events that were made or counted since a moment, but those of crashers.
func (c *takeOverSuite) newEvents(t testing.TB, before moment) []string {
	list, err := c.api.CoreV1().Events("").List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	var lines []string
	for _, e := range list.Items {
		if before.apiEvents[e.UID] != e.Count &&
			e.InvolvedObject.Name != crasher {
			lines = append(lines, fmt.Sprintf("%s %s %s: %s", e.InvolvedObject.Kind,
				e.InvolvedObject.Name, e.Reason, e.Message))
		}
	}
	slices.Sort(lines)
	return lines
}

// runtimeCall matches lines of containerd's log about requests that change something.
var runtimeCall = regexp.MustCompile(`msg="((?:RunPodSandbox|CreateContainer|StartContainer|` +
	`StopContainer|RemoveContainer|StopPodSandbox|RemovePodSandbox|UpdateContainer|PullImage|` +
	`RemoveImage|Kill container|Stop container)[^"\\]*(?:\\.[^"\\]*)*)`)

// changes returns the differences between a moment and now, as lines.
func (c *takeOverSuite) changes(t testing.TB, before moment) []string {
	t.Helper()
	now := c.look(t)
	var found []string
	for _, kind := range []string{"containers", "sandboxes", "files", "cgroups", "mounts",
		"certificate requests"} {
		for _, line := range before.lines[kind] {
			if !slices.Contains(now.lines[kind], line) {
				found = append(found, kind+": - "+line)
			}
		}
		for _, line := range now.lines[kind] {
			if !slices.Contains(before.lines[kind], line) {
				found = append(found, kind+": + "+line)
			}
		}
	}
	for _, line := range c.events.since(before.events) {
		if !c.events.isOfCrasher(line) {
			found = append(found, "runtime event: "+line)
		}
	}
	found = append(found, c.objectChanges(before)...)
	stopped := func(call string) bool { // a sandbox that had ended
		id := containerID.FindString(call)
		return strings.HasPrefix(call, "StopPodSandbox") && id != "" &&
			slices.ContainsFunc(before.lines["sandboxes"], func(line string) bool {
				return strings.HasSuffix(line, id[:12]+" SANDBOX_NOTREADY")
			})
	}
	for _, line := range c.newEvents(t, before) {
		found = append(found, "event: "+line)
	}
	data, err := os.ReadFile(c.node.LogFile())
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range runtimeCall.FindAllStringSubmatch(string(data[before.log:]), -1) {
		if !c.events.isOfCrasher(m[1]) && !stopped(m[1]) {
			found = append(found, "runtime log: "+m[1])
		}
	}
	for i, r := range now.runs {
		if i >= len(before.runs) {
			found = append(found, "run: + "+r.name)
		} else if r.ended.IsZero() != before.runs[i].ended.IsZero() {
			found = append(found, "run: ended "+r.name)
		}
	}
	return found
}

// objectChanges returns the differences between the states of pods and of the Node that the watch
// has reported since a moment and those before.
func (c *takeOverSuite) objectChanges(before moment) []string {
	c.history.mu.Lock()
	defer c.history.mu.Unlock()
	var found []string
	for uid, states := range c.history.podStates {
		last, name := before.pods[uid], states[0].Name
		if name == crasher || last == nil && before.podStates[uid] > 0 {
			continue
		}
		if last == nil {
			found = append(found, "pod: + "+name)
			continue
		}
		if c.history.deleted[uid] {
			found = append(found, "pod: - "+name)
		}
		for _, state := range states[before.podStates[uid]:] {
			found = append(found, statusChanges(last, state)...)
			last = state
		}
	}
	node := before.node
	for _, state := range c.history.nodeStates[before.nodeStates:] {
		if diff := cmp.Diff(withoutHeartbeats(node), withoutHeartbeats(state)); diff != "" {
			found = append(found, "node: "+diff)
		}
		node = state
	}
	return found
}

// statusChanges returns how the status of a pod has changed, a line for each fact that users and
// controllers look at. Resources and mounts are not among them: a kubelet forgets the mounts of
// static pods when it restarts, and reports a limit of memory that cgroup v1 has without one.
func statusChanges(before, after *v1.Pod) []string {
	was, is := statusFacts(before), statusFacts(after)
	keys := slices.Sorted(maps.Keys(was))
	for _, key := range slices.Sorted(maps.Keys(is)) {
		if _, both := was[key]; !both {
			keys = append(keys, key)
		}
	}
	var found []string
	for _, key := range keys {
		if was[key] != is[key] {
			found = append(found, fmt.Sprintf("pod status: %s: %s was %q, is %q", before.Name, key,
				was[key], is[key]))
		}
	}
	return found
}

// statusFacts returns the facts of a pod that statusChanges compares, by their names.
func statusFacts(p *v1.Pod) map[string]string {
	s := &p.Status
	ips := "IPs"
	if hasTerminalPhase(p) {
		ips = "IPs of an ended pod"
	}
	facts := map[string]string{"phase": string(s.Phase), "reason": s.Reason + s.Message,
		ips: fmt.Sprint(s.HostIPs, s.PodIPs), "QoS": string(s.QOSClass),
		"start time": fmt.Sprint(s.StartTime), "generation": fmt.Sprint(s.ObservedGeneration),
		"spec": p.Spec.String(), "labels": fmt.Sprint(p.Labels, p.Annotations)}
	for _, condition := range s.Conditions {
		facts["condition "+string(condition.Type)] = fmt.Sprint(condition.Status, condition.Reason,
			condition.Message, condition.LastTransitionTime)
	}
	for _, list := range [][]v1.ContainerStatus{s.InitContainerStatuses, s.ContainerStatuses,
		s.EphemeralContainerStatuses} {
		for _, c := range list {
			started := c.Started != nil && *c.Started
			facts["ready "+c.Name], facts["started "+c.Name] = fmt.Sprint(c.Ready), fmt.Sprint(started)
			facts["container "+c.Name] = fmt.Sprint(c.ContainerID, c.RestartCount, c.Image, c.ImageID,
				c.State.String(), c.LastTerminationState.String(), c.User.String())
		}
	}
	return facts
}

// withoutHeartbeats returns a Node without what is reported at times: heartbeats, and images, which
// may have been pulled since the last report.
func withoutHeartbeats(n *v1.Node) *v1.Node {
	n = n.DeepCopy()
	n.ResourceVersion, n.ManagedFields, n.Status.Images = "", nil, nil
	for i := range n.Status.Conditions {
		n.Status.Conditions[i].LastHeartbeatTime = metav1.Time{}
	}
	return n
}
