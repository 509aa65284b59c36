package node

import (
	"time"

	v1 "k8s.io/api/core/v1"
	kubeletconfig "k8s.io/kubelet/config/v1beta1"

	"seedlet.dev/core/config"
)

// Options are the command line's options about the node.
type Options struct {
	Labels        map[string]string `json:"labels,omitempty"`        // --node-labels
	ExternalCloud bool              `json:"externalCloud,omitempty"` // --cloud-provider=external
	// IPs are the addresses of the node, as ParseIPs parses --node-ip; empty: the detected ones.
	IPs     []string `json:"ips,omitempty"`
	Version string   `json:"version"` // the output of --version: "v1.36.3"
	// IgnoreThresholds is --experimental-allocatable-ignore-eviction: pods may have what is under the
	// hard eviction thresholds.
	IgnoreThresholds bool `json:"ignoreThresholds,omitempty"`
}

// Settings are the configuration of the Node object. They do not change while the agent runs.
type Settings struct {
	Options
	Name         string        `json:"name"`
	ProviderID   string        `json:"providerID,omitempty"`
	Register     bool          `json:"register"` // create the object if it does not exist
	Taints       []v1.Taint    `json:"taints,omitempty"`
	AttachDetach bool          `json:"attachDetach"` // the attach-detach controller attaches volumes
	CheckPeriod  time.Duration `json:"checkPeriod"`  // period of comparing the status
	ReportPeriod time.Duration `json:"reportPeriod"` // period of writing the status without a change
	ImagesMax    int           `json:"imagesMax"`    // of the images in the status; -1: all
	Port         int32         `json:"port"`
	PodsMax      int           `json:"podsMax"`
	PodsPerCore  int           `json:"podsPerCore,omitempty"` // zero: no limit
	LocalStorage bool          `json:"localStorage"`          // ephemeral storage is a resource
	Reserved     Reserved      `json:"reserved"`
	// DeclaredFeatures are the features that the scheduler and the API server ask for, sorted.
	DeclaredFeatures []string `json:"declaredFeatures,omitempty"`
}

// SettingsFromConfig returns the settings of a configuration with defaults.
func SettingsFromConfig(c *kubeletconfig.KubeletConfiguration, name string, o Options) Settings {
	reserved := ReservedFromConfig(c)
	if o.IgnoreThresholds {
		reserved.Memory, reserved.Storage = "", ""
	}
	return Settings{
		Options: o, Name: name, ProviderID: c.ProviderID, Register: *c.RegisterNode,
		Taints: c.RegisterWithTaints, AttachDetach: *c.EnableControllerAttachDetach,
		CheckPeriod:  c.NodeStatusUpdateFrequency.Duration,
		ReportPeriod: c.NodeStatusReportFrequency.Duration,
		ImagesMax:    int(*c.NodeStatusMaxImages),
		Port:         c.Port,
		PodsMax:      int(c.MaxPods),
		PodsPerCore:  int(c.PodsPerCore),
		LocalStorage: *c.LocalStorageCapacityIsolation,
		Reserved:     reserved,

		DeclaredFeatures: config.DeclaredFeatures(c),
	}
}

// PodLimit returns how many pods a machine with so many CPUs can run at once.
func (s *Settings) PodLimit(cpus int) int {
	if s.PodsPerCore > 0 {
		return min(s.PodsMax, s.PodsPerCore*cpus)
	}
	return s.PodsMax
}
