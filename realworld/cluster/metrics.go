package cluster

import (
	"context"
	_ "embed"
	"net"
	"strings"

	"seedlet.dev/realworld/owned"
)

// metricsUser is who metrics-server is, for the API server and for nodes.
const metricsUser = "metrics-server"

// metricsManifests say what metrics-server may do and where it is.
//
//go:embed metrics.yaml
var metricsManifests string

// startMetrics starts metrics-server and has the API server pass metrics.k8s.io on to it. It has
// figures of a node when it has asked it twice.
func (c *Cluster) startMetrics(ctx context.Context) error {
	var address string
	return c.serve(ctx, &c.metrics,
		func() (made *owned.Daemon, err error) {
			made, address, err = c.newMetrics(ctx)
			return made, err
		},
		func(ctx context.Context) error { return get(ctx, c.client, "https://"+address+"/livez") })
}

func (c *Cluster) newMetrics(ctx context.Context) (*owned.Daemon, string, error) {
	kubeconfig, err := c.UserKubeconfig(metricsUser)
	if err != nil {
		return nil, "", err
	}
	address, err := freeAddress(c.Address) // loopback is no address of an endpoint
	if err != nil {
		return nil, "", err
	}
	host, port, _ := net.SplitHostPort(address) // as freeAddress made it
	at := strings.NewReplacer("ADDRESS", host, "PORT", port)
	// First its rights: it ends without them.
	if err := c.Apply(ctx, at.Replace(metricsManifests)); err != nil {
		return nil, "", err
	}
	args := append(c.serving(kubeconfig, address),
		"--kubelet-preferred-address-types=InternalIP",
		"--kubelet-use-node-status-port",
		"--kubelet-insecure-tls",  // the agent's own certificate will do
		"--metric-resolution=10s", // as often as it can be told
		"--kubelet-request-timeout=5s",
	)
	return c.daemon(c.tools.path(metricsServer), args...), address, nil
}
