package kubelet

import (
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"

	"seedlet.dev/sim/agenda"
	"seedlet.dev/sim/apiserver"
	"seedlet.dev/sim/disk"
	"seedlet.dev/sim/runtime"
	"seedlet.dev/world"
)

// Node is what both kubelets know about the node.
type Node struct {
	Name, IP               string
	RootDir, LogsDir       string
	LinksDir               string // of links to the logs of containers
	CPUs                   int
	MemoryBytes            int64
	PidsMax                int64    // of a pod
	PageSizes              []int64  // of huge pages
	Systemd                bool     // makes the cgroups
	StaticManagers         bool     // state files of other policies are left; see plan.TakeOver
	Search, Servers, Extra []string // of the resolv.conf of pods: domains, servers, options
}

// Options are what a kubelet needs of the simulated world.
type Options struct {
	Node
	Agenda  *agenda.Agenda
	Runtime *runtime.Runtime
	Disk    *disk.Disk
	Server  *apiserver.Server
	Do      map[world.PortName]func(world.Effect) // the ports that it calls
	Static  func() []*v1.Pod                      // the pods of the manifest files
	Drivers func() []world.CSIDriver              // that run, in order of their names
}

// Kubelet is the kubelet that ran the node before the agent.
type Kubelet struct {
	opts    Options
	pods    map[string]*pod // by UID
	lastOp  world.OpID
	waiting map[world.OpID]call
	images  map[string]string // the IDs of images, by reference
	pulls   map[string]*image // by reference
	shared  map[string]*sharedVolume
	drivers map[string]*driver // that have registered, by name
	asked   map[string]bool    // drivers that are asked what they can do
	nodeIDs map[string]string  // of the node, by driver
	nodeUID string
	ended   bool
}

// call is a call in flight: what it is for, and of which pod; of none if it is the node's.
type call struct {
	pod    *pod
	key    string
	driver world.CSIDriver // that is asked what it can do
}

// New returns a kubelet that has done nothing yet.
func New(opts Options) *Kubelet {
	return &Kubelet{opts: opts, pods: map[string]*pod{}, waiting: map[world.OpID]call{},
		images: map[string]string{}, pulls: map[string]*image{}, shared: map[string]*sharedVolume{},
		drivers: map[string]*driver{}, asked: map[string]bool{}, nodeIDs: map[string]string{}}
}

const (
	syncPeriod  = time.Second // as often as a kubelet lists what the runtime has
	callTimeout = 10 * time.Minute
)

// Run looks after the node, again and again, until End.
func (k *Kubelet) Run() {
	if k.ended {
		return
	}
	if k.registerNode() {
		k.registerDrivers()
		k.syncPods()
		k.reportInUse()
	}
	k.opts.Agenda.After(syncPeriod, k.Run)
}

// End stops the kubelet. Calls in flight may still take effect. It writes the files that a kubelet
// keeps up to date.
func (k *Kubelet) End() {
	k.writeCheckpoints()
	k.ended = true
}

func (k *Kubelet) syncPods() {
	desired := k.desiredPods()
	for _, p := range append(desired, k.orphans()...) {
		k.syncPod(p)
	}
}

// desiredPods returns the pods of all sources, in order of their names.
func (k *Kubelet) desiredPods() []*pod {
	var all []*pod
	add := func(object *v1.Pod, isStatic bool) {
		p := k.pods[string(object.UID)]
		isNew := p == nil
		if isNew {
			p = newPod()
			k.pods[string(object.UID)] = p
		}
		p.isStatic = isStatic
		if k.allocate(p, object); isNew {
			k.adopt(p)
		}
		all = append(all, p)
	}
	for _, object := range k.opts.Static() {
		add(object, true)
	}
	for _, o := range k.opts.Server.Objects(world.ResourcePods) {
		if o.Pod.Spec.NodeName == k.opts.Name && o.Pod.Annotations[annotationMirror] == "" {
			add(o.Pod, false)
		}
	}
	slices.SortFunc(all, func(a, b *pod) int { return compareNames(a.object, b.object) })
	return all
}

// syncPod takes the next step for a pod, unless one is under way. What the pod still needs is
// decided again after it.
func (k *Kubelet) syncPod(p *pod) {
	if p.busy || k.ended {
		return
	}
	if step := k.nextStep(p); step != nil && step != idle {
		p.busy = true
		if p.using != nil {
			p.using.busy = true
		}
		k.do(call{pod: p, key: step.key}, step.port, step.body)
	}
}

// do calls a port.
func (k *Kubelet) do(c call, port world.PortName, body any) {
	k.lastOp++
	k.waiting[k.lastOp] = c
	eff := world.Effect{Op: k.lastOp, Body: body,
		Deadline: k.opts.Agenda.Now().Add(callTimeout)}
	if c.pod != nil {
		eff.Pod = string(c.pod.object.UID)
	}
	k.opts.Do[port](eff)
}

// Deliver receives the events of the ports.
func (k *Kubelet) Deliver(ev world.Event) {
	c, isOwn := k.waiting[ev.Op]
	if k.ended || ev.Op == 0 || !isOwn {
		return
	}
	delete(k.waiting, ev.Op)
	if c.driver.Name != "" {
		k.registered(c.driver, &ev)
	}
	if c.pod == nil {
		return
	}
	c.pod.busy = false
	k.complete(c.pod, c.key, &ev)
	k.syncPod(c.pod)
}
