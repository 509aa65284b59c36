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

func (c *town) execs(t *testing.T) {
	in := func(container string, command ...string) []string {
		return append([]string{"exec", "pair", "-c", container, "--", "/sample"}, command...)
	}
	out, problems, code := c.tried(t, in("one", "exit", "--code", "7")...)
	if out != "exiting with 7 after 0s\n" || code != 7 ||
		problems != "command terminated with exit code 7\n" {
		t.Errorf("a code: %d, %q, %q", code, out, problems)
	}
	if out, problems, code = c.tried(t, in("two", "nonsense")...); out != "" || code != 2 ||
		!strings.HasPrefix(problems, "sample: the first argument must be one of") {
		t.Errorf("errors apart: %d, %q, %q", code, out, problems)
	}
	if out, problems, code = c.tried(t, in("one", "echo")...); out != "" || code != 0 {
		t.Errorf("without input: %d, %q, %q", code, out, problems)
	}
	c.fails(t, "no such file", "exec", "pair", "-c", "one", "--", "tar", "cf", "-", "/nothing")
	c.fails(t, `container not found ("spent")`, in("spent", "report")...)
	out, problems, code = c.tried(t, "exec", "pair", "-c", "one", "--", "/nothing")
	if code == 0 || !strings.Contains(problems, "/nothing") {
		t.Errorf("no such command: %d, %q, %q", code, out, problems)
	}
	if out := c.kubectl(t, "exec", "statue-"+nodeName, "--", "/sample", "report"); !strings.Contains(
		out, `"host":"statue-`+nodeName) {
		t.Errorf("in a mirror: %q", out)
	}
	// More than all buffers on the way hold, in both directions at once.
	text := strings.Repeat("0123456789abcde\n", 1<<17)
	s := c.begin(t, "exec", "-i", "pair", "-c", "one", "--", "/sample", "echo")
	s.write(t, text)
	if err := s.in.Close(); err != nil {
		t.Fatal(err)
	}
	if code := s.code(t); code != 0 || s.out.String() != text {
		t.Errorf("code %d, %d bytes came back of %d: %q", code, len(s.out.String()), len(text),
			s.problems.String())
	}
}

// terminals have a size, which changes with that of kubectl's, and what is typed is echoed.
func (c *town) terminals(t *testing.T) {
	out, problems, code := c.tried(t, "exec", "-it", "pair", "-c", "one", "--", "/sample", "echo")
	if out != "" || code != 0 || !strings.Contains(problems, "Unable to use a TTY") {
		t.Errorf("no terminal: %d, %q, %q", code, out, problems)
	}
	// The third is its container's own process, and so has lived before.
	for _, args := range []string{"exec -it pair -c one -- /sample terminal",
		"debug desk -it --image=" + c.agent.image + " --container=booth -- /sample terminal",
		"attach -it desk -c console"} {
		s := c.beginAtTerminal(t, strings.Fields(args)...)
		s.shows(t, "100 by 30\r\n")
		resizeTerminal(t, s.terminal, 77, 22)
		s.shows(t, "77 by 22\r\n")
		s.write(t, "enough\r")
		s.shows(t, "enough\r\n")
		if code := s.code(t); code != 0 {
			t.Errorf("code %d: %s", code, s)
		}
	}
}

// attaches sees what a process writes from now on, and what it answers.
func (c *town) attaches(t *testing.T) {
	s := c.begin(t, "attach", "desk", "-c", "page")
	c.until(t, late, "what is said is seen", func() bool {
		c.kubectl(t, "exec", "desk", "-c", "page", "--", "/sample", "say", "listen")
		return strings.Contains(s.out.String(), "listen\n")
	})
	if strings.Contains(s.out.String(), "serving on port") {
		t.Errorf("what was before: %s", s)
	}
	s = c.begin(t, "attach", "-i", "desk", "-c", "plain")
	s.write(t, "who is there\n")
	s.shows(t, "who is there\n")
	if err := s.in.Close(); err != nil {
		t.Fatal(err)
	}
	s.code(t)
	// The container's input stays open for the next one.
	s = c.begin(t, "attach", "-i", "desk", "-c", "plain")
	s.write(t, "and again\n")
	s.shows(t, "and again\n")
	c.fails(t, `container not found ("spent")`, "attach", "pair", "-c", "spent")
}

// debugs adds a container and talks with it.
func (c *town) debugs(t *testing.T) {
	s := c.begin(t, "debug", "pair", "-i", "--image="+c.agent.image, "--container=look", "--",
		"/sample", "echo")
	s.write(t, "look\n")
	s.shows(t, "look\n")
	if err := s.in.Close(); err != nil {
		t.Fatal(err)
	}
	if code := s.code(t); code != 0 {
		t.Errorf("code %d: %s", code, s)
	}
	if out := c.kubectl(t, "logs", "pair", "-c", "look"); out != "look\n" {
		t.Errorf("its log is %q", out)
	}
}

var forwarding = regexp.MustCompile(`Forwarding from (127\.0\.0\.1:\d+) -> `)

// forward starts a port-forward, and says where its end is.
func (c *town) forward(t *testing.T, pod, port string) (*session, string) {
	t.Helper()
	s := c.begin(t, "port-forward", "--address=127.0.0.1", "pod/"+pod, ":"+port)
	var found []string
	s.until(t, "forwards", func() bool {
		found = forwarding.FindStringSubmatch(s.out.String())
		return found != nil
	})
	return s, "http://" + found[1]
}

func (c *town) forwards(t *testing.T) {
	s, url := c.forward(t, "desk", "8080")
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			answer, err := client.Get(url)
			if err != nil {
				t.Errorf("%v: %s", err, s)
				return
			}
			body, err := io.ReadAll(answer.Body)
			_ = answer.Body.Close() // read to the end
			if err != nil || string(body) != "a page\n" {
				t.Errorf("%s, %q, %v", answer.Status, body, err)
			}
		})
	}
	all.Wait()
	s, url = c.forward(t, "pair", "9")
	if answer, err := client.Get(url); err == nil {
		_ = answer.Body.Close() // nothing of it is wanted
		t.Errorf("nobody answers %s", answer.Status)
	}
	s.until(t, "says why", func() bool {
		return strings.Contains(s.problems.String(), "connection refused")
	})
}

// copies a tree into a container and back, by tar in it.
func (c *town) copies(t *testing.T) {
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
		if out, problems, code := c.tried(t, args...); code != 0 {
			t.Errorf("code %d, %q, %q", code, out, problems)
		}
	}
	for name, want := range files {
		if got, err := os.ReadFile(filepath.Join(to, name)); err != nil || string(got) != want {
			t.Errorf("%s: %d bytes, want %d, %v", name, len(got), len(want), err)
		}
	}
}
