// Package userns hands out the ranges of user and group ids that pods have to themselves when
// they do not share the host's (KEP-127).
//
// It keeps nothing: which ranges are taken is known by the pods that hold them, and what must
// outlive the agent is an annotation of their sandboxes. Start reading at Layout.Pick.
package userns

import (
	"fmt"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	kubeletconfig "k8s.io/kubelet/config/v1beta1"
)

// Range is a number of ids on the host, of users and of groups alike. In the pod they count from
// zero. The zero Range is none.
type Range struct {
	First  uint32 `json:"first"`
	Length uint32 `json:"length"`
}

// None says that it is no range.
func (r Range) None() bool { return r.Length == 0 }

// Overlaps says whether two ranges have an id in common.
func (r Range) Overlaps(o Range) bool {
	return uint64(r.First) < uint64(o.First)+uint64(o.Length) &&
		uint64(o.First) < uint64(r.First)+uint64(r.Length)
}

// Free says whether a range has no id in common with any of those that are taken.
func (r Range) Free(taken []Range) bool {
	for _, t := range taken {
		if r.Overlaps(t) {
			return false
		}
	}
	return true
}

// String is the form that an annotation holds a range in: the first id and the number of them.
func (r Range) String() string { return fmt.Sprintf("%d+%d", r.First, r.Length) }

// Parse reads what String wrote. Anything else is no range.
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

// Mapped is the range of a user namespace as the runtime tells of it; none if there is no such
// namespace, or it is of a form that nobody here would have asked for.
func Mapped(n *runtimeapi.UserNamespace) Range {
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

// Options is the user namespace that the runtime is asked for; nil for that of the host.
func (r Range) Options() *runtimeapi.UserNamespace {
	if r.None() {
		return nil
	}
	return &runtimeapi.UserNamespace{
		Mode: runtimeapi.NamespaceMode_POD, Uids: r.Mappings(), Gids: r.Mappings(),
	}
}

// Mappings are the ids of the pod and those on the host that they stand for.
func (r Range) Mappings() []*runtimeapi.IDMapping {
	return []*runtimeapi.IDMapping{{HostId: r.First, ContainerId: 0, Length: r.Length}}
}

const (
	idsFirst = 1 << 16 // those below are the host's own, as in a kubelet without /etc/subuid
	idsEnd   = 1 << 32
)

// Layout is how the host's ids are shared out: to so many pods, so many each.
type Layout struct {
	Length uint32 `json:"length"`
	Count  int    `json:"count"`
}

// LayoutOf is the layout as it is configured: as many ranges as there may be pods.
func LayoutOf(c *kubeletconfig.KubeletConfiguration) Layout {
	l := Layout{Length: idsFirst, Count: int(c.MaxPods)}
	if u := c.UserNamespaces; u != nil && u.IDsPerPod != nil {
		l.Length = uint32(*u.IDsPerPod)
	}
	l.Count = min(l.Count, int((uint64(idsEnd)-idsFirst)/uint64(l.Length)))
	return l
}

// Pick is the first range that is free; none if all are taken.
func (l Layout) Pick(taken []Range) Range {
	for i := range l.Count {
		r := Range{First: uint32(idsFirst + uint64(i)*uint64(l.Length)), Length: l.Length}
		if r.Free(taken) {
			return r
		}
	}
	return Range{}
}
