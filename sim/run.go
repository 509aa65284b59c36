package sim

import (
	"fmt"
	"sort"
	"strings"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"seedlet.dev/core"
	"seedlet.dev/sim/agenda"
	"seedlet.dev/sim/disk"
	"seedlet.dev/sim/oracle"
	"seedlet.dev/sim/runtime"
	"seedlet.dev/sim/truth"
	"seedlet.dev/sim/wire"
	"seedlet.dev/world"
	"seedlet.dev/world/loop"
)

// Where things are in the simulated world.
const (
	nodeName    = "node-1"
	rootDir     = "/var/lib/kubelet"
	manifestDir = "/etc/kubernetes/manifests"
)

// Start is when every run begins.
var Start = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// Options are how a run is watched. The zero value watches nothing.
type Options struct {
	// Watch sees every step. Only the run's own verdict and hash come from it otherwise.
	Watch func(Step)
	// RestoreAfter, if not nil, says after which events the agent is replaced by one restored
	// from its snapshot. The run must go on as if nothing had happened.
	RestoreAfter func(event uint64) bool
	// Until stops the run after that event, and Verdict.State is the agent's snapshot then.
	Until uint64
}

// Step is one step of the agent, as seen from outside. The effects are valid during the call.
type Step struct {
	Number  uint64 // of the event, counted over all lives
	Life    int
	Event   world.Event
	Effects []world.Effect
	Hash    uint64 // of everything up to and including this step
	Agent   *core.Agent
}

// Verdict is what became of a run.
type Verdict struct {
	Failure  *Failure      // nil if everything held
	Hash     uint64        // of every event and effect
	Events   uint64        // taken by the agent
	Effects  uint64        // handed out by it
	Lives    int           // of the agent
	Restarts int           // of containers
	Virtual  time.Duration // how long the run took by its own clock
	State    []byte        // with Options.Until: the snapshot after that event
}

// Failure is the first thing that did not hold.
type Failure struct {
	Oracle  string
	Message string
	Virtual time.Duration // since the start
	Event   uint64        // the newest event at that time
}

// progress is the name under which a run fails that does not come right after the faults.
const progress = "progress"

// quietFor is how long everything has to stay right before a run ends well.
const quietFor = 15 * time.Second

// run is a run under way.
type run struct {
	plan    *Plan
	opts    Options
	agenda  *agenda.Agenda
	fates   *fates
	runtime *runtime.Runtime
	disk    *disk.Disk
	panel   *oracle.Panel
	options core.Options

	life    *life // nil while the agent is dead
	lives   int
	cut     int // effects until the agent is killed; negative if it is not to be
	cutDown time.Duration

	hash     rolling
	events   uint64
	effects  uint64
	restarts int
	healed   bool
	failure  *Failure
	state    []byte
	stopped  bool
	manifest manifests
}

// Run executes a plan.
func Run(plan *Plan, opts Options) (*Verdict, error) {
	r, err := newRun(plan, opts)
	if err != nil {
		return nil, err
	}
	r.schedule()
	end := Start.Add(plan.Duration.Duration)
	r.runUntil(end)
	if !r.over() {
		r.heal()
		r.settle(end.Add(plan.Settle.Duration))
	}
	if !r.over() {
		r.expect()
	}
	return &Verdict{
		Failure: r.failure, Hash: r.hash.sum(), Events: r.events, Effects: r.effects,
		Lives: r.lives, Restarts: r.restarts, Virtual: since(Start, r.agenda.Now()),
		State: r.state,
	}, nil
}

func newRun(plan *Plan, opts Options) (*run, error) {
	config, err := nodeConfig(plan.Node)
	if err != nil {
		return nil, err
	}
	r := &run{plan: plan, opts: opts, agenda: agenda.New(Start, plan.Seed), cut: -1}
	r.fates = newFates(plan, Start)
	log := &truth.Log{}
	r.panel = oracle.NewPanel(oracle.Options{
		NodeName: nodeName, PodsDir: rootDir + "/pods", LogsDir: config.PodLogsDir,
		BackoffMax: backoffMax(config),
	})
	log.Subscribe(r.panel.Fact)
	log.Subscribe(r.countRestarts)
	r.disk = disk.New(disk.Options{
		Agenda: r.agenda, Truth: log, Seed: plan.Seed, Faults: r.fates,
	})
	r.runtime = runtime.New(runtime.Options{
		Agenda: r.agenda, Truth: log, Seed: plan.Seed, Faults: r.fates,
		Behaviour: newBehaviours(plan).script, LogFile: func(path string) { r.disk.Write(path, nil) },
	})
	r.options = core.Options{
		Config: config, NodeName: nodeName, RootDir: rootDir, ManifestPath: manifestDir,
	}
	r.manifest = manifests{run: r, uids: map[string]string{}}
	return r, r.manifest.check()
}

func (r *run) countRestarts(f truth.Fact) {
	if f.Kind == truth.ContainerStarted && f.Attempt > 0 {
		r.restarts++
	}
}

// schedule puts everything that the plan has happen on the agenda.
func (r *run) schedule() {
	for i := range r.plan.Writes {
		w := &r.plan.Writes[i]
		if w.At.Duration == 0 {
			r.manifest.write(w) // it is there before the agent boots
			continue
		}
		r.at(w.At.Duration, func() { r.manifest.write(w) })
	}
	for i := range r.plan.Mishaps {
		m := &r.plan.Mishaps[i]
		r.at(m.At.Duration, func() { r.befall(m) })
	}
	r.boot()
	r.ask(0)
}

func (r *run) at(d time.Duration, do func()) { r.agenda.At(Start.Add(d), do) }

// over says whether the run has come to its end before its time.
func (r *run) over() bool { return r.failure != nil || r.stopped }

func (r *run) runUntil(t time.Time) {
	for !r.over() {
		next, ok := r.agenda.Next()
		if !ok || next.After(t) {
			return
		}
		r.agenda.Run()
		r.judge()
	}
}

// judge ends the run at the first violation.
func (r *run) judge() {
	if violations := r.panel.Violations(); len(violations) > 0 && r.failure == nil {
		r.fail(violations[0].Oracle, violations[0].Message)
	}
}

func (r *run) fail(oracle, message string) {
	if r.failure != nil {
		return
	}
	r.failure = &Failure{Oracle: oracle, Message: message,
		Virtual: since(Start, r.agenda.Now()), Event: r.events}
}

// heal ends everything that goes wrong.
func (r *run) heal() {
	r.healed, r.cut = true, -1
	r.disk.SetFull(false)
	if r.life == nil {
		r.boot()
	}
	r.panel.Healed(r.agenda.Now())
}

// settle waits until everything is as it should be, and stays so for a while.
func (r *run) settle(bound time.Time) {
	var good time.Time // since when nothing is wrong
	for !r.over() {
		now := r.agenda.Now()
		wrong := r.panel.Unsettled(now)
		switch {
		case len(wrong) > 0:
			good = time.Time{}
		case good.IsZero():
			good = now
		case now.Sub(good) >= quietFor:
			return
		}
		if now.After(bound) {
			if len(wrong) > 0 {
				r.fail(progress, "not as it should be: "+strings.Join(first(wrong, 4), "; "))
			}
			return
		}
		r.agenda.At(now.Add(time.Second), func() {})
		r.runUntil(now.Add(time.Second))
	}
}

func first(lines []string, n int) []string {
	if len(lines) <= n {
		return lines
	}
	return append(lines[:n:n], fmt.Sprintf("and %d more", len(lines)-n))
}

// expect checks what the scenario demands besides.
func (r *run) expect() {
	if want := r.plan.Expect.AgentStarts; r.lives < want {
		r.fail("expect", fmt.Sprintf("the agent was started %d times, want at least %d",
			r.lives, want))
	}
	if want := r.plan.Expect.Restarts; r.restarts < want {
		r.fail("expect", fmt.Sprintf("containers were restarted %d times, want at least %d",
			r.restarts, want))
	}
}

// ask has the pods shown every few seconds, as a dashboard would.
func (r *run) ask(n int) {
	rng := wire.Stream(r.plan.Seed, "requests")
	var again func()
	id := world.RequestID(n)
	again = func() {
		id++
		r.offer(world.Event{Body: &world.PodsRequest{Request: id}})
		r.agenda.After(2*time.Second+time.Duration(rng.Int64N(int64(5*time.Second))), again)
	}
	r.agenda.After(time.Second, again)
}

// answered takes what the agent answers to requests.
func (r *run) answered(eff world.Effect) {
	if body, ok := eff.Body.(*world.PodsAnswer); ok {
		r.panel.Answer(r.agenda.Now(), body.Pods)
	}
}

// befall has a mishap happen. The victim is picked among what there is.
func (r *run) befall(m *Mishap) {
	switch m.Class {
	case FaultAgentKill:
		r.kill(m.Takes.Duration)
	case FaultAgentCut:
		r.cut, r.cutDown = m.Nth, m.Takes.Duration
	case FaultRuntimeRestart:
		r.runtime.Restart(m.Takes.Duration)
	case FaultDiskFull:
		r.disk.SetFull(true)
		r.agenda.After(m.Takes.Duration, func() { r.disk.SetFull(false) })
	case FaultContainerKill:
		r.killContainer(m)
	case FaultSandboxKill:
		if ready := r.readySandboxes(); len(ready) > 0 {
			r.runtime.KillSandbox(ready[m.Nth%len(ready)])
		}
	}
}

func (r *run) killContainer(m *Mishap) {
	var running []runtime.Container
	for _, c := range r.runtime.Containers() {
		if c.State == runtimeapi.ContainerState_CONTAINER_RUNNING {
			running = append(running, c)
		}
	}
	sort.SliceStable(running, func(i, j int) bool { // by name: ids depend on the order of things
		a, b := running[i], running[j]
		return a.PodName+"/"+a.Name+a.PodUID < b.PodName+"/"+b.Name+b.PodUID
	})
	if len(running) > 0 {
		c := running[m.Nth%len(running)]
		r.runtime.Kill(c.PodUID, c.Name, truth.CauseKilled, m.ExitCode)
	}
}

func (r *run) readySandboxes() []string {
	var ready []string
	for _, s := range r.runtime.Sandboxes() {
		if s.State == runtimeapi.PodSandboxState_SANDBOX_READY {
			ready = append(ready, s.ID)
		}
	}
	return ready
}

// life is one life of the agent.
type life struct {
	number int
	agent  *core.Agent
	loop   *loop.Loop
	wakeAt time.Time // when the earliest tick on the agenda is
}

// Step and NextWake make a life the core of its own loop, so that the agent in it can be replaced.
func (l *life) Step(ev world.Event) []world.Effect { return l.agent.Step(ev) }

// NextWake implements world.Core.
func (l *life) NextWake() time.Time { return l.agent.NextWake() }

// gate carries out the effects of one life until the agent is killed.
type gate struct {
	run  *run
	life *life
	do   func(world.Effect)
}

// Do implements world.Port.
func (g *gate) Do(eff world.Effect) {
	r := g.run
	if r.life != g.life {
		return // the agent was killed before it came to this effect
	}
	r.effects++
	g.do(eff)
	if r.cut < 0 {
		return
	}
	if r.cut--; r.cut < 0 {
		r.kill(r.cutDown)
	}
}

// boot begins a life of the agent.
func (r *run) boot() {
	if r.life != nil {
		return
	}
	r.lives++
	l := &life{number: r.lives, agent: core.New(r.options)}
	port := func(do func(world.Effect)) world.Port { return &gate{r, l, do} }
	l.loop = loop.New(loop.Options{
		Core: l,
		Ports: map[world.PortName]world.Port{
			world.PortCRI:      port(r.runtime.Do),
			world.PortFS:       port(r.disk.Do),
			world.PortRequests: port(r.answered),
			world.PortLog:      port(func(world.Effect) {}),
		},
		Observe: func(ev world.Event, effects []world.Effect) { r.observe(l, ev, effects) },
	})
	r.life = l
	r.runtime.Connect(r.offer)
	r.disk.Connect(r.offer)
	r.panel.AgentStarted(r.agenda.Now())
	r.offer(world.Event{Body: &world.Boot{
		Seed: r.plan.Seed + uint64(r.lives), BootID: "boot-1", Hostname: nodeName,
		CPUs: 4, MemoryBytes: 16 << 30,
	}})
}

// kill ends the agent at once, as SIGKILL does, and starts it again after a while.
func (r *run) kill(down time.Duration) {
	if r.life == nil {
		return
	}
	r.life, r.cut = nil, -1
	r.runtime.Disconnect()
	r.disk.Disconnect()
	r.panel.AgentKilled(r.agenda.Now())
	r.agenda.After(down, r.boot)
}

// offer brings an event to the agent that lives now, and lets it work.
func (r *run) offer(ev world.Event) {
	if r.life == nil || r.over() {
		return
	}
	l := r.life
	if !l.loop.Offer(ev) {
		r.fail("bounds", "the inbox is full")
	}
	r.turn(l)
}

// turn lets a life work until it has nothing to do, and sees that it is woken.
func (r *run) turn(l *life) {
	defer r.caught()
	for r.life == l && !r.over() && l.loop.Turn(r.agenda.Now()) {
	}
	wake := l.loop.Wake()
	if r.life != l || wake.IsZero() || !l.wakeAt.IsZero() && !wake.Before(l.wakeAt) {
		return
	}
	l.wakeAt = wake
	r.agenda.At(wake, func() {
		if r.life == l && l.wakeAt.Equal(wake) {
			l.wakeAt = time.Time{}
			r.turn(l)
		}
	})
}

// caught makes a broken invariant of the core a failure of the run.
func (r *run) caught() {
	if broken := recover(); broken != nil {
		r.fail("panic", fmt.Sprint(broken))
	}
}

// observe sees every step of the agent.
func (r *run) observe(l *life, ev world.Event, effects []world.Effect) {
	r.events++
	r.hash.step(l.number, ev, effects)
	if r.opts.Watch != nil {
		r.opts.Watch(Step{Number: r.events, Life: l.number, Event: ev, Effects: effects,
			Hash: r.hash.sum(), Agent: l.agent})
	}
	if r.opts.RestoreAfter != nil && r.opts.RestoreAfter(r.events) {
		l.agent = restored(l.agent)
	}
	if r.opts.Until != 0 && r.events == r.opts.Until {
		r.stopped = true
		state, err := l.agent.Snapshot()
		if err != nil {
			panic(err)
		}
		r.state = state
	}
}

func restored(a *core.Agent) *core.Agent {
	data, err := a.Snapshot()
	if err != nil {
		panic("snapshot: " + err.Error())
	}
	again, err := core.Restore(data)
	if err != nil {
		panic("restore: " + err.Error())
	}
	return again
}
