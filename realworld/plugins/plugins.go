// Package plugins is the plugins port: it observes the sockets below the plugins' registration
// directory (watch.go), and asks plugins by gRPC.
//
// A plugin is asked by version v1 of its API. Version v1beta1 has the same service and the same
// messages, so a plugin of that version understands it.
//
// The contract of the port: Do never blocks; every effect is completed by exactly one event, before
// or soon after its deadline. Each request has a connection of its own, which is closed after it.
// What a plugin sends is bounded. Start reading at Port.
package plugins

import (
	"context"
	"fmt"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	registration "k8s.io/kubelet/pkg/apis/pluginregistration/v1"

	"seedlet.dev/realworld/clock"
	"seedlet.dev/realworld/inflight"
	"seedlet.dev/realworld/pluginconn"
	"seedlet.dev/world"
)

// Options configure a Port.
type Options struct {
	Clock   clock.Clock
	Deliver func(world.Event)    // receives all events; called from many goroutines
	Warn    func(problem string) // the directory is not observed as it should be
	Dir     string               // of the sockets
}

// Port is a world.Port for plugins. Close it when done.
type Port struct {
	operations *inflight.Operations
}

// New returns a port, which observes the sockets from now on.
func New(opts Options) *Port {
	p := &Port{operations: inflight.New(opts.Clock, opts.Deliver)}
	w := newWatcher(opts)
	p.operations.Go(w.run)
	return p
}

// Do implements world.Port.
func (p *Port) Do(eff world.Effect) { p.operations.Start(eff, carryOut) }

// Close cancels the operations in flight and waits until they have ended. Do must not be called
// after it.
func (p *Port) Close() { p.operations.Close() }

func carryOut(ctx context.Context, request any) (any, *world.Error) {
	body, err := execute(ctx, request)
	if err != nil {
		return nil, inflight.ToWorldError(ctx, world.CallName(request), err, kindOf(err))
	}
	return body, nil
}

// execute carries out an effect. If it returns an error, its body is meaningless.
func execute(ctx context.Context, request any) (any, error) {
	switch m := request.(type) {
	case *world.GetPluginInfo:
		return getInfo(ctx, m)
	case *world.NotifyPluginRegistration:
		return &world.Done{}, notify(ctx, m)
	default:
		panic(fmt.Sprintf("plugins: cannot carry out %T", request))
	}
}

func getInfo(ctx context.Context, m *world.GetPluginInfo) (any, error) {
	client, closeConn, err := connect("GetPluginInfo", m.Socket)
	if err != nil {
		return nil, err
	}
	defer closeConn()
	info, err := client.GetInfo(ctx, &registration.InfoRequest{})
	if err != nil {
		return nil, fmt.Errorf("asking the plugin at %s: %w", m.Socket.Path, err)
	}
	return &world.PluginInfo{Type: info.Type, Name: info.Name, Endpoint: info.Endpoint,
		Versions: info.SupportedVersions}, nil
}

func notify(ctx context.Context, m *world.NotifyPluginRegistration) error {
	client, closeConn, err := connect("NotifyPluginRegistration", m.Socket)
	if err != nil {
		return err
	}
	defer closeConn()
	_, err = client.NotifyRegistrationStatus(ctx, &registration.RegistrationStatus{
		PluginRegistered: m.Registered, Error: m.Error})
	if err != nil {
		return fmt.Errorf("notifying the plugin at %s: %w", m.Socket.Path, err)
	}
	return nil
}

// connect returns a client of the plugin at a socket. The file is looked at again, as a plugin that
// was restarted meanwhile has not answered what this one has.
func connect(call string, socket world.PluginSocket) (registration.RegistrationClient, func(),
	error) {
	if file, isSocket := fileOf(socket.Path); !isSocket || file != socket.File {
		return nil, nil, world.Errorf(world.KindNotFound, call,
			"%s: the socket is gone, or another file", socket.Path)
	}
	conn, err := pluginconn.Open(socket.Path, world.PluginInfoBytesMax)
	if err != nil {
		return nil, nil, world.Errorf(world.KindInvalid, call, "%s: %v", socket.Path, err)
	}
	closeConn := func() { _ = conn.Close() } // nothing is sent any more
	return registration.NewRegistrationClient(conn), closeConn, nil
}

// kindOf returns the kind of an error of gRPC.
func kindOf(err error) world.ErrorKind {
	switch status.Code(err) {
	case codes.ResourceExhausted:
		return world.KindExhausted
	case codes.Unimplemented:
		return world.KindUnimplemented
	case codes.Unavailable:
		return world.KindUnavailable
	case codes.Canceled, codes.DeadlineExceeded:
		return world.KindTimeout
	}
	return world.KindInternal
}
