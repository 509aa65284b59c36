// Package access decides who may call the node's HTTP API: who a client is, by its certificate or
// by a token that the API server is asked about, and whether the API server lets it do on this
// Node what it wants to do.
//
// The contract: nothing is let through that was not allowed. A client that nobody knows gets a
// 401, one that may not a 403, with the kubelet's words; and where neither can be found out in
// answerTimeout, a 401 or a 500. What is too much to find out at once is a 429. Without an API
// server nothing is allowed that needs one. Start reading at Guard, then attributes.go for what
// is asked.
package access

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net/http"
	"time"

	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/user"
	authenticationclient "k8s.io/client-go/kubernetes/typed/authentication/v1"
	authorizationclient "k8s.io/client-go/kubernetes/typed/authorization/v1"
	"k8s.io/klog/v2"
	kubeletconfig "k8s.io/kubelet/config/v1beta1"

	"seedlet.dev/realworld/certfile"
)

const (
	// answerTimeout is how long the API server has to say who somebody is, or what they may do.
	answerTimeout = 10 * time.Second
	// waitingMax bounds the requests of which that is not known yet. Strangers can send as many
	// as they like.
	waitingMax = 512
)

// Reviewer is the API server, as far as it knows who is who and who may do what.
type Reviewer interface {
	AuthenticationV1() authenticationclient.AuthenticationV1Interface
	AuthorizationV1() authorizationclient.AuthorizationV1Interface
}

// Options are what access is decided by.
type Options struct {
	NodeName       string
	Authentication kubeletconfig.KubeletAuthentication // with defaults
	Authorization  kubeletconfig.KubeletAuthorization  // with defaults
	Reviewer       Reviewer                            // nil: there is no API server
	Warn           func(problem string)
}

// Access decides who may call.
type Access struct {
	node          string
	authorities   *certfile.Kept[*x509.CertPool] // of clients; nil for none
	authenticator authenticator.Request
	authorizer    authorizer
	waiting       chan struct{} // one for each request of which nothing is known yet
}

// New makes an Access. It asks nobody. Errors name the field.
func New(opts Options) (*Access, error) {
	a := &Access{node: opts.NodeName, waiting: make(chan struct{}, waitingMax)}
	if path := opts.Authentication.X509.ClientCAFile; path != "" {
		var err error
		if a.authorities, err = certfile.OpenAuthorities(path, opts.Warn); err != nil {
			return nil, fmt.Errorf("authentication.x509.clientCAFile: %w", err)
		}
	}
	a.authenticator = a.newAuthenticator(&opts)
	a.authorizer = newAuthorizer(&opts)
	return a, nil
}

// TLS adds to the otherwise complete configuration of a server that clients are asked for their
// certificates. One that shows none may still show a token.
func (a *Access) TLS(config *tls.Config) {
	if a.authorities == nil {
		return
	}
	config.ClientAuth = tls.RequestClientCert
	base := config.Clone()
	config.GetConfigForClient = func(*tls.ClientHelloInfo) (*tls.Config, error) {
		now := base.Clone()
		now.ClientCAs = a.authorities.Now() // a client may choose its certificate by them
		return now, nil
	}
}

// Guard lets those requests through to next that are allowed, and answers all others.
func (a *Access) Guard(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if a.letsIn(w, r) {
			next.ServeHTTP(w, r)
		}
	})
}

// letsIn says whether a request is allowed; if not, it is answered.
func (a *Access) letsIn(w http.ResponseWriter, r *http.Request) bool {
	select {
	case a.waiting <- struct{}{}:
		defer func() { <-a.waiting }()
	default:
		w.Header().Set("Retry-After", "1")
		refuse(w, http.StatusTooManyRequests, fmt.Sprintf(
			"%d requests wait to be let in already", waitingMax))
		return false
	}
	who, ok, err := a.authenticator.AuthenticateRequest(r)
	if err == nil && ok {
		return a.allowed(w, r, who.User)
	}
	klog.V(2).InfoS("a client of the HTTP API is not known", "address", r.RemoteAddr,
		"path", r.URL.Path, "err", err)
	// A stranger holds no connection, and over HTTP/2 sends no stream of requests.
	w.Header().Set("Connection", "close")
	refuse(w, http.StatusUnauthorized, "Unauthorized")
	return false
}

// allowed says whether a user may do what is requested; if not, the request is answered. One of
// several rights is enough.
func (a *Access) allowed(w http.ResponseWriter, r *http.Request, who user.Info) bool {
	ctx, cancel := context.WithTimeout(r.Context(), answerTimeout)
	defer cancel()
	verb, subresources := verbs[r.Method], subresourcesOf(r.URL.Path)
	for _, subresource := range subresources {
		allowed, err := a.authorizer.allows(ctx, who, act{a.node, verb, subresource})
		if err != nil {
			klog.ErrorS(err, "cannot find out what a client of the HTTP API may do",
				"user", who.GetName(), "verb", verb, "subresource", subresource)
			refuse(w, http.StatusInternalServerError, fmt.Sprintf(
				"Authorization error (user=%s, verb=%s, resource=nodes, subresource=%s)",
				who.GetName(), verb, subresource))
			return false
		}
		if allowed {
			return true
		}
	}
	klog.V(2).InfoS("a client of the HTTP API is refused", "user", who.GetName(), "verb", verb,
		"subresources", subresources)
	refuse(w, http.StatusForbidden, fmt.Sprintf(
		"Forbidden (user=%s, verb=%s, resource=nodes, subresource(s)=%v)\n",
		who.GetName(), verb, subresources))
	return false
}

func refuse(w http.ResponseWriter, code int, text string) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	w.WriteHeader(code)
	_, _ = w.Write([]byte(text)) // a client that has gone needs no answer
}
