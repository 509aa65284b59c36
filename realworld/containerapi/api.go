// Package containerapi serves the requests of the node's HTTP API about one container or pod: its
// logs, exec, attach, port-forward, run and checkpoint.
//
// The core resolves the names of a request to a container (Resolve); the runtime has the
// container's state. A stream is a proxied connection between the client and the runtime, whose
// data is never read here. Logs are files of the runtime, which this package reads itself.
//
// The contract: a request waits for the core no longer than Resolve does, for the runtime no longer
// than RuntimeTimeout. The numbers of concurrent logs, streams and commands are bounded. The
// resources of a request are released soon after its client has disconnected, the container has
// ended, or no data has moved for IdleTimeout. Close ends all requests.
//
// The names in a request are validated first, and none becomes part of a path unless the core knows
// it. A log is opened below LogsDir and through no symbolic link: otherwise a pod that mounts the
// node's log directory could make any file of the node readable.
//
// Requests are authorized before they reach the handlers. Start reading at Register, then logs.go
// and follow.go, or streams.go and proxy.go.
package containerapi

import (
	"context"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"seedlet.dev/world"
)

// The bounds of concurrent requests. A followed log costs about 20 KiB, most of it for the
// connection; a stream 100 KiB; a command up to 32 MiB, because containerd sends up to 16 MiB of
// each of its two outputs.
//
// The logs and streams of one namespace have bounds of their own: its users could otherwise keep
// those of all others out, by logs that they follow and streams that they leave open.
const (
	logsMax                = 4096
	logsPerNamespaceMax    = 512
	streamsMax             = 512
	streamsPerNamespaceMax = 128
	commandsMax            = 8
)

// Runtime is the part of a CRI runtime service that the API calls.
type Runtime interface {
	ListContainers(context.Context, *runtimeapi.ListContainersRequest,
		...grpc.CallOption) (*runtimeapi.ListContainersResponse, error)
	ContainerStatus(context.Context, *runtimeapi.ContainerStatusRequest,
		...grpc.CallOption) (*runtimeapi.ContainerStatusResponse, error)
	Exec(context.Context, *runtimeapi.ExecRequest,
		...grpc.CallOption) (*runtimeapi.ExecResponse, error)
	Attach(context.Context, *runtimeapi.AttachRequest,
		...grpc.CallOption) (*runtimeapi.AttachResponse, error)
	PortForward(context.Context, *runtimeapi.PortForwardRequest,
		...grpc.CallOption) (*runtimeapi.PortForwardResponse, error)
	ExecSync(context.Context, *runtimeapi.ExecSyncRequest,
		...grpc.CallOption) (*runtimeapi.ExecSyncResponse, error)
	CheckpointContainer(context.Context, *runtimeapi.CheckpointContainerRequest,
		...grpc.CallOption) (*runtimeapi.CheckpointContainerResponse, error)
}

// Options configure an API.
type Options struct {
	// Resolve resolves the names of a request in the core. It has a timeout of its own.
	Resolve        func(context.Context, world.ContainerRequest) (*world.ContainerAnswer, error)
	Runtime        Runtime
	RuntimeTimeout time.Duration // runtimeRequestTimeout
	IdleTimeout    time.Duration // streamingConnectionIdleTimeout
	LogsDir        string        // podLogsDir
	CheckpointsDir string        // created when first needed
	SplitStreams   bool          // the gate PodLogsQuerySplitStreams
	NoCheckpoints  bool          // true if the gate ContainerCheckpoint is off
}

// API serves the requests. Close it when done.
type API struct {
	opts     Options
	logs     concurrencyLimit
	streams  concurrencyLimit
	commands concurrencyLimit
	// Requests over WebSocket, by subresource.
	execSockets, attachSockets, portForwardSockets atomic.Int64

	watcher  *watcher
	ctx      context.Context // done when the API is closed
	cancel   context.CancelFunc
	requests sync.WaitGroup // the requests that Close waits for
}

// New returns an API.
func New(opts Options) *API {
	ctx, cancel := context.WithCancel(context.Background())
	a := &API{opts: opts, ctx: ctx, cancel: cancel}
	limit := func(l *concurrencyLimit, kind string, most, ofNamespace int) {
		l.kind, l.max, l.namespaceMax = kind, most, ofNamespace
	}
	limit(&a.logs, "logs", logsMax, logsPerNamespaceMax)
	limit(&a.streams, "streams", streamsMax, streamsPerNamespaceMax)
	limit(&a.commands, "commands", commandsMax, commandsMax) // of administrators
	a.watcher = newWatcher(a.listRunning)
	return a
}

// Register adds the handlers to a mux.
func (a *API) Register(mux *http.ServeMux) {
	mux.HandleFunc("GET /containerLogs/{namespace}/{pod}/{container}",
		a.withLimit(&a.logs, a.serveLogs))
	for _, method := range []string{"GET", "POST"} {
		for path, handler := range map[string]http.HandlerFunc{ //ordered: each has its own path
			"/exec/{namespace}/{pod}/{container}":         a.serveExec,
			"/exec/{namespace}/{pod}/{uid}/{container}":   a.serveExec,
			"/attach/{namespace}/{pod}/{container}":       a.serveAttach,
			"/attach/{namespace}/{pod}/{uid}/{container}": a.serveAttach,
			"/portForward/{namespace}/{pod}":              a.servePortForward,
			"/portForward/{namespace}/{pod}/{uid}":        a.servePortForward,
		} {
			mux.HandleFunc(method+" "+path, a.withLimit(&a.streams, handler))
		}
	}
	run := a.withLimit(&a.commands, a.serveRun)
	mux.HandleFunc("POST /run/{namespace}/{pod}/{container}", run)
	mux.HandleFunc("POST /run/{namespace}/{pod}/{uid}/{container}", run)
	if !a.opts.NoCheckpoints {
		mux.HandleFunc("POST /checkpoint/{namespace}/{pod}/{container}",
			a.withLimit(&a.commands, a.serveCheckpoint))
	}
}

// Close ends all requests and waits until they have ended.
func (a *API) Close() {
	a.cancel()
	a.requests.Wait()
	a.watcher.wait()
}

// Metrics returns the numbers of concurrent and refused requests, and their bounds.
func (a *API) Metrics() []world.Metric {
	var metrics []world.Metric
	for _, l := range []*concurrencyLimit{&a.logs, &a.streams, &a.commands} {
		metrics = append(metrics, l.metrics()...)
	}
	for _, r := range []struct {
		subresource string
		requests    *atomic.Int64
	}{{"attach", &a.attachSockets}, {"exec", &a.execSockets},
		{"portforward", &a.portForwardSockets}} {
		metrics = append(metrics, world.Metric{Name: "kubelet_websocket_streaming_requests_total",
			Help:    "Requests for exec, attach and port-forward over WebSocket.",
			Labels:  []world.Label{{Name: "subresource", Value: r.subresource}},
			Counter: true, Value: float64(r.requests.Load())})
	}
	return metrics
}
