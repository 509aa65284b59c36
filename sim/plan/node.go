package plan

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/api/resource"
	kubeletconfig "k8s.io/kubelet/config/v1beta1"

	"seedlet.dev/core/config"
	"seedlet.dev/core/credentials"
	"seedlet.dev/world/loop"
)

// The names, address and directories of the node, which are the same in every run.
const (
	NodeName    = "sim"
	NodeIP      = "192.0.2.10"
	RootDir     = "/var/lib/kubelet"
	ManifestDir = "/etc/kubernetes/manifests"
)

// Node is the machine, its container runtime, and the configuration of its agent.
type Node struct {
	Config map[string]any `json:"config,omitempty"` // fields of a KubeletConfiguration
	// SystemdCgroups selects systemd as the runtime's cgroup driver. Absent: cgroupfs.
	SystemdCgroups   bool `json:"systemdCgroups,omitempty"`
	NoUserNamespaces bool `json:"noUserNamespaces,omitempty"` // the runtime does not support them
	// OldRuntime makes the runtime behave like containerd 1.6: it has no stream of events, and
	// answers NotFound to the stop of an object that does not exist, which newer ones accept.
	OldRuntime bool `json:"oldRuntime,omitempty"`
	// LaneLimits bound how many operations of a lane are in flight at once. Absent: the limits of
	// production.
	LaneLimits map[string]int `json:"laneLimits,omitempty"`
	API        bool           `json:"api,omitempty"` // a node of a cluster, with an API server
	// EvictAfter is how long the node's lease is expired before the pods of the node are evicted.
	// Absent: no controller checks the lease.
	EvictAfter Duration `json:"evictAfter,omitempty"`

	// CredentialPlugins are the providers of a CredentialProviderConfig; see sim/credentials.
	CredentialPlugins []map[string]any `json:"credentialPlugins,omitempty"`

	// InhibitDelayMax is how long the machine waits for the locks that delay a shutdown. Absent: as
	// long as the agent asks for.
	InhibitDelayMax Duration `json:"inhibitDelayMax,omitempty"`

	// ImageBytes is the size of the runtime's own file system. Absent: the images and writable layers
	// are on the disk. NodeImages are the images that the runtime has from the start.
	ImageBytes int64       `json:"imageBytes,omitempty"`
	NodeImages []NodeImage `json:"nodeImages,omitempty"`
	// LayersOnRoot has the writable layers on the disk, and not beside the images (KEP-4191).
	LayersOnRoot bool `json:"layersOnRoot,omitempty"`
	// DiskMiB and ThousandInodes are the size of the disk. Absent: 100 GiB with 6 million inodes.
	DiskMiB        int `json:"diskMiB,omitempty"`
	ThousandInodes int `json:"thousandInodes,omitempty"`
	// SELinux has the machine enforce SELinux.
	SELinux bool `json:"selinux,omitempty"`
	// DisksFill has writes of containers and of the agent, and pulls, fail while a file system has no
	// space or inodes left. Absent: they succeed.
	DisksFill bool `json:"disksFill,omitempty"`

	CPUs   int                `json:"cpus,omitempty"`   // absent: 16
	Memory *resource.Quantity `json:"memory,omitempty"` // absent: 16Gi
}

// The capacity of a machine for which the scenario gives none.
const (
	cpusDefault   = 16
	memoryDefault = 16 << 30
)

// NodeImage is an image that the runtime has from the start, so many bytes large.
type NodeImage struct {
	Ref    string `json:"ref"`
	Bytes  int64  `json:"bytes"`
	Pinned bool   `json:"pinned,omitempty"`
}

// CPUCount returns the number of CPUs of the machine.
func (n *Node) CPUCount() int { return cmp.Or(n.CPUs, cpusDefault) }

// MemoryBytes returns the memory capacity of the machine.
func (n *Node) MemoryBytes() int64 {
	if n.Memory == nil {
		return memoryDefault
	}
	return n.Memory.Value()
}

// Limits returns the bounds of the agent's loop.
func (n *Node) Limits() (loop.Limits, error) {
	var limits loop.Limits
	for name, limit := range n.LaneLimits { //ordered: each lane by itself, and one error is enough
		lane, known := loop.ParseLane(name)
		if !known || limit < 1 {
			return limits, fmt.Errorf("spec.node.laneLimits: want the name of a lane and 1 or more, "+
				"have %q: %d", name, limit)
		}
		limits.InFlight[lane] = limit
	}
	return limits, nil
}

// What the plugins for credentials know.
const (
	// Registry is the registry of which they have credentials.
	Registry = "registry.test"
	// UserAnnotation names the user of the registry that a service account stands for.
	UserAnnotation = "registry.test/user"
)

// Providers returns the plugins for credentials as the agent is configured with them.
func (n *Node) Providers() ([]credentials.Provider, error) {
	if len(n.CredentialPlugins) == 0 {
		return nil, nil
	}
	data, err := json.Marshal(map[string]any{"apiVersion": "kubelet.config.k8s.io/v1",
		"kind": "CredentialProviderConfig", "providers": n.CredentialPlugins})
	if err != nil {
		return nil, fmt.Errorf("spec.node.credentialPlugins: %w", err)
	}
	return credentials.ParseConfig([]credentials.File{{Name: "spec.node.credentialPlugins",
		Data: data}})
}

// KubeletConfig returns the agent's configuration, given the fields that a scenario or plan sets.
func KubeletConfig(fields map[string]any) (*kubeletconfig.KubeletConfiguration, error) {
	doc := map[string]any{
		"apiVersion": "kubelet.config.k8s.io/v1beta1", "kind": "KubeletConfiguration",
		"staticPodPath": ManifestDir,
		// Few containers log much: checking the size of logs once a minute halves the time of a run.
		"containerLogMonitorInterval": "1m",
	}
	for name, value := range fields { //ordered: into a map again
		doc[name] = value
	}
	data, err := json.Marshal(doc)
	if err != nil {
		return nil, fmt.Errorf("spec.node.config: %w", err)
	}
	loaded, err := config.Load(&config.File{Name: "spec.node.config", Data: data}, nil, nil)
	if err != nil {
		return nil, err
	}
	if len(loaded.Warnings) > 0 { // such as an unknown field, which an agent ignores
		return nil, errors.New(strings.Join(loaded.Warnings, "; "))
	}
	if err := loaded.Finish(); err != nil {
		return nil, err
	}
	return loaded.Config, nil
}
