package network

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"time"

	"golang.org/x/net/http/httpguts"

	"seedlet.dev/world"
)

const (
	// userAgent is the User-Agent of the kubelet's probes.
	userAgent = "kube-probe/1.36"
	// requestsMax bounds the requests of one effect: the first one and those after redirects.
	requestsMax = 10
	// headerBytesMax bounds the header of a response, which a container may make arbitrarily long.
	headerBytesMax = 1 << 20
)

func newTransport() *http.Transport {
	return &http.Transport{
		// A container's certificate is for the service's name, rarely for the pod's address.
		TLSClientConfig:        &tls.Config{InsecureSkipVerify: true},
		DialContext:            dial,
		Proxy:                  nil,
		DisableKeepAlives:      true,
		DisableCompression:     true,
		ForceAttemptHTTP2:      true, // over TLS, if the server supports it
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
				got.RedirectedToOtherHost = true
				return http.ErrUseLastResponse
			case len(via) >= requestsMax:
				return fmt.Errorf("stopped after %d redirects", requestsMax)
			}
			return nil
		},
	}
	response, err := client.Do(request)
	if err != nil {
		return nil, err
	}
	defer func() { _ = response.Body.Close() }() // the rest of the body is ignored
	got.Status = response.StatusCode
	// The status decides: a body that breaks off, or does not come in half of the time that is left,
	// fails nothing.
	if deadline, ok := ctx.Deadline(); ok {
		defer time.AfterFunc(time.Until(deadline)/2, func() { _ = response.Body.Close() }).Stop()
	}
	got.Body, _ = io.ReadAll(io.LimitReader(response.Body, world.HTTPBodyMax))
	return got, nil
}

// newRequest returns the request, or an error if the effect is invalid.
func newRequest(ctx context.Context, m *world.HTTPGet) (*http.Request, error) {
	to, err := address("HTTPGet", m.Host, m.Port)
	if err != nil {
		return nil, err
	}
	if m.Scheme != "http" && m.Scheme != "https" {
		return nil, world.Errorf(world.KindInvalid, "HTTPGet", "scheme %q", m.Scheme)
	}
	location, err := url.Parse(m.Path)
	if err != nil || location.Opaque != "" {
		location = &url.URL{Path: m.Path} // unchanged, escaped where necessary
	}
	location.Scheme, location.Host, location.User, location.Fragment = m.Scheme, to, nil, ""
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, location.String(), nil)
	if err != nil {
		return nil, world.Errorf(world.KindInvalid, "HTTPGet", "%v", err)
	}
	if err := setHeaders("HTTPGet", request, m.Headers); err != nil {
		return nil, err
	}
	setDefaults(request)
	return request, nil
}

// setHeaders sets the headers of a request. Its errors do not contain values, which may be
// secrets.
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

// setDefaults sets the default headers of the kubelet's probes. An empty value in the probe removes
// a header that has a default.
func setDefaults(request *http.Request) {
	if _, exists := request.Header["User-Agent"]; !exists {
		request.Header.Set("User-Agent", userAgent)
	}
	if accept, exists := request.Header["Accept"]; !exists {
		request.Header.Set("Accept", "*/*")
	} else if accept[0] == "" {
		request.Header.Del("Accept")
	}
}
