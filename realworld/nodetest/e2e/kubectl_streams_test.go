package e2e

import (
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
)

// testExec checks exit codes, separate output streams, error messages and large streams of exec.
func (c *clusterSuite) testExec(t *testing.T) {
	in := func(container string, command ...string) []string {
		return append([]string{"exec", "pair", "-c", container, "--", "/sample"}, command...)
	}
	stdout, stderr, code := c.runKubectl(t, in("one", "exit", "--code", "7")...)
	if stdout != "exiting with 7 after 0s\n" || code != 7 ||
		stderr != "command terminated with exit code 7\n" {
		t.Errorf("exit code: %d, %q, %q", code, stdout, stderr)
	}
	stdout, stderr, code = c.runKubectl(t, in("two", "nonsense")...)
	if stdout != "" || code != 2 ||
		!strings.HasPrefix(stderr, "sample: the first argument must be one of") {
		t.Errorf("standard error: %d, %q, %q", code, stdout, stderr)
	}
	if stdout, stderr, code = c.runKubectl(t, in("one", "echo")...); stdout != "" || code != 0 {
		t.Errorf("without input: %d, %q, %q", code, stdout, stderr)
	}
	c.checkKubectlFails(t, "no such file",
		"exec", "pair", "-c", "one", "--", "tar", "cf", "-", "/nothing")
	c.checkKubectlFails(t, `container not found ("spent")`, in("spent", "report")...)
	stdout, stderr, code = c.runKubectl(t, "exec", "pair", "-c", "one", "--", "/nothing")
	if code == 0 || !strings.Contains(stderr, "/nothing") {
		t.Errorf("no such command: %d, %q, %q", code, stdout, stderr)
	}
	stdout = c.kubectl(t, "exec", "statue-"+nodeName, "--", "/sample", "report")
	if !strings.Contains(stdout, `"host":"statue-`+nodeName) {
		t.Errorf("exec in a mirror pod: %q", stdout)
	}
	// The text is larger than all buffers on its path, and flows in both directions at once.
	text := strings.Repeat("0123456789abcde\n", 1<<17)
	s := c.startKubectl(t, "exec", "-i", "pair", "-c", "one", "--", "/sample", "echo")
	s.writeInput(t, text)
	if err := s.stdin.Close(); err != nil {
		t.Fatal(err)
	}
	if code := s.waitExitCode(t); code != 0 || s.stdout.String() != text {
		t.Errorf("code %d, %d bytes of %d came back: %q", code, len(s.stdout.String()), len(text),
			s.stderr.String())
	}
}

// testTerminals checks that terminals of exec, debug and attach get the size of kubectl's terminal
// and its changes, and that typed input is echoed.
func (c *clusterSuite) testTerminals(t *testing.T) {
	stdout, stderr, code := c.runKubectl(t,
		"exec", "-it", "pair", "-c", "one", "--", "/sample", "echo")
	if stdout != "" || code != 0 || !strings.Contains(stderr, "Unable to use a TTY") {
		t.Errorf("kubectl without a terminal: %d, %q, %q", code, stdout, stderr)
	}
	// The third terminal belongs to the main process of a container, which runs already.
	for _, args := range []string{"exec -it pair -c one -- /sample terminal",
		"debug desk -it --image=" + c.agent.sampleImage + " --container=booth -- /sample terminal",
		"attach -it desk -c console"} {
		s := c.startKubectlAtTerminal(t, strings.Fields(args)...)
		// containerd sets the size before it attaches the output, in which the first size may be
		// missing: as kubectl suggests, one presses Enter.
		s.waitUntil(t, "the terminal has its size", func() bool {
			s.writeInput(t, "\r")
			return strings.Contains(s.stdout.String(), "100 by 30\r\n")
		})
		resizePTY(t, s.terminal, 77, 22)
		s.waitOutput(t, "77 by 22\r\n")
		s.writeInput(t, "enough\r")
		s.waitOutput(t, "enough\r\n")
		if code := s.waitExitCode(t); code != 0 {
			t.Errorf("code %d: %s", code, s)
		}
	}
}

// testAttach checks that attach streams new output of a container, none of its old output, and its
// input.
func (c *clusterSuite) testAttach(t *testing.T) {
	s := c.startKubectl(t, "attach", "desk", "-c", "page")
	c.waitUntil(t, "new output is streamed", func() bool {
		c.kubectl(t, "exec", "desk", "-c", "page", "--", "/sample", "say", "listen")
		return strings.Contains(s.stdout.String(), "listen\n")
	})
	if strings.Contains(s.stdout.String(), "serving on port") {
		t.Errorf("attach streams old output: %s", s)
	}
	s = c.startKubectl(t, "attach", "-i", "desk", "-c", "plain")
	s.writeInput(t, "who is there\n")
	s.waitOutput(t, "who is there\n")
	if err := s.stdin.Close(); err != nil {
		t.Fatal(err)
	}
	s.waitExitCode(t)
	// The container's input stays open for the next attach.
	s = c.startKubectl(t, "attach", "-i", "desk", "-c", "plain")
	s.writeInput(t, "and again\n")
	s.waitOutput(t, "and again\n")
	c.checkKubectlFails(t, "container spent not found in pod pair_town",
		"attach", "pair", "-c", "spent")
}

// testDebug adds an ephemeral container and exchanges a line with it.
func (c *clusterSuite) testDebug(t *testing.T) {
	s := c.startKubectl(t, "debug", "pair", "-i", "--image="+c.agent.sampleImage,
		"--container=look", "--", "/sample", "echo")
	s.writeInput(t, "look\n")
	s.waitOutput(t, "look\n")
	if err := s.stdin.Close(); err != nil {
		t.Fatal(err)
	}
	if code := s.waitExitCode(t); code != 0 {
		t.Errorf("code %d: %s", code, s)
	}
	if out := c.kubectl(t, "logs", "pair", "-c", "look"); out != "look\n" {
		t.Errorf("the log of the ephemeral container is %q", out)
	}
}

var forwardingLine = regexp.MustCompile(`Forwarding from (127\.0\.0\.1:\d+) -> `)

// startPortForward starts a port-forward, and returns the URL of its local end.
func (c *clusterSuite) startPortForward(t *testing.T, pod, port string) (*kubectlProcess, string) {
	t.Helper()
	s := c.startKubectl(t, "port-forward", "--address=127.0.0.1", "pod/"+pod, ":"+port)
	var found []string
	s.waitUntil(t, "the port is forwarded", func() bool {
		found = forwardingLine.FindStringSubmatch(s.stdout.String())
		return found != nil
	})
	return s, "http://" + found[1]
}

// testPortForward makes parallel requests to an open port, and one to a closed port.
func (c *clusterSuite) testPortForward(t *testing.T) {
	s, url := c.startPortForward(t, "desk", "8080")
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			response, err := client.Get(url)
			if err != nil {
				t.Errorf("%v: %s", err, s)
				return
			}
			body, err := io.ReadAll(response.Body)
			_ = response.Body.Close() // read to the end
			if err != nil || string(body) != "a page\n" {
				t.Errorf("%s, %q, %v", response.Status, body, err)
			}
		})
	}
	all.Wait()
	s, url = c.startPortForward(t, "pair", "9")
	if response, err := client.Get(url); err == nil {
		_ = response.Body.Close() // the response is an error already
		t.Errorf("a closed port responds with %s", response.Status)
	}
	s.waitUntil(t, "the error is reported", func() bool {
		return strings.Contains(s.stderr.String(), "connection refused")
	})
}

// testCopy copies a directory into a container and back. kubectl runs tar in the container.
func (c *clusterSuite) testCopy(t *testing.T) {
	from, to := filepath.Join(t.TempDir(), "tree"), filepath.Join(t.TempDir(), "back")
	files := map[string]string{"a": "one\n", "below/b": strings.Repeat("two\n", 1<<18)}
	for name, text := range files {
		if err := os.MkdirAll(filepath.Dir(filepath.Join(from, name)), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(from, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	for _, args := range [][]string{{from, "pair:/tmp/tree"}, {"pair:/tmp/tree", to}} {
		args = append([]string{"cp", "-c", "one"}, args...)
		if stdout, stderr, code := c.runKubectl(t, args...); code != 0 {
			t.Errorf("code %d, %q, %q", code, stdout, stderr)
		}
	}
	for name, want := range files {
		if got, err := os.ReadFile(filepath.Join(to, name)); err != nil || string(got) != want {
			t.Errorf("%s: %d bytes, want %d, %v", name, len(got), len(want), err)
		}
	}
}
