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
)

const (
	townNamespace = "town"
	shopPods      = 30
	late          = 2 * time.Minute // for what many pods have to do on two processors
)

// TestCluster takes one agent through the life of a node of a real cluster. The parts build on
// each other: what one leaves running, the next finds. Meanwhile every status that the API server
// has had of a pod is noted, and judged at the end, and so is every run of a container.
func TestCluster(t *testing.T) {
	c := newTown(t)
	parts := []struct {
		name string
		run  func(*testing.T)
	}{
		{"the node is ready", c.nodeReady},
		{"workloads get where they should", c.workloads},
		{"volumes hold what the API server has", c.volumes},
		{"trust bundles are mounted", c.trust},
		{"a static pod has a mirror", c.mirror},
		{"pods end as they are told", c.endings},
		{"a container is added for debugging", c.debugging},
		{"the API server dies and comes back", c.serverKilled},
		{"the agent is killed at random", c.agentKilledAtRandom},
		{"a roll-over goes on while the agent is killed", c.rollOver},
		{"the agent asks for a certificate", c.bootstraps},
		{"an emptyDir over its limit has ended its pod", c.overLimit},
		{"a taint evicts", c.taint},
		{"nothing is left", c.emptied},
	}
	for _, part := range parts {
		start := time.Now()
		if !t.Run(part.name, part.run) {
			t.Fatalf("the end of the agent's log:\n%s", c.agent.logTail(t, 100))
		}
		t.Logf("%5.1f s: %s", time.Since(start).Seconds(), part.name)
	}
	if n := c.seen.changes(); n < 10*shopPods {
		t.Errorf("only %d states of pods were seen", n)
	}
	for _, problem := range append(c.seen.problems(), c.restarts(t)...) {
		lines := c.evidence(t, strings.TrimRight(strings.Fields(problem)[0], ":"))
		t.Errorf("%s\n%s", problem, strings.Join(lines[:min(len(lines), 80)], "\n"))
	}
}

// restarts says which containers were started twice, and which ran again after they had run; but
// for those that were killed from outside, and those whose start containerd has given up because
// the agent was killed while it waited for it.
func (c *town) restarts(t *testing.T) []string {
	var problems []string
	starts, lives := map[string]int{}, map[string]int{}
	for _, r := range c.held.ended(soon) {
		name, _, _ := strings.Cut(r.name, " ")
		if starts[r.name]++; starts[r.name] > 1 {
			problems = append(problems, r.name+" was started twice")
		}
		if lives[name]++; lives[name] > 1 && !c.excused[name] &&
			lives[name]-1 > interruptions(c.evidence(t, name)) {
			problems = append(problems, name+" was restarted")
		}
		if r.ended.IsZero() {
			problems = append(problems, r.name+" still runs")
		}
	}
	return problems
}

// interruptions counts the starts that the runtime has given up with whoever had asked for them.
func interruptions(lines []string) (n int) {
	for _, line := range lines {
		if strings.Contains(line, "StartContainer for ") && strings.Contains(line, "context canceled") {
			n++
		}
	}
	return n
}

// evidence is what the logs of the agent and the runtime say of a pod, by its name, and of what
// the runtime has made for it.
func (c *town) evidence(t *testing.T, name string) []string {
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

// town is a cluster of one node, on which the agent runs, and the view of all of it.
type town struct {
	*scene
	cluster *cluster.Cluster
	api     kubernetes.Interface
	seen    *chronicle
	held    *witness
	excused map[string]bool // pods of which a container was killed from outside
}

// newTown starts a cluster and an agent, and has everything noted that is seen of them.
func newTown(t testing.TB, more ...string) *town {
	t.Helper()
	c := foundTown(t, cluster.Options{})
	c.seen, c.held = chronicles(t, c.api), witnesses(t)
	c.join(t, append(more, "syncFrequency: 10s\n")...)
	return c
}

// foundTown starts a cluster and a runtime, without an agent.
func foundTown(t testing.TB, o cluster.Options) *town {
	t.Helper()
	cluster.Require(t)
	c := &town{scene: &scene{node: nodetest.New(t, nodetest.V2)}, excused: map[string]bool{}}
	c.cluster = cluster.New(t, o)
	config, err := clientcmd.BuildConfigFromFlags("", c.cluster.Admin())
	if err != nil {
		t.Fatal(err)
	}
	config.QPS = -1
	config.ContentType = runtime.ContentTypeProtobuf // as the agent's: each form costs the server
	if c.api, err = kubernetes.NewForConfig(config); err != nil {
		t.Fatal(err)
	}
	return c
}

// join starts the agent as the node, with more lines of configuration. Others can reach its
// secure port.
func (c *town) join(t testing.TB, more ...string) {
	t.Helper()
	kubeconfig, err := c.cluster.NodeKubeconfig(nodeName)
	if err != nil {
		t.Fatal(err)
	}
	c.agent = newAgent(t, c.node, more...)
	c.agent.flags = []string{"--kubeconfig=" + kubeconfig,
		"--node-ip=" + c.cluster.Address.String(), "--address=0.0.0.0",
		"--client-ca-file=" + c.cluster.AuthorityFile()}
	c.agent.start(t)
	t.Cleanup(func() { c.agent.end() })
}

// end ends the agent, if a test has left it running.
func (a *agent) end() {
	if a.cmd.ProcessState == nil {
		_ = a.cmd.Process.Kill() // it has just ended by itself
		_ = a.cmd.Wait()         // likewise
	}
}

// kubectl runs a command that must succeed, and returns what it prints.
func (c *town) kubectl(t testing.TB, args ...string) string {
	t.Helper()
	out, err := c.cluster.Kubectl(t.Context(), append([]string{"-n", townNamespace}, args...)...)
	if err != nil {
		t.Fatalf("%v\n%s", err, c.overview(t))
	}
	return out
}

// overview is how all pods are, for failures.
func (c *town) overview(t testing.TB) string {
	out, err := c.cluster.Kubectl(context.WithoutCancel(t.Context()), "get", "pods", "-A", "-o",
		"wide")
	if err != nil {
		return err.Error()
	}
	return out
}

// apply applies manifests, in which IMAGE is the sample and WITNESS where to hold a connection to.
func (c *town) apply(t testing.TB, manifests string) {
	t.Helper()
	text := strings.NewReplacer("IMAGE", c.agent.image, "WITNESS", c.held.address(c.node)).
		Replace(manifests)
	if err := c.cluster.Apply(t.Context(), text); err != nil {
		t.Fatal(err)
	}
}

// until waits until something is so at the API server.
func (c *town) until(t testing.TB, within time.Duration, what string, is func() bool) {
	t.Helper()
	for end := time.Now().Add(within); !is(); time.Sleep(200 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("not within %v: %s\n%s", within, what, c.overview(t))
		}
	}
}

// pods are those that the API server has with a label app; all of them for an empty one.
func (c *town) pods(t testing.TB, app string) []v1.Pod {
	t.Helper()
	options := metav1.ListOptions{}
	if app != "" {
		options.LabelSelector = "app=" + app
	}
	list, err := c.api.CoreV1().Pods(townNamespace).List(t.Context(), options)
	if err != nil {
		t.Fatal(err)
	}
	return list.Items
}

// pod is what the API server has of a pod; nil if there is none.
func (c *town) pod(t testing.TB, name string) *v1.Pod {
	t.Helper()
	list, err := c.api.CoreV1().Pods(townNamespace).List(t.Context(),
		metav1.ListOptions{FieldSelector: "metadata.name=" + name})
	if err != nil {
		t.Fatal(err)
	}
	if len(list.Items) == 0 {
		return nil
	}
	return &list.Items[0]
}

func podReady(p *v1.Pod) bool { return p != nil && condition(p, v1.PodReady) == v1.ConditionTrue }

func condition(p *v1.Pod, of v1.PodConditionType) v1.ConditionStatus {
	i := slices.IndexFunc(p.Status.Conditions, func(c v1.PodCondition) bool { return c.Type == of })
	if i < 0 {
		return v1.ConditionUnknown
	}
	return p.Status.Conditions[i].Status
}

func (c *town) nodeReady(t *testing.T) {
	c.kubectl(t, "wait", "--for=condition=Ready", "--timeout=60s", "node/"+nodeName)
	node, err := c.api.CoreV1().Nodes().Get(t.Context(), nodeName, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	want := []v1.NodeAddress{{Type: v1.NodeInternalIP, Address: c.cluster.Address.String()},
		{Type: v1.NodeHostName, Address: nodeName}}
	if !slices.Equal(node.Status.Addresses, want) {
		t.Errorf("addresses %v, want %v", node.Status.Addresses, want)
	}
	for _, r := range []v1.ResourceName{v1.ResourceCPU, v1.ResourceMemory, v1.ResourcePods} {
		has, gives := node.Status.Capacity[r], node.Status.Allocatable[r]
		if has.Sign() <= 0 || gives.Sign() <= 0 || gives.Cmp(has) > 0 {
			t.Errorf("capacity of %s is %v, %v allocatable", r, &has, &gives)
		}
	}
	if info := node.Status.NodeInfo; !strings.HasPrefix(info.ContainerRuntimeVersion,
		"containerd://") || info.KubeletVersion == "" || info.BootID == "" {
		t.Errorf("node info %+v", info)
	}
	renewed := func() time.Time {
		lease, err := c.api.CoordinationV1().Leases(v1.NamespaceNodeLease).Get(t.Context(),
			nodeName, metav1.GetOptions{})
		if err != nil || lease.Spec.RenewTime == nil {
			return time.Time{}
		}
		return lease.Spec.RenewTime.Time
	}
	c.until(t, soon, "there is a lease", func() bool { return !renewed().IsZero() })
	first := renewed()
	c.until(t, soon, "the lease is renewed", func() bool { return renewed().After(first) })
}

// emptied takes everything away, and sees that nothing is left of it anywhere.
func (c *town) emptied(t *testing.T) {
	c.kubectl(t, "scale", "--replicas=0", "deployment/shop")
	c.until(t, late, "the shop is empty", func() bool { return len(c.pods(t, "shop")) == 0 })
	c.kubectl(t, "delete", "deployment,statefulset,daemonset,job", "--all", "--wait=false")
	paths, err := filepath.Glob(c.agent.manifests + "/*.yaml")
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range paths {
		c.agent.remove(t, strings.TrimSuffix(filepath.Base(path), ".yaml"))
	}
	c.kubectl(t, "delete", "pods", "--all", "--wait=false")
	c.until(t, late, "the API server has no pod", func() bool {
		list, err := c.api.CoreV1().Pods("").List(t.Context(), metav1.ListOptions{})
		return err == nil && len(list.Items) == 0
	})
	c.leavesNothing(t)
	if code := c.agent.signal(t, syscall.SIGTERM); code != 0 {
		t.Errorf("on TERM the agent ended with %d", code)
	}
	c.seen.done()
}

// bootstraps starts the agent with a token only. It gets a certificate, and nothing that runs
// takes notice.
func (c *town) bootstraps(t *testing.T) {
	token, err := c.cluster.BootstrapKubeconfig(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(c.node.Dir, "agent", "identity")
	written := filepath.Join(dir, "kubelet.conf")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	c.agent.signal(t, syscall.SIGTERM)
	c.agent.flags = append(c.agent.flags[1:], "--kubeconfig="+written, "--cert-dir="+dir,
		"--bootstrap-kubeconfig="+token)
	c.agent.start(t)
	c.apply(t, holder("newcomer", ""))
	c.until(t, late, "a pod runs that is made now", func() bool {
		return podReady(c.pod(t, "newcomer"))
	})
	if _, err := os.Stat(written); err != nil {
		t.Error(err)
	}
	if links, err := filepath.Glob(dir + "/kubelet-client-current.pem"); len(links) != 1 {
		t.Errorf("certificates %q, %v", links, err)
	}
	c.kubectl(t, "delete", "pod", "newcomer", "--wait=false")
}

// holder is the manifest of a pod that holds a connection. More is indented by two.
func holder(name, more string) string {
	return fmt.Sprintf(`apiVersion: v1
kind: Pod
metadata: {name: %[1]s, namespace: town, labels: {app: %[1]s}}
spec:
  terminationGracePeriodSeconds: 5%[2]s
  containers:
  - {name: main, image: IMAGE, args: [hold, WITNESS, %[1]s]}
`, name, more)
}
