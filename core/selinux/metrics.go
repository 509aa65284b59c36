package selinux

import (
	"slices"

	v1 "k8s.io/api/core/v1"
)

// Event is what is counted of the labels of volumes: the part of the name of the kubelet's metric
// after volume_manager_selinux_ (desired_state_of_world.go in pkg/kubelet/volumemanager).
type Event string

// The events. A problem is counted when a pod begins to have it; a kubelet counts each retry.
const (
	// A volume is to be mounted with a label.
	Admitted Event = "volumes_admitted_total"
	// The options of a container are no label; its containers differ; another pod has another one.
	OfContainer Event = "container_errors_total"
	OfPod       Event = "pod_context_mismatch_errors_total"
	OfVolume    Event = "volume_context_mismatch_errors_total"
)

// Counted is an event about the label of a volume.
type Counted struct {
	Event      Event
	Plugin     string // of the kubelet, as kubernetes.io/fc; of a CSI driver: empty
	Driver     string // of CSI
	AccessMode string // as ModeLabel returns it
}

// Error is a problem with the label of a volume that is counted.
type Error struct {
	Event   Event
	problem string
}

func (e *Error) Error() string { return e.problem }

// ModeLabel returns the access mode of a volume in metrics: the one for most nodes and pods.
func ModeLabel(modes []v1.PersistentVolumeAccessMode) string {
	for _, m := range []struct {
		mode  v1.PersistentVolumeAccessMode
		label string
	}{{v1.ReadWriteMany, "RWX"}, {v1.ReadOnlyMany, "ROX"}, {v1.ReadWriteOnce, "RWO"},
		{v1.ReadWriteOncePod, "RWOP"}} {
		if slices.Contains(modes, m.mode) {
			return m.label
		}
	}
	return "inline"
}
