// Package network is the simulated network port: it brings probes and hooks over HTTP, TCP and
// gRPC to the processes of the simulated runtime, and their replies back; and the pages of URLs
// (page.go), which are the plan's to say.
//
// Contract: who listens where is the runtime's to say (Options.Reach), and so is what the truth
// log is told. Connections are the agent's own: they die with it, and when the agent does not
// wait any longer. A failure of the network is always that the other side could not be reached.
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

// Options are what a network is made of.
type Options struct {
	Agenda *agenda.Agenda
	Seed   uint64
	Faults wire.FaultSource  // nil: nothing goes wrong
	Answer func(world.Event) // takes the answers of the first life

	// Reach brings a request to whoever listens on a port of a host, as runtime.Reach does: nil
	// if nobody does.
	Reach func(host string, port int32, request string, done func(truth.Reply)) (hangUp func())

	// Page is what is at a URL now, for the manifest URL; nil: nobody is anywhere.
	Page func(url string) Page
}

// Network is the way from the agent to the processes. It is for one goroutine.
type Network struct {
	opts Options
	wire *wire.Wire
}

// New makes a network.
func New(opts Options) *Network {
	return &Network{opts: opts, wire: wire.New(wire.Options{
		Agenda: opts.Agenda, Faults: opts.Faults, Answer: opts.Answer, Seed: opts.Seed,
	})}
}

// Do implements world.Port.
func (n *Network) Do(eff world.Effect) { n.wire.Send(eff, n.serve) }

// serve takes a call that has arrived.
func (n *Network) serve(call *wire.Call) {
	call.Fate.Before, call.Fate.After = unreachable(call.Fate.Before), unreachable(call.Fate.After)
	if ask, is := call.Effect.Body.(*world.FetchManifest); is {
		n.fetch(call, ask)
		return
	}
	host, port, text := request(call.Effect.Body)
	switch {
	case host == "" || port < 1 || port > 65535 || !speakable(call.Effect.Body):
		call.Fail(world.Errorf(world.KindInvalid, call.Name, "it cannot be asked"))
		return
	case call.Fate.Before != nil:
		call.Fail(call.Fate.Before)
		return
	}
	var hangUp func()
	severed := false
	call.OnSever(func() {
		severed = true
		if hangUp != nil {
			hangUp()
		}
	})
	call.Begin(func() {
		if severed {
			return
		}
		hangUp = n.opts.Reach(host, port, text, func(reply truth.Reply) { answer(call, reply) })
		if hangUp == nil {
			refuse(call)
		}
	})
}

// request is where a call goes, and its text as the truth has it.
func request(body any) (host string, port int32, text string) {
	switch req := body.(type) {
	case *world.HTTPGet:
		return req.Host, req.Port, fmt.Sprintf("%s :%d/%s", req.Scheme, req.Port,
			strings.TrimPrefix(req.Path, "/"))
	case *world.TCPConnect:
		return req.Host, req.Port, fmt.Sprintf("tcp :%d", req.Port)
	case *world.GRPCCheck:
		return req.Host, req.Port, fmt.Sprintf("grpc :%d/%s", req.Port, req.Service)
	default:
		panic("network: no such call: " + world.BodyName(body))
	}
}

// speakable reports whether there is such a language.
func speakable(body any) bool {
	get, is := body.(*world.HTTPGet)
	return !is || get.Scheme == "http" || get.Scheme == "https"
}

// answer ends a call as the process has replied. A connection that the process did not live to
// answer is reset.
func answer(call *wire.Call, reply truth.Reply) {
	if body, err := precise(call, reply); err != nil {
		call.Fail(err)
		return
	} else if body != nil {
		call.Reply(body)
		return
	}
	switch reply.Means() {
	case truth.ReplyGood:
		call.Reply(good(call.Effect.Body))
	case truth.ReplyBad:
		if body := bad(call.Effect.Body); body != nil {
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

// precise is what only some requests are answered with; nil and nil for all others.
func precise(call *wire.Call, reply truth.Reply) (any, *world.Error) {
	_, http := call.Effect.Body.(*world.HTTPGet)
	_, grpc := call.Effect.Body.(*world.GRPCCheck)
	switch {
	case http && reply == truth.ReplyElsewhere:
		return &world.HTTPGot{Status: 302, Elsewhere: true, Body: []byte("gone")}, nil
	case http && reply == truth.ReplyEndless:
		page := bytes.Repeat([]byte("x"), world.HTTPBodyMax)
		return &world.HTTPGot{Status: 200, Body: page}, nil
	case grpc && reply == truth.ReplyUnknown:
		return nil, world.Errorf(world.KindNotFound, call.Name, "unknown service")
	case grpc && reply == truth.ReplyUnoffered:
		return nil, world.Errorf(world.KindInvalid, call.Name, "unknown service %s",
			"grpc.health.v1.Health")
	}
	return nil, nil
}

func good(body any) any {
	switch body.(type) {
	case *world.HTTPGet:
		return &world.HTTPGot{Status: 200, Body: []byte("ok")}
	case *world.GRPCCheck:
		return &world.GRPCChecked{Status: "SERVING"}
	default:
		return &world.Done{}
	}
}

// bad is nil for a connection: it is made or it is not.
func bad(body any) any {
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

// unreachable makes a planned error one that a network can have.
func unreachable(err *world.Error) *world.Error {
	if err == nil || err.Kind == world.KindTimeout {
		return err
	}
	return &world.Error{Kind: world.KindUnavailable, Op: err.Op, Message: err.Message}
}

// Connect begins a life of the agent: answers go to it from now on.
func (n *Network) Connect(answer func(world.Event)) { n.wire.Connect(answer) }

// Disconnect ends a life of the agent, and with it all its connections.
func (n *Network) Disconnect() {
	n.wire.Disconnect()
	n.wire.Break(0)
}
