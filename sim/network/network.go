// Package network is the simulated network port. It sends HTTP, TCP and gRPC requests of probes and
// hooks to the processes of the simulated runtime, and serves the manifest URL (manifest_url.go) as
// the plan defines it.
//
// Contract: the runtime decides which process listens where (Options.SendRequest) and records the
// requests in the truth log. Connections belong to the agent: they end with it, and when the agent
// stops waiting. Every network fault is reported as KindUnavailable or KindTimeout.
//
// Start reading at serve.
package network

import (
	"bytes"
	"fmt"
	"strings"

	"seedlet.dev/sim/agenda"
	"seedlet.dev/sim/truth"
	"seedlet.dev/sim/wire"
	"seedlet.dev/world"
)

// Options configure a network.
type Options struct {
	Agenda  *agenda.Agenda
	Seed    uint64
	Faults  wire.FaultSource  // nil: no faults
	Deliver func(world.Event) // receives the events of the first incarnation

	// SendRequest sends a request to the process that listens on a port of a host, as
	// runtime.Runtime's method does. It returns nil if no process listens there.
	SendRequest func(host string, port int32, request string, done func(truth.Reply)) (hangUp func())

	// Page returns the current state of a URL; nil: all connections are refused.
	Page func(url string) Page
}

// Network is the simulated network of the node. It is for use by one goroutine.
type Network struct {
	opts Options
	wire *wire.Wire
}

// New returns a network.
func New(opts Options) *Network {
	return &Network{opts: opts, wire: wire.New(wire.Options{
		Agenda: opts.Agenda, Faults: opts.Faults, Deliver: opts.Deliver, Seed: opts.Seed,
	})}
}

// InFlight returns the calls that the agent waits for, as wire.InFlight does.
func (n *Network) InFlight() []*wire.Call { return n.wire.InFlight() }

// Reseed makes every later call draw from another seed.
func (n *Network) Reseed(seed uint64) { n.wire.Reseed(seed) }

// Do implements world.Port.
func (n *Network) Do(eff world.Effect) { n.wire.Send(eff, n.serve) }

// serve handles a call that has arrived.
func (n *Network) serve(call *wire.Call) {
	call.Outcome.ErrorBefore = asNetworkError(call.Outcome.ErrorBefore)
	call.Outcome.ErrorAfter = asNetworkError(call.Outcome.ErrorAfter)
	if fetch, isFetch := call.Effect.Body.(*world.FetchManifest); isFetch {
		n.fetchManifest(call, fetch)
		return
	}
	host, port, text := describeRequest(call.Effect.Body)
	switch {
	case host == "" || port < 1 || port > 65535 || !hasSupportedScheme(call.Effect.Body):
		call.Fail(world.Errorf(world.KindInvalid, call.Name, "it cannot be asked"))
		return
	case call.Outcome.ErrorBefore != nil:
		call.Fail(call.Outcome.ErrorBefore)
		return
	}
	var cancel func()
	callerGone := false
	call.OnCallerGone(func() {
		callerGone = true
		if cancel != nil {
			cancel()
		}
	})
	call.Execute(func() {
		if callerGone {
			return
		}
		cancel = n.opts.SendRequest(host, port, text, func(reply truth.Reply) { complete(call, reply) })
		if cancel == nil {
			refuse(call)
		}
	})
}

// describeRequest returns the target of a call, and the text of the request in the truth log.
func describeRequest(body any) (host string, port int32, text string) {
	switch req := body.(type) {
	case *world.HTTPGet:
		return req.Host, req.Port, fmt.Sprintf("%s :%d/%s", req.Scheme, req.Port,
			strings.TrimPrefix(req.Path, "/"))
	case *world.TCPConnect:
		return req.Host, req.Port, fmt.Sprintf("tcp :%d", req.Port)
	case *world.GRPCCheck:
		return req.Host, req.Port, fmt.Sprintf("grpc :%d/%s", req.Port, req.Service)
	default:
		panic("network: unknown call: " + world.BodyName(body))
	}
}

// hasSupportedScheme reports whether the scheme of an HTTP request is http or https.
func hasSupportedScheme(body any) bool {
	get, isGet := body.(*world.HTTPGet)
	return !isGet || get.Scheme == "http" || get.Scheme == "https"
}

// complete completes a call with the reply of the process. If the process has ended without a reply
// the connection is reset.
func complete(call *wire.Call, reply truth.Reply) {
	if body, err := specificResponse(call, reply); err != nil {
		call.Fail(err)
		return
	} else if body != nil {
		call.Reply(body)
		return
	}
	switch reply.Class() {
	case truth.ReplySuccess:
		call.Reply(successResponse(call.Effect.Body))
	case truth.ReplyFailure:
		if body := failureResponse(call.Effect.Body); body != nil {
			call.Reply(body)
			return
		}
		refuse(call)
	case truth.ReplyRefused:
		refuse(call)
	default:
		call.Fail(world.Errorf(world.KindUnavailable, call.Name, "connection reset by peer"))
	}
}

// specificResponse returns the response to a reply that only one protocol has, and nil and nil for
// all other replies.
func specificResponse(call *wire.Call, reply truth.Reply) (any, *world.Error) {
	_, http := call.Effect.Body.(*world.HTTPGet)
	_, grpc := call.Effect.Body.(*world.GRPCCheck)
	switch {
	case http && reply == truth.ReplyRedirect:
		return &world.HTTPGot{Status: 302, RedirectedToOtherHost: true, Body: []byte("gone")}, nil
	case http && reply == truth.ReplyEndless:
		page := bytes.Repeat([]byte("x"), world.HTTPBodyMax)
		return &world.HTTPGot{Status: 200, Body: page}, nil
	case grpc && reply == truth.ReplyUnknownService:
		return nil, world.Errorf(world.KindNotFound, call.Name, "unknown service")
	case grpc && reply == truth.ReplyUnimplemented:
		return nil, world.Errorf(world.KindInvalid, call.Name, "unknown service %s",
			"grpc.health.v1.Health")
	}
	return nil, nil
}

func successResponse(body any) any {
	switch body.(type) {
	case *world.HTTPGet:
		return &world.HTTPGot{Status: 200, Body: []byte("ok")}
	case *world.GRPCCheck:
		return &world.GRPCChecked{Status: "SERVING"}
	default:
		return &world.Done{}
	}
}

// failureResponse returns nil for TCP, where a failure is a refused connection.
func failureResponse(body any) any {
	switch body.(type) {
	case *world.HTTPGet:
		return &world.HTTPGot{Status: 500, Body: []byte("not well")}
	case *world.GRPCCheck:
		return &world.GRPCChecked{Status: "NOT_SERVING"}
	default:
		return nil
	}
}

func refuse(call *wire.Call) {
	call.Fail(world.Errorf(world.KindUnavailable, call.Name, "connection refused"))
}

// asNetworkError converts an injected error to one that a network can report.
func asNetworkError(err *world.Error) *world.Error {
	if err == nil || err.Kind == world.KindTimeout {
		return err
	}
	return &world.Error{Kind: world.KindUnavailable, Op: err.Op, Message: err.Message}
}

// Connect starts an incarnation of the agent, which receives all completions from now on.
func (n *Network) Connect(deliver func(world.Event)) { n.wire.Connect(deliver) }

// Disconnect ends an incarnation of the agent, with all its connections.
func (n *Network) Disconnect() {
	n.wire.Disconnect()
	n.wire.Crash(0)
}
