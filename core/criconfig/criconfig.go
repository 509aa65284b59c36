// Package criconfig translates a pod into the messages of the CRI.
//
// It has no state and issues no operations: every message is a function of the pod's spec, of the
// node, and of the objects that the caller has found for the spec (ConfigMaps and Secrets,
// services, images, IPs, IDs). A request that is repeated is therefore the same. A spec that cannot
// be translated leads to an error with the kubelet's text; package pod decides when to translate,
// and how errors are reported. Start reading at Pod, then Pod.SandboxConfig and
// Pod.ContainerConfig.
package criconfig

import (
	"fmt"
	"slices"

	v1 "k8s.io/api/core/v1"

	"seedlet.dev/core/cgroup"
	"seedlet.dev/core/hostfile"
	"seedlet.dev/core/objectcache"
	"seedlet.dev/core/userns"
	"seedlet.dev/core/volume"
	"seedlet.dev/world"
)

// Pod is a pod to translate, with everything besides its spec that the messages depend on.
type Pod struct {
	Spec   *v1.Pod // with defaults
	Static bool    // its source is a manifest, not the API server
	Node   *Node
	// Objects are those that the spec refers to, as they are at the API server; nil without an API
	// server.
	Objects *objectcache.Store
	// IPs are the pod's, which are the node's with hostNetwork; empty before the sandbox has one.
	IPs []string
	IDs userns.Range // user and group IDs on the host; none if the pod has the host's
	// EnvFiles are the files that variables are taken from, by container, as they were read for its
	// next run.
	EnvFiles map[string][]EnvFile
	// TargetID is the container whose processes an ephemeral container sees; empty if it has none.
	TargetID string
	// Volumes are those of the spec, by name (VolumesByName). A mount of another one is an error.
	Volumes map[string]*v1.Volume
	// Mounted has the state of the volumes, which says where those with a claim are.
	Mounted *volume.Set

	environment environment // of the container that was asked for last
	expandedMax int         // of a container that is not in environment yet, see Variables
	// labelLines and annotationLines are the files of all labels and annotations, once asked for.
	labelLines, annotationLines *string
	// keysOf are the sorted keys of objects, once asked for.
	keysOf map[*world.Object][]string
}

// Node is the part of the node's facts that messages depend on. It is the same for all pods.
type Node struct {
	PodsDir     string `json:"podsDir"`
	LogsDir     string `json:"logsDir"`
	MemoryBytes int64  `json:"memoryBytes"`
	// Allocatable is what pods can have of the node, in milli-CPUs and in bytes. The downward
	// API replaces the limits by it that a container does not have.
	Allocatable map[v1.ResourceName]int64 `json:"allocatable,omitempty"`
	// UnreservedMemory is what is not reserved of the machine's memory, in bytes.
	UnreservedMemory int64         `json:"unreservedMemory,omitempty"`
	IPs              []string      `json:"ips,omitempty"` // the primary one first
	DNS              DNS           `json:"dns"`
	Resolv           hostfile.File `json:"resolv"` // the node's own resolv.conf
	Hosts            hostfile.File `json:"hosts"`  // the node's own /etc/hosts
	Cgroups          cgroup.Layout `json:"cgroups"`
	// RecursiveReadOnly reports that the runtime supports recursive read-only mounts (KEP-3857).
	RecursiveReadOnly bool `json:"recursiveReadOnly"`
	// SELinux and ThermalThrottleCPUs are those of world.Machine.
	SELinux             bool  `json:"selinux,omitempty"`
	ThermalThrottleCPUs []int `json:"thermalThrottleCPUs,omitempty"`
	// SeccompDefault reports that containers which name no seccomp profile have the runtime's.
	SeccompDefault bool `json:"seccompDefault,omitempty"`
	// NoEnvFiles reports that variables are not taken from files: the feature gate EnvFiles is off.
	NoEnvFiles bool `json:"noEnvFiles,omitempty"`
}

// PodDesc returns a pod's name, namespace and UID in the format of the kubelet's messages.
func PodDesc(pod *v1.Pod) string {
	return fmt.Sprintf("%s_%s(%s)", pod.Name, pod.Namespace, pod.UID)
}

// FindContainer returns the container of a pod with the given name, whether it is an app, init or
// ephemeral container; nil if the spec has none.
func FindContainer(pod *v1.Pod, name string) *v1.Container {
	for i := range pod.Spec.InitContainers {
		if c := &pod.Spec.InitContainers[i]; c.Name == name {
			return c
		}
	}
	for i := range pod.Spec.Containers {
		if c := &pod.Spec.Containers[i]; c.Name == name {
			return c
		}
	}
	for i := range pod.Spec.EphemeralContainers {
		if c := EphemeralContainer(&pod.Spec.EphemeralContainers[i]); c.Name == name {
			return c
		}
	}
	return nil
}

// EphemeralContainer returns an ephemeral container as a container: both types have the same
// fields.
func EphemeralContainer(c *v1.EphemeralContainer) *v1.Container {
	return (*v1.Container)(&c.EphemeralContainerCommon)
}

// VolumesByName returns the volumes of a spec by name. The first one of a name counts.
func VolumesByName(spec *v1.PodSpec) map[string]*v1.Volume {
	volumes := make(map[string]*v1.Volume, len(spec.Volumes))
	for i := range slices.Backward(spec.Volumes) {
		volumes[spec.Volumes[i].Name] = &spec.Volumes[i]
	}
	return volumes
}
