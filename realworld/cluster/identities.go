package cluster

import (
	"crypto/x509/pkix"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
)

// The groups that the API server gives rights to by itself.
const (
	mastersGroup = "system:masters" // may do everything
	nodesGroup   = "system:nodes"
)

// serviceRange is where services get their addresses; the first is the API server's.
var serviceRange = netip.MustParsePrefix("10.96.0.0/16")

// makeIdentities makes all keys and certificates that the components start with.
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
	// Of this group, for it may speak with nodes without a role that says so.
	kubelets, err := c.ca.client("kube-apiserver-kubelet-client", mastersGroup)
	if err != nil {
		return err
	}
	pki := pkiPath(c.Dir)
	return errors.Join(
		own.write(pki, "ca"),
		writeSecret(c.pki("service-account.key"), private),
		writeSecret(c.pki("service-account.pub"), public),
		serving.write(pki, "serving"),
		kubelets.write(pki, "apiserver-kubelet-client"),
		c.makeEtcdIdentity(),
		c.makeFrontProxyIdentity(),
		c.makeAdmin(),
	)
}

// makeAdmin makes the kubeconfig of the administrator, and the client that watches over the
// components in that name.
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

// makeEtcdIdentity makes the certificate that etcd and its clients show. It is of another
// authority: who may speak with the API server may not write into its store.
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
		writeSecret(c.pki("etcd-ca.crt"), own.certificate),
		both.write(pkiPath(c.Dir), "etcd"),
	)
}

// makeFrontProxyIdentity makes the certificate with which the API server speaks in the name of
// its users to API servers behind it. The components want to know its authority.
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
		writeSecret(c.pki("front-proxy-ca.crt"), own.certificate),
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
