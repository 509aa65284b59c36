package plan

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
)

// CSIDriver is the node service of a plugin that is a CSI driver. Its name and its endpoint are
// those that the plugin answers.
type CSIDriver struct {
	NodeID     string            `json:"nodeID,omitempty"` // empty: the name of the node
	VolumesMax int64             `json:"volumesMax,omitempty"`
	Topology   map[string]string `json:"topology,omitempty"`
	// VolumesThen is the number of volumes from LimitAt on; no time: it never changes.
	VolumesThen int64    `json:"volumesThen,omitempty"`
	LimitAt     Duration `json:"limitAt,omitempty"`

	NoStage     bool `json:"noStage,omitempty"`     // without STAGE_UNSTAGE_VOLUME
	MultiWriter bool `json:"multiWriter,omitempty"` // with SINGLE_NODE_MULTI_WRITER
	MountGroup  bool `json:"mountGroup,omitempty"`  // with VOLUME_MOUNT_GROUP
	NoExpand    bool `json:"noExpand,omitempty"`    // without EXPAND_VOLUME
	NoStats     bool `json:"noStats,omitempty"`     // without GET_VOLUME_STATS
	Condition   bool `json:"condition,omitempty"`   // with VOLUME_CONDITION

	// StageSecret and PublishSecret are whether the volumes that are provisioned name the Secrets
	// StageSecretName and PublishSecretName, with which the driver is to stage and to publish them.
	StageSecret   bool `json:"stageSecret,omitempty"`
	PublishSecret bool `json:"publishSecret,omitempty"`

	// Hangs is for how many calls for volumes the driver does not answer; -1: all.
	Hangs int `json:"hangs,omitempty"`
	// Lies is how many of its first publishes do nothing, and succeed.
	Lies int `json:"lies,omitempty"`
}

// The Secrets that provisioned volumes name, in the namespace default.
const (
	StageSecretName   = "stage-secret"
	PublishSecretName = "publish-secret"
)

// CSIDriverNamed returns what the driver of a name can do when it first starts; nil if the plan has
// none.
func (s *Spec) CSIDriverNamed(name string) *CSIDriver {
	for _, h := range s.Happenings {
		if h.Plugin != nil && h.Plugin.Driver != nil && h.Plugin.Name == name {
			return h.Plugin.Driver
		}
	}
	return nil
}

// HasCSIDriver reports whether a plan has a CSI driver of a name at some time; any, if the name is
// empty.
func (s *Spec) HasCSIDriver(name string) bool {
	return slices.ContainsFunc(s.Happenings, func(h Happening) bool {
		return h.Plugin != nil && h.Plugin.Driver != nil && (name == "" || h.Plugin.Name == name)
	})
}

func (d *CSIDriver) validate(c *PluginChange) error {
	switch {
	case d == nil:
		return nil
	case c.Gone:
		return errors.New("driver: want none, as the plugin is gone")
	case d.VolumesMax < 0, d.VolumesThen < 0:
		return errors.New("driver.volumesMax, driver.volumesThen: want 0 or more")
	case d.LimitAt < 0:
		return fmt.Errorf("driver.limitAt: want 0 or more, have %v", d.LimitAt)
	case d.Lies < 0:
		return fmt.Errorf("driver.lies: want 0 or more, have %d", d.Lies)
	case d.Hangs < -1:
		return fmt.Errorf("driver.hangs: want -1 or more, have %d", d.Hangs)
	}
	return nil
}

// CinderDriver is the driver that has replaced the plugin for volumes of the kind cinder (KEP-625).
const CinderDriver = "cinder.csi.openstack.org"

// CSIRange is which CSI drivers the node has, and what happens to them. A driver is called
// csi-N.test. One that ends or is replaced is there again before the faults heal.
type CSIRange struct {
	Drivers Count `json:"drivers,omitempty"`
	Cinder  bool  `json:"cinder,omitempty"` // CinderDriver is there as well, if others are
	// Hung drivers are there from the start besides the others. They answer no call for a volume
	// before the faults heal, and are called hung-N.test.
	Hung Count `json:"hung,omitempty"`
	Late Share `json:"late,omitempty"` // of drivers that are not there before the agent

	NoStage     Share `json:"noStage,omitempty"` // as in CSIDriver, of drivers
	MultiWriter Share `json:"multiWriter,omitempty"`
	MountGroup  Share `json:"mountGroup,omitempty"`
	NoStats     Share `json:"noStats,omitempty"`

	StageSecret   Share `json:"stageSecret,omitempty"`
	PublishSecret Share `json:"publishSecret,omitempty"`

	Limits Share `json:"limits,omitempty"` // of drivers whose number of volumes changes once

	Restarts Count `json:"restarts,omitempty"` // of a driver's process
	Down     Span  `json:"down,omitempty"`     // until it is there again
	Replaced Share `json:"replaced,omitempty"` // of restarts, by a higher version at other sockets
	Hangs    Share `json:"hangs,omitempty"`    // of starts, after which some calls hang
	Lies     Share `json:"lies,omitempty"`     // of starts, after which a publication does nothing
	Always   bool  `json:"always,omitempty"`   // restarts are in every seed
}

// limitMost is the largest number of volumes that a driver reports, if it changes.
const limitMost = 8

// csiHangsMost and csiLiesMost bound how many calls of a driver hang, or succeed without an effect.
const (
	csiHangsMost = 3
	csiLiesMost  = 2
)

// csiDriverPlan is a driver in the plan under construction.
type csiDriverPlan struct {
	name    string
	is      CSIDriver
	version int
	socket  string   // of the plugin that is there now
	readyAt Duration // from when on something else may happen to it
}

// addCSIDrivers generates the CSI drivers of the node.
func (g *generator) addCSIDrivers() {
	c := &g.scenario.Spec.CSI
	if c.Drivers.Most == 0 {
		return
	}
	r := g.stream("csi drivers")
	abilities, secrets := g.stream("csi abilities"), g.stream("csi secrets")
	limits := g.stream("csi limits")
	var drivers []*csiDriverPlan
	var names []string
	for i := range c.Drivers.draw(r) {
		names = append(names, fmt.Sprintf("csi-%d.test", i))
	}
	if c.Cinder {
		names = append(names, CinderDriver)
	}
	for _, name := range names {
		d := &csiDriverPlan{name: name, is: CSIDriver{
			NoStage: c.NoStage.drawBool(r), MultiWriter: c.MultiWriter.drawBool(r),
			MountGroup: c.MountGroup.drawBool(r), Condition: true,
			NoStats:     c.NoStats.drawBool(abilities),
			StageSecret: c.StageSecret.drawBool(secrets), PublishSecret: c.PublishSecret.drawBool(secrets)}}
		if c.Limits.drawBool(limits) {
			d.is.VolumesMax, d.is.LimitAt = int64(1+limits.IntN(limitMost)), g.randomTime(limits)
			d.is.VolumesThen = 1 + (d.is.VolumesMax+limits.Int64N(limitMost-1))%limitMost
		}
		drivers = append(drivers, d)
		at := Duration(0)
		if c.Late.drawBool(r) {
			at = g.randomTime(r) / 4
		}
		g.startDriver(d, at, c, r)
	}
	g.addHungDrivers(c)
	r = g.stream("csi restarts")
	var times []Duration
	for range g.occurrences("csi restarts", c.Restarts, c.Always) {
		times = append(times, g.randomTime(r))
	}
	slices.Sort(times)
	for _, at := range times {
		if len(drivers) > 0 {
			g.restartDriver(drivers[r.IntN(len(drivers))], at, c, r)
		}
	}
}

// addHungDrivers generates the drivers that do not answer.
func (g *generator) addHungDrivers(c *CSIRange) {
	if c.Hung.Most == 0 {
		return
	}
	r := g.stream("csi hung drivers")
	for i := range c.Hung.draw(r) {
		d := &csiDriverPlan{name: fmt.Sprintf("hung-%d.test", i), is: CSIDriver{Hangs: -1,
			NoStage: c.NoStage.drawBool(r)}}
		g.startDriver(d, 0, &CSIRange{}, r)
	}
}

// startDriver adds the start of a driver, at a socket of its version.
func (g *generator) startDriver(d *csiDriverPlan, at Duration, c *CSIRange, r *rand.Rand) {
	is := d.is
	if c.Hangs.drawBool(r) {
		is.Hangs = 1 + r.IntN(csiHangsMost)
	}
	if c.Lies.drawBool(r) {
		is.Lies = 1 + r.IntN(csiLiesMost)
	}
	d.socket = fmt.Sprintf("%s-%d-reg.sock", d.name, d.version)
	d.readyAt = at + 1
	g.add(at, &PluginChange{Socket: d.socket, Type: "CSIPlugin", Name: d.name,
		Endpoint: fmt.Sprintf("%s/plugins/%s/csi-%d.sock", RootDir, d.name, d.version),
		Versions: []string{fmt.Sprintf("1.%d.0", d.version)}, Driver: &is})
}

// restartDriver adds the end of a driver and its next start, or its replacement.
func (g *generator) restartDriver(d *csiDriverPlan, at Duration, c *CSIRange, r *rand.Rand) {
	down, isReplaced := Duration(c.Down.draw(r)), c.Replaced.drawBool(r)
	at = max(at, d.readyAt)
	back := min(at+down, g.plan.Spec.Duration)
	if at >= back {
		return
	}
	gone := &PluginChange{Socket: d.socket, Gone: true}
	if isReplaced { // the new one is there before the old one goes
		d.version++
		g.startDriver(d, at, c, r)
		g.add(back, gone)
		d.readyAt = back + 1
		return
	}
	g.add(at, gone)
	g.startDriver(d, back, c, r)
}
