package access_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"sync"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"

	"seedlet.dev/realworld/access"
	"seedlet.dev/realworld/porttest"
)

const refusedReviews = "seedlet_reviews_refused_total"

// newGuard returns a handler that responds "in" to authorized requests, and a function that sends
// it a GET request. Requests need no connection.
func newGuard(t *testing.T, opts access.Options) (*access.Access,
	func(address, token string, cert *tls.Certificate) *httptest.ResponseRecorder) {
	t.Helper()
	a, handler := newHandler(t, opts)
	return a, func(address, token string, cert *tls.Certificate) *httptest.ResponseRecorder {
		r := httptest.NewRequest("GET", "/containerLogs/ns/pod/c", nil)
		r.RemoteAddr = address + ":40000"
		if token != "" {
			r.Header.Set("Authorization", "Bearer "+token)
		}
		r.TLS = &tls.ConnectionState{}
		if cert != nil {
			parsed, err := x509.ParseCertificate(cert.Certificate[0])
			if err != nil {
				t.Error(err)
			}
			r.TLS.PeerCertificates = []*x509.Certificate{parsed}
		}
		response := httptest.NewRecorder()
		handler.ServeHTTP(response, r)
		return response
	}
}

func newHandler(t *testing.T, opts access.Options) (*access.Access, http.Handler) {
	t.Helper()
	a, err := access.New(opts)
	if err != nil {
		t.Fatal(err)
	}
	return a, a.Guard(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = w.Write([]byte("in"))
	}))
}

// waitFor waits until the metric of reviews of a kind, of a reason if it has one, has a value.
func waitFor(t *testing.T, a *access.Access, name, kind, reason string, want float64) {
	t.Helper()
	late := time.Now().Add(porttest.Patience)
	for value(t, a, name, kind, reason) != want {
		if time.Now().After(late) {
			t.Fatalf("%s of %s reviews is %v, want %v", name, kind, value(t, a, name, kind, reason),
				want)
		}
		time.Sleep(time.Millisecond)
	}
}

// value returns the value of the metric of reviews of a kind, of a reason if it has one.
func value(t *testing.T, a *access.Access, name, kind, reason string) float64 {
	t.Helper()
	for _, m := range a.Metrics() {
		if m.Name == name && m.Labels[0].Value == kind &&
			(reason == "" || m.Labels[1].Value == reason) {
			return m.Value
		}
	}
	t.Fatalf("no metric %s of %s reviews", name, kind)
	return 0
}

// Strangers fill the bound on TokenReviews of their address: clients with a certificate or a cached
// token are served, from the same address too, and a new token from another address is reviewed.
func TestUnauthenticatedClientsDelayNoOther(t *testing.T) {
	f, ours := newFake(t), newAuthority(t)
	f.users["other"] = authenticationv1.UserInfo{Username: "jane"}
	f.allow("admin get proxy")
	f.allow("jane get proxy")
	opts := defaults(f)
	opts.Authentication.X509.ClientCAFile = ours.write(t, filepath.Join(t.TempDir(), "ca.crt"))
	a, get := newGuard(t, opts)
	admin := ours.client(t, "admin", x509.ExtKeyUsageClientAuth)
	const strangers, neighbor = "192.0.2.1", "192.0.2.2"
	get(strangers, "good", nil) // the token and the decision are cached now
	f.block("bad")
	var crowd sync.WaitGroup
	for i := range 600 {
		crowd.Go(func() {
			code := get(strangers, fmt.Sprint("bad", i), nil).Code
			if code != http.StatusTooManyRequests && code != http.StatusUnauthorized {
				t.Errorf("a stranger gets %d", code)
			}
		})
	}
	waitFor(t, a, "seedlet_reviews_waiting", "token", "", 240)
	waitFor(t, a, "seedlet_reviews_in_flight", "token", "", 16)
	waitFor(t, a, refusedReviews, "token", "address", 600-256)
	for name, response := range map[string]*httptest.ResponseRecorder{
		"a certificate":                   get(strangers, "", admin),
		"a cached token":                  get(strangers, "good", nil),
		"a new token of another address":  get(neighbor, "other", nil),
		"a certificate elsewhere":         get(neighbor, "", admin),
		"the cached token, from anywhere": get(neighbor, "good", nil),
	} {
		if response.Code != http.StatusOK {
			t.Errorf("%s: %d %s", name, response.Code, response.Body)
		}
	}
	refused := get(strangers, "one more", nil)
	if refused.Code != http.StatusTooManyRequests || refused.Header().Get("Retry-After") != "1" {
		t.Errorf("one more stranger: %d %v", refused.Code, refused.Header())
	}
	f.unblock()
	crowd.Wait()
	waitFor(t, a, refusedReviews, "token", "address", 600-256+1)
	for _, name := range []string{"seedlet_reviews_waiting", "seedlet_reviews_in_flight"} {
		if n := value(t, a, name, "token", ""); n != 0 {
			t.Errorf("%s is %v in the end", name, n)
		}
	}
}

// Strangers that disconnect at once do not use up the rate limit of the API server's client.
func TestStrangersThatDisconnect(t *testing.T) {
	f := newFake(t)
	f.allow("jane get proxy")
	f.connect(50)
	_, handler := newHandler(t, defaults(f))
	send := func(ctx context.Context, address, token string) int {
		r := httptest.NewRequestWithContext(ctx, "GET", "/containerLogs/ns/pod/c", nil)
		r.RemoteAddr = address + ":40000"
		r.Header.Set("Authorization", "Bearer "+token)
		response := httptest.NewRecorder()
		handler.ServeHTTP(response, r)
		return response.Code
	}
	var crowd sync.WaitGroup
	late := time.Now().Add(3 * time.Second)
	for i := range 32 {
		crowd.Go(func() {
			for k := 0; k < 200 && time.Now().Before(late); k++ {
				ctx, leave := context.WithCancel(t.Context())
				time.AfterFunc(2*time.Millisecond, leave)
				send(ctx, "192.0.2.1", fmt.Sprint("bad-", i, "-", k))
			}
		})
	}
	crowd.Wait()
	began := time.Now()
	code := send(t.Context(), "192.0.2.2", "good")
	took := time.Since(began) // minutes behind thousands of strangers, at 50 requests a second
	if code != http.StatusOK || took > time.Minute {
		t.Errorf("the good client gets %d after %v", code, took)
	}
}

// Crowds from many addresses fill the bounds on all reviews: an address with few requests takes the
// places of those with many.
func TestAddressesTakeTurns(t *testing.T) {
	f := newFake(t)
	f.allow("jane get proxy")
	a, get := newGuard(t, defaults(f))
	f.block("bad")
	var crowd sync.WaitGroup
	for address := range 8 {
		for i := range 200 {
			crowd.Go(func() {
				get(fmt.Sprintf("192.0.2.%d", address), fmt.Sprintf("bad%d-%d", address, i), nil)
			})
		}
	}
	waitFor(t, a, "seedlet_reviews_in_flight", "token", "", 64)
	waitFor(t, a, "seedlet_reviews_waiting", "token", "", 1024)
	const refused = 8*200 - 64 - 1024
	waitFor(t, a, refusedReviews, "token", "total", refused)
	good := make(chan int, 1)
	go func() { good <- get("192.0.2.99", "good", nil).Code }()
	waitFor(t, a, refusedReviews, "token", "total", refused+1) // another one has lost its place
	for range 9 {                                              // as many addresses take turns
		f.letOne()
	}
	if code := <-good; code != http.StatusOK {
		t.Errorf("the good client gets %d", code)
	}
	f.unblock()
	crowd.Wait()
}

// A rejection for which the API server gives a reason, as it does for most tokens, is cached too.
func TestRejectionWithReason(t *testing.T) {
	f := newFake(t)
	f.rejection = "[invalid bearer token, token has expired]"
	_, get := newGuard(t, defaults(f))
	for range 3 {
		if code := get("192.0.2.1", "bad", nil).Code; code != http.StatusUnauthorized {
			t.Errorf("a bad token gets %d", code)
		}
	}
	if f.tokens != 1 {
		t.Errorf("%d reviews of one bad token", f.tokens)
	}
}

// Reviews of access are bounded apart from those of tokens.
func TestAccessReviewsHaveTheirOwnBound(t *testing.T) {
	f := newFake(t)
	f.allow("jane get proxy")
	f.allow("john get proxy")
	f.users["john"] = authenticationv1.UserInfo{Username: "john"}
	opts := defaults(f)
	opts.Authorization.Webhook.CacheAuthorizedTTL.Duration = 0
	a, get := newGuard(t, opts)
	f.block("access of jane")
	var crowd sync.WaitGroup
	for range 300 {
		crowd.Go(func() { get("192.0.2.1", "good", nil) })
	}
	waitFor(t, a, "seedlet_reviews_in_flight", "access", "", 16)
	waitFor(t, a, "seedlet_reviews_waiting", "access", "", 240)
	if code := get("192.0.2.1", "good", nil).Code; code != http.StatusTooManyRequests {
		t.Errorf("a request beyond the bound gets %d", code)
	}
	if code := get("192.0.2.2", "john", nil).Code; code != http.StatusOK {
		t.Errorf("another user elsewhere gets %d", code)
	}
	f.unblock()
	crowd.Wait()
}

// A command is run only with the right to create, whatever the method is.
func TestExecNeedsCreate(t *testing.T) {
	f := newFake(t)
	for _, verb := range []string{"get", "update", "patch", "delete"} {
		f.allow("jane " + verb + " proxy")
	}
	known := caller{t: t, server: serve(t, defaults(f)), token: "good"}
	paths := []string{"/exec/ns/pod/c?command=env", "/attach/ns/pod/c", "/portForward/ns/pod",
		"/run/ns/pod/c?cmd=env", "/exec", "/%65xec/ns/pod/c"}
	for _, path := range paths {
		for _, method := range []string{"GET", "POST", "PUT", "DELETE", "PATCH", "HEAD", "BREW"} {
			if code, _ := known.call(method, path); code != http.StatusForbidden {
				t.Errorf("%s %s gets %d without the right to create", method, path, code)
			}
		}
	}
	known.expect("GET", paths[0], http.StatusForbidden,
		"Forbidden (user=jane, verb=create, resource=nodes, subresource(s)=[proxy])\n")
	f.allow("jane create proxy")
	known = caller{t: t, server: serve(t, defaults(f)), token: "good"}
	for _, path := range paths {
		known.expect("GET", path, http.StatusOK, "in")
		known.expect("POST", path, http.StatusOK, "in")
	}
	known.expect("GET", "/containerLogs/ns/pod/c", http.StatusOK, "in")
}
