package runtime

import (
	"slices"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"seedlet.dev/sim/truth"
)

// pendingRequest is a request of a probe or a hook that has reached a container's process and has
// not ended.
type pendingRequest struct {
	runtime   *Runtime
	container *container
	request   string
	number    uint64 // unique over all requests
	ended     bool
	done      func(truth.Reply)
}

// deliverRequest delivers a request to the process of a container. It calls done once when the
// request has ended: by the reply, by the end of the process, or because the caller is gone.
func (r *Runtime) deliverRequest(c *container, request string,
	done func(truth.Reply)) *pendingRequest {
	r.requestCount++
	a := &pendingRequest{runtime: r, container: c, request: request, number: r.requestCount,
		done: done}
	c.pendingRequests = append(c.pendingRequests, a)
	r.recordFact(c, truth.Fact{Kind: truth.HandlerRequested, Request: request,
		RequestNumber: a.number})
	if reply, delay := c.script.replyTo(request, r.now().Sub(c.StartedAt)); reply != truth.ReplyNone {
		r.after(delay, func() { a.finish(reply) })
	}
	return a
}

func (a *pendingRequest) finish(reply truth.Reply) {
	if a.ended {
		return
	}
	a.ended = true
	c := a.container
	c.pendingRequests = slices.DeleteFunc(c.pendingRequests,
		func(b *pendingRequest) bool { return b == a })
	a.runtime.recordFact(c, truth.Fact{
		Kind: truth.HandlerEnded, Request: a.request, Reply: reply, RequestNumber: a.number})
	a.done(reply)
}

// SendRequest sends a request over the network to the process that listens on a port of an address,
// and calls done when the request has ended. The caller calls cancel to stop waiting. If no process
// listens there, cancel is nil and done is never called.
func (r *Runtime) SendRequest(address string, port int32, request string, done func(truth.Reply)) (
	cancel func()) {
	c := r.listenerAt(address, port)
	if c == nil {
		return nil
	}
	a := r.deliverRequest(c, request, done)
	return func() { a.finish(truth.ReplyNone) }
}

// listenerAt returns the container whose process listens on a port of an address. If several try
// to, the one that started first has the port.
func (r *Runtime) listenerAt(address string, port int32) *container {
	var first *container
	for _, c := range r.containerOrder {
		s := r.sandboxes[c.SandboxID]
		if c.State == running && s != nil && r.hasAddress(s, address) && c.script.listensOn(port) &&
			(first == nil || c.StartedAt.Before(first.StartedAt)) {
			first = c
		}
	}
	return first
}

// hasAddress reports whether an address belongs to a sandbox.
func (r *Runtime) hasAddress(s *sandbox, address string) bool {
	if s.usesHostNetwork() {
		return slices.Contains(r.opts.NodeAddresses, address)
	}
	return s.IP != "" && s.IP == address
}

func (s *sandbox) usesHostNetwork() bool {
	return s.config.GetLinux().GetSecurityContext().GetNamespaceOptions().GetNetwork() ==
		runtimeapi.NamespaceMode_NODE
}
