package pod

import (
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"seedlet.dev/core/op"
	"seedlet.dev/core/userns"
	"seedlet.dev/world"
)

// Answered takes the answer to one of the pod's operations, or its failure; a deadline that
// passed arrives as KindTimeout. Answers only change facts. After a failure nothing is assumed:
// what is known is stale until a relist that was asked for later.
func (p *Pod) Answered(id world.OpID, r op.Record, ev world.Event, env *Env) {
	if r.Subject == recordSubject {
		p.recorded(r, ev, env)
		return
	}
	if p.storageAnswered(id, r, ev, env) || p.cleared(r, ev, env.Node) {
		return
	}
	switch r.Call {
	case "ReadTail":
		p.messageRead(r, ev)
	case "MakeLink":
		p.linked(r, ev)
	case "PodSandboxStatus":
		p.sandboxInspected(r, ev)
	case "ContainerStatus":
		p.containerInspected(r, ev, env)
	case "SetCgroup", "RemoveCgroup":
		p.cgroupAnswered(id, r, ev, env)
	case "ExecSync", "HTTPGet", "TCPConnect", "GRPCCheck":
		p.told(r, ev, env)
	case "StopPodSandbox", "RemovePodSandbox":
		p.sandboxWritten(r, ev, env)
	case "StopContainer", "RemoveContainer":
		p.containerWritten(r, ev, env)
	default:
		p.made(id, r, ev, env)
	}
}

// made takes the answer to an operation that makes something, or removes a directory.
func (p *Pod) made(id world.OpID, r op.Record, ev world.Event, env *Env) {
	if p.Op != id {
		panic("pod: " + p.FullName() + " is told of an operation it did not begin: " + r.Call)
	}
	making := p.Making
	p.Op, p.Making = 0, nil
	if making != nil { // the file is the run's now, or is made once more
		p.forgetMessageFiles(making.Name)
	}
	container := p.subject(r)
	if ev.Err != nil {
		p.Stale = ev.Time
		if r.Call == "StartContainer" && container == "" {
			return // it has gone meanwhile: there is nothing to tell of
		}
		p.tellFailure(p.failed(container, r.Call, ev.Err, ev.Time), env)
		return
	}
	p.solved(container, r.Call)
	switch body := ev.Body.(type) {
	case *runtimeapi.RunPodSandboxResponse:
		p.sandboxMade(body.PodSandboxId, r, ev.Time)
	case *runtimeapi.CreateContainerResponse:
		p.containerMade(body.ContainerId, *making, r, ev.Time)
		p.event(env, making.Name, normal, "Created", "Container created")
	case *runtimeapi.StartContainerResponse:
		if c := p.container(r.Subject); c != nil {
			c.advance(Running, ev.Time)
			p.event(env, c.Name, normal, "Started", "Container started")
		}
	case *world.Done:
		p.dirDone(r)
	}
}

// cutSubject takes apart what an operation on a container is about: its id, and what of it.
func cutSubject(subject string) (id, what string) {
	id, what, _ = strings.Cut(subject, " ")
	return id, what
}

// subject is the name of the container that an operation is about; empty for the pod's.
func (p *Pod) subject(r op.Record) string {
	switch r.Call {
	case "StartContainer":
		if c := p.container(r.Subject); c != nil {
			return c.Name
		}
	case "CreateContainer", "MakeDir", "WriteFile":
		name, _, _ := strings.Cut(r.Subject, "/")
		return name
	}
	return ""
}

func (p *Pod) dirDone(r op.Record) {
	switch {
	case r.Call == "SetCgroup" || r.Call == "RemoveCgroup":
	case r.Call == "MakeDir" && r.Subject == "":
		p.Dir = true
	case strings.Contains(r.Subject, "/"):
		p.MessageFiles = append(p.MessageFiles, r.Subject)
	case r.Call == "MakeDir":
		p.LogDirs = append(p.LogDirs, r.Subject)
	case r.Subject == "logs":
		p.LogsGone = true
	default:
		p.DirGone = true
	}
}

func (p *Pod) sandboxMade(id string, r op.Record, now time.Time) {
	if p.sandbox(id) != nil {
		return // a relist was quicker
	}
	s := Sandbox{ID: id, Attempt: p.Attempt, Ready: true, CreatedAt: r.Began, Learned: now,
		IDs: p.IDs}
	if set := p.Cgroup.Set; set != nil {
		s.Cgroup = set.Cgroup.Path
	}
	p.addSandbox(s)
}

// containerMade adds a container as it was asked for, unless a relist that was quicker has.
func (p *Pod) containerMade(id string, made Container, r op.Record, now time.Time) {
	if p.container(id) != nil {
		return
	}
	made.ID, made.CreatedAt, made.Learned = id, r.Began, now
	p.addContainer(made)
}

// inspectionsMax bounds the containers of a pod that are asked about at once.
const inspectionsMax = 16

// inspect asks for what lists do not say: how a container started or ended, the IPs of a sandbox.
func (p *Pod) inspect(env *Env, w *waits) {
	p.linkLogs(env, w)
	p.readMessages(env, w)
	flying := 0
	for i := range p.Containers {
		if p.Containers[i].InspectOp != 0 {
			flying++
		}
	}
	for i := range p.Containers {
		c := &p.Containers[i]
		if c.InspectOp != 0 || c.State == c.Inspected || c.State == Created ||
			c.State == Unknown || flying >= inspectionsMax || w.pending(c.LookAt) {
			continue
		}
		flying++
		c.InspectOp = env.Out.Ask(p.Key(), c.ID, env.Node.RuntimeTimeout,
			&runtimeapi.ContainerStatusRequest{ContainerId: c.ID})
	}
	s := p.current()
	if s == nil || !s.Ready || s.Inspected || s.InspectOp != 0 || w.pending(s.NotBefore) {
		return
	}
	s.InspectOp = env.Out.Ask(p.Key(), s.ID, env.Node.RuntimeTimeout,
		&runtimeapi.PodSandboxStatusRequest{PodSandboxId: s.ID})
}

// awaitInspections reports whether it is still to be learnt how some container ended.
func (p *Pod) awaitInspections() bool {
	for i := range p.Containers {
		if c := &p.Containers[i]; c.State == Exited && !c.ended() {
			return true
		}
	}
	return false
}

func (p *Pod) sandboxInspected(r op.Record, ev world.Event) {
	s := p.sandbox(r.Subject)
	if s == nil {
		return
	}
	s.InspectOp = 0
	if ev.Err != nil {
		s.NotBefore = ev.Time.Add(failureFirst)
		return // if it has gone, a relist will say so
	}
	status := ev.Body.(*runtimeapi.PodSandboxStatusResponse).GetStatus()
	s.Inspected, s.IPs = true, nil
	if s.IDs.None() {
		s.IDs = userns.Mapped(status.GetLinux().GetNamespaces().GetOptions().GetUsernsOptions())
	}
	if ip := status.GetNetwork().GetIp(); ip != "" {
		s.IPs = append(s.IPs, ip)
		for _, more := range status.GetNetwork().GetAdditionalIps() {
			s.IPs = append(s.IPs, more.Ip)
		}
	}
	if status.GetState() != runtimeapi.PodSandboxState_SANDBOX_READY {
		s.Ready = false
	}
}

// containerInspected takes the details of a container. The first failure is tried again soon and
// every further one later, until a relist says that the container has gone (upstream #24819).
func (p *Pod) containerInspected(r op.Record, ev world.Event, env *Env) {
	c := p.container(r.Subject)
	if c == nil {
		return
	}
	c.InspectOp = 0
	if ev.Err != nil {
		c.Blind++
		c.LookAt = ev.Time.Add(waitAfter(c.Blind))
		return
	}
	c.Blind = 0
	status := ev.Body.(*runtimeapi.ContainerStatusResponse).GetStatus()
	state := stateOf(status.GetState())
	if state.order() < c.State.order() {
		c.LookAt = ev.Time.Add(failureFirst)
		return // older than what is known, or the runtime contradicts itself
	}
	c.advance(state, ev.Time)
	if c.Inspected = state; state == Running {
		c.alive(r.Began)
	}
	c.Image, c.ImageID = status.GetImage().GetImage(), status.GetImageRef()
	c.CreatedAt = nanos(status.GetCreatedAt())
	c.StartedAt, c.FinishedAt = nanos(status.GetStartedAt()), nanos(status.GetFinishedAt())
	c.ExitCode, c.Reason, c.Message = status.GetExitCode(), status.GetReason(), status.GetMessage()
	if user := status.GetUser().GetLinux(); user != nil {
		c.User = &v1.ContainerUser{Linux: &v1.LinuxContainerUser{
			UID: user.Uid, GID: user.Gid, SupplementalGroups: user.SupplementalGroups,
		}}
	}
	if s := status.GetStopSignal(); s != runtimeapi.Signal_RUNTIME_DEFAULT {
		signal := v1.Signal(s.String())
		c.StopSignal = &signal
	}
	if state == Exited {
		c.endSeen(status)
		p.tellBackOff(c, env)
	}
}

// sandboxWritten takes the answer to a stop or a removal. What is not there any more is success
// (upstream #106734).
func (p *Pod) sandboxWritten(r op.Record, ev world.Event, env *Env) {
	s := p.sandbox(r.Subject)
	if s == nil {
		return
	}
	s.Op = 0
	if ev.Err != nil && !ev.Err.Has(world.KindNotFound) {
		s.Failures++
		p.writeFailed(r, ev, env)
		s.NotBefore = ev.Time.Add(failureFirst)
		if r.Call == "RemovePodSandbox" { // which nothing waits for, unlike its stop
			s.NotBefore = ev.Time.Add(waitAfter(s.Failures))
		}
		return
	}
	s.Failures = 0
	if r.Call == "RemovePodSandbox" {
		p.Removed = ev.Time
		p.dropSandbox(s.ID)
		return
	}
	s.Ready, s.Stopped = false, true
	p.Stale = ev.Time // a start of unknown outcome may have slipped in: look once more
}

func (p *Pod) containerWritten(r op.Record, ev world.Event, env *Env) {
	c := p.container(r.Subject)
	if c == nil {
		return
	}
	c.Op = 0
	if ev.Err != nil && !ev.Err.Has(world.KindNotFound) {
		c.Failures++
		p.writeFailed(r, ev, env)
		c.NotBefore = ev.Time.Add(waitAfter(c.Failures))
		return
	}
	c.Failures = 0
	if r.Call == "RemoveContainer" || ev.Err != nil {
		p.Removed = ev.Time
		p.dropContainer(c.ID)
		return
	}
	c.advance(Exited, ev.Time)
}

func (p *Pod) writeFailed(r op.Record, ev world.Event, env *Env) {
	p.Stale = ev.Time
	stops := r.Call == "StopContainer" || r.Call == "StopPodSandbox"
	if stops && p.Stage != Syncing {
		p.event(env, "", warning, "FailedKillPod", "error killing pod: %s", ev.Err.Message)
		return
	}
	env.Out.Log(world.LevelWarning, "operation failed", "pod", p.FullName(), "call", r.Call,
		"id", r.Subject, "error", ev.Err.Error())
}

// nanos is a time of the runtime; zero if it has none.
func nanos(n int64) time.Time {
	if n <= 0 {
		return time.Time{}
	}
	return time.Unix(0, n).UTC()
}
