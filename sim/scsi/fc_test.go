package scsi

import (
	"testing"
	"time"

	"seedlet.dev/sim/agenda"
	"seedlet.dev/sim/disk"
	"seedlet.dev/sim/plan"
	"seedlet.dev/sim/truth"
	"seedlet.dev/world"
)

// newFabric returns a network of an array with two ports, whose links udev makes late.
func newFabric(t *testing.T) *network {
	w := &network{t: t, agenda: agenda.New(begin, 1), answers: map[world.OpID]world.Event{}}
	deliver := func(ev world.Event) { w.answers[ev.Op] = ev }
	log := &truth.Log{}
	w.disk = disk.New(disk.Options{Agenda: w.agenda, Truth: log, Deliver: deliver})
	w.initiator = New(Options{Agenda: w.agenda, Truth: log, Disk: w.disk, Beginning: begin,
		FC: &plan.FC{Arrays: []plan.FCArray{{WWNs: []string{plan.FCPort(0, 0), plan.FCPort(0, 1)},
			LinkTakes: plan.Duration(5 * time.Second)}}}})
	w.initiator.Connect(deliver)
	return w
}

func (w *network) paths(unit world.LogicalUnit) int {
	ev := w.do(&world.FindSCSIDisks{Unit: unit})
	return len(ev.Body.(*world.SCSIDisksFound).Paths)
}

// A volume finds its disk by a port while that has the disk, and by a name of udev while there is a
// link; the kernel's name, and what is mounted, always lead to it. A disk is removed by its device.
func TestNamesOfFC(t *testing.T) {
	w := newFabric(t)
	array := plan.FCPort(0, 0)
	first := world.LogicalUnit{WWNs: []string{array}, LUN: 1}
	second := world.LogicalUnit{WWNs: []string{plan.FCPort(0, 1)}, LUN: 1}
	serial := world.LogicalUnit{WWIDs: []string{plan.FCSerialName(array, 1)}}
	named := world.LogicalUnit{WWIDs: []string{plan.FCDiskName(array, 1)}}
	w.do(&world.ScanSCSIHosts{Unit: second})
	if got := []int{w.paths(first), w.paths(second), w.paths(named), w.paths(serial)}; got[0] != 0 ||
		got[1] != 1 || got[2] != 1 || got[3] != 1 { // do carries out what is due later, too
		t.Errorf("after a scan of the second port: %v", got)
	}
	w.do(&world.ScanSCSIHosts{Unit: first})
	if got := []int{w.paths(first), w.paths(second)}; got[0] != 2 || got[1] != 2 {
		t.Errorf("with both ports: %v", got)
	}
	found := w.do(&world.FindSCSIDisks{Unit: second}).Body.(*world.SCSIDisksFound).Paths
	for i := range found {
		mounted := world.LogicalUnit{WWNs: []string{"5006"}, Mounted: found[i].OfDisk[0]}
		if w.paths(mounted) != 2 {
			t.Errorf("not found by %s, where it is mounted", found[i].OfDisk[0])
		}
	}
	device := found[0].Device
	stale := device
	stale.Sequence++
	if ev := w.do(&world.RemoveSCSIDisks{Devices: []world.BlockDevice{stale}}); ev.Err == nil {
		t.Error("another disk was removed")
	}
	w.do(&world.RemoveSCSIDisks{Devices: []world.BlockDevice{device}})
	if w.paths(named) != 1 || w.paths(serial) != 1 {
		t.Errorf("%d paths, %d by the link", w.paths(named), w.paths(serial))
	}
	w.initiator.LosePower()
	w.do(&world.ScanSCSIHosts{Unit: world.LogicalUnit{WWNs: []string{"5006"}, LUN: 1}})
	if w.paths(first) != 2 {
		t.Error("a scan without the named port has not looked for the LUN everywhere")
	}
}

// The link to a disk comes some time after the disk.
func TestLinkIsLate(t *testing.T) {
	w := newFabric(t)
	s := w.initiator.sorted()[0]
	w.initiator.appear(s, 1, "")
	unit := &world.LogicalUnit{WWIDs: []string{plan.FCSerialName(s.target, 1)}}
	if found, _ := w.initiator.pathsTo(unit); len(found) > 0 {
		t.Error("the link was there at once")
	}
	for w.agenda.Run() {
	}
	if found, _ := w.initiator.pathsTo(unit); len(found) != 1 {
		t.Error("there is no link")
	}
}
