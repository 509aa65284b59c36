package main

import (
	"bufio"
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"seedlet.dev/realworld/nodetest"
)

// root is the root of the checkout, the working directory of `make run`.
const root = "../.."

// build builds the programs of `make run` and returns the path of the playground.
func build(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "playground")
	made := map[string]string{"bin/seedlet": "./cmd/seedlet", path: "./cmd/playground"}
	for out, from := range made {
		cmd := exec.Command("go", "build", "-o", out, from)
		cmd.Dir = root
		if text, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("building %s: %v\n%s", from, err, text)
		}
	}
	return path
}

// runPlayground runs the playground on a node and returns its output and exit code. When the output
// has the text interruptAt, if any, the playground gets an interrupt.
func runPlayground(t *testing.T, path string, n *nodetest.Node, env []string,
	interruptAt string) (string, int) {
	t.Helper()
	cmd := exec.Command(path)
	cmd.Dir = root
	cmd.Env = append(cmd.Environ(), append(env, "CONTAINER_RUNTIME_ENDPOINT="+n.Endpoint)...)
	pipe, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd.Stderr = cmd.Stdout
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	var out strings.Builder
	for lines := bufio.NewScanner(pipe); lines.Scan(); {
		fmt.Fprintln(&out, lines.Text())
		if interruptAt != "" && strings.Contains(lines.Text(), interruptAt) {
			interruptAt = ""
			if err := cmd.Process.Signal(syscall.SIGINT); err != nil {
				t.Error(err)
			}
		}
	}
	_ = cmd.Wait() // the exit code is checked below
	return out.String(), cmd.ProcessState.ExitCode()
}

// TestPlay runs the playground on an existing runtime: the pods must reach their expected state,
// the runtime must be empty afterwards, and a runtime with pods must be refused.
func TestPlay(t *testing.T) {
	n := nodetest.New(t, nodetest.V2)
	path := build(t)
	out, code := runPlayground(t, path, n, []string{"DURATION=40s"}, "")
	if code != 0 || !strings.Contains(out, "every pod reached what it should") {
		t.Errorf("exit code %d, want 0 and a good verdict\n%s", code, out)
	}
	wantEmpty(t, n)
	out, code = runPlayground(t, path, n, nil, "web-playground")
	if code != 0 || !strings.Contains(out, "removing the manifests") {
		t.Errorf("interrupted: exit code %d, want 0 after an orderly end\n%s", code, out)
	}
	wantEmpty(t, n)

	sandbox := &runtimeapi.PodSandboxConfig{
		Metadata: &runtimeapi.PodSandboxMetadata{Name: "other", Uid: "other", Namespace: "default"},
		Linux:    &runtimeapi.LinuxPodSandboxConfig{},
	}
	_, err := n.Runtime().RunPodSandbox(t.Context(),
		&runtimeapi.RunPodSandboxRequest{Config: sandbox})
	if err != nil {
		t.Fatal(err)
	}
	out, code = runPlayground(t, path, n, nil, "")
	if code != 1 || !strings.Contains(out, "it has 1 pods, which the agent would remove") {
		t.Errorf("on a runtime with pods: exit code %d, want 1 and the reason\n%s", code, out)
	}
}

func wantEmpty(t *testing.T, n *nodetest.Node) {
	t.Helper()
	pods, err := n.Runtime().ListPodSandbox(t.Context(), &runtimeapi.ListPodSandboxRequest{})
	if err != nil || len(pods.Items) > 0 {
		t.Errorf("pods left: %v, %v", pods.GetItems(), err)
	}
	images, err := n.ImageService().ListImages(t.Context(), &runtimeapi.ListImagesRequest{})
	if err != nil {
		t.Fatal(err)
	}
	for _, image := range images.Images {
		for _, tag := range image.RepoTags {
			if strings.Contains(tag, "/seedlet/sample:") {
				t.Errorf("image left: %s", tag)
			}
		}
	}
}

func TestReadSettings(t *testing.T) {
	for _, c := range []struct {
		args           []string
		duration, want string // want is contained in the error; empty for no error
	}{
		{nil, "", ""},
		{nil, "30s", ""},
		{[]string{"setup"}, "", ""},
		{[]string{"cluster"}, "", ""},
		{[]string{"image"}, "", ""},
		{[]string{"stop"}, "", `arguments ["stop"]`},
		{[]string{"setup", "cluster"}, "", `arguments ["setup" "cluster"]`},
		{nil, "30", "DURATION=30: want a positive duration"},
		{nil, "-1s", "DURATION=-1s: want a positive duration"},
	} {
		env := func(name string) string { return map[string]string{"DURATION": c.duration}[name] }
		s, err := readSettings(c.args, env)
		switch {
		case c.want == "" && err != nil:
			t.Errorf("readSettings(%q, %q): %v", c.args, c.duration, err)
		case c.want == "" && s.command != strings.Join(c.args, ""):
			t.Errorf("readSettings(%q): %+v", c.args, s)
		case c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)):
			t.Errorf("readSettings(%q, %q): %v, want %q", c.args, c.duration, err, c.want)
		}
	}
}
