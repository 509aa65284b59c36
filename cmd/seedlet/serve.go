package main

import (
	"slices"

	"k8s.io/klog/v2"

	"seedlet.dev/realworld/access"
	"seedlet.dev/realworld/identity"
	"seedlet.dev/realworld/portmetrics"
	"seedlet.dev/realworld/web"
	"seedlet.dev/world"
)

// serveSecurePort opens the port with authentication and authorization.
func (n *node) serveSecurePort(s settings, nodeName string) error {
	c := s.config
	warn := func(problem string) { klog.InfoS(problem, "severity", "warning") }
	serving := identity.ServingOptions{
		CertFile: c.TLSCertFile, KeyFile: c.TLSPrivateKeyFile, CertDir: s.api.certDir,
		NodeName: nodeName, HostName: nodeName, Request: c.ServerTLSBootstrap, Warn: warn,
	}
	accessOptions := access.Options{NodeName: nodeName, Authentication: c.Authentication,
		Authorization: c.Authorization, Warn: warn}
	var err error
	if n.api != nil {
		reviewer, err := n.api.reviewer(c.KubeAPIQPS, c.KubeAPIBurst)
		if err != nil {
			return err
		}
		accessOptions.Reviewer, serving.Identity = reviewer, n.api.identity
	}
	if n.access, err = access.New(accessOptions); err != nil {
		return err
	}
	if n.serving, err = identity.NewServing(serving); err != nil {
		return err
	}
	config, err := web.TLSConfig(c, n.serving.Certificate)
	if err != nil {
		return err
	}
	n.access.TLS(config)
	handler := n.requests.Secure(web.Secure{
		Config: c, Version: version, Flags: s.flags, Guard: n.guard,
		Containers: web.Routes{n.containers.Register},
		SystemLog:  web.Routes{newSystemLogs(c).Register},
	})
	server, err := web.ListenTLS(c.Address, int(c.Port),
		n.metrics.Handler(portmetrics.ReadWrite, handler), config)
	if err != nil {
		return err
	}
	n.servers = append(n.servers, server)
	n.serving.Start()
	return nil
}

// serverMetrics returns the metrics of the servers and of the queue of requests. They are asked for
// only after the core has answered, so after all servers have been started.
func (n *node) serverMetrics() []world.Metric {
	metrics := slices.Concat(n.containers.Metrics(), n.runner.Metrics(), n.oomWatch.Metrics())
	if n.access != nil {
		metrics = append(metrics, n.access.Metrics()...)
	}
	if n.api != nil {
		metrics = append(metrics, n.api.identity.Metrics()...)
	}
	if n.serving != nil {
		metrics = append(metrics, n.serving.Metrics()...)
	}
	for _, server := range n.servers {
		metrics = append(metrics, server.Metrics()...)
	}
	return metrics
}

// reviewer returns a client for token and access reviews, with a connection of its own: reviews
// that unauthenticated clients cause delay no other request. It is closed with the identity.
func (a *apiConnection) reviewer(qps *int32, burst int32) (*identity.Groups, error) {
	conn, err := a.identity.Connect()
	if err != nil {
		return nil, err
	}
	config := a.identity.Config()
	config.QPS, config.Burst = float32(*qps), int(burst)
	return identity.NewGroups(config, conn.Client)
}
