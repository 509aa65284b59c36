package core

import (
	"cmp"
	"fmt"
	"path"
	"time"

	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	kubeletconfig "k8s.io/kubelet/config/v1beta1"

	"seedlet.dev/core/begun"
	"seedlet.dev/core/cgroup"
	"seedlet.dev/core/config"
	"seedlet.dev/core/hostfile"
	"seedlet.dev/core/housekeeping"
	"seedlet.dev/core/image"
	"seedlet.dev/core/lease"
	"seedlet.dev/core/logs"
	"seedlet.dev/core/manifest"
	"seedlet.dev/core/mirror"
	nodeobject "seedlet.dev/core/node"
	"seedlet.dev/core/object"
	"seedlet.dev/core/op"
	"seedlet.dev/core/pleg"
	"seedlet.dev/core/pod"
	"seedlet.dev/core/runtime"
	"seedlet.dev/core/status"
	"seedlet.dev/core/timer"
	"seedlet.dev/core/userns"
	"seedlet.dev/world"
)

// Options are what an agent is made of. They are fixed for its life.
type Options struct {
	Config       *kubeletconfig.KubeletConfiguration // with defaults, validated
	NodeName     string                              // lower case
	RootDir      string                              // as /var/lib/kubelet
	ManifestPath string                              // of static pods, empty for none
	LinksDir     string                              // of links to logs; as /var/log/containers
	API          bool                                // there is an API server
	Node         nodeobject.Options                  // what to tell it of the node
}

// State is everything the agent knows. It is plain data.
type State struct {
	Booted    time.Time              `json:"booted"` // zero before the boot event
	Boot      world.Boot             `json:"boot"`
	Node      pod.Node               `json:"node"`
	Ops       op.Table               `json:"ops"`
	Timers    timer.Queue[timer.Key] `json:"timers"`
	Manifests manifest.Sources       `json:"manifests"`
	Relist    pleg.Relist            `json:"relist"`
	Events    pleg.Stream            `json:"events"`
	Runtime   runtime.Runtime        `json:"runtime"`
	Images    image.Store            `json:"images"`
	Begun     begun.Pods             `json:"begun"`
	Sweep     housekeeping.Sweep     `json:"sweep"`
	Rotation  logs.Rotation          `json:"rotation"`
	Links     logs.Links             `json:"links"`
	Pods      map[string]*pod.Pod    `json:"pods"` // by UID
	// Refused are wanted pods that are not run, and why, by UID.
	Refused map[string]Refusal `json:"refused,omitempty"`
	API     bool               `json:"api"` // there is an API server; else nothing below is used
	Objects object.Store       `json:"objects"`
	Status  status.Writer      `json:"status"`
	Mirrors mirror.Pods        `json:"mirrors"`
	OwnNode nodeobject.Node    `json:"ownNode"` // the object there
	Lease   lease.Lease        `json:"lease"`
	// Bound are the UIDs of the pods that the API server has bound to this node, and Mirrored
	// those of the static pods that have a mirror there, by full name.
	Bound    map[string]string  `json:"bound,omitempty"`
	Mirrored map[string]string  `json:"mirrored,omitempty"`
	Rejected map[string]Refusal `json:"rejected,omitempty"` // of those of the API server, by UID
	PodsMax  int                `json:"podsMax"`
	// Sysctls are patterns of kernel parameters that pods may set besides the safe ones.
	Sysctls []string  `json:"sysctls,omitempty"`
	Tally   Tally     `json:"tally"`
	Last    time.Time `json:"last"` // time of the newest event
	Steps   uint64    `json:"steps"`
}

// Agent is the node agent. It is for one goroutine, and implements world.Core.
type Agent struct {
	state State

	// What follows is derived from the state, or lives for one step only.
	uids    []string            // the keys of state.Pods, sorted
	names   map[string][]string // the UIDs of the pods of each full name, sorted
	shown   map[string]*v1.Pod  // by UID, what the API shows until the pod is planned anew
	out     op.Out
	touched touched
	podEnv  pod.Env
}

// New makes an agent. It does nothing before its boot event.
func New(o Options) *Agent {
	c := o.Config
	root := path.Clean(o.RootDir)
	links := path.Clean(cmp.Or(o.LinksDir, logs.LinksDirDefault))
	a := &Agent{state: State{
		Events: pleg.Stream{On: c.FeatureGates["EventedPLEG"]},
		Node: pod.Node{
			Name: o.NodeName, PodsDir: root + "/pods", LogsDir: c.PodLogsDir, LinksDir: links,
			RuntimeTimeout: c.RuntimeRequestTimeout.Duration, BackoffMax: config.BackoffMax(c),
			Cgroups: cgroup.LayoutOf(c), IDs: userns.LayoutOf(c),
			DNS:    pod.DNS{Servers: c.ClusterDNS, Domain: c.ClusterDomain},
			Resolv: hostfile.File{Path: resolvConf(c)}, Hosts: hostfile.File{Path: "/etc/hosts"},

			RestartsAll: config.RestartsAll(c),
		},
		Manifests: manifest.NewSources(c, o.ManifestPath, o.NodeName),
		Begun:     begun.Pods{Dir: root + "/pods"},
		Sweep:     housekeeping.Sweep{PodsDir: root + "/pods", LogsDir: c.PodLogsDir},
		Images:    image.Store{Limits: image.LimitsOf(c)},
		Rotation:  logs.NewRotation(c),
		Links:     logs.Links{Dir: links, LogsDir: path.Clean(c.PodLogsDir)},
		Pods:      map[string]*pod.Pod{},
		PodsMax:   int(c.MaxPods),
		API:       o.API,
		OwnNode:   nodeobject.Node{Settings: nodeobject.SettingsOf(c, o.NodeName, o.Node)},
		Lease: lease.Lease{Node: o.NodeName,
			Duration: time.Duration(c.NodeLeaseDurationSeconds) * time.Second},
		Sysctls: c.AllowedUnsafeSysctls,
		Objects: object.Store{Strategy: object.StrategyOf(c)},
	}}
	return a
}

// Step takes one event and returns what the world should do about it. The slice is valid until
// the next Step.
func (a *Agent) Step(ev world.Event) []world.Effect {
	if ev.Time.Before(a.state.Last) {
		panic(fmt.Sprintf("core: time went back from %v to %v", a.state.Last, ev.Time))
	}
	a.state.Last = ev.Time
	a.state.Steps++
	a.out.Begin(&a.state.Ops, ev.Time)
	a.observe(ev)
	a.expire(ev.Time)
	a.due(ev.Time)
	for {
		key, ok := a.touched.next()
		if !ok {
			break
		}
		a.plan(key)
	}
	return a.out.Take()
}

// NextWake says when the agent wants to be called even if nothing happens; zero means never.
func (a *Agent) NextWake() time.Time {
	return timer.Soonest(a.state.Timers.Next(), a.state.Ops.Deadlines.Next())
}

// observe records what an event says.
func (a *Agent) observe(ev world.Event) {
	if ev.Op != 0 {
		if r, ok := a.state.Ops.Settle(ev.Op); ok {
			if ev.Body == nil && ev.Err == nil {
				ev.Err = world.Errorf(world.KindInternal, r.Call, "answered with nothing")
			}
			a.answered(ev.Op, r, ev)
		}
		return
	}
	boot, isBoot := ev.Body.(*world.Boot)
	if a.state.Booted.IsZero() != isBoot {
		panic(fmt.Sprintf("core: %T is not the first event, or is not a boot", ev.Body))
	}
	switch body := ev.Body.(type) {
	case nil: // a wake-up
	case *world.Boot:
		a.boot(boot, ev.Time)
	case *world.Shutdown:
		a.out.Log(world.LevelInfo, "shutting down", "reason", body.Reason)
	case *runtimeapi.ContainerEventResponse:
		a.told(body, ev.Time)
	case *world.ObjectsListed, *world.ObjectChanged, *world.ObjectGone, *world.WatchFailing:
		a.watched(body, ev.Time)
	case *world.FileChanged:
		if body.Path == a.state.Manifests.File.Path {
			a.state.Manifests.File.Changed(ev.Time)
			a.touched.add(manifest.Owner)
		}
	default:
		a.request(ev)
	}
}

func (a *Agent) boot(boot *world.Boot, now time.Time) {
	s := &a.state
	s.Boot, s.Booted = *boot, now
	s.Node.CPUs, s.Node.MemoryBytes = boot.CPUs, boot.MemoryBytes
	s.Node.Seed, s.Node.IPs = boot.Seed, s.OwnNode.Settings.HostIPs(boot.Addresses)
	s.PodsMax = s.OwnNode.Settings.PodsOn(boot.CPUs)
	a.out.Log(world.LevelInfo, "seedlet starts", "node", s.Node.Name, "manifests",
		s.Manifests.File.Path)
	a.out.Event(nodeobject.Reference(s.Node.Name), v1.EventTypeNormal, "Starting",
		"Starting kubelet.")
	for _, key := range []timer.Key{begun.Owner, manifest.Owner, manifest.URLOwner, pleg.Owner,
		pleg.StreamOwner, runtime.Owner, s.Node.Resolv.Key(), s.Node.Hosts.Key()} {
		a.touched.add(key)
	}
	a.watch()
}

// expire treats operations whose deadline has passed: their outcome is unknown.
func (a *Agent) expire(now time.Time) {
	for {
		id, r, ok := a.state.Ops.Expire(now)
		if !ok {
			return
		}
		a.answered(id, r, world.Event{Time: now, Op: id, Err: world.Errorf(
			world.KindTimeout, r.Call, "no answer in %s", r.Deadline.Sub(r.Began))})
	}
}

// due touches what asked to be called at this time.
func (a *Agent) due(now time.Time) {
	for {
		key, ok := a.state.Timers.Pop(now)
		if !ok {
			return
		}
		a.touched.add(key)
	}
}

// answered hands the outcome of an operation to its owner.
func (a *Agent) answered(id world.OpID, r op.Record, ev world.Event) {
	s := &a.state
	a.touched.add(r.Owner)
	a.count(r, ev)
	switch r.Owner.Component {
	case pod.Component:
		if p := s.Pods[r.Owner.Name]; p != nil {
			p.Answered(id, r, ev, a.env(p))
		}
		if ev.Err != nil {
			a.needList(ev.Time)
		}
	case pleg.Owner.Component:
		done := s.Relist.Answered(id, ev)
		if s.Relist.Ended.Equal(ev.Time) {
			a.countRelist(ev.Time)
		}
		if done {
			a.relisted()
		}
	case pleg.StreamOwner.Component:
		s.Events.Answered(id, ev, &a.out)
		a.touched.add(pleg.Owner) // the period is another one now
	case manifest.Owner.Component:
		s.Manifests.Answered(r.Owner, ev, &a.out)
		a.reconcile(ev.Time)
	case runtime.Owner.Component:
		a.runtimeAnswered(r, ev)
	case hostfile.Component:
		if a.hostFile(r.Owner).Answered(ev, &a.out) {
			a.touchPods() // some have waited for it
		}
	case housekeeping.Owner.Component:
		a.sweptAnswered(r, ev)
	case begun.Owner.Component:
		a.begunAnswered(ev)
	case logs.Owner.Component:
		a.logsAnswered(id, r, ev)
	case object.Component:
		if w, news := s.Objects.Answered(id, r, ev); news {
			a.touchUsers(w, nil)
		}
	case status.Component:
		s.Status.Answered(id, r, ev, &a.out)
	case mirror.Component:
		s.Mirrors.Answered(id, r, ev, &a.out)
	case nodeobject.Owner.Component:
		a.nodeAnswered(id, r, ev)
	case lease.Owner.Component:
		s.Lease.Answered(s.Boot.Seed, r, ev, &a.out)
	default:
		a.imageAnswered(r, ev)
	}
}

// plan lets one component decide what to do.
func (a *Agent) plan(key timer.Key) {
	s := &a.state
	var wake time.Time
	switch key.Component {
	case pod.Component:
		if p := s.Pods[key.Name]; p != nil {
			wake = a.planPod(p)
		}
	case pleg.Owner.Component:
		wake = s.Relist.Plan(&s.Events, &a.out)
	case pleg.StreamOwner.Component:
		wake = s.Events.Plan(&a.out)
	case manifest.Owner.Component:
		wake = s.Manifests.Plan(key, &a.out)
	case runtime.Owner.Component:
		wake = s.Runtime.Plan(&a.out)
	case begun.Owner.Component:
		wake = s.Begun.Plan(&a.out)
	case housekeeping.Owner.Component:
		if a.seenAll() && a.looked() {
			wake = s.Sweep.Plan(a.view(), &a.out)
		}
	case logs.Owner.Component:
		wake = a.planLogs(key)
	case hostfile.Component:
		wake = a.hostFile(key).Plan(&a.out)
	case object.Component:
		wake = s.Objects.Plan(key, &a.out)
	case status.Component:
		wake = a.planStatus(key.Name)
	case mirror.Component:
		wake = a.planMirror(key.Name)
	case nodeobject.Owner.Component:
		wake = s.OwnNode.Plan(a.nodeEnv())
	case lease.Owner.Component:
		wake = s.Lease.Plan(s.OwnNode.UID(), &a.out)
	default:
		wake = a.planImage(key.Name)
	}
	s.Timers.Set(key, wake)
}

// seenAll says whether all sources and the runtime have been seen. Before that nothing is
// cleaned up: what is not known may only not be known yet.
func (a *Agent) seenAll() bool {
	return a.state.Manifests.Ready() && a.boundSeen() && !a.state.Relist.AsOf.IsZero()
}

func (a *Agent) known(uid string) bool { return a.state.Pods[uid] != nil }

func (a *Agent) touchPod(uid string) {
	a.touched.add(timer.Key{Component: pod.Component, Name: uid})
}

func (a *Agent) touchPods() {
	for _, uid := range a.uids {
		a.touchPod(uid)
	}
}

// hostFile is the file of the node with the given key.
func (a *Agent) hostFile(key timer.Key) *hostfile.File {
	if key == a.state.Node.Hosts.Key() {
		return &a.state.Node.Hosts
	}
	return &a.state.Node.Resolv
}

// resolvConf is the path of the node's resolv.conf; empty if names are not to be resolved.
func resolvConf(c *kubeletconfig.KubeletConfiguration) string {
	if c.ResolverConfig == nil {
		return ""
	}
	return *c.ResolverConfig
}

func (a *Agent) env(p *pod.Pod) *pod.Env {
	if a.podEnv.Node == nil {
		a.podEnv = pod.Env{
			Node: &a.state.Node, Out: &a.out, Images: &a.state.Images, Objects: a.objects(),
			Runtime: &a.state.Runtime, Touch: a.touched.add, TakenIDs: a.takenIDs,
		}
	}
	a.podEnv.NotReady, a.podEnv.NetworkNotReady = a.notReady(), a.state.Runtime.NetworkNotReady()
	a.podEnv.NameTaken, a.podEnv.DirTaken = a.nameTaken(p), a.swept(p.UID)
	return &a.podEnv
}

// touched are the components to plan in this step, in the order in which they were touched.
type touched struct {
	keys   []timer.Key
	head   int
	queued map[timer.Key]bool
}

// touchesMax bounds the plans of one step: every pod may be planned, and touch images.
const touchesMax = 100_000

func (t *touched) add(key timer.Key) {
	if t.queued[key] {
		return
	}
	if len(t.keys) >= touchesMax {
		panic("core: plans touch each other without end, at " + key.String())
	}
	if t.queued == nil {
		t.queued = map[timer.Key]bool{}
	}
	t.queued[key] = true
	t.keys = append(t.keys, key)
}

func (t *touched) next() (timer.Key, bool) {
	if t.head == len(t.keys) {
		t.keys, t.head = t.keys[:0], 0
		return timer.Key{}, false
	}
	key := t.keys[t.head]
	t.head++
	delete(t.queued, key)
	return key, true
}

var _ world.Core = (*Agent)(nil)
