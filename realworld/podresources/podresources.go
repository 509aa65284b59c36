// Package podresources serves the pod resources API (KEP-606) on a socket of the node: which
// exclusive CPUs, memory and devices each container has. Exporters of device metrics read it.
//
// No resource is allocated exclusively yet (CPUs, memory of a NUMA node, devices), so their lists
// are empty, as on a kubelet whose policies are "none". The contract: 100 calls per second with a
// burst of 10 are served, as by the kubelet, and further calls are refused. A call sends one
// request to the core and ends within two seconds. Start reading at Server and List.
package podresources

import (
	"context"
	"errors"
	"fmt"
	"net"
	"path/filepath"
	"time"

	"golang.org/x/net/netutil"
	"golang.org/x/time/rate"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	v1 "k8s.io/api/core/v1"
	api "k8s.io/kubelet/pkg/apis/podresources/v1"
)

// The kubelet's rate limit.
const (
	qps   = 100
	burst = 10
)

// Bounds on what clients can occupy.
const (
	connectionsMax   = 64
	streamsMax       = 16
	requestMax       = 64 << 10 // bytes
	handshakeTimeout = 10 * time.Second
	answerTimeout    = 2 * time.Second
)

// Options configure a Server.
type Options struct {
	RootDir string // of the agent, as /var/lib/kubelet
	// Pods returns all pods with their statuses.
	Pods func(context.Context) ([]*v1.Pod, error)
	// Interceptor is called for every call, to measure it; nil for none.
	Interceptor grpc.UnaryServerInterceptor
}

// Server is a listening server. Close it when done.
type Server struct {
	api.UnsafePodResourcesListerServer
	opts    Options
	limiter *rate.Limiter
	grpc    *grpc.Server
	ended   chan error
}

// Socket returns the path of the socket of the agent with a root directory.
func Socket(rootDir string) string {
	return filepath.Join(rootDir, "pod-resources", "kubelet.sock")
}

// Listen starts to serve.
func Listen(opts Options) (*Server, error) {
	listener, err := listen(Socket(opts.RootDir))
	if err != nil {
		return nil, fmt.Errorf("pod resources: %w", err)
	}
	return serve(opts, listener), nil
}

func serve(opts Options, listener net.Listener) *Server {
	s := &Server{opts: opts, limiter: rate.NewLimiter(qps, burst), ended: make(chan error, 1)}
	interceptors := []grpc.UnaryServerInterceptor{s.limit}
	if opts.Interceptor != nil {
		interceptors = append(interceptors, opts.Interceptor)
	}
	s.grpc = grpc.NewServer(grpc.ChainUnaryInterceptor(interceptors...),
		grpc.MaxConcurrentStreams(streamsMax), grpc.MaxRecvMsgSize(requestMax),
		grpc.ConnectionTimeout(handshakeTimeout))
	api.RegisterPodResourcesListerServer(s.grpc, s)
	go func() { s.ended <- s.grpc.Serve(netutil.LimitListener(listener, connectionsMax)) }()
	return s
}

// Close stops serving, cancels calls in flight, and removes the socket. Close of a nil Server does
// nothing.
func (s *Server) Close() error {
	if s == nil {
		return nil
	}
	s.grpc.Stop()
	if err := <-s.ended; err != nil && !errors.Is(err, grpc.ErrServerStopped) {
		return fmt.Errorf("pod resources: %w", err)
	}
	return nil
}

// limit refuses calls above the rate limit and bounds the duration of the others.
func (s *Server) limit(ctx context.Context, request any, _ *grpc.UnaryServerInfo,
	handle grpc.UnaryHandler) (any, error) {
	if !s.limiter.Allow() {
		return nil, status.Error(codes.ResourceExhausted, "rejected by rate limit")
	}
	ctx, cancel := context.WithTimeout(ctx, answerTimeout)
	defer cancel()
	return handle(ctx, request)
}

// List returns the resources of all pods that are not in a terminal phase.
func (s *Server) List(ctx context.Context, _ *api.ListPodResourcesRequest) (
	*api.ListPodResourcesResponse, error) {
	pods, err := s.pods(ctx)
	if err != nil {
		return nil, err
	}
	answer := &api.ListPodResourcesResponse{}
	for _, p := range pods {
		if p.Status.Phase != v1.PodSucceeded && p.Status.Phase != v1.PodFailed {
			answer.PodResources = append(answer.PodResources, resourcesOf(p))
		}
	}
	return answer, nil
}

// Get returns the resources of one pod. Of two pods with the same full name it prefers the one that
// is not being deleted.
func (s *Server) Get(ctx context.Context, request *api.GetPodResourcesRequest) (
	*api.GetPodResourcesResponse, error) {
	pods, err := s.pods(ctx)
	if err != nil {
		return nil, err
	}
	var found *v1.Pod
	for _, p := range pods {
		if p.Name == request.PodName && p.Namespace == request.PodNamespace &&
			(found == nil || found.DeletionTimestamp != nil) {
			found = p
		}
	}
	if found == nil {
		return nil, status.Errorf(codes.NotFound, "pod %s in namespace %s not found",
			request.PodName, request.PodNamespace)
	}
	return &api.GetPodResourcesResponse{PodResources: resourcesOf(found)}, nil
}

// GetAllocatableResources returns the resources that could be allocated exclusively: none.
func (s *Server) GetAllocatableResources(context.Context, *api.AllocatableResourcesRequest) (
	*api.AllocatableResourcesResponse, error) {
	return &api.AllocatableResourcesResponse{}, nil
}

func (s *Server) pods(ctx context.Context) ([]*v1.Pod, error) {
	pods, err := s.opts.Pods(ctx)
	if err != nil {
		return nil, status.Errorf(codes.Unavailable, "asking the agent for its pods: %v", err)
	}
	return pods, nil
}

// resourcesOf returns the resources of a pod by container: of its sidecars, then of its app
// containers. Other init containers have ended before app containers start, and hold nothing.
func resourcesOf(p *v1.Pod) *api.PodResources {
	of := &api.PodResources{Name: p.Name, Namespace: p.Namespace}
	for i := range p.Spec.InitContainers {
		c := &p.Spec.InitContainers[i]
		if c.RestartPolicy != nil && *c.RestartPolicy == v1.ContainerRestartPolicyAlways {
			of.Containers = append(of.Containers, &api.ContainerResources{Name: c.Name})
		}
	}
	for i := range p.Spec.Containers {
		of.Containers = append(of.Containers,
			&api.ContainerResources{Name: p.Spec.Containers[i].Name})
	}
	return of
}
