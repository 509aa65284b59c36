package cluster

import (
	"context"
	_ "embed"
	"net"
	"strings"

	"seedlet.dev/realworld/cleanup"
)

// metricsUser is the user of metrics-server, at the API server and at nodes.
const metricsUser = "metrics-server"

// metricsManifests have the roles and the address of metrics-server.
//
//go:embed metrics.yaml
var metricsManifests string

// startMetrics starts metrics-server and registers it in the API server for metrics.k8s.io. It has
// metrics of a node after it has scraped the node twice.
func (c *Cluster) startMetrics(ctx context.Context) error {
	var address string
	return c.startComponent(ctx, &c.metrics,
		func() (component *cleanup.Daemon, err error) {
			component, address, err = c.newMetrics(ctx)
			return component, err
		},
		func(ctx context.Context) error { return get(ctx, c.client, "https://"+address+"/livez") })
}

func (c *Cluster) newMetrics(ctx context.Context) (*cleanup.Daemon, string, error) {
	kubeconfig, err := c.UserKubeconfig(metricsUser)
	if err != nil {
		return nil, "", err
	}
	address, err := freeAddress(c.Address) // a loopback address is not valid in an endpoint
	if err != nil {
		return nil, "", err
	}
	host, port, _ := net.SplitHostPort(address) // valid: from freeAddress
	at := strings.NewReplacer("ADDRESS", host, "PORT", port)
	// The roles come first: metrics-server exits without them.
	if err := c.Apply(ctx, at.Replace(metricsManifests)); err != nil {
		return nil, "", err
	}
	args := append(c.servingArgs(kubeconfig, address),
		"--kubelet-preferred-address-types=InternalIP",
		"--kubelet-use-node-status-port",
		"--kubelet-insecure-tls",  // the agent's certificate is self-signed
		"--metric-resolution=10s", // the shortest interval that it accepts
		"--kubelet-request-timeout=5s",
	)
	return c.newDaemon(c.tools.path(metricsServer), args...), address, nil
}
