package e2e

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"

	"seedlet.dev/realworld/cluster"
	"seedlet.dev/realworld/nodetest"
	"seedlet.dev/realworld/porttest"
)

const (
	testNamespace = "town"
	shopReplicas  = 30
)

// patience is porttest.Patience for kubectl.
var patience = "--timeout=" + porttest.Patience.String()

// TestCluster takes one agent through the life of a node of a real cluster. The parts build on
// each other: pods that one part leaves running are used by the next. Meanwhile every state of each
// pod at the API server and every run of a container is recorded, and checked at the end.
func TestCluster(t *testing.T) {
	c := newClusterSuite(t, "featureGates: {PodCertificateRequest: true}\n")
	signer := newPodSigner(t, c.api)
	parts := []struct {
		name string
		run  func(*testing.T)
	}{
		{"the node is ready", c.testNodeReady},
		{"workloads reach their desired states", c.testWorkloads},
		{"certificates of pods are issued", func(t *testing.T) { c.testCertificatesIssued(t, signer) }},
		{"volumes hold objects of the API server", c.testAPIVolumes},
		{"trust bundles are mounted", c.testTrustBundles},
		{"a static pod has a mirror pod", c.testMirrorPod},
		{"deleted pods end within their grace periods", c.testPodDeletion},
		{"a debug container is added", c.testDebugContainer},
		{"seeds of the simulator run as a Job", c.testSeedsJob},
		{"no pod can hurt another", c.testHostilePods},
		{"the API server is killed and restarted", c.testAPIServerKilled},
		{"certificates of pods are renewed", func(t *testing.T) { c.testCertificatesRenewed(t, signer) }},
		{"images are pulled with secrets", c.testPullSecrets},
		{"containers are resized in place", c.testResize},
		{"the agent is killed at random", c.testAgentKilledAtRandom},
		{"a rollout completes while the agent is killed", c.testRolloutUnderKills},
		{"the agent bootstraps its client certificate", c.testCertificateBootstrap},
		{"pods over limits of local storage are evicted", c.testLocalStorageLimits},
		{"a cordon blocks and a taint evicts pods", c.testTaint},
		{"nothing is left", c.testEverythingDeleted},
	}
	for _, part := range parts {
		start := time.Now()
		if !t.Run(part.name, part.run) {
			t.Fatalf("the end of the agent's log:\n%s", c.agent.logTail(t, 100))
		}
		t.Logf("%5.1f s: %s", time.Since(start).Seconds(), part.name)
	}
	if n := c.history.countStates(); n < 10*shopReplicas {
		t.Errorf("only %d states of pods were recorded", n)
	}
	violations := append(c.history.violations(), c.restartViolations(t)...)
	for _, violation := range violations {
		lines := c.relatedLogLines(t, strings.TrimRight(strings.Fields(violation)[0], ":"))
		t.Logf("%s\n%s", violation, strings.Join(lines[:min(len(lines), 80)], "\n"))
	}
	for _, violation := range violations { // last, where they are looked for
		t.Error(violation)
	}
}

// restartViolations returns the containers that were started twice or restarted, or still run.
// Excused are restarts of containers that a test killed, and of containers whose start containerd
// cancelled because the agent was killed during its request.
func (c *clusterSuite) restartViolations(t *testing.T) []string {
	var violations []string
	starts, runs := map[string]int{}, map[string]int{}
	for _, r := range c.connections.waitEnded() {
		name, _, _ := strings.Cut(r.name, " ")
		if starts[r.name]++; starts[r.name] > 1 {
			violations = append(violations, r.name+" was started twice")
		}
		if runs[name]++; runs[name] > 1 && !c.excused[name] &&
			runs[name]-1 > countInterruptedStarts(c.relatedLogLines(t, name)) {
			violations = append(violations, name+" was restarted")
		}
		if r.ended.IsZero() {
			violations = append(violations, r.name+" still runs")
		}
	}
	return violations
}

// countInterruptedStarts returns the number of starts that containerd cancelled because the client
// that had requested them was killed.
func countInterruptedStarts(lines []string) (n int) {
	for _, line := range lines {
		if strings.Contains(line, "StartContainer for ") &&
			strings.Contains(line, "context canceled") {
			n++
		}
	}
	return n
}

// relatedLogLines returns the lines of the logs of the agent and the runtime that contain the name
// of a pod, or an ID of a sandbox or container that an earlier such line contains.
func (c *clusterSuite) relatedLogLines(t *testing.T, name string) []string {
	var lines []string
	ids := map[string]bool{name: true}
	id := regexp.MustCompile(`\b[0-9a-f]{64}\b`)
	for _, path := range []string{c.agent.logFile, c.node.LogFile()} {
		data, err := os.ReadFile(path)
		if err != nil {
			t.Error(err)
		}
		for _, line := range strings.Split(string(data), "\n") {
			found := id.FindAllString(line, -1)
			if strings.Contains(line, name) ||
				slices.ContainsFunc(found, func(id string) bool { return ids[id] }) {
				lines = append(lines, line)
				for _, f := range found {
					ids[f] = true
				}
			}
		}
	}
	return lines
}

// clusterSuite is a cluster of one node with the agent on it, and the recorders of its states.
type clusterSuite struct {
	*suite
	cluster     *cluster.Cluster
	api         kubernetes.Interface
	history     *watchHistory
	connections *connectionRecorder
	excused     map[string]bool // pods of which a test killed a container
}

// newClusterSuite starts a cluster and an agent, and records the states of pods and the runs of
// containers.
func newClusterSuite(t testing.TB, more ...string) *clusterSuite {
	t.Helper()
	return newClusterSuiteOn(t, nodetest.Options{Version: nodetest.V2}, more...)
}

// newClusterSuiteOn is newClusterSuite with another runtime.
func newClusterSuiteOn(t testing.TB, o nodetest.Options, more ...string) *clusterSuite {
	t.Helper()
	c := newClusterOn(t, o, cluster.Options{})
	c.history, c.connections = newWatchHistory(t, c.api), newConnectionRecorder(t)
	c.joinNode(t, append(more, unlessSet(more, "syncFrequency: 10s\n"))...)
	return c
}

// newClusterSuiteWithoutAgent starts a cluster and a runtime, without an agent.
func newClusterSuiteWithoutAgent(t testing.TB, o cluster.Options) *clusterSuite {
	t.Helper()
	return newClusterOn(t, nodetest.Options{Version: nodetest.V2}, o)
}

func newClusterOn(t testing.TB, n nodetest.Options, o cluster.Options) *clusterSuite {
	t.Helper()
	cluster.Require(t)
	c := &clusterSuite{
		suite: &suite{node: nodetest.NewWith(t, n)}, excused: map[string]bool{},
	}
	c.cluster = cluster.New(t, o)
	config, err := clientcmd.BuildConfigFromFlags("", c.cluster.AdminKubeconfig())
	if err != nil {
		t.Fatal(err)
	}
	config.QPS = -1
	// The agent uses protobuf as well. The API server encodes each object once per content type.
	config.ContentType = runtime.ContentTypeProtobuf
	if c.api, err = kubernetes.NewForConfig(config); err != nil {
		t.Fatal(err)
	}
	return c
}

// joinNode starts the agent as the node of the cluster, with more lines of configuration. The API
// server can reach its secure port.
func (c *clusterSuite) joinNode(t testing.TB, more ...string) {
	t.Helper()
	c.joinNodeWith(t, nil, more...)
}

// joinNodeWith is joinNode with more flags.
func (c *clusterSuite) joinNodeWith(t testing.TB, flags []string, more ...string) {
	t.Helper()
	kubeconfig, err := c.cluster.NodeKubeconfig(nodeName)
	if err != nil {
		t.Fatal(err)
	}
	c.agent = newAgent(t, c.node, more...)
	c.agent.flags = []string{"--kubeconfig=" + kubeconfig,
		"--node-ip=" + c.cluster.Address.String(), "--address=0.0.0.0",
		"--client-ca-file=" + c.cluster.AuthorityFile()}
	c.agent.flags = append(c.agent.flags, flags...)
	c.agent.start(t)
	t.Cleanup(func() { c.agent.killIfRunning() })
}

// killIfRunning kills the agent if a test has left it running.
func (a *agent) killIfRunning() {
	if a.cmd.ProcessState == nil {
		_ = a.cmd.Process.Kill() // fails only if the agent has just exited
		_ = a.cmd.Wait()         // the exit code of a killed agent does not matter
	}
}

// kubectl runs a kubectl command that must succeed, and returns its output.
func (c *clusterSuite) kubectl(t testing.TB, args ...string) string {
	t.Helper()
	out, err := c.cluster.Kubectl(t.Context(), append([]string{"-n", testNamespace}, args...)...)
	if err != nil {
		t.Fatalf("%v\n%s", err, c.podOverview(t))
	}
	return out
}

// podOverview returns the list of all pods, for messages of failures.
func (c *clusterSuite) podOverview(t testing.TB) string {
	out, err := c.cluster.Kubectl(context.WithoutCancel(t.Context()), "get", "pods", "-A", "-o",
		"wide")
	if err != nil {
		return err.Error()
	}
	return out
}

// apply applies manifests. In them IMAGE stands for the image of the sample and RECORDER for the
// address of the connection recorder.
func (c *clusterSuite) apply(t testing.TB, manifests string) {
	t.Helper()
	if err := c.cluster.Apply(t.Context(), c.replacePlaceholders(manifests)); err != nil {
		t.Fatal(err)
	}
}

func (c *clusterSuite) replacePlaceholders(manifests string) string {
	return strings.NewReplacer("IMAGE", c.agent.sampleImage,
		"RECORDER", c.connections.address(c.node)).Replace(manifests)
}

// waitUntil waits until a condition holds. If it does not in time, the test fails with the list of
// all pods at the API server.
func (c *clusterSuite) waitUntil(t testing.TB, condition string, holds func() bool) {
	t.Helper()
	deadline := time.Now().Add(porttest.Patience)
	for ; !holds(); time.Sleep(200 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("not within %v: %s\n%s", porttest.Patience, condition, c.podOverview(t))
		}
	}
}

// apiPods returns the pods of the API server with the given label app; all pods for an empty label.
func (c *clusterSuite) apiPods(t testing.TB, app string) []v1.Pod {
	t.Helper()
	options := metav1.ListOptions{}
	if app != "" {
		options.LabelSelector = "app=" + app
	}
	list, err := c.api.CoreV1().Pods(testNamespace).List(t.Context(), options)
	if err != nil {
		t.Fatal(err)
	}
	return list.Items
}

// apiPod returns a pod of the API server; nil if there is none.
func (c *clusterSuite) apiPod(t testing.TB, name string) *v1.Pod {
	t.Helper()
	list, err := c.api.CoreV1().Pods(testNamespace).List(t.Context(),
		metav1.ListOptions{FieldSelector: "metadata.name=" + name})
	if err != nil {
		t.Fatal(err)
	}
	if len(list.Items) == 0 {
		return nil
	}
	return &list.Items[0]
}

// apiNode returns the Node of the API server.
func (c *clusterSuite) apiNode(t testing.TB) *v1.Node {
	t.Helper()
	node, err := c.api.CoreV1().Nodes().Get(t.Context(), nodeName, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return node
}

func isPodReady(p *v1.Pod) bool {
	return p != nil && conditionStatus(p, v1.PodReady) == v1.ConditionTrue
}

func conditionStatus(p *v1.Pod, kind v1.PodConditionType) v1.ConditionStatus {
	i := slices.IndexFunc(p.Status.Conditions, func(c v1.PodCondition) bool { return c.Type == kind })
	if i < 0 {
		return v1.ConditionUnknown
	}
	return p.Status.Conditions[i].Status
}

func (c *clusterSuite) testNodeReady(t *testing.T) {
	c.kubectl(t, "wait", "--for=condition=Ready", patience, "node/"+nodeName)
	node := c.apiNode(t)
	want := []v1.NodeAddress{{Type: v1.NodeInternalIP, Address: c.cluster.Address.String()},
		{Type: v1.NodeHostName, Address: nodeName}}
	if !slices.Equal(node.Status.Addresses, want) {
		t.Errorf("addresses %v, want %v", node.Status.Addresses, want)
	}
	for _, r := range []v1.ResourceName{v1.ResourceCPU, v1.ResourceMemory, v1.ResourcePods} {
		capacity, allocatable := node.Status.Capacity[r], node.Status.Allocatable[r]
		if capacity.Sign() <= 0 || allocatable.Sign() <= 0 || allocatable.Cmp(capacity) > 0 {
			t.Errorf("capacity of %s is %v, %v allocatable", r, &capacity, &allocatable)
		}
	}
	if info := node.Status.NodeInfo; !strings.HasPrefix(info.ContainerRuntimeVersion,
		"containerd://") || info.KubeletVersion == "" || info.BootID == "" {
		t.Errorf("node info %+v", info)
	}
	renewTime := func() time.Time {
		lease, err := c.api.CoordinationV1().Leases(v1.NamespaceNodeLease).Get(t.Context(),
			nodeName, metav1.GetOptions{})
		if err != nil || lease.Spec.RenewTime == nil {
			return time.Time{}
		}
		return lease.Spec.RenewTime.Time
	}
	c.waitUntil(t, "the lease exists", func() bool { return !renewTime().IsZero() })
	first := renewTime()
	c.waitUntil(t, "the lease is renewed", func() bool {
		return renewTime().After(first)
	})
}

// testEverythingDeleted deletes all pods and manifests, and checks that nothing of them is left at
// the API server or on the node.
func (c *clusterSuite) testEverythingDeleted(t *testing.T) {
	c.kubectl(t, "scale", "--replicas=0", "deployment/shop")
	// A scheduler that had not seen a taint may have bound a pod, which the node has rejected. Such a
	// pod stays when a deployment has no replicas any more.
	c.kubectl(t, "delete", "pods", "--field-selector=status.phase=Failed", "--wait=false")
	c.waitUntil(t, "deployment shop has no pods", func() bool {
		return len(c.apiPods(t, "shop")) == 0
	})
	c.kubectl(t, "delete", "deployment,statefulset,daemonset,job", "--all", "--wait=false")
	paths, err := filepath.Glob(c.agent.manifestDir + "/*.yaml")
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range paths {
		c.agent.removeManifest(t, strings.TrimSuffix(filepath.Base(path), ".yaml"))
	}
	c.kubectl(t, "delete", "pods", "--all", "--wait=false")
	c.waitUntil(t, "the API server has no pod", func() bool {
		list, err := c.api.CoreV1().Pods("").List(t.Context(), metav1.ListOptions{})
		return err == nil && len(list.Items) == 0
	})
	c.checkNothingLeft(t)
	if code := c.agent.signalAndWait(t, syscall.SIGTERM); code != 0 {
		t.Errorf("on TERM the agent exited with code %d", code)
	}
	c.history.stopWatch()
}

// testCertificateBootstrap restarts the agent with a bootstrap token only. The agent gets a client
// certificate, and no running container is disturbed (restartViolations checks that at the end).
func (c *clusterSuite) testCertificateBootstrap(t *testing.T) {
	token, err := c.cluster.BootstrapKubeconfig(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(c.node.Dir, "agent", "identity")
	written := filepath.Join(dir, "kubelet.conf")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	c.agent.signalAndWait(t, syscall.SIGTERM)
	c.agent.flags = append(c.agent.flags[1:], "--kubeconfig="+written, "--cert-dir="+dir,
		"--bootstrap-kubeconfig="+token)
	c.agent.start(t)
	c.apply(t, holderManifest("newcomer", ""))
	c.waitUntil(t, "a new pod runs", func() bool {
		return isPodReady(c.apiPod(t, "newcomer"))
	})
	if _, err := os.Stat(written); err != nil {
		t.Error(err)
	}
	if links, err := filepath.Glob(dir + "/kubelet-client-current.pem"); len(links) != 1 {
		t.Errorf("certificates %q, %v", links, err)
	}
	c.kubectl(t, "delete", "pod", "newcomer", "--wait=false")
}

// holderManifest returns the manifest of a pod that holds a connection to the recorder. The text of
// more is added to its spec and indented by two spaces.
func holderManifest(name, more string) string {
	return fmt.Sprintf(`apiVersion: v1
kind: Pod
metadata: {name: %[1]s, namespace: town, labels: {app: %[1]s}}
spec:
  terminationGracePeriodSeconds: 5%[2]s
  containers:
  - {name: main, image: IMAGE, args: [hold, RECORDER, %[1]s]}
`, name, more)
}
