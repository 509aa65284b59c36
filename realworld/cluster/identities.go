package cluster

import (
	"crypto/x509/pkix"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
)

// The groups that have rights in the API server by default.
const (
	mastersGroup = "system:masters" // all rights
	nodesGroup   = "system:nodes"
)

// serviceRange is the range of service addresses; the first is the API server's.
var serviceRange = netip.MustParsePrefix("10.96.0.0/16")

// makeIdentities creates all keys and certificates of the components.
func (c *Cluster) makeIdentities() error {
	if err := os.Mkdir(pkiPath(c.Dir), 0o700); err != nil {
		return fmt.Errorf("making a directory: %w", err)
	}
	var err error
	var own pair
	if c.ca, own, err = newAuthority("seedlet-test-ca"); err != nil {
		return err
	}
	private, public, err := newKeyPair()
	if err != nil {
		return err
	}
	names := []string{"localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc",
		"kubernetes.default.svc.cluster.local"}
	serving, err := c.ca.issue(pkix.Name{CommonName: "control-plane"}, names,
		addresses(c.Address, loopback, serviceRange.Addr().Next()))
	if err != nil {
		return err
	}
	// This group has access to nodes without further roles.
	kubelets, err := c.ca.client("kube-apiserver-kubelet-client", mastersGroup)
	if err != nil {
		return err
	}
	pki := pkiPath(c.Dir)
	return errors.Join(
		own.write(pki, "ca"),
		writeSecret(c.pkiFile("service-account.key"), private),
		writeSecret(c.pkiFile("service-account.pub"), public),
		serving.write(pki, "serving"),
		kubelets.write(pki, "apiserver-kubelet-client"),
		c.makeEtcdIdentity(),
		c.makeFrontProxyIdentity(),
		c.makeAdmin(),
	)
}

// makeAdmin writes the kubeconfig of the administrator, and creates the client for readiness
// checks, which has the same identity.
func (c *Cluster) makeAdmin() error {
	admin, err := c.ca.client("admin", mastersGroup)
	if err != nil {
		return err
	}
	if _, err := c.Kubeconfig("admin", Credential{admin.certificate, admin.key, ""}); err != nil {
		return err
	}
	c.client, err = newClient(c.ca.certificate, admin)
	return err
}

// makeEtcdIdentity creates the certificate of etcd and its clients. It has another authority,
// because clients of the API server must have no access to etcd.
func (c *Cluster) makeEtcdIdentity() error {
	ca, own, err := newAuthority("seedlet-test-etcd-ca")
	if err != nil {
		return err
	}
	both, err := ca.issue(pkix.Name{CommonName: "etcd"}, []string{"localhost"}, addresses(loopback))
	if err != nil {
		return err
	}
	if c.etcdClient, err = newClient(ca.certificate, both); err != nil {
		return err
	}
	return errors.Join(
		writeSecret(c.pkiFile("etcd-ca.crt"), own.certificate),
		both.write(pkiPath(c.Dir), "etcd"),
	)
}

// makeFrontProxyIdentity creates the certificate with which the API server forwards the requests of
// its users to aggregated API servers. The components need its authority.
func (c *Cluster) makeFrontProxyIdentity() error {
	ca, own, err := newAuthority("seedlet-test-front-proxy-ca")
	if err != nil {
		return err
	}
	proxy, err := ca.client("front-proxy")
	if err != nil {
		return err
	}
	return errors.Join(
		writeSecret(c.pkiFile("front-proxy-ca.crt"), own.certificate),
		proxy.write(pkiPath(c.Dir), "front-proxy"),
	)
}

func addresses(of ...netip.Addr) []net.IP {
	var ips []net.IP
	for _, a := range of {
		ips = append(ips, net.IP(a.AsSlice()))
	}
	return ips
}
