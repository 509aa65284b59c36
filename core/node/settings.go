package node

import (
	"time"

	v1 "k8s.io/api/core/v1"
	kubeletconfig "k8s.io/kubelet/config/v1beta1"
)

// Options are what the command line says of the node.
type Options struct {
	Labels        map[string]string `json:"labels,omitempty"`        // --node-labels
	ExternalCloud bool              `json:"externalCloud,omitempty"` // --cloud-provider=external
	// IPs are its addresses if they are not to be found out, as ParseIPs reads --node-ip.
	IPs     []string `json:"ips,omitempty"`
	Version string   `json:"version"` // as --version prints it: "v1.36.3"
}

// Settings are what the Node object is made by. They are fixed for the life of the agent.
type Settings struct {
	Options
	Name         string        `json:"name"`
	ProviderID   string        `json:"providerID,omitempty"`
	Register     bool          `json:"register"` // make the object if there is none
	Taints       []v1.Taint    `json:"taints,omitempty"`
	AttachDetach bool          `json:"attachDetach"` // a controller attaches volumes
	CheckEvery   time.Duration `json:"checkEvery"`   // the status is compared
	ReportEvery  time.Duration `json:"reportEvery"`  // it is written although nothing has changed
	ImagesMax    int           `json:"imagesMax"`    // that are reported; -1: all
	Port         int32         `json:"port"`
	PodsMax      int           `json:"podsMax"`
	PodsPerCore  int           `json:"podsPerCore,omitempty"` // zero: no limit
	LocalStorage bool          `json:"localStorage"`          // ephemeral storage is a resource
	Reserve      Reserve       `json:"reserve"`
}

// SettingsOf are the settings of a configuration with defaults.
func SettingsOf(c *kubeletconfig.KubeletConfiguration, name string, o Options) Settings {
	return Settings{
		Options: o, Name: name, ProviderID: c.ProviderID, Register: *c.RegisterNode,
		Taints: c.RegisterWithTaints, AttachDetach: *c.EnableControllerAttachDetach,
		CheckEvery:   c.NodeStatusUpdateFrequency.Duration,
		ReportEvery:  c.NodeStatusReportFrequency.Duration,
		ImagesMax:    int(*c.NodeStatusMaxImages),
		Port:         c.Port,
		PodsMax:      int(c.MaxPods),
		PodsPerCore:  int(c.PodsPerCore),
		LocalStorage: *c.LocalStorageCapacityIsolation,
		Reserve:      ReserveOf(c),
	}
}

// PodsOn is how many pods a machine with so many CPUs runs at once.
func (s *Settings) PodsOn(cpus int) int {
	if s.PodsPerCore > 0 {
		return min(s.PodsMax, s.PodsPerCore*cpus)
	}
	return s.PodsMax
}
