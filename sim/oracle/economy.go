package oracle

import (
	"path"
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"seedlet.dev/sim/truth"
	"seedlet.dev/world"
)

// economy fires when the agent writes what is there already, to a file, a cgroup or the API server,
// and when it calls a port for anything but its periodic checks although nothing has changed for a
// while. The second is checked once the faults have healed.
//
// Four writes have to be made even if they change nothing. Each agent, and each sandbox, has the
// limits of the pod's cgroup written: an agent that was killed may have left them half written.
// Each agent writes a pod's /etc/hosts before the first container that it creates in a sandbox: the
// file is not synced, and an earlier sandbox may have been removed with it. Each run
// has its file of the termination message emptied: an earlier run may have had the same number.
// Each agent writes what a CSI volume is before it has it staged or published: it cannot know that
// the file is durable.
type economy struct {
	// writtenAt is when any client latest changed a file, cgroup or object, or the agent wrote it
	// because it had to.
	writtenAt        map[string]time.Time
	sandboxChangedAt map[string]time.Time // by UID of the pod
	sandboxLostAt    map[string]time.Time // by UID of the pod
	repeatedFor      map[string]time.Time // by cgroup: the change for which it was written again
}

func (*economy) describe() Entry {
	return Entry{"economy", "The agent writes nothing that is there already, and while nothing " +
		"changes it makes only its periodic calls, each no earlier than its period allows."}
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
// and measurements, probes, the renewal of tokens, and the watches and streams that are opened
// again. isPeriodic has the others, and periodOf how often some of them are due.
var periodicCalls = []string{
	"ListPodSandbox", "ListContainers", "ListImages", "GetEvents", "Status", "Version",
	"RuntimeConfig", "ReadFiles", "ListDir", "StatPath", "ReadLinks", "MeasureTree",
	"FetchManifest", "ListCgroups", "ReadMachine", "MeasureNode", "MeasureTrees", "MeasureFiles",
	"MeasureFilesystem", "MeasureDevice", "ImageFsInfo", "GetVolumeStats", "GetCSINodeInfo",
	"ListMounts", "ExecSync", "HTTPGet", "TCPConnect", "GRPCCheck",
	"CreateToken", "WatchObjects", "Watch",
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
			o.sandboxChangedAt, o.sandboxLostAt = map[string]time.Time{}, map[string]time.Time{}
		}
		o.sandboxChangedAt[f.PodUID] = f.Time
		if f.Kind == truth.SandboxCreated {
			delete(o.sandboxLostAt, f.PodUID)
		} else {
			o.sandboxLostAt[f.PodUID] = f.Time
		}
	case truth.WroteNothing:
		switch {
		case o.mustBeRepeated(m, f.Path), o.mayBeUnknown(m, f.Path):
			o.note(f.Path, f.Time) // it has been repeated now
		case f.Time.Sub(o.writtenAt[f.Path]) > overtakingBound &&
			!m.anyFaultPossible(f.Time.Add(-reconnectBound), f.Time, writeCalls...):
			return findingf("the agent wrote %s, which was like that already", f.Path)
		}
	}
	return nil
}

// mayBeUnknown reports whether the agent may not know that its latest write has been done. It may
// be long until it tries again: what it does next may wait for a list that is slow.
func (o *economy) mayBeUnknown(m *model, path string) bool {
	written := o.writtenAt[path]
	return !written.IsZero() && m.anyFaultPossible(written, written.Add(time.Second), writeCalls...)
}

// mustBeRepeated reports whether a file or cgroup has to be written again whatever it holds.
func (o *economy) mustBeRepeated(m *model, path string) bool {
	if dir, found := strings.CutSuffix(path, "/vol_data.json"); found {
		// An agent takes over volumes of earlier ones, and repeats all of a call after its opposite.
		return later(m.agentStartedAt, m.csi.releasedAt[dir]).After(o.writtenAt[path])
	}
	if m.isInDisks(path) { // the same of disks
		return m.agentStartedAt.After(o.writtenAt[path])
	}
	if uid, below := childName(m.opts.PodsDir, path); below {
		dir := m.opts.PodsDir + "/" + uid
		return isWithin(path, dir+"/containers") ||
			path == dir+"/etc-hosts" && (m.agentStartedAt.After(o.writtenAt[path]) ||
				o.sandboxChangedAt[uid].After(o.writtenAt[path]))
	}
	written, isCgroup := o.writtenAt[path], m.cgroups[path] != truth.Limits{}
	switch {
	case !isCgroup:
		return false
	case m.agentStartedAt.After(written):
		return true // beside what it writes for the next sandbox
	}
	for _, p := range m.podsInOrder {
		isOfPod := strings.Contains(path, p.uid) ||
			strings.Contains(path, strings.ReplaceAll(p.uid, "-", "_"))
		changed := o.sandboxChangedAt[p.uid]
		if !isOfPod || changed.IsZero() || changed.Equal(o.repeatedFor[path]) {
			continue
		}
		wasLost := o.sandboxLostAt[p.uid].Add(lossNoticeBound).After(written) // and it was noticed later
		if changed.After(written) || wasLost ||
			m.anyFaultPossible(changed, m.now, "ListPodSandbox", "ListContainers", "ContainerStatus") {
			if o.repeatedFor == nil {
				o.repeatedFor = map[string]time.Time{}
			}
			o.repeatedFor[path] = changed
			return true
		}
	}
	return false
}

// lossNoticeBound is how long the agent may not know that a sandbox was lost, without a fault.
const lossNoticeBound = 3 * time.Second

func (o *economy) note(path string, now time.Time) {
	if o.writtenAt == nil {
		o.writtenAt = map[string]time.Time{}
	}
	o.writtenAt[path] = now
}

// Called reports that the agent has called a port with a request. It judges only runs that stay
// quiet for longer than quietBound (plan.Spec.Quiet). A request about one pod is judged by what has
// happened to that pod and to what all pods share; another pod does not excuse it.
func (s *Set) Called(now time.Time, request any) {
	call := world.CallName(request)
	m, bound := s.model, quietBound
	m.now = now
	if s.checkPluginRequest(now, request) {
		return
	}
	m.objects.noteStatusWrite(now, request)
	m.noteCreate(now, request)
	m.images.noteAsked(request)
	m.disks.noteSearch(now, request)
	if f := m.checkConditions(now, request); f != nil {
		s.report(&nodePressure{}, f, now)
	}
	s.checkSetAside(now, request)
	if call == "RemoveImage" {
		if m.imageRemovalAskedAt = now; m.opts.ImageGC.AgeMax > 0 {
			return // the age of an image is a reason, which the oracle image-gc judges
		}
		bound = imageGCPeriod + imageGCBound // an image that has become unused waits for the next round
	}
	if r, isRemoval := request.(*world.RemoveTree); isRemoval {
		switch dir := path.Dir(r.Path); {
		case strings.HasSuffix(dir, "/image_manager/pulled"):
			return // the record of an image that the runtime has not listed for an hour
		case strings.HasSuffix(dir, "/image_manager/pulling"):
			bound = imageGCPeriod + imageGCBound // what a pull has brought, the next list of images says
		default:
			bound = housekeepingBound
		}
	}
	if m.healedAt.IsZero() || m.agentDown {
		return
	}
	if m.isOfRegistration(request, now) || s.checkCertificateCall(now, request) {
		return
	}
	if m.isPeriodic(call, request) {
		if f := m.checkPeriod(now, request); f != nil {
			s.report(&economy{}, f, now)
		}
		return
	}
	changedAt, pods, about := m.changedAt, m.podsInOrder, ""
	if p := m.podOfCall(request); p != nil {
		changedAt, pods, about = p.reactsTo(), p.fullName.pods, " for pod "+p.String()
	}
	switch {
	case now.Sub(later(changedAt, m.agentStartedAt)) <= bound,
		now.Sub(later(m.healedAt, m.lastFault(now))) <= callBound:
	case call == "ContainerStats" && slices.ContainsFunc(pods, (*pod).isResizing):
		// A resize waits until a container uses less memory.
	case call == "PatchObject" && slices.ContainsFunc(pods, (*pod).awaitsResize) &&
		now.Sub(later(m.pressure.flippedAt, m.changedAt)) <= quietBound:
		// A condition of the node has ended for which a resize was deferred, or another pod has: the
		// message says what the others use.
	case call == "SetCgroup" && slices.ContainsFunc(pods, (*pod).awaitsLessMemory):
	case call == "ContainerStatus" && slices.ContainsFunc(pods, (*pod).wasChanged) &&
		now.Sub(later(changedAt, m.agentStartedAt)) <= resizeVerifyBound:
	case call == "GetObject" && m.mayRepeatPublication(now, request):
	case m.detachesDisk(now, request):
	case slices.ContainsFunc(pods, (*pod).hasWork),
		m.patchesUnsettled(now, request), m.rotatesFullLog(request), m.isOfExpansion(request):
	default:
		s.report(&economy{}, findingf("%s was called%s, although nothing has changed for %v", call,
			about, now.Sub(changedAt).Round(time.Second)), now)
	}
}

// mayRepeatPublication reports whether a request reads an attachment before its volume is published
// again whose last publication had no answer: that takes a period after the end of the call.
func (m *model) mayRepeatPublication(now time.Time, request any) bool {
	get, isGet := request.(*world.GetObject)
	return isGet && get.Resource == world.ResourceAttachments &&
		now.Sub(later(m.healedAt, m.lastFault(now))) <= 2*callBound && m.republishes()
}

// republishes reports whether a driver wants its volumes to be published again from time to time.
func (m *model) republishes() bool {
	for _, d := range m.csi.drivers { //ordered: any
		if requiresRepublish(d) {
			return true
		}
	}
	return false
}

// rotatesFullLog reports whether a request rotates a log that has grown too large, or compresses
// the one before it: processes write to their logs all the time.
func (m *model) rotatesFullLog(request any) bool {
	var log string
	switch r := request.(type) {
	case *world.Rename:
		log = r.From
	case *world.Compress:
		log = rotatedFrom(r.Path)
	case *world.RemoveTree: // the oldest one
		log = rotatedFrom(r.Path)
	}
	if m.opts.ListFiles == nil || !isWithin(log, m.opts.LogsDir) {
		return false
	}
	for f := range m.opts.ListFiles(path.Dir(log)) {
		if f.Name == path.Base(log) {
			return f.Size >= m.opts.LogBytesMax
		}
	}
	return false
}

// rotatedFrom returns the path of the log that was renamed to another path when it was full.
func rotatedFrom(renamed string) string {
	before, _, _ := strings.Cut(path.Base(renamed), ".log")
	return path.Join(path.Dir(renamed), before+".log")
}

// patchesUnsettled reports whether a request patches a pod whose object is not as it has to be.
func (m *model) patchesUnsettled(now time.Time, request any) bool {
	patch, isPatch := request.(*world.PatchObject)
	if !isPatch || patch.Resource != world.ResourcePods || !m.opts.HasAPIServer {
		return false
	}
	object := m.objects.pods[patch.Namespace+"/"+patch.Name]
	return object != nil && m.objectProblem(now, object) != ""
}

// isPeriodic reports whether the agent may make a request while nothing changes. It writes the
// status of the Node and its lease now and then even without a change (nodeStatusReportFrequency),
// and reads ConfigMaps and Secrets again unless it watches them. Claims and volumes are read again,
// because a node cannot watch them.
func (m *model) isPeriodic(call string, request any) bool {
	if slices.Contains(periodicCalls, call) {
		return true
	}
	if stats, isStats := request.(*runtimeapi.ContainerStatsRequest); isStats {
		c := m.containers[stats.ContainerId]
		return c != nil && slices.ContainsFunc(c.pod.specs, limitsEphemeralStorage) &&
			!c.pod.isResizing()
	}
	if publish, is := request.(*world.PublishVolume); is { // how often is judged by csi-republish
		return requiresRepublish(m.csi.drivers[publish.Driver.Name])
	}
	operation, isOperation := request.(world.ObjectOperation)
	if !isOperation {
		return false
	}
	switch operation.TargetResource() {
	case world.ResourceNodes, world.ResourceLeases:
		return true
	case world.ResourceConfigMaps, world.ResourceSecrets:
		return call == "GetObject" && m.opts.ChangeDetection.Reads
	case world.ResourceClaims, world.ResourceVolumes:
		return call == "GetObject"
	}
	return false
}

// hasWork reports whether the agent still has to start something of the pod: a container that has
// not run yet, since its image cannot be pulled for example, or the next run of one that has
// exited. Hostile pods are never done.
func (p *pod) hasWork() bool {
	if p.spec == nil {
		return len(p.leftovers()) > 0 // what cannot be removed is tried again
	}
	return p.isHostile() || p.runtimeProblem(p.model.now) != "" || !p.mustBeTerminal() &&
		(p.hasWaitingContainer() || slices.ContainsFunc(p.containers, p.mustRunAgain))
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
// own heartbeats, to what it wrote without a change, and to successful probes. That a postStart
// hook has succeeded is recorded and reported.
func (m *model) isChange(f *truth.Fact) bool {
	if m.isUnchanged(f) {
		return false
	}
	switch f.Kind {
	case truth.HandlerRequested, truth.WroteNothing,
		truth.PluginStarted, truth.PluginEnded, truth.PluginAsked, truth.PluginNotified,
		truth.DriverStarted, truth.DriverEnded:
		return false
	case truth.HandlerEnded:
		return f.Reply.Class() != truth.ReplySuccess || m.isOfPostStart(f)
	case truth.ObjectUpdated:
		return f.Write.Incarnation == 0 || f.Write.Resource == "pods"
	}
	return true
}

// noteChange records a fact that the agent may have to react to: for one pod, or for all.
func (m *model) noteChange(f *truth.Fact) {
	m.changedAt = f.Time
	p := m.pods[f.PodUID]
	switch {
	case p != nil:
	case f.Write != nil && f.Write.Resource == world.ResourcePods:
		p = m.newestOfName(f.Write.Namespace + "/" + f.Write.Name)
	case f.Path != "":
		p = m.podOfPath(f.Path)
	}
	if p != nil {
		p.reactAt = f.Time
	} else {
		m.sharedChangedAt = f.Time
	}
}

// reactsTo returns the time of the latest change to which the agent may react by a request about
// the pod: of the pod, of another one of its name, or of what all pods share.
func (p *pod) reactsTo() time.Time {
	at := p.model.sharedChangedAt
	for _, o := range p.fullName.pods {
		at = later(later(at, o.reactAt), later(o.desiredAt, o.removedAt))
	}
	return at
}

// podOfCall returns the pod that a request to any port is about; nil if it is about none, or about
// one that was never named.
func (m *model) podOfCall(request any) *pod {
	p := m.podOfRequest(request)
	switch r := request.(type) {
	case *world.MakeDir:
		p = m.podOfPath(r.Path)
	case *world.WriteFile:
		p = m.podOfPath(r.Path)
	case *world.WriteDir:
		p = m.podOfPath(r.Path)
	case *world.MakeFile:
		p = m.podOfPath(r.Path)
	case *world.RemoveTree:
		p = m.podOfPath(r.Path)
	case *world.ReadTail:
		p = m.podOfPath(r.Path)
	case *world.ShareWithGroup:
		p = m.podOfPath(r.Path)
	case *world.MountMemory:
		p = m.podOfPath(r.Path)
	case *world.Unmount:
		p = m.podOfPath(r.Path)
	case *world.SetCgroup:
		p = m.podOfPath(r.Path)
	case *world.RemoveCgroup:
		p = m.podOfPath(r.Path)
	case *world.Rename:
		p = m.podOfPath(r.To)
	case *world.Compress:
		p = m.podOfPath(r.Path)
	case *world.MakeLink:
		p = m.podOfPath(r.Target) // the log that it links to; its own path has no UID
	case *world.BindSubPath:
		p = m.podOfPath(r.Target)
	case *world.ReadInVolume:
		p = m.podOfPath(r.Root)
	case *world.PatchObject:
		if r.Resource == world.ResourcePods {
			p = m.newestOfName(r.Namespace + "/" + r.Name)
		}
	}
	if p == nil || p.fullName == nil {
		return nil
	}
	return p
}

// podOfPath returns the pod that a file, directory or cgroup belongs to; nil if it is of none.
func (m *model) podOfPath(path string) *pod {
	if uid, ok := childName(m.opts.PodsDir, path); ok {
		return m.pods[uid]
	}
	if name, ok := childName(m.opts.LogsDir, path); ok {
		_, uid, _ := cutLast(name, "_")
		return m.pods[uid]
	}
	if _, uid, ok := cutLast(path, "pod"); ok {
		return m.pods[strings.TrimSuffix(strings.ReplaceAll(uid, "_", "-"), ".slice")]
	}
	return nil
}

// newestOfName returns the pod that had a full name last; nil if none had.
func (m *model) newestOfName(name string) *pod {
	full := m.fullNames[name]
	if full == nil || len(full.pods) == 0 {
		return nil
	}
	return full.pods[len(full.pods)-1]
}
