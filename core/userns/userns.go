// Package userns allocates the ranges of user and group IDs of pods with a user namespace
// (KEP-127).
//
// It has no state: each pod knows its range, and an annotation of the pod's sandbox makes it
// durable. Start reading at Layout.FirstFree.
package userns

import (
	"fmt"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	kubeletconfig "k8s.io/kubelet/config/v1beta1"
)

// Range is a range of IDs on the host, for users and groups alike. In the pod they start at zero.
// The zero Range is empty.
type Range struct {
	First  uint32 `json:"first"`
	Length uint32 `json:"length"`
}

// IsEmpty reports whether the range is empty.
func (r Range) IsEmpty() bool { return r.Length == 0 }

// Overlaps reports whether two ranges have an ID in common.
func (r Range) Overlaps(o Range) bool {
	return uint64(r.First) < uint64(o.First)+uint64(o.Length) &&
		uint64(o.First) < uint64(r.First)+uint64(r.Length)
}

// IsFree reports whether a range overlaps none of those taken.
func (r Range) IsFree(taken []Range) bool {
	for _, t := range taken {
		if r.Overlaps(t) {
			return false
		}
	}
	return true
}

// String returns the text form, FIRST+LENGTH, as in the annotation of a sandbox.
func (r Range) String() string { return fmt.Sprintf("%d+%d", r.First, r.Length) }

// Parse parses the output of String. Any other text is an empty range.
func Parse(text string) Range {
	var r Range
	if _, err := fmt.Sscanf(text, "%d+%d", &r.First, &r.Length); err != nil || r.String() != text {
		return Range{}
	}
	if uint64(r.First)+uint64(r.Length) > idsEnd {
		return Range{}
	}
	return r
}

// FromUserNamespace returns the range of a user namespace as the runtime reports it. The range is
// empty for the namespace of the host, and for a mapping that this agent never requests.
func FromUserNamespace(n *runtimeapi.UserNamespace) Range {
	if n.GetMode() != runtimeapi.NamespaceMode_POD || len(n.GetUids()) != 1 ||
		len(n.GetGids()) != 1 {
		return Range{}
	}
	uids, gids := n.Uids[0], n.Gids[0]
	if uids.ContainerId != 0 || gids.ContainerId != 0 || uids.HostId != gids.HostId ||
		uids.Length != gids.Length {
		return Range{}
	}
	return Range{First: uids.HostId, Length: uids.Length}
}

// UserNamespace returns the user namespace in the form of the CRI; nil for that of the host.
func (r Range) UserNamespace() *runtimeapi.UserNamespace {
	if r.IsEmpty() {
		return nil
	}
	return &runtimeapi.UserNamespace{
		Mode: runtimeapi.NamespaceMode_POD, Uids: r.IDMappings(), Gids: r.IDMappings(),
	}
}

// IDMappings returns the mapping of the pod's IDs to the host's.
func (r Range) IDMappings() []*runtimeapi.IDMapping {
	return []*runtimeapi.IDMapping{{HostId: r.First, ContainerId: 0, Length: r.Length}}
}

const (
	idsFirst = 1 << 16 // lower IDs are the host's own, as with a kubelet without /etc/subuid
	idsEnd   = 1 << 32
)

// Layout divides the host's IDs into ranges of equal length.
type Layout struct {
	IDsPerPod uint32 `json:"iDsPerPod"`
	RangesMax int    `json:"rangesMax"`
}

// LayoutFromConfig returns the layout of a configuration: as many ranges as there may be pods, as
// far as the IDs suffice.
func LayoutFromConfig(c *kubeletconfig.KubeletConfiguration) Layout {
	l := Layout{IDsPerPod: idsFirst, RangesMax: int(c.MaxPods)}
	if u := c.UserNamespaces; u != nil && u.IDsPerPod != nil {
		l.IDsPerPod = uint32(*u.IDsPerPod)
	}
	l.RangesMax = min(l.RangesMax, int((uint64(idsEnd)-idsFirst)/uint64(l.IDsPerPod)))
	return l
}

// FirstFree returns the first free range; an empty one if all are taken.
func (l Layout) FirstFree(taken []Range) Range {
	for i := range l.RangesMax {
		r := Range{First: uint32(idsFirst + uint64(i)*uint64(l.IDsPerPod)), Length: l.IDsPerPod}
		if r.IsFree(taken) {
			return r
		}
	}
	return Range{}
}
