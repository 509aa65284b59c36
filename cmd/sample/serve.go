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
	stop := asked()
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

// wellFile is the file that makes a container well by being there. A check that comes before the
// container has got as far as that must not find it well.
const wellFile = "/tmp/well"

// well says whether the container answers checks as a healthy one.
func well() bool {
	_, err := os.Lstat(wellFile)
	return err == nil
}

func getWell() error { return os.WriteFile(wellFile, nil, 0o644) }

// health serves what probes ask for. A sick container answers HTTP with 500 and gRPC with
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
		if err := getWell(); err != nil {
			return 1, err
		}
	}
	stop := asked()
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

// serveHTTP answers checks, and notes the requests in the log, which is how hooks are seen.
func serveHTTP(port int) error {
	server := &http.Server{
		Addr:              ":" + strconv.Itoa(port),
		ReadHeaderTimeout: 10 * time.Second,
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path != "/healthz" {
				fmt.Printf("%s %s %s\n", r.Method, r.URL.Path, r.Header.Get("X-Sample"))
				return
			}
			if !well() {
				w.WriteHeader(http.StatusInternalServerError)
			}
		}),
	}
	return server.ListenAndServe()
}

// checks is the gRPC health service.
type checks struct {
	grpc_health_v1.UnimplementedHealthServer
}

// Check answers for the whole server, and for the service "sample".
func (checks) Check(_ context.Context, in *grpc_health_v1.HealthCheckRequest) (
	*grpc_health_v1.HealthCheckResponse, error) {
	if in.Service != "" && in.Service != "sample" {
		return nil, status.Errorf(codes.NotFound, "no service %q", in.Service)
	}
	answer := &grpc_health_v1.HealthCheckResponse{
		Status: grpc_health_v1.HealthCheckResponse_SERVING,
	}
	if !well() {
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
	grpc_health_v1.RegisterHealthServer(server, checks{})
	return server.Serve(listener)
}

// serveTCP listens while the container is well.
func serveTCP(port int) error {
	var listener net.Listener
	for {
		var err error
		switch {
		case well() && listener == nil:
			if listener, err = net.Listen("tcp", ":"+strconv.Itoa(port)); err == nil {
				go hangUp(listener)
			}
		case !well() && listener != nil:
			err, listener = listener.Close(), nil
		}
		if err != nil {
			return err
		}
		time.Sleep(20 * time.Millisecond)
	}
}

func hangUp(listener net.Listener) {
	for {
		conn, err := listener.Accept()
		if err != nil {
			return // it was closed
		}
		_ = conn.Close() // to have connected was all
	}
}

// check is the same question as a command.
func check(args []string) (int, error) {
	flags := flag.NewFlagSet("check", flag.ContinueOnError)
	takes := flags.Duration("takes", 0, "how long it takes")
	if err := parse(flags, args); err != nil {
		return 2, err
	}
	time.Sleep(*takes)
	if !well() {
		fmt.Println("it is sick")
		return 1, nil
	}
	return 0, nil
}
