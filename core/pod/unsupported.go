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
		if source := u.inVolume(&spec.Volumes[i]); source != "" {
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
	// noStorageLimit has the names of the containers without a limit of ephemeral storage, once one
	// was looked up.
	noStorageLimit map[string]bool
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
	for i := range c.Env {
		if source := u.inSource(&c.Env[i], c); source != "" {
			add("env[%d].valueFrom.%s", i, source)
		}
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
func (u *unsupported) inVolume(v *v1.Volume) string {
	switch {
	case v.HostPath != nil, v.EmptyDir != nil, v.Image != nil, v.ConfigMap != nil, v.Secret != nil,
		v.PersistentVolumeClaim != nil, v.Ephemeral != nil, v.NFS != nil, v.CSI != nil:
		return ""
	case v.AWSElasticBlockStore != nil, v.GCEPersistentDisk != nil, v.AzureDisk != nil,
		v.AzureFile != nil, v.Cinder != nil, v.VsphereVolume != nil, v.PortworxVolume != nil:
		return "" // volumes of the CSI drivers that have replaced their plugins
	case v.Glusterfs != nil, v.RBD != nil, v.CephFS != nil, v.Flocker != nil, v.Quobyte != nil,
		v.ScaleIO != nil, v.StorageOS != nil, v.PhotonPersistentDisk != nil, v.FlexVolume != nil,
		v.GitRepo != nil:
		return "" // the set-up fails as the kubelet's does, which has no plugin for them either
	case v.DownwardAPI != nil:
		return u.inFiles(v.DownwardAPI.Items)
	case v.Projected == nil:
		return " (" + v.Name + ")"
	}
	for i, source := range v.Projected.Sources {
		if source.PodCertificate != nil {
			return fmt.Sprintf(".projected.sources[%d]", i)
		}
		if source.DownwardAPI == nil {
			continue
		}
		if file := u.inFiles(source.DownwardAPI.Items); file != "" {
			return file
		}
	}
	return ""
}

// inFiles returns the first downward API file that holds the storage capacity of the node, which is
// not known.
func (u *unsupported) inFiles(files []v1.DownwardAPIVolumeFile) string {
	for i := range files {
		if ref := files[i].ResourceFieldRef; ref != nil &&
			ref.Resource == "limits.ephemeral-storage" &&
			u.lacksStorageLimit(ref.ContainerName, nil) {
			return " (" + files[i].Path + ": limits.ephemeral-storage without a limit)"
		}
	}
	return ""
}

// inSource returns the source of an environment variable that is not supported; empty if it is. The
// storage capacity of the node is not known.
func (u *unsupported) inSource(v *v1.EnvVar, c *v1.Container) string {
	if v.ValueFrom == nil || v.ValueFrom.ResourceFieldRef == nil {
		return ""
	}
	if ref := v.ValueFrom.ResourceFieldRef; ref.Resource == "limits.ephemeral-storage" &&
		u.lacksStorageLimit(ref.ContainerName, c) {
		return "resourceFieldRef (limits.ephemeral-storage without a limit)"
	}
	return ""
}

// lacksStorageLimit reports whether a container has no limit of ephemeral storage: the container of
// the name, or c if the name is empty. A name that does not exist counts as having one; the status
// reports it later.
func (u *unsupported) lacksStorageLimit(name string, c *v1.Container) bool {
	if name == "" {
		return c == nil || c.Resources.Limits.StorageEphemeral().IsZero()
	}
	if u.noStorageLimit == nil { // a container precedes an init container of its name
		u.noStorageLimit = map[string]bool{}
		for _, list := range [][]v1.Container{u.spec.InitContainers, u.spec.Containers} {
			for i := range list {
				u.noStorageLimit[list[i].Name] = list[i].Resources.Limits.StorageEphemeral().IsZero()
			}
		}
	}
	return u.noStorageLimit[name]
}
