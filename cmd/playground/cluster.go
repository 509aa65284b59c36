package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"seedlet.dev/realworld/cluster"
)

// clusterNode is the name of the node of the cluster that one plays with.
const clusterNode = "seedling"

// nodeReadyMax is how long the agent may take until the cluster has it as a node that is ready.
const nodeReadyMax = "60s"

// runCluster starts a control plane, and a node of it, tells how to use it, and takes everything
// away again when it is asked to stop or the time is over.
func runCluster(asked context.Context, s settings) (err error) {
	if err := cluster.Install(asked, say); err != nil {
		return orInterrupted(asked, fmt.Errorf("setting up a cluster: %w", err))
	}
	say("starting etcd, kube-apiserver, kube-controller-manager, kube-scheduler, metrics-server")
	c, err := cluster.Start(asked, cluster.Options{Metrics: true, Progress: say})
	if err != nil {
		return orInterrupted(asked, err)
	}
	defer func() {
		say("removing the cluster")
		err = errors.Join(err, c.Stop())
	}()
	n, a, err := join(asked, c)
	if n != nil {
		defer func() { err = errors.Join(err, n.close()) }()
	}
	if err != nil {
		return orInterrupted(asked, err)
	}
	explain(c, n.image)
	err = stay(asked, s.duration, a)
	a.Stop()
	return err
}

// join starts a runtime and the agent as a node of the cluster. The node is to be closed even if
// there is an error.
func join(ctx context.Context, c *cluster.Cluster) (*node, *agent, error) {
	kubeconfig, err := c.NodeKubeconfig(clusterNode)
	if err != nil {
		return nil, nil, err
	}
	n, err := startPrivate(ctx)
	if err != nil {
		return nil, nil, err
	}
	say("starting bin/seedlet as node " + clusterNode)
	address := c.Address.String()
	a, err := startAgent(n, part{
		name: clusterNode, address: address,
		flags:  []string{"--kubeconfig=" + kubeconfig, "--node-ip=" + address},
		config: fmt.Sprintf("authentication:\n  x509:\n    clientCAFile: %q\n", c.AuthorityFile()),
	})
	if err == nil {
		err = a.waitReady(ctx)
	}
	if err == nil {
		_, err = c.Kubectl(ctx, "wait", "--for=create", "node/"+clusterNode,
			"--timeout="+nodeReadyMax)
	}
	if err == nil {
		_, err = c.Kubectl(ctx, "wait", "--for=condition=Ready", "node/"+clusterNode,
			"--timeout="+nodeReadyMax)
	}
	if err != nil && a != nil {
		err = fmt.Errorf("%w\nthe end of the agent's log:\n%s", err, a.logTail(logLines))
		a.Stop()
	}
	return n, a, err
}

// explain tells how to use a cluster, and the image that can be run without a registry elsewhere.
func explain(c *cluster.Cluster, image string) {
	say("the cluster is ready; in another terminal:")
	fmt.Printf("\nexport KUBECONFIG=%s\n", c.Admin())
	fmt.Printf("export PATH=%s:$PATH\n", filepath.Dir(c.KubectlPath()))
	fmt.Printf("kubectl run web --image=%s -- web\n\n", image)
	say("logs are in " + c.Dir + "; Ctrl-C to stop")
}

// stay waits until it is asked to stop, the time is over, or the agent has ended, if there is one.
func stay(asked context.Context, duration time.Duration, a *agent) error {
	var over <-chan time.Time // never, without a duration
	if duration > 0 {
		over = time.After(duration)
	}
	var ended <-chan struct{}
	if a != nil {
		ended = a.Exited()
	}
	select {
	case <-asked.Done():
	case <-over:
	case <-ended:
		fmt.Fprintf(os.Stderr, "the end of the agent's log:\n%s\n", a.logTail(logLines))
		return errors.New("the agent ended by itself")
	}
	return nil
}
