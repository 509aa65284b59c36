// Package runtime is the simulated container runtime: the CRI port of the simulated world, modelled
// on containerd 2.x. It holds sandboxes, containers with scripted processes, and images.
//
// Contract: the runtime outlives the agent and knows the agent only by its calls. A call takes
// time, takes effect at one or several instants, and completes later or never (see package wire).
// Every effect is recorded in the truth log at its instant. CRI messages are built once after each
// change of an object and then shared, so they must not be modified: an unchanged list is returned
// as the same pointer, which makes a relist cheap.
//
// Every rule that is not obvious from the CRI's documentation is a case of world/parity, which runs
// against this package and against a real containerd.
//
// Start reading at serve, then container_calls.go and sandbox_calls.go.
package runtime

import (
	"net/netip"
	"strings"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"seedlet.dev/sim/agenda"
	"seedlet.dev/sim/truth"
	"seedlet.dev/sim/wire"
	"seedlet.dev/world"
)

type (
	// Outcome is the injected outcome of a call: see wire.Outcome.
	Outcome = wire.Outcome
	// FaultSource decides the outcomes of calls: see wire.FaultSource.
	FaultSource = wire.FaultSource
)

// Options configure a runtime.
type Options struct {
	Agenda    *agenda.Agenda
	Truth     *truth.Log
	Seed      uint64
	Behaviour func(Instance) Script // the script of each process; nil: all run until stopped
	Faults    FaultSource           // nil: no faults
	Deliver   func(world.Event)     // receives the events of the first incarnation

	// Images returns the plan for an image when the image is first mentioned, and again for every pull
	// of it. Nil: all images are present.
	Images func(ref string, pullsSoFar int) Image

	// Room returns how many bytes fit into the file system of a directory; nil: any number. NoteFull
	// is called when an image does not.
	Room     func(dir string) int64
	NoteFull func()

	// OpenFile opens a file that a container writes to. It creates the file and missing directories,
	// including those that the agent has just removed. Nil: containers write no files.
	OpenFile func(path string) File
	// GrowTree makes a deep tree of a number of names at a path, for a process: each of an empty file
	// of its own, or all of one.
	GrowTree func(path string, names int64, ownFiles bool)
	Exists   func(path string) bool // reports whether a file or directory exists

	// NodeAddresses are the addresses of the machine, on which pods in the host network listen.
	NodeAddresses []string

	// LoadChanged is called after a process has started to use more or less.
	LoadChanged func()

	SystemdCgroups bool              // RuntimeConfig reports the systemd cgroup driver
	EnterCgroup    func(path string) // creates a missing cgroup for a process; nil: no cgroups

	WithoutUserNamespaces bool // the runtime handlers report no support
	// Containerd16 simulates containerd 1.6: RuntimeConfig and GetContainerEvents are unknown, and
	// StopContainer and StopPodSandbox return NotFound for an unknown object instead of success.
	Containerd16 bool
	LayersApart  bool // writable layers are below LayerDirectory, not beside the images
}

// Runtime is a simulated container runtime. It is for use by one goroutine.
type Runtime struct {
	opts Options
	wire *wire.Wire

	sandboxes      map[string]*sandbox
	sandboxOrder   []*sandbox // sorted by ID
	sandboxNames   map[string]struct{}
	sandboxCount   int // created so far, for addresses
	containers     map[string]*container
	containerOrder []*container // sorted by ID
	garbage        []*container // removed, whose layers are still there
	containerNames map[string]struct{}
	requestCount   uint64 // requests to processes so far
	starts         map[podContainer]int
	images         map[string]*image
	networkDown    bool
	unready        bool
	statsStale     bool
	statsMissing   bool                                       // of the oldest ready sandbox
	statsBefore    [2]*runtimeapi.ListPodSandboxStatsResponse // the last two, the older one first
	skew           time.Duration                              // error of the runtime's clock
	events         eventQueue

	// The responses to unfiltered lists, nil after a change.
	sandboxList   *runtimeapi.ListPodSandboxResponse
	containerList *runtimeapi.ListContainersResponse
}

// New returns a runtime without sandboxes and containers.
func New(opts Options) *Runtime {
	if opts.Behaviour == nil {
		opts.Behaviour = func(Instance) Script { return Script{} }
	}
	if opts.Images == nil {
		opts.Images = func(string, int) Image { return Image{} }
	}
	return &Runtime{
		opts: opts,
		wire: wire.New(wire.Options{
			Agenda: opts.Agenda, Faults: opts.Faults, Deliver: opts.Deliver, Seed: opts.Seed,
		}),
		sandboxes:      map[string]*sandbox{},
		sandboxNames:   map[string]struct{}{},
		containers:     map[string]*container{},
		containerNames: map[string]struct{}{},
		starts:         map[podContainer]int{},
		images:         map[string]*image{},
	}
}

// InFlight returns the calls that the agent waits for, as wire.InFlight does.
func (r *Runtime) InFlight() []*wire.Call { return r.wire.InFlight() }

// Reseed makes every later call draw from another seed.
func (r *Runtime) Reseed(seed uint64) { r.wire.Reseed(seed) }

// Do implements world.Port.
func (r *Runtime) Do(eff world.Effect) { r.wire.Send(eff, r.serve) }

// Cancel implements world.Canceler.
func (r *Runtime) Cancel(id world.OpID) { r.wire.Cancel(id) }

// serve handles a call that has arrived.
func (r *Runtime) serve(call *wire.Call) {
	if call.Outcome.ErrorBefore != nil {
		r.applyFailureEffects(call)
		call.Fail(call.Outcome.ErrorBefore)
		return
	}
	switch req := call.Effect.Body.(type) {
	case *runtimeapi.ListPodSandboxRequest:
		call.Execute(func() { call.Reply(r.listSandboxes(req.Filter)) })
	case *runtimeapi.ListContainersRequest:
		call.Execute(func() { call.Reply(r.listContainers(req.Filter)) })
	case *runtimeapi.PodSandboxStatusRequest:
		call.Execute(func() { r.sandboxStatus(call, req) })
	case *runtimeapi.ContainerStatusRequest:
		call.Execute(func() { r.containerStatus(call, req) })
	case *runtimeapi.RunPodSandboxRequest:
		r.runSandbox(call, req.Config)
	case *runtimeapi.StopPodSandboxRequest:
		call.Execute(func() { r.stopSandbox(call, req) })
	case *runtimeapi.RemovePodSandboxRequest:
		call.Execute(func() { r.removeSandbox(call, req) })
	case *runtimeapi.CreateContainerRequest:
		r.createContainer(call, req)
	case *runtimeapi.StartContainerRequest:
		r.startContainer(call, req)
	case *runtimeapi.StopContainerRequest:
		call.Execute(func() { r.stopContainer(call, req) })
	case *runtimeapi.RemoveContainerRequest:
		call.Execute(func() { r.removeContainer(call, req) })
	case *runtimeapi.UpdateContainerResourcesRequest:
		call.Execute(func() { r.updateContainerResources(call, req) })
	case *runtimeapi.UpdatePodSandboxResourcesRequest:
		call.Execute(func() { r.updateSandboxResources(call, req) })
	case *runtimeapi.ContainerStatsRequest:
		call.Execute(func() { r.containerStats(call, req) })
	case *runtimeapi.ListPodSandboxStatsRequest:
		call.Execute(func() { call.Reply(r.sandboxStats()) })
	case *runtimeapi.ReopenContainerLogRequest:
		call.Execute(func() { r.reopenLog(call, req) })
	case *runtimeapi.ExecSyncRequest:
		r.execSync(call, req)
	case *runtimeapi.ImageStatusRequest:
		call.Execute(func() { call.Reply(r.imageStatus(req)) })
	case *runtimeapi.ListImagesRequest:
		call.Execute(func() { call.Reply(r.listImages()) })
	case *runtimeapi.ImageFsInfoRequest:
		call.Execute(func() { call.Reply(r.imageFsInfo()) })
	case *runtimeapi.PullImageRequest:
		r.pullImage(call, req)
	case *runtimeapi.RemoveImageRequest:
		call.Execute(func() { r.removeImage(call, req) })
	case *runtimeapi.GetEventsRequest:
		call.Execute(func() { r.openStream(call) })
	default:
		call.Execute(func() { r.serveRuntimeInfo(call) })
	}
}

// serveRuntimeInfo handles the calls about the runtime itself.
func (r *Runtime) serveRuntimeInfo(call *wire.Call) {
	switch m := call.Effect.Body.(type) {
	case *runtimeapi.VersionRequest:
		version := "v2.4.2"
		if r.opts.Containerd16 {
			version = "1.6.20"
		}
		call.Reply(&runtimeapi.VersionResponse{Version: "0.1.0", RuntimeName: "containerd",
			RuntimeVersion: version, RuntimeApiVersion: "v1"})
	case *runtimeapi.StatusRequest:
		network := &runtimeapi.RuntimeCondition{Type: runtimeapi.NetworkReady, Status: true}
		if r.networkDown {
			network.Status, network.Reason = false, "NetworkPluginNotReady"
			network.Message = "Network plugin returns error: cni plugin not initialized"
		}
		ready := &runtimeapi.RuntimeCondition{Type: runtimeapi.RuntimeReady, Status: !r.unready}
		call.Reply(&runtimeapi.StatusResponse{Status: &runtimeapi.RuntimeStatus{
			Conditions: []*runtimeapi.RuntimeCondition{ready, network},
		}, RuntimeHandlers: r.runtimeHandlers()})
	case *runtimeapi.RuntimeConfigRequest:
		if r.opts.Containerd16 {
			call.Fail(world.Errorf(world.KindUnimplemented, call.Name, "unknown method RuntimeConfig"))
			return
		}
		driver := runtimeapi.CgroupDriver_CGROUPFS
		if r.opts.SystemdCgroups {
			driver = runtimeapi.CgroupDriver_SYSTEMD
		}
		call.Reply(&runtimeapi.RuntimeConfigResponse{
			Linux: &runtimeapi.LinuxRuntimeConfiguration{CgroupDriver: driver},
		})
	case *runtimeapi.UpdateRuntimeConfigRequest:
		updateRuntimeConfig(call, m.GetRuntimeConfig().GetNetworkConfig().GetPodCidr())
	default:
		panic("runtime: unknown call: " + call.Name)
	}
}

// updateRuntimeConfig accepts valid ranges for pods. Like a containerd whose network configuration
// is not its own, the runtime makes no use of them.
func updateRuntimeConfig(call *wire.Call, ranges string) {
	for _, one := range strings.Split(ranges, ",") {
		if _, err := netip.ParsePrefix(strings.TrimSpace(one)); ranges != "" && err != nil {
			call.Fail(world.Errorf(world.KindInternal, call.Name, "invalid CIDR address: %s", one))
			return
		}
	}
	call.Reply(&runtimeapi.UpdateRuntimeConfigResponse{})
}

// runtimeHandlers returns the runtime handlers, which is only runc. containerd 1.6 does not report
// them.
func (r *Runtime) runtimeHandlers() []*runtimeapi.RuntimeHandler {
	if r.opts.Containerd16 {
		return nil
	}
	features := &runtimeapi.RuntimeHandlerFeatures{
		RecursiveReadOnlyMounts: true, UserNamespaces: !r.opts.WithoutUserNamespaces,
	}
	return []*runtimeapi.RuntimeHandler{
		{Name: "", Features: features}, {Name: "runc", Features: features},
	}
}

// applyFailureEffects applies the effect that a failed call has nevertheless: a container that
// could not be started is exited. Failures of the connection have no effect.
func (r *Runtime) applyFailureEffects(call *wire.Call) {
	req, ok := call.Effect.Body.(*runtimeapi.StartContainerRequest)
	if !ok {
		return
	}
	switch call.Outcome.ErrorBefore.Kind {
	case world.KindUnavailable, world.KindTimeout, world.KindCanceled, world.KindNotFound:
		return
	}
	if c := r.containers[req.ContainerId]; c != nil && c.canStart() {
		r.failStart(c)
	}
}

func (r *Runtime) now() time.Time { return r.opts.Agenda.Now() }

func (r *Runtime) after(d time.Duration, do func()) { r.opts.Agenda.After(d, do) }
