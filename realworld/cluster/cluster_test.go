package cluster

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"seedlet.dev/realworld/cleanup"
	"seedlet.dev/realworld/porttest"
)

// ownerEnv makes this test binary a process that owns a cluster and is killed (TestGuard).
const ownerEnv = "SEEDLET_CLUSTER_OWNER"

func TestMain(m *testing.M) {
	if os.Getenv(ownerEnv) != "" {
		c, err := Start(context.Background(), Options{})
		if err == nil {
			fmt.Println(c.Dir)
		} else {
			fmt.Println(err)
		}
		select {}
	}
	os.Exit(m.Run())
}

// node is a Node object without a node.
const node = `
apiVersion: v1
kind: Node
metadata: {name: paper}
status:
  capacity: {cpu: "4", memory: 8Gi, pods: "10"}
  allocatable: {cpu: "4", memory: 8Gi, pods: "10"}
  conditions: [{type: Ready, status: "True", reason: Test, message: says the test}]
`

// pod tolerates any node, including a silent one.
const pod = `
apiVersion: v1
kind: Pod
metadata: {name: first, namespace: town}
spec:
  tolerations: [{operator: Exists}]
  containers: [{name: main, image: seedlet.dev/sample:v1}]
`

// TestCluster uses a cluster like the tests of the API server port: all components work, each
// identity has its rights, and a crash of the API server loses no data.
func TestCluster(t *testing.T) {
	c := New(t, Options{NodeMonitorGracePeriod: 4 * time.Second})
	t.Run("versions", func(t *testing.T) { testVersions(t, c) })
	t.Run("a pod is bound", func(t *testing.T) { testBinding(t, c) })
	t.Run("identities", func(t *testing.T) { testIdentities(t, c) })
	t.Run("bootstrap", func(t *testing.T) { testBootstrap(t, c) })
	t.Run("a silent node", func(t *testing.T) {
		eventually(t, c, "Unknown", "get", "node", "paper", "-o",
			`jsonpath={.status.conditions[?(@.type=="Ready")].status}`)
	})
	t.Run("restart of the API server", func(t *testing.T) { testRestart(t, c) })
}

// kubectl runs a command that must succeed.
func kubectl(t *testing.T, c *Cluster, args ...string) string {
	t.Helper()
	out, err := c.Kubectl(t.Context(), args...)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// apply applies a manifest, including its status.
func apply(t *testing.T, c *Cluster, manifest string, more ...string) {
	t.Helper()
	args := append([]string{"apply", "--server-side", "-f", "-"}, more...)
	if _, err := c.kubectl(t.Context(), manifest, args...); err != nil {
		t.Fatal(err)
	}
}

// eventually waits until a command prints the wanted text.
func eventually(t *testing.T, c *Cluster, want string, args ...string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), porttest.Patience)
	defer cancel()
	for {
		got, err := c.Kubectl(ctx, args...)
		if err == nil && got == want {
			return
		}
		select {
		case <-ctx.Done():
			t.Fatalf("kubectl %q printed %q, %v; want %q", args, got, err, want)
		case <-time.After(100 * time.Millisecond):
		}
	}
}

func testVersions(t *testing.T, c *Cluster) {
	out := kubectl(t, c, "version")
	for _, want := range []string{"Client Version: " + Version, "Server Version: " + Version} {
		if !strings.Contains(out, want) {
			t.Errorf("no %q in\n%s", want, out)
		}
	}
	for _, name := range []string{"kube-controller-manager", "kube-scheduler"} {
		out, err := exec.Command(c.tools.path(name), "--version").Output()
		if err != nil || string(out) != "Kubernetes "+Version+"\n" {
			t.Errorf("%s has version %q, %v", name, out, err)
		}
	}
	// The API server publishes its address, which a pod can reach.
	want := c.Address.String()
	eventually(t, c, want, "get", "endpointslice", "kubernetes", "-o",
		"jsonpath={.endpoints[*].addresses[*]}")
	if c.Address.IsLoopback() || !c.Address.IsPrivate() {
		t.Errorf("the address %v is not a private one of a bridge", c.Address)
	}
}

func testBinding(t *testing.T, c *Cluster) {
	apply(t, c, node)
	apply(t, c, node, "--subresource=status")
	kubectl(t, c, "create", "namespace", "town")
	eventually(t, c, "default", "get", "sa", "default", "-n", "town", "-o",
		"jsonpath={.metadata.name}")
	apply(t, c, pod)
	eventually(t, c, "paper", "get", "pod", "first", "-n", "town", "-o", "jsonpath={.spec.nodeName}")
}

// testIdentities checks that the API server authenticates each user, and that a node has no access
// to objects of other nodes.
func testIdentities(t *testing.T, c *Cluster) {
	paper, err := c.NodeKubeconfig("paper")
	if err != nil {
		t.Fatal(err)
	}
	user, err := c.UserKubeconfig("jane", "readers")
	if err != nil {
		t.Fatal(err)
	}
	for _, q := range []struct {
		kubeconfig string
		want       string
		args       []string
	}{
		{c.AdminKubeconfig(), "yes", []string{"create", "nodes"}},
		{paper, "yes", []string{"update", "nodes/paper", "--subresource=status"}},
		{paper, "no", []string{"get", "nodes/other"}},
		{paper, "no", []string{"get", "secrets"}},
		{user, "no", []string{"get", "pods"}},
	} {
		args := append([]string{"auth", "can-i", "--kubeconfig", q.kubeconfig}, q.args...)
		got, _ := c.Kubectl(t.Context(), args...) // the exit code reports it too
		if word := strings.Fields(got + " nothing")[0]; word != q.want {
			t.Errorf("kubectl %q: %q, want %q", args, got, q.want)
		}
	}
	me := kubectl(t, c, "auth", "whoami", "--kubeconfig", user, "-o",
		"jsonpath={.status.userInfo.username} {.status.userInfo.groups[0]}")
	if me != "jane readers" {
		t.Errorf("jane of the readers is authenticated as %q", me)
	}
	// NodeRestriction: a node may not set arbitrary labels of its own object.
	_, err = c.Kubectl(t.Context(), "--kubeconfig", paper, "label", "node", "paper",
		"node-restriction.kubernetes.io/x=y")
	if err == nil || !strings.Contains(err.Error(), "not allowed to modify labels") {
		t.Errorf("labelling itself: %v, want a refusal", err)
	}
}

// testBootstrap requests a node's certificate with a bootstrap token, and obtains it.
func testBootstrap(t *testing.T, c *Cluster) {
	bootstrap, err := c.BootstrapKubeconfig(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	manifest, err := signingRequest("new")
	if err != nil {
		t.Fatal(err)
	}
	_, err = c.kubectl(t.Context(), manifest, "--kubeconfig", bootstrap, "create", "-f", "-")
	if err != nil {
		t.Fatal(err)
	}
	eventually(t, c, "Approved", "get", "csr", "new", "-o", "jsonpath={.status.conditions[*].type}")
	eventually(t, c, "issued", "get", "csr", "new", "-o",
		"go-template={{if .status.certificate}}issued{{end}}")
}

// testRestart kills the API server and starts it again with its data.
func testRestart(t *testing.T, c *Cluster) {
	const uid = "jsonpath={.metadata.uid}"
	before := kubectl(t, c, "get", "pod", "first", "-n", "town", "-o", uid)
	if err := c.StopAPIServer(); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Kubectl(t.Context(), "get", "--raw=/readyz"); err == nil {
		t.Error("a stopped API server responds")
	}
	if err := c.StartAPIServer(t.Context()); err != nil {
		t.Fatal(err)
	}
	after := kubectl(t, c, "get", "pod", "first", "-n", "town", "-o", uid)
	if before == "" || before != after {
		t.Errorf("the pod had uid %q, now %q", before, after)
	}
	if err := c.StartAPIServer(t.Context()); err == nil {
		t.Error("a running API server was started again")
	}
	// The other components continue.
	picky := strings.NewReplacer("first", "second", "{operator: Exists}", "").Replace(pod)
	apply(t, c, picky)
	eventually(t, c, "False", "get", "pod", "second", "-n", "town", "-o",
		`jsonpath={.status.conditions[?(@.type=="PodScheduled")].status}`)
}

// TestGuard kills the owner of a cluster; the guard must remove all resources.
func TestGuard(t *testing.T) {
	Require(t)
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), ownerEnv+"=yes")
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	dir := strings.TrimSpace(line)
	there, _ := Leftovers(dir) // checked below
	killed := cmd.Process.Kill()
	_ = cmd.Wait() // it was killed, which is the expected error
	if err != nil || killed != nil || !strings.Contains(dir, dirPrefix) {
		t.Fatalf("the owner printed %q; %v, %v", line, err, killed)
	}
	all := strings.Join(there, "; ")
	for _, want := range []string{"(etcd)", "(kube-apiserver)", "(kube-controller)",
		"(kube-scheduler)", "bridge " + cleanup.BridgeName(dir), "directory " + dir} {
		if !strings.Contains(all, want) {
			t.Errorf("a running cluster has no %q among %s", want, all)
		}
	}
	deadline := time.Now().Add(porttest.Patience)
	for {
		left, err := Leftovers(dir)
		if err == nil && len(left) == 0 {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("after the owner's death there remains %q, %v", left, err)
		}
		time.Sleep(50 * time.Millisecond)
	}
}
