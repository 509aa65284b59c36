package runtime

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"seedlet.dev/sim/truth"
	"seedlet.dev/sim/wire"
	"seedlet.dev/world"
)

// runSandbox reserves the name when the call is received; the sandbox is listed when it is ready. A
// call that fails late may leave a sandbox that was never ready and still holds its name.
func (r *Runtime) runSandbox(call *wire.Call, config *runtimeapi.PodSandboxConfig) {
	pod := config.GetMetadata()
	if pod == nil {
		call.Fail(world.Errorf(world.KindInternal, call.Name,
			"sandbox config must include metadata"))
		return
	}
	s := &sandbox{config: config, createdSkew: r.skew}
	if r.networkDown && !s.usesHostNetwork() {
		call.Fail(world.Errorf(world.KindInternal, call.Name, "failed to setup network for sandbox: "+
			"cni plugin not initialized"))
		return
	}
	name := strings.Join([]string{pod.Name, pod.Namespace, pod.Uid,
		strconv.FormatUint(uint64(pod.Attempt), 10)}, "_")
	if _, taken := r.sandboxNames[name]; taken {
		call.Fail(world.Errorf(world.KindExists, call.Name,
			"failed to reserve sandbox name %q: it is reserved", name))
		return
	}
	r.sandboxNames[name] = struct{}{}
	s.reservedName, s.Sandbox = name, Sandbox{
		ID: newID(call), PodUID: pod.Uid, PodNamespace: pod.Namespace, PodName: pod.Name,
		Attempt: pod.Attempt, State: notReady, CreatedAt: r.now(),
	}
	r.recordSandboxFact(s, truth.Fact{Kind: truth.SandboxCreated, Annotations: config.Annotations,
		Cgroup: s.cgroupParent(), IDs: s.userIDRange(), SandboxConfig: config})
	call.ContinueAfter(call.DurationBetween(30*time.Millisecond, 400*time.Millisecond), func() {
		r.finishSandbox(call, s)
	})
}

// finishSandbox is the last stage of RunPodSandbox.
func (r *Runtime) finishSandbox(call *wire.Call, s *sandbox) {
	if call.DrawsAbort() {
		s.removed = true
		delete(r.sandboxNames, s.reservedName)
		r.recordSandboxFact(s, truth.Fact{Kind: truth.SandboxRemoved, Cause: truth.CauseRuntime})
		return
	}
	if call.Outcome.ErrorAfter != nil && call.Draw()&1 == 0 { // the runtime's cleanup failed too
		r.addSandbox(s)
		r.markSandboxNotReady(s, truth.CauseRuntime)
		call.Fail(call.Outcome.ErrorAfter)
		return
	}
	var addresses []string
	if !s.usesHostNetwork() {
		r.sandboxCount++
		s.IP = fmt.Sprintf("10.88.%d.%d", r.sandboxCount/250%250, r.sandboxCount%250+2)
		addresses = append(addresses, s.IP)
	}
	s.State = ready
	r.enterCgroup(s)
	r.addSandbox(s)
	r.recordSandboxFact(s, truth.Fact{Kind: truth.SandboxReady, Addresses: addresses})
	r.emitEvent(s.ID, s.ID, eventCreated)
	r.emitEvent(s.ID, s.ID, eventStarted)
	call.Reply(&runtimeapi.RunPodSandboxResponse{PodSandboxId: s.ID})
}

// stopSandbox kills the containers of a sandbox and tears its network down.
func (r *Runtime) stopSandbox(call *wire.Call, req *runtimeapi.StopPodSandboxRequest) {
	s := r.sandboxes[req.PodSandboxId]
	if s == nil && r.opts.Containerd16 {
		call.Fail(noSandbox(call, req.PodSandboxId))
		return
	}
	if s == nil {
		call.Reply(&runtimeapi.StopPodSandboxResponse{})
		return
	}
	r.killContainers(s, func() {
		r.after(call.DurationBetween(5*time.Millisecond, 100*time.Millisecond), func() {
			r.tearDownSandbox(s, truth.CauseStop)
			call.Reply(&runtimeapi.StopPodSandboxResponse{})
		})
	})
}

// killContainers kills the running containers of a sandbox and calls then when all have exited. As
// in containerd, containers that are created meanwhile are not killed.
func (r *Runtime) killContainers(s *sandbox, then func()) {
	remaining := 1
	done := func() {
		remaining--
		if remaining == 0 {
			then()
		}
	}
	for _, c := range r.containersIn(s) {
		r.recoverIfExited(c)
		if c.State == running {
			remaining++
			c.onExit = append(c.onExit, done)
			r.kill(c, truth.CauseSandbox)
		}
	}
	done()
}

// tearDownSandbox makes a sandbox not ready and removes its network.
func (r *Runtime) tearDownSandbox(s *sandbox, cause string) {
	if s.removed || s.State == notReady && s.IP == "" {
		return
	}
	s.IP = ""
	r.markSandboxNotReady(s, cause)
}

// removeSandbox stops a sandbox and removes it with all its containers. It fails if another call is
// starting or removing one of the containers.
func (r *Runtime) removeSandbox(call *wire.Call, req *runtimeapi.RemovePodSandboxRequest) {
	s := r.sandboxes[req.PodSandboxId]
	if s == nil {
		call.Reply(&runtimeapi.RemovePodSandboxResponse{})
		return
	}
	r.killContainers(s, func() {
		r.after(call.DurationBetween(5*time.Millisecond, 100*time.Millisecond), func() {
			r.tearDownSandbox(s, truth.CauseRemove)
			r.deleteStoppedSandbox(call, s)
		})
	})
}

// deleteStoppedSandbox removes a stopped sandbox and its containers.
func (r *Runtime) deleteStoppedSandbox(call *wire.Call, s *sandbox) {
	for _, c := range r.containersIn(s) {
		if c.State == running { // created and started while the sandbox was stopping
			c.onExit = append(c.onExit, func() { r.deleteStoppedSandbox(call, s) })
			r.kill(c, truth.CauseSandbox)
			return
		}
		if err := c.checkRemovable(call); err != nil {
			call.Fail(err)
			return
		}
		r.deleteContainer(c, "")
	}
	r.deleteSandbox(s, "")
	call.Reply(&runtimeapi.RemovePodSandboxResponse{})
}

func noSandbox(call *wire.Call, id string) *world.Error {
	return world.Errorf(world.KindNotFound, call.Name,
		"an error occurred when try to find sandbox %q: not found", id)
}
