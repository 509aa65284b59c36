package cluster

import (
	"fmt"
	"net"
	"net/netip"
	"path/filepath"
	"strconv"
	"time"

	"seedlet.dev/realworld/owned"
)

var loopback = netip.AddrFrom4([4]byte{127, 0, 0, 1})

// daemon is a component of the cluster: a program with its arguments, its output in a file of the
// cluster's directory.
func (c *Cluster) daemon(program string, args ...string) *owned.Daemon {
	return &owned.Daemon{
		Program: program, Args: args, Dir: c.Dir, LogFile: c.LogFile(filepath.Base(program)),
		// The machine's own configuration of etcd and proxies is none of the cluster's business.
		Env: []string{"PATH=/usr/sbin:/usr/bin:/sbin:/bin", "HOME=" + c.Dir},
	}
}

func (c *Cluster) pki(name string) string { return filepath.Join(pkiPath(c.Dir), name) }

// newEtcd is an etcd of one member.
//
// Debian 12's is 3.4.23, which cannot be asked how far a watch has come (k8s.io/kubernetes wants
// 3.4.31 or 3.5.13 for that). So the API server refuses watches that begin with a list
// (sendInitialEvents), and client-go falls back to a list and a watch.
func (c *Cluster) newEtcd() (*owned.Daemon, error) {
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
			"--"+side+"cert-file="+c.pki("etcd.crt"),
			"--"+side+"key-file="+c.pki("etcd.key"),
			"--"+side+"trusted-ca-file="+c.pki("etcd-ca.crt"),
			"--"+side+"client-cert-auth")
	}
	return c.daemon(c.tools.etcd, args...), nil
}

// newAPIServer is the API server at c.URL. It is on the bridge, not on loopback: it has to tell
// pods where it is, and loopback is no address for that.
func (c *Cluster) newAPIServer() *owned.Daemon {
	_, port, _ := net.SplitHostPort(c.apiAddress) // as freeAddress made it
	return c.daemon(c.tools.path("kube-apiserver"),
		"--bind-address="+c.Address.String(),
		"--advertise-address="+c.Address.String(),
		"--secure-port="+port,
		"--cert-dir="+pkiPath(c.Dir),
		"--tls-cert-file="+c.pki("serving.crt"),
		"--tls-private-key-file="+c.pki("serving.key"),
		"--client-ca-file="+c.pki("ca.crt"),
		"--etcd-servers="+c.etcdURL,
		"--etcd-cafile="+c.pki("etcd-ca.crt"),
		"--etcd-certfile="+c.pki("etcd.crt"),
		"--etcd-keyfile="+c.pki("etcd.key"),
		"--kubelet-client-certificate="+c.pki("apiserver-kubelet-client.crt"),
		"--kubelet-client-key="+c.pki("apiserver-kubelet-client.key"),
		"--kubelet-preferred-address-types=InternalIP,Hostname",
		"--requestheader-client-ca-file="+c.pki("front-proxy-ca.crt"),
		"--requestheader-allowed-names=front-proxy",
		"--requestheader-username-headers=X-Remote-User",
		"--requestheader-group-headers=X-Remote-Group",
		"--requestheader-extra-headers-prefix=X-Remote-Extra-",
		"--proxy-client-cert-file="+c.pki("front-proxy.crt"),
		"--proxy-client-key-file="+c.pki("front-proxy.key"),
		"--enable-aggregator-routing", // to endpoints: nobody forwards addresses of services here
		"--authorization-mode=Node,RBAC",
		"--enable-admission-plugins=NodeRestriction",
		// Trust bundles are beta, and off.
		"--runtime-config=certificates.k8s.io/v1beta1/clustertrustbundles=true",
		"--feature-gates=ClusterTrustBundle=true,ClusterTrustBundleProjection=true",
		"--enable-bootstrap-token-auth",
		"--allow-privileged",
		"--service-cluster-ip-range="+serviceRange.String(),
		"--service-account-issuer=https://kubernetes.default.svc.cluster.local",
		"--service-account-key-file="+c.pki("service-account.pub"),
		"--service-account-signing-key-file="+c.pki("service-account.key"),
	)
}

// newControllerManager runs all controllers, and those for bootstrap tokens.
func (c *Cluster) newControllerManager() (*owned.Daemon, string, error) {
	kubeconfig, err := c.UserKubeconfig("system:kube-controller-manager")
	if err != nil {
		return nil, "", err
	}
	address, err := freeAddress(loopback)
	if err != nil {
		return nil, "", err
	}
	args := append(append(c.serving(kubeconfig, address), alone...),
		"--root-ca-file="+c.pki("ca.crt"),
		"--cluster-signing-cert-file="+c.pki("ca.crt"),
		"--cluster-signing-key-file="+c.pki("ca.key"),
		"--service-account-private-key-file="+c.pki("service-account.key"),
		"--use-service-account-credentials",
		"--controllers=*,bootstrap-signer-controller,token-cleaner-controller",
	)
	if grace := c.options.NodeMonitorGracePeriod; grace > 0 {
		period := min(grace/4, 5*time.Second) // how often it looks; its own is 5 s
		args = append(args, "--node-monitor-grace-period="+grace.String(),
			"--node-monitor-period="+period.String())
	}
	return c.daemon(c.tools.path("kube-controller-manager"), args...), address, nil
}

func (c *Cluster) newScheduler() (*owned.Daemon, string, error) {
	kubeconfig, err := c.UserKubeconfig("system:kube-scheduler")
	if err != nil {
		return nil, "", err
	}
	address, err := freeAddress(loopback)
	if err != nil {
		return nil, "", err
	}
	args := append(c.serving(kubeconfig, address), alone...)
	return c.daemon(c.tools.path("kube-scheduler"), args...), address, nil
}

// alone are arguments of a component that is the only one of its kind, so it need not be elected.
var alone = []string{
	"--leader-elect=false",
	"--kube-api-qps=500", // the first seconds would go by with waiting
	"--kube-api-burst=1000",
}

// serving are the arguments that the clients of the API server have in common.
func (c *Cluster) serving(kubeconfig, address string) []string {
	host, port, _ := net.SplitHostPort(address) // as freeAddress made it
	return []string{
		"--kubeconfig=" + kubeconfig,
		"--authentication-kubeconfig=" + kubeconfig,
		"--authorization-kubeconfig=" + kubeconfig,
		"--bind-address=" + host,
		"--secure-port=" + port,
		"--tls-cert-file=" + c.pki("serving.crt"),
		"--tls-private-key-file=" + c.pki("serving.key"),
		"--client-ca-file=" + c.pki("ca.crt"),
	}
}

// freeAddress asks the kernel for a TCP port that nobody listens on now. Someone may when it is
// to be used: then another has to be asked for.
func freeAddress(at netip.Addr) (string, error) {
	l, err := net.Listen("tcp", net.JoinHostPort(at.String(), "0"))
	if err != nil {
		return "", fmt.Errorf("finding a free port: %w", err)
	}
	defer func() { _ = l.Close() }() // it served its purpose
	port := l.Addr().(*net.TCPAddr).Port
	return net.JoinHostPort(at.String(), strconv.Itoa(port)), nil
}
