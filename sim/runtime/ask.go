package runtime

import (
	"slices"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"seedlet.dev/sim/truth"
)

// asking is a probe or a hook that has reached a container's process and has not ended.
type asking struct {
	runtime   *Runtime
	container *container
	request   string
	number    uint64 // of all that were asked
	ended     bool
	done      func(truth.Reply)
}

// ask brings a request to the process of a container. Later done is told how it ended, once: by
// the process's reply, by the process's own end, or because nobody waits any more.
func (r *Runtime) ask(c *container, request string, done func(truth.Reply)) *asking {
	r.asked++
	a := &asking{runtime: r, container: c, request: request, number: r.asked, done: done}
	c.asked = append(c.asked, a)
	r.tell(c, truth.Fact{Kind: truth.Asked, Request: request, Asking: a.number})
	if reply, takes := c.script.answer(request, r.now().Sub(c.StartedAt)); reply != truth.ReplyNone {
		r.after(takes, func() { a.end(reply) })
	}
	return a
}

func (a *asking) end(reply truth.Reply) {
	if a.ended {
		return
	}
	a.ended = true
	c := a.container
	c.asked = slices.DeleteFunc(c.asked, func(b *asking) bool { return b == a })
	a.runtime.tell(c, truth.Fact{
		Kind: truth.Replied, Request: a.request, Reply: reply, Asking: a.number})
	a.done(reply)
}

// Reach brings a request over the network to the process that listens on a port of an address.
// Later done is told how it ended. The caller says with hangUp that it does not wait any longer;
// it is nil, and done is never called, when nobody listens there.
func (r *Runtime) Reach(address string, port int32, request string, done func(truth.Reply)) (
	hangUp func()) {
	c := r.listener(address, port)
	if c == nil {
		return nil
	}
	a := r.ask(c, request, done)
	return func() { a.end(truth.ReplyNone) }
}

// listener is the container whose process has a port of an address: of those that want it, the
// one that started first.
func (r *Runtime) listener(address string, port int32) *container {
	var first *container
	for _, c := range r.containerOrder {
		s := r.sandboxes[c.SandboxID]
		if c.State == running && s != nil && r.has(s, address) && c.script.listens(port) &&
			(first == nil || c.StartedAt.Before(first.StartedAt)) {
			first = c
		}
	}
	return first
}

// has reports whether an address is that of a sandbox.
func (r *Runtime) has(s *sandbox, address string) bool {
	if s.inNodeNetwork() {
		return slices.Contains(r.opts.NodeAddresses, address)
	}
	return s.IP != "" && s.IP == address
}

func (s *sandbox) inNodeNetwork() bool {
	return s.config.GetLinux().GetSecurityContext().GetNamespaceOptions().GetNetwork() ==
		runtimeapi.NamespaceMode_NODE
}
