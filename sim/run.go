package sim

import (
	"fmt"
	"runtime/debug"
	"time"

	v1 "k8s.io/api/core/v1"

	"seedlet.dev/core"
	"seedlet.dev/sim/agenda"
	"seedlet.dev/sim/apiserver"
	"seedlet.dev/sim/canonical"
	"seedlet.dev/sim/credentials"
	"seedlet.dev/sim/csi"
	"seedlet.dev/sim/disk"
	"seedlet.dev/sim/faults"
	"seedlet.dev/sim/host"
	"seedlet.dev/sim/marks"
	"seedlet.dev/sim/network"
	"seedlet.dev/sim/oracle"
	"seedlet.dev/sim/plan"
	"seedlet.dev/sim/plugins"
	"seedlet.dev/sim/runtime"
	"seedlet.dev/sim/scsi"
	"seedlet.dev/sim/truth"
	"seedlet.dev/sim/wire"
	"seedlet.dev/world"
	"seedlet.dev/world/loop"
	"seedlet.dev/world/panics"
)

// Options are how a run is observed. The zero value observes nothing.
type Options struct {
	// Watch is called for every step, WatchFact for every fact of the simulated world, and
	// WatchHappening for every happening of the plan, as it begins. The run does not depend on them.
	Watch          func(Step)
	WatchFact      func(truth.Fact)
	WatchHappening func(at time.Time, h *plan.Happening)
	// WatchEffect is called for every effect as it has reached its port, which may be later than the
	// step: it may have waited for others.
	WatchEffect func(world.Effect)
	// RestoreAfter, if not nil, reports after which events the agent is replaced by one that is
	// restored from its snapshot. That must not change the run.
	RestoreAfter func(event uint64) bool
	// ReseedAfter, if not zero, replaces the seed of all that the simulated world draws by ReseedWith
	// after that event: latencies, the order of what is due at once, and which calls a fault affects.
	// The plan stays.
	ReseedAfter, ReseedWith uint64
	// Until, if not zero, stops the run after that event. Verdict.State is the agent's snapshot.
	Until uint64
}

// Step is one step of the agent. Its effects are valid during the call of Watch only.
type Step struct {
	Number      uint64 // of the event, counted over all incarnations of the agent
	Incarnation int
	Event       world.Event
	Effects     []world.Effect
	Hash        uint64 // of everything up to and including this step
	Agent       *core.Agent
}

// Verdict is the outcome of a run.
type Verdict struct {
	Failure      *Failure      // nil if no oracle reported a violation
	Hash         uint64        // of every event and effect
	Events       uint64        // that the agent has handled
	Effects      uint64        // that the agent has issued
	Incarnations int           // of the agent
	Restarts     int           // of containers
	Marks        marks.Set     // that the run has reached
	Virtual      time.Duration // the length of the run in virtual time
	// SettledAfter is how long after the end of all faults everything was right, and stayed so; zero
	// if the run ended before.
	SettledAfter time.Duration
	State        []byte // with Options.Until: the snapshot after that event
}

// Failure is the first violation in a run.
type Failure struct {
	Oracle  string
	Message string
	Virtual time.Duration // since the start
	Event   uint64        // the number of the last event before it
	Stack   string        // of a panic of the simulator or of an oracle
}

// run is a run in progress.
type run struct {
	plan      *plan.Spec
	opts      Options
	agenda    *agenda.Agenda
	wakeUps   *agenda.Agenda // the same, for the wake-ups of the agent
	injector  *faults.Injector
	excuses   *faults.Excuses
	runtime   *runtime.Runtime
	disk      *disk.Disk
	network   *network.Network
	host      *host.Host
	plugins   *plugins.Plugins
	drivers   *csi.Drivers
	initiator *scsi.Initiator
	providers *credentials.Plugins
	server    *apiserver.Server // nil if the node has none
	truth     *truth.Log
	marks     *marks.Watcher
	oracles   *oracle.Set
	options   core.Options // of each incarnation of the agent
	limits    loop.Limits  // of each incarnation of the agent

	current      *incarnation // of the agent; nil while it is down
	incarnations int
	happened     int // happenings so far
	reboots      int
	rebootedAt   time.Time // zero before the first reboot
	offUntil     time.Time // when the machine has booted
	troubled     bool      // something has gone wrong by the plan
	panics       *panics.Record
	panicsLeft   map[string]int // panics to come, by the pod's name

	hash            *canonical.Hash
	events          uint64
	effects         uint64
	restarts        int
	effectsSecond   time.Time // the virtual second in which effectsInSecond were issued
	effectsInSecond int

	healed       bool
	settledAfter time.Duration // see Verdict
	failure      *Failure
	stopped      bool   // by Options.Until
	state        []byte // the snapshot then

	manifests   manifests
	controllers controllers
	attacher    attacher
	volumes     volumeControllers
	signers     signers
	clients     clients
	anomalies   anomalies
	anchors     anchors
	clocks      clocks
	startTimes  startTimes
	servedPods  []*v1.Pod         // in the last response of the agent's HTTP API
	fullNames   map[string]string // of pods, by their entries in the plan
	// pulledPrivately has the images, by reference, that were pulled with credentials.
	pulledPrivately map[string]bool
}

// Run executes a plan.
func Run(p *plan.Plan, opts Options) (*Verdict, error) {
	r, err := newRun(p, opts)
	if err != nil {
		return nil, err
	}
	return r.execute(), nil
}

// execute carries out the plan.
func (r *run) execute() *Verdict {
	r.executeToItsEnd()
	return &Verdict{
		Failure: r.failure, Hash: r.hash.Sum(), Events: r.events, Effects: r.effects,
		Incarnations: r.incarnations, Restarts: r.restarts, Marks: r.marks.Reached(),
		Virtual: r.agenda.Now().Sub(plan.Start), SettledAfter: r.settledAfter, State: r.state,
	}
}

func (r *run) executeToItsEnd() {
	defer r.recoverOwnPanic()
	r.schedule()
	end := plan.Start.Add(time.Duration(r.plan.Duration))
	r.runUntil(end)
	if !r.isDone() {
		r.heal()
		r.settle(r.returnToKubelet(end).Add(time.Duration(r.plan.Settle)))
	}
	if !r.isDone() && r.removeForever() {
		after := r.settledAfter
		r.settle(r.agenda.Now().Add(time.Duration(r.plan.Settle)))
		r.settledAfter = after
	}
	if !r.isDone() {
		r.checkExpectations()
		r.checkBack(true)
	}
}

// recoverOwnPanic makes a panic of the simulator or of an oracle a failure of the run, which is
// written, shrunk and replayed as any other one.
func (r *run) recoverOwnPanic() {
	if broken := recover(); broken != nil && r.failure == nil {
		r.fail("simulator", fmt.Sprintf("panic in %s: %v", panickedFunction(), broken))
		r.failure.Stack = string(debug.Stack())
	}
}

func newRun(p *plan.Plan, opts Options) (*run, error) {
	if err := p.Validate(); err != nil {
		return nil, err
	}
	spec := &p.Spec
	kubelet, err := plan.KubeletConfig(spec.Node.Config)
	if err != nil {
		return nil, err
	}
	r := &run{plan: spec, opts: opts, agenda: agenda.New(spec.Beginning(), spec.Seed),
		injector: faults.NewInjector(spec, plan.Start), truth: &truth.Log{},
		marks: marks.NewWatcher(), hash: canonical.NewHash(plan.Start), startTimes: newStartTimes(),
		fullNames: map[string]string{}, pulledPrivately: map[string]bool{}}
	if r.limits, err = spec.Node.Limits(); err != nil {
		return nil, err
	}
	r.wakeUps = r.agenda.Actor("agent")
	if spec.Order == plan.OrderPCT {
		r.agenda.OrderByPriority(plan.PCTWindow, changePoints(spec))
	}
	images := newImageRegistry(spec)
	r.excuses = faults.NewExcuses(r.injector)
	r.oracles = r.newOracles(kubelet, images)
	r.marks.SetShutdownGroups(shutdownPriorities(kubelet))
	if opts.WatchFact != nil {
		r.truth.Subscribe(func(f truth.Fact) {
			f.Origin = truth.Origin(r.agenda.Origin())
			opts.WatchFact(f)
		})
	}
	r.truth.Subscribe(r.oracles.CheckFact)
	r.truth.Subscribe(r.marks.Fact)
	r.truth.Subscribe(r.countRestarts)
	r.truth.Subscribe(r.notePull)
	r.truth.Subscribe(r.startTimes.observe)
	r.truth.Subscribe(r.observeSandbox)
	if spec.Node.API {
		r.truth.Subscribe(r.observePodWrite)
	}
	r.connectPorts(images)
	r.options = core.Options{
		Config: kubelet, NodeName: plan.NodeName, RootDir: plan.RootDir,
		ManifestPath: plan.ManifestDir, HasAPIServer: spec.Node.API,
		Credentials: credentialSettings(&spec.Node),
	}
	r.manifests, r.clients = newManifests(r), newClients(r)
	r.injector.IsPod = r.clients.isPod
	r.panicsLeft = panicsOfPlan(spec)
	r.truth.Subscribe(r.clients.observe)
	r.truth.Subscribe(r.observeAnchors)
	return r, nil
}

// changePoints returns when the PCT strategy changes priorities.
func changePoints(spec *plan.Spec) []time.Time {
	var all []time.Time
	r := wire.Stream(spec.Seed, "change points")
	for range plan.PCTDepth - 1 {
		all = append(all, plan.Start.Add(time.Duration(r.Int64N(int64(spec.Duration)))))
	}
	return all
}

// podsUsage returns what pods use of the machine: their processes, and their volumes in memory.
func (r *run) podsUsage() (memoryBytes, processes int64) {
	memoryBytes, processes = r.runtime.Usage()
	return memoryBytes + r.disk.MemoryUsage(), processes
}

// connectPorts makes the simulated ports and connects them with each other.
func (r *run) connectPorts(images imageRegistry) {
	seed, node := r.plan.Seed, &r.plan.Node
	calls := watchedFaults{r.injector, r.marks}
	if node.API {
		r.server = apiserver.New(apiserver.Options{
			Agenda: r.agenda.Actor("API server"), Truth: r.truth, Seed: seed, Node: plan.NodeName,
			Faults: calls, StatusRoom: statusRoom(r.plan), TokenAudiences: tokenAudiences(node),
		})
	}
	r.disk = disk.New(disk.Options{
		Agenda: r.agenda.Actor("disk"), Truth: r.truth, Seed: seed, Faults: calls,
		Files: machineFiles(node), Filesystems: r.usedFilesystems(node),
		Fills: node.DisksFill, NoteFull: r.noteFull, SELinux: node.SELinux,
	})
	r.runtime = runtime.New(runtime.Options{
		Agenda: r.agenda.Actor("runtime"), Truth: r.truth, Seed: seed, Faults: calls,
		Containerd16: node.OldRuntime, LayersApart: node.LayersOnRoot,
		Behaviour:     newProcessScripts(r.plan).scriptFor,
		Images:        images.imageFor,
		OpenFile:      func(path string) runtime.File { return r.disk.Open(path) },
		GrowTree:      r.disk.GrowTree,
		Room:          r.room,
		NoteFull:      r.noteFull,
		Exists:        r.disk.Exists,
		NodeAddresses: []string{plan.NodeIP, "127.0.0.1", "localhost"},

		SystemdCgroups: node.SystemdCgroups, WithoutUserNamespaces: node.NoUserNamespaces,
		EnterCgroup: func(path string) { r.host.EnterCgroup(path) },
		LoadChanged: func() { r.host.LoadChanged() },
	})
	for _, image := range node.NodeImages {
		r.runtime.AddImage(image.Ref)
	}
	r.host = host.New(host.Options{
		Agenda: r.agenda.Actor("host"), Truth: r.truth, Seed: seed, Faults: calls,
		KillCgroup: r.runtime.KillCgroup, Machine: r.machine,
		SystemCgroups: host.SystemCgroups, InhibitDelayMax: time.Duration(node.InhibitDelayMax),
		PodsUsage: r.podsUsage, CgroupMemory: r.runtime.CgroupMemory,
		KillForMemory: r.runtime.KillForMemory,
	})
	r.network = network.New(network.Options{
		Agenda: r.agenda.Actor("network"), Seed: seed, Faults: calls, SendRequest: r.runtime.SendRequest,
		Page: func(url string) network.Page { return r.manifests.fetch(url) },
	})
	r.plugins = plugins.New(plugins.Options{
		Agenda: r.agenda.Actor("plugins"), Truth: r.truth, Seed: seed, Faults: calls,
		Dir: plan.RootDir + "/plugins_registry", Serve: r.serveDriver,
	})
	r.drivers = csi.New(csi.Options{
		Agenda: r.agenda.Actor("drivers"), Truth: r.truth, Seed: seed, Faults: calls, Disk: r.disk,
		Node: plan.NodeName, IsAttached: r.isAttached,
	})
	r.initiator = scsi.New(scsi.Options{
		Agenda: r.agenda.Actor("initiator"), Truth: r.truth, Seed: seed, Faults: calls, Disk: r.disk,
		Plan: r.plan.ISCSI, FC: r.plan.FC, Beginning: r.plan.Beginning(),
	})
	r.providers = r.newProviders(calls)
	r.marks.Connect(r.runtime, r.disk, r.host, r.network, r.plugins, r.drivers, r.initiator,
		r.providers)
	if r.server != nil {
		r.marks.Connect(r.runtime, r.disk, r.host, r.network, r.plugins, r.drivers, r.initiator,
			r.providers, r.server)
	}
}

// watchedFaults are the faults of the plan. The marks observe which calls took effect without the
// agent learning of it.
type watchedFaults struct {
	*faults.Injector
	*marks.Watcher
}

func (r *run) countRestarts(f truth.Fact) {
	if f.Kind == truth.ContainerStarted && f.Attempt > 0 {
		r.restarts++
	}
}

// isDone reports whether the run has failed, or was stopped by Options.Until.
func (r *run) isDone() bool { return r.failure != nil || r.stopped }

func (r *run) runUntil(t time.Time) {
	for !r.isDone() {
		next, ok := r.agenda.Next()
		if !ok || next.After(t) {
			return
		}
		r.agenda.Run()
		r.checkOracles()
	}
}

// fail ends the run. The first failure counts.
func (r *run) fail(oracle, message string) {
	if r.failure != nil {
		return
	}
	r.failure = &Failure{Oracle: oracle, Message: message,
		Virtual: r.agenda.Now().Sub(plan.Start), Event: r.events}
}

// startPolling has a client request the pods and the health every few seconds, as a dashboard does.
func (r *run) startPolling() {
	rng := wire.Stream(r.plan.Seed, "requests")
	var poll func()
	id := world.RequestID(0)
	hasVolumes := r.plan.HasClaims() || r.plan.HasCSIDriver("")
	poll = func() {
		if !r.isStalled() {
			id++
			r.deliver(world.Event{Body: &world.PodsRequest{Request: id}})
			r.deliver(world.Event{Body: &world.HealthRequest{Request: id}})
			if hasVolumes {
				r.deliver(world.Event{Body: &world.VolumeStatsRequest{Request: id}})
			}
		}
		r.agenda.After(2*time.Second+time.Duration(rng.Int64N(int64(5*time.Second))), poll)
	}
	r.agenda.After(time.Second, poll)
}

// handleResponse passes the agent's responses to the client that waits, and to the oracles.
func (r *run) handleResponse(eff world.Effect) {
	if requestIDOf(eff.Body) == r.clients.lastID {
		r.clients.response = eff.Body
	}
	switch body := eff.Body.(type) {
	case *world.PodsAnswer:
		r.servedPods = body.Pods
		r.oracles.CheckServed(r.agenda.Now(), body.Pods)
	case *world.VolumeStatsAnswer:
		r.oracles.CheckVolumeStats(r.agenda.Now(), body.Volumes)
	case *world.HealthAnswer:
		for _, check := range body.Checks {
			if check.Name == "pleg" && check.Problem == "" {
				r.oracles.ReportedHealthy(r.agenda.Now())
			}
		}
	}
}
