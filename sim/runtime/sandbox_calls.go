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

// runSandbox takes the name when it is received; the sandbox is listed when it is ready. A call
// that fails late may leave a sandbox that was never ready and still has its name.
func (r *Runtime) runSandbox(call *wire.Call, config *runtimeapi.PodSandboxConfig) {
	pod := config.GetMetadata()
	if pod == nil {
		call.Fail(world.Errorf(world.KindInternal, call.Name,
			"sandbox config must include metadata"))
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
	s := &sandbox{config: config, reserved: name, skewed: r.skew, Sandbox: Sandbox{
		ID: newID(call), PodUID: pod.Uid, PodNamespace: pod.Namespace, PodName: pod.Name,
		Attempt: pod.Attempt, State: notReady, CreatedAt: r.now(),
	}}
	r.tellSandbox(s, truth.Fact{Kind: truth.SandboxCreated, Annotations: config.Annotations,
		Cgroup: s.cgroup(), IDs: s.ids()})
	call.Work(call.Between(30*time.Millisecond, 400*time.Millisecond), func() {
		r.finishSandbox(call, s)
	})
}

// finishSandbox is the end of a RunPodSandbox.
func (r *Runtime) finishSandbox(call *wire.Call, s *sandbox) {
	if call.GivesUp() {
		s.gone = true
		delete(r.sandboxNames, s.reserved)
		r.tellSandbox(s, truth.Fact{Kind: truth.SandboxRemoved, Cause: truth.CauseRuntime})
		return
	}
	if call.Fate.After != nil && call.Draw()&1 == 0 { // its clean-up failed as well
		r.addSandbox(s)
		r.haltSandbox(s, truth.CauseRuntime)
		call.Fail(call.Fate.After)
		return
	}
	if !s.inNodeNetwork() {
		r.sandboxCount++
		s.IP = fmt.Sprintf("10.88.%d.%d", r.sandboxCount/250%250, r.sandboxCount%250+2)
	}
	s.State = ready
	r.enter(s)
	r.addSandbox(s)
	r.tellSandbox(s, truth.Fact{Kind: truth.SandboxReady})
	r.emit(s.ID, s.ID, eventCreated)
	r.emit(s.ID, s.ID, eventStarted)
	call.Reply(&runtimeapi.RunPodSandboxResponse{PodSandboxId: s.ID})
}

// stopSandbox kills what runs in a sandbox and takes its network down.
func (r *Runtime) stopSandbox(call *wire.Call, req *runtimeapi.StopPodSandboxRequest) {
	s := r.sandboxes[req.PodSandboxId]
	if s == nil && r.opts.Old {
		call.Fail(noSandbox(call, req.PodSandboxId))
		return
	}
	if s == nil {
		call.Reply(&runtimeapi.StopPodSandboxResponse{})
		return
	}
	r.killAll(s, func() {
		r.after(call.Between(5*time.Millisecond, 100*time.Millisecond), func() {
			r.takeDown(s, truth.CauseStop)
			call.Reply(&runtimeapi.StopPodSandboxResponse{})
		})
	})
}

// killAll kills all that runs in a sandbox, and goes on when it has exited. What is created
// meanwhile is not its business, as it is not containerd's.
func (r *Runtime) killAll(s *sandbox, then func()) {
	left := 1
	done := func() {
		left--
		if left == 0 {
			then()
		}
	}
	for _, c := range r.inSandbox(s) {
		r.settle(c)
		if c.State == running {
			left++
			c.onExit = append(c.onExit, done)
			r.kill(c, truth.CauseSandbox)
		}
	}
	done()
}

// takeDown halts a sandbox and removes its network.
func (r *Runtime) takeDown(s *sandbox, cause string) {
	if s.gone || s.State == notReady && s.IP == "" {
		return
	}
	s.IP = ""
	r.haltSandbox(s, cause)
}

// removeSandbox stops a sandbox and removes it with all its containers. A container that is just
// being started or removed by another call stands in its way.
func (r *Runtime) removeSandbox(call *wire.Call, req *runtimeapi.RemovePodSandboxRequest) {
	s := r.sandboxes[req.PodSandboxId]
	if s == nil {
		call.Reply(&runtimeapi.RemovePodSandboxResponse{})
		return
	}
	r.killAll(s, func() {
		r.after(call.Between(5*time.Millisecond, 100*time.Millisecond), func() {
			r.takeDown(s, truth.CauseRemove)
			r.clear(call, s)
		})
	})
}

// clear removes a halted sandbox and its containers.
func (r *Runtime) clear(call *wire.Call, s *sandbox) {
	for _, c := range r.inSandbox(s) {
		if c.State == running { // created and started while the sandbox was stopping
			c.onExit = append(c.onExit, func() { r.clear(call, s) })
			r.kill(c, truth.CauseSandbox)
			return
		}
		if err := c.removable(call); err != nil {
			call.Fail(err)
			return
		}
		r.dropContainer(c)
	}
	r.dropSandbox(s, "")
	call.Reply(&runtimeapi.RemovePodSandboxResponse{})
}

func noSandbox(call *wire.Call, id string) *world.Error {
	return world.Errorf(world.KindNotFound, call.Name,
		"an error occurred when try to find sandbox %q: not found", id)
}
