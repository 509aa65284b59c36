package pod

import (
	"fmt"

	v1 "k8s.io/api/core/v1"

	"seedlet.dev/core/criconfig"
)

// UnsupportedFields lists the fields of a pod that this version does not support, or that are
// disabled, and without which the pod would run wrongly. Such a pod is rejected. This is the only
// list of such fields; a feature that is implemented removes its line. Of many fields the first
// ones are listed.
func UnsupportedFields(pod *v1.Pod, restartsAll bool) []string {
	u := unsupported{spec: &pod.Spec, restartsAll: restartsAll}
	spec := u.spec
	for i := range spec.Volumes {
		if source := inVolume(&spec.Volumes[i]); source != "" {
			u.add("spec.volumes[%d]%s", i, source)
		}
	}
	if len(spec.ResourceClaims) > 0 {
		u.add("spec.resourceClaims")
	}
	if s := spec.SecurityContext; s != nil && s.WindowsOptions != nil {
		u.add("spec.securityContext.windowsOptions")
	}
	for i := range spec.InitContainers {
		u.addContainer(&spec.InitContainers[i], "spec.initContainers", i)
	}
	for i := range spec.Containers {
		u.addContainer(&spec.Containers[i], "spec.containers", i)
	}
	return u.found
}

// unsupportedMax bounds the fields that are listed: tenants choose how many there are.
const unsupportedMax = 10

// unsupported collects the fields of a pod that are not supported.
type unsupported struct {
	spec        *v1.PodSpec
	restartsAll bool
	found       []string
}

func (u *unsupported) add(path string, args ...any) {
	if len(u.found) < unsupportedMax {
		u.found = append(u.found, fmt.Sprintf(path, args...))
	}
}

func (u *unsupported) addContainer(c *v1.Container, list string, index int) {
	add := func(field string, args ...any) {
		u.add(list+"[%d]."+field, append([]any{index}, args...)...)
	}
	if criconfig.EffectiveSecurityContext(u.spec, c).WindowsOptions != nil {
		add("securityContext.windowsOptions")
	}
	for i := range c.RestartPolicyRules {
		action := c.RestartPolicyRules[i].Action
		if action != v1.ContainerRestartRuleActionRestart && !u.restartsAll {
			add("restartPolicyRules[%d].action (%s, feature gate RestartAllContainersOnContainerExits)", i,
				action)
		}
	}
}

// inVolume returns the part of a volume that is not supported; empty if all of it is.
func inVolume(v *v1.Volume) string {
	switch {
	case v.HostPath != nil, v.EmptyDir != nil, v.Image != nil, v.ConfigMap != nil, v.Secret != nil,
		v.PersistentVolumeClaim != nil, v.Ephemeral != nil, v.NFS != nil, v.CSI != nil,
		v.DownwardAPI != nil, v.Projected != nil, v.ISCSI != nil, v.FC != nil:
		return ""
	case v.AWSElasticBlockStore != nil, v.GCEPersistentDisk != nil, v.AzureDisk != nil,
		v.AzureFile != nil, v.Cinder != nil, v.VsphereVolume != nil, v.PortworxVolume != nil:
		return "" // volumes of the CSI drivers that have replaced their plugins
	case v.Glusterfs != nil, v.RBD != nil, v.CephFS != nil, v.Flocker != nil, v.Quobyte != nil,
		v.ScaleIO != nil, v.StorageOS != nil, v.PhotonPersistentDisk != nil, v.GitRepo != nil:
		return "" // the set-up fails as the kubelet's does, which has no plugin for them either
	case v.FlexVolume != nil:
		return ".flexVolume" // a kubelet has a plugin for it
	}
	return " (" + v.Name + ")"
}
