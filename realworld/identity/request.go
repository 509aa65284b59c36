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
	// servingName is what files of serving certificates begin with; the newest is
	// kubelet-server-current.pem.
	servingName = "kubelet-server"
	// addressesEvery is how often the addresses of the Node are looked at.
	addressesEvery = 5 * time.Minute
)

// request is a serving certificate that is asked for, for the addresses that the Node has at the
// API server: it is by these that clients find the node.
type request struct {
	opts    ServingOptions
	files   certificate.FileStore
	current atomic.Pointer[tls.Certificate]
	due     time.Time // when the next one is to be asked for
}

func newRequest(opts ServingOptions) (*request, error) {
	dir, err := absolute(opts.CertDir)
	if err != nil {
		return nil, err
	}
	if opts.Identity == nil {
		opts.Warn("serverTLSBootstrap: needs an API server (--kubeconfig); until then there is " +
			"no serving certificate")
	}
	r := &request{opts: opts}
	r.files, err = certificate.NewFileStoreWithLogger(klog.Background().V(2), servingName, dir, dir,
		opts.CertFile, opts.KeyFile)
	if err != nil {
		return nil, fmt.Errorf("--cert-dir: %w", err)
	}
	kept, err := r.files.Current()
	var none *certificate.NoCertKeyError
	switch {
	case err == nil:
		r.take(kept)
	case !errors.As(err, &none):
		opts.Warn(err.Error()) // a torn file: the next certificate replaces it
	}
	return r, nil
}

func (r *request) take(c *tls.Certificate) {
	r.due = renewal(c)
	r.current.Store(c)
}

// now begins its errors as the kubelet does.
func (r *request) now() (*tls.Certificate, error) {
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

// ask asks for one certificate after the other: for the first, when one is about to expire, and
// when the addresses of the Node have changed.
func (r *request) ask(ctx context.Context) {
	conn, err := r.opts.Identity.Connect()
	if err != nil {
		r.opts.Warn("asking for a serving certificate: " + err.Error())
		return
	}
	defer conn.Close()
	client, err := NewGroups(r.opts.Identity.Config(), conn.Client)
	if err != nil {
		r.opts.Warn("asking for a serving certificate: " + err.Error())
		return
	}
	warned, wait := "", retryMin
	for ctx.Err() == nil {
		err := r.askIfNeeded(ctx, client)
		if err == nil {
			warned, wait = "", retryMin
			pause(ctx, max(0, min(time.Until(r.due), addressesEvery)))
			continue
		}
		if err.Error() != warned && ctx.Err() == nil {
			warned = err.Error()
			r.opts.Warn("asking for a serving certificate: " + warned)
		}
		pause(ctx, wait/2+rand.N(wait/2))
		wait = min(2*wait, retryMax)
	}
}

func (r *request) askIfNeeded(ctx context.Context, client kubernetes.Interface) error {
	node, err := client.CoreV1().Nodes().Get(ctx, r.opts.NodeName, metav1.GetOptions{})
	if err != nil {
		return err
	}
	template := x509.CertificateRequest{Subject: nodeSubject(r.opts.NodeName)}
	template.DNSNames, template.IPAddresses = names(node.Status.Addresses)
	if len(template.IPAddresses) == 0 {
		return errors.New("the Node has no address yet")
	}
	if current, err := r.now(); err == nil && time.Now().Before(r.due) &&
		isFor(current.Leaf, &template) {
		return nil
	}
	kept, err := order{template, certificates.KubeletServingSignerName,
		certificate.DefaultKubeletServingGetUsages}.fill(ctx, client, r.files)
	if err == nil {
		r.take(kept)
	}
	return err
}

// isFor says whether a certificate is for all names of a request, and no others.
func isFor(c *x509.Certificate, template *x509.CertificateRequest) bool {
	has := slices.Sorted(slices.Values(c.DNSNames))
	return slices.Equal(has, template.DNSNames) &&
		slices.Equal(texts(c.IPAddresses), texts(template.IPAddresses))
}

func texts(ips []net.IP) []string {
	var all []string
	for _, ip := range ips {
		all = append(all, ip.String())
	}
	slices.Sort(all)
	return all
}

// names are what a Node is called, and its addresses, each once and in order.
func names(addresses []v1.NodeAddress) (dns []string, ips []net.IP) {
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
