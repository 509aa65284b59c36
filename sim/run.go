package sim

import (
	"fmt"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
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
	plan    *PlanSpec
	opts    Options
	agenda  *agenda.Agenda
	fates   *fates
	runtime *runtime.Runtime
	disk    *disk.Disk
	panel   *oracle.Panel
	options core.Options

	life     *life // nil while the agent is dead
	lives    int
	hash     rolling
	events   uint64
	effects  uint64
	restarts int
	second   time.Time // the virtual second that inSecond counts
	inSecond int       // effects in it
	healed   bool
	failure  *Failure
	state    []byte
	stopped  bool
	manifest manifests
	shown    []*v1.Pod // by the API, last
}

// Run executes a plan.
func Run(plan *Plan, opts Options) (*Verdict, error) {
	r, err := newRun(plan, opts)
	if err != nil {
		return nil, err
	}
	r.schedule()
	end := Start.Add(time.Duration(r.plan.Duration))
	r.runUntil(end)
	if !r.over() {
		r.heal()
		r.settle(end.Add(time.Duration(r.plan.Settle)))
	}
	if !r.over() {
		r.expect()
	}
	return &Verdict{
		Failure: r.failure, Hash: r.hash.sum(), Events: r.events, Effects: r.effects,
		Lives: r.lives, Restarts: r.restarts, Virtual: r.agenda.Now().Sub(Start),
		State: r.state,
	}, nil
}

func newRun(plan *Plan, opts Options) (*run, error) {
	if err := plan.Validate(); err != nil {
		return nil, err
	}
	spec := &plan.Spec
	config, err := kubelet(spec.Node.Config)
	if err != nil {
		return nil, err
	}
	r := &run{plan: spec, opts: opts, agenda: agenda.New(Start, spec.Seed)}
	r.fates = newFates(spec, Start)
	log := &truth.Log{}
	backoffMax := 300 * time.Second
	if m := config.CrashLoopBackOff.MaxContainerRestartPeriod; m != nil {
		backoffMax = m.Duration
	}
	r.panel = oracle.NewPanel(oracle.Options{
		NodeName: nodeName, PodsDir: rootDir + "/pods", LogsDir: config.PodLogsDir,
		BackoffMax: backoffMax,
	})
	log.Subscribe(r.panel.Fact)
	log.Subscribe(r.countRestarts)
	r.disk = disk.New(disk.Options{
		Agenda: r.agenda, Truth: log, Seed: spec.Seed, Faults: r.fates,
	})
	r.runtime = runtime.New(runtime.Options{
		Agenda: r.agenda, Truth: log, Seed: spec.Seed, Faults: r.fates,
		Behaviour: newBehaviours(spec).script, Images: newImages(spec).image,
		LogFile: func(path string) { r.disk.Write(path, nil) },
	})
	r.options = core.Options{
		Config: config, NodeName: nodeName, RootDir: rootDir, ManifestPath: manifestDir,
	}
	r.manifest = newManifests(r)
	return r, nil
}

func (r *run) countRestarts(f truth.Fact) {
	if f.Kind == truth.ContainerStarted && f.Attempt > 0 {
		r.restarts++
	}
}

// schedule puts everything that the plan has happen on the agenda.
func (r *run) schedule() {
	for i := range r.plan.Manifests {
		c := &r.plan.Manifests[i]
		if c.At == 0 {
			r.manifest.change(c) // it is there before the agent boots
			continue
		}
		r.at(c.At, func() { r.manifest.change(c) })
	}
	r.scheduleStrikes()
	r.boot()
	r.ask()
}

// scheduleStrikes puts what is ended from outside on the agenda.
func (r *run) scheduleStrikes() {
	for _, k := range r.plan.AgentKills {
		if k.AfterEffects == 0 {
			r.at(k.At, func() { r.kill(k.Down) })
		}
	}
	for _, e := range r.plan.RuntimeEnds {
		r.at(e.At, func() { r.runtime.Restart(time.Duration(e.Down)) })
	}
	for _, k := range r.plan.Kills {
		r.at(k.At, func() { r.killContainer(k) })
	}
	for _, k := range r.plan.Sandboxes {
		r.at(k.At, func() { r.killSandbox(k) })
	}
	for _, w := range r.plan.Faults {
		if w.Class == ClassDiskFull {
			r.at(w.At, func() { r.disk.SetFull(true) })
			r.at(w.At+w.For, func() { r.disk.SetFull(false) })
		}
	}
}

func (r *run) at(d Duration, do func()) { r.agenda.At(Start.Add(time.Duration(d)), do) }

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
		Virtual: r.agenda.Now().Sub(Start), Event: r.events}
}

// heal ends everything that goes wrong.
func (r *run) heal() {
	r.healed = true
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

// expect checks what the scenario demands besides, by what the API has shown last.
func (r *run) expect() {
	for _, e := range r.plan.Expect {
		for _, pod := range r.shown {
			if !strings.HasPrefix(pod.Name, e.Pods) || pod.DeletionTimestamp != nil {
				continue
			}
			if e.Phase != "" && string(pod.Status.Phase) != e.Phase {
				r.fail("expect", fmt.Sprintf("pod %s is %s, the scenario expects %s",
					pod.Name, pod.Status.Phase, e.Phase))
			}
			restarts := 0
			for _, c := range pod.Status.ContainerStatuses {
				restarts += int(c.RestartCount)
			}
			if restarts < e.RestartsAtLeast {
				r.fail("expect", fmt.Sprintf("pod %s was restarted %d times, the scenario "+
					"expects at least %d", pod.Name, restarts, e.RestartsAtLeast))
			}
		}
	}
}

// ask has the pods shown every few seconds, as a dashboard would.
func (r *run) ask() {
	rng := wire.Stream(r.plan.Seed, "requests")
	var again func()
	id := world.RequestID(0)
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
		r.shown = body.Pods
		r.panel.Answer(r.agenda.Now(), body.Pods)
	}
}

// killContainer ends the process of a container of a pod, whichever of that name runs.
func (r *run) killContainer(k Kill) {
	for _, c := range r.runtime.Containers() {
		if c.State == runtimeapi.ContainerState_CONTAINER_RUNNING && c.Name == k.Container &&
			manifestName(c.PodName) == k.Pod {
			r.runtime.Kill(c.PodUID, c.Name, truth.CauseKilled, k.ExitCode)
			return
		}
	}
}

func (r *run) killSandbox(k SandboxKill) {
	for _, s := range r.runtime.Sandboxes() {
		if s.State == runtimeapi.PodSandboxState_SANDBOX_READY &&
			manifestName(s.PodName) == k.Pod {
			r.runtime.KillSandbox(s.ID)
			return
		}
	}
}

// manifestName is the name that a pod has in its manifest.
func manifestName(pod string) string { return strings.TrimSuffix(pod, "-"+nodeName) }

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
	for _, k := range r.plan.AgentKills {
		if k.AfterEffects > 0 && uint64(k.AfterEffects) == r.effects && !r.healed {
			r.kill(k.Down)
		}
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
func (r *run) kill(down Duration) {
	if r.life == nil {
		return
	}
	r.life = nil
	r.runtime.Disconnect()
	r.disk.Disconnect()
	r.panel.AgentKilled(r.agenda.Now())
	r.agenda.After(time.Duration(down), r.boot)
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
	for turns := 0; r.life == l && !r.over() && l.loop.Turn(r.agenda.Now()); turns++ {
		if turns > turnsMax {
			r.fail("busy", fmt.Sprintf("the agent wants to be called more than %d times at one "+
				"instant", turnsMax))
		}
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

// turnsMax and effectsPerPodMax bound what the agent may do without time going by, and in one
// second for each pod there is: an agent that goes in circles is found even if nothing else of it
// is wrong.
const (
	turnsMax         = 1000
	effectsPerPodMax = 60
)

// countEffects fails a run in which the agent does far more than there can be to do.
func (r *run) countEffects(effects int) {
	if second := r.agenda.Now().Truncate(time.Second); !second.Equal(r.second) {
		r.second, r.inSecond = second, 0
	}
	r.inSecond += effects
	if most := effectsPerPodMax * (1 + len(r.plan.Pods)); r.inSecond > most {
		r.fail("busy", fmt.Sprintf("more than %d effects in one second", most))
	}
}

// observe sees every step of the agent.
func (r *run) observe(l *life, ev world.Event, effects []world.Effect) {
	r.events++
	r.countEffects(len(effects))
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
