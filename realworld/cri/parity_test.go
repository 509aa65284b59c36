package cri_test

import (
	"errors"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"testing"

	"github.com/google/go-containerregistry/pkg/crane"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"seedlet.dev/realworld/cri"
	"seedlet.dev/realworld/nodetest"
	"seedlet.dev/realworld/porttest"
	"seedlet.dev/world/parity"
)

// node is a parity.Runtime on a private containerd.
type node struct {
	*porttest.World
	t     *testing.T
	image string // of all containers, pulled
	logs  string // an existing directory
}

// processArgs are the sample's arguments for each behaviour. As PID 1 of its container the sample
// has no default action for TERM and can only exit by itself, so it exits with the signal's code.
var processArgs = map[parity.Process][]string{
	parity.Runs:         {"sleep", "--code", "143"},
	parity.Exits3:       {"exit", "--code", "3"},
	parity.Exits0:       {"exit", "--code", "0"},
	parity.IgnoresTerm:  {"sleep", "--ignore-term"},
	parity.HandlesTerm7: {"sleep", "--stop-takes", "1s", "--code", "7"},
}

func (n *node) Sandbox() *runtimeapi.PodSandboxConfig {
	return &runtimeapi.PodSandboxConfig{
		LogDirectory: n.logs,
		Linux:        &runtimeapi.LinuxPodSandboxConfig{},
	}
}

func (n *node) Container(p parity.Process) *runtimeapi.ContainerConfig {
	args, ok := processArgs[p]
	if !ok {
		n.t.Fatalf("no process %q", p)
	}
	return &runtimeapi.ContainerConfig{
		Image:   &runtimeapi.ImageSpec{Image: n.image, UserSpecifiedImage: n.image},
		Command: []string{"/sample"},
		Args:    args,
		Linux:   &runtimeapi.LinuxContainerConfig{},
	}
}

// Images returns the sample by another tag, which the runtime has not pulled.
func (n *node) Images() (pullable, missing string) {
	repository := path.Dir(n.image)
	pullable = repository + "/parity:v1"
	if err := crane.Copy(n.image, pullable, crane.Insecure); err != nil {
		n.t.Fatalf("copying the image to pull: %v", err)
	}
	return pullable, repository + "/missing:v1"
}

// WaitHandlers waits until the sample has written a line to its log. That follows its handlers.
func (n *node) WaitHandlers(logPath string) {
	porttest.Eventually(n.t, "there is a line in "+logPath, func() bool {
		return n.LogBytes(logPath) > 0
	})
}

func (n *node) Exec(c parity.Command) ([]string, *runtimeapi.ExecSyncResponse) {
	switch c {
	case parity.Succeeds:
		return []string{"/sample", "exit"},
			&runtimeapi.ExecSyncResponse{Stdout: []byte("exiting with 0 after 0s\n")}
	case parity.Fails:
		return []string{"/sample", "write"}, &runtimeapi.ExecSyncResponse{
			ExitCode: 2, Stderr: []byte("sample write: want PATH and TEXT\n")}
	case parity.Hangs:
		return []string{"/sample", "sleep", "--ignore-term"}, nil
	case parity.NoProgram:
		return []string{"/no-program"}, nil
	}
	n.t.Fatalf("no command %q", c)
	return nil, nil
}

func (n *node) RenameLog(from, to string) {
	if err := os.Rename(filepath.Join(n.logs, from), filepath.Join(n.logs, to)); err != nil {
		n.t.Fatal(err)
	}
}

func (n *node) LogBytes(name string) int64 {
	info, err := os.Stat(filepath.Join(n.logs, name))
	if errors.Is(err, fs.ErrNotExist) {
		return -1
	}
	if err != nil {
		n.t.Fatal(err)
	}
	return info.Size()
}

func TestParity(t *testing.T) {
	for _, version := range nodetest.Versions() {
		t.Run(version, func(t *testing.T) {
			private := nodetest.New(t, version)
			w := porttest.New()
			port, err := cri.New(cri.Options{
				RuntimeEndpoint: private.Endpoint, Clock: w.Clock, Deliver: w.Deliver,
				Offer: w.Offer,
			})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() {
				if err := port.Close(); err != nil {
					t.Error(err)
				}
			})
			w.Port = port
			image := private.Images.Sample
			if _, err := w.Call(&runtimeapi.PullImageRequest{
				Image: &runtimeapi.ImageSpec{Image: image, UserSpecifiedImage: image},
			}); err != nil {
				t.Fatal(err)
			}
			n := &node{World: w, t: t, image: image, logs: t.TempDir()}
			parity.CRI(t, n)
			parity.Exec(t, n)
			parity.Logs(t, n)
			if version == nodetest.Debian {
				parity.NoEvents(t, n)
			} else {
				parity.Events(t, n)
			}
			t.Run("exec timeout kills the command", func(t *testing.T) {
				testExecTimeoutKillsCommand(t, n)
			})
		})
	}
}
