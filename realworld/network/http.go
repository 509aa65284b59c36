package network

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net/http"
	"net/url"

	"golang.org/x/net/http/httpguts"

	"seedlet.dev/world"
)

const (
	// userAgent is how the kubelet's probes call themselves.
	userAgent = "kube-probe/1.36"
	// requestsMax is how many requests are made before one redirect too many.
	requestsMax = 10
	// headerBytesMax bounds the header of an answer, which a container may make as long as it
	// likes.
	headerBytesMax = 1 << 20
)

func newTransport() *http.Transport {
	return &http.Transport{
		// A container's certificate names the service, hardly ever the pod's address.
		TLSClientConfig:        &tls.Config{InsecureSkipVerify: true},
		DialContext:            dial,
		Proxy:                  nil,
		DisableKeepAlives:      true,
		DisableCompression:     true,
		ForceAttemptHTTP2:      true, // over TLS, where the other side offers it
		MaxResponseHeaderBytes: headerBytesMax,
	}
}

func httpGet(ctx context.Context, transport *http.Transport, m *world.HTTPGet) (any, error) {
	request, err := newRequest(ctx, m)
	if err != nil {
		return nil, err
	}
	got := &world.HTTPGot{}
	client := http.Client{
		Transport: transport,
		CheckRedirect: func(next *http.Request, via []*http.Request) error {
			switch {
			case next.URL.Hostname() != via[0].URL.Hostname():
				got.Elsewhere = true
				return http.ErrUseLastResponse
			case len(via) >= requestsMax:
				return fmt.Errorf("stopped after %d redirects", requestsMax)
			}
			return nil
		},
	}
	answer, err := client.Do(request)
	if err != nil {
		return nil, err
	}
	defer func() { _ = answer.Body.Close() }() // what is left of it is not wanted
	got.Status = answer.StatusCode
	got.Body, err = io.ReadAll(io.LimitReader(answer.Body, world.HTTPBodyMax))
	if err != nil {
		return nil, fmt.Errorf("reading the answer's body: %w", err)
	}
	return got, nil
}

// newRequest makes the request, or says why there can be none.
func newRequest(ctx context.Context, m *world.HTTPGet) (*http.Request, error) {
	to, err := address("HTTPGet", m.Host, m.Port)
	if err != nil {
		return nil, err
	}
	if m.Scheme != "http" && m.Scheme != "https" {
		return nil, world.Errorf(world.KindInvalid, "HTTPGet", "scheme %q", m.Scheme)
	}
	where, err := url.Parse(m.Path)
	if err != nil || where.Opaque != "" {
		where = &url.URL{Path: m.Path} // as it is, escaped where it has to be
	}
	where.Scheme, where.Host, where.User, where.Fragment = m.Scheme, to, nil, ""
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, where.String(), nil)
	if err != nil {
		return nil, world.Errorf(world.KindInvalid, "HTTPGet", "%v", err)
	}
	if err := setHeaders("HTTPGet", request, m.Headers); err != nil {
		return nil, err
	}
	setDefaults(request)
	return request, nil
}

// setHeaders gives a request its headers. An error tells no value: it may be a secret.
func setHeaders(op string, request *http.Request, headers []world.HTTPHeader) error {
	for _, h := range headers {
		if !httpguts.ValidHeaderFieldName(h.Name) || !httpguts.ValidHeaderFieldValue(h.Value) {
			return world.Errorf(world.KindInvalid, op, "header %q cannot be sent", h.Name)
		}
		request.Header.Add(h.Name, h.Value)
	}
	if host := request.Header.Get("Host"); host != "" {
		if !httpguts.ValidHostHeader(host) {
			return world.Errorf(world.KindInvalid, op, "header Host is no host")
		}
		request.Host = host
	}
	return nil
}

// setDefaults gives a request what the kubelet's probes send besides. A header that is given
// empty is left out, where there would be a default.
func setDefaults(request *http.Request) {
	if _, given := request.Header["User-Agent"]; !given {
		request.Header.Set("User-Agent", userAgent)
	}
	if accept, given := request.Header["Accept"]; !given {
		request.Header.Set("Accept", "*/*")
	} else if accept[0] == "" {
		request.Header.Del("Accept")
	}
}
