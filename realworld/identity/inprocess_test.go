package identity

import (
	"crypto/tls"
	"crypto/x509"
	"io"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
)

// inProcess passes requests to a fake without a network, which a bubble of synctest cannot wait
// for. It takes the place of a connection's transport.
type inProcess struct{ fake *fake }

// RoundTrip implements http.RoundTripper.
func (p inProcess) RoundTrip(r *http.Request) (*http.Response, error) {
	body, pipe := io.Pipe()
	w := &pipeWriter{pipe: pipe, header: http.Header{}, code: make(chan int, 1)}
	served := r.Clone(r.Context())
	served.TLS = &tls.ConnectionState{}
	if served.Body == nil {
		served.Body = http.NoBody
	}
	go func() {
		p.fake.ServeHTTP(w, served)
		_ = pipe.Close()
	}()
	select {
	case code := <-w.code:
		return &http.Response{StatusCode: code, Header: w.header, Body: body, Request: r}, nil
	case <-r.Context().Done():
		_ = body.Close()
		return nil, r.Context().Err()
	}
}

// pipeWriter is the http.ResponseWriter of a response that is read meanwhile.
type pipeWriter struct {
	pipe   *io.PipeWriter
	header http.Header
	code   chan int
	sent   bool
}

func (w *pipeWriter) Header() http.Header { return w.header }

func (w *pipeWriter) WriteHeader(code int) {
	if !w.sent {
		w.sent = true
		w.code <- code
	}
}

func (w *pipeWriter) Write(data []byte) (int, error) {
	w.WriteHeader(http.StatusOK)
	return w.pipe.Write(data)
}

func (w *pipeWriter) Flush() {}

// newBubbleFake returns a fake for a bubble of synctest. It approves all requests; sign changes
// what is signed.
func newBubbleFake(t *testing.T,
	sign func(asked *x509.CertificateRequest, from, to *time.Time)) *fake {
	t.Helper()
	// The last handler sleeps until a millisecond after the last error, or after the start of the
	// program: that is decades ahead in a bubble.
	handlers := utilruntime.ErrorHandlers
	utilruntime.ErrorHandlers = handlers[:1]
	t.Cleanup(func() { utilruntime.ErrorHandlers = handlers })
	f := &fake{t: t, authority: newAuthority(t), url: "https://api.test", sign: sign,
		approve: make(chan struct{})}
	cert, _ := f.authority.pair(t, "server", 0, time.Hour)
	f.ca = cert
	close(f.approve)
	return f
}

func (f *fake) trace(http.RoundTripper) http.RoundTripper { return inProcess{f} }

// requestsWithin returns how many certificates were requested after a time of a bubble since the
// last call.
func (f *fake) requestsWithin(d time.Duration) int {
	time.Sleep(d)
	synctest.Wait()
	before := f.counted
	f.counted = len(f.csrRequesters())
	return f.counted - before
}
