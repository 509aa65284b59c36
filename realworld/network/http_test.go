package network_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"seedlet.dev/realworld/porttest"
	"seedlet.dev/world"
)

// serve serves HTTP on the loopback, and returns a request for its root.
func serve(t *testing.T, handle http.HandlerFunc) *world.HTTPGet {
	t.Helper()
	server := httptest.NewServer(handle)
	t.Cleanup(server.Close)
	host, port := hostPort(server.Listener.Addr().String())
	return &world.HTTPGet{Scheme: "http", Host: host, Port: port, Path: "/"}
}

func (h *harness) get(m *world.HTTPGet) *world.HTTPGot {
	h.t.Helper()
	body, err := h.call(m, porttest.Patience)
	if err != nil {
		h.t.Fatal(err)
	}
	return body.(*world.HTTPGot)
}

func TestHTTPAnswers(t *testing.T) {
	h := newHarness(t)
	m := serve(t, func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodGet || r.RequestURI != "/healthz?deep=1" {
			t.Errorf("request %s %s", r.Method, r.RequestURI)
		}
		w.WriteHeader(http.StatusTeapot)
		fmt.Fprint(w, "short and stout")
	})
	for _, path := range []string{"/healthz?deep=1", "healthz?deep=1", "/healthz?deep=1#top"} {
		m.Path = path
		got := h.get(m)
		want := &world.HTTPGot{Status: http.StatusTeapot, Body: []byte("short and stout")}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s (-want +got)\n%s", path, diff)
		}
	}
}

func TestHTTPHeaders(t *testing.T) {
	headers := func(namesAndValues ...string) (all []world.HTTPHeader) {
		for i := 0; i < len(namesAndValues); i += 2 {
			all = append(all, world.HTTPHeader{Name: namesAndValues[i], Value: namesAndValues[i+1]})
		}
		return all
	}
	cases := []struct {
		name  string
		given []world.HTTPHeader
		want  string // User-Agent, Accept, Accept-Encoding, X and Host
	}{
		{"defaults", nil, "kube-probe/1.36|*/*||[]|SERVER"},
		{"given", headers("user-agent", "mine", "ACCEPT", "text/plain", "X", "1", "x", "2"),
			"mine|text/plain||[1 2]|SERVER"},
		{"given empty", headers("User-Agent", "", "Accept", "", "Host", ""), "|||[]|SERVER"},
		{"another host", headers("Host", "shop.example:8080"),
			"kube-probe/1.36|*/*||[]|shop.example:8080"},
	}
	h := newHarness(t)
	var seen string
	m := serve(t, func(_ http.ResponseWriter, r *http.Request) {
		seen = fmt.Sprintf("%s|%s|%s|%v|%s", r.Header.Get("User-Agent"), r.Header.Get("Accept"),
			r.Header.Get("Accept-Encoding"), r.Header["X"], r.Host)
		if !r.Close {
			t.Error("the request asks for keep-alive")
		}
	})
	server := fmt.Sprintf("%s:%d", m.Host, m.Port)
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			m.Headers = c.given
			h.get(m)
			if want := strings.ReplaceAll(c.want, "SERVER", server); seen != want {
				t.Errorf("got %q, want %q", seen, want)
			}
		})
	}
}

func TestHTTPBodyIsTruncated(t *testing.T) {
	h := newHarness(t)
	ended := make(chan struct{})
	m := serve(t, func(w http.ResponseWriter, r *http.Request) {
		defer close(ended)
		for r.Context().Err() == nil { // without end
			fmt.Fprint(w, strings.Repeat("x", 1000))
		}
	})
	if got := h.get(m); len(got.Body) != world.HTTPBodyMax || got.Status != http.StatusOK {
		t.Errorf("status %d, %d bytes, want 200 and %d", got.Status, len(got.Body),
			world.HTTPBodyMax)
	}
	<-ended // the rest is not awaited
}

func TestHTTPRedirects(t *testing.T) {
	other := serve(t, func(http.ResponseWriter, *http.Request) {
		t.Error("the redirect was followed")
	})
	cases := []struct {
		path string
		want *world.HTTPGot // nil: Unavailable
	}{
		{"/here", &world.HTTPGot{Status: 200, Body: []byte("arrived as shop.example")}},
		{"/away", &world.HTTPGot{Status: 302, RedirectedToOtherHost: true, Body: []byte("gone")}},
		{"/here-then-away", &world.HTTPGot{Status: 302, RedirectedToOtherHost: true,
			Body: []byte("gone")}},
		{"/for-ever", nil},
		{"/nowhere", &world.HTTPGot{Status: 304, Body: []byte{}}},
	}
	h := newHarness(t)
	m := serve(t, func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/here":
			http.Redirect(w, r, "/arrived", http.StatusMovedPermanently)
		case "/arrived":
			fmt.Fprint(w, "arrived as "+r.Host)
		case "/here-then-away":
			http.Redirect(w, r, "/away", http.StatusTemporaryRedirect)
		case "/away": // the same machine by another name
			w.Header().Set("Location", fmt.Sprintf("http://localhost:%d/", other.Port))
			w.WriteHeader(http.StatusFound)
			fmt.Fprint(w, "gone")
		case "/for-ever":
			http.Redirect(w, r, "/for-ever", http.StatusFound)
		case "/nowhere":
			w.WriteHeader(http.StatusNotModified)
		}
	})
	m.Headers = []world.HTTPHeader{{Name: "Host", Value: "shop.example"}}
	for _, c := range cases {
		t.Run(c.path, func(t *testing.T) {
			m.Path = c.path
			body, err := h.call(m, porttest.Patience)
			got, _ := body.(*world.HTTPGot)
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Errorf("(-want +got)\n%s", diff)
			}
			if c.want == nil && !err.Has(world.KindUnavailable) {
				t.Errorf("error %v, want Unavailable", err)
			}
		})
	}
}

// The status decides, whatever becomes of the body.
func TestHTTPBodyThatDoesNotEnd(t *testing.T) {
	for name, handle := range map[string]http.HandlerFunc{
		"breaks off": func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Length", "100")
			fmt.Fprint(w, "part")
		},
		"stays open": func(w http.ResponseWriter, r *http.Request) {
			fmt.Fprint(w, "part")
			w.(http.Flusher).Flush()
			<-r.Context().Done()
		},
	} {
		m := serve(t, handle)
		body, err := newHarness(t).call(m, 2*time.Second)
		got, _ := body.(*world.HTTPGot)
		if want := (&world.HTTPGot{Status: http.StatusOK, Body: []byte("part")}); err != nil ||
			!cmp.Equal(got, want) {
			t.Errorf("a body that %s: %+v, %v", name, got, err)
		}
	}
}

// The certificate is of an unknown authority and for another name.
func TestHTTPS(t *testing.T) {
	for _, h2 := range []bool{false, true} {
		server := httptest.NewUnstartedServer(http.HandlerFunc(
			func(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, r.Proto) }))
		server.EnableHTTP2 = h2
		server.Config.ErrorLog = porttest.ErrorLog(t)
		server.StartTLS()
		h := newHarness(t)
		host, port := hostPort(server.Listener.Addr().String())
		got := h.get(&world.HTTPGet{Scheme: "https", Host: host, Port: port, Path: "/"})
		if want := map[bool]string{false: "HTTP/1.1", true: "HTTP/2.0"}[h2]; string(
			got.Body) != want {
			t.Errorf("protocol %s, want %s", got.Body, want)
		}
		server.Close()
	}
}

// The core knows the text by which a server is recognized that speaks no TLS.
func TestHTTPInsteadOfHTTPS(t *testing.T) {
	m := serve(t, func(http.ResponseWriter, *http.Request) {})
	m.Scheme = "https"
	if body, err := newHarness(t).call(m, 10*time.Second); err == nil ||
		!strings.HasSuffix(err.Message, world.HTTPInsteadOfHTTPS) {
		t.Errorf("%v, %v", body, err)
	}
}

func TestProxiesAreNotUsed(t *testing.T) {
	t.Setenv("HTTP_PROXY", "http://127.0.0.1:1")
	h := newHarness(t)
	h.get(serve(t, func(http.ResponseWriter, *http.Request) {}))
}

func TestNotHTTP(t *testing.T) {
	l := listen(t)
	done := make(chan struct{})
	go func() {
		defer close(done)
		conn, err := l.Accept()
		if err != nil {
			return
		}
		buffer := make([]byte, 4096)
		_, _ = conn.Read(buffer)
		_, _ = conn.Write([]byte("220 smtp.example ESMTP\r\n"))
		_ = conn.Close()
	}()
	h := newHarness(t)
	host, port := hostPort(l.Addr().String())
	_, err := h.call(&world.HTTPGet{Scheme: "http", Host: host, Port: port}, porttest.Patience)
	if !err.Has(world.KindUnavailable) {
		t.Errorf("error %v, want Unavailable", err)
	}
	<-done
}
