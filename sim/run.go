package sim

import (
	"iter"
	"time"

	v1 "k8s.io/api/core/v1"
	kubeletconfig "k8s.io/kubelet/config/v1beta1"

	"seedlet.dev/core"
	"seedlet.dev/core/config"
	corelogs "seedlet.dev/core/logs"
	"seedlet.dev/core/object"
	"seedlet.dev/sim/agenda"
	"seedlet.dev/sim/apiserver"
	"seedlet.dev/sim/disk"
	"seedlet.dev/sim/host"
	"seedlet.dev/sim/network"
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
	network *network.Network
	host    *host.Host
	server  *apiserver.Server // nil if the node has none
	truth   *truth.Log
	panel   *oracle.Panel
	options core.Options
	limits  loop.Limits // of each life

	life     *life // nil while the agent is dead
	lives    int
	boots    int // of the machine, after the first
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
	odd      odd
	shown    []*v1.Pod // by the API, last
	prompt   prompt

	controllers controllers // of the cluster
	clients     clients
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
	kubelet, err := kubeletConfig(spec.Node.Config)
	if err != nil {
		return nil, err
	}
	r := &run{plan: spec, opts: opts, agenda: agenda.New(Start, spec.Seed), prompt: newPrompt()}
	if r.limits, err = spec.Node.limits(); err != nil {
		return nil, err
	}
	r.fates = newFates(spec, Start)
	log, rotation := &truth.Log{}, corelogs.NewRotation(kubelet)
	registry := newImages(spec)
	r.panel = oracle.NewPanel(oracle.Options{
		NodeName: nodeName, PodsDir: rootDir + "/pods", LogsDir: kubelet.PodLogsDir,
		BackoffMax: config.BackoffMax(kubelet), Evented: kubelet.FeatureGates["EventedPLEG"],
		LinksDir: corelogs.LinksDirDefault, LogBytesMax: rotation.BytesMax,
		LogFilesMax: rotation.FilesMax, LogPeriod: rotation.Period, Files: r.files, Usage: r.usage,
		Struck: newStruck(r.fates, spec).may, Cgroups: judgedCgroups(kubelet),
		ImageUser: registry.user, API: spec.Node.API, Skew: spec.skew,
		Read: r.read, Allocatable: spec.Node.allocatable(kubelet),
		Follows: object.StrategyOf(kubelet), Registers: spec.Node.registers(kubelet),
	})
	r.truth = log
	log.Subscribe(r.panel.Fact)
	log.Subscribe(r.countRestarts)
	log.Subscribe(r.prompt.fact)
	log.Subscribe(r.noteSandbox)
	if spec.Node.API {
		log.Subscribe(r.tellBound)
		r.server = apiserver.New(apiserver.Options{
			Agenda: r.agenda, Truth: log, Seed: spec.Seed, Node: nodeName, Faults: r.fates,
		})
	}
	r.disk = disk.New(disk.Options{
		Agenda: r.agenda, Truth: log, Seed: spec.Seed, Faults: r.fates,
	})
	r.runtime = runtime.New(runtime.Options{
		Agenda: r.agenda, Truth: log, Seed: spec.Seed, Faults: r.fates,
		Old: spec.Node.OldRuntime, Behaviour: newBehaviours(spec).script, Images: registry.image,
		OpenFile:      func(path string) runtime.File { return r.disk.Open(path) },
		Exists:        r.disk.Exists,
		NodeAddresses: []string{nodeIP, "127.0.0.1", "localhost"},

		SystemdCgroups: spec.Node.SystemdCgroups, NoUserNamespaces: spec.Node.NoUserNamespaces,
		EnterCgroup: func(path string) { r.host.Enter(path) },
	})
	r.host = host.New(host.Options{
		Agenda: r.agenda, Truth: log, Seed: spec.Seed, Faults: r.fates, Kill: r.runtime.KillCgroup,
	})
	r.network = network.New(network.Options{
		Agenda: r.agenda, Seed: spec.Seed, Faults: r.fates, Reach: r.runtime.Reach,
		Page: func(url string) network.Page { return r.manifest.at(url) },
	})
	r.options = core.Options{
		Config: kubelet, NodeName: nodeName, RootDir: rootDir, ManifestPath: manifestDir,
		API: spec.Node.API,
	}
	r.manifest, r.clients = newManifests(r), newClients(r)
	log.Subscribe(r.clients.fact)
	return r, nil
}

// judgedCgroups is what the judges know of the cgroups of pods.
func judgedCgroups(kubelet *kubeletconfig.KubeletConfiguration) oracle.Cgroups {
	return oracle.Cgroups{PerPod: *kubelet.CgroupsPerQOS, PidsMax: max(0, *kubelet.PodPidsLimit)}
}

// files is what is in a directory, as the judges see it.
func (r *run) files(dir string) iter.Seq[oracle.File] {
	return func(yield func(oracle.File) bool) {
		for e := range r.disk.Entries(dir) {
			if !yield(oracle.File(e)) {
				return
			}
		}
	}
}

func (r *run) read(path string) ([]byte, bool) { return r.disk.Read(path) }

func (r *run) usage(path string) int64 { return r.disk.Usage(path) }

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
	r.scheduleActs()
	r.scheduleStrikes()
	r.clients.schedule()
	r.boot()
	r.ask()
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

// ask has the pods shown every few seconds, as a dashboard would.
func (r *run) ask() {
	rng := wire.Stream(r.plan.Seed, "requests")
	var again func()
	id := world.RequestID(0)
	again = func() {
		id++
		r.offer(world.Event{Body: &world.PodsRequest{Request: id}})
		r.offer(world.Event{Body: &world.HealthRequest{Request: id}})
		r.agenda.After(2*time.Second+time.Duration(rng.Int64N(int64(5*time.Second))), again)
	}
	r.agenda.After(time.Second, again)
}

// answered takes what the agent answers to requests.
func (r *run) answered(eff world.Effect) {
	if answerTo(eff.Body) == r.clients.asked {
		r.clients.answer = eff.Body
	}
	switch body := eff.Body.(type) {
	case *world.PodsAnswer:
		r.shown = body.Pods
		r.panel.Answer(r.agenda.Now(), body.Pods)
	case *world.HealthAnswer:
		for _, check := range body.Checks {
			if check.Name == "pleg" && check.Problem == "" {
				r.panel.Well(r.agenda.Now())
			}
		}
	}
}
