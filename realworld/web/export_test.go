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
		connectionBounds{secureConnectionsMax, secureStrangersMax,
			secureStrangersPerAddressMax})
}

// ListenTLSBounded is ListenTLS on a free port, with other bounds on connections.
func ListenTLSBounded(total, perAddress int, handler http.Handler, config *tls.Config) (*Server,
	error) {
	return listenTLS("127.0.0.1", 0, handler, config, readHeaderTimeout,
		connectionBounds{total, total, perAddress})
}

// ConnectionsMax is the bound on connections of a server of Listen.
const ConnectionsMax = connectionsMax

// ListenWithin is Listen on a free port, with another time for the header of a request.
func ListenWithin(header time.Duration, handler http.Handler) (*Server, error) {
	return listenPlain("healthz", "127.0.0.1", 0, handler, header)
}
