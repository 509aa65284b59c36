// Package identity has the agent's credentials for the API server, its connections to it, and the
// node's serving certificate (serving.go).
//
// The credentials come from a kubeconfig. If the kubeconfig cannot be used or its certificate has
// expired, and there is a bootstrap kubeconfig, the agent requests a certificate with the bootstrap
// credentials, waits for its approval, and writes a kubeconfig that refers to it. With rotation,
// the agent requests the next certificate before the current one expires. Certificates are stored
// in a directory, with the names that the kubelet and kubeadm use.
//
// The contract: Load reads files and sends no requests, so the agent starts without an API server.
// After Start, certificates may be obtained, expire and be replaced. Each new certificate closes
// all connections, because a server identifies a client by its connection: one that the agent has
// obtained, and one that another program has written to the files of the kubeconfig (files.go).
// Requests fail until there is a certificate. Start reading at Load.
package identity

import (
	"context"
	"crypto/tls"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/certificate"
)

// Options configure an Identity.
type Options struct {
	Kubeconfig string // a file; it need not exist if there is a bootstrap kubeconfig
	Bootstrap  string // a file; empty for none; used if Kubeconfig cannot be used
	CertDir    string // where obtained certificates are stored
	NodeName   string
	Rotate     bool   // request the next certificate before the current one expires
	UserAgent  string // the User-Agent of requests
	Warn       func(problem string)
	// Trace wraps the transport of every connection; nil for none.
	Trace func(http.RoundTripper) http.RoundTripper
	// SendPingTimeout is how long a connection may be idle before a ping is sent, PingTimeout how
	// long the response to the ping may take. Zero selects the defaults.
	SendPingTimeout, PingTimeout time.Duration
}

// Identity has the agent's credentials. Load it, Start it, Connect as often as needed, and Close
// it.
type Identity struct {
	opts    Options
	config  *rest.Config        // the server, and the credentials that are not managed
	managed *managedCertificate // nil if the credentials of the kubeconfig are used
	// kubeconfigNotAfter is when the certificate of the kubeconfig expires, as Load has read it.
	kubeconfigNotAfter time.Time
	files              *watchedFiles // the client certificate of the kubeconfig; nil if not in files
	ctx                context.Context
	cancel             context.CancelFunc // ends the requests for certificates
	goroutines         sync.WaitGroup
	mu                 sync.Mutex
	conns              map[*Connection]bool

	renewErrors atomic.Int64 // failed requests for a certificate
}

// managedCertificate is a client certificate that the agent requests. All connections read current;
// the other fields belong to the requesting goroutine.
type managedCertificate struct {
	files             certificate.FileStore
	current           atomic.Pointer[tls.Certificate]
	renewal           renewal
	kubeconfigWritten bool // the kubeconfig refers to the certificate, or has one of its own
}

// Load reads the agent's credentials. It fails if there are none and none can be requested; the
// error names the file and the field.
func Load(opts Options) (*Identity, error) {
	i := &Identity{opts: opts, conns: map[*Connection]bool{}}
	i.ctx, i.cancel = context.WithCancel(context.Background())
	own, err := readKubeconfig("--kubeconfig", opts.Kubeconfig)
	if err == nil {
		if own.certificate != nil {
			i.kubeconfigNotAfter = own.certificate.Leaf.NotAfter
		}
		err = own.checkExpiry(time.Now())
		if err == nil || !i.canBootstrap() {
			if err != nil {
				// No request to the API server can succeed, but the pods of the node can run.
				opts.Warn(err.Error())
			}
			return i.useKubeconfig(own)
		}
	}
	if opts.Bootstrap == "" {
		return nil, err
	}
	bootstrap, bootstrapErr := readKubeconfig("--bootstrap-kubeconfig", opts.Bootstrap)
	if bootstrapErr != nil {
		return nil, fmt.Errorf("%w; %w", err, bootstrapErr)
	}
	opts.Warn(fmt.Sprintf("requesting a client certificate: %v", err))
	i.warnIfPlain(bootstrap)
	i.config = rest.AnonymousClientConfig(bootstrap.config)
	return i.manageCertificate(nil)
}

func (i *Identity) canBootstrap() bool {
	if i.opts.Bootstrap == "" {
		return false
	}
	_, err := readKubeconfig("--bootstrap-kubeconfig", i.opts.Bootstrap)
	return err == nil
}

// useKubeconfig uses the credentials of a kubeconfig. Only a certificate can be rotated, unlike a
// token or a credential plugin.
func (i *Identity) useKubeconfig(own *kubeconfig) (*Identity, error) {
	i.warnIfPlain(own)
	if !i.opts.Rotate || own.certificate == nil {
		return i.useUnmanaged(own)
	}
	i.config = rest.AnonymousClientConfig(own.config)
	return i.manageCertificate(own)
}

// warnIfPlain warns if the connection to the server of a kubeconfig is not encrypted.
func (i *Identity) warnIfPlain(k *kubeconfig) {
	if strings.HasPrefix(k.config.Host, "http://") {
		i.opts.Warn(k.source + ": server: " + k.config.Host + " is not encrypted: whoever is on the " +
			"path to the server can run anything on this node")
	}
}

// Config returns the server's address, with the settings of requests but without the client
// certificate, which belongs to connections.
func (i *Identity) Config() *rest.Config {
	c := rest.AnonymousClientConfig(i.config)
	c.UserAgent = i.opts.UserAgent
	return c
}

// Start starts requesting certificates, if they are managed.
func (i *Identity) Start() {
	if i.managed != nil {
		i.goroutines.Go(func() { i.requestCertificates(i.ctx) })
	}
}

// Close ends the requests for certificates and closes all connections. A second Close does nothing.
func (i *Identity) Close() {
	i.cancel()
	i.closeAll()
	i.goroutines.Wait()
}

func (i *Identity) closeAll() {
	i.mu.Lock()
	defer i.mu.Unlock()
	for c := range i.conns {
		c.CloseAll()
	}
}
