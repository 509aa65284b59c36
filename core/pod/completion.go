package pod

import (
	"fmt"
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"seedlet.dev/core/budget"
	"seedlet.dev/core/op"
	"seedlet.dev/core/probe"
	"seedlet.dev/core/userns"
	"seedlet.dev/world"
)

// HandleCompletion handles the completion of one of the pod's operations. A failure arrives as
// ev.Err; a deadline that has passed arrives as an error of KindTimeout. Completions only change
// facts. After a failure the outcome is unknown: all observations are stale until a relist that was
// requested later.
func (p *Pod) HandleCompletion(id world.OpID, r op.Record, ev world.Event, env *Env) {
	switch r.Subject {
	case recordSubject:
		p.handleRecordCompletion(r, ev, env)
		return
	case idsSubject:
		p.handleIDsCompletion(r.Call, ev, env)
		return
	}
	if p.handleStorageCompletion(id, r, ev, env) || p.handleFileCleanup(r, ev, env.Node) {
		return
	}
	switch r.Call {
	case "ListDir":
		p.handleLogList(id, r, ev, env)
	case "ReadTail":
		p.handleMessageRead(r, ev)
	case "MakeLink":
		p.handleLinkCompletion(r, ev)
	case "PodSandboxStatus":
		p.handleSandboxStatus(r, ev)
	case "ContainerStatus":
		p.handleContainerStatus(r, ev, env)
	case "ContainerStats", "UpdateContainerResources", "UpdatePodSandboxResources":
		p.handleResizeCompletion(id, r, ev, env)
	case "SetCgroup", "RemoveCgroup":
		p.handleCgroupCompletion(id, r, ev, env)
	case "ExecSync", "HTTPGet", "TCPConnect", "GRPCCheck":
		p.handleProbeOrHook(r, ev, env)
	case "StopPodSandbox", "RemovePodSandbox":
		p.handleSandboxStopOrRemoval(r, ev, env)
	case "StopContainer", "RemoveContainer":
		p.handleContainerStopOrRemoval(r, ev, env)
	default:
		p.handleCreation(id, r, ev, env)
	}
}

// handleCreation handles the completion of the operation Pod.Op, which creates something or removes
// a directory.
func (p *Pod) handleCreation(id world.OpID, r op.Record, ev world.Event, env *Env) {
	if p.Op != id {
		panic("pod: " + p.FullName() + ": completion of an operation it did not issue: " + r.Call)
	}
	creating := p.Creating
	if ev.Err == nil {
		ev.Err = p.checkCreatedID(ev.Body, env)
	}
	p.Op, p.Creating = 0, nil
	if creating != nil { // the file is that of the run now, or is created again
		p.forgetMessageFiles(creating.Name)
		p.forgetEnvFiles(creating.Name)
	}
	container := p.operationContainer(r)
	if ev.Err != nil {
		p.StaleSince, p.KnownWhole = ev.Time, false
		p.LogsFailed = r.Call == "RemoveTree" && r.Subject == subjectLogs
		if r.Call == "StartContainer" && container == "" {
			return // the container was removed meanwhile: no event is recorded
		}
		p.recordFailureEvent(p.noteFailure(container, r.Call, ev.Err, ev.Time), env)
		return
	}
	p.clearProblems(container, r.Call)
	switch body := ev.Body.(type) {
	case *runtimeapi.RunPodSandboxResponse:
		p.addCreatedSandbox(body.PodSandboxId, r, ev.Time)
	case *runtimeapi.CreateContainerResponse:
		p.addCreatedContainer(body.ContainerId, *creating, r, ev.Time)
		p.recordEvent(env, creating.Name, normal, "Created", "Container created")
	case *runtimeapi.StartContainerResponse:
		if c := p.containerByID(r.Subject); c != nil {
			c.advanceState(Running, ev.Time)
			p.recordEvent(env, c.Name, normal, "Started", "Container started")
		}
	case *world.Done:
		p.handleDirCompletion(r)
	}
}

// splitSubject splits the subject of an operation on a container into the container's ID and the
// name of the probe or hook.
func splitSubject(subject string) (id, name string) {
	id, name, _ = strings.Cut(subject, " ")
	return id, name
}

// operationContainer returns the name of the container that a creating operation is about; empty if
// the operation is about the pod.
func (p *Pod) operationContainer(r op.Record) string {
	switch r.Call {
	case "StartContainer":
		if c := p.containerByID(r.Subject); c != nil {
			return c.Name
		}
	case "CreateContainer", "MakeDir", "WriteFile", "ListDir":
		name, _, _ := strings.Cut(r.Subject, "/")
		return name
	}
	return ""
}

func (p *Pod) handleDirCompletion(r op.Record) {
	switch {
	case r.Call == "SetCgroup" || r.Call == "RemoveCgroup":
	case r.Call == "MakeDir" && r.Subject == "":
		p.DirCreated = true
	case strings.Contains(r.Subject, "/"):
		p.MessageFiles = append(p.MessageFiles, r.Subject)
	case r.Call == "MakeDir":
		p.LogDirs = append(p.LogDirs, r.Subject)
	case r.Subject == subjectLogs:
		p.LogsRemoved = true
	default:
		p.DirRemoved = true
		p.Record.forgetIDs()
	}
}

// checkCreatedID returns an error if the runtime has answered a creation with the ID of another
// object. What it has created is then unknown until the next relist.
func (p *Pod) checkCreatedID(body any, env *Env) *world.Error {
	var id, call string
	ownNew := false // a relist may already have added the object
	switch body := body.(type) {
	case *runtimeapi.RunPodSandboxResponse:
		id, call = body.PodSandboxId, "RunPodSandbox"
		s := p.sandboxByID(id)
		ownNew = s != nil && s.Attempt == p.SandboxAttempt
	case *runtimeapi.CreateContainerResponse:
		id, call = body.ContainerId, "CreateContainer"
		c := p.containerByID(id)
		ownNew = c != nil && c.Name == p.Creating.Name && c.Attempt == p.Creating.Attempt
	default:
		return nil
	}
	owner := env.ObjectOwner(id)
	if p.HasObject(id) {
		owner = p.UID
	}
	if owner == "" || owner == p.UID && ownNew {
		return nil
	}
	return world.Errorf(world.KindInternal, call, "the runtime has answered with the ID of another "+
		"object: %q is of the pod with the UID %q", id, owner)
}

func (p *Pod) addCreatedSandbox(id string, r op.Record, now time.Time) {
	isFirst := p.SandboxAttempt == 0 && len(p.Containers) == 0
	if p.sandboxByID(id) != nil { // a relist has already added it
		p.KnownWhole = p.KnownWhole || isFirst && len(p.Sandboxes) == 1
		return
	}
	p.KnownWhole = p.KnownWhole || isFirst && len(p.Sandboxes) == 0
	s := Sandbox{ID: id, Attempt: p.SandboxAttempt, Ready: true, CreatedAt: r.IssuedAt, LearnedAt: now,
		IDs: p.IDs}
	if set := p.Cgroup.Applied; set != nil {
		s.Cgroup = set.Cgroup.Path
	}
	p.addSandbox(s)
}

// addCreatedContainer adds a container as it was requested, unless a relist has already added it.
func (p *Pod) addCreatedContainer(id string, created Container, r op.Record, now time.Time) {
	if p.containerByID(id) != nil {
		return
	}
	created.ID, created.CreatedAt, created.LearnedAt = id, r.IssuedAt, now
	p.addContainer(created)
}

// inspectionsMax bounds the ContainerStatus requests of a pod that are in flight at the same time.
const inspectionsMax = 16

// issueInspections issues the requests for details that lists do not have: how a container started
// or exited, its termination message, the IPs of the sandbox.
func (p *Pod) issueInspections(env *Env, w *wakeTimer) {
	p.linkLogs(env, w)
	p.readTerminationMessages(env, w)
	inFlight := 0
	for i := range p.Containers {
		if p.Containers[i].InspectOp != 0 {
			inFlight++
		}
	}
	for i := range p.Containers {
		c := &p.Containers[i]
		if c.InspectOp != 0 || c.State == c.Inspected || c.State == Created ||
			c.State == Unknown || inFlight >= inspectionsMax || w.waitUntil(c.InspectAfter) {
			continue
		}
		inFlight++
		c.InspectOp = env.Effects.Issue(p.Key(), c.ID, env.Node.RuntimeTimeout,
			&runtimeapi.ContainerStatusRequest{ContainerId: c.ID})
	}
	s := p.CurrentSandbox()
	if s == nil || !s.Ready || s.Inspected || s.InspectOp != 0 || w.waitUntil(s.NotBefore) {
		return
	}
	s.InspectOp = env.Effects.Issue(p.Key(), s.ID, env.Node.RuntimeTimeout,
		&runtimeapi.PodSandboxStatusRequest{PodSandboxId: s.ID})
}

// HasUnknownExits reports whether some container has exited and its exit code or termination
// message is not known yet.
func (p *Pod) HasUnknownExits() bool {
	for i := range p.Containers {
		if c := &p.Containers[i]; c.State == Exited && !c.HasKnownExit() {
			return true
		}
	}
	return false
}

// HasUnknownRuns reports whether some container runs of which nothing else is known yet. One about
// which the runtime answers again and again with an error does not count: the other containers of
// the pod have a status without it, where a kubelet waits for it (pod_workers.go, FailedSync).
func (p *Pod) HasUnknownRuns() bool {
	for i := range p.Containers {
		if c := &p.Containers[i]; c.State == Running && c.Inspected == "" &&
			c.InspectFailures < inspectionsAwaited {
			return true
		}
	}
	return false
}

// inspectionsAwaited is how many inspections of a running container may fail before the status of
// its pod is reported without their result.
const inspectionsAwaited = 4

// handleSandboxStatus handles the details of a sandbox. One that is not ready any more keeps its
// IPs. A ready sandbox without an IP is useless, unless the pod has the node's network.
func (p *Pod) handleSandboxStatus(r op.Record, ev world.Event) {
	s := p.sandboxByID(r.Subject)
	if s == nil {
		return
	}
	s.InspectOp = 0
	if ev.Err != nil {
		s.NotBefore = ev.Time.Add(failureBackoffInitial)
		return // if the sandbox was removed, a relist drops it
	}
	status := ev.Body.(*runtimeapi.PodSandboxStatusResponse).GetStatus()
	s.Inspected = true
	// The runtime's word counts: the annotation of a kubelet's sandbox is the pod's own claim.
	users := status.GetLinux().GetNamespaces().GetOptions().GetUsernsOptions()
	if users != nil {
		s.IDs = userns.FromUserNamespace(users)
	}
	if status.GetState() != runtimeapi.PodSandboxState_SANDBOX_READY {
		p.loseSandbox(s, ev.Time)
		return
	}
	s.IPs = ipsFromRuntime(status.GetNetwork())
	s.LacksIP = status.GetNetwork() != nil && status.GetNetwork().GetIp() == ""
	if p.needsIP() && s.LacksIP {
		p.noteFailure("", callInspectSandbox, world.Errorf(world.KindInternal, callInspectSandbox,
			"the sandbox has no IP address"), ev.Time)
	} else {
		p.clearProblems("", callInspectSandbox)
	}
}

// handleContainerStatus handles the details of a container. The first failure is retried soon and
// further ones later, until a relist drops the container (upstream #24819).
func (p *Pod) handleContainerStatus(r op.Record, ev world.Event, env *Env) {
	c := p.containerByID(r.Subject)
	if c == nil {
		return
	}
	c.InspectOp = 0
	if ev.Err != nil {
		c.InspectFailures++
		c.InspectAfter = ev.Time.Add(failureBackoff(c.InspectFailures))
		return
	}
	status := ev.Body.(*runtimeapi.ContainerStatusResponse).GetStatus()
	state := stateFromRuntime(status.GetState())
	if state.order() < c.State.order() {
		c.InspectFailures++
		c.InspectAfter = ev.Time.Add(failureBackoff(c.InspectFailures))
		return // the status is older than the known state, or the runtime contradicts itself
	}
	c.InspectFailures = 0
	c.advanceState(state, ev.Time)
	if c.Inspected = state; state == Running {
		c.noteRunningAt(r.IssuedAt)
	}
	c.Image = budget.Cut(status.GetImage().GetImage(), budget.ImageReferenceMax)
	c.ImageID = budget.IdentifierWithin(status.GetImageRef(), budget.ImageReferenceMax)
	c.CreatedAt = timeFromNanos(status.GetCreatedAt())
	c.StartedAt = timeFromNanos(status.GetStartedAt())
	c.FinishedAt = timeFromNanos(status.GetFinishedAt())
	c.ExitCode, c.Reason = status.GetExitCode(), budget.Cut(status.GetReason(), budget.ReasonMax)
	c.Message = budget.CutMessage(status.GetMessage())
	c.MountedImages = mountedImages(status)
	c.setUser(status.GetUser().GetLinux())
	c.Actuation.Reported = reportedAmounts(status.GetResources().GetLinux())
	if state == Exited {
		p.locateTerminationMessage(c, status, env.Node)
		p.recordBackoffEvent(c, env)
	}
}

// mountedImages returns the images that a container mounts, as the runtime has reported them.
func mountedImages(status *runtimeapi.ContainerStatus) (refs []string) {
	for _, m := range status.GetMounts() {
		ref := m.GetImage().GetImage()
		if ref != "" && len(ref) <= budget.ImageReferenceMax && len(refs) < budget.ImagesMax &&
			!slices.Contains(refs, ref) {
			refs = append(refs, ref)
		}
	}
	return refs
}

// setUser sets the user of the container's first process, as the runtime has reported it. The
// groups that an image has for its user may be any number.
func (c *Container) setUser(user *runtimeapi.LinuxContainerUser) {
	if user == nil {
		return
	}
	groups := user.SupplementalGroups
	if len(groups) > budget.ContainerGroupsMax {
		groups = slices.Clone(groups[:budget.ContainerGroupsMax])
	}
	c.User = &v1.ContainerUser{Linux: &v1.LinuxContainerUser{
		UID: user.Uid, GID: user.Gid, SupplementalGroups: groups,
	}}
}

// handleProbeOrHook handles the completion of a probe or a lifecycle hook.
func (p *Pod) handleProbeOrHook(r op.Record, ev world.Event, env *Env) {
	id, name := splitSubject(r.Subject)
	c := p.containerByID(id)
	if c == nil {
		return
	}
	switch name {
	case postStart, preStop:
		p.handleHookCompletion(c, name, r, ev, env)
	default:
		p.handleProbeResult(c, probe.Kind(name), r, ev, env)
	}
}

// handleSandboxStopOrRemoval handles the completion of StopPodSandbox or RemovePodSandbox. A
// sandbox that no longer exists counts as success (upstream #106734).
func (p *Pod) handleSandboxStopOrRemoval(r op.Record, ev world.Event, env *Env) {
	s := p.sandboxByID(r.Subject)
	if s == nil {
		return
	}
	s.Op = 0
	if ev.Err != nil && !ev.Err.Has(world.KindNotFound) {
		s.Failures++
		if r.Call == "RemovePodSandbox" && !r.Refused {
			s.Removal.Note(ev.Time, fmt.Sprintf("failed to remove sandbox %q: %s", s.ID,
				budget.CutMessage(ev.Err.Message)))
		}
		p.reportStopOrRemovalFailure(r, ev, env)
		s.NotBefore = ev.Time.Add(failureBackoffInitial)
		if r.Call == "RemovePodSandbox" { // nothing waits for a removal, unlike a stop
			s.NotBefore = ev.Time.Add(failureBackoff(s.Failures))
		}
		return
	}
	s.Failures = 0
	if r.Call == "RemovePodSandbox" {
		p.LastRemoval = ev.Time
		p.dropSandbox(s.ID)
		return
	}
	s.Ready, s.Stopped = false, true
	p.awaitRelist(ev.Time) // a start of unknown outcome may have taken effect
}

// handleContainerStopOrRemoval handles the completion of StopContainer or RemoveContainer. After a
// failure or a timeout the operation is issued again when its back-off has passed, unless a relist
// shows before that the container has exited or was removed. A container that no longer exists
// counts as removed.
func (p *Pod) handleContainerStopOrRemoval(r op.Record, ev world.Event, env *Env) {
	c := p.containerByID(r.Subject)
	if c == nil {
		return
	}
	c.Op = 0
	if ev.Err != nil && !ev.Err.Has(world.KindNotFound) {
		c.Failures++
		if r.Call == "RemoveContainer" && !r.Refused {
			c.Removal.Note(ev.Time, fmt.Sprintf("failed to remove container %q: %s", c.ID,
				budget.CutMessage(ev.Err.Message)))
		}
		p.reportStopOrRemovalFailure(r, ev, env)
		c.NotBefore = ev.Time.Add(failureBackoff(c.Failures))
		return
	}
	c.Failures = 0
	if r.Call == "StopContainer" && ev.Err != nil {
		p.StaleSince = ev.Time // or a runtime that loses what it creates would be busy with new runs
	}
	if r.Call == "RemoveContainer" || ev.Err != nil {
		p.LastRemoval = ev.Time
		p.dropContainer(c.ID)
		return
	}
	c.advanceState(Exited, ev.Time)
}

// reportStopOrRemovalFailure marks all observations as stale, and records an event or logs the
// failure.
func (p *Pod) reportStopOrRemovalFailure(r op.Record, ev world.Event, env *Env) {
	p.StaleSince = ev.Time
	stops := r.Call == "StopContainer" || r.Call == "StopPodSandbox"
	if stops && p.Stage != Syncing {
		p.recordEvent(env, "", warning, "FailedKillPod", "error killing pod: %s", ev.Err.Message)
		return
	}
	env.Effects.Log(world.LevelWarning, "operation failed", "pod", p.FullName(), "call", r.Call,
		"id", r.Subject, "err", ev.Err.Error())
}

// timeFromNanos converts a timestamp of the runtime; the zero time if the runtime has none.
func timeFromNanos(n int64) time.Time {
	if n <= 0 {
		return time.Time{}
	}
	return time.Unix(0, n).UTC()
}
