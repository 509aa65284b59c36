package network_test

import (
	"crypto/x509"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"seedlet.dev/realworld/network"
	"seedlet.dev/realworld/porttest"
	"seedlet.dev/world"
)

// fetch requests a manifest page, trusting the authorities of the pool.
func fetch(t *testing.T, roots *x509.CertPool, m *world.FetchManifest) (string, *world.Error) {
	w := porttest.New()
	port := network.New(network.Options{Clock: w.Clock, Deliver: w.Deliver, Roots: roots})
	w.Port = port
	t.Cleanup(port.Close)
	m.Documents = world.Documents{BytesMax: 100, ValuesMax: 1}
	body, err := w.CallWithin(m, porttest.Patience)
	if got, ok := body.(*world.ManifestFetched); ok {
		return strings.Trim(string(got.Doc), `"`), err
	}
	return "", err
}

// The page determines the pods of the node, so its server must be trusted.
func TestPageRequiresTrustedServer(t *testing.T) {
	server := httptest.NewUnstartedServer(http.HandlerFunc(ok))
	server.Config.ErrorLog = porttest.ErrorLog(t)
	server.StartTLS()
	t.Cleanup(server.Close)
	ask := &world.FetchManifest{URL: server.URL, BytesMax: 100}
	trusted := x509.NewCertPool()
	trusted.AddCert(server.Certificate())
	if page, err := fetch(t, trusted, ask); page != "ok" {
		t.Errorf("trusted server: %q, %v", page, err)
	}
	if page, err := fetch(t, nil, ask); !err.Has(world.KindUnavailable) {
		t.Errorf("unknown server: %q, %v", page, err)
	}
}

func TestPageRequestHasHeaders(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		user, _, _ := r.BasicAuth()
		_, _ = w.Write([]byte(strings.Join(r.Header["X-Token"], "+") + " " + user))
	}))
	t.Cleanup(server.Close)
	headers := []world.HTTPHeader{{Name: "X-Token", Value: "a"}, {Name: "X-Token", Value: "b"}}
	page, err := fetch(t, nil, &world.FetchManifest{Headers: headers, BytesMax: 100,
		URL: strings.Replace(server.URL, "://", "://me:password@", 1)})
	if page != "a+b me" {
		t.Errorf("%q, %v", page, err)
	}
}

func TestErrorsHaveNoSecrets(t *testing.T) {
	gone := httptest.NewServer(nil)
	gone.Close()
	asks := []*world.FetchManifest{
		{URL: strings.Replace(gone.URL, "://", "://me:secret@", 1) + "/?token=secret"},
		{URL: "http://secret:secret"}, {URL: "http://secret@%zz"}, {URL: "secret"},
		{URL: gone.URL, Headers: []world.HTTPHeader{{Name: "X", Value: "secret\n"}}},
		{URL: gone.URL, Headers: []world.HTTPHeader{{Name: "Host", Value: "sec ret/secret"}}},
	}
	for _, ask := range asks {
		_, err := fetch(t, nil, ask)
		if err == nil || strings.Contains(err.Error(), "secret") {
			t.Errorf("%v", err)
		}
	}
}
