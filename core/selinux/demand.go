package selinux

import (
	"cmp"
	"fmt"
	"slices"
	"time"
)

// Demand is what a pod that uses a volume needs of its label.
type Demand struct {
	Label string // with which it has to be mounted; empty: with none
	// Known is false as long as it is not known which label that is, or if there is none.
	Known bool
	// Has is set if the pod has the volume: it stays as it is mounted.
	Has bool
	// Inline is set if the author of the pod alone gives it the volume: it keeps it from no pod that
	// has a claim.
	Inline    bool
	IsWaiting bool // the pod is in its back-off

	Since  time.Time
	Target string // identifies the use of the volume
}

// InOrder returns the labels with which a volume that is not mounted may be mounted next, each
// once: those that pods have it with, then those that pods with a claim have needed longest and are
// not in their back-off. After each failure the next label has its turn.
func InOrder(demands []Demand) (labels []string) {
	first := func(is bool) int {
		if is {
			return 0
		}
		return 1
	}
	sorted := slices.SortedFunc(slices.Values(demands), func(x, y Demand) int {
		return cmp.Or(cmp.Compare(first(x.Has), first(y.Has)),
			cmp.Compare(first(!x.Inline), first(!y.Inline)), x.Since.Compare(y.Since),
			cmp.Compare(x.Target, y.Target))
	})
	var waiting []string
	for _, d := range sorted {
		switch {
		case !d.Known || slices.Contains(labels, d.Label):
		case d.IsWaiting:
			waiting = append(waiting, d.Label)
		default:
			labels = append(labels, d.Label)
		}
	}
	return append(labels, waiting...)
}

// Demanded returns whether a pod needs a volume that is mounted with a label, or has it, and
// whether one needs it with another.
func Demanded(demands []Demand, mounted string) (same, other bool) {
	hasClaim := slices.ContainsFunc(demands, func(d Demand) bool { return !d.Inline })
	for _, d := range demands {
		switch {
		case d.Has:
			same = true
		case !d.Known || d.Inline && hasClaim:
		case d.Label == mounted:
			same = true
		default:
			other = true
		}
	}
	return same, other
}

// Check returns why a volume that is mounted with a label, or is to be next, cannot be used with
// another one: another pod needs it as it is, or it is about to be let go. Nil if the labels are
// the same. The volume is named as a PersistentVolume, and as in the status of the Node.
func Check(label, mounted string, demands []Demand, specName, unique string) error {
	if label == mounted {
		return nil
	}
	if same, _ := Demanded(demands, mounted); same {
		return &Error{OfVolume, fmt.Sprintf("conflicting SELinux labels of volume %s: %q and %q",
			specName, mounted, label)}
	}
	return fmt.Errorf("waiting for unmount of volume %q, because it is already mounted to a "+
		"different pod with a different SELinux label", unique)
}
