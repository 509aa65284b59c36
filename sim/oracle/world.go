package oracle

import (
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"

	"seedlet.dev/sim/truth"
)

// world is what is true: what is wanted, what runs, and what is on the disk. Oracles read it and
// never change it.
type world struct {
	opts       Options
	pods       map[string]*pod // by UID; whatever was wanted or had anything
	order      []*pod          // the same, in order of appearance
	names      map[string]*fullName
	sandboxes  map[string]*sandbox
	containers map[string]*container
	links      map[string]*container   // by the names of the links to their logs
	cgroups    map[string]truth.Limits // by directory
	objects    objects                 // of the API server
	critical   []*pod                  // for which others make room
	started    time.Time               // the agent's last start
	dead       bool                    // the agent
	healed     time.Time               // zero: not yet
	now        time.Time
	sources    sources // what volumes hold of them
	tellings   tellings
	clients    clients

	sandboxesTold, containersTold time.Time // when the agent was last told all of them
}

// fullName is what no two pods that run may share.
type fullName struct {
	text string // NAMESPACE/NAME
	pods []*pod
}

// sandbox is one that exists, ready or not.
type sandbox struct {
	id      string
	pod     *pod
	attempt uint32
	ready   bool
	cgroup  string // the directory
	ids     truth.IDs
	round   int      // the newest of which anything was started in it; what follows is of that
	began   []string // containers that were started in it
	passed  []string // containers whose startup probe may have succeeded in it
	ended   []string // containers of which a run in it has ended with exit code 0
}

func newWorld(opts Options) *world {
	if opts.BackoffMax <= 0 {
		opts.BackoffMax = 300 * time.Second
	}
	return &world{
		opts: opts, pods: map[string]*pod{}, names: map[string]*fullName{},
		sandboxes: map[string]*sandbox{}, containers: map[string]*container{},
		links:   map[string]*container{},
		cgroups: map[string]truth.Limits{}, objects: newObjects(),
		tellings: newTellings(), clients: newClients(),
	}
}

// take brings the world up to date.
func (w *world) take(f *truth.Fact) {
	w.now = f.Time
	switch f.Kind {
	case truth.SandboxCreated, truth.SandboxReady, truth.SandboxStopped, truth.SandboxRemoved:
		w.takeSandbox(f)
	case truth.ContainerCreated, truth.ContainerStarted, truth.ContainerExited,
		truth.ContainerRemoved, truth.ContainerLost, truth.ContainerFound, truth.StopRequested:
		w.takeContainer(f)
	case truth.Asked, truth.Replied:
		w.takeAsked(f)
	case truth.TokenMade:
		w.sources.take(f)
	case truth.CgroupMade:
		w.cgroups[f.Path] = f.Limits
	case truth.CgroupRemoved:
		w.cgroupRemoved(f.Path)
	case truth.ObjectMade, truth.ObjectWritten, truth.ObjectRemoved:
		w.sources.take(f)
		w.takeObject(f)
	case truth.PathMade, truth.PathWritten:
		w.pathMade(f.Path)
	case truth.PathRemoved:
		w.pathRemoved(f.Path)
	case truth.PowerLost: // what was made or removed lately may never have been
		for _, p := range w.order {
			p.powerLost = true
		}
		w.pathRemoved("/")
	}
	w.clients.take(f)
	w.measured(f)
	w.tellings.take(f, w.started)
}

func (w *world) takeSandbox(f *truth.Fact) {
	s := w.sandboxes[f.SandboxID]
	if s == nil {
		s = &sandbox{id: f.SandboxID, pod: w.podOf(f), attempt: f.Attempt, cgroup: f.Cgroup,
			ids: f.IDs}
		w.sandboxes[s.id] = s
		s.pod.sandboxes = append(s.pod.sandboxes, s)
	}
	s.pod.changed = f.Time
	switch f.Kind {
	case truth.SandboxReady:
		s.ready = true
	case truth.SandboxStopped:
		s.ready = false
	case truth.SandboxRemoved:
		delete(w.sandboxes, s.id)
		s.pod.dropSandbox(s)
		if f.Cause == truth.CauseUser {
			s.pod.removeByHand()
		}
	}
}

func (w *world) takeContainer(f *truth.Fact) {
	c := w.containers[f.ContainerID]
	if c == nil {
		c = w.newContainer(f)
		w.containers[c.id], w.links[c.link] = c, c
		c.pod.containers = append(c.pod.containers, c)
		w.objects.made[c.id] = maker{f.PodUID, c.full}
	}
	c.pod.changed = f.Time
	switch f.Kind {
	case truth.ContainerStarted:
		c.start(f.Time)
	case truth.ContainerExited:
		c.exit(f)
	case truth.ContainerLost:
		c.lost = true
	case truth.ContainerRemoved:
		delete(w.containers, c.id)
		delete(w.links, c.link)
		c.pod.dropContainer(c)
	case truth.StopRequested:
		if c.stopAt.IsZero() {
			c.stopAt, c.stopGrace = f.Time, f.GraceSeconds
		}
		w.killBegins(c, "StopContainer", f.Time)
		if c.pod.spec == nil && c.pod.ending.IsZero() && c.asksNothing() {
			c.pod.ending = c.killBegan
		}
	}
}

// podOf is the pod that a fact is about.
func (w *world) podOf(f *truth.Fact) *pod {
	p := w.pod(f.PodUID)
	w.name(p, f.PodNamespace, f.PodName)
	return p
}

func (w *world) pod(uid string) *pod {
	p := w.pods[uid]
	if p == nil {
		p = &pod{uid: uid, world: w, history: map[string]*history{}}
		w.pods[uid] = p
		w.order = append(w.order, p)
	}
	return p
}

// name gives a pod its full name, if it has none.
func (w *world) name(p *pod, namespace, name string) {
	w.clients.called[called{p.uid, namespace + "/" + name}] = true
	if p.full != nil {
		return
	}
	text := namespace + "/" + name
	full := w.names[text]
	if full == nil {
		full = &fullName{text: text}
		w.names[text] = full
	}
	full.pods = append(full.pods, p)
	p.full = full
}

// want takes that a manifest wants a pod.
func (w *world) want(now time.Time, spec *v1.Pod) {
	p := w.pod(string(spec.UID))
	if p.full != nil && p.full.text != spec.Namespace+"/"+spec.Name {
		p.full.pods = slices.DeleteFunc(p.full.pods, func(o *pod) bool { return o == p })
		p.full = nil // its UID is given to another name
	}
	w.name(p, spec.Namespace, spec.Name)
	p.want(now, spec)
}

func (w *world) unwant(now time.Time, uid string) {
	if p := w.pods[uid]; p != nil {
		p.unwant(now)
	}
}

// agentStarted begins a life of the agent. It cannot know that its predecessor was about to end a
// container that is still wanted.
func (w *world) agentStarted(now time.Time) {
	w.started, w.dead = now, false
	for _, p := range w.order {
		if p.byHand {
			p.uncounted = true
		}
		for _, c := range p.containers {
			if p.spec != nil {
				c.killBegan = time.Time{}
			}
		}
	}
}

// agentKilled ends a life: what was counted is forgotten, what was shown is not.
func (w *world) agentKilled(now time.Time) {
	w.dead = true
	for _, p := range w.order {
		for _, c := range p.containers {
			for _, a := range c.asks {
				switch {
				case a.probe == nil:
				case a.purpose != forReadiness || c.ready != good || w.struckAny(c.startedAt, now,
					keptBy...):
					a.standing.forget(now, undecided, c.ready)
				default:
					a.standing.forget(now, c.ready)
				}
			}
		}
	}
}

// heal begins the time in which everything has to come right.
func (w *world) heal(now time.Time) {
	w.healed = now
	for _, p := range w.order {
		p.confirmed, p.complaint = false, ""
	}
}

func (w *world) pathMade(path string) {
	p, dir := w.ownerOf(path)
	if p == nil {
		return
	}
	for _, have := range p.dirs {
		if have == dir {
			return
		}
	}
	p.dirs = append(p.dirs, dir)
}

func (w *world) pathRemoved(path string) {
	if p, dir := w.ownerOf(path); p != nil {
		if dir == path {
			p.dropDir(dir)
		}
		return
	}
	for _, p := range w.order {
		for i := len(p.dirs) - 1; i >= 0; i-- {
			if within(p.dirs[i], path) {
				p.dropDir(p.dirs[i])
			}
		}
	}
}

// ownerOf is the pod whose directory, or directory of logs, a path is or lies below; nil if it is
// in neither.
func (w *world) ownerOf(path string) (*pod, string) {
	if uid, is := childOf(w.opts.PodsDir, path); is {
		return w.pod(uid), w.opts.PodsDir + "/" + uid
	}
	if name, is := childOf(w.opts.LogsDir, path); is {
		if _, uid, is := cutLast(name, "_"); is {
			return w.pod(uid), w.opts.LogsDir + "/" + name
		}
	}
	return nil, ""
}

// childOf is the first name of a path below a directory.
func childOf(dir, path string) (string, bool) {
	rest, is := strings.CutPrefix(path, dir)
	if !is || dir == "" || len(rest) < 2 || rest[0] != '/' {
		return "", false
	}
	name, _, _ := strings.Cut(rest[1:], "/")
	return name, name != ""
}

func cutLast(s, sep string) (before, after string, found bool) {
	if i := strings.LastIndex(s, sep); i >= 0 {
		return s[:i], s[i+len(sep):], true
	}
	return s, "", false
}

// within says whether a path is another one or lies below it.
func within(path, above string) bool {
	return path == above || above == "/" ||
		len(path) > len(above) && path[len(above)] == '/' && strings.HasPrefix(path, above)
}
