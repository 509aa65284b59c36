package csi

import (
	"encoding/json"
	"fmt"
	"maps"
	"path"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"seedlet.dev/core/objectcache"
	"seedlet.dev/core/op"
	"seedlet.dev/core/selinux"
	"seedlet.dev/core/timer"
	"seedlet.dev/world"
)

var t0 = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

const driverName = "d.example"

// republishPeriod is how often a volume is published again, without a setting.
const republishPeriod = time.Minute

// node is a node with its disk, one driver and an API server, which do every call at once. A test
// has calls fail, or leaves them in flight.
type node struct {
	t       *testing.T
	node    Node
	table   op.Table
	effects op.Effects
	objects objectcache.Store
	object  *v1.Node
	now     time.Time
	queue   []timer.Key
	wakes   map[timer.Key]time.Time
	pods    map[string]bool // that are known
	planned []string        // pods, since the test looked last
	// allPlanned is how often all pods were planned.
	allPlanned int
	logs       []string

	events     []string     // of pods: UID, reason and message
	canceled   []world.OpID // operations
	counted    []string     // operations on volumes
	labels     []string     // events about SELinux labels
	cleansUp   bool
	selinux    bool
	allModes   bool              // the feature gate SELinuxMount
	mountGroup bool              // the driver gives volumes to groups
	unreadable map[string]bool   // directories and files, by path
	noStage    bool              // the driver does not stage
	leaves     int               // times that the driver only says to have unstaged
	lies       int               // publications that the driver only says to have made
	files      map[string]string // by path; directories have "/"
	mounts     []world.Mount
	csiNode    *storagev1.CSINode
	refuses    map[string]string // why the API server refuses what drivers need in the Node, by name
	patched    []string          // drivers for which the Node was patched
	invalid    map[string]bool   // drivers whose entry in the CSINode the API server refuses
	// infos are what drivers answer of their node, by name; without one it is what this driver does.
	infos map[string]*world.CSINodeInfo
	claim *v1.PersistentVolumeClaim // of the tests of expansion
	// attachment is the status of all VolumeAttachments; nil: they are attached.
	attachment      *storagev1.VolumeAttachmentStatus
	attachmentReads int
	noAttachDetach  bool // no controller attaches volumes

	heldDevices map[string]bool     // by path
	withdraws   bool                // a write of the Node may take back what is in use
	calls       []string            // of the driver and of writes to the API server
	requests    []any               // of the driver
	tenants     map[string]string   // of the operations on volumes, by call; nil: not kept
	fail        map[string]*failure // by call
	tokens      int                 // that the API server has issued
	held        map[string]world.Effect
	hold        map[string]bool // calls that are left in flight
}

// failure is how calls fail, once or for ever, before or after they have taken effect.
type failure struct {
	err    *world.Error
	times  int
	effect bool
}

func newNode(t *testing.T) *node {
	n := &node{t: t, now: t0, node: NewNode("n1", "/k", true), wakes: map[timer.Key]time.Time{},
		pods: map[string]bool{}, heldDevices: map[string]bool{}, cleansUp: true,
		files: map[string]string{},
		fail:  map[string]*failure{}, held: map[string]world.Effect{}, hold: map[string]bool{},
		object: &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1", UID: "node-uid"}}}
	n.effects.Reset(&n.table, n.now)
	n.objects.AddReference(AllDrivers, "agent", &n.effects)
	n.setDriverObject(nil)
	n.queue = append(n.queue, SearchOwner, ObjectOwner)
	return n
}

// setDriverObject sets the CSIDriver of the driver; nil: it has none.
func (n *node) setDriverObject(spec *storagev1.CSIDriverSpec) {
	w := n.objects.Watch(AllDrivers)
	list := &world.ObjectsListed{Watch: w.ID}
	if spec != nil {
		list.Objects = []world.Object{{CSIDriver: &storagev1.CSIDriver{
			ObjectMeta: metav1.ObjectMeta{Name: driverName}, Spec: *spec}}}
	}
	n.objects.HandleWatchEvent(list, n.now)
	for _, name := range n.node.VolumeNames() {
		n.queue = append(n.queue, VolumeKey(name))
	}
}

func (n *node) env() *Env {
	named := NewNamedVolumes(n.object)
	return &Env{Effects: &n.effects, Objects: &n.objects, Object: n.object, CleansUp: n.cleansUp,
		Named: named, AttachDetach: !n.noAttachDetach,
		SELinux: selinux.Node{Enabled: n.selinux, FileLabel: "system_u:object_r:container_file_t:s0",
			AllModes: n.allModes},
		Enqueue:    func(key timer.Key) { n.queue = append(n.queue, key) },
		SaysInUse:  func(name string) bool { return named.IsInUse(name) && !n.withdraws },
		IsKnownPod: func(uid string) bool { return n.pods[uid] },
		EnqueuePod: func(uid string) { n.planned = append(n.planned, uid) },
		Count: func(o Counted) {
			counted := fmt.Sprintf("%s %v %v", o.Operation, o.Took, o.Failed)
			if o.Migrated {
				counted += " migrated"
			}
			n.counted = append(n.counted, counted)
		},
		CountLabel: func(o selinux.Counted) {
			n.labels = append(n.labels, fmt.Sprint(o.Event, " ", o.Driver, " ", o.AccessMode))
		},
		EnqueuePods: func() { n.allPlanned++ }, ReportsInUse: n.reportInUse,
	}
}

// reportInUse has the Node report which volumes are in use, at once.
func (n *node) reportInUse() {
	names, known := n.node.VolumesInUse(n.object, n.env())
	if !known || slices.Equal(names, n.object.Status.VolumesInUse) {
		return
	}
	n.object = n.object.DeepCopy()
	n.object.Status.VolumesInUse = names
	n.calls = append(n.calls, fmt.Sprintf("in use %d", len(names)))
	waiting, _ := n.node.WaitingToAttach(n.env())
	for _, name := range waiting {
		n.queue = append(n.queue, VolumeKey(name))
	}
}

// attach has the cluster attach all volumes that are in use.
func (n *node) attach() {
	n.object = n.object.DeepCopy()
	n.object.Status.VolumesAttached = nil
	for _, name := range n.object.Status.VolumesInUse {
		n.object.Status.VolumesAttached = append(n.object.Status.VolumesAttached,
			v1.AttachedVolume{Name: name})
		n.queue = append(n.queue, VolumeKey(string(name)))
	}
}

// run plans until nothing is left to do at this time.
func (n *node) run() *node {
	n.t.Helper()
	for range 10_000 {
		if len(n.queue) == 0 {
			n.checkRest()
			return n
		}
		key := n.queue[0]
		n.queue = n.queue[1:]
		n.restore()
		n.effects.Reset(&n.table, n.now)
		n.wakes[key] = n.plan(key)
		for _, e := range slices.Clone(n.effects.List()) {
			n.carryOut(e)
		}
	}
	n.t.Fatal("the plans have no end")
	return n
}

// checkRest checks that another plan of a volume without a timer would do nothing: whatever makes
// that possible has the volume planned.
func (n *node) checkRest() {
	n.t.Helper()
	for _, name := range n.node.VolumeNames() {
		key := VolumeKey(name)
		if !n.wakes[key].IsZero() {
			continue
		}
		before, _ := json.Marshal(n.node.Volumes[name])
		n.effects.Reset(&n.table, n.now)
		if wake := n.plan(key); !wake.IsZero() {
			n.t.Fatalf("%s: it has no timer, and has to be planned at %v", name, wake)
		}
		if after, _ := json.Marshal(n.node.Volumes[name]); string(after) != string(before) {
			n.t.Fatalf("%s: nothing had it planned, but it becomes\n%s\nand was\n%s", name, after, before)
		}
		for _, e := range n.effects.List() {
			if e.Op != 0 {
				n.t.Fatalf("%s: nothing had it planned, but it issues %s", name, world.CallName(e.Body))
			}
		}
	}
}

// restore replaces the state by what its JSON is read as.
func (n *node) restore() {
	data, err := json.Marshal(&n.node)
	if err != nil {
		n.t.Fatal(err)
	}
	var restored Node
	if err := json.Unmarshal(data, &restored); err != nil {
		n.t.Fatal(err)
	}
	again, _ := json.Marshal(&restored)
	if string(again) != string(data) {
		n.t.Fatalf("restored as\n%s\nand not\n%s", again, data)
	}
	n.node = restored
}

func (n *node) plan(key timer.Key) time.Time {
	switch key.Component {
	case SearchOwner.Component:
		return n.node.PlanSearch(n.env())
	case ObjectOwner.Component:
		return n.node.PlanObject(n.env())
	case DriverComponent:
		return n.node.PlanDriver(key.Name, n.env())
	case Component:
		return n.node.PlanVolume(key.Name, n.env())
	}
	return time.Time{}
}

// wait lets time pass, with all timers that are due.
func (n *node) wait(d time.Duration) *node {
	n.t.Helper()
	end := n.now.Add(d)
	for {
		var next time.Time
		for _, at := range n.wakes {
			next = timer.Soonest(next, at)
		}
		if next.IsZero() || next.After(end) {
			break
		}
		n.now = timer.Later(n.now, next)
		for _, key := range slices.SortedFunc(maps.Keys(n.wakes), timer.Key.Compare) {
			if at := n.wakes[key]; !at.IsZero() && !at.After(n.now) {
				n.wakes[key] = time.Time{}
				n.queue = append(n.queue, key)
			}
		}
		n.run()
	}
	n.now = end
	return n
}

// carryOut does what an effect asks for, and completes it, unless it is held.
func (n *node) carryOut(e world.Effect) {
	if l, isLog := e.Body.(*world.Log); isLog {
		n.logs = append(n.logs, strings.TrimSpace(fmt.Sprintln(append([]any{l.Message},
			l.Fields...)...)))
	}
	switch b := e.Body.(type) {
	case *world.RecordEvent:
		n.events = append(n.events, fmt.Sprintf("%s %s %s", b.Regarding.UID, b.Reason, b.Message))
	case *world.CancelOperation:
		n.canceled = append(n.canceled, b.Operation)
	}
	if e.Op == 0 {
		return
	}
	call := world.CallName(e.Body)
	if r, isKnown := n.table.Records[e.Op]; isKnown && n.tenants != nil &&
		r.Owner.Component == Component {
		n.tenants[call] = e.Tenant
	}
	if n.hold[call] {
		n.held[call] = e
		return
	}
	n.complete(e)
}

// release completes the call that is in flight.
func (n *node) release(call string) *node {
	n.hold[call] = false
	e, isHeld := n.held[call]
	if !isHeld {
		n.t.Helper()
		n.t.Fatalf("%s is not in flight", call)
	}
	delete(n.held, call)
	n.complete(e)
	return n.run()
}

func (n *node) complete(e world.Effect) {
	ev := world.Event{Time: n.now, Op: e.Op}
	call := world.CallName(e.Body)
	if n.isUnreadable(e.Body) {
		ev.Err = world.Errorf(world.KindInternal, call, "input/output error")
	} else if f := n.fail[call]; f != nil && f.times != 0 {
		f.times--
		if ev.Err = f.err; f.effect {
			n.perform(e.Body)
		} else if slices.Contains([]string{"StageVolume", "PublishVolume", "UnpublishVolume",
			"UnstageVolume"}, call) {
			n.calls = append(n.calls, call+" fails")
		}
	} else {
		ev.Body, ev.Err = n.perform(e.Body)
	}
	r, ok := n.table.Complete(e.Op)
	if !ok {
		return
	}
	n.effects.Reset(&n.table, n.now)
	switch r.Owner.Component {
	case SearchOwner.Component:
		n.node.HandleSearchCompletion(e.Op, ev, n.env())
	case ObjectOwner.Component:
		n.node.HandleObjectCompletion(r, ev, n.env())
	case DriverComponent:
		n.node.HandleDriverCompletion(e.Op, r, ev, n.env())
		n.queue = append(n.queue, ObjectOwner)
	default:
		n.node.HandleVolumeCompletion(e.Op, r, ev, n.env())
	}
	n.queue = append(n.queue, r.Owner)
	for _, e := range slices.Clone(n.effects.List()) {
		n.carryOut(e)
	}
}

// isUnreadable reports whether a request reads what cannot be read.
func (n *node) isUnreadable(body any) bool {
	switch b := body.(type) {
	case *world.ListDir:
		return n.unreadable[b.Path]
	case *world.ReadFiles:
		return n.unreadable[b.Path]
	}
	return false
}

func notFoundErr(what string) *world.Error {
	return world.Errorf(world.KindNotFound, "test", "%s not found", what)
}

// perform does what a request asks for.
func (n *node) perform(body any) (any, *world.Error) {
	switch b := body.(type) {
	case *world.ExpandVolume:
		n.calls, n.requests = append(n.calls, fmt.Sprintf("expand %d", b.RequiredBytes)),
			append(n.requests, b)
		return &world.VolumeExpanded{CapacityBytes: b.RequiredBytes}, nil
	case *world.PatchObject:
		return n.patchClaim(b)
	case *world.GetObject, *world.CreateObject, *world.UpdateObject, *world.DeleteObject:
		return n.performAPI(b)
	case *world.GetCSINodeInfo:
		n.calls = append(n.calls, "info")
		if info := n.infos[b.Driver.Name]; info != nil {
			return info, nil
		}
		return &world.CSINodeInfo{NodeID: "id-1", VolumesMax: 9, Topology: map[string]string{"zone": "a"},
			Capabilities: world.CSICapabilities{StageUnstage: !n.noStage, Expand: true,
				VolumeMountGroup: n.mountGroup}}, nil
	case *world.CreateToken:
		n.tokens++
		return &world.TokenCreated{Token: fmt.Sprint("token-", n.tokens),
			ExpirationSeconds: *b.Spec.ExpirationSeconds}, nil
	case *world.ShareWithGroup:
		n.calls = append(n.calls, fmt.Sprintf("group %d", b.GID))
		return &world.Done{}, nil
	case *world.StageVolume, *world.UnstageVolume, *world.PublishVolume, *world.UnpublishVolume:
		n.requests = append(n.requests, b)
		return n.performCSI(b)
	}
	return n.performFS(body)
}

// performCSI is the driver: what is staged or published is a mount.
func (n *node) performCSI(body any) (any, *world.Error) {
	mount := func(at, what string) {
		n.calls = append(n.calls, what+" "+path.Base(path.Dir(at)))
		if what == "publish" && n.files[path.Dir(at)+"/vol_data.json"] == "" {
			n.t.Errorf("published at %s without data", at)
		}
		n.files[at] = "/"
		if !n.isMounted(at) {
			n.mounts = append(n.mounts, world.Mount{Path: at, Device: "8:1", Root: "/" + at})
		}
	}
	unmount := func(at, what string) {
		n.calls = append(n.calls, what+" "+path.Base(path.Dir(at)))
		n.mounts = slices.DeleteFunc(n.mounts, func(m world.Mount) bool { return m.Path == at })
	}
	switch b := body.(type) {
	case *world.StageVolume:
		mount(b.StagingPath, "stage")
	case *world.PublishVolume:
		if n.lies > 0 {
			n.lies--
			return &world.Done{}, nil
		}
		if b.Capability.Block {
			n.publishDevice(b.TargetPath)
			break
		}
		mount(b.TargetPath, "publish")
	case *world.UnpublishVolume:
		unmount(b.TargetPath, "unpublish")
		if !slices.ContainsFunc(slices.Collect(maps.Keys(n.files)), func(file string) bool {
			return strings.HasPrefix(file, b.TargetPath+"/")
		}) {
			delete(n.files, b.TargetPath)
		}
	case *world.UnstageVolume:
		if n.leaves > 0 {
			n.leaves--
			n.calls = append(n.calls, "unstage nothing")
			return &world.Done{}, nil
		}
		unmount(b.StagingPath, "unstage")
	}
	return &world.Done{}, nil
}

// publishDevice mounts a device at a file.
func (n *node) publishDevice(at string) {
	name, uid := path.Base(path.Dir(at)), path.Base(at)
	n.calls = append(n.calls, "publish device "+name)
	blocks := path.Dir(path.Dir(path.Dir(at)))
	_, isNoted := n.files[blocks+"/"+name+"/dev/"+uid]
	if !isNoted || n.files[blocks+"/"+name+"/data/vol_data.json"] == "" {
		n.t.Errorf("published at %s, and nothing would be found of that", at)
	}
	n.files[at] = "device"
	n.mount(at)
}

// mount mounts something at a path, unless something is mounted there.
func (n *node) mount(at string) {
	if !n.isMounted(at) {
		n.mounts = append(n.mounts, world.Mount{Path: at, Device: "0:5", Root: "/loop0"})
	}
}

func (n *node) isMounted(at string) bool {
	return slices.ContainsFunc(n.mounts, func(m world.Mount) bool { return m.Path == at })
}

func (n *node) removeTree(tree string) {
	for file := range n.files {
		if n.isMounted(file) && (file == tree || strings.HasPrefix(file, tree+"/")) {
			n.t.Errorf("%s is removed behind a mount", tree)
		}
		if file == tree || strings.HasPrefix(file, tree+"/") {
			delete(n.files, file)
		}
	}
}

func (n *node) performFS(body any) (any, *world.Error) {
	switch b := body.(type) {
	case *world.BindMount, *world.HoldDevice, *world.ReleaseDevice, *world.MakeLink, *world.Unmount:
		return n.performMount(b)
	case *world.MakeDir:
		for dir := b.Path; dir != "/"; dir = path.Dir(dir) {
			n.files[dir] = "/"
		}
	case *world.WriteFile:
		n.files[b.Path] = string(b.Data)
	case *world.RemoveTree:
		n.removeTree(b.Path)
	case *world.StatPath:
		switch n.files[b.Path] {
		case "":
			return nil, notFoundErr(b.Path)
		case "device":
			return &world.PathInfo{Kind: world.PathBlockDevice}, nil
		}
		return &world.PathInfo{Kind: world.PathDirectory}, nil
	case *world.ListMounts:
		listed := &world.MountsListed{}
		for _, m := range n.mounts {
			if m.Path == b.Path || strings.HasPrefix(m.Path, strings.TrimSuffix(b.Path, "/")+"/") {
				listed.Mounts = append(listed.Mounts, m)
			}
		}
		return listed, nil
	case *world.ListDir:
		listed := &world.DirListed{}
		if n.files[b.Path] != "/" {
			return nil, notFoundErr(b.Path)
		}
		for _, file := range slices.Sorted(maps.Keys(n.files)) {
			if path.Dir(file) == b.Path {
				listed.Entries = append(listed.Entries, world.DirEntry{Name: path.Base(file),
					Directory: n.files[file] == "/"})
			}
		}
		return listed, nil
	case *world.ReadFiles:
		if n.files[b.Path] == "" {
			return nil, notFoundErr(b.Path)
		}
		return &world.FilesRead{Files: []world.File{{Name: path.Base(b.Path),
			Data: []byte(n.files[b.Path])}}}, nil
	}
	return &world.Done{}, nil
}

// performMount performs what is done with the device of a block volume.
func (n *node) performMount(body any) (any, *world.Error) {
	switch b := body.(type) {
	case *world.BindMount:
		n.mount(b.Path)
		return &world.Mounted{}, nil
	case *world.HoldDevice:
		if !n.isMounted(b.Path) {
			return nil, notFoundErr(b.Path)
		}
		n.heldDevices[b.Path] = true
	case *world.ReleaseDevice:
		delete(n.heldDevices, b.Path)
	case *world.MakeLink:
		n.files[b.Path] = "-> " + b.Target
	case *world.Unmount:
		if n.heldDevices[b.Path] {
			return nil, world.Errorf(world.KindExhausted, "Unmount", "%s is busy", b.Path)
		}
		n.mounts = slices.DeleteFunc(n.mounts, func(m world.Mount) bool {
			return m.Path == b.Path || strings.HasPrefix(m.Path, b.Path+"/")
		})
	}
	return &world.Done{}, nil
}

func (n *node) performAPI(body any) (any, *world.Error) {
	if get, ok := body.(*world.GetObject); ok && get.Resource == world.ResourceAttachments {
		n.attachmentReads++
		status := storagev1.VolumeAttachmentStatus{Attached: true,
			AttachmentMetadata: map[string]string{"disk": "7"}}
		if n.attachment != nil {
			status = *n.attachment
		}
		return &world.ObjectRead{Object: world.Object{Attachment: &storagev1.VolumeAttachment{
			ObjectMeta: metav1.ObjectMeta{Name: get.Name}, Status: status}}}, nil
	}
	if get, ok := body.(*world.GetObject); ok && get.Resource == world.ResourceClaims {
		return &world.ObjectRead{Object: world.Object{Claim: n.claim.DeepCopy()}}, nil
	}
	switch b := body.(type) {
	case *world.CreateObject:
		n.calls = append(n.calls, "create CSINode")
		n.csiNode = b.Object.CSINode
	case *world.UpdateObject:
		n.calls = append(n.calls, "update CSINode")
		if err := n.validateEntries(b.Object.CSINode); err != nil {
			return nil, err
		}
		n.csiNode = b.Object.CSINode.DeepCopy()
		n.csiNode.ResourceVersion += "+"
	case *world.DeleteObject:
		n.calls = append(n.calls, "delete CSINode")
		n.csiNode = nil
		return &world.Done{}, nil
	}
	if n.csiNode == nil {
		return nil, notFoundErr("the CSINode")
	}
	return &world.ObjectRead{Object: world.Object{CSINode: n.csiNode}}, nil
}

// validateEntries refuses a CSINode that changes more of an entry than its number of volumes, or
// that has the entry of a driver which is refused.
func (n *node) validateEntries(o *storagev1.CSINode) *world.Error {
	for _, entry := range o.Spec.Drivers {
		if n.invalid[entry.Name] {
			return world.Errorf(world.KindInvalid, "UpdateObject", "the entry of %s is invalid", entry.Name)
		}
		for _, before := range n.csiNode.Spec.Drivers {
			entry.Allocatable, before.Allocatable = nil, nil
			if before.Name == entry.Name && !reflect.DeepEqual(before, entry) {
				return world.Errorf(world.KindInvalid, "UpdateObject", "field is immutable")
			}
		}
	}
	return nil
}

// register registers the driver, as package plugins does.
func (n *node) register() *node {
	n.t.Helper()
	p := Plugin{Name: driverName, Endpoint: "/d.sock", Socket: "s1", Registration: "1"}
	n.observe(p)
	if ready, problem := n.node.Registration(p, n.env()); !ready {
		n.t.Fatalf("the driver is not ready: %q", problem)
	}
	p.Registered = true
	n.observe(p)
	return n
}

// observe has the registry report its plugins, and applies what the Node gets.
func (n *node) observe(plugins ...Plugin) {
	sockets := map[string]bool{}
	for _, p := range plugins {
		sockets[p.Socket] = true
	}
	changed := n.node.ObservePlugins(plugins, sockets)
	for _, name := range changed {
		n.queue = append(n.queue, DriverKey(name), ObjectOwner)
	}
	for _, volume := range n.node.Retry(changed) {
		n.queue = append(n.queue, VolumeKey(volume))
	}
	n.run()
	n.patchNode()
}

// patchNode gives the Node what the drivers need in it, those in turn that the API server does not
// refuse.
func (n *node) patchNode() {
	after := ""
	for {
		driver, labels, annotations := n.node.NodeMetadata(n.object, after, n.now)
		if after = driver; driver == "" {
			break
		}
		n.patched = append(n.patched, driver)
		if message := n.refuses[driver]; message != "" {
			n.node.RefuseMetadata(driver, message, n.env())
			continue
		}
		n.object = n.object.DeepCopy()
		for key, value := range labels {
			metav1.SetMetaDataLabel(&n.object.ObjectMeta, key, value.(string))
		}
		for key, value := range annotations {
			if delete(n.object.Annotations, key); value != nil {
				metav1.SetMetaDataAnnotation(&n.object.ObjectMeta, key, value.(string))
			}
		}
	}
	n.queue = append(n.queue, ObjectOwner)
	for _, name := range n.node.DriverNames() {
		n.queue = append(n.queue, DriverKey(name))
	}
	n.run()
}

// pod returns a pod.
func pod(uid string) *v1.Pod {
	return &v1.Pod{ObjectMeta: metav1.ObjectMeta{UID: types.UID(uid), Namespace: "ns",
		Name: "pod-" + uid}, Spec: v1.PodSpec{ServiceAccountName: "sa"}}
}

// use returns the use of the persistent volume pv-1 by a pod.
func use(uid string) Use {
	pv := &v1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "pv-1"},
		Spec: v1.PersistentVolumeSpec{PersistentVolumeSource: v1.PersistentVolumeSource{
			CSI: &v1.CSIPersistentVolumeSource{Driver: driverName, VolumeHandle: "h1", FSType: "ext4"}},
			AccessModes: []v1.PersistentVolumeAccessMode{v1.ReadWriteOnce}}}
	return PersistentUse(pod(uid), &v1.Volume{Name: "data"}, pv, false)
}

// inline returns the use of an inline volume.
func inline(uid string) Use {
	return EphemeralUse(pod(uid), &v1.Volume{Name: "scratch", VolumeSource: v1.VolumeSource{
		CSI: &v1.CSIVolumeSource{Driver: driverName}}})
}

// need has a pod need a volume, and returns how far it is.
func (n *node) need(u Use) UseState {
	n.t.Helper()
	n.pods[u.UID] = true
	if _, changed := n.node.Use(u, n.now); changed {
		n.queue = append(n.queue, VolumeKey(UniqueName(u.Driver, u.Handle)))
	}
	n.run()
	return n.node.UseStateOf(&u)
}

// end has a pod end, and reports whether anything of it is still published.
func (n *node) end(uid string) (held bool) {
	n.t.Helper()
	changed, _ := n.node.Release(uid)
	for _, name := range changed {
		n.queue = append(n.queue, VolumeKey(name))
	}
	n.run()
	_, held = n.node.Release(uid)
	return held
}

// restart starts another agent on the same node.
func (n *node) restart() *node {
	n.node = NewNode("n1", "/k", true)
	n.table, n.queue = op.Table{}, []timer.Key{SearchOwner, ObjectOwner}
	n.held = map[string]world.Effect{}
	clear(n.wakes)
	n.calls, n.logs, n.requests = nil, nil, nil
	return n.run()
}

// expect fails unless the driver and the API server were asked for this since the last time, and
// for nothing else.
func (n *node) expect(want ...string) {
	n.t.Helper()
	if !slices.Equal(n.calls, want) {
		n.t.Errorf("got the calls\n%q, want\n%q", n.calls, want)
	}
	n.calls = nil
}

// expectClean fails if anything of a volume is left.
func (n *node) expectClean() {
	n.t.Helper()
	if len(n.node.Volumes) > 0 || len(n.node.Owners) > 0 || len(n.mounts) > 0 {
		data, _ := json.MarshalIndent(n.node, "", " ")
		n.t.Errorf("left: %s, mounts %v", data, n.mounts)
	}
	for file := range n.files {
		if strings.Contains(file, "pv-1") || strings.Contains(file, globalMount) {
			n.t.Errorf("left: %s", file)
		}
	}
}

func ref(name string) *v1.SecretReference {
	return &v1.SecretReference{Namespace: "ns", Name: name}
}

// listSecret has the API server list a secret; nil: it does not exist.
func (n *node) listSecret(name string, data map[string][]byte) {
	n.t.Helper()
	w := n.objects.Watch(world.WatchTarget{Resource: world.ResourceSecrets, Namespace: "ns",
		Name: name})
	if w == nil {
		n.t.Fatalf("the secret %s is not watched", name)
	}
	list := &world.ObjectsListed{Watch: w.ID}
	if data != nil {
		list.Objects = []world.Object{{Secret: &v1.Secret{
			ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name}, Data: data}}}
	}
	n.objects.HandleWatchEvent(list, n.now)
	for _, user := range w.Users {
		if key, isVolume := KeyOfUser(user); isVolume {
			n.queue = append(n.queue, key)
		}
	}
	n.run()
}
