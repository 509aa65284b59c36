package pod

import (
	"slices"
	"strconv"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"seedlet.dev/core/budget"
	"seedlet.dev/core/op"
	"seedlet.dev/core/probe"
	"seedlet.dev/world"
)

// Hook is the progress of a lifecycle hook of one container. A hook runs at least once: it is
// repeated if the outcome of an attempt is unknown.
// https://kubernetes.io/docs/concepts/containers/container-lifecycle-hooks/
type Hook struct {
	Op       world.OpID `json:"op,omitempty"`
	Done     bool       `json:"done,omitempty"`    // completed, or given up
	EndedAt  time.Time  `json:"endedAt"`           // of a preStop hook that is done
	Skip     bool       `json:"skip,omitempty"`    // this agent does not run the hook
	Failure  string     `json:"failure,omitempty"` // the error, if the hook has failed
	Failures int        `json:"failures,omitempty"`
	// PlainHTTP is set after the server of an HTTPS hook has responded with HTTP: the hook is sent
	// again without TLS, as by the kubelet (runHTTPHandler in pkg/kubelet/lifecycle/handlers.go).
	PlainHTTP bool      `json:"plainHTTP,omitempty"`
	NotBefore time.Time `json:"notBefore"`
}

// The names of hooks in the subjects of operations.
const (
	postStart = "postStart"
	preStop   = "preStop"
)

const (
	// hookTimeoutMax is when a postStart hook that does not complete is given up. The kubelet waits
	// for ever.
	hookTimeoutMax  = 24 * time.Hour
	hookAttemptsMax = 3 // of a hook whose attempts have an unknown outcome
	hookUserAgent   = "kube-lifecycle/1.36"
)

// pendingPostStart returns the postStart hook of a running container; nil if it has none, or the
// hook has ended.
func (p *Pod) pendingPostStart(c *Container) *v1.LifecycleHandler {
	container := p.specContainer(c.Name)
	if c.State != Running || c.Stop != nil || container == nil || p.currentHealth(c).Running ||
		c.PostStart.Failure != "" {
		return nil
	}
	return container.Lifecycle.PostStart
}

// runPostStartHooks runs the postStart hooks of containers that have just been started.
func (p *Pod) runPostStartHooks(env *Env, w *wakeTimer) {
	for i := range p.Containers {
		c := &p.Containers[i]
		h, hook := p.pendingPostStart(c), &c.PostStart
		if h == nil {
			continue
		}
		if h.Sleep != nil {
			hook.Done = !w.waitUntil(c.RunningSeenAt.Add(seconds(h.Sleep.Seconds)))
			continue
		}
		p.runHook(c, h, hook, postStart, hookTimeoutMax, env, w)
	}
}

// isSleepingAfterStart reports whether the postStart hook of a running container sleeps.
func (p *Pod) isSleepingAfterStart(c *Container, now time.Time) bool {
	h := p.pendingPostStart(c)
	return h != nil && h.Sleep != nil && now.Before(c.RunningSeenAt.Add(seconds(h.Sleep.Seconds)))
}

func (e *Env) countShortenedSleep() {
	if e.CountShortenedSleep != nil {
		e.CountShortenedSleep()
	}
}

// runPreStopHook runs the preStop hook of a container whose stop has started, and reports whether
// StopContainer has to wait for it: until the grace period is used up. The hook goes on while the
// container has its last seconds, killAfterMin, as in the kubelet (executePreStopHook in
// kuberuntime_container.go waits for the hook, and does not end it).
func (p *Pod) runPreStopHook(c *Container, env *Env, w *wakeTimer) bool {
	hook := &c.Stop.PreStop
	if c.PreStop == nil || hook.Done || !c.isLive() || c.Stop.Grace <= 0 {
		return false
	}
	deadline, sleep := c.Stop.StartedAt.Add(c.Stop.Grace), c.PreStop.Sleep
	end := deadline // of the wait for the hook
	if sleep != nil && seconds(sleep.Seconds) < c.Stop.Grace {
		end = c.Stop.StartedAt.Add(seconds(sleep.Seconds))
	}
	if !w.waitUntil(end) {
		hook.Done, hook.EndedAt = true, end
		if sleep != nil && c.Stop.Grace < seconds(sleep.Seconds) {
			env.countShortenedSleep()
		}
		return false
	}
	if sleep != nil {
		return true
	}
	p.runHook(c, c.PreStop, hook, preStop, deadline.Sub(env.Effects.Now())+killAfterMin, env, w)
	return !hook.Done
}

// runHook issues the operation of a hook, if none is in flight.
func (p *Pod) runHook(c *Container, h *v1.LifecycleHandler, hook *Hook, name string,
	timeout time.Duration, env *Env, w *wakeTimer) {
	target, known := p.probeTarget(c, env.Node)
	if hook.Op != 0 || !known && h.Exec == nil || w.waitUntil(hook.NotBefore) {
		return
	}
	handler := v1.ProbeHandler{Exec: h.Exec, HTTPGet: h.HTTPGet, TCPSocket: h.TCPSocket}
	body, err := probe.NewRequest(&handler, target, 0)
	if err != nil || h.TCPSocket != nil {
		failure := "its handler cannot be run" // as the kubelet, for a TCP socket
		if err != nil {
			failure = err.Error()
		}
		p.failHook(c, hook, failure, name, env)
		return
	}
	switch body := body.(type) {
	case *world.HTTPGet:
		isUserAgent := func(h world.HTTPHeader) bool { return strings.EqualFold(h.Name, "User-Agent") }
		if !slices.ContainsFunc(body.Headers, isUserAgent) {
			body.Headers = append([]world.HTTPHeader{{Name: "User-Agent", Value: hookUserAgent}},
				body.Headers...)
		}
		if hook.PlainHTTP {
			body.Scheme = "http"
			body.Headers = slices.DeleteFunc(body.Headers, func(h world.HTTPHeader) bool {
				return strings.EqualFold(h.Name, "Authorization") // not for all to read
			})
		}
	case *runtimeapi.ExecSyncRequest:
		body.Timeout = int64((timeout + time.Second - 1) / time.Second)
		timeout += env.Node.RuntimeTimeout
	}
	env.Effects.Log(world.LevelDebug, "running hook", "pod", p.FullName(), "containerName", c.Name,
		"hook", name)
	hook.Op = env.Effects.Issue(p.Key(), c.ID+" "+name, timeout, body)
}

// failHook records the failure of a hook. StopContainer does not wait for a preStop hook that has
// failed. The output of a hook may be secret, so the event does not contain it.
func (p *Pod) failHook(c *Container, h *Hook, failure, name string, env *Env) {
	failure = budget.CutMessage(failure)
	if h.Failure = failure; name == preStop {
		h.Done, h.EndedAt = true, env.Effects.Now()
	}
	env.Effects.Log(world.LevelWarning, "hook failed", "pod", p.FullName(), "containerName", c.Name,
		"hook", name, "err", failure)
	event := strings.ToUpper(name[:1]) + name[1:] + "Hook"
	p.recordEvent(env, c.Name, warning, "Failed"+event, "%s failed", event)
}

// handleHookCompletion handles the completion of a hook's operation.
func (p *Pod) handleHookCompletion(c *Container, name string, r op.Record, ev world.Event,
	env *Env) {
	hook := &c.PostStart
	if name == preStop {
		if c.Stop == nil {
			return
		}
		hook = &c.Stop.PreStop
	}
	hook.Op = 0
	failure := ""
	switch body, ran := ev.Body.(*runtimeapi.ExecSyncResponse); {
	case r.Call == "HTTPGet" && ev.Err != nil && !hook.PlainHTTP &&
		strings.HasSuffix(ev.Err.Message, world.HTTPInsteadOfHTTPS):
		hook.PlainHTTP = true
		return
	case r.Refused, ev.Err.Has(world.KindCanceled),
		r.Call == "ExecSync" && hasUnknownOutcome(ev.Err):
		if hook.Failures++; hook.Failures < hookAttemptsMax {
			hook.NotBefore = ev.Time.Add(failureBackoff(hook.Failures))
			return
		}
		failure = ev.Err.Message
	case ev.Err != nil:
		failure = ev.Err.Message
	case ran && body.ExitCode != 0:
		failure = "command exited with " + strconv.Itoa(int(body.ExitCode))
	}
	if failure == "" {
		hook.Done, hook.EndedAt = true, ev.Time
		p.recordHTTPFallback(c, hook, name, env)
		return
	}
	p.failHook(c, hook, failure, name, env)
}

// recordHTTPFallback records that a hook for HTTPS has succeeded without TLS.
func (p *Pod) recordHTTPFallback(c *Container, hook *Hook, name string, env *Env) {
	handler := c.PreStop
	if container := p.specContainer(c.Name); name == postStart && container != nil &&
		container.Lifecycle != nil {
		handler = container.Lifecycle.PostStart
	}
	if !hook.PlainHTTP || handler == nil {
		return
	}
	p.HTTPFallbacks++
	target, _ := p.probeTarget(c, env.Node)
	request, err := probe.NewRequest(&v1.ProbeHandler{HTTPGet: handler.HTTPGet}, target, 0)
	if get, ok := request.(*world.HTTPGet); ok && err == nil {
		p.recordEvent(env, "", warning, "LifecycleHTTPFallback", "request to HTTPS lifecycle hook %s "+
			"got HTTP response, retry with HTTP succeeded", probe.Address(get.Host, get.Port))
	}
}

// hasUnknownOutcome reports whether an operation that failed with this error may have taken effect.
func hasUnknownOutcome(err *world.Error) bool {
	return err.Has(world.KindTimeout) || err.Has(world.KindUnavailable)
}
