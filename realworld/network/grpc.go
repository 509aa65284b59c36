package network

import (
	"context"
	"fmt"
	"net"
	"strings"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"

	"seedlet.dev/world"
)

func grpcCheck(ctx context.Context, m *world.GRPCCheck) (any, error) {
	to, err := address("GRPCCheck", m.Host, m.Port)
	if err != nil {
		return nil, err
	}
	conn, err := grpc.NewClient("passthrough:///"+to,
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, to string) (net.Conn, error) {
			return dial(ctx, "tcp", to)
		}),
		grpc.WithUserAgent(userAgent),
		grpc.WithDisableServiceConfig(),
		grpc.WithNoProxy(),
	)
	if err != nil {
		return nil, world.Errorf(world.KindInvalid, "GRPCCheck", "%v", err)
	}
	defer func() { _ = conn.Close() }() // there is one request per connection
	response, err := grpc_health_v1.NewHealthClient(conn).Check(ctx,
		&grpc_health_v1.HealthCheckRequest{Service: m.Service})
	if err != nil {
		return nil, grpcError(to, err)
	}
	return &world.GRPCChecked{Status: response.Status.String()}, nil
}

// grpcError converts an error of a check, in the kubelet's words. The codes that tell the author of
// a probe what is wrong have a kind of their own: no health service, an unknown service, and no
// response in time.
func grpcError(address string, err error) error {
	s := status.Convert(err)
	const failed = "error: health rpc probe failed: %v"
	switch s.Code() {
	case codes.Unimplemented:
		return world.Errorf(world.KindInvalid, "GRPCCheck", "error: this server does not implement the "+
			"grpc health protocol (grpc.health.v1.Health): %s", s.Message())
	case codes.NotFound:
		return world.Errorf(world.KindNotFound, "GRPCCheck", failed, err)
	case codes.DeadlineExceeded:
		return world.Errorf(world.KindTimeout, "GRPCCheck", "%s", s.Message())
	case codes.Unavailable:
		if strings.HasPrefix(s.Message(), "connection error:") { // of the client: no server responded
			return fmt.Errorf("error: failed to connect service at %q: %s", address, s.Message())
		}
	}
	return fmt.Errorf(failed, err)
}
