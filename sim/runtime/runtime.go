// Package runtime is the simulated container runtime: the CRI port of the simulated world,
// modelled on containerd 2.x. It keeps sandboxes, containers with scripted processes, and images.
//
// Contract: the runtime outlives the agent and knows nothing of it but its calls. A call takes
// time, takes effect at one or several instants of its own, and is answered later, or never (see
// package wire). What takes effect is written to the truth log at that instant. Messages are
// built once per change of an object and shared, so nobody may change them: an unchanged list is
// the same pointer as before, which makes a relist cheap.
//
// Every rule that is not obvious from the CRI's documentation is stated as a case of
// world/parity, which runs against this package and against a real containerd.
//
// Start reading at serve, then container_calls.go and sandbox_calls.go.
package runtime

import (
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"seedlet.dev/sim/agenda"
	"seedlet.dev/sim/truth"
	"seedlet.dev/sim/wire"
	"seedlet.dev/world"
)

// Fate and FaultSource are the wire's: what happens to calls on their way.
type (
	Fate        = wire.Fate
	FaultSource = wire.FaultSource
)

// Options are what a runtime is made of.
type Options struct {
	Agenda    *agenda.Agenda
	Truth     *truth.Log
	Seed      uint64
	Behaviour func(Instance) Script // of each process that is started; nil: all run until stopped
	Faults    FaultSource           // nil: nothing goes wrong
	Answer    func(world.Event)     // takes the answers of the first life

	// Images tells about an image when it is first mentioned, and again at every pull of it.
	// Nil: all images are present.
	Images func(ref string, pullsSoFar int) Image

	// OpenFile opens the files that containers write to, and makes them, with missing directories,
	// even those that the agent has just removed. Nil: what containers write gets lost.
	OpenFile func(path string) File
	Exists   func(path string) bool // whether there is a file or directory

	// NodeAddresses are those of the machine: pods in its network listen on them.
	NodeAddresses []string

	SystemdCgroups bool              // what RuntimeConfig says
	EnterCgroup    func(path string) // something is run in it; nil: there are none

	NoUserNamespaces bool // what the features of the handlers say
	// Old makes it a containerd 1.6: RuntimeConfig is unknown to it, and it does not find what is
	// to be stopped where a newer one has nothing to do.
	Old bool
}

// Runtime is a container runtime. It is for one goroutine.
type Runtime struct {
	opts Options
	wire *wire.Wire

	sandboxes      map[string]*sandbox
	sandboxOrder   []*sandbox // by id
	sandboxNames   map[string]struct{}
	sandboxCount   int // over all time, for addresses
	containers     map[string]*container
	containerOrder []*container // by id
	containerNames map[string]struct{}
	asked          uint64 // requests to processes, over all time
	starts         map[startKey]int
	images         map[string]*image
	networkDown    bool
	unready        bool
	skew           time.Duration // of its clock
	events         events

	// The answers to unfiltered lists, nil when something has changed since.
	sandboxList   *runtimeapi.ListPodSandboxResponse
	containerList *runtimeapi.ListContainersResponse
}

// New makes a runtime in which nothing runs.
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
			Agenda: opts.Agenda, Faults: opts.Faults, Answer: opts.Answer, Seed: opts.Seed,
		}),
		sandboxes:      map[string]*sandbox{},
		sandboxNames:   map[string]struct{}{},
		containers:     map[string]*container{},
		containerNames: map[string]struct{}{},
		starts:         map[startKey]int{},
		images:         map[string]*image{},
	}
}

// Do implements world.Port.
func (r *Runtime) Do(eff world.Effect) { r.wire.Send(eff, r.serve) }

// serve takes a call that has arrived.
func (r *Runtime) serve(call *wire.Call) {
	if call.Fate.Before != nil {
		r.spoil(call)
		call.Fail(call.Fate.Before)
		return
	}
	switch req := call.Effect.Body.(type) {
	case *runtimeapi.ListPodSandboxRequest:
		call.Begin(func() { call.Reply(r.listSandboxes(req.Filter)) })
	case *runtimeapi.ListContainersRequest:
		call.Begin(func() { call.Reply(r.listContainers(req.Filter)) })
	case *runtimeapi.PodSandboxStatusRequest:
		call.Begin(func() { r.sandboxStatus(call, req) })
	case *runtimeapi.ContainerStatusRequest:
		call.Begin(func() { r.containerStatus(call, req) })
	case *runtimeapi.RunPodSandboxRequest:
		r.runSandbox(call, req.Config)
	case *runtimeapi.StopPodSandboxRequest:
		call.Begin(func() { r.stopSandbox(call, req) })
	case *runtimeapi.RemovePodSandboxRequest:
		call.Begin(func() { r.removeSandbox(call, req) })
	case *runtimeapi.CreateContainerRequest:
		r.createContainer(call, req)
	case *runtimeapi.StartContainerRequest:
		r.startContainer(call, req)
	case *runtimeapi.StopContainerRequest:
		call.Begin(func() { r.stopContainer(call, req) })
	case *runtimeapi.RemoveContainerRequest:
		call.Begin(func() { r.removeContainer(call, req) })
	case *runtimeapi.ReopenContainerLogRequest:
		call.Begin(func() { r.reopenLog(call, req) })
	case *runtimeapi.ExecSyncRequest:
		r.execSync(call, req)
	case *runtimeapi.ImageStatusRequest:
		call.Begin(func() { call.Reply(r.imageStatus(req)) })
	case *runtimeapi.ListImagesRequest:
		call.Begin(func() { call.Reply(r.listImages()) })
	case *runtimeapi.PullImageRequest:
		r.pullImage(call, req)
	case *runtimeapi.GetEventsRequest:
		call.Begin(func() { r.openStream(call) })
	default:
		call.Begin(func() { r.about(call) })
	}
}

// about answers what a runtime says about itself.
func (r *Runtime) about(call *wire.Call) {
	switch call.Effect.Body.(type) {
	case *runtimeapi.VersionRequest:
		version := "v2.4.2"
		if r.opts.Old {
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
		}, RuntimeHandlers: r.handlers()})
	case *runtimeapi.RuntimeConfigRequest:
		if r.opts.Old {
			call.Fail(world.Errorf(world.KindInvalid, call.Name, "unknown method RuntimeConfig"))
			return
		}
		driver := runtimeapi.CgroupDriver_CGROUPFS
		if r.opts.SystemdCgroups {
			driver = runtimeapi.CgroupDriver_SYSTEMD
		}
		call.Reply(&runtimeapi.RuntimeConfigResponse{
			Linux: &runtimeapi.LinuxRuntimeConfiguration{CgroupDriver: driver},
		})
	default:
		panic("runtime: no such call: " + call.Name)
	}
}

// handlers are what the runtime can run pods with: runc alone. Older ones do not tell.
func (r *Runtime) handlers() []*runtimeapi.RuntimeHandler {
	if r.opts.Old {
		return nil
	}
	features := &runtimeapi.RuntimeHandlerFeatures{
		RecursiveReadOnlyMounts: true, UserNamespaces: !r.opts.NoUserNamespaces,
	}
	return []*runtimeapi.RuntimeHandler{
		{Name: "", Features: features}, {Name: "runc", Features: features},
	}
}

// spoil is what a call that fails leaves behind all the same: a container that could not be
// started has exited. Failures of the connection leave nothing.
func (r *Runtime) spoil(call *wire.Call) {
	req, ok := call.Effect.Body.(*runtimeapi.StartContainerRequest)
	if !ok {
		return
	}
	switch call.Fate.Before.Kind {
	case world.KindUnavailable, world.KindTimeout, world.KindCanceled, world.KindNotFound:
		return
	}
	if c := r.containers[req.ContainerId]; c != nil && c.startable() {
		r.failStart(c)
	}
}

func (r *Runtime) now() time.Time { return r.opts.Agenda.Now() }

func (r *Runtime) after(d time.Duration, do func()) { r.opts.Agenda.After(d, do) }
