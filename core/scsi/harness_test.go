package scsi

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"seedlet.dev/core/objectcache"
	"seedlet.dev/core/op"
	"seedlet.dev/core/selinux"
	"seedlet.dev/core/timer"
	"seedlet.dev/world"
)

var t0 = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

const (
	iqn    = "iqn.2026-11.test:t"
	portal = "10.0.0.1:3260"
	rootA  = "iface-default/" + portal + "-" + iqn + "-lun-0"
)

// rig plans disks against an initiator and a disk of a few lines. Each session appears with its
// login, and a disk with its scan, unless noDisk is set.
type rig struct {
	t       *testing.T
	n       Node
	table   op.Table
	effects op.Effects
	now     time.Time
	queue   []timer.Key
	wakes   map[string]time.Time
	known   []string // pods
	cleans  bool
	objects *objectcache.Store
	waits   bool // the Node does not say that volumes are attached

	sessions  []world.SCSIPath
	luns      map[string]bool   // "HOST LUN": the disk is there
	mounts    map[string]string // devices, by path
	labels    map[string]string // SELinux labels of file systems, by device
	counted   []selinux.Counted
	files     map[string]string
	dirs      map[string][]world.DirEntry
	noDisk    bool
	fcPaths   []world.SCSIPath // disks of fibre channel, and those after a scan
	fcScan    []world.SCSIPath
	multipath string
	exits     map[string]int          // exit codes, by a part of the arguments
	fail      map[string]*world.Error // by call, or by a part of the arguments; once
	hold      string                  // a call that is left in flight
	held      []world.Effect
	calls     []string
	passwords []string
	planned   []string // pods
}

func newRig(t *testing.T) *rig {
	w := &rig{t: t, now: t0, cleans: true, n: NewNode("/k"), wakes: map[string]time.Time{},
		luns: map[string]bool{}, mounts: map[string]string{}, labels: map[string]string{},
		files: map[string]string{}, dirs: map[string][]world.DirEntry{}, exits: map[string]int{},
		fail: map[string]*world.Error{}}
	w.n.Start(false)
	return w
}

func (w *rig) env() *Env {
	return &Env{Effects: &w.effects, Objects: w.objects, CleansUp: w.cleans,
		Enqueue:    func(key timer.Key) { w.queue = append(w.queue, key) },
		SaysInUse:  func(string) bool { return true },
		IsAttached: func(string) bool { return !w.waits },
		IsKnownPod: func(uid string) bool { return slices.Contains(w.known, uid) },
		EnqueuePod: func(uid string) { w.planned = append(w.planned, uid) },
		CountLabel: func(c selinux.Counted) { w.counted = append(w.counted, c) },
		EnqueuePods: func() {
			w.planned = append(w.planned, "all")
		}, ReportsInUse: func() {}}
}

// pod returns a pod with a volume of the kind iscsi.
func pod(uid string, s v1.ISCSIVolumeSource) (*v1.Pod, *v1.Volume) {
	p := &v1.Pod{ObjectMeta: metav1.ObjectMeta{UID: types(uid), Namespace: "ns", Name: uid}}
	return p, &v1.Volume{Name: "v", VolumeSource: v1.VolumeSource{ISCSI: &s}}
}

func useBy(uid string, lun int32, change func(*v1.ISCSIVolumeSource)) Use {
	s := v1.ISCSIVolumeSource{TargetPortal: "10.0.0.1", IQN: iqn, Lun: lun, ISCSIInterface: "default"}
	if change != nil {
		change(&s)
	}
	return InlineUse(pod(uid, s))
}

// use declares a use, runs what follows, and returns how far it is.
func (w *rig) use(u Use) UseState {
	w.n.Use(u, w.now)
	w.run()
	state, _ := w.n.Use(u, w.now)
	return state
}

// release takes back what a pod needs, as one that has unmounted its volumes.
func (w *rig) release(uid string) bool {
	_, held := w.n.Release(uid, true)
	w.run()
	return held
}

// run plans and completes operations until none is left but those that are held.
func (w *rig) run() {
	w.t.Helper()
	for range 400 {
		w.effects.Reset(&w.table, w.now)
		for _, name := range w.n.Names() {
			w.wakes[name] = w.n.PlanDisk(name, w.env())
		}
		w.n.PlanSearch(w.env())
		issued := slices.Clone(w.effects.List())
		w.queue = nil
		progress := false
		for _, at := range w.wakes { //ordered: whether one is due
			progress = progress || !at.IsZero() && !at.After(w.now)
		}
		for _, eff := range issued {
			if eff.Op == 0 {
				continue
			}
			call := describe(eff.Body)
			w.calls = append(w.calls, call)
			if w.hold != "" && strings.Contains(call, w.hold) {
				w.held = append(w.held, eff)
				continue
			}
			progress = true
			w.complete(eff, w.answer(eff.Body))
		}
		if !progress {
			return
		}
	}
	w.t.Fatalf("no end: %v", w.calls[len(w.calls)-20:])
}

func (w *rig) complete(eff world.Effect, ev world.Event) {
	r, _ := w.table.Complete(eff.Op)
	ev.Time, ev.Op = w.now, eff.Op
	var effects op.Effects
	effects.Reset(&w.table, w.now)
	env := w.env()
	env.Effects = &effects
	if r.Owner == SearchOwner {
		w.n.HandleSearchCompletion(ev, env)
		return
	}
	w.n.HandleDiskCompletion(eff.Op, r, ev, env)
}

// after lets time pass.
func (w *rig) after(d time.Duration) {
	w.now = w.now.Add(d)
	w.run()
}

// expectNothingLeft requires that all sessions have ended and all disks are forgotten.
func (w *rig) expectNothingLeft() {
	w.t.Helper()
	if len(w.sessions) > 0 || len(w.n.Disks) > 0 {
		w.t.Errorf("left: %v, %v", w.sessions, w.n.Names())
	}
}

// take returns the calls since the last take, without those that only look.
func (w *rig) take() string {
	var kept []string
	for _, call := range w.calls {
		if !strings.HasPrefix(call, "Find") && !strings.HasPrefix(call, "ListMounts") {
			kept = append(kept, call)
		}
	}
	w.calls = nil
	return strings.Join(kept, "\n")
}

func describe(body any) string {
	switch b := body.(type) {
	case *world.RunISCSIAdm:
		return strings.Join(b.Args, " ")
	case *world.FindSCSIDisks:
		return fmt.Sprintf("Find %d", b.Unit.LUN)
	case *world.ScanSCSIHost:
		return fmt.Sprintf("Scan host%d %d", b.Host, b.LUN)
	case *world.ScanSCSIHosts:
		return fmt.Sprintf("Scan %v %d %v", b.Unit.WWNs, b.Unit.LUN, b.Unit.WWIDs)
	case *world.RemoveSCSIDisks:
		return fmt.Sprintf("Remove %d", b.Unit.LUN)
	case *world.MountDevice:
		return fmt.Sprintf("MountDevice %s %s %v %v", b.Device, b.FSType, b.ReadOnly, b.Options)
	}
	var at struct{ Path string }
	text, _ := json.Marshal(body)
	_ = json.Unmarshal(text, &at)
	return world.CallName(body) + " " + strings.TrimPrefix(at.Path, "/k/plugins/kubernetes.io/iscsi/")
}

// answer carries out an operation.
func (w *rig) answer(body any) world.Event {
	call := describe(body)
	for _, part := range slices.Sorted(maps.Keys(w.fail)) {
		if err := w.fail[part]; strings.Contains(call, part) {
			delete(w.fail, part)
			return world.Event{Err: err}
		}
	}
	switch b := body.(type) {
	case *world.RunISCSIAdm:
		w.passwords = append(w.passwords, b.Password)
		return w.command(b.Args)
	case *world.FindSCSIDisks:
		return world.Event{Body: w.find(b)}
	case *world.ScanSCSIHost:
		w.luns[fmt.Sprint(b.Host, " ", b.LUN)] = !w.noDisk
	case *world.ScanSCSIHosts:
		w.fcPaths = w.fcScan
	case *world.RemoveSCSIDisks:
		w.fcPaths = nil
		for _, s := range w.sessions {
			delete(w.luns, fmt.Sprint(s.Host, " ", b.Unit.LUN))
		}
	case *world.MountDevice:
		return w.mount(b)
	case *world.Unmount:
		delete(w.mounts, b.Path)
	case *world.WriteFile:
		w.files[b.Path] = string(b.Data)
	case *world.ReadFiles:
		if text, has := w.files[b.Path]; has {
			return world.Event{Body: &world.FilesRead{Files: []world.File{{Data: []byte(text)}}}}
		}
		return world.Event{Err: world.Errorf(world.KindNotFound, "ReadFiles", "no such file")}
	case *world.ListMounts:
		listed := &world.MountsListed{}
		for _, at := range slices.Sorted(maps.Keys(w.mounts)) {
			if b.Path == "/" || at == b.Path || strings.HasPrefix(at, b.Path+"/") {
				listed.Mounts = append(listed.Mounts, world.Mount{Path: at, Device: w.mounts[at],
					SELinuxContext: w.labels[w.mounts[at]]})
			}
		}
		return world.Event{Body: listed}
	case *world.ListDir:
		if w.dirs[b.Path] == nil {
			return world.Event{Err: world.Errorf(world.KindNotFound, "ListDir", "no such directory")}
		}
		return world.Event{Body: &world.DirListed{Entries: w.dirs[b.Path]}}
	}
	return world.Event{Body: &world.Done{}}
}

// mount mounts a device, unless something is mounted at the path. All mounts of a file system have
// one label.
func (w *rig) mount(b *world.MountDevice) world.Event {
	if w.mounts[b.Path] != "" {
		return world.Event{Body: &world.Mounted{Existed: true}}
	}
	device, label := "dev"+b.Device, selinux.LabelIn(b.Options)
	for _, mounted := range w.mounts { //ordered: whether there is one
		if mounted == device && w.labels[device] != label {
			return world.Event{Err: world.Errorf(world.KindInternal, "MountDevice",
				"same superblock, different security settings")}
		}
	}
	w.mounts[b.Path], w.labels[device] = device, label
	return world.Event{Body: &world.Mounted{}}
}

func (w *rig) command(args []string) world.Event {
	line := strings.Join(args, " ")
	for _, part := range slices.Sorted(maps.Keys(w.exits)) {
		if strings.Contains(line, part) {
			return world.Event{Body: &world.ISCSIAdmRan{ExitCode: w.exits[part], Output: "no " + part}}
		}
	}
	option := func(name string) string { return args[slices.Index(args, name)+1] }
	switch {
	case slices.Contains(args, "--login"):
		w.logIn(option("-p"), option("-I"))
	case slices.Contains(args, "--logout"):
		w.sessions = slices.DeleteFunc(w.sessions, func(s world.SCSIPath) bool {
			return s.Portals[0] == option("-p") && s.Iface == option("-I")
		})
	case slices.Contains(args, "show"):
		return world.Event{Body: &world.ISCSIAdmRan{Output: "# BEGIN\niface.iscsi_ifacename = default\n" +
			"iface.transport_name = tcp\niface.ipaddress = <empty>\niface.mtu = 9000\n# END\n"}}
	}
	return world.Event{Body: &world.ISCSIAdmRan{}}
}

func (w *rig) logIn(at, iface string) {
	w.sessions = append(w.sessions, world.SCSIPath{Host: len(w.sessions) + 1,
		Portals: []string{at}, Iface: iface})
}

func (w *rig) find(b *world.FindSCSIDisks) *world.SCSIDisksFound {
	found := &world.SCSIDisksFound{}
	if b.Unit.Target == "" {
		found.Paths = w.fcPaths
		return found
	}
	for _, s := range w.sessions {
		for lun := range int32(4) {
			if w.luns[fmt.Sprint(s.Host, " ", lun)] {
				device := fmt.Sprintf("/dev/sd%d%d", s.Host, lun)
				s.OfAny = append(s.OfAny, "dev"+device)
				if lun == b.Unit.LUN {
					s.Device, s.OfDisk = world.BlockDevice{Path: device, Sequence: 7}, []string{"dev" + device}
					s.Multipath.Path, s.Present = w.multipath, true
				}
			}
		}
		found.Paths = append(found.Paths, s)
	}
	return found
}
