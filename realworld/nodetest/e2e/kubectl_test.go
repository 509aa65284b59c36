package e2e

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	v1 "k8s.io/api/core/v1"
)

// kubectlManifests are the pods of testKubectl. "pair" has containers in each state.
const kubectlManifests = `apiVersion: v1
kind: Pod
metadata: {name: pair, namespace: town}
spec:
  restartPolicy: Never
  terminationGracePeriodSeconds: 1
  initContainers:
  - {name: first, image: IMAGE, args: [exit, --say, prepared]}
  containers:
  - {name: one, image: IMAGE, args: [sleep]}
  - {name: two, image: IMAGE, args: [talk, --lines, "20", --bytes, "40"]}
  - {name: spent, image: IMAGE, args: [exit]}
---
apiVersion: v1
kind: Pod
metadata: {name: desk, namespace: town}
spec:
  terminationGracePeriodSeconds: 1
  containers:
  - name: page
    image: IMAGE
    args: [web, --text, a page]
    readinessProbe: {tcpSocket: {port: 8080}, periodSeconds: 1, timeoutSeconds: 60}
  - {name: plain, image: IMAGE, args: [echo], stdin: true}
  - {name: console, image: IMAGE, args: [terminal], stdin: true, tty: true}
  - {name: burner, image: IMAGE, args: [burn, --share, "0.1", --memory-mib, "16"]}
---
apiVersion: v1
kind: Pod
metadata: {name: mortal, namespace: town}
spec:
  terminationGracePeriodSeconds: 1
  containers: [{name: main, image: IMAGE, args: [sleep]}]
---
apiVersion: v1
kind: Pod
metadata: {name: brief, namespace: town}
spec:
  restartPolicy: Never
  containers: [{name: main, image: IMAGE, args: [sleep, --code, "3"]}]
---
apiVersion: v1
kind: Pod
metadata: {name: missing, namespace: town}
spec:
  containers: [{name: main, image: IMAGE-not}]
---
apiVersion: v1
kind: Pod
metadata: {name: leaving, namespace: town}
spec:
  terminationGracePeriodSeconds: 600
  containers: [{name: main, image: IMAGE, args: [sleep, --ignore-term]}]
`

// testKubectl runs the kubectl commands whose requests the API server forwards to the agent: logs,
// exec, attach, debug, port-forward, cp, top and raw requests.
func (c *clusterSuite) testKubectl(t *testing.T) {
	manifests := strings.ReplaceAll(kubectlManifests, "IMAGE", c.agent.sampleImage)
	if err := c.cluster.Apply(t.Context(), manifests); err != nil {
		t.Fatal(err)
	}
	c.agent.addManifest(t, "statue", `apiVersion: v1
kind: Pod
metadata: {name: statue, namespace: town}
spec:
  terminationGracePeriodSeconds: 1
  containers: [{name: main, image: seedlet.dev/sample:v1, args: [sleep]}]
`)
	for _, name := range []string{"desk", "mortal", "brief", "leaving", "statue-" + nodeName} {
		c.waitUntil(t, name+" is ready", func() bool {
			return isPodReady(c.apiPod(t, name))
		})
	}
	c.waitUntil(t, "all containers of pair were started", func() bool {
		started := 0
		for _, s := range c.apiPod(t, "pair").Status.ContainerStatuses {
			if s.State.Running != nil || s.State.Terminated != nil {
				started++
			}
		}
		return started == 3
	})
	t.Run("in parallel", func(t *testing.T) {
		for name, part := range map[string]func(*testing.T){
			"logs":                              c.testLogs,
			"logs by time and of previous runs": c.testLogTimesAndPrevious,
			"logs are followed":                 c.testLogsFollowed,
			"logs are followed over rotations":  c.testLogsRotated,
			"logs of a terminating pod":         c.testLogsOfTerminatingPod,
			"exec":                              c.testExec,
			"terminals":                         c.testTerminals,
			"attach":                            c.testAttach,
			"debug":                             c.testDebug,
			"port-forward":                      c.testPortForward,
			"cp":                                c.testCopy,
			"raw paths":                         c.testRawPaths,
			"resource metrics":                  c.testResourceMetrics,
			"top":                               c.testTop,
		} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				part(t)
			})
		}
	})
	t.Run("the agent is killed while clients are connected", c.testAgentKilledUnderClients)
	c.agent.removeManifest(t, "statue")
	c.kubectl(t, "delete", "pods", "--all", "--wait=false", "--grace-period=1")
}

// nodeProxyPath returns the API server's path that leads to a path of the agent's secure port.
func nodeProxyPath(path string) string { return "/api/v1/nodes/" + nodeName + "/proxy" + path }

// testRawPaths requests the paths that kubectl has no command for: logs of the node, checkpoints
// and the log verbosity. Paths that lead out of the log directory are refused.
func (c *clusterSuite) testRawPaths(t *testing.T) {
	get := func(path string) (stdout, stderr string, code int) {
		return c.runKubectl(t, "get", "--raw", nodeProxyPath(path))
	}
	dir, err := os.MkdirTemp("/var/log", "seedlet-e2e-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) }) // a failure leaves one small directory
	name := filepath.Base(dir)
	if err := errors.Join(os.Chmod(dir, 0o755),
		os.WriteFile(filepath.Join(dir, name+".log"), []byte("a service says\n"), 0o644),
		os.Symlink("/etc/passwd", filepath.Join(dir, "astray"))); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]string{
		"/logs/":                              `<a href="` + name + `/">`,
		"/logs/" + name + "/" + name + ".log": "a service says",
		"/logs/?query=" + name:                "a service says",
		"/logs/?query=/" + name + "/":         `<a href="` + name + `.log">`,
		"/logs/?query=no-such&tailLines=1":    "no-such",
	} {
		if stdout, stderr, code := get(path); code != 0 || !strings.Contains(stdout, want) {
			t.Errorf("%s: code %d, %.300q, %.300q; want %q", path, code, stdout, stderr, want)
		}
	}
	const notFound = "the server could not find the requested resource"
	for path, want := range map[string]string{
		"/logs/..%2F..%2Fetc%2Fpasswd":              notFound,
		"/logs/%2E%2E/%2E%2E/etc/passwd":            notFound,
		"/logs/" + name + "/astray":                 notFound,
		"/logs/?query=/../../etc/passwd":            "Invalid value",
		"/logs/?query=" + name + "&sinceTime=today": "BadRequest",
		"/logs/?query=a%20b":                        "unsupported characters",
	} {
		if stdout, stderr, code := get(path); code != 1 || !strings.Contains(stderr, want) {
			t.Errorf("%s: code %d, %.300q, %.300q; want %q", path, code, stdout, stderr, want)
		}
	}
	c.testCheckpoint(t)
	level := filepath.Join(t.TempDir(), "level")
	if err := os.WriteFile(level, []byte("4"), 0o644); err != nil {
		t.Fatal(err)
	}
	out := c.kubectl(t, "replace", "--raw", nodeProxyPath("/debug/flags/v"), "-f", level)
	if !strings.Contains(out, "successfully set klog.logging.verbosity to 4") {
		t.Errorf("setting the verbosity: %q", out)
	}
}

// testCheckpoint requests a checkpoint of a container. The runtime creates it with criu, or reports
// that criu is not installed.
func (c *clusterSuite) testCheckpoint(t *testing.T) {
	stdout, stderr, code := c.runKubectl(t, "create", "--raw",
		nodeProxyPath("/checkpoint/town/pair/two"), "-f", os.DevNull)
	var checkpoint struct{ Items []string }
	switch {
	case code != 0:
		if !strings.Contains(stderr, "checkpointing of town/pair/two failed") ||
			!strings.Contains(strings.ToLower(stderr), "criu") {
			t.Errorf("a checkpoint fails with %q", stderr)
		}
	case json.Unmarshal([]byte(stdout), &checkpoint) != nil || len(checkpoint.Items) != 1:
		t.Errorf("the response to the request of a checkpoint is %q", stdout)
	default:
		if info, err := os.Stat(checkpoint.Items[0]); err != nil || info.Size() == 0 {
			t.Errorf("no checkpoint: %v, %v", info, err)
		}
	}
}

// testResourceMetrics checks the metrics that metrics-server reads. The counters advance together
// with their timestamps, because metrics-server computes rates from both.
func (c *clusterSuite) testResourceMetrics(t *testing.T) {
	const burner = `{container="burner",namespace="town",pod="desk"}`
	used := []string{"container_cpu_usage_seconds_total" + burner, "node_cpu_usage_seconds_total"}
	var first, second string
	c.waitUntil(t, "CPU usage is served", func() bool {
		first = c.kubectl(t, "get", "--raw", nodeProxyPath("/metrics/resource"))
		return !slices.ContainsFunc(used, func(name string) bool {
			value, _ := metricSample(t, first, name)
			return value == 0
		})
	})
	c.waitUntil(t, "newer CPU usage is served", func() bool {
		second = c.kubectl(t, "get", "--raw", nodeProxyPath("/metrics/resource"))
		return !slices.ContainsFunc(used, func(name string) bool {
			_, at := metricSample(t, first, name)
			_, later := metricSample(t, second, name)
			return later <= at
		})
	})
	processors := c.processorCount(t)
	for _, name := range used {
		before, since := metricSample(t, first, name)
		after, until := metricSample(t, second, name)
		// The CPU time and the timestamp of a sample are read at slightly different times.
		if seconds := float64(until-since)/1000 + 1; after <= before ||
			after-before > seconds*float64(processors) {
			t.Errorf("%s went from %v to %v in %v s", name, before, after, seconds)
		}
	}
	for _, name := range []string{"container_memory_working_set_bytes" + burner,
		"node_memory_working_set_bytes"} {
		if value, at := metricSample(t, second, name); value < 16<<20 || at == 0 {
			t.Errorf("%s is %v at %v", name, value, at)
		}
	}
}

// testTop checks the usage that kubectl top prints. It comes from metrics-server, which reads it
// from the agent.
func (c *clusterSuite) testTop(t *testing.T) {
	// The container burner uses a tenth of a processor, or less on a busy machine, and 16 MiB. In the
	// first window it may not have run.
	var milli, mib int
	c.waitUntil(t, "kubectl top prints the usage of burner", func() bool {
		out, _, _ := c.runKubectl(t, "top", "pod", "desk", "--containers", "--no-headers")
		line := regexp.MustCompile(`(?m)^desk +burner +.*$`).FindString(out)
		_, err := fmt.Sscanf(line, "desk burner %dm %dMi", &milli, &mib)
		return err == nil && milli > 0 && mib >= 16
	})
	if milli > 500 || mib > 64 {
		t.Errorf("usage of burner: %d milliCPU, %d MiB", milli, mib)
	}
	out := c.kubectl(t, "top", "node", nodeName, "--no-headers")
	var share int
	if _, err := fmt.Sscanf(out, nodeName+" %dm %d%% %dMi", &milli, &share, &mib); err != nil ||
		milli == 0 || share > 100 || mib < 64 {
		t.Errorf("usage of the node: %q, %v", out, err)
	}
}

// metricSample returns the value and the timestamp of a metric on a page; zeros if it is missing.
func metricSample(t *testing.T, page, name string) (value float64, at int64) {
	t.Helper()
	found := regexp.MustCompile(`(?m)^` + regexp.QuoteMeta(name) + ` (\S+) (\d+)$`).
		FindStringSubmatch(page)
	if found == nil {
		return 0, 0
	}
	value, err := strconv.ParseFloat(found[1], 64)
	if err != nil {
		t.Fatal(err)
	}
	if at, err = strconv.ParseInt(found[2], 10, 64); err != nil {
		t.Fatal(err)
	}
	return value, at
}

// processorCount returns the number of processors of the node.
func (c *clusterSuite) processorCount(t *testing.T) int64 {
	count, err := strconv.ParseInt(c.kubectl(t, "get", "node", nodeName, "-o",
		"jsonpath={.status.capacity.cpu}"), 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	return count
}

// testAgentKilledUnderClients kills the agent while a client follows a log and another one runs a
// command. Both connections end. After a restart of the agent both work again, in the same
// containers.
func (c *clusterSuite) testAgentKilledUnderClients(t *testing.T) {
	before := c.apiPod(t, "pair").Status.ContainerStatuses
	follow := func() *kubectlProcess {
		s := c.startKubectl(t, "logs", "-f", "pair", "-c", "one")
		s.waitOutput(t, "sleeping")
		return s
	}
	run := func() *kubectlProcess {
		s := c.startKubectl(t, "exec", "-i", "pair", "-c", "one", "--", "/sample", "echo")
		s.writeInput(t, "hello\n")
		s.waitOutput(t, "hello")
		return s
	}
	sessions := []*kubectlProcess{follow(), run()}
	c.agent.signalAndWait(t, syscall.SIGKILL)
	for _, s := range sessions {
		// The code is not checked: when the connection of a command breaks, the API server reports
		// success.
		s.waitExitCode(t)
	}
	c.agent.appendConfig(t, "enableDebugFlagsHandler: false\n")
	c.agent.start(t)
	c.waitUntil(t, "kubectl reaches the agent again", func() bool {
		_, _, code := c.runKubectl(t, "logs", "pair", "-c", "one")
		return code == 0
	})
	again, ran := follow(), run()
	_ = ran.stdin.Close() // ends the command
	if code := ran.waitExitCode(t); code != 0 {
		t.Errorf("code %d: %s", code, ran)
	}
	c.kubectl(t, "exec", "pair", "-c", "one", "--", "/sample", "say", "still here")
	again.waitOutput(t, "still here")
	c.checkKubectlFails(t, "MethodNotAllowed", "replace", "--raw", nodeProxyPath("/debug/flags/v"),
		"-f", os.DevNull)
	checkSameContainers(t, before, c.apiPod(t, "pair").Status.ContainerStatuses)
}

func checkSameContainers(t *testing.T, before, after []v1.ContainerStatus) {
	t.Helper()
	for i := range before {
		if before[i].ContainerID != after[i].ContainerID ||
			before[i].RestartCount != after[i].RestartCount {
			t.Errorf("the status of %s is %v, before %v", before[i].Name, after[i], before[i])
		}
	}
}
