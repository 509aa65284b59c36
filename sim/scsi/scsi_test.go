package scsi

import (
	"slices"
	"strings"
	"testing"
	"time"

	"seedlet.dev/sim/agenda"
	"seedlet.dev/sim/disk"
	"seedlet.dev/sim/plan"
	"seedlet.dev/sim/truth"
	"seedlet.dev/world"
)

var begin = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// network is an initiator with a client.
type network struct {
	t         *testing.T
	agenda    *agenda.Agenda
	initiator *Initiator
	disk      *disk.Disk
	ops       world.OpID
	answers   map[world.OpID]world.Event
	facts     []string
}

const (
	target = "iqn.2026-11.test.seedlet:target-0"
	portal = "10.8.0.1:3260"
)

// newNetwork returns a network of one target, whose disks take a moment to appear.
func newNetwork(t *testing.T, is *plan.ISCSI) *network {
	w := &network{t: t, agenda: agenda.New(begin, 1), answers: map[world.OpID]world.Event{}}
	log := &truth.Log{}
	log.Subscribe(func(f truth.Fact) {
		if f.Kind != truth.PathWritten && f.Kind != truth.PathRemoved {
			w.facts = append(w.facts, strings.TrimSpace(string(f.Kind)+" "+f.Cause))
		}
	})
	deliver := func(ev world.Event) { w.answers[ev.Op] = ev }
	w.disk = disk.New(disk.Options{Agenda: w.agenda, Truth: log, Deliver: deliver})
	w.initiator = New(Options{Agenda: w.agenda, Truth: log, Disk: w.disk, Plan: is, Beginning: begin})
	w.initiator.Connect(deliver)
	return w
}

func oneTarget() *plan.ISCSI {
	return &plan.ISCSI{Targets: []plan.ISCSITarget{{Name: target, Portals: []string{portal}}}}
}

// do carries out a request, and everything that follows.
func (w *network) do(body any) world.Event {
	w.ops++
	w.initiator.Do(world.Effect{Op: w.ops, Body: body,
		Deadline: w.agenda.Now().Add(2 * time.Minute)})
	for w.agenda.Run() {
	}
	return w.answers[w.ops]
}

// run runs a command, and returns its exit code.
func (w *network) run(line string) int {
	w.t.Helper()
	ev := w.do(&world.RunISCSIAdm{Args: strings.Fields(line)})
	ran, isRan := ev.Body.(*world.ISCSIAdmRan)
	if !isRan {
		w.t.Fatalf("%s: %+v, %v", line, ev.Body, ev.Err)
	}
	return ran.ExitCode
}

const (
	discover = "-m discoverydb -t sendtargets -p " + portal + " -I default --discover"
	node     = "-m node -p " + portal + " -T " + target + " -I default "
)

func (w *network) find() []world.SCSIPath {
	unit := world.LogicalUnit{Target: target, LUN: 1}
	return w.do(&world.FindSCSIDisks{Unit: unit}).Body.(*world.SCSIDisksFound).Paths
}

// A session is opened once, its disk appears with a scan, and stays while it is mounted.
func TestSession(t *testing.T) {
	w := newNetwork(t, oneTarget())
	if code := w.run(node + "--login"); code != world.ISCSINothingFound {
		t.Errorf("a login without a record: %d", code)
	}
	codes := []int{w.run(discover), w.run(node + "-o update -n node.session.scan -v manual"),
		w.run(node + "--login"), w.run(node + "--login"), w.run(node + "-o delete")}
	if want := []int{0, 0, 0, world.ISCSISessionExists, exitInvalid}; !slices.Equal(codes, want) {
		t.Errorf("exit codes %v, want %v", codes, want)
	}
	found := w.find()
	if len(found) != 1 || found[0].Device.Path != "" || found[0].Iface != "default" {
		t.Fatalf("found %+v", found)
	}
	w.do(&world.ScanSCSIHost{Host: found[0].Host, LUN: 1})
	found = w.find()
	if len(found) != 1 || !w.disk.Exists(found[0].Device.Path) {
		t.Fatalf("found %+v", found)
	}
	w.disk.CreateSpecial("/mnt", world.PathDirectory)
	if err := w.disk.MountSource(Node(target, 1), "ext4", "/mnt", "", false); err != nil {
		t.Fatal(err)
	}
	remove := &world.RemoveSCSIDisks{Unit: world.LogicalUnit{Target: target, LUN: 1}}
	if ev := w.do(remove); !ev.Err.Has(world.KindRefused) {
		t.Errorf("removed under a mount: %+v", ev)
	}
	w.disk.UnmountPath("/mnt")
	if ev := w.do(remove); ev.Err != nil || w.disk.Exists(found[0].Device.Path) {
		t.Errorf("%+v", ev)
	}
	codes = []int{w.run(node + "--logout"), w.run(node + "--logout"), w.run(node + "-o delete")}
	if want := []int{0, world.ISCSINothingFound, 0}; !slices.Equal(codes, want) {
		t.Errorf("exit codes %v, want %v", codes, want)
	}
	want := []string{"SessionOpened", "SessionRepeated", "DiskAppeared", "Mounted", "Unmounted",
		"DiskRemoved", "SessionClosed"}
	facts := slices.DeleteFunc(w.facts, func(f string) bool { return !slices.Contains(want, f) })
	if !slices.Equal(facts, want) {
		t.Errorf("facts %v, want %v", w.facts, want)
	}
}

// What is wrong with a target ends when the faults heal, and a session with a loss of power.
func TestTroubles(t *testing.T) {
	is := oneTarget()
	is.InstalledAt = plan.Duration(time.Hour)
	w := newNetwork(t, is)
	ev := w.do(&world.RunISCSIAdm{Args: strings.Fields(discover)})
	if !ev.Err.Has(world.KindNotFound) {
		t.Errorf("not installed: %+v", ev)
	}
	is.InstalledAt, is.Targets[0].LoginsFail, is.Targets[0].CHAP = 0, 1, true
	w.run(discover)
	if code := w.run(node + "--login"); code != exitAuth {
		t.Errorf("without CHAP: %d", code)
	}
	for name, value := range map[string]string{"authmethod": "CHAP",
		"username": plan.ISCSIUser(target), "password": plan.ISCSIPassword(target),
	} { //ordered: each by itself
		w.run(node + "-o update -n node.session.auth." + name + " -v " + value)
	}
	if code := w.run(node + "--login"); code != exitConnection {
		t.Errorf("the first login: %d", code)
	}
	if code := w.run(node + "--login"); code != 0 {
		t.Errorf("the second login: %d", code)
	}
	w.initiator.LosePower()
	if found := w.find(); len(found) > 0 {
		t.Errorf("after a loss of power: %+v", found)
	}
	is.Targets[0].GoneFor = plan.Duration(time.Hour)
	if code := w.run(discover); code != exitConnection {
		t.Errorf("a target that has gone: %d", code)
	}
	is.Targets[0].Hangs = 1
	ev = w.do(&world.RunISCSIAdm{Args: strings.Fields(node + "-o delete")})
	if !ev.Err.Has(world.KindTimeout) {
		t.Errorf("a command that hangs: %+v", ev)
	}
	if w.initiator.Heal(); w.run(discover) != 0 {
		t.Error("the target is still gone")
	}
}

// The path of a disk that has gone is that of the next one, under another sequence number.
func TestPathsAreUsedAgain(t *testing.T) {
	w := newNetwork(t, oneTarget())
	w.run(discover)
	w.run(node + "--login")
	host := w.find()[0].Host
	w.do(&world.ScanSCSIHost{Host: host, LUN: 1})
	before := w.find()[0].Device
	w.do(&world.RemoveSCSIDisks{Unit: world.LogicalUnit{Target: target, LUN: 1}})
	w.do(&world.ScanSCSIHost{Host: host, LUN: 2})
	w.do(&world.ScanSCSIHost{Host: host, LUN: 1})
	unit := world.LogicalUnit{Target: target, LUN: 2}
	now := w.do(&world.FindSCSIDisks{Unit: unit}).Body.(*world.SCSIDisksFound).Paths[0].Device
	if now.Path != before.Path || now.Sequence == before.Sequence || w.find()[0].Device == before {
		t.Errorf("%+v, then %+v", before, now)
	}
}
