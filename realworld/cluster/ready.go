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

	"seedlet.dev/realworld/owned"
)

const (
	readyMax   = 90 * time.Second      // from the start of a component until it is ready
	answerMax  = 5 * time.Second       // for one answer
	askEvery   = 50 * time.Millisecond // whether it is ready
	sayAfter   = 2 * time.Second       // a wait shorter than that is not worth a line
	sayEvery   = 5 * time.Second       // then
	answerSize = 1000                  // of an answer that an error shows, in bytes
)

// wait waits until a component is ready. It tells when that takes long, and of a component that
// does not get there, what it said last.
func (c *Cluster) wait(ctx context.Context, d *owned.Daemon,
	ready func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, readyMax)
	defer cancel()
	name, start := filepath.Base(d.Program), time.Now()
	tick, say := time.NewTicker(askEvery), time.NewTimer(sayAfter)
	defer tick.Stop()
	defer say.Stop()
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
		case <-say.C:
			c.options.Progress(fmt.Sprintf("waiting for %s (%v)", name,
				time.Since(start).Round(time.Second)))
			say.Reset(sayEvery)
		case <-tick.C:
		}
	}
}

// portTaken reports whether a component ended because another process has its port.
func portTaken(d *owned.Daemon) bool {
	return !d.Running() && strings.Contains(d.LogTail(), "address already in use")
}

// newClient is an HTTP client that trusts an authority and shows a certificate.
func newClient(ca *x509.Certificate, p pair) (*http.Client, error) {
	certificate, err := tls.X509KeyPair(p.certificate, p.key)
	if err != nil {
		return nil, fmt.Errorf("reading a certificate: %w", err)
	}
	pool := x509.NewCertPool()
	pool.AddCert(ca)
	return &http.Client{
		Timeout: answerMax,
		Transport: &http.Transport{
			TLSClientConfig: &tls.Config{
				RootCAs: pool, Certificates: []tls.Certificate{certificate},
			},
			DisableKeepAlives: true, // servers come and go
		},
	}, nil
}

// get asks for a URL, and returns an error unless the answer is 200.
func get(ctx context.Context, client *http.Client, url string) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return fmt.Errorf("asking %s: %w", url, err)
	}
	answer, err := client.Do(request)
	if err != nil {
		return err // names the URL
	}
	defer func() { _ = answer.Body.Close() }() // read as far as it matters
	if answer.StatusCode == http.StatusOK {
		return nil
	}
	text, _ := io.ReadAll(io.LimitReader(answer.Body, answerSize)) // the status says enough
	return fmt.Errorf("%s answered %s: %s", url, answer.Status, text)
}
