package csi

import "seedlet.dev/core/budget"

// NamesOfNode are the bytes that the names of volumes take in the status of the Node, as JSON has
// them. Ephemeral volumes are not named there.
type NamesOfNode struct {
	Inline int `json:"inline,omitempty"` // of volumes that only the authors of pods have named
	Others int `json:"others,omitempty"` // of claims, and of those that were found at the start
}

// checkRoom returns an error if the node takes no more volumes for a pod. A quarter is left to pods
// with few, so that some pods with many do not keep the others from starting.
func (n *Node) checkRoom(u *Use) error {
	isLarge := len(n.Owners[u.UID]) >= budget.CSIVolumesSmallMax
	switch {
	case len(n.Volumes) >= budget.CSIVolumesMax:
		return budget.CSIVolumes.Errorf("the node has %d CSI volumes, and can have no more",
			budget.CSIVolumesMax)
	case len(n.Volumes) >= budget.CSIVolumesLargeMax && isLarge:
		return budget.SmallPodCSIVolumes.Errorf("the node has %d CSI volumes, and the rest is for pods "+
			"with at most %d", budget.CSIVolumesLargeMax, budget.CSIVolumesSmallMax)
	case u.Ephemeral:
		return nil
	}
	own := len(encodedName(u.Driver, u.Handle))
	if !u.Inline {
		return checkNames(n.Names.Others+own, budget.ClaimNamesOfNode, "claims")
	}
	if ofPod := n.inlineNamesOf(u.UID); ofPod+own > budget.VolumeNamesMax {
		return budget.VolumeNames.Errorf("its name takes %d bytes in the status of the Node, and those "+
			"of the other volumes that the pod names itself %d, together more than %d", own, ofPod,
			budget.VolumeNamesMax)
	}
	if n.Names.Inline+own > budget.VolumeNamesOfNodeHighMax && isLarge {
		return budget.SmallPodCSIVolumes.Errorf("the names of volumes that pods name themselves take %d "+
			"bytes in the status of the Node, and the rest is for pods with at most %d volumes",
			n.Names.Inline, budget.CSIVolumesSmallMax)
	}
	return checkNames(n.Names.Inline+own, budget.VolumeNamesOfNode,
		"volumes that pods name themselves")
}

// checkNames returns an error if names take more bytes than a bound.
func checkNames(bytes int, bound budget.Item, of string) error {
	bytesMax := budget.Table[bound].Max
	if bytes <= bytesMax {
		return nil
	}
	return bound.Errorf("the names of %s would take %d bytes in the status of the Node, which has "+
		"room for %d", of, bytes, bytesMax)
}

// inlineNamesOf returns what the names of the volumes take that a pod has named itself.
func (n *Node) inlineNamesOf(uid string) (bytes int) {
	for _, name := range n.Owners[uid] {
		if v := n.Volumes[name]; v.Inline {
			bytes += v.NameBytes
		}
	}
	return bytes
}

// countName counts the name of a volume, as one that authors of pods have chosen or as another.
func (n *Node) countName(v *Volume, inline bool) {
	n.uncountName(v)
	if v.Ephemeral || v.Driver == "" {
		return
	}
	v.Inline, v.NameBytes = inline, len(encodedName(v.Driver, v.Handle))
	*n.Names.of(inline) += v.NameBytes
}

// uncountName takes back what countName has counted.
func (n *Node) uncountName(v *Volume) {
	*n.Names.of(v.Inline) -= v.NameBytes
	v.NameBytes = 0
}

func (b *NamesOfNode) of(inline bool) *int {
	if inline {
		return &b.Inline
	}
	return &b.Others
}
