package world

// The network port: requests of probes and lifecycle hooks to containers, and the manifest URL.
// They do not change the node, so a timeout is a result like any other: the deadline of the effect
// is the timeout of the probe.

// HTTPGet sends a GET request. Redirects are followed within the requested host, at most ten times.
// Certificates are not verified, and no proxy is used. It completes with HTTPGot, or with
// KindUnavailable if the host is unreachable or does not speak HTTP.
type HTTPGet struct {
	Scheme  string       `json:"scheme"` // http or https
	Host    string       `json:"host"`   // IP or name, without port
	Port    int32        `json:"port"`
	Path    string       `json:"path"` // with the query string
	Headers []HTTPHeader `json:"headers,omitempty"`
}

// HTTPInsteadOfHTTPS is the end of the error's message if a server responds to HTTPS with HTTP.
const HTTPInsteadOfHTTPS = "server gave HTTP response to HTTPS client"

// HTTPHeader is one header of a request. A header named Host sets the host of the request without
// changing the address that is connected to.
type HTTPHeader struct {
	Name  string `json:"name"`
	Value string `json:"value"`
}

// HTTPBodyMax is the maximum number of bytes of a response body that HTTPGot holds.
const HTTPBodyMax = 10 * 1024

// HTTPGot is the completion of HTTPGet.
type HTTPGot struct {
	Status                int    `json:"status"`
	Body                  []byte `json:"body,omitempty"`      // the first HTTPBodyMax bytes
	RedirectedToOtherHost bool   `json:"elsewhere,omitempty"` // not followed
}

// TCPConnect opens and closes a connection. It completes with Done, or with KindUnavailable if the
// connection is refused.
type TCPConnect struct {
	Host string `json:"host"`
	Port int32  `json:"port"`
}

// GRPCCheck calls grpc.health.v1.Health/Check for a service, without TLS. It completes with
// GRPCChecked. A host that is unreachable is KindUnavailable, a server without the health service
// KindInvalid, and a service that the server does not know KindNotFound.
type GRPCCheck struct {
	Host    string `json:"host"`
	Port    int32  `json:"port"`
	Service string `json:"service"`
}

// GRPCChecked is the completion of GRPCCheck.
type GRPCChecked struct {
	Status string `json:"status"` // as SERVING, NOT_SERVING
}

// FetchManifest fetches the manifest URL, from which static pods are read. The response decides
// what runs on the node, so certificates are verified, and only a complete response of status 200
// is accepted. Redirects are followed, at most ten times, and the machine's proxy is used.
//
// It completes with ManifestFetched. A host that is unreachable or not trusted, any other status
// and a truncated response are KindUnavailable, a response that is too large is KindExhausted, an
// invalid URL is KindInvalid. No error contains the URL or a header, as both may hold secrets.
type FetchManifest struct {
	URL      string       `json:"url"`
	Headers  []HTTPHeader `json:"headers,omitempty"`
	BytesMax int64        `json:"bytesMax"`
	// Documents bounds the document of the page. A page that has more is KindExhausted, and one that
	// is no document is KindInvalid.
	Documents Documents `json:"documents"`
}

// ManifestFetched is the completion of FetchManifest.
type ManifestFetched struct {
	Sum string `json:"sum"`           // checksum of the page
	Doc []byte `json:"doc,omitempty"` // as JSON; none if the page is known or empty
}
