package volume

import (
	"time"

	v1 "k8s.io/api/core/v1"
)

// Plugin is the kubelet's plugin for volumes of one kind. Metrics have its name as a label.
type Plugin int

// The plugins for the kinds of volumes that are supported, and one for all others.
const (
	ConfigMapPlugin Plugin = iota
	CSIPlugin
	DownwardAPIPlugin
	EmptyDirPlugin
	HostPathPlugin
	ImagePlugin
	ProjectedPlugin
	SecretPlugin
	LocalPlugin
	NFSPlugin
	ISCSIPlugin
	FCPlugin
	otherPlugin
	PluginCount
)

// PluginLabels are the names of the plugins.
var PluginLabels = [PluginCount]string{ConfigMapPlugin: "kubernetes.io/configmap",
	CSIPlugin:         "kubernetes.io/csi",
	DownwardAPIPlugin: "kubernetes.io/downward-api", EmptyDirPlugin: "kubernetes.io/empty-dir",
	HostPathPlugin: "kubernetes.io/host-path", ImagePlugin: "kubernetes.io/image",
	ProjectedPlugin: "kubernetes.io/projected", SecretPlugin: "kubernetes.io/secret",
	LocalPlugin: "kubernetes.io/local-volume", NFSPlugin: "kubernetes.io/nfs",
	ISCSIPlugin: "kubernetes.io/iscsi", FCPlugin: "kubernetes.io/fc", otherPlugin: "N/A"}

// PluginOf returns the plugin for a volume.
func PluginOf(v *v1.Volume) Plugin {
	switch {
	case v.ConfigMap != nil:
		return ConfigMapPlugin
	case v.CSI != nil:
		return CSIPlugin
	case v.DownwardAPI != nil:
		return DownwardAPIPlugin
	case v.EmptyDir != nil:
		return EmptyDirPlugin
	case v.HostPath != nil:
		return HostPathPlugin
	case v.Image != nil:
		return ImagePlugin
	case v.Projected != nil:
		return ProjectedPlugin
	case v.Secret != nil:
		return SecretPlugin
	case v.NFS != nil:
		return NFSPlugin
	case v.ISCSI != nil:
		return ISCSIPlugin
	case v.FC != nil:
		return FCPlugin
	}
	return otherPlugin
}

// PluginOf returns the plugin for a volume of the spec, which for one with a claim is that for what
// backs it.
func (s *Set) PluginOf(spec *v1.Volume) Plugin {
	if v := s.find(spec.Name); v != nil && v.Backing != nil {
		return v.Backing.Plugin
	}
	return PluginOf(spec)
}

// ReadyVolumes calls visit for each volume of the spec that has been set up.
func (s *Set) ReadyVolumes(spec *v1.PodSpec, visit func(*v1.Volume)) {
	for i := range spec.Volumes {
		if v := s.findNear(i, spec.Volumes[i].Name); v != nil && v.Ready {
			visit(&spec.Volumes[i])
		}
	}
}

// endSetup ends the set-up of a volume, and returns how long it took: a volume without operations
// takes no time.
func (v *Volume) endSetup(now time.Time) time.Duration {
	started := v.SetupStartedAt
	v.SetupStartedAt = time.Time{}
	if started.IsZero() {
		return 0
	}
	return now.Sub(started)
}
