package cluster

import (
	"fmt"
	"net"
	"net/netip"
	"path/filepath"
	"strconv"
	"time"

	"seedlet.dev/realworld/cleanup"
)

var loopback = netip.AddrFrom4([4]byte{127, 0, 0, 1})

// newDaemon returns a component of the cluster: a program with its arguments, whose output is in a
// file of the cluster's directory.
func (c *Cluster) newDaemon(program string, args ...string) *cleanup.Daemon {
	return &cleanup.Daemon{
		Program: program, Args: args, Dir: c.Dir, LogFile: c.LogFile(filepath.Base(program)),
		// The machine's own settings of etcd and proxies must not affect the cluster.
		Env: []string{"PATH=/usr/sbin:/usr/bin:/sbin:/bin", "HOME=" + c.Dir},
	}
}

func (c *Cluster) pkiFile(name string) string { return filepath.Join(pkiPath(c.Dir), name) }

// newEtcd returns an etcd of one member.
//
// Debian 12 has 3.4.23, which does not report how far a watch has progressed (k8s.io/kubernetes
// requires 3.4.31 or 3.5.13 for that). So the API server rejects watches that begin with a list
// (sendInitialEvents), and client-go falls back to a list and a watch.
func (c *Cluster) newEtcd() (*cleanup.Daemon, error) {
	client, err := freeAddress(loopback)
	if err != nil {
		return nil, err
	}
	peer, err := freeAddress(loopback)
	if err != nil {
		return nil, err
	}
	c.etcdURL = "https://" + client
	args := []string{
		"--name=seedlet-test",
		"--data-dir=" + filepath.Join(c.Dir, "etcd"),
		"--listen-client-urls=https://" + client,
		"--advertise-client-urls=https://" + client,
		"--listen-peer-urls=https://" + peer,
		"--initial-advertise-peer-urls=https://" + peer,
		"--initial-cluster=seedlet-test=https://" + peer,
	}
	for _, side := range []string{"", "peer-"} {
		args = append(args,
			"--"+side+"cert-file="+c.pkiFile("etcd.crt"),
			"--"+side+"key-file="+c.pkiFile("etcd.key"),
			"--"+side+"trusted-ca-file="+c.pkiFile("etcd-ca.crt"),
			"--"+side+"client-cert-auth")
	}
	return c.newDaemon(c.tools.etcd, args...), nil
}

// newAPIServer returns the API server at c.URL. It listens on the bridge, because it publishes its
// address to pods, and loopback is not valid for that.
func (c *Cluster) newAPIServer() *cleanup.Daemon {
	_, port, _ := net.SplitHostPort(c.apiAddress) // valid: from freeAddress
	return c.newDaemon(c.tools.path("kube-apiserver"),
		"--bind-address="+c.Address.String(),
		"--advertise-address="+c.Address.String(),
		"--secure-port="+port,
		"--cert-dir="+pkiPath(c.Dir),
		"--tls-cert-file="+c.pkiFile("serving.crt"),
		"--tls-private-key-file="+c.pkiFile("serving.key"),
		"--client-ca-file="+c.pkiFile("ca.crt"),
		"--etcd-servers="+c.etcdURL,
		"--etcd-cafile="+c.pkiFile("etcd-ca.crt"),
		"--etcd-certfile="+c.pkiFile("etcd.crt"),
		"--etcd-keyfile="+c.pkiFile("etcd.key"),
		"--kubelet-client-certificate="+c.pkiFile("apiserver-kubelet-client.crt"),
		"--kubelet-client-key="+c.pkiFile("apiserver-kubelet-client.key"),
		"--kubelet-preferred-address-types=InternalIP,Hostname",
		"--requestheader-client-ca-file="+c.pkiFile("front-proxy-ca.crt"),
		"--requestheader-allowed-names=front-proxy",
		"--requestheader-username-headers=X-Remote-User",
		"--requestheader-group-headers=X-Remote-Group",
		"--requestheader-extra-headers-prefix=X-Remote-Extra-",
		"--proxy-client-cert-file="+c.pkiFile("front-proxy.crt"),
		"--proxy-client-key-file="+c.pkiFile("front-proxy.key"),
		"--enable-aggregator-routing", // to endpoints: there is no kube-proxy for service addresses
		"--authorization-mode=Node,RBAC",
		"--enable-admission-plugins=NodeRestriction",
		// Trust bundles and certificates of pods are beta, and off by default.
		"--runtime-config=certificates.k8s.io/v1beta1/clustertrustbundles=true,"+
			"certificates.k8s.io/v1beta1/podcertificaterequests=true",
		"--feature-gates=ClusterTrustBundle=true,ClusterTrustBundleProjection=true,"+
			"PodCertificateRequest=true",
		"--enable-bootstrap-token-auth",
		"--allow-privileged",
		"--service-cluster-ip-range="+serviceRange.String(),
		"--service-account-issuer=https://kubernetes.default.svc.cluster.local",
		"--service-account-key-file="+c.pkiFile("service-account.pub"),
		"--service-account-signing-key-file="+c.pkiFile("service-account.key"),
	)
}

// newControllerManager returns a controller manager with all controllers, including those for
// bootstrap tokens.
func (c *Cluster) newControllerManager() (*cleanup.Daemon, string, error) {
	kubeconfig, err := c.UserKubeconfig("system:kube-controller-manager")
	if err != nil {
		return nil, "", err
	}
	address, err := freeAddress(loopback)
	if err != nil {
		return nil, "", err
	}
	args := append(append(c.servingArgs(kubeconfig, address), singletonArgs...),
		"--root-ca-file="+c.pkiFile("ca.crt"),
		"--cluster-signing-cert-file="+c.pkiFile("ca.crt"),
		"--cluster-signing-key-file="+c.pkiFile("ca.key"),
		"--service-account-private-key-file="+c.pkiFile("service-account.key"),
		"--use-service-account-credentials",
		"--controllers=*,bootstrap-signer-controller,token-cleaner-controller",
	)
	if grace := c.options.NodeMonitorGracePeriod; grace > 0 {
		period := min(grace/4, 5*time.Second) // its check interval; 5 s by default
		args = append(args, "--node-monitor-grace-period="+grace.String(),
			"--node-monitor-period="+period.String())
	}
	return c.newDaemon(c.tools.path("kube-controller-manager"), args...), address, nil
}

func (c *Cluster) newScheduler() (*cleanup.Daemon, string, error) {
	kubeconfig, err := c.UserKubeconfig("system:kube-scheduler")
	if err != nil {
		return nil, "", err
	}
	address, err := freeAddress(loopback)
	if err != nil {
		return nil, "", err
	}
	args := append(c.servingArgs(kubeconfig, address), singletonArgs...)
	return c.newDaemon(c.tools.path("kube-scheduler"), args...), address, nil
}

// singletonArgs are arguments of a component that needs no leader election.
var singletonArgs = []string{
	"--leader-elect=false",
	"--kube-api-qps=500", // the default limits would delay the start by seconds
	"--kube-api-burst=1000",
}

// servingArgs returns the common arguments of the API server's clients.
func (c *Cluster) servingArgs(kubeconfig, address string) []string {
	host, port, _ := net.SplitHostPort(address) // valid: from freeAddress
	return []string{
		"--kubeconfig=" + kubeconfig,
		"--authentication-kubeconfig=" + kubeconfig,
		"--authorization-kubeconfig=" + kubeconfig,
		"--bind-address=" + host,
		"--secure-port=" + port,
		"--tls-cert-file=" + c.pkiFile("serving.crt"),
		"--tls-private-key-file=" + c.pkiFile("serving.key"),
		"--client-ca-file=" + c.pkiFile("ca.crt"),
	}
}

// freeAddress returns a TCP port of the kernel's choice without a listener. Another process may
// take the port before it is used; then another port is needed.
func freeAddress(at netip.Addr) (string, error) {
	l, err := net.Listen("tcp", net.JoinHostPort(at.String(), "0"))
	if err != nil {
		return "", fmt.Errorf("finding a free port: %w", err)
	}
	defer func() { _ = l.Close() }() // only opened to choose a port
	port := l.Addr().(*net.TCPAddr).Port
	return net.JoinHostPort(at.String(), strconv.Itoa(port)), nil
}
