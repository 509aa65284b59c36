package main

import (
	"context"
	"flag"
	"fmt"
	"net"
	"net/http"
	"os"
	"strconv"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"
)

func web(args []string) (int, error) {
	flags := flag.NewFlagSet("web", flag.ContinueOnError)
	port := flags.Int("port", 8080, "the TCP port")
	text := flags.String("text", "hello from a seedlet pod", "the page")
	if err := parse(flags, args); err != nil {
		return 2, err
	}
	server := &http.Server{
		Addr:              ":" + strconv.Itoa(*port),
		ReadHeaderTimeout: 10 * time.Second,
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			fmt.Printf("%s %s\n", r.Method, r.URL.Path)
			fmt.Fprintln(w, *text)
		}),
	}
	stop := stopRequested()
	failed := make(chan error, 1)
	go func() { failed <- server.ListenAndServe() }()
	fmt.Printf("serving on port %d\n", *port)
	select {
	case err := <-failed:
		return 1, err
	case <-stop:
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		return 0, server.Shutdown(ctx)
	}
}

// healthFile exists while the container is healthy. The container creates it only after its start,
// so a check before that fails.
const healthFile = "/tmp/well"

// isHealthy reports whether the container is healthy.
func isHealthy() bool {
	_, err := os.Lstat(healthFile)
	return err == nil
}

func becomeHealthy() error { return os.WriteFile(healthFile, nil, 0o644) }

// health serves probes. An unhealthy container responds to HTTP with 500 and to gRPC with
// NOT_SERVING, and accepts no TCP connection.
func health(args []string) (int, error) {
	flags := flag.NewFlagSet("health", flag.ContinueOnError)
	httpPort := flags.Int("http", 8080, "the port for HTTP")
	grpcPort := flags.Int("grpc", 8081, "the port for gRPC")
	tcpPort := flags.Int("tcp", 8082, "the port for TCP")
	sick := flags.Bool("sick", false, "be sick from the beginning")
	if err := parse(flags, args); err != nil {
		return 2, err
	}
	if !*sick {
		if err := becomeHealthy(); err != nil {
			return 1, err
		}
	}
	stop := stopRequested()
	failed := make(chan error, 3)
	go func() { failed <- serveHTTP(*httpPort) }()
	go func() { failed <- serveGRPC(*grpcPort) }()
	go func() { failed <- serveTCP(*tcpPort) }()
	fmt.Println("serving")
	select {
	case err := <-failed:
		return 1, err
	case signal := <-stop:
		fmt.Println("asked to stop:", signal)
		return 0, nil
	}
}

// serveHTTP responds to checks and logs the requests, so that tests see hooks.
func serveHTTP(port int) error {
	server := &http.Server{
		Addr:              ":" + strconv.Itoa(port),
		ReadHeaderTimeout: 10 * time.Second,
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path != "/healthz" {
				fmt.Printf("%s %s %s\n", r.Method, r.URL.Path, r.Header.Get("X-Sample"))
				return
			}
			if !isHealthy() {
				w.WriteHeader(http.StatusInternalServerError)
			}
		}),
	}
	return server.ListenAndServe()
}

// healthService is the gRPC health service.
type healthService struct {
	grpc_health_v1.UnimplementedHealthServer
}

// Check responds for the whole server and for the service "sample".
func (healthService) Check(_ context.Context, in *grpc_health_v1.HealthCheckRequest) (
	*grpc_health_v1.HealthCheckResponse, error) {
	if in.Service != "" && in.Service != "sample" {
		return nil, status.Errorf(codes.NotFound, "no service %q", in.Service)
	}
	answer := &grpc_health_v1.HealthCheckResponse{
		Status: grpc_health_v1.HealthCheckResponse_SERVING,
	}
	if !isHealthy() {
		answer.Status = grpc_health_v1.HealthCheckResponse_NOT_SERVING
	}
	return answer, nil
}

func serveGRPC(port int) error {
	listener, err := net.Listen("tcp", ":"+strconv.Itoa(port))
	if err != nil {
		return err
	}
	server := grpc.NewServer()
	grpc_health_v1.RegisterHealthServer(server, healthService{})
	return server.Serve(listener)
}

// serveTCP listens while the container is healthy.
func serveTCP(port int) error {
	var listener net.Listener
	for {
		var err error
		switch {
		case isHealthy() && listener == nil:
			if listener, err = net.Listen("tcp", ":"+strconv.Itoa(port)); err == nil {
				go acceptAndClose(listener)
			}
		case !isHealthy() && listener != nil:
			err, listener = listener.Close(), nil
		}
		if err != nil {
			return err
		}
		time.Sleep(20 * time.Millisecond)
	}
}

func acceptAndClose(listener net.Listener) {
	for {
		conn, err := listener.Accept()
		if err != nil {
			return // the listener was closed
		}
		_ = conn.Close() // a probe only connects
	}
}

// check exits with 0 if the container is healthy.
func check(args []string) (int, error) {
	flags := flag.NewFlagSet("check", flag.ContinueOnError)
	takes := flags.Duration("takes", 0, "how long it takes")
	if err := parse(flags, args); err != nil {
		return 2, err
	}
	time.Sleep(*takes)
	if !isHealthy() {
		fmt.Println("it is sick")
		return 1, nil
	}
	return 0, nil
}
