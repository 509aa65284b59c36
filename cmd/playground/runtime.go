package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"google.golang.org/grpc"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"seedlet.dev/realworld/nodetest"
)

// defaultSocket is the socket of a machine's own containerd.
const defaultSocket = "/run/containerd/containerd.sock"

// node is the runtime of the pods: a private one, or an existing one.
type node struct {
	endpoint string
	image    string // reference of the sample image for the runtime
	dir      string // temporary, removed by close
	conn     *grpc.ClientConn
	private  *nodetest.Node     // nil for an existing runtime
	registry *nodetest.Registry // nil for a private runtime, which has its own
}

// openNode finds a runtime or starts a private one.
func openNode(ctx context.Context, endpoint string) (*node, error) {
	if endpoint != "" {
		if err := checkUsable(ctx, endpoint); err != nil {
			return nil, fmt.Errorf("CONTAINER_RUNTIME_ENDPOINT=%s: %w", endpoint, err)
		}
		return useExisting(ctx, endpoint)
	}
	if _, err := os.Stat(defaultSocket); err == nil {
		err := checkUsable(ctx, "unix://"+defaultSocket)
		if err == nil {
			return useExisting(ctx, "unix://"+defaultSocket)
		}
		printProgress("leaving the containerd of this machine alone: " + err.Error())
	}
	return startPrivate(ctx)
}

// checkUsable returns an error if a runtime has pods. The agent regards all pods of its runtime as
// its own and ends those without a manifest.
func checkUsable(ctx context.Context, endpoint string) error {
	conn, err := nodetest.Dial(endpoint)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }() // used for queries only
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	client := runtimeapi.NewRuntimeServiceClient(conn)
	if err := nodetest.CheckReady(ctx, client); err != nil {
		return err
	}
	answer, err := client.ListPodSandbox(ctx, &runtimeapi.ListPodSandboxRequest{})
	if err != nil {
		return err
	}
	if n := len(answer.Items); n > 0 {
		return fmt.Errorf("it has %d pods, which the agent would remove", n)
	}
	return nil
}

func useExisting(ctx context.Context, endpoint string) (*node, error) {
	printProgress("using the runtime at " + endpoint)
	n := &node{endpoint: endpoint}
	var err error
	if n.dir, err = os.MkdirTemp("", "seedlet-playground-"); err != nil {
		return nil, fmt.Errorf("making a directory: %w", err)
	}
	if err := nodetest.CreateCgroups(n.dir); err != nil {
		return nil, errors.Join(err, n.close())
	}
	printProgress("building the sample image and serving it from a loopback registry")
	if n.registry, err = nodetest.StartRegistry(ctx); err != nil {
		return nil, errors.Join(err, n.close())
	}
	n.image = n.registry.Images.Sample
	if n.conn, err = nodetest.Dial(endpoint); err != nil {
		return nil, errors.Join(err, n.close())
	}
	return n, nil
}

func startPrivate(ctx context.Context) (*node, error) {
	if err := nodetest.Install(ctx, nodetest.Debian, printProgress); err != nil {
		return nil, fmt.Errorf("setting up a private containerd: %w", err)
	}
	private, err := nodetest.Start(ctx,
		nodetest.Options{Version: nodetest.Debian, Progress: printProgress})
	if err != nil {
		return nil, fmt.Errorf("starting a private containerd: %w", err)
	}
	n := &node{endpoint: private.Endpoint, image: private.Images.Sample, private: private}
	// The directory is inside the node's: if this process dies, the node's guard ends the agent too.
	n.dir = filepath.Join(private.Dir, "playground")
	if err := os.Mkdir(n.dir, 0o755); err != nil {
		return nil, errors.Join(fmt.Errorf("making a directory: %w", err), n.close())
	}
	if n.conn, err = nodetest.Dial(n.endpoint); err != nil {
		return nil, errors.Join(err, n.close())
	}
	return n, nil
}

func (n *node) runtime() runtimeapi.RuntimeServiceClient {
	return runtimeapi.NewRuntimeServiceClient(n.conn)
}

// cgroupRoot returns the parent cgroup of the pods' cgroups.
func (n *node) cgroupRoot() string {
	if n.private != nil {
		return nodetest.CgroupRoot(n.private.Dir)
	}
	return nodetest.CgroupRoot(n.dir)
}

// waitEmpty waits until the runtime has no sandbox.
func (n *node) waitEmpty(ctx context.Context) error {
	for {
		answer, err := n.runtime().ListPodSandbox(ctx, &runtimeapi.ListPodSandboxRequest{})
		if err == nil && len(answer.Items) == 0 {
			return nil
		}
		select {
		case <-ctx.Done():
			if err != nil {
				return fmt.Errorf("waiting for the pods to end: %w", err)
			}
			return fmt.Errorf("%d pods did not end in time", len(answer.Items))
		case <-time.After(200 * time.Millisecond):
		}
	}
}

// close removes everything that openNode created, and remaining pods and images.
func (n *node) close() error {
	if n.private != nil {
		if n.conn != nil {
			_ = n.conn.Close() // the node is removed as a whole
		}
		return n.private.Close()
	}
	var problems []error
	if n.conn != nil {
		problems = append(problems, n.emptyRuntime(), n.conn.Close())
	}
	if n.registry != nil {
		n.registry.Close()
	}
	// The agent mounts its root directory onto itself if that is on a mount that is not shared.
	problems = append(problems, nodetest.Unmount(filepath.Join(n.dir, "kubelet")),
		nodetest.RemoveCgroups(n.dir))
	return errors.Join(append(problems, os.RemoveAll(n.dir))...)
}

// emptyRuntime removes pods and the sample image from an existing runtime, which had neither
// before.
func (n *node) emptyRuntime() error {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	image := &runtimeapi.ImageSpec{Image: n.image}
	_, err := runtimeapi.NewImageServiceClient(n.conn).RemoveImage(ctx,
		&runtimeapi.RemoveImageRequest{Image: image})
	return errors.Join(nodetest.RemovePods(ctx, n.runtime()), err)
}
