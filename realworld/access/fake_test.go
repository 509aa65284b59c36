package access_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"encoding/pem"
	"io"
	"math/big"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	kubeletconfig "k8s.io/kubelet/config/v1beta1"

	"seedlet.dev/realworld/access"
)

// fake is an API server that knows the users of tokens and their rights.
type fake struct {
	t      *testing.T
	server *httptest.Server
	client *kubernetes.Clientset
	users  map[string]authenticationv1.UserInfo // by token

	mu        sync.Mutex
	allowed   map[string]bool // "user verb subresource"
	tokens    int             // number of TokenReviews
	reviews   []string        // SubjectAccessReviews
	rejection string          // why tokens are rejected, if the API server says so
	failing   int             // how many of the next reviews fail
	blocked   chan struct{}   // if not nil, reviews wait until it is closed
	prefix    string          // of the tokens, or of "access of USER", whose reviews wait
}

func newFake(t *testing.T) *fake {
	t.Helper()
	f := &fake{t: t, allowed: map[string]bool{}, users: map[string]authenticationv1.UserInfo{
		"good": {Username: "jane", UID: "1", Groups: []string{"people"},
			Extra: map[string]authenticationv1.ExtraValue{"scope": {"all"}}},
	}}
	f.server = httptest.NewServer(f)
	t.Cleanup(f.server.Close)
	f.connect(-1)
	return f
}

// connect makes the client, with a limit on its requests a second; -1 for none.
func (f *fake) connect(qps float32) {
	f.t.Helper()
	transport := &http.Transport{}
	f.t.Cleanup(transport.CloseIdleConnections)
	var err error
	f.client, err = kubernetes.NewForConfig(&rest.Config{Host: f.server.URL, Transport: transport,
		QPS: qps, Burst: 10, ContentConfig: rest.ContentConfig{ContentType: "application/json"}})
	if err != nil {
		f.t.Fatal(err)
	}
}

// ServeHTTP responds to reviews.
func (f *fake) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return // the client has given up
	}
	f.wait(body)
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.failing > 0 {
		f.failing--
		http.Error(w, "injected failure", http.StatusForbidden)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(http.StatusCreated)
	if strings.HasSuffix(r.URL.Path, "/tokenreviews") {
		review := read[authenticationv1.TokenReview](f.t, body)
		f.tokens++
		review.Status.User, review.Status.Authenticated = f.users[review.Spec.Token],
			f.users[review.Spec.Token].Username != ""
		if !review.Status.Authenticated {
			review.Status.Error = f.rejection
		}
		_ = json.NewEncoder(w).Encode(review)
		return
	}
	review := read[authorizationv1.SubjectAccessReview](f.t, body)
	attributes := review.Spec.ResourceAttributes
	if attributes.Resource != "nodes" || attributes.Name != "node-a" ||
		attributes.Version != "v1" || attributes.Namespace != "" {
		f.t.Errorf("review of %+v", attributes)
	}
	right := strings.TrimSpace(review.Spec.User + " " + attributes.Verb + " " + attributes.Subresource)
	f.reviews = append(f.reviews, right)
	review.Status.Allowed = f.allowed[right]
	_ = json.NewEncoder(w).Encode(review)
}

func read[T any](t *testing.T, data []byte) *T {
	var body T
	if err := json.Unmarshal(data, &body); err != nil {
		t.Error(err)
	}
	return &body
}

// block lets reviews wait whose token begins with a prefix.
func (f *fake) block(prefix string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.blocked, f.prefix = make(chan struct{}), prefix
}

// unblock lets all reviews go on.
func (f *fake) unblock() { close(f.blocked) }

// letOne lets one review go on.
func (f *fake) letOne() { f.blocked <- struct{}{} }

// wait waits while the review in a request is blocked.
func (f *fake) wait(body []byte) {
	f.mu.Lock()
	blocked, prefix := f.blocked, f.prefix
	f.mu.Unlock()
	var review struct {
		Spec struct{ Token, User string }
	}
	if err := json.Unmarshal(body, &review); err != nil {
		f.t.Error(err)
	}
	subject := review.Spec.Token
	if subject == "" {
		subject = "access of " + review.Spec.User
	}
	if blocked != nil && strings.HasPrefix(subject, prefix) {
		<-blocked
	}
}

// takeReviews returns the SubjectAccessReviews since its last call.
func (f *fake) takeReviews() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	reviews := f.reviews
	f.reviews = nil
	return reviews
}

// allow grants a right: "user verb subresource".
func (f *fake) allow(right string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.allowed[right] = true
}

// defaults returns the options of a node with the default configuration.
func defaults(f *fake) access.Options {
	yes, no := true, false
	opts := access.Options{NodeName: "node-a", Warn: func(string) {}}
	opts.Authentication.Anonymous.Enabled = &no
	opts.Authentication.Webhook.Enabled = &yes
	opts.Authentication.Webhook.CacheTTL = metav1.Duration{Duration: time.Minute}
	opts.Authorization.Mode = kubeletconfig.KubeletAuthorizationModeWebhook
	opts.Authorization.Webhook.CacheAuthorizedTTL = metav1.Duration{Duration: time.Minute}
	opts.Authorization.Webhook.CacheUnauthorizedTTL = metav1.Duration{Duration: time.Minute}
	if f != nil {
		opts.Reviewer = f.client
	}
	return opts
}

// authority signs client certificates.
type authority struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

func newAuthority(t *testing.T) *authority {
	t.Helper()
	a := &authority{cert: &x509.Certificate{SerialNumber: big.NewInt(1),
		Subject:  pkix.Name{CommonName: rand.Text()},
		NotAfter: time.Now().Add(time.Hour), IsCA: true, BasicConstraintsValid: true,
	}}
	var err error
	if a.key, err = ecdsa.GenerateKey(elliptic.P256(), rand.Reader); err != nil {
		t.Fatal(err)
	}
	return a
}

// write writes the authority's own certificate.
func (a *authority) write(t *testing.T, path string) string {
	t.Helper()
	der, err := x509.CreateCertificate(rand.Reader, a.cert, a.cert, a.key.Public(), a.key)
	if err != nil {
		t.Fatal(err)
	}
	data := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	temporary := filepath.Join(filepath.Dir(path), "."+rand.Text())
	if err := os.WriteFile(temporary, data, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(temporary, path); err != nil {
		t.Fatal(err)
	}
	return path
}

// client returns a certificate of a user for an extended key usage.
func (a *authority) client(t *testing.T, name string, usage x509.ExtKeyUsage,
	groups ...string) *tls.Certificate {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.CreateCertificate(rand.Reader, &x509.Certificate{
		SerialNumber: big.NewInt(2), Subject: pkix.Name{CommonName: name, Organization: groups},
		NotAfter: time.Now().Add(time.Hour), ExtKeyUsage: []x509.ExtKeyUsage{usage},
	}, a.cert, key.Public(), a.key)
	if err != nil {
		t.Fatal(err)
	}
	return &tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}
}
