// Package nodetest runs a private container runtime for tests and for the playground: a real
// containerd with its own root, state, socket and pod network, and a loopback registry with
// images made from this repository's own code.
//
// The contract:
//
//  1. A node has one directory and shares nothing with the machine's own runtime but the kernel.
//     Everything outside the directory (bridge, mounts, processes) has its path, or a name made
//     from the path, and can be found by it.
//  2. Close removes all of it, each part by its own id. A guard process does the same if the
//     process that started the node dies without closing it.
//  3. Only this package starts containerd; it needs Linux and root.
//
// Start reading at Start and Close, then leftovers.go for the removal of everything.
package nodetest

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"time"

	"google.golang.org/grpc"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"seedlet.dev/realworld/cleanup"
)

// Timeouts of the start and the end of a node. A busy machine takes ten times as long as an idle
// one, and a timeout costs time only when something is wrong.
const (
	readyMax   = 5 * time.Minute  // from the start of containerd until its CRI is ready
	podStopMax = 20 * time.Second // to stop and remove all pods through the CRI
)

// socketPathMax is the longest path in the kernel's sockaddr_un, without the final zero.
const socketPathMax = 107

// Options configure a node.
type Options struct {
	Dir      string            // created if absent, removed by Close; empty for a temporary one
	Version  string            // Debian, V2, or the path of a containerd binary
	Progress func(line string) // called with progress; may be nil

	// SystemdCgroups has the runtime make cgroups by systemd, which must be process 1.
	SystemdCgroups bool
}

// Node is a running private node.
type Node struct {
	Endpoint string // of the CRI, "unix:///…/containerd.sock"
	Dir      string
	Images   Images

	daemon   *cleanup.Daemon
	registry *Registry
	guard    *cleanup.Guard
	conn     *grpc.ClientConn
	subnet   netip.Prefix // of the pods
	closed   bool
}

// Start starts a node and waits until its CRI reports runtime and network as ready. Leftovers of an
// earlier node in the same directory are removed first. After an error nothing is left.
func Start(ctx context.Context, o Options) (*Node, error) {
	progress := o.Progress
	if progress == nil {
		progress = func(string) {}
	}
	tools, err := findTools(o.Version)
	if err != nil {
		return nil, err
	}
	dir, err := prepareDir(o.Dir)
	if err != nil {
		return nil, err
	}
	n := &Node{Dir: dir, Endpoint: "unix://" + socketPath(dir)}
	if err := n.start(ctx, o, tools, progress); err != nil {
		return nil, errors.Join(err, n.Close())
	}
	return n, nil
}

func (n *Node) start(ctx context.Context, o Options, tools tools,
	progress func(string)) (err error) {
	if n.guard, err = cleanup.StartGuard(guardKind, n.Dir); err != nil {
		return err
	}
	if err := CreateCgroups(n.Dir); err != nil {
		return err
	}
	progress("building the sample image and serving it from a loopback registry")
	if n.registry, err = StartRegistry(ctx); err != nil {
		return err
	}
	n.Images = n.registry.Images
	if n.subnet, err = writeNetwork(n.Dir); err != nil {
		return err
	}
	if err := writeConfig(n.Dir, tools, n.registry, o.SystemdCgroups); err != nil {
		return err
	}
	progress("starting " + tools.containerd + " in " + n.Dir)
	n.daemon = newDaemon(tools, n.Dir)
	if err := n.daemon.Start(); err != nil {
		return err
	}
	if n.conn, err = Dial(n.Endpoint); err != nil {
		return err
	}
	return n.waitReady(ctx)
}

// dirMode is the mode of a node's directory. Containers in a user namespace reach their root file
// systems in it as another user than root.
const dirMode = 0o711

// prepareDir creates the node's directory, or removes the leftovers of an earlier node in it.
func prepareDir(dir string) (string, error) {
	if dir == "" {
		dir, err := os.MkdirTemp("", "seedlet-node-")
		if err == nil {
			err = os.Chmod(dir, dirMode)
		}
		return dir, err
	}
	dir, err := filepath.Abs(dir)
	if err != nil {
		return "", fmt.Errorf("naming the node directory: %w", err)
	}
	if len(socketPath(dir)) > socketPathMax {
		return "", fmt.Errorf("node directory %s: too long for a socket in it (%d bytes at most)",
			dir, socketPathMax-len(socketPath("")))
	}
	entries, err := os.ReadDir(dir)
	if err == nil && len(entries) > 0 {
		if !isNodeDir(dir) {
			return "", fmt.Errorf("node directory %s: holds files that are not a node's", dir)
		}
		if err := sweep(dir); err != nil {
			return "", fmt.Errorf("removing a former node: %w", err)
		}
	}
	if err := os.MkdirAll(dir, dirMode); err != nil {
		return "", fmt.Errorf("making the node directory: %w", err)
	}
	return dir, nil
}

// waitReady waits until the CRI reports runtime and network as ready.
func (n *Node) waitReady(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, readyMax)
	defer cancel()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		problem := CheckReady(ctx, n.Runtime())
		if problem == nil {
			return nil
		}
		select {
		case <-n.daemon.Exited():
			return fmt.Errorf("containerd ended by itself:\n%s", n.daemon.LogTail())
		case <-ctx.Done():
			return fmt.Errorf("containerd did not get ready: %w\n%s", problem, n.daemon.LogTail())
		case <-tick.C:
		}
	}
}

// Runtime returns a CRI client of the node, independent of the agent under test. Calls fail while
// containerd is down, and succeed again within a second after its restart.
func (n *Node) Runtime() runtimeapi.RuntimeServiceClient {
	return runtimeapi.NewRuntimeServiceClient(n.conn)
}

// ImageService returns a client of the CRI's image service.
func (n *Node) ImageService() runtimeapi.ImageServiceClient {
	return runtimeapi.NewImageServiceClient(n.conn)
}

// Registry returns the registry of the project's images for the node's runtime.
func (n *Node) Registry() *Registry { return n.registry }

// LogFile returns the path of containerd's log, which restarts append to.
func (n *Node) LogFile() string { return n.daemon.LogFile }

// PID returns the process id of containerd.
func (n *Node) PID() int { return n.daemon.PID() }

// Kill ends containerd with SIGKILL. Its shims and containers keep running.
func (n *Node) Kill() error { return n.daemon.Kill() }

// Restart kills containerd if it runs, starts it again with the same state, and waits until its CRI
// is ready.
func (n *Node) Restart(ctx context.Context) error {
	if err := n.daemon.Kill(); err != nil {
		return err
	}
	if err := n.daemon.Start(); err != nil {
		return err
	}
	n.conn.ResetConnectBackoff()
	return n.waitReady(ctx)
}

// Close removes the node and everything it created. Further calls do nothing. Pods are removed
// through the CRI if containerd responds; the sweep removes the rest.
func (n *Node) Close() error {
	if n.closed {
		return nil
	}
	n.closed = true
	if n.conn != nil {
		if n.daemon.Running() {
			ctx, cancel := context.WithTimeout(context.Background(), podStopMax)
			_ = RemovePods(ctx, n.Runtime()) // the sweep below removes what failed here
			cancel()
		}
		_ = n.conn.Close() // the connection has no data to lose
	}
	if n.daemon != nil {
		n.daemon.Stop()
	}
	if n.registry != nil {
		n.registry.Close()
	}
	err := sweep(n.Dir)
	if n.guard != nil {
		n.guard.Dismiss()
	}
	if err != nil {
		return fmt.Errorf("removing the node at %s: %w", n.Dir, err)
	}
	return nil
}
