package scsi

import (
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"

	"seedlet.dev/core/selinux"
	"seedlet.dev/world"
)

const (
	label1 = "system_u:object_r:container_file_t:s0:c1,c2"
	label3 = "system_u:object_r:container_file_t:s0:c3"
)

// newLabeling returns a rig on a machine with SELinux.
func newLabeling(t *testing.T) *rig {
	w := newRig(t)
	w.n.SELinux = selinux.Node{Enabled: true, FileLabel: "system_u:object_r:container_file_t:s0",
		AllModes: true}
	return w
}

// labeled returns the use of the disk of a persistent volume by a pod of a level; empty: of none.
func labeled(uid, level string) Use {
	u := useBy(uid, 0, nil)
	u.Inline, u.AccessModes = false, []v1.PersistentVolumeAccessMode{v1.ReadWriteOnce}
	if level != "" {
		u.SELinux = []v1.SELinuxOptions{{Level: level}}
	}
	return u
}

// bind gives the disk to a pod, as the pod itself does.
func (w *rig) bind(uid string) {
	w.mounts[MountPath(w.n.PodsDir+"/"+uid, &Use{SpecName: "v"})] = "dev/dev/sd10"
}

// end ends a pod, which has unmounted the disk.
func (w *rig) end(uid string) {
	delete(w.mounts, MountPath(w.n.PodsDir+"/"+uid, &Use{SpecName: "v"}))
	w.release(uid)
	w.n.NoteUnmount()
	w.run()
}

// mountsOf returns the options of the mounts of devices since the last take.
func (w *rig) mountsOf() string {
	var mounts []string
	for line := range strings.SplitSeq(w.take(), "\n") {
		if options, isMount := strings.CutPrefix(line, "MountDevice /dev/sd10 ext4 false "); isMount {
			mounts = append(mounts, options)
		} else if strings.HasPrefix(line, "Unmount") {
			mounts = append(mounts, "unmount")
		}
	}
	return strings.Join(mounts, "; ")
}

// mounted is how a mount with a label is described.
func mounted(label string) string { return "[context=\"" + label + "\"]" }

// A disk is mounted with the label of its pod, in the form of the mount table, and a second pod of
// the label has it at once. Nothing is relabeled.
func TestDiskIsMountedWithLabel(t *testing.T) {
	w := newLabeling(t)
	if state := w.use(labeled("a", "s0:c2,c1")); !state.Ready || !state.HasLabel {
		t.Errorf("%+v", state)
	}
	if got := w.mountsOf(); got != mounted(label1) {
		t.Errorf("mounted with %s", got)
	}
	if state := w.use(labeled("b", "s0:c1,c2")); !state.Ready || w.mountsOf() != "" {
		t.Errorf("the second pod: %+v", state)
	}
	want := selinux.Counted{Event: selinux.Admitted, Plugin: "kubernetes.io/iscsi", AccessMode: "RWO"}
	if len(w.counted) != 1 || w.counted[0] != want {
		t.Errorf("counted %+v", w.counted)
	}
}

// A disk is mounted without a label where machine, access mode, pod or kind of volume want none.
func TestDiskIsMountedWithoutLabel(t *testing.T) {
	for name, change := range map[string]func(w *rig, u *Use){
		"no SELinux":                       func(w *rig, _ *Use) { w.n.SELinux.Enabled = false },
		"the gate":                         func(w *rig, _ *Use) { w.n.SELinux.AllModes = false },
		"no options":                       func(_ *rig, u *Use) { u.SELinux = nil },
		"no level":                         func(_ *rig, u *Use) { u.SELinux[0].Level = "" },
		"an inline one":                    func(_ *rig, u *Use) { *u = useBy("a", 0, nil) },
		"a policy without labels of files": func(w *rig, _ *Use) { w.n.SELinux.FileLabel = "" },
	} {
		w := newLabeling(t)
		u := labeled("a", "s0:c1,c2")
		change(w, &u)
		if state := w.use(u); !state.Ready || state.HasLabel {
			t.Errorf("%s: %+v", name, state)
		}
		if got := w.mountsOf(); got != "[]" || len(w.counted) > 0 {
			t.Errorf("%s: mounted with %s, counted %v", name, got, w.counted)
		}
	}
	w := newLabeling(t)
	w.n.SELinux.AllModes = false
	u := labeled("a", "s0:c1,c2")
	u.AccessModes[0] = v1.ReadWriteOncePod
	if state := w.use(u); !state.Ready || !state.HasLabel {
		t.Errorf("of one pod at a time: %+v", state)
	}
}

// Options of a volume that name a label themselves stay as they are.
func TestLabelOfMountOptions(t *testing.T) {
	w := newLabeling(t)
	u := labeled("a", "s0:c1,c2")
	u.Options = []string{`context="` + label3 + `"`}
	if state := w.use(u); !state.Ready || !state.HasLabel {
		t.Errorf("%+v", state)
	}
	if got := w.mountsOf(); got != mounted(label3) {
		t.Errorf("mounted with %s", got)
	}
}

// A pod that needs another label waits until no pod has the disk: it is mounted again then, and
// neither removed nor logged out of.
func TestLabelConflictOfDisk(t *testing.T) {
	w := newLabeling(t)
	w.use(labeled("a", "s0:c1,c2"))
	w.bind("a")
	w.mountsOf()
	state := w.use(labeled("b", "s0:c3"))
	if state.Ready || state.Problem != `MountVolume.SetUp failed for volume "v" : conflicting `+
		`SELinux labels of volume v: "`+label1+`" and "`+label3+`"` || state.Failures == 0 {
		t.Errorf("%+v", state)
	}
	w.after(time.Hour)
	if got := w.mountsOf(); got != "" {
		t.Errorf("while a pod has it: %s", got)
	}
	w.release("a") // its mount is still there
	if got := w.mountsOf(); got != "" {
		t.Errorf("while it is mounted for a pod: %s", got)
	}
	w.end("a")
	calls := strings.Join(w.calls, "\n")
	if got := w.mountsOf(); got != "unmount; "+mounted(label3) ||
		strings.Contains(calls, "Remove") || strings.Contains(calls, "--logout") {
		t.Errorf("%s, after\n%s", got, calls)
	}
	if state := w.use(labeled("b", "s0:c3")); !state.Ready || state.Problem != "" {
		t.Errorf("%+v", state)
	}
	events := 0
	for _, c := range w.counted {
		if c.Event == selinux.OfVolume {
			events++
		}
	}
	if events != 1 {
		t.Errorf("counted %+v", w.counted)
	}
}

// A pod whose containers need several labels, or none that can be in an option, gets no disk, and
// keeps it from no other pod.
func TestPodWithoutOneLabel(t *testing.T) {
	w := newLabeling(t)
	two := labeled("a", "s0:c1,c2")
	two.SELinux = append(two.SELinux, v1.SELinuxOptions{Level: "s0:c3"})
	if state := w.use(two); state.Ready || !strings.HasSuffix(state.Problem,
		"multiple SELinux labels found: "+label1+","+label3) {
		t.Errorf("%+v", state)
	}
	if state := w.use(labeled("b", `s0",x`)); state.Ready ||
		!strings.Contains(state.Problem, "failed to construct SELinux label") {
		t.Errorf("%+v", state)
	}
	if got := w.take(); got != "" {
		t.Errorf("%s", got)
	}
	if state := w.use(labeled("c", "s0:c3")); !state.Ready {
		t.Errorf("%+v", state)
	}
}

// The pod whose label the disk cannot be mounted with keeps it from no other pod.
func TestLabelsTakeTurns(t *testing.T) {
	w := newLabeling(t)
	w.fail["MountDevice"] = world.Errorf(world.KindInternal, "MountDevice", "wrong")
	w.use(labeled("a", "s0:c1,c2"))
	w.n.Use(labeled("b", "s0:c3"), w.now)
	w.after(time.Second)
	if got := w.mountsOf(); got != mounted(label1)+"; "+mounted(label3) {
		t.Errorf("mounted with %s", got)
	}
}

// A mount without an answer has the label that the mount table says: its pod gets the disk, and
// the next label its turn only after it.
func TestMountWithLabelWithoutAnswer(t *testing.T) {
	w := newLabeling(t)
	w.hold = "MountDevice"
	w.use(labeled("a", "s0:c1,c2"))
	w.n.Use(labeled("b", "s0:c3"), w.now)
	eff := w.held[0]
	w.hold = ""
	w.answer(eff.Body) // it takes effect
	w.complete(eff, world.Event{Err: world.Errorf(world.KindTimeout, "MountDevice", "late")})
	w.after(time.Hour)
	a, b := w.use(labeled("a", "s0:c1,c2")), w.use(labeled("b", "s0:c3"))
	if !a.Ready || !a.HasLabel || b.Ready {
		t.Errorf("%+v, %+v", a, b)
	}
}

// A mount that takes effect after the mount table was looked at is not taken for one with the label
// of the next attempt.
func TestLateMountWithLabel(t *testing.T) {
	w := newLabeling(t)
	w.hold = "MountDevice"
	w.use(labeled("a", "s0:c1,c2"))
	w.n.Use(labeled("b", "s0:c3"), w.now)
	first := w.held[0]
	w.complete(first, world.Event{Err: world.Errorf(world.KindTimeout, "MountDevice", "late")})
	w.after(time.Second)
	second := w.held[1]
	w.hold = ""
	w.answer(first.Body)
	w.complete(second, w.answer(second.Body))
	w.after(time.Hour)
	a, b := w.use(labeled("a", "s0:c1,c2")), w.use(labeled("b", "s0:c3"))
	if !a.Ready || b.Ready {
		t.Errorf("%+v, %+v", a, b)
	}
}

// restartWithMount returns a rig whose earlier agent has mounted the disk with a label, for a pod
// as well if has is set.
func restartWithMount(t *testing.T, label string, has bool) *rig {
	w := newLabeling(t)
	w.n.Start(true)
	w.cleans = false
	at := w.n.Dir + "/iscsi"
	w.dirs[at] = []world.DirEntry{{Name: "iface-default", Directory: true}}
	w.dirs[at+"/iface-default"] = []world.DirEntry{
		{Name: strings.TrimPrefix(rootA, "iface-default/"), Directory: true}}
	w.logIn(portal, "default")
	w.luns["1 0"] = true
	w.mounts[at+"/"+rootA], w.labels["dev/dev/sd10"] = "dev/dev/sd10", label
	if has {
		w.bind("a")
	}
	w.run()
	w.take()
	return w
}

// An agent that is started takes over what is mounted with its label: a pod of it has the disk at
// once, and one of another label waits for the pod that has it, also while that is not known yet.
func TestLabelAfterRestart(t *testing.T) {
	w := restartWithMount(t, label1, true)
	if state := w.use(labeled("b", "s0:c3")); state.Ready || w.take() != "" {
		t.Errorf("the disk of another pod: %+v", state)
	}
	if state := w.use(labeled("a", "s0:c1,c2")); !state.Ready || !state.HasLabel || w.take() != "" {
		t.Errorf("%+v", state)
	}
	w.end("a")
	if got := w.mountsOf(); got != "unmount; "+mounted(label3) {
		t.Errorf("%s", got)
	}
	w = restartWithMount(t, label1, false)
	if state := w.use(labeled("b", "s0:c3")); !state.Ready {
		t.Errorf("%+v", state)
	}
	if got := w.mountsOf(); got != "unmount; "+mounted(label3) {
		t.Errorf("a disk that no pod has: %s", got)
	}
}

// A pod that has the disk keeps it as it is mounted, whatever label it would get now: the gate was
// turned off, for one. It is said to have what it has.
func TestPodKeepsLabelAfterRestart(t *testing.T) {
	for _, label := range []string{label1, ""} {
		w := restartWithMount(t, label, true)
		w.use(labeled("b", "s0:c3"))
		if state := w.use(labeled("a", "s0:c7")); !state.Ready || state.HasLabel != (label != "") ||
			w.take() != "" {
			t.Errorf("%q: %+v", label, state)
		}
	}
}

// The unmount that makes room for another label is repeated until it succeeds.
func TestUnmountForLabelFails(t *testing.T) {
	w := restartWithMount(t, label1, false)
	w.fail["Unmount"] = world.Errorf(world.KindTimeout, "Unmount", "late")
	w.use(labeled("b", "s0:c3"))
	w.after(time.Second)
	if state := w.use(labeled("b", "s0:c3")); !state.Ready {
		t.Errorf("%+v", state)
	}
	if got := w.mountsOf(); got != "unmount; unmount; "+mounted(label3) {
		t.Errorf("%s", got)
	}
}

// A pod whose author alone gives it the disk waits for those that have a claim.
func TestInlineDiskHasNoLabel(t *testing.T) {
	w := newLabeling(t)
	w.n.Use(useBy("a", 0, nil), w.now)
	if state := w.use(labeled("b", "s0:c3")); !state.Ready {
		t.Errorf("%+v", state)
	}
	if state := w.use(useBy("a", 0, nil)); state.Ready || state.Problem == "" {
		t.Errorf("%+v", state)
	}
}
