package main

import (
	"k8s.io/klog/v2"

	"seedlet.dev/realworld/access"
	"seedlet.dev/realworld/identity"
	"seedlet.dev/realworld/measure"
	"seedlet.dev/realworld/web"
)

// serveSecurely opens the port that asks who is there.
func (n *node) serveSecurely(s settings, nodeName string) error {
	c := s.config
	warn := func(problem string) { klog.InfoS(problem, "severity", "warning") }
	serving := identity.ServingOptions{
		CertFile: c.TLSCertFile, KeyFile: c.TLSPrivateKeyFile, CertDir: s.api.certDir,
		NodeName: nodeName, HostName: nodeName, Request: c.ServerTLSBootstrap, Warn: warn,
	}
	who := access.Options{NodeName: nodeName, Authentication: c.Authentication,
		Authorization: c.Authorization, Warn: warn}
	if n.api != nil {
		reviewer, err := n.api.reviewer(c.KubeAPIQPS, c.KubeAPIBurst)
		if err != nil {
			return err
		}
		who.Reviewer, serving.Identity = reviewer, n.api.identity
	}
	door, err := access.New(who)
	if err != nil {
		return err
	}
	if n.serving, err = identity.NewServing(serving); err != nil {
		return err
	}
	config, err := web.TLSConfig(c, n.serving.Certificate)
	if err != nil {
		return err
	}
	door.TLS(config)
	handler := n.requests.Secure(web.Secure{
		Config: c, Version: version, Flags: s.flags, Guard: door.Guard,
		Containers: web.Routes{n.containers.Register},
		SystemLog:  web.Routes{systemLogs(c).Register},
	})
	server, err := web.ListenTLS(c.Address, int(c.Port),
		n.numbers.Handler(measure.ReadWrite, handler), config)
	if err != nil {
		return err
	}
	n.servers = append(n.servers, server)
	n.serving.Start()
	return nil
}

// reviewer asks the API server about those who call, over a connection of its own: questions that
// strangers cause delay nothing else. It goes with the identity.
func (a *api) reviewer(qps *int32, burst int32) (*identity.Groups, error) {
	conn, err := a.identity.Connect()
	if err != nil {
		return nil, err
	}
	config := a.identity.Config()
	config.QPS, config.Burst = float32(*qps), int(burst)
	return identity.NewGroups(config, conn.Client)
}
