package identity

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
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"
	certificates "k8s.io/api/certificates/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/yaml"

	"seedlet.dev/realworld/porttest"
)

// csrPath is where the fake serves certificate requests.
const csrPath = "/apis/certificates.k8s.io/v1/"

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// authority signs client certificates.
type authority struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

func newKey(t *testing.T) *ecdsa.PrivateKey {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

func newAuthority(t *testing.T) *authority {
	t.Helper()
	a := &authority{key: newKey(t), cert: &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "authority"},
		NotAfter: time.Now().Add(time.Hour), IsCA: true, BasicConstraintsValid: true,
	}}
	return a
}

// sign returns a certificate.
func (a *authority) sign(t *testing.T, request *x509.CertificateRequest, from,
	to time.Time) []byte {
	t.Helper()
	der, err := x509.CreateCertificate(rand.Reader, &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: request.Subject,
		NotBefore: from, NotAfter: to, DNSNames: request.DNSNames, IPAddresses: request.IPAddresses,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	}, a.cert, request.PublicKey, a.key)
	if err != nil {
		t.Error(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
}

// pair returns a certificate of a name, and its key.
func (a *authority) pair(t *testing.T, name string, from, to time.Duration) (cert, key []byte) {
	t.Helper()
	private := newKey(t)
	der, err := x509.MarshalECPrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	now := time.Now()
	subject := pkix.Name{CommonName: name, Organization: []string{"system:nodes"}}
	asked := &x509.CertificateRequest{Subject: subject, PublicKey: private.Public()}
	return a.sign(t, asked, now.Add(from), now.Add(to)),
		pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: der})
}

// fake is an API server that signs certificates.
type fake struct {
	t         *testing.T
	authority *authority
	url       string
	ca        []byte
	approve   chan struct{} // closed when requests are approved
	deny      atomic.Bool   // instead
	watches   atomic.Int64  // that have started
	// sign changes what is signed of a request; nil for nothing.
	sign func(asked *x509.CertificateRequest, from, to *time.Time)

	mu         sync.Mutex
	addresses  []v1.NodeAddress                        // of the Node
	request    *certificates.CertificateSigningRequest // the latest
	requesters []string                                // the users that have requested certificates
	counted    int                                     // of requesters; only for requestsWithin
}

func newFake(t *testing.T) *fake {
	t.Helper()
	f := &fake{t: t, authority: newAuthority(t), approve: make(chan struct{})}
	server := httptest.NewUnstartedServer(f)
	server.EnableHTTP2 = true
	server.Config.ErrorLog = porttest.ErrorLog(t)
	server.TLS = &tls.Config{ClientAuth: tls.RequestClientCert}
	server.StartTLS()
	t.Cleanup(server.Close)
	f.url = server.URL
	f.ca = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
	return f
}

// userOf returns the user of a request.
func userOf(r *http.Request) string {
	if len(r.TLS.PeerCertificates) > 0 {
		return r.TLS.PeerCertificates[0].Subject.CommonName
	}
	return strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer ")
}

// ServeHTTP serves certificate requests, and responds to all others with the user and the client
// address.
func (f *fake) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	switch {
	case userOf(r) == "stranger":
		http.Error(w, "who are you?", http.StatusUnauthorized)
	case strings.HasPrefix(r.URL.Path, "/api/v1/nodes/"):
		f.mu.Lock()
		defer f.mu.Unlock()
		respond(w, http.StatusOK, &v1.Node{
			TypeMeta: metav1.TypeMeta{Kind: "Node", APIVersion: "v1"},
			Status:   v1.NodeStatus{Addresses: f.addresses},
		})
	case !strings.HasPrefix(r.URL.Path, csrPath):
		_, _ = io.WriteString(w, userOf(r)+" "+r.RemoteAddr)
	case r.Method == http.MethodPost:
		asked := f.decode(r.Body)
		if asked == nil {
			return
		}
		asked.UID, asked.ResourceVersion = "uid-1", "1"
		f.mu.Lock()
		if f.request != nil && f.request.Name == asked.Name {
			f.mu.Unlock()
			respond(w, http.StatusConflict, &metav1.Status{
				TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"},
				Status:   metav1.StatusFailure, Reason: metav1.StatusReasonAlreadyExists})
			return
		}
		f.request, f.requesters = asked, append(f.requesters, userOf(r))
		f.mu.Unlock()
		respond(w, http.StatusCreated, asked)
	case strings.Contains(r.URL.Path, "/node-csr-"):
		f.mu.Lock()
		defer f.mu.Unlock()
		respond(w, http.StatusOK, f.request)
	case r.URL.Query().Get("sendInitialEvents") != "":
		http.Error(w, "no streaming lists", http.StatusUnprocessableEntity)
	case r.URL.Query().Get("watch") != "":
		f.watches.Add(1)
		select {
		case <-f.approve:
			respond(w, http.StatusOK, map[string]any{"type": "MODIFIED", "object": f.signed()})
			<-r.Context().Done()
		case <-r.Context().Done():
		}
	default:
		f.mu.Lock()
		defer f.mu.Unlock()
		respond(w, http.StatusOK, &certificates.CertificateSigningRequestList{
			TypeMeta: metav1.TypeMeta{Kind: "CertificateSigningRequestList",
				APIVersion: "certificates.k8s.io/v1"},
			ListMeta: metav1.ListMeta{ResourceVersion: "1"},
			Items:    []certificates.CertificateSigningRequest{*f.request},
		})
	}
}

// decode decodes a request; nil if the client has disconnected.
func (f *fake) decode(body io.Reader) *certificates.CertificateSigningRequest {
	data, err := io.ReadAll(body)
	if err != nil {
		return nil
	}
	asked, kind, err := scheme.Codecs.UniversalDeserializer().Decode(data, nil, nil)
	if err != nil {
		f.t.Error(err)
		return nil
	}
	asked.GetObjectKind().SetGroupVersionKind(*kind)
	return asked.(*certificates.CertificateSigningRequest)
}

// signed returns the latest request, approved and with its certificate.
func (f *fake) signed() *certificates.CertificateSigningRequest {
	f.mu.Lock()
	defer f.mu.Unlock()
	block, _ := pem.Decode(f.request.Spec.Request)
	asked, err := x509.ParseCertificateRequest(block.Bytes)
	if err != nil {
		f.t.Error(err)
	}
	signed := f.request.DeepCopy()
	if f.deny.Load() {
		signed.Status.Conditions = []certificates.CertificateSigningRequestCondition{
			{Type: certificates.CertificateDenied}}
		return signed
	}
	signed.Status.Conditions = []certificates.CertificateSigningRequestCondition{
		{Type: certificates.CertificateApproved}}
	from, to := time.Now().Add(-time.Minute), time.Now().Add(time.Hour)
	if f.sign != nil {
		f.sign(asked, &from, &to)
	}
	signed.Status.Certificate = f.authority.sign(f.t, asked, from, to)
	return signed
}

func (f *fake) csrRequesters() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.requesters
}

func respond(w http.ResponseWriter, code int, body any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(body) // the client may have disconnected
	w.(http.Flusher).Flush()
}

// kubeconfig writes a kubeconfig for the server and a user.
func (f *fake) kubeconfig(path string, user map[string]any) string {
	f.t.Helper()
	data, err := yaml.Marshal(map[string]any{
		"apiVersion": "v1", "kind": "Config", "current-context": "x",
		"clusters": []any{map[string]any{"name": "c", "cluster": map[string]any{
			"server": f.url, "certificate-authority-data": f.ca}}},
		"users": []any{map[string]any{"name": "u", "user": user}},
		"contexts": []any{map[string]any{"name": "x", "context": map[string]any{
			"cluster": "c", "user": "u"}}},
	})
	if err != nil {
		f.t.Fatal(err)
	}
	write(f.t, path, string(data))
	return path
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}
