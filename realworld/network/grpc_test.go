package network_test

import (
	"context"
	"fmt"
	"net"
	"strings"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/health"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"seedlet.dev/realworld/porttest"
	"seedlet.dev/world"
)

// serveGRPC serves gRPC on the loopback until the test ends.
func serveGRPC(t *testing.T, server *grpc.Server) *world.GRPCCheck {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan struct{})
	go func() {
		_ = server.Serve(l)
		close(served)
	}()
	t.Cleanup(func() {
		server.Stop()
		<-served
	})
	host, port := hostPort(l.Addr().String())
	return &world.GRPCCheck{Host: host, Port: port}
}

func TestGRPCCheck(t *testing.T) {
	states := health.NewServer()
	states.SetServingStatus("down", grpc_health_v1.HealthCheckResponse_NOT_SERVING)
	agent := ""
	server := grpc.NewServer(grpc.UnaryInterceptor(func(ctx context.Context, req any,
		_ *grpc.UnaryServerInfo, next grpc.UnaryHandler) (any, error) {
		md, _ := metadata.FromIncomingContext(ctx)
		agent = strings.Join(md["user-agent"], ",")
		return next(ctx, req)
	}))
	grpc_health_v1.RegisterHealthServer(server, states)
	m := serveGRPC(t, server)
	h := newHarness(t)
	for service, want := range map[string]string{"": "SERVING", "down": "NOT_SERVING"} {
		m.Service = service
		body, err := h.call(m, porttest.Patience)
		if got, ok := body.(*world.GRPCChecked); !ok || got.Status != want {
			t.Errorf("service %q: %v, %v, want %s", service, body, err, want)
		}
	}
	if !strings.HasPrefix(agent, "kube-probe/1.36") {
		t.Errorf("user agent %q", agent)
	}
	m.Service = "unknown"
	if body, err := h.call(m, porttest.Patience); !err.Has(world.KindNotFound) {
		t.Errorf("an unknown service: %v, %v, want NotFound", body, err)
	}
}

func TestGRPCErrors(t *testing.T) {
	h := newHarness(t)
	m := serveGRPC(t, grpc.NewServer())
	if body, err := h.call(m, porttest.Patience); !err.Has(world.KindInvalid) ||
		!strings.HasPrefix(err.Message, "error: this server does not implement the grpc health ") {
		t.Errorf("no health service: %v, %v, want Invalid", body, err)
	}
	failing := grpc.NewServer(grpc.UnknownServiceHandler(func(any, grpc.ServerStream) error {
		return status.Error(codes.PermissionDenied, "not for you")
	}))
	m = serveGRPC(t, failing)
	if body, err := h.call(m, porttest.Patience); !err.Has(world.KindUnavailable) ||
		err.Message != "error: health rpc probe failed: rpc error: code = PermissionDenied desc = "+
			"not for you" {
		t.Errorf("refused: %v, %v, want Unavailable", body, err)
	}
	failing.Stop()
	if body, err := h.call(m, porttest.Patience); !err.Has(world.KindUnavailable) ||
		!strings.HasPrefix(err.Message, fmt.Sprintf("error: failed to connect service at \"%s:%d\": ",
			m.Host, m.Port)) {
		t.Errorf("no server: %v, %v, want Unavailable", body, err)
	}
}
