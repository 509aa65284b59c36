package runtime

import (
	"time"

	"seedlet.dev/core/op"
	"seedlet.dev/core/timer"
	"seedlet.dev/world"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

const (
	cidrTimeout = 30 * time.Second
	cidrRetry   = 10 * time.Second // the kubelet's: with each update of the Node's status
)

// CIDROwner is the owner of the operations of PodCIDR.
var CIDROwner = timer.Key{Component: "runtime", Name: "podCIDR"}

// PodCIDR is the range of addresses for pods of this node, as the runtime knows it. Runtimes that
// make their own network configuration need it (conf_template of containerd): without it their
// network is never ready.
type PodCIDR struct {
	Wanted string `json:"wanted,omitempty"` // ranges with commas; empty: none is known
	// Sent is what the runtime has accepted. It is empty again when the runtime may have restarted or
	// the outcome is unknown, so the ranges are sent again: that has no effect if they are the same.
	Sent     string     `json:"sent,omitempty"`
	InFlight string     `json:"inFlight,omitempty"`
	Op       world.OpID `json:"op,omitempty"`
	NextAt   time.Time  `json:"nextAt"`
	Problem  string     `json:"problem,omitempty"`
}

// Want sets the ranges, and reports whether they have changed. An empty list changes nothing: the
// API server does not take back the ranges of a node.
func (c *PodCIDR) Want(ranges string) bool {
	if ranges == "" || ranges == c.Wanted {
		return false
	}
	c.Wanted, c.NextAt = ranges, time.Time{}
	return true
}

// Plan sends the ranges if the runtime does not have them, and returns when to plan again.
func (c *PodCIDR) Plan(effects *op.Effects) time.Time {
	switch {
	case c.Op != 0 || c.Wanted == c.Sent:
		return time.Time{}
	case effects.Now().Before(c.NextAt):
		return c.NextAt
	}
	c.InFlight = c.Wanted
	c.Op = effects.Issue(CIDROwner, "", cidrTimeout, &runtimeapi.UpdateRuntimeConfigRequest{
		RuntimeConfig: &runtimeapi.RuntimeConfig{
			NetworkConfig: &runtimeapi.NetworkConfig{PodCidr: c.Wanted}}})
	return time.Time{}
}

// HandleCompletion applies the completion of a request. A runtime that does not know the call needs
// no ranges.
func (c *PodCIDR) HandleCompletion(ev world.Event, effects *op.Effects) {
	sent := c.InFlight
	c.Op, c.InFlight = 0, ""
	if ev.Err != nil && ev.Err.Kind != world.KindUnimplemented {
		if c.Problem == "" {
			effects.Log(world.LevelWarning, "the runtime did not accept the pod CIDR", "podCIDR", sent,
				"err", ev.Err.Error())
		}
		c.Problem, c.Sent, c.NextAt = ev.Err.Error(), "", ev.Time.Add(cidrRetry)
		return
	}
	c.Problem, c.Sent = "", sent
	effects.Log(world.LevelInfo, "the runtime has the pod CIDR", "podCIDR", sent)
}

// forget has the ranges sent again once the runtime responds.
func (c *PodCIDR) forget() { c.Sent = "" }
