// Package pluginconn opens gRPC connections to plugins of the node, such as CSI drivers, which
// listen on unix sockets.
//
// The contract: a connection starts no request before it is used, and waits for no plugin that is
// not there. What a plugin sends is bounded: an answer by the caller's number, and its headers, in
// which errors are, by HeadersMax. Start reading at Open.
package pluginconn

import (
	"context"
	"net"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
)

// HeadersMax bounds the headers of an answer.
const HeadersMax = 16 << 10

// Open returns a connection to the plugin that listens on a socket. Close it when done.
func Open(socket string, answerBytesMax int, opts ...grpc.DialOption) (*grpc.ClientConn, error) {
	return grpc.NewClient("passthrough:///"+socket, append([]grpc.DialOption{
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, path string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "unix", path)
		}),
		grpc.WithAuthority("localhost"), // a path is no valid one, and some servers check that
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(answerBytesMax)),
		grpc.WithMaxHeaderListSize(HeadersMax),
		grpc.WithDisableServiceConfig(),
		grpc.WithNoProxy(),
	}, opts...)...)
}
