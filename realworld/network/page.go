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

// newPages makes the way to the manifest URL. It is another machine, not a container: so with its
// certificate verified, through the proxy if there is one. Each page has a connection of its own:
// one that has died silently is not asked again.
func newPages(roots *x509.CertPool) *http.Transport {
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
	where, err := url.Parse(m.URL)
	if err != nil || where.Scheme != "http" && where.Scheme != "https" || where.Host == "" {
		return nil, world.Errorf(world.KindInvalid, op, "it is no URL of http or https")
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, where.String(), nil)
	if err != nil {
		return nil, world.Errorf(world.KindInvalid, op, "it is no URL that can be asked")
	}
	if err := setHeaders(op, request, m.Headers); err != nil {
		return nil, err
	}
	client := http.Client{Transport: transport}
	answer, err := client.Do(request)
	if err != nil {
		if told, is := errors.AsType[*url.Error](err); is {
			err = told.Err // without the URL
		}
		return nil, err
	}
	defer func() { _ = answer.Body.Close() }() // what is left of it is not wanted
	if answer.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("status %s", answer.Status)
	}
	page, err := io.ReadAll(io.LimitReader(answer.Body, m.BytesMax+1))
	if err != nil {
		return nil, fmt.Errorf("reading the page: %w", err)
	}
	if int64(len(page)) > m.BytesMax {
		return nil, world.Errorf(world.KindExhausted, op, "the page has more than %d bytes",
			m.BytesMax)
	}
	return &world.ManifestFetched{Data: page}, nil
}
