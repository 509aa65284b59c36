package csi

import (
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"seedlet.dev/core/claim"
	"seedlet.dev/core/selinux"
)

// EphemeralUse returns the use of a volume of a driver that is written in a pod, and exists as long
// as it.
func EphemeralUse(pod *v1.Pod, v *v1.Volume) Use {
	u := useOf(pod, v)
	u.SpecName, u.Driver, u.Ephemeral, u.Inline = v.Name, v.CSI.Driver, true, true
	u.Handle = EphemeralHandle(u.UID, v.Name)
	u.Attributes = v.CSI.VolumeAttributes
	u.ReadOnly = v.CSI.ReadOnly != nil && *v.CSI.ReadOnly
	if v.CSI.FSType != nil {
		u.FSType = *v.CSI.FSType
	}
	if ref := v.CSI.NodePublishSecretRef; ref != nil {
		u.PublishSecret = &v1.SecretReference{Namespace: pod.Namespace, Name: ref.Name}
	}
	return u
}

// PersistentUse returns the use of a persistent volume of a driver by a pod.
func PersistentUse(pod *v1.Pod, v *v1.Volume, pv *v1.PersistentVolume, readOnly bool) Use {
	u, source := useOf(pod, v), pv.Spec.CSI
	u.SpecName, u.Driver, u.Handle, u.ReadOnly = pv.Name, source.Driver, source.VolumeHandle, readOnly
	u.Attributes, u.AccessModes = source.VolumeAttributes, pv.Spec.AccessModes
	u.Block = pv.Spec.VolumeMode != nil && *pv.Spec.VolumeMode == v1.PersistentVolumeBlock
	if !u.Block {
		u.FSType, u.MountOptions = source.FSType, pv.Spec.MountOptions
		u.SELinux = selinux.OptionsOf(&pod.Spec, v.Name)
	}
	u.Claim, u.ExpandSecret = claim.Name(pod, v), source.NodeExpandSecretRef
	u.StageSecret, u.PublishSecret = source.NodeStageSecretRef, source.NodePublishSecretRef
	return u
}

func useOf(pod *v1.Pod, v *v1.Volume) Use {
	u := Use{UID: string(pod.UID), Namespace: pod.Namespace, PodName: pod.Name,
		ServiceAccount: pod.Spec.ServiceAccountName, Volume: v.Name}
	if s := pod.Spec.SecurityContext; s != nil {
		u.FSGroup = s.FSGroup
		u.OnRootMismatch = s.FSGroupChangePolicy != nil &&
			*s.FSGroupChangePolicy == v1.FSGroupChangeOnRootMismatch
	}
	return u
}

// pod returns the pod as the object that events are about.
func (u *Use) pod() v1.ObjectReference {
	return v1.ObjectReference{Kind: "Pod", APIVersion: "v1", Namespace: u.Namespace, Name: u.PodName,
		UID: types.UID(u.UID)}
}
