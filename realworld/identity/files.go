package identity

import (
	"bytes"
	"crypto/tls"
	"fmt"
	"net/http"
	"slices"
	"sync"

	"seedlet.dev/realworld/certfile"
)

// watchedFiles is a client certificate in files that another program replaces, such as another
// manager of kubelet-client-current.pem. Each request looks for a change. The node's lease is
// renewed every ten seconds, so a change is noticed within that time; client-go looks every five
// minutes.
type watchedFiles struct {
	pair *certfile.Reloader[*tls.Certificate]

	mu   sync.Mutex
	last *tls.Certificate // that connections were made with
}

// useUnmanaged uses the credentials of a kubeconfig that the agent does not rotate.
func (i *Identity) useUnmanaged(own *kubeconfig) (*Identity, error) {
	i.config = own.config
	user := own.config.TLSClientConfig
	if user.CertFile == "" || user.KeyFile == "" || len(user.CertData) > 0 || len(user.KeyData) > 0 {
		return i, nil // what is embedded has priority over files
	}
	pair, err := certfile.OpenPair(user.CertFile, user.KeyFile, i.opts.Warn)
	if err != nil {
		return nil, fmt.Errorf("%s: users[%s].client-certificate and client-key: %w", own.source,
			own.user, err)
	}
	i.files = &watchedFiles{pair: pair, last: pair.Current()}
	return i, nil
}

// certificate returns the certificate for a new connection.
func (w *watchedFiles) certificate() (*tls.Certificate, error) { return w.pair.Current(), nil }

// hasChanged reports, once for each change, whether the files have another certificate. Files that
// were only written again have the same.
func (w *watchedFiles) hasChanged() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	now := w.pair.Current()
	if now == w.last {
		return false
	}
	same := slices.EqualFunc(now.Certificate, w.last.Certificate, bytes.Equal)
	w.last = now
	return !same
}

// changeCloser closes all connections when the certificate's files have changed. The server
// identifies a client by its connection, and may accept the old certificate until it expires.
type changeCloser struct {
	http.RoundTripper
	owner *Identity
}

// RoundTrip implements http.RoundTripper.
func (c *changeCloser) RoundTrip(r *http.Request) (*http.Response, error) {
	if c.owner.files.hasChanged() {
		c.owner.closeAll()
	}
	return c.RoundTripper.RoundTrip(r)
}
