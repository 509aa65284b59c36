package network

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"

	"seedlet.dev/world"
)

// newManifestTransport returns the transport for the manifest URL. Its server is another machine
// and not a container, so its certificate is verified, and a proxy is used if there is one. Each
// request has a new connection: a connection that died silently is never reused.
func newManifestTransport(roots *x509.CertPool) *http.Transport {
	return &http.Transport{
		TLSClientConfig:        &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12},
		Proxy:                  http.ProxyFromEnvironment,
		DisableKeepAlives:      true,
		ForceAttemptHTTP2:      true,
		MaxResponseHeaderBytes: headerBytesMax,
	}
}

func fetchManifest(ctx context.Context, transport *http.Transport, m *world.FetchManifest) (any,
	error) {
	const op = "FetchManifest"
	location, err := url.Parse(m.URL)
	if err != nil || location.Scheme != "http" && location.Scheme != "https" || location.Host == "" {
		return nil, world.Errorf(world.KindInvalid, op, "it is no URL of http or https")
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, location.String(), nil)
	if err != nil {
		return nil, world.Errorf(world.KindInvalid, op, "it is no URL that can be asked")
	}
	if err := setHeaders(op, request, m.Headers); err != nil {
		return nil, err
	}
	client := http.Client{Transport: transport}
	response, err := client.Do(request)
	if err != nil {
		if urlErr, ok := errors.AsType[*url.Error](err); ok {
			err = urlErr.Err // the message without the URL
		}
		return nil, err
	}
	defer func() { _ = response.Body.Close() }() // the rest of the body is ignored
	if response.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("status %s", response.Status)
	}
	page, err := io.ReadAll(io.LimitReader(response.Body, m.BytesMax+1))
	if err != nil {
		return nil, fmt.Errorf("reading the page: %w", err)
	}
	if int64(len(page)) > m.BytesMax {
		return nil, world.Errorf(world.KindExhausted, op, "the page has more than %d bytes",
			m.BytesMax)
	}
	fetched, invalid := m.Documents.ConvertPage(page)
	if invalid != nil {
		return nil, invalid
	}
	return fetched, nil
}
