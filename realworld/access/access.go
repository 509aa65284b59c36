// Package access authenticates and authorizes requests to the node's HTTP API. A client is
// identified by its certificate, or by a token for which the API server does a TokenReview. A
// SubjectAccessReview then decides whether the client has the right that its request needs on this
// Node.
//
// The contract: no request passes without authorization. An unauthenticated client gets a 401, one
// without the right a 403, with the kubelet's texts. If the API server does not decide within
// reviewTimeout, the response is a 401 or a 500. Without an API server every request that needs a
// review is refused.
//
// Reviews are bounded, because unauthenticated clients can cause any number of them: in total and
// for each address, TokenReviews apart from SubjectAccessReviews. A request that would exceed a
// bound waits for its turn, or gets a 429. A client with a certificate needs no TokenReview, and a
// cached decision no review at all, so neither waits for strangers. Start reading at Guard, then
// attributes.go for the rights that paths need and gate.go for the bounds.
package access

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"time"

	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/user"
	authenticationclient "k8s.io/client-go/kubernetes/typed/authentication/v1"
	authorizationclient "k8s.io/client-go/kubernetes/typed/authorization/v1"
	"k8s.io/klog/v2"
	kubeletconfig "k8s.io/kubelet/config/v1beta1"

	"seedlet.dev/realworld/certfile"
	"seedlet.dev/world"
)

const (
	// reviewTimeout bounds a TokenReview, and all SubjectAccessReviews of a request together, both
	// with the time that the request waits for its turn.
	reviewTimeout = 10 * time.Second
	// loggedPathBytesMax bounds the part of a stranger's path that is logged.
	loggedPathBytesMax = 256
)

// Reviewer is the part of an API server client that does TokenReviews and SubjectAccessReviews.
type Reviewer interface {
	AuthenticationV1() authenticationclient.AuthenticationV1Interface
	AuthorizationV1() authorizationclient.AuthorizationV1Interface
}

// Options configure an Access.
type Options struct {
	NodeName       string
	Authentication kubeletconfig.KubeletAuthentication // with defaults
	Authorization  kubeletconfig.KubeletAuthorization  // with defaults
	Reviewer       Reviewer                            // nil without an API server
	Warn           func(problem string)
}

// Access authenticates and authorizes requests.
type Access struct {
	node          string
	authorities   *certfile.Reloader[*x509.CertPool] // of client certificates; or nil
	authenticator authenticator.Request
	authorizer    authorizer
	tokenReviews  *gate
	accessReviews *gate
}

// New returns an Access. It sends no request. Its errors name the field of the configuration.
func New(opts Options) (*Access, error) {
	a := &Access{node: opts.NodeName, tokenReviews: newGate(), accessReviews: newGate()}
	if path := opts.Authentication.X509.ClientCAFile; path != "" {
		var err error
		if a.authorities, err = certfile.OpenAuthorities(path, opts.Warn); err != nil {
			return nil, fmt.Errorf("authentication.x509.clientCAFile: %w", err)
		}
	}
	a.authenticator = a.newAuthenticator(&opts)
	a.authorizer = a.newAuthorizer(&opts)
	return a, nil
}

// TLS adds to the otherwise complete configuration of a server that clients are requested to
// present a certificate. A client without one may still present a token.
func (a *Access) TLS(config *tls.Config) {
	if a.authorities == nil {
		return
	}
	config.ClientAuth = tls.RequestClientCert
	base := config.Clone()
	config.GetConfigForClient = func(*tls.ClientHelloInfo) (*tls.Config, error) {
		now := base.Clone()
		now.ClientCAs = a.authorities.Current() // clients may choose their certificate by these
		return now, nil
	}
}

// Guard passes authorized requests to next, and responds to all others with an error.
func (a *Access) Guard(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if a.checkRequest(w, r) {
			next.ServeHTTP(w, r)
		}
	})
}

// Metrics returns the numbers of reviews and of requests that wait for one or were refused, and
// their bounds.
func (a *Access) Metrics() []world.Metric {
	return append(a.tokenReviews.metrics("token"), a.accessReviews.metrics("access")...)
}

// addressKey is the key of a request's context under which the client's address is.
type addressKey struct{}

// withAddress returns a request whose context has the client's address. An address that cannot be
// parsed is the zero one.
func withAddress(r *http.Request) *http.Request {
	from, _ := netip.ParseAddrPort(r.RemoteAddr)
	return r.WithContext(context.WithValue(r.Context(), addressKey{}, from.Addr().Unmap()))
}

// addressOf returns the address of the client that a context's request is from.
func addressOf(ctx context.Context) netip.Addr {
	address, _ := ctx.Value(addressKey{}).(netip.Addr)
	return address
}

// checkRequest reports whether a request is authorized. If not, it has written the response.
func (a *Access) checkRequest(w http.ResponseWriter, r *http.Request) bool {
	r2 := withAddress(r) // has the headers of r: the authenticator removes credentials from both
	response, ok, err := a.authenticator.AuthenticateRequest(r2)
	if err == nil && ok {
		return a.authorize(w, r2, response.User)
	}
	klog.V(2).InfoS("cannot authenticate a client of the HTTP API", "address", r.RemoteAddr,
		"path", truncate(r.URL.Path, loggedPathBytesMax), "err", err)
	// An unauthenticated client must hold no connection, and over HTTP/2 send no stream of
	// requests.
	w.Header().Set("Connection", "close")
	if errors.Is(err, errBusy) {
		writeBusy(w)
		return false
	}
	writeError(w, http.StatusUnauthorized, "Unauthorized")
	return false
}

// truncate returns the first bytes of a text.
func truncate(text string, bytesMax int) string { return text[:min(len(text), bytesMax)] }

// authorize reports whether a user has one of the rights that the request needs. If not, it has
// written the response.
func (a *Access) authorize(w http.ResponseWriter, r *http.Request, caller user.Info) bool {
	ctx, cancel := context.WithTimeout(r.Context(), reviewTimeout)
	defer cancel()
	verb, subresources := verbOf(r.Method, r.URL.Path), subresourcesOf(r.URL.Path)
	for _, subresource := range subresources {
		allowed, err := a.authorizer.allows(ctx, caller, attributes{a.node, verb, subresource})
		if errors.Is(err, errBusy) {
			writeBusy(w)
			return false
		}
		if err != nil {
			klog.ErrorS(err, "cannot authorize a request to the HTTP API",
				"user", caller.GetName(), "verb", verb, "subresource", subresource)
			writeError(w, http.StatusInternalServerError, fmt.Sprintf(
				"Authorization error (user=%s, verb=%s, resource=nodes, subresource=%s)",
				caller.GetName(), verb, subresource))
			return false
		}
		if allowed {
			return true
		}
	}
	klog.V(2).InfoS("refused a request to the HTTP API", "user", caller.GetName(), "verb", verb,
		"subresources", subresources)
	writeError(w, http.StatusForbidden, fmt.Sprintf(
		"Forbidden (user=%s, verb=%s, resource=nodes, subresource(s)=%v)\n",
		caller.GetName(), verb, subresources))
	return false
}

// writeBusy responds to a request that is refused because too many wait for a review.
func writeBusy(w http.ResponseWriter) {
	w.Header().Set("Retry-After", "1")
	writeError(w, http.StatusTooManyRequests, errBusy.Error())
}

func writeError(w http.ResponseWriter, code int, text string) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	w.WriteHeader(code)
	_, _ = w.Write([]byte(text)) // the client may have disconnected
}
