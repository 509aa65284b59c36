package csi

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	"seedlet.dev/core/budget"
	"seedlet.dev/core/op"
	"seedlet.dev/core/timer"
	"seedlet.dev/core/volumeop"
	"seedlet.dev/world"
)

// Driver is what is known of the drivers of one name: one usually, two while one is replaced.
type Driver struct {
	// Sessions are the plugins of the name, in the order in which they appeared. Without any, the
	// driver has gone, and what the cluster knows of it is taken back.
	Sessions []Session `json:"sessions,omitempty"`
	// Refused are the writes for the driver that the API server has refused in a row, though no plugin
	// waits for them to be registered.
	Refused volumeop.Attempts `json:"refused,omitzero"`
}

// Session is one plugin, from the time that it is to be registered.
type Session struct {
	Socket       string `json:"socket"`       // identifies the plugin
	Registration string `json:"registration"` // and the attempt to register it
	Endpoint     string `json:"endpoint"`
	// Registered reports whether the plugin was notified of its registration, so that it is used.
	Registered bool               `json:"registered,omitempty"`
	Op         world.OpID         `json:"op,omitempty"`
	Info       *world.CSINodeInfo `json:"info,omitempty"` // checked
	AskedAt    time.Time          `json:"askedAt,omitzero"`
	// AskSoon is set if the plugin is to be asked again before the period of its driver has passed.
	AskSoon bool `json:"askSoon,omitempty"`
	// Differs is set once a registered plugin has answered with another ID or topology.
	Differs  bool              `json:"differs,omitempty"`
	Attempts volumeop.Attempts `json:"attempts,omitzero"`
	// Problem is why the plugin cannot be registered.
	Problem string `json:"problem,omitempty"`
}

// Plugin is a CSI plugin that is registered, or could be.
type Plugin struct {
	Name, Endpoint, Socket, Registration string
	Registered                           bool
}

// The bounds of what is kept of a driver.
const (
	driversMax  = 64
	nodeIDMax   = 256 // as the API server has it (csiNodeIDMaxLength)
	topologyMax = 64  // segments
)

// allocatableRetry is the least time between two questions to a registered plugin: the shortest
// period that a CSIDriver can have.
const allocatableRetry = 10 * time.Second

// DriverComponent is the component of the keys of drivers.
const DriverComponent = "csidriver"

// DriverKey returns the key of a driver.
func DriverKey(name string) timer.Key { return timer.Key{Component: DriverComponent, Name: name} }

// ObservePlugins applies which CSI plugins and sockets there are, and returns the sorted names of
// the drivers that changed. Between two attempts to register a plugin it is none, but its socket is
// there: what the cluster knows of it stays.
func (n *Node) ObservePlugins(plugins []Plugin, sockets map[string]bool) (changed []string) {
	if !n.Enabled {
		return nil
	}
	before := n.Drivers
	n.Drivers = map[string]*Driver{}
	for name, d := range before { //ordered: each by itself
		n.Drivers[name] = &Driver{Refused: d.Refused}
		for _, s := range d.Sessions {
			i := slices.IndexFunc(plugins, func(p Plugin) bool { return p.Socket == s.Socket })
			if s.Registered = i >= 0 && plugins[i].Registered; i < 0 && sockets[s.Socket] ||
				i >= 0 && plugins[i].Name == name && plugins[i].Registration == s.Registration {
				n.Drivers[name].Sessions = append(n.Drivers[name].Sessions, s)
			}
		}
	}
	for _, p := range plugins {
		d := n.Drivers[p.Name]
		if d == nil {
			d = &Driver{}
			n.Drivers[p.Name] = d
		}
		if !slices.ContainsFunc(d.Sessions, func(s Session) bool {
			return s.Registration == p.Registration
		}) {
			s := Session{Socket: p.Socket, Registration: p.Registration, Endpoint: p.Endpoint,
				Registered: p.Registered}
			if len(n.Drivers) > driversMax {
				s.Problem = fmt.Sprintf("the node has %d CSI drivers, and can have no more", driversMax)
			}
			d.Sessions, d.Refused = append(d.Sessions, s), volumeop.Attempts{}
		}
	}
	for _, name := range slices.Sorted(maps.Keys(n.Drivers)) {
		n.Drivers[name].supersede()
		if !before[name].isSame(n.Drivers[name]) {
			changed = append(changed, name)
		}
	}
	return changed
}

// supersede sets the problem of plugins that wait to be registered although one that came later is
// registered or has answered: it has a higher version, and the cluster is to know its answer.
// (Between two attempts to register the higher one, its last one comes first, and waits for
// nothing.)
func (d *Driver) supersede() {
	hasLater := false
	for i := len(d.Sessions) - 1; i >= 0; i-- {
		s := &d.Sessions[i]
		switch {
		case s.Registered:
			s.Problem = ""
		case hasLater && s.Problem == "":
			s.Problem = "another driver with the same name has a higher version"
		}
		hasLater = hasLater || s.Registered || s.Info != nil && s.Problem == ""
	}
}

// HasDriver reports whether the node has a driver, or is taking back what the cluster knows of it.
// It has driversMax at most: those that were refused as one too many do not count.
func (n *Node) HasDriver(name string) bool {
	d := n.Drivers[name]
	return d != nil && (len(d.Sessions) == 0 ||
		slices.ContainsFunc(d.Sessions, func(s Session) bool { return s.Problem == "" }))
}

// isSame reports whether two states of a driver have the same plugins.
func (d *Driver) isSame(other *Driver) bool {
	return d != nil && slices.EqualFunc(d.Sessions, other.Sessions, func(x, y Session) bool {
		return x.Registration == y.Registration && x.Registered == y.Registered
	})
}

// session returns the plugin through which the volumes of a driver are used; nil if none is
// registered.
func (n *Node) session(name string) *Session {
	d := n.Drivers[name]
	if d == nil {
		return nil
	}
	for i := len(d.Sessions) - 1; i >= 0; i-- {
		if s := &d.Sessions[i]; s.Registered && s.Info != nil {
			return s
		}
	}
	return nil
}

func (s *Session) driver(name string) world.CSIDriver {
	return world.CSIDriver{Name: name, Endpoint: s.Endpoint}
}

// source returns the plugin whose answer the cluster is to know of a driver: the newest one that
// has answered; nil if none has.
func (d *Driver) source() *Session {
	for i := len(d.Sessions) - 1; i >= 0; i-- {
		if s := &d.Sessions[i]; s.Info != nil && s.Problem == "" {
			return s
		}
	}
	return nil
}

// Registration returns whether a plugin is ready to be registered, or why it cannot be. Neither:
// it is being prepared.
func (n *Node) Registration(p Plugin, env *Env) (ready bool, problem string) {
	d := n.Drivers[p.Name]
	if d == nil {
		return false, ""
	}
	for i := range d.Sessions {
		if s := &d.Sessions[i]; s.Registration == p.Registration {
			ready = s.Info != nil && n.isPublished(p.Name, s.Info, env)
			return ready && s.Problem == "", s.Problem
		}
	}
	return false, ""
}

// DriverNames returns the names of all drivers, sorted.
func (n *Node) DriverNames() []string { return slices.Sorted(maps.Keys(n.Drivers)) }

// Retry ends the back-offs of the volumes of drivers, which were registered or have gone, and
// returns their names, sorted.
func (n *Node) Retry(drivers []string) (names []string) {
	if len(drivers) == 0 {
		return nil
	}
	isOf := map[string]bool{}
	for _, driver := range drivers {
		isOf[driver] = true
	}
	for name, v := range n.Volumes { //ordered: sorted below
		if isOf[v.Driver] {
			v.Staging.Attempts.NotBefore, v.Staging.Undoing.NotBefore = time.Time{}, time.Time{}
			for _, u := range v.Uses { //ordered: each by itself
				u.Attempts.NotBefore = time.Time{}
			}
			for _, p := range v.Publications { //ordered: each by itself
				p.Attempts.NotBefore = time.Time{}
			}
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// PlanDriver asks the plugins of a driver for their node, and returns when to plan again. Once the
// cluster knows no more of a driver that has gone, it is forgotten.
func (n *Node) PlanDriver(name string, env *Env) time.Time {
	var wake time.Time
	d := n.Drivers[name]
	if d == nil {
		return wake
	}
	if len(d.Sessions) == 0 {
		if n.isPublished(name, nil, env) {
			delete(n.Drivers, name)
		}
		return wake
	}
	for i := range d.Sessions {
		s := &d.Sessions[i]
		if s.Problem != "" || s.Op != 0 || s.Attempts.IsWaiting(env.Effects.Now(), &wake) {
			continue
		}
		object, _ := env.driverObject(name)
		at := s.askAt(allocatablePeriod(object))
		if s.Info == nil || !at.IsZero() && !env.Effects.Now().Before(at) {
			s.AskedAt, s.AskSoon = env.Effects.Now(), false
			s.Op = env.Effects.IssueFor("", DriverKey(name), s.Registration, callTimeout,
				&world.GetCSINodeInfo{Driver: s.driver(name)})
			continue
		}
		s.checkTopology(env)
		wake = timer.Soonest(wake, at)
	}
	return wake
}

// askAt returns when to ask a plugin that has answered again; zero: not at all.
func (s *Session) askAt(period time.Duration) (at time.Time) {
	if period > 0 {
		at = s.AskedAt.Add(period)
	}
	if s.AskSoon {
		at = timer.Soonest(at, s.AskedAt.Add(allocatableRetry))
	}
	return at
}

// allocatablePeriod returns how often a driver is asked how many volumes the node can have; zero:
// once (MutableCSINodeAllocatableCount).
func allocatablePeriod(d *storagev1.CSIDriver) time.Duration {
	if d == nil || d.Spec.NodeAllocatableUpdatePeriodSeconds == nil {
		return 0
	}
	seconds := min(max(*d.Spec.NodeAllocatableUpdatePeriodSeconds, 0), math.MaxInt32)
	return time.Duration(seconds) * time.Second
}

// isLimitMutable reports whether a driver may change how many volumes the node can have.
func (e *Env) isLimitMutable(driver string) bool {
	d, _ := e.driverObject(driver)
	return allocatablePeriod(d) > 0
}

// askAgain has a registered driver asked again for its node, but not at once after the last time.
func (n *Node) askAgain(name string, env *Env) {
	if s := n.session(name); s != nil {
		s.AskSoon = true
		env.Enqueue(DriverKey(name))
	}
}

// hasAskedSince reports whether a registered driver was asked again at a time or later, and the
// CSINode has what it has answered. One that has gone is asked no more.
func (n *Node) hasAskedSince(name string, at time.Time) bool {
	s := n.session(name)
	return s == nil || s.Op == 0 && !s.AskedAt.Before(at) && s.Attempts.Failures == 0 &&
		n.isListed(name, s.Info)
}

// HandleDriverCompletion applies what a driver has answered of its node. A registered driver that
// does not answer keeps what it has answered before.
func (n *Node) HandleDriverCompletion(id world.OpID, r op.Record, ev world.Event, env *Env) {
	d := n.Drivers[r.Owner.Name]
	if d == nil {
		return
	}
	for i := range d.Sessions {
		s := &d.Sessions[i]
		if s.Op != id {
			continue
		}
		s.Op = 0
		info, ok := ev.Body.(*world.CSINodeInfo)
		problem := ""
		switch {
		case ev.Err != nil:
			problem = ev.Err.Message
		case !ok:
			problem = "answered with another message"
		default:
			problem = checkInfo(info)
		}
		switch {
		case problem == "":
			s.takeInfo(info, r.Owner.Name, env)
			s.Attempts.Succeed()
			s.checkTopology(env)
			d.supersede()
		case s.Info == nil && !ev.Err.Has(world.KindTimeout) && !ev.Err.Has(world.KindUnavailable):
			s.Problem = budget.CutMessage(problem)
		default: // it is asked again: it may be about to start, or busy
			if s.Attempts.Fail(ev.Time, problem); s.Attempts.Failures == 1 {
				env.Effects.Log(world.LevelError, "Failed to ask a CSI driver for its node", "driver",
					r.Owner.Name, "err", s.Attempts.Problem)
			}
		}
		n.enqueueFull(env)
	}
}

// takeInfo takes an answer of a plugin. The ID and the topology of one that is registered stay: the
// cluster knows its volumes by them, and they cannot change in the CSINode.
func (s *Session) takeInfo(info *world.CSINodeInfo, name string, env *Env) {
	if s.Registered && s.Info != nil &&
		(info.NodeID != s.Info.NodeID || !maps.Equal(info.Topology, s.Info.Topology)) {
		if !s.Differs {
			s.Differs = true
			env.Effects.Log(world.LevelWarning,
				"A registered CSI driver has another ID of the node, or another topology", "driver", name)
		}
		kept := *info
		kept.NodeID, kept.Topology = s.Info.NodeID, s.Info.Topology
		info = &kept
	}
	s.Info = info
}

// checkInfo returns why the answer of a driver cannot be used; empty if it can.
func checkInfo(info *world.CSINodeInfo) string {
	const prefix = "error adding CSI driver node info: "
	switch {
	case info.NodeID == "":
		return prefix + "driverNodeID must not be empty"
	case len(info.NodeID) > nodeIDMax:
		return fmt.Sprintf(prefix+"driverNodeID has %d bytes, and may have %d", len(info.NodeID),
			nodeIDMax)
	case len(info.Topology) > topologyMax:
		return fmt.Sprintf(prefix+"the topology has %d segments, and may have %d", len(info.Topology),
			topologyMax)
	}
	for _, key := range slices.Sorted(maps.Keys(info.Topology)) {
		wrong := append(validation.IsQualifiedName(key),
			validation.IsValidLabelValue(info.Topology[key])...)
		if len(wrong) > 0 {
			return fmt.Sprintf(prefix+"topology segment %q: %s", budget.Cut(key, budget.ReasonMax), wrong[0])
		}
	}
	return ""
}

// checkTopology sets the problem of a driver whose topology contradicts the labels of the Node.
func (s *Session) checkTopology(env *Env) {
	if s.Info == nil || s.Registered || env.Object == nil {
		return
	}
	if collision := s.collision(env.Object); collision != "" {
		s.Problem = collision
	}
}

// collision returns how the topology of a driver contradicts the labels of a Node; empty: it does
// not.
func (s *Session) collision(node *v1.Node) string {
	for _, key := range slices.Sorted(maps.Keys(s.Info.Topology)) {
		have, exists := node.Labels[key]
		if want := s.Info.Topology[key]; exists && have != want {
			return fmt.Sprintf("error updating Node object with CSI driver node info: detected "+
				"topology value collision: driver reported %q:%q but existing label is %q:%q", key, want, key,
				have)
		}
	}
	return ""
}
