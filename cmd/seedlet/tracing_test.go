package main

import (
	"context"
	"fmt"
	"net"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	collectorapi "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	"google.golang.org/grpc"

	"seedlet.dev/realworld/porttest"
)

// collector records the names of the spans that it receives.
type collector struct {
	collectorapi.UnimplementedTraceServiceServer
	mu    sync.Mutex
	spans map[string]bool
}

func (c *collector) Export(_ context.Context, request *collectorapi.ExportTraceServiceRequest) (
	*collectorapi.ExportTraceServiceResponse, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, of := range request.ResourceSpans {
		for _, scope := range of.ScopeSpans {
			for _, span := range scope.Spans {
				c.spans[span.Name] = true
			}
		}
	}
	return &collectorapi.ExportTraceServiceResponse{}, nil
}

// The agent sends spans to the configured collector, the last ones at its shutdown.
func TestTracing(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	c, server := &collector{spans: map[string]bool{}}, grpc.NewServer()
	collectorapi.RegisterTraceServiceServer(server, c)
	go func() { _ = server.Serve(listener) }() // until Stop
	defer server.Stop()
	dir, readOnly := t.TempDir(), freePort(t)
	notified := notifySocket(t, filepath.Join(dir, "notify.sock"))
	config := write(t, filepath.Join(dir, "config.yaml"), header+"enableServer: false\npodLogsDir: "+
		filepath.Join(dir, "logs")+"\ntracing: {samplingRatePerMillion: 1000000, endpoint: '"+
		listener.Addr().String()+"'}\n")
	cmd := command(t, "--config", config, "--root-dir", dir, "--hostname-override", "node-a",
		"--container-runtime-endpoint", "unix://"+filepath.Join(dir, "none.sock"),
		"--healthz-port", "0", "--read-only-port", fmt.Sprint(readOnly))
	cmd.Env = append(cmd.Env, "NOTIFY_SOCKET="+filepath.Join(dir, "notify.sock"))
	var log strings.Builder
	cmd.Stderr = &log
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	<-notified
	const called = `kubelet_runtime_operations_errors_total{operation_type="list_containers"}`
	for late := time.Now().Add(porttest.Patience); time.Now().Before(late); {
		if strings.Contains(get(t, readOnly, "/metrics"), called) {
			break
		}
		time.Sleep(20 * time.Millisecond)
	}
	if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err != nil {
		t.Errorf("ends with %v, having said\n%s", err, log.String())
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.spans["runtime.v1.RuntimeService/ListContainers"] || !c.spans["GET /metrics"] {
		t.Errorf("the collector has spans %v; the agent says\n%s", c.spans, log.String())
	}
	if strings.Contains(log.String(), "tracing.") {
		t.Errorf("it warns of what works:\n%s", log.String())
	}
}
