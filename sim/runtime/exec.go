package runtime

import (
	"strings"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"seedlet.dev/sim/truth"
	"seedlet.dev/sim/wire"
	"seedlet.dev/world"
)

// execSync runs a command in a container. It is killed when its time has run out, when the
// caller does not wait any more, and when the container's own process ends. If the runtime's
// process dies, the command goes on and nobody looks at its time.
func (r *Runtime) execSync(call *wire.Call, req *runtimeapi.ExecSyncRequest) {
	var command *asking
	severed := false
	call.OnSever(func() {
		severed = true
		if command != nil && !call.PortDied() {
			command.end(truth.ReplyNone)
		}
	})
	call.Begin(func() {
		if severed {
			return
		}
		c, err := r.executable(call, req)
		if err != nil {
			call.Fail(err)
			return
		}
		expired := false
		command = r.ask(c, "exec "+strings.Join(req.Cmd, " "), func(reply truth.Reply) {
			executed(call, req, reply, expired)
		})
		if req.Timeout > 0 {
			r.after(time.Duration(req.Timeout)*time.Second, func() {
				if !call.PortDied() {
					expired = true
					command.end(truth.ReplyNone)
				}
			})
		}
	})
}

// executable is the container that a command can be run in.
func (r *Runtime) executable(call *wire.Call, req *runtimeapi.ExecSyncRequest) (
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

// executed answers as the command ended.
func executed(call *wire.Call, req *runtimeapi.ExecSyncRequest, reply truth.Reply, expired bool) {
	switch {
	case expired:
		call.Fail(world.Errorf(world.KindTimeout, call.Name,
			"failed to exec in container: timeout %ds exceeded: context deadline exceeded",
			req.Timeout))
	case reply.Means() == truth.ReplyGood:
		call.Reply(&runtimeapi.ExecSyncResponse{Stdout: []byte("ok\n")})
	case reply.Means() == truth.ReplyBad:
		call.Reply(&runtimeapi.ExecSyncResponse{ExitCode: 1, Stderr: []byte("not well\n")})
	case reply == truth.ReplyRefused:
		call.Fail(world.Errorf(world.KindInternal, call.Name,
			"failed to exec in container: failed to start exec: OCI runtime exec failed: "+
				"exec: %q: executable file not found in $PATH", strings.Join(req.Cmd, " ")))
	default: // killed with the container's own process, which is the first of its namespace
		call.Reply(&runtimeapi.ExecSyncResponse{ExitCode: exitOnKill})
	}
}
