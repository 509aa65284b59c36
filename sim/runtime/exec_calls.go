package runtime

import (
	"strings"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"seedlet.dev/sim/truth"
	"seedlet.dev/sim/wire"
	"seedlet.dev/world"
)

// execSync runs a command in a container. The command is killed when its timeout expires, when the
// caller is gone, and when the container's main process ends. If the runtime's process dies the
// command continues without a timeout.
func (r *Runtime) execSync(call *wire.Call, req *runtimeapi.ExecSyncRequest) {
	var request *pendingRequest
	callerGone := false
	call.OnCallerGone(func() {
		callerGone = true
		if request != nil && !call.HasPortDied() {
			request.finish(truth.ReplyNone)
		}
	})
	call.Execute(func() {
		if callerGone {
			return
		}
		c, err := r.containerForExec(call, req)
		if err != nil {
			call.Fail(err)
			return
		}
		expired := false
		request = r.deliverRequest(c, "exec "+strings.Join(req.Cmd, " "), func(reply truth.Reply) {
			completeExec(call, req, reply, expired)
		})
		if req.Timeout > 0 {
			r.after(time.Duration(req.Timeout)*time.Second, func() {
				if !call.HasPortDied() {
					expired = true
					request.finish(truth.ReplyNone)
				}
			})
		}
	})
}

// containerForExec returns the running container of the request.
func (r *Runtime) containerForExec(call *wire.Call, req *runtimeapi.ExecSyncRequest) (
	*container, *world.Error) {
	c := r.containers[req.ContainerId]
	switch {
	case c == nil:
		return nil, world.Errorf(world.KindNotFound, call.Name,
			"failed to exec in container: failed to find container %q in store: not found",
			req.ContainerId)
	case c.State != running:
		return nil, world.Errorf(world.KindInternal, call.Name,
			"failed to exec in container: container is in %s state", c.State)
	}
	return c, nil
}

// completeExec completes an ExecSync call with the result of its command.
func completeExec(call *wire.Call, req *runtimeapi.ExecSyncRequest, reply truth.Reply,
	expired bool) {
	switch {
	case expired:
		call.Fail(world.Errorf(world.KindTimeout, call.Name,
			"failed to exec in container: timeout %ds exceeded: context deadline exceeded",
			req.Timeout))
	case reply.Class() == truth.ReplySuccess:
		call.Reply(&runtimeapi.ExecSyncResponse{Stdout: []byte("ok\n")})
	case reply.Class() == truth.ReplyFailure:
		call.Reply(&runtimeapi.ExecSyncResponse{ExitCode: 1, Stderr: []byte("not well\n")})
	case reply == truth.ReplyRefused:
		call.Fail(world.Errorf(world.KindInternal, call.Name,
			"failed to exec in container: failed to start exec: OCI runtime exec failed: "+
				"exec: %q: executable file not found in $PATH", strings.Join(req.Cmd, " ")))
	default: // killed with the container's main process, PID 1 of its namespace
		call.Reply(&runtimeapi.ExecSyncResponse{ExitCode: exitCodeKill})
	}
}
