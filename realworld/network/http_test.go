package network_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"seedlet.dev/world"
)

// serve answers HTTP on the loopback; the request to it is for its root.
func serve(t *testing.T, handle http.HandlerFunc) *world.HTTPGet {
	t.Helper()
	server := httptest.NewServer(handle)
	t.Cleanup(server.Close)
	host, port := at(server.Listener.Addr().String())
	return &world.HTTPGet{Scheme: "http", Host: host, Port: port, Path: "/"}
}

func (b *bench) get(m *world.HTTPGet) *world.HTTPGot {
	b.t.Helper()
	body, err := b.do(m, 10*time.Second)
	if err != nil {
		b.t.Fatal(err)
	}
	return body.(*world.HTTPGot)
}

func TestHTTPAnswers(t *testing.T) {
	b := newBench(t)
	m := serve(t, func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodGet || r.RequestURI != "/healthz?deep=1" {
			t.Errorf("asked for %s %s", r.Method, r.RequestURI)
		}
		w.WriteHeader(http.StatusTeapot)
		fmt.Fprint(w, "short and stout")
	})
	for _, path := range []string{"/healthz?deep=1", "healthz?deep=1", "/healthz?deep=1#top"} {
		m.Path = path
		got := b.get(m)
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
	b := newBench(t)
	var seen string
	m := serve(t, func(_ http.ResponseWriter, r *http.Request) {
		seen = fmt.Sprintf("%s|%s|%s|%v|%s", r.Header.Get("User-Agent"), r.Header.Get("Accept"),
			r.Header.Get("Accept-Encoding"), r.Header["X"], r.Host)
		if !r.Close {
			t.Error("the connection is to be kept")
		}
	})
	server := fmt.Sprintf("%s:%d", m.Host, m.Port)
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			m.Headers = c.given
			b.get(m)
			if want := strings.ReplaceAll(c.want, "SERVER", server); seen != want {
				t.Errorf("got %q, want %q", seen, want)
			}
		})
	}
}

func TestHTTPBodyIsCut(t *testing.T) {
	b := newBench(t)
	ended := make(chan struct{})
	m := serve(t, func(w http.ResponseWriter, r *http.Request) {
		defer close(ended)
		for r.Context().Err() == nil { // without end
			fmt.Fprint(w, strings.Repeat("x", 1000))
		}
	})
	if got := b.get(m); len(got.Body) != world.HTTPBodyMax || got.Status != http.StatusOK {
		t.Errorf("status %d, %d bytes, want 200 and %d", got.Status, len(got.Body),
			world.HTTPBodyMax)
	}
	<-ended // the rest is not waited for
}

func TestHTTPBodyHangs(t *testing.T) {
	b := newBench(t)
	m := serve(t, func(w http.ResponseWriter, r *http.Request) {
		w.(http.Flusher).Flush()
		<-r.Context().Done()
	})
	if _, err := b.do(m, 300*time.Millisecond); !err.Has(world.KindTimeout) {
		t.Errorf("error %v, want Timeout", err)
	}
}

func TestHTTPRedirects(t *testing.T) {
	other := serve(t, func(http.ResponseWriter, *http.Request) { t.Error("it was followed") })
	cases := []struct {
		path string
		want *world.HTTPGot // nil: Unavailable
	}{
		{"/here", &world.HTTPGot{Status: 200, Body: []byte("arrived as shop.example")}},
		{"/away", &world.HTTPGot{Status: 302, Elsewhere: true, Body: []byte("gone")}},
		{"/here-then-away", &world.HTTPGot{Status: 302, Elsewhere: true, Body: []byte("gone")}},
		{"/for-ever", nil},
		{"/nowhere", &world.HTTPGot{Status: 304, Body: []byte{}}},
	}
	b := newBench(t)
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
			body, err := b.do(m, 10*time.Second)
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

// The certificate is of nobody that is known, and for another name.
func TestHTTPS(t *testing.T) {
	for _, h2 := range []bool{false, true} {
		server := httptest.NewUnstartedServer(http.HandlerFunc(
			func(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, r.Proto) }))
		server.EnableHTTP2 = h2
		server.StartTLS()
		b := newBench(t)
		host, port := at(server.Listener.Addr().String())
		got := b.get(&world.HTTPGet{Scheme: "https", Host: host, Port: port, Path: "/"})
		if want := map[bool]string{false: "HTTP/1.1", true: "HTTP/2.0"}[h2]; string(
			got.Body) != want {
			t.Errorf("answered by %s, want %s", got.Body, want)
		}
		server.Close()
	}
}

func TestProxiesAreNotUsed(t *testing.T) {
	t.Setenv("HTTP_PROXY", "http://127.0.0.1:1")
	b := newBench(t)
	b.get(serve(t, func(http.ResponseWriter, *http.Request) {}))
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
	b := newBench(t)
	host, port := at(l.Addr().String())
	_, err := b.do(&world.HTTPGet{Scheme: "http", Host: host, Port: port}, 5*time.Second)
	if !err.Has(world.KindUnavailable) {
		t.Errorf("error %v, want Unavailable", err)
	}
	<-done
}
