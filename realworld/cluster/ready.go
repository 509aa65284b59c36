package cluster

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"net/http"
	"path/filepath"
	"strings"
	"time"

	"seedlet.dev/realworld/cleanup"
)

const (
	readyTimeout       = 5 * time.Minute       // from the start of a component
	requestTimeout     = 30 * time.Second      // of one request
	readyCheckInterval = 50 * time.Millisecond // between readiness checks
	progressAfter      = 2 * time.Second       // before the first progress report
	progressInterval   = 5 * time.Second       // between progress reports
	errorBodyMax       = 1000                  // bytes of a response that an error shows
)

// waitReady waits until a component is ready. It reports the progress of a long wait; if the
// component does not become ready, the error has the end of its log.
func (c *Cluster) waitReady(ctx context.Context, d *cleanup.Daemon,
	ready func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, readyTimeout)
	defer cancel()
	name, start := filepath.Base(d.Program), time.Now()
	tick, progress := time.NewTicker(readyCheckInterval), time.NewTimer(progressAfter)
	defer tick.Stop()
	defer progress.Stop()
	for {
		problem := ready(ctx)
		if problem == nil {
			return nil
		}
		select {
		case <-d.Exited():
			return fmt.Errorf("%s ended by itself:\n%s", name, d.LogTail())
		case <-ctx.Done():
			return fmt.Errorf("%s did not get ready in %v: %w\n%s", name,
				time.Since(start).Round(time.Second), problem, d.LogTail())
		case <-progress.C:
			c.options.Progress(fmt.Sprintf("waiting for %s (%v)", name,
				time.Since(start).Round(time.Second)))
			progress.Reset(progressInterval)
		case <-tick.C:
		}
	}
}

// isPortTaken reports whether a component ended because another process has its port.
func isPortTaken(d *cleanup.Daemon) bool {
	return !d.Running() && strings.Contains(d.LogTail(), "address already in use")
}

// newClient returns an HTTP client that trusts an authority and has a client certificate.
func newClient(ca *x509.Certificate, p pair) (*http.Client, error) {
	certificate, err := tls.X509KeyPair(p.certificate, p.key)
	if err != nil {
		return nil, fmt.Errorf("reading a certificate: %w", err)
	}
	pool := x509.NewCertPool()
	pool.AddCert(ca)
	return &http.Client{
		Timeout: requestTimeout,
		Transport: &http.Transport{
			TLSClientConfig: &tls.Config{
				RootCAs: pool, Certificates: []tls.Certificate{certificate},
			},
			DisableKeepAlives: true, // servers are restarted
		},
	}, nil
}

// get requests a URL, and returns an error unless the response is 200.
func get(ctx context.Context, client *http.Client, url string) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return fmt.Errorf("asking %s: %w", url, err)
	}
	response, err := client.Do(request)
	if err != nil {
		return err // has the URL
	}
	defer func() { _ = response.Body.Close() }() // read as far as needed
	if response.StatusCode == http.StatusOK {
		return nil
	}
	text, _ := io.ReadAll(io.LimitReader(response.Body, errorBodyMax)) // the status suffices
	return fmt.Errorf("%s answered %s: %s", url, response.Status, text)
}
