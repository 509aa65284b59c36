package scsi

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"

	"seedlet.dev/core/budget"
	"seedlet.dev/world"
)

// portalsOf returns so many portals that no other number of a group has.
func portalsOf(group, count int) (portals []string) {
	for i := range count {
		portals = append(portals, fmt.Sprintf("10.%d.%d.%d:3260", 1+group/250, group%250, i))
	}
	return portals
}

// usePortals is a use of a disk that names so many portals besides the first one.
func usePortals(uid string, lun int32, group, count int) Use {
	return useBy(uid, lun, func(s *v1.ISCSIVolumeSource) { s.Portals = portalsOf(group, count) })
}

func size(t *testing.T, d *Disk) int {
	t.Helper()
	text, err := json.Marshal(d)
	if err != nil {
		t.Fatal(err)
	}
	return len(text)
}

// Pods come and go while others keep two disks: what they have named is forgotten with them.
func TestPortalsOfPodsThatHaveGone(t *testing.T) {
	w := newRig(t)
	w.exits["--login"] = 8
	w.use(useBy("a0", 0, nil))
	w.use(useBy("a1", 1, nil))
	d := w.n.Disks["iscsi/"+rootA]
	before := size(t, d)
	for i := range 1000 {
		for lun := range int32(2) {
			w.n.Use(usePortals("b", lun, i, 31), w.now)
		}
		w.n.Release("b", true)
	}
	if len(d.Source.Portals) != 1 || size(t, d) > before {
		t.Errorf("%d portals, %d bytes, %d before", len(d.Source.Portals), size(t, d), before)
	}
}

// As many pods do so that are logged in, or tried: that is bounded, and all of it is undone, with
// one disk after the other: the sessions are left to the last one.
func TestPortalsThatWereTried(t *testing.T) {
	w := newRig(t)
	w.exits["--login"] = 8
	w.use(useBy("a0", 0, nil))
	w.use(useBy("a1", 1, nil))
	d := w.n.Disks["iscsi/"+rootA]
	refused := 0
	for i := range 100 {
		for lun := range int32(2) {
			if s := w.use(usePortals("b", lun, i, 5)); s.OverBudget != "" {
				refused++
			}
		}
		w.after(time.Hour)
		w.release("b")
	}
	if n := len(d.Source.Portals); n != 1+19*5 || len(d.Tried) > n || refused == 0 ||
		size(t, d) > 32<<10 {
		t.Errorf("%d portals, %d tried, %d refused, %d bytes", n, len(d.Tried), refused, size(t, d))
	}
	delete(w.exits, "--login")
	w.take()
	w.release("a0")
	if calls := w.take(); strings.Contains(calls, "-m node") || w.n.Disks["iscsi/"+rootA] != nil {
		t.Errorf("the sessions of another disk: %s", calls)
	}
	w.release("a1")
	if n := strings.Count(w.take(), "-m node"); n != 96 || len(w.n.Disks) > 0 {
		t.Errorf("%d commands, left: %v", n, w.n.Names())
	}
}

// A volume in a pod that has too many portals is refused with its field and the bound, until others
// have gone. A claim still has room, and so has what names no other portals.
func TestRoomForPortals(t *testing.T) {
	w := newRig(t)
	w.waits = true
	for i := range 3 {
		w.use(usePortals(fmt.Sprint("u", i), 0, i, 31))
	}
	state := w.use(usePortals("u3", 0, 3, 31))
	if state.OverBudget != "disk_portals_inline" || !strings.Contains(state.Problem,
		"iscsi.portals: the disk has 94 portals of other volumes, and those of this one can make it no "+
			"more than 96") {
		t.Errorf("%+v", state)
	}
	if state := w.use(usePortals("u4", 0, 2, 31)); state.OverBudget != "" {
		t.Errorf("one that adds none: %+v", state)
	}
	claim := usePortals("u5", 0, 5, 31)
	if claim.Inline = false; w.use(claim).OverBudget != "" {
		t.Errorf("a claim: %+v", w.use(claim))
	}
	if claim = usePortals("u6", 0, 6, 31); w.use(claim).OverBudget != "disk_portals_inline" {
		t.Errorf("beside the claim: %+v", w.use(claim))
	}
	claim.Inline = false
	if state := w.use(claim); state.OverBudget != "disk_portals_all" {
		t.Errorf("another claim: %+v", state)
	}
	w.planned = nil
	if w.release("u0"); !slices.Contains(w.planned, "all") {
		t.Errorf("planned: %v", w.planned)
	}
	w.planned = nil
	if w.release("u5"); slices.Contains(w.planned, "all") {
		t.Error("planned although none was refused")
	}
	if state := w.use(usePortals("u3", 0, 3, 31)); state.OverBudget != "" {
		t.Errorf("with room: %+v", state)
	}
	if state := w.use(usePortals("u7", 1, 7, 32)); state.OverBudget != "disk_portals" {
		t.Errorf("33 portals: %+v", state)
	}
}

// Sessions that are there are used without a login, and logged out of with the disk, also if the
// pod that names their portals has gone before another one.
func TestSessionsThatWereThere(t *testing.T) {
	w := newRig(t)
	w.use(useBy("a", 0, nil))
	w.logIn(portalsOf(0, 1)[0], "default")
	d := w.n.Disks["iscsi/"+rootA]
	d.Mounted, d.Setup = "", Setup{}
	delete(w.mounts, w.n.Dir+"/iscsi/"+rootA)
	w.waits = true
	w.use(usePortals("0", 0, 0, 1)) // the first one by its name
	w.waits = false
	w.run()
	w.after(multipathWait)
	if calls := w.take(); strings.Count(calls, "--login") != 1 || len(w.mounts) != 1 {
		t.Fatalf("%v after\n%s", w.mounts, calls)
	}
	w.release("0")
	w.release("a")
	w.after(time.Minute)
	w.expectNothingLeft()
}

// What is undone is forgotten, also if a pod comes before the directory has gone.
func TestUseWhileDirectoryIsRemoved(t *testing.T) {
	w := newRig(t)
	w.use(usePortals("u1", 0, 0, 3))
	w.after(multipathWait)
	w.hold = "RemoveTree"
	w.release("u1")
	if len(w.held) != 1 {
		t.Fatalf("in flight: %v", w.held)
	}
	w.n.Use(useBy("u2", 0, nil), w.now)
	w.hold = ""
	w.complete(w.held[0], w.answer(w.held[0].Body))
	w.run()
	if d := w.n.Disks["iscsi/"+rootA]; len(d.Source.Portals) != 1 || len(d.Tried) != 1 {
		t.Errorf("portals %v, tried %v", d.Source.Portals, d.Tried)
	}
}

// restarted returns a rig with the disks, files and sessions of another one, after a boot if all
// that was mounted has gone.
func (w *rig) restarted(boots bool) *rig {
	next := newRig(w.t)
	next.n.Start(true)
	next.now, next.sessions, next.luns, next.files = w.now, w.sessions, w.luns, w.files
	if !boots {
		next.mounts, next.labels = w.mounts, w.labels
	}
	next.dirs[next.n.Dir+"/iscsi"] = []world.DirEntry{{Name: "iface-default", Directory: true}}
	next.dirs[next.n.Dir+"/iscsi/iface-default"] = []world.DirEntry{{Directory: true,
		Name: strings.TrimPrefix(rootA, "iface-default/")}}
	return next
}

// The file of a disk that several pods name with other portals is read by the next agent, which
// logs out of all of them. A pod that names portals beside as many as there may be is refused.
func TestFileWithPortalsOfSeveralPods(t *testing.T) {
	for _, boots := range []bool{false, true} {
		for _, comes := range []bool{false, true} {
			first := newRig(t)
			first.waits = true
			for i := range 3 {
				first.use(usePortals(fmt.Sprint("u", i), 0, i, 31))
			}
			first.waits = false
			for i := range 4 {
				first.use(useBy("u", 0, nil))
				first.after(time.Duration(i) * time.Minute)
			}
			for i := range 2 { // those of the pods that have not had a turn, as if they had
				for _, at := range portalsOf(i, 31) {
					first.logIn(at, "default")
				}
			}
			w := first.restarted(boots)
			if comes {
				w.cleans = false
				w.run()
				w.use(useBy("v", 0, nil))
				state := w.use(usePortals("w", 0, 7, 31))
				if isRefused := state.OverBudget != ""; isRefused != boots {
					t.Errorf("boots %v: %+v", boots, state)
				}
				w.after(time.Minute)
				w.cleans = true
				w.release("v")
				w.release("w")
			}
			w.run()
			w.after(lateMax)
			w.after(lateMax)
			if len(w.sessions) > 0 || len(w.n.Disks) > 0 || len(w.mounts) > 0 {
				t.Errorf("boots %v, comes %v: left: %d sessions, %v, %v", boots, comes, len(w.sessions),
					w.n.Names(), w.mounts)
			}
		}
	}
}

// A pod whose portals do not fit with those of the file is known before the file is read: it has
// the disk no more then.
func TestFileLeavesNoRoomForUse(t *testing.T) {
	var all []string
	for i := range 5 {
		all = append(all, portalsOf(i, 31)...)
	}
	s := useBy("x", 0, nil).Source
	s.Portals = append(s.Portals, all[:budget.PortalsOfDiskMax-1]...)
	first := newRig(t)
	first.files[first.n.Dir+"/iscsi/"+rootA+"/iscsi.json"] = string(s.encode())
	first.logIn(all[100], "default")
	w := first.restarted(true)
	w.cleans = false
	w.hold = "ReadFiles"
	w.run()
	w.use(usePortals("u1", 0, 9, 31))
	w.use(useBy("u2", 0, nil))
	w.hold, w.planned = "", nil
	w.complete(w.held[0], w.answer(w.held[0].Body))
	if !slices.Contains(w.planned, "u1") {
		t.Errorf("planned: %v", w.planned)
	}
	w.run()
	if state := w.use(usePortals("u1", 0, 9, 31)); state.OverBudget != "disk_portals_inline" {
		t.Errorf("%+v", state)
	}
	if state := w.use(useBy("u2", 0, nil)); !state.Ready {
		t.Errorf("the other one: %+v", state)
	}
	w.cleans = true
	w.release("u1")
	w.release("u2")
	w.after(lateMax)
	w.expectNothingLeft()
}

// Without a file, the portals of the pod that has a disk are those that it was logged in to.
func TestFoundDiskWithoutFile(t *testing.T) {
	first := newRig(t)
	first.use(usePortals("u", 0, 0, 3))
	first.after(multipathWait)
	first.files = map[string]string{}
	w := first.restarted(false)
	w.cleans = false
	w.run()
	if state := w.use(usePortals("u", 0, 0, 3)); !state.Ready || len(w.sessions) != 4 {
		t.Fatalf("%+v, %d sessions", state, len(w.sessions))
	}
	w.cleans = true
	w.release("u")
	w.after(lateMax)
	w.expectNothingLeft()
}

// A pod that comes and goes while a disk that was found is undone changes nothing of that.
func TestUseWhileFoundDiskIsUndone(t *testing.T) {
	first := newRig(t)
	s := usePortals("x", 0, 0, 3).Source
	first.files[first.n.Dir+"/iscsi/"+rootA+"/iscsi.json"] = string(s.encode())
	for _, at := range s.Portals {
		first.logIn(at, "default")
	}
	w := first.restarted(true)
	w.hold = s.Portals[1] + " -T " + iqn + " -I default -o delete"
	w.run()
	if len(w.held) != 1 {
		t.Fatalf("in flight: %v", w.held)
	}
	w.n.Use(useBy("u", 0, func(v *v1.ISCSIVolumeSource) {
		v.Portals = []string{s.Portals[3]}
	}), w.now)
	w.n.Release("u", true)
	w.hold = ""
	w.complete(w.held[0], w.answer(w.held[0].Body))
	w.run()
	w.after(lateMax)
	w.expectNothingLeft()
}

// A pod that comes while the file is written has its portals in it before they are logged in to.
func TestPortalsThatComeWhileFileIsWritten(t *testing.T) {
	w := newRig(t)
	w.hold = "WriteFile"
	w.use(useBy("u1", 0, nil))
	w.use(usePortals("u2", 0, 0, 1))
	w.hold = ""
	w.complete(w.held[0], w.answer(w.held[0].Body))
	w.run()
	if text := w.files[w.n.Dir+"/iscsi/"+rootA+"/iscsi.json"]; !strings.Contains(text,
		portalsOf(0, 1)[0]) {
		t.Errorf("written: %s", text)
	}
}

// A session that is left to another disk is logged out of with that one, also if the pod that has
// named its portal for that disk has gone and has not used it.
func TestSessionIsLeftToDiskThatHasNotUsedIt(t *testing.T) {
	w := newRig(t)
	w.use(usePortals("u1", 0, 0, 1))
	w.after(multipathWait)
	w.waits = true
	w.use(useBy("u2", 1, nil))
	w.n.Disks["iscsi/"+strings.Replace(rootA, "lun-0", "lun-1", 1)].MayExist = true
	w.use(usePortals("u3", 1, 0, 1))
	w.release("u1")
	if len(w.sessions) != 2 {
		t.Fatalf("sessions: %v", w.sessions)
	}
	w.release("u3")
	w.release("u2")
	w.after(time.Minute)
	w.expectNothingLeft()
}

// What the first use of a disk that was found may have had tried stays so when the file is read: it
// may have come after that was written.
func TestPortalsBesideTheFileStayTried(t *testing.T) {
	w := newRig(t)
	u := usePortals("u", 0, 0, 1)
	d := w.n.add(diskName(&u.Source, false), Source{Portals: []string{portal}})
	d.Found, d.Uses = true, map[string]*Use{u.target(): &u}
	d.takeOver(&u)
	w.n.adoptPortals(d, []string{portal}, w.env())
	at := portalsOf(0, 1)[0]
	if !slices.Contains(d.Tried, at) || !slices.Contains(d.Source.Portals, at) {
		t.Errorf("tried %v of %v", d.Tried, d.Source.Portals)
	}
}
