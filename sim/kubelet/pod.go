package kubelet

import (
	"cmp"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"seedlet.dev/sim/runtime"
	"seedlet.dev/world"
)

// pod is what the kubelet keeps in memory about a pod.
type pod struct {
	object   *v1.Pod // of the API server, or of a manifest
	isStatic bool
	isOrphan bool // no source has it: its object was made from what the runtime has
	busy     bool // a step is under way

	seenAt    time.Time
	startTime time.Time
	done      map[string]bool          // steps that have succeeded, by key
	backoff   map[string]time.Duration // before the next restart, by container
	messages  map[string]string        // the files of termination messages, by run
	probedAt  map[string]time.Time     // by probe and run
	passed    map[string]bool          // probes whose last result is a success
	hookEnded map[string]time.Time     // preStop hooks, by run
	ip        string
	written   *v1.PodStatus
	// writtenText is that status as JSON.
	writtenText string
	used        map[string]*usedVolume // volumes that something backs, by name
	using       *sharedVolume          // whose step is under way
	tokens      map[string]string      // by volume and path
	firstID     uint32                 // of the user namespace; zero: none
	// endedBefore is set if the API server had a terminal phase when the kubelet started: it stays,
	// with its status.
	endedBefore bool

	allocated, actuated resources // to and by its containers
	resizes             bool      // the pod does not have all that is allocated to it
	// pending is the reason for which what it asks for is not allocated; empty: it is.
	pending, pendingMessage string
}

func newPod() *pod {
	return &pod{done: map[string]bool{}, backoff: map[string]time.Duration{},
		messages: map[string]string{}, probedAt: map[string]time.Time{}, passed: map[string]bool{},
		hookEnded: map[string]time.Time{}, used: map[string]*usedVolume{},
		tokens: map[string]string{}}
}

func compareNames(a, b *v1.Pod) int {
	return cmp.Or(strings.Compare(a.Namespace, b.Namespace), strings.Compare(a.Name, b.Name),
		strings.Compare(string(a.UID), string(b.UID)))
}

// step is one call for a pod. Its key names what has been done after it.
type step struct {
	key  string
	port world.PortName
	body any
}

// once returns the first step that has not been done; nil if all have been.
func (p *pod) once(steps ...*step) *step {
	for _, s := range steps {
		if s != nil && !p.done[s.key] {
			return s
		}
	}
	return nil
}

// state is what the runtime has of a pod.
type state struct {
	sandbox *runtime.Sandbox // the newest one; nil: none
	runs    []runtime.Container
}

func (k *Kubelet) stateOf(p *pod) *state {
	s := &state{}
	for _, sandbox := range k.opts.Runtime.Sandboxes() {
		if sandbox.PodUID == string(p.object.UID) &&
			(s.sandbox == nil || sandbox.Attempt > s.sandbox.Attempt) {
			s.sandbox = &sandbox
		}
	}
	for _, c := range k.opts.Runtime.Containers() {
		if c.PodUID == string(p.object.UID) {
			s.runs = append(s.runs, c)
		}
	}
	return s
}

// newest returns the newest run of a container, and the one before it; nil if there is none.
func (s *state) newest(name string) (now, before *runtime.Container) {
	for i := range s.runs {
		c := &s.runs[i]
		switch {
		case c.Name != name:
		case now == nil || c.Attempt > now.Attempt:
			now, before = c, now
		case before == nil || c.Attempt > before.Attempt:
			before = c
		}
	}
	return now, before
}

func (s *state) isReady() bool {
	return s.sandbox != nil && s.sandbox.State == runtimeapi.PodSandboxState_SANDBOX_READY
}

// isCurrent reports whether a run is in the newest sandbox. Init containers run once in each.
func (s *state) isCurrent(c *runtime.Container) bool {
	return c != nil && s.sandbox != nil && c.SandboxID == s.sandbox.ID
}

func isRunning(c *runtime.Container) bool {
	return c != nil && c.State == runtimeapi.ContainerState_CONTAINER_RUNNING
}

func hasExited(c *runtime.Container) bool {
	return c != nil && c.State == runtimeapi.ContainerState_CONTAINER_EXITED
}

// nextStep returns what a pod needs next; nil: nothing now. The status is written before the next
// change is made.
func (k *Kubelet) nextStep(p *pod) *step {
	now, s := k.opts.Agenda.Now(), k.stateOf(p)
	if p.seenAt.IsZero() {
		p.seenAt, p.startTime = now, now
	}
	switch {
	case p.isOrphan:
		return k.stopStep(p, s)
	case p.isStatic && k.hasOrphan(p.object):
		return nil // of one name there is one pod
	case p.isStatic:
		if s := k.mirrorStep(p); s != nil {
			return s
		}
	}
	if w := k.postStartStep(p, s); w != nil {
		return w
	}
	if w := k.statusStep(p, s); w != nil {
		return w
	}
	switch {
	case p.object.DeletionTimestamp != nil:
		return k.stopStep(p, s)
	case k.hasEnded(p, s):
		return k.cleanUpStep(p, s)
	}
	if w := k.prepareStep(p, s); w != nil {
		return w
	}
	if w := k.resizeStep(p, s); w != nil {
		return w
	}
	if w := k.containersStep(p, s); w != nil {
		return w
	}
	return k.probeStep(p, s)
}

func (k *Kubelet) dir(p *pod) string { return k.opts.RootDir + "/pods/" + string(p.object.UID) }

func (k *Kubelet) logDir(p *pod) string {
	return k.opts.LogsDir + "/" + p.object.Namespace + "_" + p.object.Name + "_" +
		string(p.object.UID)
}

// mkdir, write and others are steps on files.
func mkdir(dir string, mode uint32) *step {
	return &step{"dir " + dir, world.PortFS, &world.MakeDir{Path: dir, Mode: mode}}
}

// prepareStep makes directories, the cgroup, the volumes and the sandbox.
func (k *Kubelet) prepareStep(p *pod, s *state) *step {
	dir := k.dir(p)
	if w := p.once(mkdir(dir, 0o750), mkdir(dir+"/volumes", 0o750), mkdir(dir+"/plugins", 0o750),
		k.idsStep(p), k.cgroupStep(p)); w != nil {
		return w
	}
	if w := k.volumeStep(p); w != nil {
		return w
	}
	if s.isReady() {
		return p.once(k.hostsStep(p, s))
	}
	attempt := uint32(0)
	if s.sandbox != nil {
		attempt = s.sandbox.Attempt + 1
	}
	if w := p.once(mkdir(k.logDir(p), 0o755)); w != nil {
		return w
	}
	return &step{"sandbox " + strconv.Itoa(int(attempt)), world.PortCRI,
		&runtimeapi.RunPodSandboxRequest{Config: k.sandboxConfig(p, attempt)}}
}

// ephemeral returns an ephemeral container, which runs once, and beside all others.
func ephemeral(spec *v1.PodSpec, i int) *v1.Container {
	return (*v1.Container)(&spec.EphemeralContainers[i].EphemeralContainerCommon)
}

func isEphemeral(spec *v1.PodSpec, name string) bool {
	return slices.ContainsFunc(spec.EphemeralContainers, func(c v1.EphemeralContainer) bool {
		return c.Name == name
	})
}

// containersStep starts what is to run next: init containers one by one, then all others. A sidecar
// has to have started before the next one.
func (k *Kubelet) containersStep(p *pod, s *state) *step {
	spec := &p.object.Spec
	for i := range spec.EphemeralContainers {
		if w := k.runStep(p, s, ephemeral(spec, i)); w != nil {
			return w
		}
	}
	initialized := false
	for i := range spec.Containers {
		c, _ := s.newest(spec.Containers[i].Name)
		initialized = initialized || s.isCurrent(c)
	}
	for i := range spec.InitContainers {
		c := &spec.InitContainers[i]
		now, _ := s.newest(c.Name)
		switch {
		case isSidecar(c):
			if w := k.runStep(p, s, c); w != nil || !initialized && !p.hasStarted(c, now) {
				return cmp.Or(w, k.probeStep(p, s))
			}
		case initialized || hasExited(now) && now.ExitCode == 0 && s.isCurrent(now):
		default:
			return cmp.Or(k.runStep(p, s, c), k.probeStep(p, s))
		}
	}
	for i := range spec.Containers {
		if w := k.runStep(p, s, &spec.Containers[i]); w != nil {
			return w
		}
	}
	return nil
}

func isSidecar(c *v1.Container) bool {
	return c.RestartPolicy != nil && *c.RestartPolicy == v1.ContainerRestartPolicyAlways
}

// restarts reports whether a container runs again after an exit.
func restarts(spec *v1.PodSpec, c *v1.Container, exitCode int32) bool {
	switch {
	case isEphemeral(spec, c.Name):
		return false
	case isSidecar(c) || spec.RestartPolicy == v1.RestartPolicyAlways && !isInit(spec, c):
		return true
	case spec.RestartPolicy == v1.RestartPolicyNever:
		return false
	}
	return exitCode != 0
}

func isInit(spec *v1.PodSpec, c *v1.Container) bool {
	return slices.ContainsFunc(spec.InitContainers, func(o v1.Container) bool {
		return o.Name == c.Name
	})
}

const (
	backoffFirst = 10 * time.Second
	backoffMost  = 5 * time.Minute
)

// waitsUntil returns until when a container that has exited waits for its restart.
func (p *pod) waitsUntil(c *runtime.Container) time.Time {
	return c.FinishedAt.Add(p.backoff[c.Name])
}

// runStep starts a container that does not run and is to, as soon as its back-off has ended.
func (k *Kubelet) runStep(p *pod, s *state, c *v1.Container) *step {
	now, before := s.newest(c.Name)
	attempt := uint32(0)
	switch {
	case isRunning(now):
		return p.once(k.linkStep(p, now))
	case now != nil && !hasExited(now): // created
		return &step{"start " + now.ID, world.PortCRI,
			&runtimeapi.StartContainerRequest{ContainerId: now.ID}}
	case now != nil && !restarts(&p.object.Spec, c, now.ExitCode) &&
		(s.isCurrent(now) || now.ExitCode != 0 || !isInit(&p.object.Spec, c)):
		return nil
	case now != nil && k.opts.Agenda.Now().Before(p.waitsUntil(now)):
		return nil
	case before != nil: // one that has ended is kept
		return k.removeStep(p, before)
	case now != nil:
		attempt = now.Attempt + 1
	}
	if w := k.imageStep(p, c.Image); w != nil {
		return w
	}
	run := c.Name + "/" + strconv.Itoa(int(attempt))
	if p.messages[run] == "" {
		p.messages[run] = k.messageFile(p, c, attempt)
	}
	if w := p.once(mkdir(k.logDir(p)+"/"+c.Name, 0o755),
		mkdir(path.Dir(p.messages[run]), 0o750),
		&step{"message " + run, world.PortFS, &world.WriteFile{Path: p.messages[run],
			Mode: 0o666, Volatile: true}}); w != nil {
		return w
	}
	if w := p.once(k.subPathSteps(p, c, run)...); w != nil {
		return w
	}
	sandbox := k.sandboxConfig(p, s.sandbox.Attempt)
	return &step{"create " + run, world.PortCRI, &runtimeapi.CreateContainerRequest{
		PodSandboxId: s.sandbox.ID, SandboxConfig: sandbox,
		Config: k.containerConfig(p, c, attempt, k.images[c.Image])}}
}

// removeStep removes a run with its log.
func (k *Kubelet) removeStep(p *pod, c *runtime.Container) *step {
	link := k.linkStep(p, c).body.(*world.MakeLink)
	if w := p.once(&step{"unlinked " + c.ID, world.PortFS, &world.RemoveTree{Path: link.Path}},
		&step{"log " + c.ID, world.PortFS, &world.RemoveTree{Path: link.Target}}); w != nil {
		return w
	}
	return &step{"remove " + c.ID, world.PortCRI,
		&runtimeapi.RemoveContainerRequest{ContainerId: c.ID}}
}

// complete records what a step has done.
func (k *Kubelet) complete(p *pod, key string, ev *world.Event) {
	kind, rest, _ := strings.Cut(key, " ")
	now := k.opts.Agenda.Now()
	if s := p.using; s != nil { // a step of a volume
		p.using, s.busy = nil, false
		s.done[key] = ev.Err == nil
		return
	}
	switch kind {
	case "probe":
		p.passed[rest] = succeeded(ev)
		return
	case "hook":
		p.hookEnded[rest] = now
		return
	}
	if k.completePull(p, kind, rest, ev); ev.Err != nil {
		return
	}
	p.done[key] = true
	if kind == "update" || kind == "resized" {
		p.noteResized(kind, rest)
	}
	switch body := ev.Body.(type) {
	case *runtimeapi.ImageStatusResponse:
		if body.Image != nil {
			k.images[rest] = body.Image.Id
			k.recallRecord(rest)
		}
	case *world.TokenCreated:
		p.tokens[rest] = body.Token
	case *runtimeapi.CreateContainerResponse:
		name, attempt, _ := strings.Cut(rest, "/")
		p.noteResized(kind, name)
		if attempt != "0" { // the first restart does not wait
			p.backoff[name] = min(backoffMost, max(backoffFirst, 2*p.backoff[name]))
		}
	}
}

// hasEnded reports whether no container of a pod will run again.
func (k *Kubelet) hasEnded(p *pod, s *state) bool {
	if p.endedBefore {
		return true
	}
	spec := &p.object.Spec
	for i := range spec.InitContainers {
		c := &spec.InitContainers[i]
		if now, _ := s.newest(c.Name); hasExited(now) && now.ExitCode != 0 &&
			!restarts(spec, c, now.ExitCode) {
			return true
		}
	}
	for i := range spec.Containers {
		now, _ := s.newest(spec.Containers[i].Name)
		if !hasExited(now) || restarts(spec, &spec.Containers[i], now.ExitCode) {
			return false
		}
	}
	return true
}

// probeStep runs the probe that is due.
func (k *Kubelet) probeStep(p *pod, s *state) *step {
	spec := &p.object.Spec
	for _, list := range [][]v1.Container{spec.InitContainers, spec.Containers} {
		for i := range list {
			c := &list[i]
			now, _ := s.newest(c.Name)
			if !isRunning(now) {
				continue
			}
			kinds := map[string]*v1.Probe{"startup": c.StartupProbe}
			if p.hasStarted(c, now) {
				kinds = map[string]*v1.Probe{"readiness": c.ReadinessProbe, "liveness": c.LivenessProbe}
			}
			for _, kind := range []string{"startup", "readiness", "liveness"} {
				if w := k.probeWhenDue(p, s, kinds[kind], kind+"/"+now.ID, now); w != nil {
					return w
				}
			}
		}
	}
	return nil
}

func (k *Kubelet) probeWhenDue(p *pod, s *state, probe *v1.Probe, key string,
	c *runtime.Container) *step {
	now := k.opts.Agenda.Now()
	if probe == nil || strings.HasPrefix(key, "startup/") && p.passed[key] {
		return nil
	}
	due := c.StartedAt.Add(time.Duration(probe.InitialDelaySeconds) * time.Second)
	if last := p.probedAt[key]; !last.IsZero() {
		due = last.Add(time.Duration(probe.PeriodSeconds) * time.Second)
	}
	if now.Before(due) {
		return nil
	}
	p.probedAt[key] = now
	return k.handlerStep("probe "+key, s, c.ID, probe.Exec, probe.HTTPGet,
		int64(probe.TimeoutSeconds))
}

// postStartStep runs the postStart hook of a container that has been started. The pod gets nothing
// else meanwhile, not even a status. A kubelet that ends within a hook never runs it again: its
// next life finds a running container (startContainer in pkg/kubelet/kuberuntime).
func (k *Kubelet) postStartStep(p *pod, s *state) *step {
	for _, list := range [][]v1.Container{p.object.Spec.InitContainers, p.object.Spec.Containers} {
		for i := range list {
			hook := list[i].Lifecycle
			now, _ := s.newest(list[i].Name)
			if hook == nil || hook.PostStart == nil || !isRunning(now) {
				continue
			}
			if key := "after " + now.ID; p.hookEnded[key].IsZero() {
				return k.handlerStep("hook "+key, s, now.ID, hook.PostStart.Exec, hook.PostStart.HTTPGet, 0)
			}
		}
	}
	return nil
}

// handlerStep runs the command of a probe or hook in a container, or sends its request.
func (k *Kubelet) handlerStep(key string, s *state, id string, exec *v1.ExecAction,
	get *v1.HTTPGetAction, seconds int64) *step {
	if exec != nil {
		return &step{key, world.PortCRI, &runtimeapi.ExecSyncRequest{ContainerId: id,
			Cmd: exec.Command, Timeout: seconds}}
	}
	return &step{key, world.PortNetwork, &world.HTTPGet{Scheme: "http", Host: k.address(s),
		Port: get.Port.IntVal, Path: get.Path}}
}

func (k *Kubelet) address(s *state) string {
	if s.sandbox == nil || s.sandbox.IP == "" {
		return k.opts.IP
	}
	return s.sandbox.IP
}

func succeeded(ev *world.Event) bool {
	switch body := ev.Body.(type) {
	case *runtimeapi.ExecSyncResponse:
		return ev.Err == nil && body.ExitCode == 0
	case *world.HTTPGot:
		return ev.Err == nil && body.Status >= 200 && body.Status < 400
	}
	return false
}

// hasStarted reports whether a run has started, by its startup probe.
func (p *pod) hasStarted(c *v1.Container, run *runtime.Container) bool {
	return isRunning(run) && (c.StartupProbe == nil || p.passed["startup/"+run.ID])
}

func (p *pod) isReady(c *v1.Container, run *runtime.Container) bool {
	return p.hasStarted(c, run) && (c.ReadinessProbe == nil || p.passed["readiness/"+run.ID])
}
