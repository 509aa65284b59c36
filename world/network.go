package world

// The network port: what probes and lifecycle hooks ask of containers, and the manifest URL.
// Nothing of it changes the agent's own world, so every failure to be answered is an answer: the
// deadline of the effect is the probe's timeout.

// HTTPGet asks for a page. Redirects are followed within the host that was asked, at most ten
// times. Certificates are not verified, and no proxy is used. Answered by HTTPGot; a host that
// cannot be reached, or does not speak HTTP, is KindUnavailable.
type HTTPGet struct {
	Scheme  string       `json:"scheme"` // http or https
	Host    string       `json:"host"`   // IP or name, without the port
	Port    int32        `json:"port"`
	Path    string       `json:"path"` // with the query, if any
	Headers []HTTPHeader `json:"headers,omitempty"`
}

// HTTPHeader is one line of a request. Host names another host than the one that is asked.
type HTTPHeader struct {
	Name  string `json:"name"`
	Value string `json:"value"`
}

// HTTPBodyMax is how much of an answer's body is told, in bytes.
const HTTPBodyMax = 10 * 1024

// HTTPGot answers HTTPGet.
type HTTPGot struct {
	Status    int    `json:"status"`
	Body      []byte `json:"body,omitempty"`      // the first HTTPBodyMax bytes
	Elsewhere bool   `json:"elsewhere,omitempty"` // a redirect to another host was not followed
}

// TCPConnect opens a connection and closes it again. Answered by Done; a refusal is
// KindUnavailable.
type TCPConnect struct {
	Host string `json:"host"`
	Port int32  `json:"port"`
}

// GRPCCheck asks for the health of a service (grpc.health.v1.Health/Check), without TLS. Answered
// by GRPCChecked; a host that cannot be reached is KindUnavailable, one that does not offer the
// call KindInvalid, a service that it does not know KindNotFound.
type GRPCCheck struct {
	Host    string `json:"host"`
	Port    int32  `json:"port"`
	Service string `json:"service"`
}

// GRPCChecked answers GRPCCheck.
type GRPCChecked struct {
	Status string `json:"status"` // as SERVING, NOT_SERVING
}

// FetchManifest asks for the page that static pods are read from. Unlike what a container answers,
// it decides what runs on the node: certificates are verified, and only a page of status 200 that
// has come to its end is an answer. Redirects are followed, at most ten times, and the machine's
// proxy is used. Answered by ManifestFetched; a host that cannot be reached or is not trusted,
// another status and a page that is cut short are KindUnavailable, a page that is too long is
// KindExhausted, a URL that is none KindInvalid. No error tells the URL or a header.
type FetchManifest struct {
	URL      string       `json:"url"`
	Headers  []HTTPHeader `json:"headers,omitempty"`
	BytesMax int64        `json:"bytesMax"`
}

// ManifestFetched answers FetchManifest.
type ManifestFetched struct {
	Data []byte `json:"data,omitempty"`
}
