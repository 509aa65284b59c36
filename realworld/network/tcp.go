package network

import (
	"context"

	"seedlet.dev/world"
)

func tcpConnect(ctx context.Context, m *world.TCPConnect) error {
	to, err := address("TCPConnect", m.Host, m.Port)
	if err != nil {
		return err
	}
	conn, err := dial(ctx, "tcp", to)
	if err != nil {
		return err
	}
	_ = conn.Close() // a successful connect is the result
	return nil
}
