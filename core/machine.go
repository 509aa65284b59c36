package core

import (
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"

	nodeobject "seedlet.dev/core/node"
	"seedlet.dev/world"
)

// The machine as the agent observes it, and what depends on it: the Node's status, the resources of
// pods, and the IPs of the node in their statuses.

// handleMachineCompletion handles an observation of the machine. A change is in the Node's status
// at once: pods are scheduled by it.
func (a *Agent) handleMachineCompletion(ev world.Event) {
	s := &a.state
	if read, ok := ev.Body.(*world.MachineRead); ok && ev.Err == nil {
		s.Certificates.Observe(read.Certificates, &a.effects)
		a.queue.enqueue(nodeobject.CertificatesOwner)
	}
	if !s.Machine.HandleCompletion(ev, &s.Boot, &a.effects) {
		return
	}
	a.effects.Log(world.LevelInfo, "the machine has changed", "cpus", s.Boot.CPUs,
		"memoryBytes", s.Boot.MemoryBytes, "addresses", s.Boot.Addresses,
		"nameAddresses", s.Boot.NameAddresses, "rootDirBytes", s.Boot.Machine.RootDirBytes)
	a.applyMachine()
	s.NodeObject.CheckStatusNow()
	a.enqueueNode()
}

// applyMachine sets what pods depend on to the observed machine.
func (a *Agent) applyMachine() {
	s := &a.state
	s.Node.MemoryBytes = s.Boot.MemoryBytes
	allocatable := s.NodeObject.Allocatable(&s.Boot)
	s.Node.Allocatable = map[v1.ResourceName]int64{
		v1.ResourceCPU:              allocatable.Cpu().MilliValue(),
		v1.ResourceMemory:           allocatable.Memory().Value(),
		v1.ResourceEphemeralStorage: allocatable.StorageEphemeral().Value(),
	}
	s.Node.SELinux = s.Boot.Machine.SELinux
	s.Node.ThermalThrottleCPUs = s.Boot.Machine.ThermalThrottleCPUs
	s.PodsMax = s.NodeObject.Settings.PodLimit(s.Boot.CPUs)
	a.applyNodeLimits()
	a.updateHostIPs()
}

// updateHostIPs sets the IPs of the node. The statuses of all pods have them.
func (a *Agent) updateHostIPs() {
	s := &a.state
	ips := s.NodeObject.HostIPs(&s.Boot)
	if slices.Equal(ips, s.Node.IPs) {
		return
	}
	s.Node.IPs = ips
	clear(a.servedPods)
	a.enqueuePods()
}

// handleClockStep records a change of the machine's date. Intervals go on by the agent's clock. The
// lease and the Node's heartbeat are written with the new date at once: other components of the
// cluster compare them with theirs.
func (a *Agent) handleClockStep(step *world.ClockStepped, now time.Time) {
	s := &a.state
	s.Node.Wall.Record(now, step.Offset)
	a.effects.Log(world.LevelWarning, "the date was changed while the agent was running", "offset",
		step.Offset.String())
	if s.HasAPIServer {
		s.Lease.RenewNow()
		s.NodeObject.ReportNow()
		a.enqueueNode()
		for _, uid := range a.podUIDs {
			if a.state.Pods[uid].HasCertificates() {
				a.enqueueKnownPod(uid)
			}
		}
	}
}
