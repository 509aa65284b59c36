package network

import (
	"context"
	"errors"
	"net"

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
	defer func() { _ = conn.Close() }() // one question, and it has been answered
	answer, err := grpc_health_v1.NewHealthClient(conn).Check(ctx,
		&grpc_health_v1.HealthCheckRequest{Service: m.Service})
	if err != nil {
		return nil, grpcError(err)
	}
	return &world.GRPCChecked{Status: answer.Status.String()}, nil
}

// grpcError gives the codes a kind that mean something to whoever wrote the probe.
func grpcError(err error) error {
	s := status.Convert(err)
	switch s.Code() {
	case codes.Unimplemented:
		return world.Errorf(world.KindInvalid, "GRPCCheck", "%s", s.Message())
	case codes.NotFound:
		return world.Errorf(world.KindNotFound, "GRPCCheck", "%s", s.Message())
	case codes.DeadlineExceeded:
		return world.Errorf(world.KindTimeout, "GRPCCheck", "%s", s.Message())
	}
	return errors.New(s.Message())
}
