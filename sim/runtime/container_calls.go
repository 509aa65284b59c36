package runtime

import (
	"path"
	"strconv"
	"strings"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"seedlet.dev/sim/truth"
	"seedlet.dev/sim/wire"
	"seedlet.dev/world"
)

// createContainer reserves the name when the call is received, and creates the container when its
// snapshot is ready. The container is created even if its sandbox has stopped or been removed
// meanwhile.
func (r *Runtime) createContainer(call *wire.Call, req *runtimeapi.CreateContainerRequest) {
	c, err := r.newContainer(call, req)
	if err != nil {
		call.Fail(err)
		return
	}
	r.containerNames[c.reservedName] = struct{}{}
	call.ContinueAfter(call.DurationBetween(5*time.Millisecond, 60*time.Millisecond), func() {
		if call.DrawsAbort() {
			delete(r.containerNames, c.reservedName)
			return
		}
		r.addContainer(c)
		call.Reply(&runtimeapi.CreateContainerResponse{ContainerId: c.ID})
	})
}

// newContainer validates a request with containerd's checks, in the same order.
func (r *Runtime) newContainer(call *wire.Call, req *runtimeapi.CreateContainerRequest) (
	*container, *world.Error) {
	s := r.sandboxes[req.PodSandboxId]
	config, pod := req.Config, req.GetSandboxConfig().GetMetadata()
	switch {
	case s == nil:
		return nil, world.Errorf(world.KindNotFound, call.Name,
			"failed to find sandbox id %q: not found", req.PodSandboxId)
	case s.State != ready:
		return nil, world.Errorf(world.KindInternal, call.Name,
			"sandbox container %q is not running", s.ID)
	case config.GetMetadata() == nil:
		return nil, world.Errorf(world.KindInternal, call.Name,
			"container config must include metadata")
	case pod == nil:
		return nil, world.Errorf(world.KindInternal, call.Name,
			"pod sandbox config must include metadata")
	}
	name := strings.Join([]string{config.Metadata.Name, pod.Name, pod.Namespace, pod.Uid,
		strconv.FormatUint(uint64(config.Metadata.Attempt), 10)}, "_")
	if _, taken := r.containerNames[name]; taken {
		return nil, world.Errorf(world.KindExists, call.Name,
			"failed to reserve container name %q: it is reserved", name)
	}
	img := r.image(config.GetImage().GetImage())
	if !img.present {
		return nil, world.Errorf(world.KindNotFound, call.Name,
			"failed to resolve image %q: not found", img.ref)
	}
	mounts, err := r.imageMounts(call.Name, config)
	if err != nil {
		return nil, err
	}
	user, err := img.containerUser(call.Name, config.GetLinux().GetSecurityContext())
	if err != nil {
		return nil, err
	}
	c := &container{config: config, imageID: img.id, reservedName: name, user: user, mounts: mounts,
		withoutResources: r.opts.Containerd16,
		killDelay:        call.DurationBetween(time.Millisecond, 40*time.Millisecond),
		exitNoticeDelay:  call.DurationBetween(0, 500*time.Microsecond)}
	if dir := req.SandboxConfig.LogDirectory; dir != "" && config.LogPath != "" {
		c.logPath = path.Join(dir, config.LogPath)
	}
	c.Container = Container{ID: newID(call), SandboxID: s.ID, PodUID: s.PodUID,
		PodNamespace: s.PodNamespace, PodName: s.PodName,
		Name: config.Metadata.Name, Attempt: config.Metadata.Attempt}
	return c, nil
}

// startContainer starts a created container. A container that cannot be started becomes exited.
func (r *Runtime) startContainer(call *wire.Call, req *runtimeapi.StartContainerRequest) {
	c := r.containers[req.ContainerId]
	if c == nil {
		call.Fail(noContainer(call, req.ContainerId))
		return
	}
	if !c.canStart() {
		call.Fail(world.Errorf(world.KindInternal, call.Name,
			"failed to set starting state for container %q: container is in %s state%s",
			c.ID, c.State, c.transitionText()))
		return
	}
	c.starting = true
	start := func() {
		if call.HasPortDied() {
			return // the container stays created
		}
		if s := r.sandboxes[c.SandboxID]; s == nil || s.State != ready || call.DrawsAbort() {
			r.failStart(c)
			call.Fail(world.Errorf(world.KindInternal, call.Name,
				"sandbox container %q is not running", c.SandboxID))
			return
		}
		r.startProcess(c)
		call.Reply(&runtimeapi.StartContainerResponse{})
	}
	if s := r.sandboxes[c.SandboxID]; s == nil || s.State != ready {
		start()
		return
	}
	call.ContinueAfter(call.DurationBetween(5*time.Millisecond, 60*time.Millisecond), start)
}

// stopContainer sends TERM, and KILL after the grace period of this call. If the caller of the call
// is gone KILL may never be sent.
func (r *Runtime) stopContainer(call *wire.Call, req *runtimeapi.StopContainerRequest) {
	c := r.containers[req.ContainerId]
	if c == nil && r.opts.Containerd16 {
		call.Fail(noContainer(call, req.ContainerId))
		return
	}
	if c == nil || c.State != running {
		if c != nil {
			r.recoverIfExited(c)
		}
		call.Reply(&runtimeapi.StopContainerResponse{})
		return
	}
	r.recordFact(c, truth.Fact{Kind: truth.StopRequested, GraceSeconds: req.Timeout})
	c.onExit = append(c.onExit, func() { call.Reply(&runtimeapi.StopContainerResponse{}) })
	if req.Timeout <= 0 {
		r.kill(c, truth.CauseStop)
		return
	}
	r.term(c)
	aborted := false
	call.OnCallerGone(func() { aborted = call.DrawsAbort() })
	r.after(time.Duration(req.Timeout)*time.Second, func() {
		if !aborted && !call.HasPortDied() {
			r.kill(c, truth.CauseStop)
		}
	})
}

// removeContainer removes a container. It kills a running container first.
func (r *Runtime) removeContainer(call *wire.Call, req *runtimeapi.RemoveContainerRequest) {
	c := r.containers[req.ContainerId]
	if c == nil {
		call.Reply(&runtimeapi.RemoveContainerResponse{})
		return
	}
	remove := func() {
		if err := c.checkRemovable(call); err != nil {
			call.Fail(err)
			return
		}
		c.removing = true
		r.after(call.DurationBetween(time.Millisecond, 30*time.Millisecond), func() {
			r.deleteContainer(c, "")
			call.Reply(&runtimeapi.RemoveContainerResponse{})
		})
	}
	if c.State != running {
		remove()
		return
	}
	c.onExit = append(c.onExit, remove)
	r.kill(c, truth.CauseRemove)
}

// checkRemovable returns an error if a container that does not run cannot be removed now.
func (c *container) checkRemovable(call *wire.Call) *world.Error {
	if c.starting || c.removing {
		return world.Errorf(world.KindInternal, call.Name,
			"failed to set removing state for container %q:%s", c.ID, c.transitionText())
	}
	return nil
}

func (c *container) transitionText() string {
	switch {
	case c.starting:
		return " container is in starting state"
	case c.removing:
		return " container is in removing state"
	default:
		return ""
	}
}

func noContainer(call *wire.Call, id string) *world.Error {
	return world.Errorf(world.KindNotFound, call.Name,
		"an error occurred when try to find container %q: not found", id)
}

// newID draws an ID of containerd's form: 64 hexadecimal digits.
func newID(call *wire.Call) string {
	const digits = "0123456789abcdef"
	id := make([]byte, 0, 64)
	for range 4 {
		bits := call.Draw()
		for range 16 {
			id = append(id, digits[bits&15])
			bits >>= 4
		}
	}
	return string(id)
}
