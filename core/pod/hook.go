package pod

import (
	"slices"
	"strconv"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"seedlet.dev/core/op"
	"seedlet.dev/core/probe"
	"seedlet.dev/world"
)

// Hook is how far a lifecycle hook of one container is. It is run at least once: again if whether
// it was run is not known.
// https://kubernetes.io/docs/concepts/containers/container-lifecycle-hooks/
type Hook struct {
	Op        world.OpID `json:"op,omitempty"`
	Done      bool       `json:"done,omitempty"`   // it has ended, or was given up
	Void      bool       `json:"void,omitempty"`   // it is not the agent's to run
	Failed    string     `json:"failed,omitempty"` // why, if it has failed
	Failures  int        `json:"failures,omitempty"`
	NotBefore time.Time  `json:"notBefore"`
}

// The words by which the operations of hooks are told from those of probes.
const (
	postStart = "postStart"
	preStop   = "preStop"
)

const (
	// hookTimeoutMax is when a postStart hook that does not end is given up. The kubelet waits for
	// ever.
	hookTimeoutMax = 24 * time.Hour
	hookTriesMax   = 3 // of a hook of which it is not known whether it was run
	hookAgent      = "kube-lifecycle/1.36"
)

// postStarts runs the postStart hooks of containers that have just begun to run.
func (p *Pod) postStarts(env *Env, w *waits) {
	for i := range p.Containers {
		c := &p.Containers[i]
		want := p.want(c.Name)
		if c.State != Running || c.Stop != nil || want == nil || p.is(c).Running ||
			c.PostStart.Failed != "" {
			continue
		}
		h, hook := want.Lifecycle.PostStart, &c.PostStart
		if h.Sleep != nil {
			hook.Done = !w.pending(c.Ran.Add(seconds(h.Sleep.Seconds)))
			continue
		}
		p.runHook(c, h, hook, postStart, hookTimeoutMax, env, w)
	}
}

// preStop runs the preStop hook of a container whose end has begun, and reports whether there is
// still something to wait for.
func (p *Pod) preStop(c *Container, env *Env, w *waits) bool {
	hook := &c.Stop.Hook
	if c.PreStop == nil || hook.Done || c.State != Running || c.Stop.Grace <= 0 {
		return false
	}
	over := c.Stop.At.Add(c.Stop.Grace)
	if !w.pending(over) { // the grace period is used up
		if hook.Op != 0 {
			env.Out.Forget(hook.Op)
			hook.Op = 0
		}
		hook.Done = true
		return false
	}
	if h := c.PreStop; h.Sleep != nil {
		hook.Done = !w.pending(c.Stop.At.Add(seconds(h.Sleep.Seconds)))
		return !hook.Done
	}
	p.runHook(c, c.PreStop, hook, preStop, over.Sub(env.Out.Now()), env, w)
	return !hook.Done
}

// runHook begins a hook that asks something of a container, if it is not under way.
func (p *Pod) runHook(c *Container, h *v1.LifecycleHandler, hook *Hook, name string,
	timeout time.Duration, env *Env, w *waits) {
	target, known := p.target(c, env.Node)
	if hook.Op != 0 || !known && h.Exec == nil || w.pending(hook.NotBefore) {
		return
	}
	handler := v1.ProbeHandler{Exec: h.Exec, HTTPGet: h.HTTPGet, TCPSocket: h.TCPSocket}
	body, err := probe.Request(&handler, target, 0)
	if err != nil || h.TCPSocket != nil {
		why := "its handler cannot be run" // as the kubelet, for a TCP socket
		if err != nil {
			why = err.Error()
		}
		p.hookFailed(c, hook, why, name, env)
		return
	}
	switch body := body.(type) {
	case *world.HTTPGet:
		named := func(h world.HTTPHeader) bool { return strings.EqualFold(h.Name, "User-Agent") }
		if !slices.ContainsFunc(body.Headers, named) {
			body.Headers = append([]world.HTTPHeader{{Name: "User-Agent", Value: hookAgent}},
				body.Headers...)
		}
	case *runtimeapi.ExecSyncRequest:
		body.Timeout = int64((timeout + time.Second - 1) / time.Second)
		timeout += env.Node.RuntimeTimeout
	}
	env.Out.Log(world.LevelDebug, "running hook", "pod", p.FullName(), "container", c.Name,
		"hook", name)
	hook.Op = env.Out.Ask(p.Key(), c.ID+" "+name, timeout, body)
}

// hookFailed ends a hook that has failed. A preStop hook that has failed holds nothing up. What the
// container has said may be secret: users are not told.
func (p *Pod) hookFailed(c *Container, h *Hook, why, name string, env *Env) {
	h.Failed, h.Done = why, name == preStop
	env.Out.Log(world.LevelWarning, "hook failed", "pod", p.FullName(), "container", c.Name,
		"hook", name, "error", why)
	word := strings.ToUpper(name[:1]) + name[1:] + "Hook"
	p.event(env, c.Name, warning, "Failed"+word, "%s failed", word)
}

// hooked takes the answer to a hook.
func (p *Pod) hooked(c *Container, name string, r op.Record, ev world.Event, env *Env) {
	hook := &c.PostStart
	if name == preStop {
		if c.Stop == nil {
			return
		}
		hook = &c.Stop.Hook
	}
	hook.Op = 0
	why := ""
	switch body, ran := ev.Body.(*runtimeapi.ExecSyncResponse); {
	case ev.Err.Has(world.KindCanceled), r.Call == "ExecSync" && unknowable(ev.Err):
		if hook.Failures++; hook.Failures < hookTriesMax {
			hook.NotBefore = ev.Time.Add(waitAfter(hook.Failures))
			return
		}
		why = ev.Err.Message
	case ev.Err != nil:
		why = ev.Err.Message
	case ran && body.ExitCode != 0:
		why = "command exited with " + strconv.Itoa(int(body.ExitCode))
	}
	if why == "" {
		hook.Done = true
		return
	}
	p.hookFailed(c, hook, why, name, env)
}

// unknowable says whether an operation that failed in this way may have taken effect.
func unknowable(err *world.Error) bool {
	return err.Has(world.KindTimeout) || err.Has(world.KindUnavailable)
}
