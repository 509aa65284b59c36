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

// clusterNode is the name of the only node of the cluster.
const clusterNode = "seedling"

// nodeReadyMax bounds the time until the API server has the Node as Ready.
const nodeReadyMax = "60s"

// runCluster starts a control plane with a node, prints how to use it, and removes both on Ctrl-C
// or when the time is up.
func runCluster(interrupted context.Context, s settings) (err error) {
	if err := cluster.Install(interrupted, printProgress); err != nil {
		return orInterrupted(interrupted, fmt.Errorf("setting up a cluster: %w", err))
	}
	printProgress("starting etcd, kube-apiserver, kube-controller-manager, kube-scheduler, " +
		"metrics-server")
	c, err := cluster.Start(interrupted, cluster.Options{Metrics: true, Progress: printProgress})
	if err != nil {
		return orInterrupted(interrupted, err)
	}
	defer func() {
		printProgress("removing the cluster")
		err = errors.Join(err, c.Stop())
	}()
	n, a, err := join(interrupted, c)
	if n != nil {
		defer func() { err = errors.Join(err, n.close()) }()
	}
	if err != nil {
		return orInterrupted(interrupted, err)
	}
	printInstructions(c, n.image)
	err = waitForEnd(interrupted, s.duration, a)
	a.Stop()
	return err
}

// join starts a runtime and the agent as a node of the cluster. The caller closes the node, also
// after an error.
func join(ctx context.Context, c *cluster.Cluster) (*node, *agent, error) {
	kubeconfig, err := c.NodeKubeconfig(clusterNode)
	if err != nil {
		return nil, nil, err
	}
	n, err := startPrivate(ctx)
	if err != nil {
		return nil, nil, err
	}
	printProgress("starting bin/seedlet as node " + clusterNode)
	address := c.Address.String()
	a, err := startAgent(n, role{
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

// printInstructions prints how to use the cluster, and the image that needs no external registry.
func printInstructions(c *cluster.Cluster, image string) {
	printProgress("the cluster is ready; in another terminal:")
	fmt.Printf("\nexport KUBECONFIG=%s\n", c.AdminKubeconfig())
	fmt.Printf("export PATH=%s:$PATH\n", filepath.Dir(c.KubectlPath()))
	fmt.Printf("kubectl run web --image=%s -- web\n\n", image)
	printProgress("logs are in " + c.Dir + "; Ctrl-C to stop")
}

// waitForEnd waits for Ctrl-C, the end of the time, or the end of the agent.
func waitForEnd(interrupted context.Context, duration time.Duration, a *agent) error {
	var timeUp <-chan time.Time // nil, which never fires, without a duration
	if duration > 0 {
		timeUp = time.After(duration)
	}
	var ended <-chan struct{}
	if a != nil {
		ended = a.Exited()
	}
	select {
	case <-interrupted.Done():
	case <-timeUp:
	case <-ended:
		fmt.Fprintf(os.Stderr, "the end of the agent's log:\n%s\n", a.logTail(logLines))
		return errors.New("the agent ended by itself")
	}
	return nil
}
