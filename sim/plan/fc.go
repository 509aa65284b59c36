package plan

import (
	"errors"
	"fmt"
)

// FC is the fibre channel network of the node: arrays, which have a disk of any LUN.
type FC struct {
	Arrays []FCArray `json:"arrays"`
}

// FCArray is an array. The node has a path to it by each of its ports.
type FCArray struct {
	WWNs []string `json:"wwns"` // of its ports; the first one names it
	// DiskTakes is the most that a disk takes to appear after a scan.
	DiskTakes Duration `json:"diskTakes,omitempty"`
	// LinkTakes is the most that udev takes to make the link to a disk, and to remove it.
	LinkTakes Duration `json:"linkTakes,omitempty"`
	Multipath bool     `json:"multipath,omitempty"` // multipathd joins the disks of its ports
	// LostAt is when the path by its first port is lost for LostFor: the kernel removes its disks, and
	// has them again when the port is back.
	LostAt  Duration `json:"lostAt,omitempty"`
	LostFor Duration `json:"lostFor,omitempty"`
}

// FCClass is the storage class of claims on disks of arrays.
const FCClass = "fc"

// FCPort returns the name of a port of an array of a plan.
func FCPort(array, i int) string { return fmt.Sprintf("50060a0b00c2%02d%02d", array, i) }

// FCDiskName returns the WWID of a disk of an array.
func FCDiskName(array string, lun int32) string { return fmt.Sprintf("3%s%04d", array, lun) }

// FCSerialName returns the other name of a disk of an array, which udev makes of its maker and its
// serial number, and which the kernel does not have.
func FCSerialName(array string, lun int32) string {
	return fmt.Sprintf("SMAKER_DISK_%s%04d", array, lun)
}

// HasFC reports whether a plan has arrays.
func (s *Spec) HasFC() bool { return s.FC != nil && len(s.FC.Arrays) > 0 }

// HasDisks reports whether a plan has disks of a network.
func (s *Spec) HasDisks() bool { return s.HasISCSI() || s.HasFC() }

func (f *FC) validate() error {
	if f == nil {
		return nil
	}
	for i := range f.Arrays {
		if len(f.Arrays[i].WWNs) == 0 {
			return errors.New("arrays: want wwns")
		}
	}
	return nil
}

// FCRange is which arrays there are, and what happens to them.
type FCRange struct {
	Arrays Count `json:"arrays,omitempty"`
	Ports  Count `json:"ports,omitempty"` // of each

	DiskTakes Span  `json:"diskTakes,omitempty"` // as in FCArray
	LinkTakes Span  `json:"linkTakes,omitempty"`
	Multipath Share `json:"multipath,omitempty"` // of arrays
	Lost      Share `json:"lost,omitempty"`
	LostFor   Span  `json:"lostFor,omitempty"`
}

// addFC generates the fibre channel network.
func (g *generator) addFC() {
	c := &g.scenario.Spec.FC
	if c.Arrays.Most == 0 {
		return
	}
	r := g.stream("fc")
	spec := &FC{}
	for i := range c.Arrays.draw(r) {
		a := FCArray{Multipath: c.Multipath.drawBool(r), DiskTakes: Duration(c.DiskTakes.draw(r)),
			LinkTakes: Duration(c.LinkTakes.draw(r))}
		for n := range max(1, c.Ports.draw(r)) {
			a.WWNs = append(a.WWNs, FCPort(i, n))
		}
		if c.Lost.drawBool(r) {
			a.LostAt, a.LostFor = g.randomTime(r), Duration(c.LostFor.draw(r))
		}
		spec.Arrays = append(spec.Arrays, a)
	}
	g.plan.Spec.FC = spec
}
