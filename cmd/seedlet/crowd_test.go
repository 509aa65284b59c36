package main

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"io"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"seedlet.dev/realworld/porttest"
)

// certificateOf returns a user's certificate, which is its own authority.
func certificateOf(t *testing.T, user string) tls.Certificate {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1),
		Subject: pkix.Name{CommonName: user}, NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}
}

// encode returns a certificate in PEM.
func encode(der []byte) string {
	return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}))
}

// startSecure runs the agent with an API server and an authority of clients until the end of the
// test, and returns the address of its secure port.
func startSecure(t *testing.T, authority []byte) string {
	t.Helper()
	server := httptest.NewUnstartedServer(http.HandlerFunc(reviews))
	server.EnableHTTP2 = true // a review that is given up does not end the connection
	server.Config.ErrorLog = porttest.ErrorLog(t)
	server.StartTLS()
	t.Cleanup(server.Close)
	dir := t.TempDir()
	write(t, filepath.Join(dir, "ca.crt"), encode(server.Certificate().Raw))
	port := freePort(t)
	notified := notifySocket(t, filepath.Join(dir, "notify.sock"))
	cmd := agentCommand(t.Context(),
		"--address", "127.0.0.1", "--port", fmt.Sprint(port),
		"--kubeconfig", write(t, filepath.Join(dir, "kubelet.conf"),
			fmt.Sprintf(kubeconfig, server.URL)),
		"--client-ca-file", write(t, filepath.Join(dir, "clients.crt"), encode(authority)),
		"--config", write(t, filepath.Join(dir, "config.yaml"), header),
		"--cert-dir", filepath.Join(dir, "pki"), "--root-dir", filepath.Join(dir, "root"),
		"--container-runtime-endpoint", "unix://"+filepath.Join(dir, "none.sock"),
		"--hostname-override", "node-a", "--healthz-port", "0")
	cmd.Env = append(cmd.Env, "NOTIFY_SOCKET="+filepath.Join(dir, "notify.sock"))
	start(t, cmd)
	select {
	case <-notified: // all ports are open
	case <-time.After(porttest.Patience):
		t.Fatal("the agent does not start")
	}
	return fmt.Sprintf("127.0.0.1:%d", port)
}

// goodClient sends requests, one after the other, while there is a crowd. All must succeed within
// porttest.Patience.
type goodClient struct {
	name    string
	from    string             // its address
	cert    []tls.Certificate  // or
	token   func(i int) string // of its ith request
	reuse   bool               // its connection
	sent    int
	late    int // requests that were sent again, because no time was left for them
	slowest time.Duration
}

// limitMin is the shortest of the agent's time limits for a handshake, a header and a review. On a
// busy machine a thousand handshakes may take longer: such a request is sent again. What the agent
// refuses, it refuses earlier.
const limitMin = 10 * time.Second

// goodRequestsMin is how many requests of a good client have to succeed.
const goodRequestsMin = 10

func (g *goodClient) run(ctx context.Context, t *testing.T, address string) {
	transport := &http.Transport{DisableKeepAlives: !g.reuse, ForceAttemptHTTP2: g.reuse,
		TLSClientConfig: &tls.Config{InsecureSkipVerify: true, Certificates: g.cert},
		DialContext: (&net.Dialer{
			LocalAddr: &net.TCPAddr{IP: net.ParseIP(g.from)}}).DialContext}
	defer transport.CloseIdleConnections()
	first, again := time.Now(), false // of the request; whether it is sent again
	for ; again || ctx.Err() == nil || g.sent < goodRequestsMin; time.Sleep(20 * time.Millisecond) {
		began := time.Now()
		request, err := http.NewRequestWithContext(t.Context(), http.MethodGet,
			"https://"+address+"/configz", nil) // is served without the core
		if err != nil {
			t.Error(err)
			return
		}
		if g.token != nil {
			request.Header.Set("Authorization", "Bearer "+g.token(g.sent))
		}
		response, err := transport.RoundTrip(request)
		took, outcome := time.Since(began), fmt.Sprint(err)
		if err == nil {
			outcome = response.Status
		}
		isGood := err == nil && response.StatusCode == http.StatusOK
		again = !isGood
		if !isGood && (took <= limitMin || time.Since(first) > porttest.Patience) {
			t.Errorf("%s: request %d after %v: %s", g.name, g.sent, took, outcome)
			return
		} else if !isGood {
			t.Logf("%s: no time for request %d within %v: %s", g.name, g.sent, took, outcome)
			g.late++
		}
		if err != nil {
			continue
		}
		_, _ = io.Copy(io.Discard, response.Body) // the code is enough
		_ = response.Body.Close()
		g.slowest = max(g.slowest, time.Since(first))
		if isGood {
			g.sent++
			first = time.Now()
		}
	}
}

// stranger is a connection of the crowd. It sends its requests as frames of HTTP/2, which costs
// little, so that they arrive all at once on a busy machine too.
type stranger struct{ conn *tls.Conn }

func connectStranger(address string) (*stranger, error) {
	conn, err := tls.Dial("tcp", address, &tls.Config{InsecureSkipVerify: true,
		NextProtos: []string{"h2"}})
	if err != nil {
		return nil, err
	}
	if _, err = io.WriteString(conn, http2.ClientPreface); err == nil {
		err = http2.NewFramer(conn, nil).WriteSettings() // else it is closed soon
	}
	return &stranger{conn}, err
}

// crowdPatience is how long a stranger waits for responses, so that the crowd is soon through.
const crowdPatience = 100 * time.Millisecond

// ask sends n requests with bad tokens in one piece, and adds the number of responses to the second
// counter, that of the requests to the first one.
func (s *stranger) ask(address, token string, n int, sent, answered *atomic.Int64) {
	defer s.conn.Close()
	var all, block bytes.Buffer
	framer, encoder := http2.NewFramer(&all, s.conn), hpack.NewEncoder(&block)
	for i := range n {
		block.Reset()
		for _, field := range [][2]string{{":method", "GET"}, {":scheme", "https"},
			{":authority", address}, {":path", "/configz"},
			{"authorization", fmt.Sprintf("Bearer %s-%d", token, i)}} {
			// A buffer takes everything.
			_ = encoder.WriteField(hpack.HeaderField{Name: field[0], Value: field[1]})
		}
		_ = framer.WriteHeaders(http2.HeadersFrameParam{StreamID: uint32(2*i + 1),
			BlockFragment: block.Bytes(), EndStream: true, EndHeaders: true})
	}
	if _, err := s.conn.Write(all.Bytes()); err != nil {
		return // the agent has closed the connection
	}
	sent.Add(int64(n))
	_ = s.conn.SetReadDeadline(time.Now().Add(crowdPatience)) // TLS connections support deadlines
	for {
		frame, err := framer.ReadFrame()
		if err != nil {
			return // out of patience, or the agent has closed the connection
		}
		if _, isResponse := frame.(*http2.HeadersFrame); isResponse {
			answered.Add(1)
		}
	}
}

// A thousand connections and a hundred thousand bad tokens from one address: the requests of good
// clients all succeed, with a certificate or a cached token also from the same address.
func TestCrowdOfStrangers(t *testing.T) {
	connections, tokensEach, atOnce := 1000, 100, 8
	if testing.Short() {
		connections, tokensEach = 100, 50
	}
	cert := certificateOf(t, "admin")
	address := startSecure(t, cert.Certificate[0])
	cached := func(int) string { return "good" }
	good := []*goodClient{
		{name: "certificate", from: "127.0.0.1", cert: []tls.Certificate{cert}},
		{name: "certificate, one connection", from: "127.0.0.1", cert: []tls.Certificate{cert},
			reuse: true},
		{name: "cached token", from: "127.0.0.1", token: cached},
		{name: "certificate elsewhere", from: "127.0.0.2", cert: []tls.Certificate{cert}},
		{name: "new tokens elsewhere", from: "127.0.0.2",
			token: func(i int) string { return fmt.Sprint("good", i) }},
	}
	for _, token := range []string{"", "good"} { // its token and decision are cached from here on
		code, body := getSecure(t, portOf(t, address), token, "/configz")
		if want := map[string]int{"": 401, "good": 200}[token]; code != want {
			t.Fatalf("token %q gets %d %s", token, code, body)
		}
	}
	ctx, end := context.WithCancel(t.Context())
	defer end()
	var serving sync.WaitGroup
	for _, g := range good {
		serving.Go(func() { g.run(ctx, t, address) })
	}
	began := time.Now()
	sent, answered := besiege(t, address, connections, tokensEach, atOnce)
	end()
	serving.Wait()
	t.Logf("%d connections, %d tokens, %d responses in %v", connections, sent, answered,
		time.Since(began).Round(time.Millisecond))
	if sent < int64(connections*tokensEach) {
		t.Errorf("only %d of %d tokens were sent", sent, connections*tokensEach)
	}
	for _, g := range good {
		t.Logf("%s: %d requests, the slowest took %v, %d were sent again", g.name, g.sent, g.slowest,
			g.late)
	}
}

// besiege opens connections and then sends bad tokens on them, on a few at once.
func besiege(t *testing.T, address string, connections, tokensEach, atOnce int) (
	tokensSent, responses int64) {
	t.Helper()
	crowd := make([]*stranger, connections)
	inParallel(connections, atOnce, func(i int) {
		var err error
		if crowd[i], err = connectStranger(address); err != nil {
			t.Error(err)
		}
	})
	if t.Failed() {
		t.FailNow()
	}
	var sent, answered atomic.Int64
	inParallel(connections, atOnce, func(i int) {
		crowd[i].ask(address, fmt.Sprint("bad-", i), tokensEach, &sent, &answered)
	})
	return sent.Load(), answered.Load()
}

// inParallel calls do for 0 to n-1, atOnce at once.
func inParallel(n, atOnce int, do func(int)) {
	var next atomic.Int64
	var work sync.WaitGroup
	for range atOnce {
		work.Go(func() {
			for i := int(next.Add(1)) - 1; i < n; i = int(next.Add(1)) - 1 {
				do(i)
			}
		})
	}
	work.Wait()
}

func portOf(t *testing.T, address string) int {
	t.Helper()
	resolved, err := net.ResolveTCPAddr("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	return resolved.Port
}
