package plan

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"path"
	"slices"
	"strings"
	"time"
)

// PluginChange is a plugin that makes its socket in the plugins' registration directory, in place
// of one that is there, or the end of one.
type PluginChange struct {
	Socket string `json:"socket"`         // its path in the directory
	Gone   bool   `json:"gone,omitempty"` // the socket is removed; the other fields are empty
	// Type, Name, Endpoint and Versions are what the plugin answers.
	Type     string   `json:"type,omitempty"`
	Name     string   `json:"name,omitempty"`
	Endpoint string   `json:"endpoint,omitempty"`
	Versions []string `json:"versions,omitempty"`
	// Wrong is how the plugin handles its first requests, as many as WrongFor; if that is absent, all.
	Wrong    PluginFault `json:"wrong,omitempty"`
	WrongFor int         `json:"wrongFor,omitempty"`
	// Driver is the node service of a CSI driver. Absent: the plugin has none.
	Driver *CSIDriver `json:"driver,omitempty"`
}

// PluginFault is how a plugin handles requests wrongly.
type PluginFault string

// The faults of plugins.
const (
	PluginHangs        PluginFault = "hangs"         // it does not answer what it is
	PluginFails        PluginFault = "fails"         // it answers with an error
	PluginTooLong      PluginFault = "too-long"      // the answer is longer than the bound
	PluginDown         PluginFault = "down"          // the process has ended, and left the socket
	PluginStatusFails  PluginFault = "status-fails"  // it fails when it is notified
	PluginStatusLapses PluginFault = "status-lapses" // it does not respond when it is notified
)

var pluginFaults = []PluginFault{PluginHangs, PluginFails, PluginTooLong, PluginDown,
	PluginStatusFails, PluginStatusLapses}

// PluginRange is which plugins there may be.
type PluginRange struct {
	Sockets Count `json:"sockets,omitempty"`
	Changes Count `json:"changes,omitempty"` // of a plugin by another one, or by none
	Gone    Share `json:"gone,omitempty"`    // of the changes that remove the socket
	Refused Share `json:"refused,omitempty"` // of plugins that must not be registered
	SameAs  Share `json:"sameAs,omitempty"`  // of plugins that have the name of another one
	Wrong   Share `json:"wrong,omitempty"`   // of plugins that handle requests wrongly
	Early   Share `json:"early,omitempty"`   // of plugins that are there before the agent
	// Placed is the share of plugins that have a topology or an ID of the node. Some collide with
	// those of others, and some are what the API server refuses.
	Placed Share `json:"placed,omitempty"`
}

// addPlugins generates the plugins of the node.
func (g *generator) addPlugins() {
	p := &g.scenario.Spec.Plugins
	if p.Sockets.Most == 0 {
		return
	}
	r, places := g.stream("plugins"), g.stream("plugin places")
	n := p.Sockets.draw(r)
	for i := range n {
		at, change := g.randomTime(r), p.plugin(r, i, n)
		if p.Early.drawBool(r) {
			at = 0
		}
		p.place(change, places)
		g.add(at, change)
	}
	for range p.Changes.draw(r) {
		i := r.IntN(max(n, 1))
		change := p.plugin(r, i, n)
		if p.place(change, places); p.Gone.drawBool(r) {
			change = &PluginChange{Socket: change.Socket, Gone: true}
		}
		g.add(g.randomTime(r), change)
	}
}

// plugin draws a plugin with the i-th of n sockets.
func (p *PluginRange) plugin(r *rand.Rand, i, n int) *PluginChange {
	c := &PluginChange{Socket: fmt.Sprintf("driver-%d.sock", i), Type: "CSIPlugin",
		Name:     fmt.Sprintf("driver-%d.test", i),
		Versions: oneOf(r, [][]string{{"1.0.0"}, {"1.0.0"}, {"0.3.0", "1.2.0"}, {"v1.5.0", "2.0.0"}})}
	if i%3 == 2 {
		c.Socket = path.Join("below", c.Socket)
	}
	if r.IntN(2) == 0 {
		c.Endpoint = fmt.Sprintf("/csi/%d/%d.sock", i, r.IntN(100))
	}
	if p.SameAs.drawBool(r) {
		c.Name = fmt.Sprintf("driver-%d.test", r.IntN(n))
	}
	if p.Refused.drawBool(r) {
		c.spoil(r)
	}
	if p.Wrong.drawBool(r) {
		c.Wrong, c.WrongFor = oneOf(r, pluginFaults), r.IntN(5)
	}
	return c
}

// place draws what the driver of a plugin answers of its node.
func (p *PluginRange) place(c *PluginChange, r *rand.Rand) {
	if !p.Placed.drawBool(r) {
		return
	}
	c.Driver = &CSIDriver{}
	if r.IntN(2) == 0 {
		c.Driver.NodeID = oneOf(r, []string{"id-0", "id-1", strings.Repeat("i", 256),
			strings.Repeat("i", 257)})
	}
	c.Driver.Topology = oneOf(r, []map[string]string{nil, {"driver.test/rack": "r0"},
		{"driver.test/rack": "r1"}, {"topology.kubernetes.io/zone": "z0", "driver.test/rack": "r0"},
		{"topology.kubernetes.io/zone": "z1"}, {"driver.test/host": "h0"},
		{"driver.test/host": "h0", "node-restriction.kubernetes.io/rack": "r0"},
		{"rack.kubernetes.io/rack": "r0"}, {"not a label": "r0"}})
}

// spoil makes the answer one that has to be refused.
func (c *PluginChange) spoil(r *rand.Rand) {
	switch r.IntN(3) {
	case 0:
		c.Type = oneOf(r, []string{"", "DevicePlugin", "DRAPlugin", "Toaster"})
	case 1:
		c.Name = oneOf(r, []string{"", "../../etc", "Not A Name", strings.Repeat("long", 5_000)})
	default:
		c.Versions = oneOf(r, [][]string{nil, {"2.0.0"}, {"0.9.0"}, {"one", ""},
			slices.Repeat([]string{"1.0.0"}, 100)})
	}
}

func oneOf[T any](r *rand.Rand, all []T) T { return all[r.IntN(len(all))] }

func (c *PluginChange) validate(*Spec) error {
	switch {
	case c.Socket == "" || path.IsAbs(c.Socket) || path.Clean(c.Socket) != c.Socket ||
		strings.HasPrefix(c.Socket, ".") || len(c.Socket) > 60:
		return fmt.Errorf("socket: want a path of at most 60 bytes in the directory, have %q", c.Socket)
	case c.Wrong != "" && !slices.Contains(pluginFaults, c.Wrong):
		return fmt.Errorf("wrong: want one of %v, have %q", pluginFaults, c.Wrong)
	case c.WrongFor < 0:
		return errors.New("wrongFor: want 0 or more")
	}
	return c.Driver.validate(c)
}

// Length implements Deed.
func (c *PluginChange) Length() Duration {
	if c.Wrong == "" {
		return 0
	}
	return Duration(time.Minute)
}

// PodEntry implements Deed.
func (c *PluginChange) PodEntry() string { return "" }
