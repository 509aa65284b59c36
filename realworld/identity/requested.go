package identity

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"slices"
	"sync/atomic"
	"time"

	certificates "k8s.io/api/certificates/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/util/certificate"
	"k8s.io/klog/v2"
)

const (
	// servingName is the prefix of serving certificate files; the newest is
	// kubelet-server-current.pem.
	servingName = "kubelet-server"
	// addressCheckInterval is how often the addresses of the Node are checked.
	addressCheckInterval = 5 * time.Minute
)

// requestedCertificate is a serving certificate that the API server signs, for the addresses of the
// Node object: clients connect to the node by these.
type requestedCertificate struct {
	opts    ServingOptions
	files   certificate.FileStore
	current atomic.Pointer[tls.Certificate]
	renewal renewal
	// The names and addresses of the last certificate that was signed, as they were requested.
	requested x509.CertificateRequest

	rotations   rotationAges
	renewErrors atomic.Int64 // failed requests for a certificate
}

func newRequestedCertificate(opts ServingOptions) (*requestedCertificate, error) {
	dir, err := absoluteDir(opts.CertDir)
	if err != nil {
		return nil, err
	}
	if opts.Identity == nil {
		opts.Warn("serverTLSBootstrap: needs an API server (--kubeconfig); until then there is " +
			"no serving certificate")
	}
	r := &requestedCertificate{opts: opts}
	r.files, err = certificate.NewFileStoreWithLogger(klog.Background().V(2), servingName, dir, dir,
		opts.CertFile, opts.KeyFile)
	if err != nil {
		return nil, fmt.Errorf("--cert-dir: %w", err)
	}
	stored, err := currentPair(r.files)
	var noPair *certificate.NoCertKeyError
	switch {
	case err == nil:
		r.use(stored)
	case !errors.As(err, &noPair):
		opts.Warn(err.Error()) // a torn file; the next certificate replaces it
	}
	return r, nil
}

func (r *requestedCertificate) use(c *tls.Certificate) {
	r.renewal.due = renewalTime(c)
	r.current.Store(c)
}

// certificate returns the current certificate. Its errors begin with the kubelet's text.
func (r *requestedCertificate) certificate() (*tls.Certificate, error) {
	const none = "no serving certificate available for the kubelet"
	current := r.current.Load()
	switch {
	case current == nil:
		return nil, errors.New(none + ": its request has not been approved yet")
	case time.Now().After(current.Leaf.NotAfter):
		return nil, fmt.Errorf(none+": the last one has expired at %s",
			current.Leaf.NotAfter.UTC().Format(time.RFC3339))
	}
	return current, nil
}

// run requests certificates: the first one, the next one before the last expires, and another one
// when the addresses of the Node have changed.
func (r *requestedCertificate) run(ctx context.Context) {
	conn, err := r.opts.Identity.Connect()
	if err != nil {
		r.opts.Warn("requesting a serving certificate: " + err.Error())
		return
	}
	defer conn.Close()
	client, err := NewGroups(r.opts.Identity.Config(), conn.Client)
	if err != nil {
		r.opts.Warn("requesting a serving certificate: " + err.Error())
		return
	}
	lastWarning, wait := "", retryMin
	for ctx.Err() == nil {
		err := r.requestIfNeeded(ctx, client)
		if err == nil {
			lastWarning, wait = "", retryMin
			sleep(ctx, min(r.renewal.wait(), addressCheckInterval))
			continue
		}
		if err.Error() != lastWarning && ctx.Err() == nil {
			lastWarning = err.Error()
			r.opts.Warn("requesting a serving certificate: " + lastWarning)
		}
		sleep(ctx, wait/2+rand.N(wait/2))
		wait = min(2*wait, retryMax)
	}
}

func (r *requestedCertificate) requestIfNeeded(ctx context.Context,
	client kubernetes.Interface) error {
	node, err := client.CoreV1().Nodes().Get(ctx, r.opts.NodeName, metav1.GetOptions{})
	if err != nil {
		return err
	}
	template := x509.CertificateRequest{Subject: nodeSubject(r.opts.NodeName)}
	template.DNSNames, template.IPAddresses = nodeNames(node.Status.Addresses)
	if len(template.IPAddresses) == 0 {
		return errors.New("the Node has no address yet")
	}
	if !r.needs(&template) {
		return nil
	}
	stored, err := signingRequest{servingName, template, certificates.KubeletServingSignerName,
		certificate.DefaultKubeletServingGetUsages}.obtain(ctx, client, r.files)
	if err != nil {
		if ctx.Err() == nil {
			r.renewErrors.Add(1)
		}
		if errors.Is(err, errRefused) {
			r.renewal.obtained(true)
			r.requested = template
		}
		return err
	}
	if last := r.current.Load(); last != nil {
		r.rotations.observe(time.Since(last.Leaf.NotBefore))
	}
	r.use(stored)
	r.renewal.obtained(r.renewal.isDue() || !satisfies(stored.Leaf, &template))
	r.requested = template
	return nil
}

// needs reports whether a certificate must be requested. A signer may leave out what was requested,
// so the same is not requested again before the end of the pause.
func (r *requestedCertificate) needs(template *x509.CertificateRequest) bool {
	current, err := r.certificate()
	if err == nil && !r.renewal.isDue() && satisfies(current.Leaf, template) {
		return false
	}
	return !r.renewal.isPaused() || !slices.Equal(r.requested.DNSNames, template.DNSNames) ||
		!slices.EqualFunc(r.requested.IPAddresses, template.IPAddresses, net.IP.Equal)
}

// nodeNames returns the DNS names and the IP addresses of a Node, sorted and without duplicates.
func nodeNames(addresses []v1.NodeAddress) (dns []string, ips []net.IP) {
	for _, a := range addresses {
		ip := net.ParseIP(a.Address)
		named := a.Type == v1.NodeHostName || a.Type == v1.NodeInternalDNS ||
			a.Type == v1.NodeExternalDNS
		switch {
		case ip != nil:
			ips = append(ips, ip)
		case named && a.Address != "":
			dns = append(dns, a.Address)
		}
	}
	slices.Sort(dns)
	slices.SortFunc(ips, func(a, b net.IP) int { return slices.Compare(a, b) })
	return slices.Compact(dns), slices.CompactFunc(ips, net.IP.Equal)
}
