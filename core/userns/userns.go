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

// Parse parses the output of String for a range that an agent may have allocated. Any other text is
// an empty range: the annotations of a kubelet's sandbox are those of its pod, which may claim the
// host's own IDs.
func Parse(text string) Range {
	var r Range
	if _, err := fmt.Sscanf(text, "%d+%d", &r.First, &r.Length); err != nil || r.String() != text {
		return Range{}
	}
	if !r.mayBeOfPod() {
		return Range{}
	}
	return r
}

// mayBeOfPod reports whether an agent may have allocated the range with some configuration.
func (r Range) mayBeOfPod() bool {
	return r.First >= idsFirst && r.First%idsUnit == 0 && r.Length != 0 && r.Length%idsUnit == 0 &&
		uint64(r.First)+uint64(r.Length) <= idsEnd
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
	idsUnit  = 1 << 16 // of the ranges (userNamespaces.idsPerPod) and of what is set apart
)

// Layout divides IDs of the host into ranges of equal length.
type Layout struct {
	First     uint32 `json:"first"` // the first ID of the first range
	IDsPerPod uint32 `json:"iDsPerPod"`
	RangesMax int    `json:"rangesMax"`
}

// LayoutFromConfig returns the layout of a configuration: as many ranges as there may be pods, as
// far as the IDs suffice. The IDs are those that the administrator has set apart for pods; if that
// range is empty, they are all but the host's own.
func LayoutFromConfig(c *kubeletconfig.KubeletConfiguration, setApart Range) Layout {
	l := Layout{First: idsFirst, IDsPerPod: idsPerPod(c)}
	ids := uint64(idsEnd) - idsFirst
	if !setApart.IsEmpty() {
		l.First, ids = setApart.First, uint64(setApart.Length)
	}
	l.RangesMax = min(int(c.MaxPods), int(ids/uint64(l.IDsPerPod)))
	return l
}

// Has reports whether a range is one of the layout's.
func (l *Layout) Has(r Range) bool {
	return r.Length == l.IDsPerPod && r.First >= l.First && (r.First-l.First)%l.IDsPerPod == 0 &&
		uint64(r.First-l.First) < l.Length()
}

// Length returns the number of IDs of all ranges.
func (l *Layout) Length() uint64 { return uint64(l.RangesMax) * uint64(l.IDsPerPod) }

func idsPerPod(c *kubeletconfig.KubeletConfiguration) uint32 {
	if u := c.UserNamespaces; u != nil && u.IDsPerPod != nil {
		return uint32(*u.IDsPerPod)
	}
	return idsFirst
}

// CheckSetApart returns an error if IDs that an administrator has set apart do not suffice for the
// pods of a configuration. The rules are the kubelet's (MakeUserNsManager).
func CheckSetApart(c *kubeletconfig.KubeletConfiguration, r Range) error {
	each := idsPerPod(c)
	switch {
	case r.First < each || r.First%each != 0:
		return fmt.Errorf("the first ID is %d, and must be a multiple of %d, "+
			"userNamespaces.idsPerPod", r.First, each)
	case r.Length == 0 || r.Length%each != 0:
		return fmt.Errorf("there are %d IDs, and their number must be a multiple of %d, "+
			"userNamespaces.idsPerPod", r.Length, each)
	case uint64(r.First)+uint64(r.Length) > idsEnd:
		return fmt.Errorf("%d IDs from %d on are more than there are", r.Length, r.First)
	case int64(r.Length/each) < int64(c.MaxPods):
		return fmt.Errorf("there are %d IDs, and %d pods (maxPods) need %d", r.Length, c.MaxPods,
			int64(c.MaxPods)*int64(each))
	}
	return nil
}

// FirstFree returns the first free range; an empty one if all are taken.
func (l Layout) FirstFree(taken []Range) Range {
	for i := range l.RangesMax {
		r := Range{First: uint32(uint64(l.First) + uint64(i)*uint64(l.IDsPerPod)), Length: l.IDsPerPod}
		if r.IsFree(taken) {
			return r
		}
	}
	return Range{}
}
