package access_test

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"
	kubeletconfig "k8s.io/kubelet/config/v1beta1"

	"seedlet.dev/realworld/access"
	"seedlet.dev/realworld/porttest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// serve starts a server that responds "in" to authorized requests.
func serve(t *testing.T, opts access.Options) *httptest.Server {
	t.Helper()
	a, err := access.New(opts)
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewUnstartedServer(a.Guard(http.HandlerFunc(
		func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "in") })))
	own := newAuthority(t).client(t, "node-a", x509.ExtKeyUsageServerAuth)
	server.TLS = &tls.Config{Certificates: []tls.Certificate{*own},
		NextProtos: []string{"h2", "http/1.1"}}
	server.EnableHTTP2 = true
	server.Config.ErrorLog = porttest.ErrorLog(t)
	a.TLS(server.TLS)
	server.StartTLS()
	t.Cleanup(server.Close)
	return server
}

// caller is a client of the HTTP API.
type caller struct {
	t      *testing.T
	server *httptest.Server
	cert   *tls.Certificate
	token  string
}

// call returns the code and the body of the response.
func (c caller) call(method, path string) (int, string) {
	c.t.Helper()
	config := &tls.Config{InsecureSkipVerify: true}
	if c.cert != nil {
		config.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
			return c.cert, nil
		}
	}
	transport := &http.Transport{TLSClientConfig: config, ForceAttemptHTTP2: true}
	defer transport.CloseIdleConnections()
	request, err := http.NewRequestWithContext(c.t.Context(), method, c.server.URL+path, nil)
	if err != nil {
		c.t.Fatal(err)
	}
	if c.token != "" {
		request.Header.Set("Authorization", "Bearer "+c.token)
	}
	response, err := transport.RoundTrip(request)
	if err != nil {
		c.t.Fatal(err)
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		c.t.Fatal(err)
	}
	return response.StatusCode, string(body)
}

func (c caller) expect(method, path string, code int, text string) {
	c.t.Helper()
	if gotCode, got := c.call(method, path); gotCode != code || got != text {
		c.t.Errorf("%s %s: %d %q, want %d %q", method, path, gotCode, got, code, text)
	}
}

func TestTokens(t *testing.T) {
	f := newFake(t)
	f.allow("jane get proxy")
	server := serve(t, defaults(f))
	known := caller{t: t, server: server, token: "good"}
	known.expect("GET", "/containerLogs/ns/pod/c", http.StatusOK, "in")
	known.expect("GET", "/containerLogs/ns/other/c", http.StatusOK, "in")
	if reviews := f.takeReviews(); len(reviews) != 1 || f.tokens != 1 {
		t.Errorf("reviews %q and of %d tokens, want one each: the others are cached", reviews, f.tokens)
	}
	known.expect("POST", "/containerLogs/ns/pod/c", http.StatusForbidden,
		"Forbidden (user=jane, verb=create, resource=nodes, subresource(s)=[proxy])\n")
	for _, token := range []string{"", "bad", "bad"} {
		stranger := caller{t: t, server: server, token: token}
		stranger.expect("GET", "/containerLogs/ns/pod/c", http.StatusUnauthorized, "Unauthorized")
		stranger.expect("GET", "/none", http.StatusUnauthorized, "Unauthorized")
	}
	if f.tokens != 2 {
		t.Errorf("reviews of %d tokens, want 2: a rejected token is cached too", f.tokens)
	}
}

// A request is refused if the review fails, and the failure is not cached.
func TestFailedReview(t *testing.T) {
	f := newFake(t)
	f.allow("jane get proxy")
	known := caller{t: t, server: serve(t, defaults(f)), token: "good"}
	f.failing = 1
	known.expect("GET", "/debug/state", http.StatusUnauthorized, "Unauthorized")
	known.expect("GET", "/debug/state", http.StatusOK, "in")
	f.failing = 1
	known.expect("PUT", "/debug/state", http.StatusInternalServerError,
		"Authorization error (user=jane, verb=update, resource=nodes, subresource=proxy)")
	f.allow("jane update proxy")
	known.expect("PUT", "/debug/state", http.StatusOK, "in")
}

// Each path maps to a subresource, and some map to proxy as well.
func TestSubresources(t *testing.T) {
	server := serve(t, defaults(newFake(t)))
	for path, want := range map[string]string{
		"/stats/summary":          "stats",
		"/metrics":                "metrics",
		"/metrics/cadvisor":       "metrics",
		"/metricsx":               "proxy",
		"/logs/":                  "log",
		"/checkpoint/ns/pod/c":    "checkpoint",
		"/statusz":                "statusz",
		"/flagz":                  "configz",
		"/pods":                   "pods proxy",
		"/runningpods/":           "pods proxy",
		"/healthz/syncloop":       "healthz proxy",
		"/configz":                "configz proxy",
		"/debug/state":            "proxy",
		"/debug/pprof/heap":       "proxy",
		"/containerLogs/ns/pod/c": "proxy",
		"/execute/ns/pod/c":       "proxy",
		"/":                       "proxy",

		"/%6detrics": "metrics",
	} {
		known := caller{t: t, server: server, token: "good"}
		known.expect("GET", path, http.StatusForbidden, fmt.Sprintf(
			"Forbidden (user=jane, verb=get, resource=nodes, subresource(s)=[%s])\n", want))
	}
}

// The fine-grained right is reviewed first; the right to proxy is enough too (KEP-2862).
func TestFineGrained(t *testing.T) {
	f := newFake(t)
	known := caller{t: t, server: serve(t, defaults(f)), token: "good"}
	known.expect("GET", "/configz", http.StatusForbidden,
		"Forbidden (user=jane, verb=get, resource=nodes, subresource(s)=[configz proxy])\n")
	if diff := cmp.Diff([]string{"jane get configz", "jane get proxy"}, f.takeReviews()); diff != "" {
		t.Error(diff)
	}
	f.allow("jane delete pods")
	known.expect("DELETE", "/pods", http.StatusOK, "in")
	f.allow("jane patch proxy")
	known.expect("PATCH", "/healthz", http.StatusOK, "in")
	known.expect("HEAD", "/healthz", http.StatusForbidden, "")
	want := []string{"jane delete pods", "jane patch healthz", "jane patch proxy",
		"jane  healthz", "jane  proxy"}
	if diff := cmp.Diff(want, f.takeReviews()); diff != "" {
		t.Error(diff)
	}
}

func TestCertificates(t *testing.T) {
	f, ours, others := newFake(t), newAuthority(t), newAuthority(t)
	f.allow("admin get proxy")
	opts := defaults(f)
	path := ours.write(t, filepath.Join(t.TempDir(), "ca.crt"))
	opts.Authentication.X509.ClientCAFile = path
	var warnings []string
	opts.Warn = func(problem string) { warnings = append(warnings, problem) }
	server := serve(t, opts)
	by := func(a *authority, usage x509.ExtKeyUsage) caller {
		return caller{t: t, server: server, cert: a.client(t, "admin", usage)}
	}
	known, stranger := by(ours, x509.ExtKeyUsageClientAuth), by(others, x509.ExtKeyUsageClientAuth)
	known.expect("GET", "/containerLogs", http.StatusOK, "in")
	stranger.expect("GET", "/containerLogs", http.StatusUnauthorized, "Unauthorized")
	by(ours, x509.ExtKeyUsageServerAuth).expect("GET", "/containerLogs", http.StatusUnauthorized,
		"Unauthorized")
	withToken := caller{t: t, server: server, token: "good"}
	withToken.expect("GET", "/containerLogs", http.StatusForbidden,
		"Forbidden (user=jane, verb=get, resource=nodes, subresource(s)=[proxy])\n")

	others.write(t, path) // the authority has been replaced
	known.expect("GET", "/containerLogs", http.StatusUnauthorized, "Unauthorized")
	stranger.expect("GET", "/containerLogs", http.StatusOK, "in")
	if len(warnings) != 0 {
		t.Errorf("warned of %q", warnings)
	}
}

func TestAnonymous(t *testing.T) {
	f := newFake(t)
	f.allow("system:anonymous get healthz")
	opts := defaults(f)
	yes := true
	opts.Authentication.Anonymous.Enabled = &yes
	server := serve(t, opts)
	anonymous := caller{t: t, server: server}
	anonymous.expect("GET", "/healthz", http.StatusOK, "in")
	anonymous.expect("GET", "/containerLogs", http.StatusForbidden,
		"Forbidden (user=system:anonymous, verb=get, resource=nodes, subresource(s)=[proxy])\n")
	// An invalid token is refused although a request without a token is anonymous.
	invalid := caller{t: t, server: server, token: "bad"}
	invalid.expect("GET", "/healthz", http.StatusUnauthorized, "Unauthorized")
}

// Without an API server requests that need a review are refused, and a warning names the field.
func TestStandalone(t *testing.T) {
	opts := defaults(nil)
	ours := newAuthority(t)
	opts.Authentication.X509.ClientCAFile = ours.write(t, filepath.Join(t.TempDir(), "ca.crt"))
	var warnings []string
	opts.Warn = func(problem string) { warnings = append(warnings, problem) }
	server := serve(t, opts)
	caller{t: t, server: server, token: "good"}.expect("GET", "/pods", http.StatusUnauthorized,
		"Unauthorized")
	admin := caller{t: t, server: server,
		cert: ours.client(t, "admin", x509.ExtKeyUsageClientAuth, "system:masters")}
	admin.expect("GET", "/containerLogs", http.StatusForbidden,
		"Forbidden (user=admin, verb=get, resource=nodes, subresource(s)=[proxy])\n")
	for _, field := range []string{"authentication.webhook.enabled", "authorization.mode"} {
		if !slices.ContainsFunc(warnings, func(w string) bool { return strings.Contains(w, field) }) {
			t.Errorf("no warning of %s in %q", field, warnings)
		}
	}
	opts.Authorization.Mode = kubeletconfig.KubeletAuthorizationModeAlwaysAllow
	admin.server = serve(t, opts)
	admin.expect("GET", "/containerLogs", http.StatusOK, "in")
	opts.Authentication.X509.ClientCAFile = ""
	caller{t: t, server: serve(t, opts)}.expect("GET", "/containerLogs", http.StatusUnauthorized,
		"Unauthorized")
}

func TestInvalidConfiguration(t *testing.T) {
	opts := defaults(nil)
	opts.Authentication.X509.ClientCAFile = filepath.Join(t.TempDir(), "none")
	_, err := access.New(opts)
	if err == nil || !strings.Contains(err.Error(), "authentication.x509.clientCAFile") {
		t.Errorf("error %v, want one that names the field", err)
	}
}

// A decision is cached for its TTL only.
func TestDecisionsExpire(t *testing.T) {
	f := newFake(t)
	opts := defaults(f)
	opts.Authorization.Webhook.CacheUnauthorizedTTL.Duration = time.Nanosecond
	known := caller{t: t, server: serve(t, opts), token: "good"}
	known.call("GET", "/containerLogs")
	f.allow("jane get proxy")
	known.expect("GET", "/containerLogs", http.StatusOK, "in")
}

// The number of requests that wait for a review is bounded, however many clients call at once.
func TestPendingRequestsAreBounded(t *testing.T) {
	const bound = 256 // of one address
	f := newFake(t)
	f.blocked = make(chan struct{})
	a, err := access.New(defaults(f))
	if err != nil {
		t.Fatal(err)
	}
	handler := a.Guard(http.NotFoundHandler())
	call := func(token string) int {
		r := httptest.NewRequest("GET", "/exec", nil)
		r.Header.Set("Authorization", "Bearer "+token)
		response := httptest.NewRecorder()
		handler.ServeHTTP(response, r)
		return response.Code
	}
	codes := make(chan int, bound+1)
	for range bound + 1 {
		go func() { codes <- call("bad") }()
	}
	if code := <-codes; code != http.StatusTooManyRequests {
		t.Errorf("the first response is %d, want 429 for the request beyond the bound", code)
	}
	close(f.blocked)
	for range bound {
		if code := <-codes; code != http.StatusUnauthorized {
			t.Errorf("a pending request gets %d", code)
		}
	}
}
