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

// fake plays an API server that knows who has which token, and what they may do.
type fake struct {
	t      *testing.T
	client *kubernetes.Clientset
	users  map[string]authenticationv1.UserInfo // by token

	mu      sync.Mutex
	may     map[string]bool // "user verb subresource"
	tokens  int             // questions whose token it is
	asked   []string        // questions who may do what
	failing int             // how many questions will not be answered
	silent  chan struct{}   // if not nil, who is asked waits for it
}

func newFake(t *testing.T) *fake {
	t.Helper()
	f := &fake{t: t, may: map[string]bool{}, users: map[string]authenticationv1.UserInfo{
		"good": {Username: "jane", UID: "1", Groups: []string{"people"},
			Extra: map[string]authenticationv1.ExtraValue{"scope": {"all"}}},
	}}
	server := httptest.NewServer(f)
	t.Cleanup(server.Close)
	transport := &http.Transport{}
	t.Cleanup(transport.CloseIdleConnections)
	var err error
	f.client, err = kubernetes.NewForConfig(&rest.Config{Host: server.URL, Transport: transport,
		QPS: -1, ContentConfig: rest.ContentConfig{ContentType: "application/json"}})
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// ServeHTTP answers reviews.
func (f *fake) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if f.silent != nil {
		<-f.silent
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.failing > 0 {
		f.failing--
		http.Error(w, "out of order", http.StatusForbidden)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(http.StatusCreated)
	if strings.HasSuffix(r.URL.Path, "/tokenreviews") {
		review := read[authenticationv1.TokenReview](f.t, r)
		f.tokens++
		review.Status.User, review.Status.Authenticated = f.users[review.Spec.Token],
			f.users[review.Spec.Token].Username != ""
		_ = json.NewEncoder(w).Encode(review)
		return
	}
	review := read[authorizationv1.SubjectAccessReview](f.t, r)
	on := review.Spec.ResourceAttributes
	if on.Resource != "nodes" || on.Name != "node-a" || on.Version != "v1" || on.Namespace != "" {
		f.t.Errorf("asked about %+v", on)
	}
	question := strings.TrimSpace(review.Spec.User + " " + on.Verb + " " + on.Subresource)
	f.asked = append(f.asked, question)
	review.Status.Allowed = f.may[question]
	_ = json.NewEncoder(w).Encode(review)
}

func read[T any](t *testing.T, r *http.Request) *T {
	var body T
	if err := json.NewDecoder(r.Body).Decode(&body); err != nil {
		t.Error(err)
	}
	return &body
}

// questions are those about rights since the last time.
func (f *fake) questions() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	asked := f.asked
	f.asked = nil
	return asked
}

// allow lets somebody do something.
func (f *fake) allow(what string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.may[what] = true
}

// defaults are the options of a node that nobody has configured.
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

// authority signs certificates of clients.
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

// client is the certificate of somebody, for some use.
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
