package e2e

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"
)

// kubectlPods are what kubectl is tried on.
const kubectlPods = `
apiVersion: v1
kind: Pod
metadata: {name: talker, namespace: town}
spec:
  terminationGracePeriodSeconds: 5
  containers:
  - {name: first, image: IMAGE, args: [talk, --lines, "100", --bytes, "50"]}
  - {name: second, image: IMAGE, args: [exit, --after, 3s, --say, last words]}
---
apiVersion: v1
kind: Pod
metadata: {name: echo, namespace: town}
spec:
  terminationGracePeriodSeconds: 1
  containers:
  - {name: main, image: IMAGE, args: [echo], stdin: true, stdinOnce: true}
  - {name: page, image: IMAGE, args: [web]}
---
apiVersion: v1
kind: Pod
metadata: {name: unborn, namespace: town}
spec:
  containers:
  - {name: main, image: "127.0.0.1:1/none:1"}
`

// TestKubectl is what kubectl does with containers, through the API server and the secure port of
// a node.
func TestKubectl(t *testing.T) {
	c := newSecured(t)
	c.until(t, late, "a serving certificate is asked for", func() bool {
		return len(c.requests(t)) == 1
	})
	c.kubectl(t, "certificate", "approve", c.requests(t)[0])
	c.kubectl(t, "create", "namespace", townNamespace)
	c.kubectl(t, "wait", "--for=create", "--timeout=60s", "serviceaccount/default")
	pods := strings.ReplaceAll(kubectlPods, "IMAGE", c.agent.image)
	if err := c.cluster.Apply(t.Context(), pods); err != nil {
		t.Fatal(err)
	}
	c.kubectl(t, "wait", "--for=condition=Ready", "--timeout=120s", "pod/echo")
	c.until(t, late, "logs are served", func() bool {
		out, _ := c.typed(t, "", "logs", "echo", "-c", "page")
		return strings.Contains(out, "serving on port 8080")
	})
	t.Run("logs", c.kubectlLogs)
	t.Run("exec", c.kubectlExec)
	t.Run("attach", c.kubectlAttach)
	t.Run("port-forward", c.kubectlForward)
	t.Run("debug", c.kubectlDebug)
	t.Run("the node", c.kubectlRaw)
}

// typed runs kubectl with an input, and returns its output with that for errors.
func (c *town) typed(t *testing.T, input string, args ...string) (string, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	cmd := c.typing(ctx, args...)
	cmd.Stdin = strings.NewReader(input)
	out, err := cmd.CombinedOutput()
	return string(out), err
}

func (c *town) typing(ctx context.Context, args ...string) *exec.Cmd {
	return exec.CommandContext(ctx, c.cluster.KubectlPath(),
		append([]string{"--kubeconfig=" + c.cluster.Admin(), "-n", townNamespace}, args...)...)
}

func (c *town) kubectlLogs(t *testing.T) {
	line := func(i int) string {
		text := fmt.Sprintf("line %d ", i)
		return text + strings.Repeat(".", 49-len(text)) + "\n"
	}
	all := ""
	for i := range 100 {
		all += line(i)
	}
	logs := func(args ...string) string {
		out, err := c.typed(t, "", append([]string{"logs", "talker", "-c", "first"}, args...)...)
		if err != nil {
			t.Errorf("%q: %v: %s", args, err, out)
		}
		return out
	}
	c.until(t, late, "all is said", func() bool { return logs() == all })
	for _, s := range []struct{ want, args string }{
		{line(98) + line(99), "--tail=2"}, {"", "--tail=0"}, {all[:120], "--limit-bytes=120"},
		{all, "--since=1h"}, {all, "--since-time=2026-01-01T00:00:00Z"},
		{"", "--since-time=2100-01-01T00:00:00Z"},
	} {
		if got := logs(s.args); got != s.want {
			t.Errorf("%s gives %q", s.args, got)
		}
	}
	stamped := regexp.MustCompile(`^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{9}Z line 99 `)
	if got := logs("--tail=1", "--timestamps"); !stamped.MatchString(got) {
		t.Errorf("stamped: %q", got)
	}
	c.until(t, late, "the second has a run before this one", func() bool {
		out, _ := c.typed(t, "", "logs", "talker", "-c", "second", "--previous")
		return out == "exiting with 0 after 3s\nlast words\n"
	})
	out, err := c.typed(t, "", "logs", "talker", "--all-containers", "--prefix", "--tail=1")
	if err != nil || !strings.Contains(out, "[pod/talker/first] line 99") ||
		!strings.Contains(out, "[pod/talker/second] ") {
		t.Errorf("all containers: %v: %s", err, out)
	}
	for want, args := range map[string][]string{
		"previous terminated container": {"talker", "-c", "first", "-p"},
		"container none is not valid":   {"talker", "-c", "none"},
		"is waiting to start":           {"unborn"},
	} {
		out, err := c.typed(t, "", append([]string{"logs"}, args...)...)
		if err == nil || !strings.Contains(out, want) {
			t.Errorf("%q: %v: %s", args, err, out)
		}
	}
	c.kubectlFollow(t)
}

// kubectlFollow follows all containers of a pod that is being deleted.
func (c *town) kubectlFollow(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	cmd := c.typing(ctx, "logs", "-f", "talker", "-c", "first", "--tail=1")
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	c.kubectl(t, "delete", "pod", "talker")
	if err := cmd.Wait(); err != nil || !strings.HasPrefix(out.String(), "line 99 ") {
		t.Errorf("followed: %v: %s", err, &out)
	}
}

func (c *town) kubectlExec(t *testing.T) {
	long := strings.Repeat("0123456789abcde\n", 1<<14)
	out, err := c.typed(t, long, "exec", "-i", "echo", "-c", "page", "--", "/sample", "echo")
	if err != nil || out != long {
		t.Errorf("%d bytes came back, %v: %.200s", len(out), err, out)
	}
	out, err = c.typed(t, "", "exec", "echo", "-c", "page", "--", "/sample", "exit", "--code", "7")
	if ended, ok := err.(*exec.ExitError); !ok || ended.ExitCode() != 7 {
		t.Errorf("%v: %s", err, out)
	}
	out, err = c.typed(t, "", "exec", "echo", "-c", "page", "--", "/none")
	if err == nil || !strings.Contains(out, "/none") {
		t.Errorf("a command that is not there: %v: %s", err, out)
	}
	// With a terminal, which script is to kubectl.
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	typed := c.typing(ctx, "exec", "-it", "echo", "-c", "page", "--", "/sample", "exit")
	shown, err := exec.CommandContext(ctx, "script", "-qec", strings.Join(typed.Args, " "),
		"/dev/null").CombinedOutput()
	if err != nil || !strings.Contains(string(shown), "exiting with 0 after 0s\r\n") {
		t.Errorf("with a terminal: %v: %q", err, shown)
	}
}

func (c *town) kubectlAttach(t *testing.T) {
	out, err := c.typed(t, "hello\n", "attach", "-i", "echo", "-c", "main")
	if err != nil || !strings.Contains(out, "hello\n") {
		t.Errorf("%v: %s", err, out)
	}
}

func (c *town) kubectlForward(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	cmd := c.typing(ctx, "port-forward", "pod/echo", ":8080")
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	defer func() { cancel(); _ = cmd.Wait() }() // it is ended by us, which is an error
	said, err := bufio.NewReader(out).ReadString('\n')
	address, _, ok := strings.Cut(strings.TrimPrefix(said, "Forwarding from "), " -> ")
	if err != nil || !ok {
		t.Fatalf("kubectl says %q, %v", said, err)
	}
	answer, err := http.Get("http://" + address)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	page, err := io.ReadAll(answer.Body)
	if err != nil || string(page) != "hello from a seedlet pod\n" {
		t.Errorf("%q, %v", page, err)
	}
}

func (c *town) kubectlDebug(t *testing.T) {
	out, err := c.typed(t, "", "debug", "echo", "--image="+c.agent.image, "-c", "visitor", "--",
		"/sample", "exit", "--say", "been there")
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	c.until(t, late, "the visitor has said it", func() bool {
		out, _ := c.typed(t, "", "logs", "echo", "-c", "visitor")
		return strings.HasSuffix(out, "been there\n")
	})
}

// kubectlRaw asks for what kubectl has no command for.
func (c *town) kubectlRaw(t *testing.T) {
	proxy := "/api/v1/nodes/" + nodeName + "/proxy"
	logs, pod := "/logs/"+filepath.Base(c.agent.logs), "town_echo_"+string(c.pod(t, "echo").UID)
	raw := func(want, verb string, path string) {
		t.Helper()
		args := []string{verb, "--raw", proxy + path}
		if verb == "create" {
			args = append(args, "-f", "/dev/null")
		}
		if out, _ := c.typed(t, "", args...); !strings.Contains(out, want) {
			t.Errorf("%s %s gives %.500q, want %q in it", verb, path, out, want)
		}
	}
	raw(`<a href="`+pod+`/">`, "get", logs+"/")
	raw("stdout F serving on port 8080", "get", logs+"/"+pod+"/page/0.log")
	raw("NotFound", "get", logs+"/"+pod+"/none")
	raw("exiting with 0 after 0s", "create", "/run/town/echo/page?cmd=/sample%20exit")
	raw("checkpoint", "create", "/checkpoint/town/echo/page") // without criu an error says so
	raw("NotFound", "create", "/checkpoint/town/none/page")
	raw("BadRequest", "get", "/exec/town/echo/page?command=a&output=1")
}
