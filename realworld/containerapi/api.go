// Package containerapi serves what the node's HTTP API offers about one container or pod: its
// logs, exec, attach, port-forward, run and checkpoint.
//
// Whom a client means, the core says (Ask); what there is of it, the runtime says. Streams are
// between the client and the runtime: this package proxies the connection and never reads what
// goes through it. Logs are files of the runtime, which this package reads itself.
//
// The contract: the core is never waited for longer than Ask takes, the runtime never longer
// than RuntimeTimeout. How many logs, streams and commands there are at once is bounded, and what
// a client holds is let go soon after the client is gone, the container has ended, or nothing has
// moved for IdleTimeout. Close ends all that is left.
//
// Names in a request are checked before they are asked for, and none of them becomes part of a
// path unless the core knows it. A log is opened below LogsDir and through no symbolic link: a
// pod that mounts the node's logs could otherwise have any file shown.
//
// Who may call is decided before the handlers are reached. Start reading at Register, then
// logs.go and follow.go, or streams.go and proxy.go.
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

// What there may be of each at once. A log that is followed costs about 20 KiB, most of it the
// connection's; a stream 100 KiB; a command up to 32 MiB, as containerd sends 16 MiB of each
// of its outputs.
const (
	logsMax     = 4096
	streamsMax  = 512
	commandsMax = 8
)

// Runtime is what is called of a CRI runtime service.
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

// Options are what the API is made of.
type Options struct {
	// Ask asks the core whom the names of a request mean. It gives up by itself.
	Ask            func(context.Context, world.ContainerRequest) (*world.ContainerAnswer, error)
	Runtime        Runtime
	RuntimeTimeout time.Duration // runtimeRequestTimeout
	IdleTimeout    time.Duration // streamingConnectionIdleTimeout
	LogsDir        string        // podLogsDir
	CheckpointsDir string        // made when it is first needed
	SplitStreams   bool          // the gate PodLogsQuerySplitStreams
	NoCheckpoints  bool          // the gate ContainerCheckpoint is off
}

// API serves the requests. Close it when done.
type API struct {
	opts     Options
	logs     room
	streams  room
	commands room
	watcher  *watcher
	ctx      context.Context // done when the API is closed
	cancel   context.CancelFunc
	serving  sync.WaitGroup // requests
}

// New makes an API.
func New(opts Options) *API {
	ctx, cancel := context.WithCancel(context.Background())
	a := &API{opts: opts, ctx: ctx, cancel: cancel}
	a.logs.max, a.streams.max, a.commands.max = logsMax, streamsMax, commandsMax
	a.watcher = newWatcher(a.running)
	return a
}

// Register puts the handlers at their paths.
func (a *API) Register(mux *http.ServeMux) {
	mux.HandleFunc("GET /containerLogs/{namespace}/{pod}/{container}", a.within(&a.logs, a.serveLogs))
	for _, method := range []string{"GET", "POST"} {
		for path, handler := range map[string]http.HandlerFunc{ //ordered: each has its own path
			"/exec/{namespace}/{pod}/{container}":         a.serveExec,
			"/exec/{namespace}/{pod}/{uid}/{container}":   a.serveExec,
			"/attach/{namespace}/{pod}/{container}":       a.serveAttach,
			"/attach/{namespace}/{pod}/{uid}/{container}": a.serveAttach,
			"/portForward/{namespace}/{pod}":              a.servePortForward,
			"/portForward/{namespace}/{pod}/{uid}":        a.servePortForward,
		} {
			mux.HandleFunc(method+" "+path, a.within(&a.streams, handler))
		}
	}
	run := a.within(&a.commands, a.serveRun)
	mux.HandleFunc("POST /run/{namespace}/{pod}/{container}", run)
	mux.HandleFunc("POST /run/{namespace}/{pod}/{uid}/{container}", run)
	if !a.opts.NoCheckpoints {
		mux.HandleFunc("POST /checkpoint/{namespace}/{pod}/{container}",
			a.within(&a.commands, a.serveCheckpoint))
	}
}

// Close ends all requests and waits until they have ended.
func (a *API) Close() {
	a.cancel()
	a.serving.Wait()
	a.watcher.wait()
}

// Metrics are the numbers of requests and their bounds.
func (a *API) Metrics() []world.Metric {
	var metrics []world.Metric
	for _, r := range []struct {
		kind string
		*room
	}{{"logs", &a.logs}, {"streams", &a.streams}, {"commands", &a.commands}} {
		labels := []world.Label{{Name: "kind", Value: r.kind}}
		metrics = append(metrics,
			world.Metric{Name: "seedlet_container_requests", Labels: labels,
				Help:  "Requests for logs, streams and commands that are being served.",
				Value: float64(r.taken.Load())},
			world.Metric{Name: "seedlet_container_requests_max", Labels: labels,
				Help:  "Bound on requests for logs, streams and commands.",
				Value: float64(r.max)},
			world.Metric{Name: "seedlet_container_requests_refused_total", Labels: labels,
				Help:    "Requests for logs, streams and commands refused for want of room.",
				Counter: true, Value: float64(r.refused.Load())})
	}
	return metrics
}

// room bounds how many there are of something.
type room struct {
	max     int64
	taken   atomic.Int64
	refused atomic.Int64
}

func (r *room) enter() bool {
	if r.taken.Add(1) <= r.max {
		return true
	}
	r.taken.Add(-1)
	r.refused.Add(1)
	return false
}

func (r *room) leave() { r.taken.Add(-1) }

// within serves a request if there is room for it. Its context is done when the client is gone,
// or the API is closed.
func (a *API) within(r *room, handler http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, req *http.Request) {
		a.serving.Add(1)
		defer a.serving.Done()
		if !r.enter() {
			refuse(w, http.StatusServiceUnavailable, "%d such requests are being served already", r.max)
			return
		}
		defer r.leave()
		ctx, cancel := context.WithCancel(req.Context())
		defer cancel()
		defer context.AfterFunc(a.ctx, cancel)()
		handler(w, req.WithContext(ctx))
	}
}
