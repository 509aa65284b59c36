package web

import (
	"crypto/tls"
	"net/http"
	"time"
)

// ListenTLSWithin is ListenTLS on a free port, with another time for the header of a request.
func ListenTLSWithin(header time.Duration, handler http.Handler, config *tls.Config) (*Server,
	error) {
	return listenTLS("127.0.0.1", 0, handler, config, header,
		connectionBounds{secureConnectionsMax, secureConnectionsPerAddressMax})
}

// ListenTLSBounded is ListenTLS on a free port, with other bounds on connections.
func ListenTLSBounded(total, perAddress int, handler http.Handler, config *tls.Config) (*Server,
	error) {
	return listenTLS("127.0.0.1", 0, handler, config, readHeaderTimeout,
		connectionBounds{total, perAddress})
}
