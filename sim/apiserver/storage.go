package apiserver

import (
	"fmt"
	"slices"

	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/util/validation"
)

// csiNodeIDMax is how long the ID of a node can be (csiNodeIDMaxLength upstream).
const csiNodeIDMax = 256

// validateCSINode returns why a CSINode is invalid.
func validateCSINode(n *storagev1.CSINode) string {
	seen := map[string]bool{}
	for i := range n.Spec.Drivers {
		switch d := &n.Spec.Drivers[i]; {
		case d.Name == "" || d.NodeID == "":
			return fmt.Sprintf("spec.drivers[%d]: Required value", i)
		case len(d.NodeID) > csiNodeIDMax:
			return fmt.Sprintf("spec.drivers[%d].nodeID: Invalid value: must be %d characters or less", i,
				csiNodeIDMax)
		case d.Allocatable != nil && d.Allocatable.Count != nil && *d.Allocatable.Count < 0:
			return fmt.Sprintf("spec.drivers[%d].allocatable.count: Invalid value: must be greater than "+
				"or equal to 0", i)
		case slices.ContainsFunc(d.TopologyKeys, func(key string) bool {
			return len(validation.IsQualifiedName(key)) > 0
		}):
			return fmt.Sprintf("spec.drivers[%d].topologyKeys: Invalid value: %q", i, d.TopologyKeys)
		case seen[d.Name]:
			return fmt.Sprintf("spec.drivers[%d].name: Duplicate value: %q", i, d.Name)
		default:
			seen[d.Name] = true
		}
	}
	return ""
}

// validateCSINodeUpdate returns why an update of a CSINode is invalid. Of a driver only the number
// of volumes can change (KEP-4876); it can be removed and added again.
func validateCSINodeUpdate(n, old *storagev1.CSINode) string {
	for i := range old.Spec.Drivers {
		for k := range n.Spec.Drivers {
			before, now := old.Spec.Drivers[i], n.Spec.Drivers[k]
			before.Allocatable, now.Allocatable = nil, nil
			if before.Name == now.Name && !equality.Semantic.DeepEqual(before, now) {
				return "spec.drivers: Invalid value: field is immutable"
			}
		}
	}
	return validateCSINode(n)
}

// setCSIDriverDefaults sets the fields of a CSIDriver that the server sets if a client does not.
func setCSIDriverDefaults(s *storagev1.CSIDriverSpec) {
	setBool := func(field **bool, value bool) {
		if *field == nil {
			*field = &value
		}
	}
	setBool(&s.AttachRequired, true)
	for _, field := range []**bool{&s.PodInfoOnMount, &s.StorageCapacity, &s.RequiresRepublish,
		&s.SELinuxMount} {
		setBool(field, false)
	}
	if s.FSGroupPolicy == nil {
		policy := storagev1.ReadWriteOnceWithFSTypeFSGroupPolicy
		s.FSGroupPolicy = &policy
	}
	if len(s.VolumeLifecycleModes) == 0 {
		s.VolumeLifecycleModes = []storagev1.VolumeLifecycleMode{storagev1.VolumeLifecyclePersistent}
	}
}
