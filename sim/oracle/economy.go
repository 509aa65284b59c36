package oracle

import (
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"

	"seedlet.dev/sim/truth"
	"seedlet.dev/world"
)

// economy fires when the agent writes what is there already, to a file, a cgroup or the API server,
// and when it calls a port for anything but its periodic checks although nothing has changed for a
// while. The second is checked once the faults have healed.
//
// Three writes have to be made even if they change nothing. Each agent, and each sandbox, has the
// limits of the pod's cgroup written: an agent that was killed may have left them half written.
// Each agent writes a pod's /etc/hosts before the first container that it creates: the file is not
// synced. Each run has its file of the termination message emptied: an earlier run may have had
// the same number.
type economy struct {
	// writtenAt is when any client latest changed a file, cgroup or object, or the agent wrote it
	// because it had to.
	writtenAt        map[string]time.Time
	sandboxChangedAt map[string]time.Time // by UID of the pod
	repeatedFor      map[string]time.Time // by cgroup: the change for which it was written again
}

func (*economy) describe() Entry {
	return Entry{"economy", "The agent writes nothing that is there already, and while nothing " +
		"changes it makes only its periodic calls."}
}

const (
	// quietBound is how long after the last change the agent may still react to it.
	quietBound = 30 * time.Second
	// housekeepingBound is the same for removals: housekeeping looks for what is left every minute.
	housekeepingBound = 2 * time.Minute
	// callBound is how long a call that was issued before the faults healed may still take.
	callBound = 2 * time.Minute
	// overtakingBound is how long after a change a write may still be one from before it.
	overtakingBound = 5 * time.Second
)

// periodicCalls are those that the agent makes while nothing changes: lists of what exists, reads
// and measurements, probes, the heartbeats, the renewal of tokens, and the watches and streams that
// are opened again.
var periodicCalls = []string{
	"ListPodSandbox", "ListContainers", "ListImages", "GetEvents", "Status", "Version",
	"RuntimeConfig", "ReadFiles", "ListDir", "StatPath", "ReadLinks", "MeasureTree",
	"FetchManifest", "ListCgroups", "ReadMachine",
	"ExecSync", "HTTPGet", "TCPConnect", "GRPCCheck",
	"GetObject", "UpdateObject", "CreateToken", "WatchObjects", "Watch",
}

// writeCalls are the calls by which the agent writes to files, cgroups and the API server.
var writeCalls = []string{"WriteFile", "SetCgroup", "PatchObject", "UpdateObject", "CreateObject",
	"ObjectChanged", "WatchObjects", "GetObject", "ReadFiles"}

func (o *economy) checkFact(m *model, f *truth.Fact) *finding {
	switch f.Kind {
	case truth.ObjectCreated, truth.ObjectUpdated, truth.ObjectDeleted:
		o.note(string(f.Write.Resource)+" "+f.Write.Namespace+"/"+f.Write.Name, f.Time)
	case truth.PathWritten, truth.CgroupCreated:
		if !m.isUnchanged(f) {
			o.note(f.Path, f.Time)
		}
	case truth.PowerLost:
		clear(o.writtenAt)
	case truth.SandboxCreated, truth.SandboxStopped, truth.SandboxRemoved:
		if o.sandboxChangedAt == nil {
			o.sandboxChangedAt = map[string]time.Time{}
		}
		o.sandboxChangedAt[f.PodUID] = f.Time
	case truth.WroteNothing:
		switch {
		case o.mustBeRepeated(m, f.Path):
			o.note(f.Path, f.Time) // it has been repeated now
		case f.Time.Sub(o.writtenAt[f.Path]) > overtakingBound &&
			!m.anyFaultPossible(f.Time.Add(-reconnectBound), f.Time, writeCalls...):
			return findingf("the agent wrote %s, which was like that already", f.Path)
		}
	}
	return nil
}

// mustBeRepeated reports whether a file or cgroup has to be written again whatever it holds.
func (o *economy) mustBeRepeated(m *model, path string) bool {
	if uid, below := childName(m.opts.PodsDir, path); below {
		dir := m.opts.PodsDir + "/" + uid
		return isWithin(path, dir+"/containers") ||
			path == dir+"/etc-hosts" && m.agentStartedAt.After(o.writtenAt[path])
	}
	written, isCgroup := o.writtenAt[path], m.cgroups[path] != truth.Limits{}
	if !isCgroup {
		return false
	}
	for _, p := range m.podsInOrder {
		isOfPod := strings.Contains(path, p.uid) ||
			strings.Contains(path, strings.ReplaceAll(p.uid, "-", "_"))
		changed := o.sandboxChangedAt[p.uid]
		if !isOfPod || changed.IsZero() || changed.Equal(o.repeatedFor[path]) {
			continue
		}
		if changed.After(written) || // or noticed late
			m.anyFaultPossible(changed, m.now, "ListPodSandbox", "ListContainers") {
			if o.repeatedFor == nil {
				o.repeatedFor = map[string]time.Time{}
			}
			o.repeatedFor[path] = changed
			return true
		}
	}
	return m.agentStartedAt.After(written)
}

func (o *economy) note(path string, now time.Time) {
	if o.writtenAt == nil {
		o.writtenAt = map[string]time.Time{}
	}
	o.writtenAt[path] = now
}

// Called reports that the agent has called a port with a request. It judges only runs that stay
// quiet for longer than quietBound (plan.Spec.Quiet).
func (s *Set) Called(now time.Time, request any) {
	call := world.CallName(request)
	m, bound := s.model, quietBound
	m.now = now
	s.checkSetAside(now, request)
	if call == "RemoveTree" {
		bound = housekeepingBound
	}
	switch {
	case m.healedAt.IsZero() || m.agentDown || isPeriodic(call, request):
	case now.Sub(later(m.changedAt, m.agentStartedAt)) <= bound,
		now.Sub(m.healedAt) <= callBound:
	case m.hasWork(now), call == "PatchObject" && len(m.unsettledObjects(now)) > 0:
	default:
		s.report(&economy{}, findingf("%s was called, although nothing has changed for %v", call,
			now.Sub(m.changedAt).Round(time.Second)), now)
	}
}

// isPeriodic reports whether the agent may make a request while nothing changes. It patches the
// status of the Node now and then even without a change (nodeStatusReportFrequency).
func isPeriodic(call string, request any) bool {
	patch, isPatch := request.(*world.PatchObject)
	return slices.Contains(periodicCalls, call) ||
		isPatch && patch.Resource == world.ResourceNodes
}

// hasWork reports whether the agent still has to start something: a container that has not run
// yet, since its image cannot be pulled for example, or the next run of one that has exited.
// Hostile pods are never done.
func (m *model) hasWork(now time.Time) bool {
	return slices.ContainsFunc(m.podsInOrder, func(p *pod) bool {
		if p.spec == nil {
			return len(p.leftovers()) > 0 // what cannot be removed is tried again
		}
		return p.isHostile() || p.runtimeProblem(now) != "" || !p.mustBeTerminal() &&
			(p.hasWaitingContainer() || slices.ContainsFunc(p.containers, p.mustRunAgain))
	})
}

// hasWaitingContainer reports whether a container has not run yet.
func (p *pod) hasWaitingContainer() bool {
	for _, list := range [][]v1.Container{p.spec.Spec.InitContainers, p.spec.Spec.Containers} {
		for i := range list {
			if p.newestRun(list[i].Name) == nil {
				return true
			}
		}
	}
	return false
}

// mustRunAgain reports whether a container has exited whose next run is due or in back-off. An init
// container that has succeeded is done, whatever the restart policy.
func (p *pod) mustRunAgain(c *container) bool {
	isDone := c.exitCode == 0 && p.isInitContainer(c.name) && p.sidecarPosition(c.name) == 0
	return c.state == exited && !isDone && !p.isFinalRun(c) && c == p.newestRun(c.name)
}

// isUnchanged reports whether a file or cgroup was written as it was. The fact WroteNothing comes
// just before that of the write.
func (m *model) isUnchanged(f *truth.Fact) bool {
	return (f.Kind == truth.PathWritten || f.Kind == truth.CgroupCreated) &&
		f.Path == m.wroteNothing && f.Time.Equal(m.wroteNothingAt)
}

// isChange reports whether the agent may have to react to a fact. It does not have to react to its
// own heartbeats, to what it wrote without a change, and to successful probes.
func (m *model) isChange(f *truth.Fact) bool {
	if m.isUnchanged(f) {
		return false
	}
	switch f.Kind {
	case truth.HandlerRequested, truth.WroteNothing:
		return false
	case truth.HandlerEnded:
		return f.Reply.Class() != truth.ReplySuccess
	case truth.ObjectUpdated:
		return f.Write.Incarnation == 0 || f.Write.Resource == "pods"
	}
	return true
}
