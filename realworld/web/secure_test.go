package web_test

import (
	"bufio"
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"
	kubeletconfig "k8s.io/kubelet/config/v1beta1"

	"seedlet.dev/realworld/porttest"
	"seedlet.dev/realworld/web"
	"seedlet.dev/world"
)

// switches are the fields of a configuration with defaults that the secure port looks at.
func switches() *kubeletconfig.KubeletConfiguration {
	on, c := true, &kubeletconfig.KubeletConfiguration{}
	c.Kind, c.APIVersion = "KubeletConfiguration", "kubelet.config.k8s.io/v1beta1"
	for _, field := range []**bool{&c.EnableDebuggingHandlers, &c.EnableProfilingHandler,
		&c.EnableDebugFlagsHandler, &c.EnableSystemLogHandler} {
		*field = &on
	}
	return c
}

// secure returns the secure port's handler, with a guard that admits every request, and with
// further handlers that wait until their request is canceled or the test lets them go on.
func (a *agent) secure(change func(*web.Secure)) http.Handler {
	s := web.Secure{
		Config: switches(), Version: "v1.36.3", Flags: map[string]string{"v": "4"},
		Guard: func(next http.Handler) http.Handler { return next },
		Containers: web.Routes{func(mux *http.ServeMux) {
			mux.HandleFunc("/exec/{word}", func(w http.ResponseWriter, r *http.Request) {
				_, _ = io.Copy(w, r.Body)
			})
		}},
		SystemLog: web.Routes{func(mux *http.ServeMux) {
			mux.HandleFunc("GET /logs/", func(w http.ResponseWriter, _ *http.Request) {
				_, _ = io.WriteString(w, "log")
			})
		}},
	}
	if change != nil {
		change(&s)
	}
	return a.port.Secure(s)
}

func TestRunningPods(t *testing.T) {
	a := newAgent()
	code, body := get(t, a.secure(nil), "/runningpods/")
	var list v1.PodList
	if err := json.Unmarshal([]byte(body), &list); err != nil || code != http.StatusOK ||
		list.Kind != "PodList" || len(list.Items) != 1 || list.Items[0].Name != "runs" {
		t.Errorf("%d %s: %v", code, body, err)
	}
}

func TestAsk(t *testing.T) {
	a := newAgent()
	answer, err := a.port.ResolveContainer(t.Context(), world.ContainerRequest{Pod: "web"})
	if err != nil || answer.UID != "web-uid" {
		t.Errorf("%+v, %v", answer, err)
	}
	a.full = true
	if _, err := a.port.ResolveContainer(t.Context(), world.ContainerRequest{}); err == nil {
		t.Error("an answer of an agent that takes no request")
	}
}

func TestConfigz(t *testing.T) {
	a := newAgent()
	code, body := get(t, a.secure(func(s *web.Secure) {
		s.Config.MaxPods = 7
		s.Config.StaticPodURL = "https://admin:hunter2@host/pods?token=secret"
		s.Config.StaticPodURLHeader = map[string][]string{"Authorization": {"Bearer secret"}}
	}), "/configz")
	var shown map[string]kubeletconfig.KubeletConfiguration
	if err := json.Unmarshal([]byte(body), &shown); err != nil || code != http.StatusOK ||
		shown["kubeletconfig"].MaxPods != 7 ||
		shown["kubeletconfig"].Kind != "KubeletConfiguration" {
		t.Errorf("%d %s: %v", code, body, err)
	}
	if strings.Contains(body, "secret") || !strings.Contains(body, "masked") {
		t.Errorf("a header is shown: %s", body)
	}
	if got := shown["kubeletconfig"].StaticPodURL; got != "https://masked@host/pods?masked" {
		t.Errorf("the manifest URL is shown as %q", got)
	}
	_, body = get(t, a.secure(func(s *web.Secure) {
		s.Config.StaticPodURL = "https://admin:secret@host\x7f"
	}), "/configz")
	if strings.Contains(body, "secret") {
		t.Errorf("an invalid URL is shown: %s", body)
	}
}

func TestZPages(t *testing.T) {
	a := newAgent()
	code, body := get(t, a.secure(nil), "/statusz")
	for _, want := range []string{"kubelet statusz", "1.36.3", "/healthz"} {
		if code != http.StatusOK || !strings.Contains(body, want) {
			t.Errorf("%d, no %q in %s", code, want, body)
		}
	}
	if code, body := get(t, a.secure(nil), "/flagz"); code != http.StatusOK ||
		!regexp.MustCompile(`\nv\W+4`).MatchString(body) {
		t.Errorf("%d %s", code, body)
	}
	off := a.secure(func(s *web.Secure) {
		s.Config.FeatureGates = map[string]bool{"ComponentFlagz": false, "ComponentStatusz": false}
	})
	for _, path := range []string{"/flagz", "/statusz"} {
		if code, _ := get(t, off, path); code != http.StatusNotFound {
			t.Errorf("%s is %d with its gate off", path, code)
		}
	}
}

func TestVerbosity(t *testing.T) {
	var before klog.Level
	if err := before.Set("0"); err != nil {
		t.Fatal(err)
	}
	handler := newAgent().secure(nil)
	for _, c := range []struct {
		method, level string
		code          int
		text          string
	}{
		{"PUT", "5", http.StatusOK, "successfully set klog.logging.verbosity to 5"},
		{"PUT", "many", http.StatusBadRequest, `strconv.ParseUint: parsing "many": invalid syntax`},
		{"PUT", "7", http.StatusOK, "successfully set klog.logging.verbosity to 7"},
		{"PUT", "8", http.StatusBadRequest, "at verbosity 8 and above the contents of Secrets are " +
			"logged: set it with --v"},
		{"GET", "", http.StatusNotAcceptable, "unsupported http method"},
		{"PUT", "0", http.StatusOK, "successfully set klog.logging.verbosity to 0"},
	} {
		rec := httptest.NewRecorder()
		handler.ServeHTTP(rec, httptest.NewRequest(c.method, "/debug/flags/v",
			strings.NewReader(c.level)))
		if rec.Code != c.code || rec.Body.String() != c.text {
			t.Errorf("%s %q: %d %q", c.method, c.level, rec.Code, rec.Body)
		}
		if c.level == "5" && !klog.V(5).Enabled() {
			t.Error("nothing has changed")
		}
	}
}

// What is switched off answers as the kubelet does.
func TestSwitches(t *testing.T) {
	off := false
	for _, c := range []struct {
		name   string
		change func(*kubeletconfig.KubeletConfiguration)
		path   string
		code   int
		text   string
	}{
		{"pprof", nil, "/debug/pprof/cmdline", http.StatusOK, ""},
		{"logs", nil, "/logs/a", http.StatusOK, "log"},
		{"exec", nil, "/exec/a", http.StatusOK, ""},
		{"profiling", func(c *kubeletconfig.KubeletConfiguration) { c.EnableProfilingHandler = &off },
			"/debug/pprof/heap", http.StatusMethodNotAllowed, "profiling endpoint is disabled.\n"},
		{"flags", func(c *kubeletconfig.KubeletConfiguration) { c.EnableDebugFlagsHandler = &off },
			"/debug/flags/v", http.StatusMethodNotAllowed, "flags endpoint is disabled.\n"},
		{"system logs", func(c *kubeletconfig.KubeletConfiguration) { c.EnableSystemLogHandler = &off },
			"/logs/a", http.StatusMethodNotAllowed, "logs endpoint is disabled.\n"},
		{"debugging, exec", withoutDebugging, "/exec/a", http.StatusMethodNotAllowed,
			"Debug endpoints are disabled.\n"},
		{"debugging, pprof", withoutDebugging, "/debug/pprof/", http.StatusMethodNotAllowed,
			"Debug endpoints are disabled.\n"},
		{"debugging, logs", withoutDebugging, "/logs/", http.StatusMethodNotAllowed,
			"Debug endpoints are disabled.\n"},
		{"debugging, configz", withoutDebugging, "/configz", http.StatusNotFound,
			"404 page not found\n"},
		{"debugging, state", withoutDebugging, "/debug/state", http.StatusNotFound,
			"404 page not found\n"},
		{"debugging, health", withoutDebugging, "/healthz", http.StatusOK, "ok"},
	} {
		t.Run(c.name, func(t *testing.T) {
			handler := newAgent().secure(func(s *web.Secure) {
				if c.change != nil {
					c.change(s.Config)
				}
			})
			code, body := get(t, handler, c.path)
			if code != c.code || c.text != "" && body != c.text {
				t.Errorf("%s: %d %q, want %d %q", c.path, code, body, c.code, c.text)
			}
		})
	}
}

func withoutDebugging(c *kubeletconfig.KubeletConfiguration) {
	off := false
	c.EnableDebuggingHandlers = &off
}

// own is a certificate that a server shows.
func own(t *testing.T) *tls.Certificate {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	return &tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}
}

// listen serves a handler as the secure port does.
func listen(t *testing.T, handler http.Handler, c *kubeletconfig.KubeletConfiguration) string {
	t.Helper()
	cert := own(t)
	config, err := web.TLSConfig(c, func(*tls.ClientHelloInfo) (*tls.Certificate, error) {
		return cert, nil
	})
	if err != nil {
		t.Fatal(err)
	}
	server, err := web.ListenTLS("127.0.0.1", 0, handler, config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := server.Close(); err != nil {
			t.Error(err)
		}
	})
	return server.Addr.String()
}

func newClient(t *testing.T, http2 bool) *http.Client {
	t.Helper()
	transport := &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true},
		ForceAttemptHTTP2: http2}
	t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport}
}

func TestTLS(t *testing.T) {
	c := switches()
	c.TLSMinVersion = "VersionTLS12"
	c.TLSCipherSuites = []string{"TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256"}
	address := listen(t, newAgent().secure(nil), c)
	for _, http2 := range []bool{true, false} {
		answer, err := newClient(t, http2).Get("https://" + address + "/healthz")
		if err != nil {
			t.Fatal(err)
		}
		_ = answer.Body.Close()
		if got := answer.ProtoMajor == 2; got != http2 || answer.StatusCode != http.StatusOK {
			t.Errorf("%s by %s, want HTTP/2 %v", answer.Status, answer.Proto, http2)
		}
	}
	for what, config := range map[string]*tls.Config{
		"a version that is too old": {MinVersion: tls.VersionTLS10, MaxVersion: tls.VersionTLS11},
		"a cipher that is not in the list": {MaxVersion: tls.VersionTLS12,
			CipherSuites: []uint16{tls.TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384}},
	} {
		config.InsecureSkipVerify = true
		if conn, err := tls.Dial("tcp", address, config); err == nil {
			_ = conn.Close()
			t.Errorf("%s is accepted", what)
		}
	}
	for field, c := range map[string]*kubeletconfig.KubeletConfiguration{
		"tlsMinVersion":   {TLSMinVersion: "VersionTLS9"},
		"tlsCipherSuites": {TLSCipherSuites: []string{"ROT13"}},
	} {
		if _, err := web.TLSConfig(c, nil); err == nil || !strings.Contains(err.Error(), field) {
			t.Errorf("error %v, want one that names %s", err, field)
		}
	}
}

// A handshake fails while there is no certificate, and goes well when there is.
func TestNoCertificate(t *testing.T) {
	var cert *tls.Certificate
	config, err := web.TLSConfig(switches(), func(*tls.ClientHelloInfo) (*tls.Certificate, error) {
		if cert == nil {
			return nil, errors.New("no serving certificate available for the kubelet")
		}
		return cert, nil
	})
	if err != nil {
		t.Fatal(err)
	}
	server, err := web.ListenTLS("127.0.0.1", 0, newAgent().secure(nil), config)
	if err != nil {
		t.Fatal(err)
	}
	url := "https://" + server.Addr.String() + "/healthz"
	client := newClient(t, true)
	if answer, err := client.Get(url); err == nil {
		_ = answer.Body.Close()
		t.Error("a handshake without a certificate")
	}
	cert = own(t)
	answer, err := client.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	_ = answer.Body.Close()
	if err := server.Close(); err != nil {
		t.Error(err)
	}
}

func TestOversized(t *testing.T) {
	address := listen(t, newAgent().secure(nil), switches())
	for _, http2 := range []bool{true, false} {
		client := newClient(t, http2)
		long := strings.Repeat("a", 256<<10) // as the command of an exec may be
		answer, err := client.Get("https://" + address + "/exec/a?command=" + long)
		if err != nil || answer.StatusCode != http.StatusOK {
			t.Errorf("a long command: %v, %v", answer, err)
		} else {
			_ = answer.Body.Close()
		}
		answer, err = client.Get("https://" + address + "/exec/a?command=" +
			strings.Repeat(long, 5))
		if err == nil {
			_ = answer.Body.Close()
			if answer.StatusCode != http.StatusRequestHeaderFieldsTooLarge {
				t.Errorf("a header without end: %s", answer.Status)
			}
		}
		answer, err = client.Post("https://"+address+"/exec/a", "text/plain",
			bytes.NewReader(make([]byte, 2<<20)))
		if err == nil {
			body, _ := io.ReadAll(answer.Body) // it may be cut off
			_ = answer.Body.Close()
			if len(body) > 1<<20 {
				t.Errorf("a body of %d bytes is read", len(body))
			}
		}
	}
}

// A request that is passed on to the runtime would get a body that it does not have.
func TestNoBodyStaysNone(t *testing.T) {
	bodies := make(chan io.ReadCloser, 1)
	handler := newAgent().secure(func(s *web.Secure) {
		s.Containers = web.Routes{func(mux *http.ServeMux) {
			mux.HandleFunc("POST /exec/", func(_ http.ResponseWriter, r *http.Request) {
				bodies <- r.Body
			})
		}}
	})
	answer, err := newClient(t, false).Post("https://"+listen(t, handler, switches())+"/exec/a", "",
		http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	_ = answer.Body.Close()
	if body := <-bodies; body != http.NoBody {
		t.Errorf("the body is a %T", body)
	}
}

// The door is the first thing that a request meets, whatever it asks for.
func TestGuardComesFirst(t *testing.T) {
	handler := newAgent().secure(func(s *web.Secure) {
		s.Guard = func(http.Handler) http.Handler {
			return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				w.WriteHeader(http.StatusUnauthorized)
			})
		}
	})
	for _, path := range []string{"/healthz", "/none", "//exec/a", "/exec/../metrics", "/logs"} {
		if code, _ := get(t, handler, path); code != http.StatusUnauthorized {
			t.Errorf("%s is %d", path, code)
		}
	}
}

// What lasts has no time limit, and ends with its client, or with the server.
func TestWhatLasts(t *testing.T) {
	ended := make(chan error, 1)
	a := newAgent()
	handler := a.secure(func(s *web.Secure) {
		s.Containers = web.Routes{func(mux *http.ServeMux) {
			mux.HandleFunc("GET /containerLogs/", func(w http.ResponseWriter, r *http.Request) {
				fmt.Fprintln(w, "line")
				w.(http.Flusher).Flush()
				<-r.Context().Done()
				ended <- r.Context().Err()
			})
		}}
	})
	address := listen(t, handler, switches())
	for _, http2 := range []bool{true, false} {
		ctx, cancel := context.WithCancel(t.Context())
		request, err := http.NewRequestWithContext(ctx, http.MethodGet,
			"https://"+address+"/containerLogs/a/b/c", nil)
		if err != nil {
			t.Fatal(err)
		}
		answer, err := newClient(t, http2).Do(request)
		if err != nil {
			t.Fatal(err)
		}
		if line, err := bufio.NewReader(answer.Body).ReadString('\n'); line != "line\n" {
			t.Errorf("%q, %v", line, err)
		}
		cancel()
		select {
		case err := <-ended:
			if !errors.Is(err, context.Canceled) {
				t.Error(err)
			}
		case <-time.After(porttest.Patience):
			t.Error("the handler does not end with its client")
		}
		_ = answer.Body.Close()
	}
}

// deadlines notes what is done about the time limits of a connection.
type deadlines struct {
	*httptest.ResponseRecorder
	lifted int
}

func (d *deadlines) SetReadDeadline(t time.Time) error { return d.SetWriteDeadline(t) }
func (d *deadlines) SetWriteDeadline(t time.Time) error {
	if t.IsZero() {
		d.lifted++
	}
	return nil
}

func TestPatience(t *testing.T) {
	handler := newAgent().secure(nil)
	for path, lifted := range map[string]int{
		"/exec/a": 2, "/logs/a": 2, "/debug/pprof/cmdline": 2, "/containerLogs/a/b/c": 2,
		"/pods": 0, "/healthz": 0, "/none": 0, "/configz": 0,
	} {
		d := &deadlines{ResponseRecorder: httptest.NewRecorder()}
		handler.ServeHTTP(d, httptest.NewRequest("GET", path, nil))
		if d.lifted != lifted {
			t.Errorf("%s lifts %d time limits, want %d", path, d.lifted, lifted)
		}
	}
}

// A client that says nothing, or goes on saying little, is let go within the time for a header.
func TestSlowClients(t *testing.T) {
	cert := own(t)
	server, err := web.ListenTLSWithin(50*time.Millisecond, newAgent().secure(nil),
		&tls.Config{Certificates: []tls.Certificate{*cert}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := server.Close(); err != nil {
			t.Error(err)
		}
	})
	address := server.Addr.String()
	silent, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	slow, err := tls.Dial("tcp", address, &tls.Config{InsecureSkipVerify: true})
	if err != nil {
		t.Fatal(err)
	}
	defer slow.Close()
	// On a busy machine it may have been let go before it says a word.
	_, _ = io.WriteString(slow, "GET /healthz HTTP/1.1\r\nHost: a\r\nX-Slow: ")
	late := time.Now().Add(porttest.Patience)
	for what, conn := range map[string]net.Conn{"a silent": silent, "a slow": slow} {
		if err := conn.SetReadDeadline(late); err != nil {
			t.Fatal(err)
		}
		_, err := io.ReadAll(conn)
		if errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("%s client is still there", what)
		}
	}
}
