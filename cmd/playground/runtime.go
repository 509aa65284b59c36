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

// defaultSocket is where a machine's own containerd listens.
const defaultSocket = "/run/containerd/containerd.sock"

// node is the runtime that the pods run on: a private one, or one that was there.
type node struct {
	endpoint string
	image    string // the sample's reference, as the runtime pulls it
	dir      string // temporary, removed by close
	conn     *grpc.ClientConn
	private  *nodetest.Node     // nil for a runtime that was there
	registry *nodetest.Registry // nil for a private one, which has its own
}

// openNode finds a runtime or starts a private one.
func openNode(ctx context.Context, endpoint string) (*node, error) {
	if endpoint != "" {
		if err := usable(ctx, endpoint); err != nil {
			return nil, fmt.Errorf("CONTAINER_RUNTIME_ENDPOINT=%s: %w", endpoint, err)
		}
		return borrow(ctx, endpoint)
	}
	if _, err := os.Stat(defaultSocket); err == nil {
		err := usable(ctx, "unix://"+defaultSocket)
		if err == nil {
			return borrow(ctx, "unix://"+defaultSocket)
		}
		say("leaving the containerd of this machine alone: " + err.Error())
	}
	return startPrivate(ctx)
}

// usable says why a runtime is not one to play on. The agent takes the pods of its runtime for
// its own and ends those that it has no manifest for, so a runtime with pods is out of bounds.
func usable(ctx context.Context, endpoint string) error {
	conn, err := nodetest.Dial(endpoint)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }() // a connection for questions
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	client := runtimeapi.NewRuntimeServiceClient(conn)
	if err := nodetest.Ready(ctx, client); err != nil {
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

func borrow(ctx context.Context, endpoint string) (*node, error) {
	say("using the runtime at " + endpoint)
	n := &node{endpoint: endpoint}
	var err error
	if n.dir, err = os.MkdirTemp("", "seedlet-playground-"); err != nil {
		return nil, fmt.Errorf("making a directory: %w", err)
	}
	say("building the sample image and serving it from a loopback registry")
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
	if err := nodetest.Install(ctx, nodetest.Debian, say); err != nil {
		return nil, fmt.Errorf("setting up a private containerd: %w", err)
	}
	private, err := nodetest.Start(ctx, nodetest.Options{Version: nodetest.Debian, Progress: say})
	if err != nil {
		return nil, fmt.Errorf("starting a private containerd: %w", err)
	}
	n := &node{endpoint: private.Endpoint, image: private.Images.Sample, private: private}
	// Inside the node's directory: if this process dies, the node's guard ends the agent too.
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

// cgroupRoot is where the agent makes the cgroups of its pods.
func (n *node) cgroupRoot() string {
	if n.private != nil {
		return nodetest.CgroupRoot(n.private.Dir)
	}
	return nodetest.CgroupRoot(n.dir)
}

// waitEmpty waits until the runtime holds no pod any more.
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

// close removes everything that openNode made, and the pods and images that are left.
func (n *node) close() error {
	if n.private != nil {
		if n.conn != nil {
			_ = n.conn.Close() // the node below is removed as a whole
		}
		return n.private.Close()
	}
	var problems []error
	if n.conn != nil {
		problems = append(problems, n.giveBack(), n.conn.Close())
	}
	if n.registry != nil {
		n.registry.Close()
	}
	return errors.Join(append(problems, nodetest.RemoveCgroups(n.dir), os.RemoveAll(n.dir))...)
}

// giveBack empties a runtime that was there before: it had no pods, and not this image.
func (n *node) giveBack() error {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	image := &runtimeapi.ImageSpec{Image: n.image}
	_, err := runtimeapi.NewImageServiceClient(n.conn).RemoveImage(ctx,
		&runtimeapi.RemoveImageRequest{Image: image})
	return errors.Join(nodetest.RemovePods(ctx, n.runtime()), err)
}
