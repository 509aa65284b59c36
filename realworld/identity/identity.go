// Package identity is who the agent is to the API server, and its connections there.
//
// Who it is comes from a kubeconfig. Where there is none that can be used, or its certificate has
// expired, and there is a bootstrap kubeconfig, then the agent asks for a certificate with that,
// waits until someone has approved it, and writes a kubeconfig that names it. Where certificates
// are rotated, it asks for the next one before the last expires. Certificates are kept in a
// directory, where the kubelet and kubeadm know to find them.
//
// The contract: Load reads files and asks nobody, so the agent starts without an API server. From
// Start on, a certificate may come, go and be replaced; with every new one all connections are
// closed, as a server knows a client by its connection. Until there is one, every request fails.
// Start reading at Load.
package identity

import (
	"context"
	"crypto/tls"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/certificate"
)

// Options are what an identity is made of.
type Options struct {
	Kubeconfig string // a file; with a bootstrap kubeconfig it need not exist
	Bootstrap  string // a file, empty for none; needed only when Kubeconfig cannot be used
	CertDir    string // where certificates are kept that have been asked for
	NodeName   string
	Rotate     bool   // ask for the next certificate before one expires
	UserAgent  string // what the agent calls itself
	Warn       func(problem string)
	// Silence is how long a connection may be silent before it is asked for a sign of life, and
	// SignTimeout how long that may take. Zero takes the defaults.
	Silence, SignTimeout time.Duration
}

// Identity is who the agent is. Load it, Start it, Connect as often as needed, and Close it.
type Identity struct {
	opts    Options
	config  *rest.Config // where the server is, and, if it is not managed, who we are
	managed *managed     // nil where the kubeconfig's own credentials are used
	ctx     context.Context
	cancel  context.CancelFunc // ends asking
	work    sync.WaitGroup
	mu      sync.Mutex
	conns   map[*Connection]bool
}

// managed is a client certificate that is asked for. But for the current one, which all
// connections look at, it belongs to whoever asks.
type managed struct {
	files   certificate.FileStore
	current atomic.Pointer[tls.Certificate]
	due     time.Time // when the next one is to be asked for
	written bool      // the kubeconfig names the certificate, or another that is as good
}

// Load finds out who the agent is. It fails if that cannot be, now or later: the error names the
// file and the field.
func Load(opts Options) (*Identity, error) {
	i := &Identity{opts: opts, conns: map[*Connection]bool{}}
	i.ctx, i.cancel = context.WithCancel(context.Background())
	own, err := readKubeconfig("--kubeconfig", opts.Kubeconfig)
	if err == nil {
		err = own.expired(time.Now())
		if err == nil || !i.canBootstrap() {
			if err != nil {
				// Nothing can be asked of the API server, but what is on the node can run.
				opts.Warn(err.Error())
			}
			return i.use(own)
		}
	}
	if opts.Bootstrap == "" {
		return nil, err
	}
	bootstrap, bootstrapErr := readKubeconfig("--bootstrap-kubeconfig", opts.Bootstrap)
	if bootstrapErr != nil {
		return nil, fmt.Errorf("%w; %w", err, bootstrapErr)
	}
	opts.Warn(fmt.Sprintf("a client certificate will be asked for: %v", err))
	i.config = rest.AnonymousClientConfig(bootstrap.config)
	return i.manage(nil)
}

func (i *Identity) canBootstrap() bool {
	if i.opts.Bootstrap == "" {
		return false
	}
	_, err := readKubeconfig("--bootstrap-kubeconfig", i.opts.Bootstrap)
	return err == nil
}

// use takes the credentials of a kubeconfig. Only a certificate can be rotated; a token or a
// program that gives one stays what it is.
func (i *Identity) use(own *kubeconfig) (*Identity, error) {
	if !i.opts.Rotate || own.certificate == nil {
		i.config = own.config
		return i, nil
	}
	i.config = rest.AnonymousClientConfig(own.config)
	return i.manage(own)
}

// Config says where the server is, with the credentials of its requests but for the client
// certificate, which belongs to connections.
func (i *Identity) Config() *rest.Config {
	c := rest.AnonymousClientConfig(i.config)
	c.UserAgent = i.opts.UserAgent
	return c
}

// Start begins to ask for certificates, if that is how the agent has its own.
func (i *Identity) Start() {
	if i.managed != nil {
		i.work.Go(func() { i.ask(i.ctx) })
	}
}

// Close ends asking and closes all connections. Closing again does nothing.
func (i *Identity) Close() {
	i.cancel()
	i.closeAll()
	i.work.Wait()
}

func (i *Identity) closeAll() {
	i.mu.Lock()
	defer i.mu.Unlock()
	for c := range i.conns {
		c.CloseAll()
	}
}
