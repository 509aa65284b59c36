package core

import (
	"time"

	v1 "k8s.io/api/core/v1"

	"seedlet.dev/core/csi"
	nodeobject "seedlet.dev/core/node"
	"seedlet.dev/core/op"
	"seedlet.dev/core/plugins"
	"seedlet.dev/core/scsi"
	"seedlet.dev/core/selinux"
	"seedlet.dev/core/timer"
	"seedlet.dev/core/volumestats"
	"seedlet.dev/world"
)

// Volumes of CSI drivers, and what connects them with plugins, pods and the Node.

// csiEnv returns the input of the plans of drivers and volumes.
func (a *Agent) csiEnv() *csi.Env {
	s := &a.state
	object := a.nodeObject()
	named := a.volumesNamedBy(object)
	return &csi.Env{
		Effects: &a.effects, Objects: &s.Objects, Enqueue: a.queue.enqueue, Object: object,
		IsWriting: s.NodeObject.IsWritingDriver, Named: named,
		SaysInUse: func(name string) bool {
			return named.IsInUse(name) && s.NodeObject.KeepsInUse(v1.UniqueVolumeName(name))
		},
		CleansUp:    a.hasListedEverything() && a.hasListedExistingPods(),
		SELinux:     a.labeling(),
		Count:       a.recordCSIOperation,
		CountLabel:  a.recordLabel,
		IsKnownPod:  a.housekeepingEnv().IsKnownPod,
		EnqueuePod:  a.enqueueKnownPod,
		EnqueuePods: a.enqueuePods,
		ReportsInUse: func() {
			s.NodeObject.CheckStatusNow()
			a.enqueueNode()
		},
		AttachDetach: s.NodeObject.Settings.AttachDetach,
	}
}

// volumesNamedBy returns the volumes that a Node names. They are collected once for each version.
func (a *Agent) volumesNamedBy(object *v1.Node) *csi.NamedVolumes {
	if !a.namedVolumes.IsOf(object) {
		a.namedVolumes = csi.NewNamedVolumes(object)
	}
	return a.namedVolumes
}

// labeling returns with which SELinux labels the node mounts volumes.
func (a *Agent) labeling() selinux.Node {
	m := &a.state.Boot.Machine
	return selinux.Node{Enabled: m.SELinux, FileLabel: m.SELinuxFileLabel,
		AllModes: a.state.CSI.LabelsAllModes}
}

func (a *Agent) enqueueKnownPod(uid string) {
	if a.isKnownPod(uid) {
		a.enqueuePod(uid)
	}
}

// startCSI starts to look for volumes of earlier agents, and to register drivers.
func (a *Agent) startCSI() {
	if a.state.CSI.Enabled {
		a.state.Objects.AddReference(csi.AllDrivers, watchUser, &a.effects)
		a.queue.enqueue(csi.SearchOwner)
		a.queue.enqueue(csi.ObjectOwner)
	}
}

// planCSI plans the plugins, a part of the CSI volumes, or a part of the iSCSI volumes.
func (a *Agent) planCSI(key timer.Key) time.Time {
	if scsi.IsOwner(key) {
		return a.planSCSI(key)
	}
	n, env := &a.state.CSI, a.csiEnv()
	switch key.Component {
	case plugins.Owner.Component:
		return a.state.Plugins.Plan(a.preparePlugin, &a.effects)
	case csi.SearchOwner.Component:
		return n.PlanSearch(env)
	case csi.ObjectOwner.Component:
		return n.PlanObject(env)
	case csi.DriverComponent:
		a.queue.enqueue(plugins.Owner) // it may wait for what the plan decides
		return n.PlanDriver(key.Name, env)
	}
	return n.PlanVolume(key.Name, env)
}

// handleCSICompletion handles the completion of an operation of planCSI, or of planVolumeStats.
func (a *Agent) handleCSICompletion(id world.OpID, r op.Record, ev world.Event) {
	if scsi.IsOwner(r.Owner) {
		a.handleSCSICompletion(id, r, ev)
		return
	}
	n, env := &a.state.CSI, a.csiEnv()
	switch r.Owner.Component {
	case plugins.Owner.Component:
		a.state.Plugins.HandleCompletion(id, r, ev, &a.effects)
		a.observePlugins()
	case volumestats.Component:
		a.handleVolumeStatsCompletion(id, r, ev)
	case csi.SearchOwner.Component:
		n.HandleSearchCompletion(id, ev, env)
	case csi.ObjectOwner.Component:
		n.HandleObjectCompletion(r, ev, env)
		a.queue.enqueue(plugins.Owner)
		if ev.Err.Has(world.KindInvalid) || ev.Err.Has(world.KindRefused) {
			a.enqueueDrivers() // the Node may have to go back to what another plugin has answered
		}
	case csi.DriverComponent:
		n.HandleDriverCompletion(id, r, ev, env)
		a.enqueueDrivers()
	default:
		n.HandleVolumeCompletion(id, r, ev, env)
	}
}

// enqueueDrivers plans what depends on the answers of drivers: the CSINode, the Node, and the
// plugins that wait for both.
func (a *Agent) enqueueDrivers() {
	a.state.NodeObject.CheckDriversNow()
	a.enqueueNode()
	a.queue.enqueue(csi.ObjectOwner)
	a.queue.enqueue(plugins.Owner)
}

// observePlugins applies which plugins of CSI drivers there are.
func (a *Agent) observePlugins() {
	var found []csi.Plugin
	for _, c := range a.state.Plugins.Candidates() {
		if c.Type == world.PluginTypeCSI {
			found = append(found, csiPlugin(c))
		}
	}
	changed := a.state.CSI.ObservePlugins(found, a.state.Plugins.SocketIDs())
	for _, name := range changed {
		a.queue.enqueue(csi.DriverKey(name))
	}
	a.retryVolumes(changed)
	if len(changed) > 0 {
		a.enqueueDrivers()
	}
}

func csiPlugin(c plugins.Candidate) csi.Plugin {
	return csi.Plugin{Name: c.Name, Endpoint: c.Endpoint, Socket: c.Socket,
		Registration: c.Registration, Registered: c.Registered}
}

// preparePlugin reports whether a plugin can be registered, or why it cannot be.
func (a *Agent) preparePlugin(c plugins.Candidate) (ready bool, problem string) {
	if c.Type != world.PluginTypeCSI || !a.state.CSI.Enabled {
		return true, ""
	}
	return a.state.CSI.Registration(csiPlugin(c), a.csiEnv())
}

// retryVolumes plans the volumes of drivers.
func (a *Agent) retryVolumes(drivers []string) {
	for _, name := range a.state.CSI.Retry(drivers) {
		a.queue.enqueue(csi.VolumeKey(name))
	}
}

// updateCSIDrivers applies changed CSIDriver objects, by namespace and name. Volumes of any driver
// may have waited for their list.
func (a *Agent) updateCSIDrivers(body any, changed []string) {
	if _, isList := body.(*world.ObjectsListed); isList {
		for _, name := range a.state.CSI.VolumeNames() {
			a.queue.enqueue(csi.VolumeKey(name))
		}
	}
	drivers := make([]string, len(changed))
	for i, name := range changed {
		drivers[i] = name[1:]
		a.queue.enqueue(csi.DriverKey(drivers[i]))
	}
	a.retryVolumes(drivers)
}

// updateCSIOfNode plans what waits for a change of the Node: volumes for their attachment, plugins
// for labels and annotations.
func (a *Agent) updateCSIOfNode() {
	if !a.state.CSI.Enabled || a.nodeObject() == nil {
		return
	}
	a.queue.enqueue(csi.ObjectOwner)
	a.queue.enqueue(plugins.Owner)
	a.enqueueDisks()
	waiting, unnamed := a.state.CSI.WaitingToAttach(a.csiEnv())
	for _, name := range waiting {
		a.queue.enqueue(csi.VolumeKey(name))
	}
	if unnamed { // callers plan the Node
		a.state.NodeObject.CheckStatusNow()
	}
	for _, name := range a.state.CSI.DriverNames() {
		a.queue.enqueue(csi.DriverKey(name))
	}
}

// addCSIToNode adds to the input of the Node's plan what it reports of volumes and drivers.
func (a *Agent) addCSIToNode(env *nodeobject.Env) {
	if !a.state.CSI.Enabled {
		return
	}
	env.Metadata = a.state.CSI.NodeMetadata
	env.VolumesInUse = a.volumesInUse
}
