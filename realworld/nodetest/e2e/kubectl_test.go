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

// kubectlPods are what kubectl looks at. "pair" holds a container of each state.
const kubectlPods = `apiVersion: v1
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
    readinessProbe: {tcpSocket: {port: 8080}, periodSeconds: 1}
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

// kubectlAlone sees that kubectl, as people use it, gets what it asks of containers and the node.
func (c *town) kubectlAlone(t *testing.T) {
	manifests := strings.ReplaceAll(kubectlPods, "IMAGE", c.agent.image)
	if err := c.cluster.Apply(t.Context(), manifests); err != nil {
		t.Fatal(err)
	}
	c.agent.add(t, "statue", `apiVersion: v1
kind: Pod
metadata: {name: statue, namespace: town}
spec:
  terminationGracePeriodSeconds: 1
  containers: [{name: main, image: seedlet.dev/sample:v1, args: [sleep]}]
`)
	for _, name := range []string{"desk", "mortal", "brief", "leaving", "statue-" + nodeName} {
		c.until(t, late, name+" is ready", func() bool { return podReady(c.pod(t, name)) })
	}
	c.until(t, late, "pair is as it stays", func() bool {
		ran := 0
		for _, s := range c.pod(t, "pair").Status.ContainerStatuses {
			if s.State.Running != nil || s.State.Terminated != nil {
				ran++
			}
		}
		return ran == 3
	})
	t.Run("together", func(t *testing.T) {
		for name, part := range map[string]func(*testing.T){
			"logs": c.logs, "logs of the past": c.logsOfThePast, "logs are followed": c.logsFollowed,
			"logs over rotations": c.logsRotated, "logs of a pod that leaves": c.logsLeaving,
			"exec": c.execs, "terminals": c.terminals, "attach": c.attaches, "debug": c.debugs,
			"port-forward": c.forwards, "cp": c.copies, "raw": c.raws, "metrics": c.metered,
			"top": c.tops,
		} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				part(t)
			})
		}
	})
	t.Run("the agent is killed", c.clientsLoseAgent)
	c.agent.remove(t, "statue")
	c.kubectl(t, "delete", "pods", "--all", "--wait=false", "--grace-period=1")
}

// proxyPath is a path of the secure port, by way of the API server.
func proxyPath(path string) string { return "/api/v1/nodes/" + nodeName + "/proxy" + path }

// raws are the paths that kubectl has no command for.
func (c *town) raws(t *testing.T) {
	get := func(path string) (string, string, int) {
		return c.tried(t, "get", "--raw", proxyPath(path))
	}
	dir, err := os.MkdirTemp("/var/log", "seedlet-e2e-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) }) // it is of no use to anybody
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
		if out, problems, code := get(path); code != 0 || !strings.Contains(out, want) {
			t.Errorf("%s: code %d, %.300q, %.300q; want %q", path, code, out, problems, want)
		}
	}
	const none = "the server could not find the requested resource"
	for path, why := range map[string]string{
		"/logs/..%2F..%2Fetc%2Fpasswd":              none,
		"/logs/%2E%2E/%2E%2E/etc/passwd":            none,
		"/logs/" + name + "/astray":                 none,
		"/logs/?query=/../../etc/passwd":            "Invalid value",
		"/logs/?query=" + name + "&sinceTime=today": "BadRequest",
		"/logs/?query=a%20b":                        "unsupported characters",
	} {
		if out, problems, code := get(path); code != 1 || !strings.Contains(problems, why) {
			t.Errorf("%s: code %d, %.300q, %.300q; want %q", path, code, out, problems, why)
		}
	}
	c.checkpoints(t)
	level := filepath.Join(t.TempDir(), "level")
	if err := os.WriteFile(level, []byte("4"), 0o644); err != nil {
		t.Fatal(err)
	}
	out := c.kubectl(t, "replace", "--raw", proxyPath("/debug/flags/v"), "-f", level)
	if !strings.Contains(out, "successfully set klog.logging.verbosity to 4") {
		t.Errorf("the verbosity: %q", out)
	}
}

// checkpoints asks for one, which the runtime makes with criu, or says that it has none.
func (c *town) checkpoints(t *testing.T) {
	out, problems, code := c.tried(t, "create", "--raw",
		proxyPath("/checkpoint/town/pair/two"), "-f", os.DevNull)
	var made struct{ Items []string }
	switch {
	case code != 0:
		if !strings.Contains(problems, "checkpointing of town/pair/two failed") ||
			!strings.Contains(strings.ToLower(problems), "criu") {
			t.Errorf("a checkpoint fails with %q", problems)
		}
	case json.Unmarshal([]byte(out), &made) != nil || len(made.Items) != 1:
		t.Errorf("a checkpoint is answered with %q", out)
	default:
		if info, err := os.Stat(made.Items[0]); err != nil || info.Size() == 0 {
			t.Errorf("no checkpoint: %v, %v", info, err)
		}
	}
}

// metered sees that what metrics-server reads is there, and goes on, which is what it makes rates
// of.
func (c *town) metered(t *testing.T) {
	const burner = `{container="burner",namespace="town",pod="desk"}`
	used := []string{"container_cpu_usage_seconds_total" + burner, "node_cpu_usage_seconds_total"}
	var first, then string
	c.until(t, soon, "what is used is told", func() bool {
		first = c.kubectl(t, "get", "--raw", proxyPath("/metrics/resource"))
		return !slices.ContainsFunc(used, func(name string) bool {
			value, _ := sampled(t, first, name)
			return value == 0
		})
	})
	c.until(t, soon, "it is told anew", func() bool {
		then = c.kubectl(t, "get", "--raw", proxyPath("/metrics/resource"))
		return !slices.ContainsFunc(used, func(name string) bool {
			_, at := sampled(t, first, name)
			_, later := sampled(t, then, name)
			return later <= at
		})
	})
	processors := c.processors(t)
	for _, name := range used {
		before, since := sampled(t, first, name)
		after, until := sampled(t, then, name)
		// The clock of what has been counted is not quite that of the sample.
		if over := float64(until-since)/1000 + 1; after <= before ||
			after-before > over*float64(processors) {
			t.Errorf("%s went from %v to %v in %v s", name, before, after, over)
		}
	}
	for _, name := range []string{"container_memory_working_set_bytes" + burner,
		"node_memory_working_set_bytes"} {
		if value, at := sampled(t, then, name); value < 16<<20 || at == 0 {
			t.Errorf("%s is %v at %v", name, value, at)
		}
	}
}

// tops sees that kubectl is told by metrics-server, which asks the agent, what is used.
func (c *town) tops(t *testing.T) {
	var pod string
	c.until(t, late, "what burner uses", func() bool {
		out, _, code := c.tried(t, "top", "pod", "desk", "--containers", "--no-headers")
		pod = regexp.MustCompile(`(?m)^desk +burner +.*$`).FindString(out)
		return code == 0 && pod != ""
	})
	// It burns a tenth of a processor, and holds 16 MiB.
	var milli, mib int
	if _, err := fmt.Sscanf(pod, "desk burner %dm %dMi", &milli, &mib); err != nil || milli < 20 ||
		milli > 500 || mib < 16 || mib > 64 {
		t.Errorf("burner: %q, %v", pod, err)
	}
	out := c.kubectl(t, "top", "node", nodeName, "--no-headers")
	var share int
	if _, err := fmt.Sscanf(out, nodeName+" %dm %d%% %dMi", &milli, &share, &mib); err != nil ||
		milli == 0 || share > 100 || mib < 64 {
		t.Errorf("the node: %q, %v", out, err)
	}
}

// sampled is a metric with its time, of a page; zero if it is not there.
func sampled(t *testing.T, page, name string) (value float64, at int64) {
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

// processors are those of the node.
func (c *town) processors(t *testing.T) int64 {
	count, err := strconv.ParseInt(c.kubectl(t, "get", "node", nodeName, "-o",
		"jsonpath={.status.capacity.cpu}"), 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	return count
}

// clientsLoseAgent kills the agent under a log that is followed and a command that runs. Both end;
// with the next agent they work again.
func (c *town) clientsLoseAgent(t *testing.T) {
	before := c.pod(t, "pair").Status.ContainerStatuses
	follow := func() *session {
		s := c.begin(t, "logs", "-f", "pair", "-c", "one")
		s.shows(t, "sleeping")
		return s
	}
	run := func() *session {
		s := c.begin(t, "exec", "-i", "pair", "-c", "one", "--", "/sample", "echo")
		s.write(t, "hello\n")
		s.shows(t, "hello")
		return s
	}
	sessions := []*session{follow(), run()}
	c.agent.signal(t, syscall.SIGKILL)
	for _, s := range sessions {
		s.code(t) // of a command whose connection breaks, the API server says that it has ended well
	}
	c.agent.configure(t, "enableDebugFlagsHandler: false\n")
	c.agent.start(t)
	c.until(t, late, "kubectl gets at the agent again", func() bool {
		_, _, code := c.tried(t, "logs", "pair", "-c", "one")
		return code == 0
	})
	again, ran := follow(), run()
	_ = ran.in.Close() // is the end of the command
	if code := ran.code(t); code != 0 {
		t.Errorf("code %d: %s", code, ran)
	}
	c.kubectl(t, "exec", "pair", "-c", "one", "--", "/sample", "say", "still here")
	again.shows(t, "still here")
	c.fails(t, "MethodNotAllowed", "replace", "--raw", proxyPath("/debug/flags/v"), "-f",
		os.DevNull)
	sameContainers(t, before, c.pod(t, "pair").Status.ContainerStatuses)
}

func sameContainers(t *testing.T, before, after []v1.ContainerStatus) {
	t.Helper()
	for i := range before {
		if before[i].ContainerID != after[i].ContainerID ||
			before[i].RestartCount != after[i].RestartCount {
			t.Errorf("%s is %v, it was %v", before[i].Name, after[i], before[i])
		}
	}
}
