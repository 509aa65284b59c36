package pod

import (
	"encoding/json"
	"fmt"
	"maps"
	"strconv"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	podresources "k8s.io/component-helpers/resource"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"seedlet.dev/core/admission"
	"seedlet.dev/core/image"
	"seedlet.dev/core/pleg"
)

// What the runtime is asked to make. Everything here is a function of the spec and the node, so
// that the same request is made however often it is made.

func (p *Pod) dir(node *Node) string { return node.PodsDir + "/" + p.UID }

func (p *Pod) logDir(node *Node) string {
	return node.LogsDir + "/" + p.Namespace + "_" + p.Name + "_" + p.UID
}

func (p *Pod) sandboxConfig(node *Node, attempt uint32) *runtimeapi.PodSandboxConfig {
	spec := &p.Spec.Spec
	config := &runtimeapi.PodSandboxConfig{
		Metadata: &runtimeapi.PodSandboxMetadata{
			Name: p.Name, Uid: p.UID, Namespace: p.Namespace, Attempt: attempt,
		},
		LogDirectory: p.logDir(node),
		PortMappings: portMappings(spec),
		Labels:       p.labels(p.Spec.Labels, ""),
		Annotations:  p.sandboxAnnotations(node, attempt),
		Linux: &runtimeapi.LinuxPodSandboxConfig{
			SecurityContext: p.sandboxSecurity(),
			Sysctls:         sysctls(spec),
			Overhead:        p.overhead(),
			Resources:       p.sandboxResources(),
		},
	}
	config.DnsConfig, _ = p.dnsConfig(node)
	if node.Cgroups.PerPod {
		config.Linux.CgroupParent = node.Cgroups.Parent(
			p.cgroupPath(p.sandboxOf(attempt), &node.Cgroups))
	}
	if !spec.HostNetwork {
		config.Hostname, _ = p.sandboxHostname(node)
	}
	return config
}

// sandboxOf is the sandbox of an attempt; nil if there is none yet.
func (p *Pod) sandboxOf(attempt uint32) *Sandbox {
	if s := p.current(); s != nil && s.Attempt == attempt {
		return s
	}
	return nil
}

// sandboxAnnotations are the pod's, and what must outlive the agent.
func (p *Pod) sandboxAnnotations(node *Node, attempt uint32) map[string]string {
	annotations := maps.Clone(p.Spec.Annotations)
	if annotations == nil {
		annotations = map[string]string{}
	}
	delete(annotations, pleg.AnnotationCgroup) // it is not for the pod to say
	delete(annotations, pleg.AnnotationIDs)
	delete(annotations, pleg.AnnotationClaim)
	if claim := admission.Claim(p.Spec); claim != "" {
		annotations[pleg.AnnotationClaim] = claim
	}
	if l := &node.Cgroups; l.PerPod {
		annotations[pleg.AnnotationCgroup] = p.cgroupPath(p.sandboxOf(attempt), l)
	}
	if !p.IDs.None() {
		annotations[pleg.AnnotationIDs] = p.IDs.String()
	}
	return annotations
}

func (p *Pod) labels(own map[string]string, container string) map[string]string {
	labels := make(map[string]string, len(own)+4)
	maps.Copy(labels, own)
	labels[pleg.LabelPodName] = p.Name
	labels[pleg.LabelPodNamespace] = p.Namespace
	labels[pleg.LabelPodUID] = p.UID
	if container != "" {
		labels[pleg.LabelContainer] = container
	}
	return labels
}

func portMappings(spec *v1.PodSpec) []*runtimeapi.PortMapping {
	if spec.HostNetwork {
		return nil // the ports are the host's already
	}
	var mappings []*runtimeapi.PortMapping
	for i := range spec.Containers {
		for _, port := range spec.Containers[i].Ports {
			if port.HostPort == 0 {
				continue
			}
			mappings = append(mappings, &runtimeapi.PortMapping{
				Protocol:      runtimeapi.Protocol(runtimeapi.Protocol_value[string(port.Protocol)]),
				ContainerPort: port.ContainerPort, HostPort: port.HostPort, HostIp: port.HostIP,
			})
		}
	}
	return mappings
}

func (p *Pod) namespaces() *runtimeapi.NamespaceOption {
	spec := &p.Spec.Spec
	option := &runtimeapi.NamespaceOption{
		Pid: runtimeapi.NamespaceMode_CONTAINER, UsernsOptions: p.IDs.Options(),
	}
	switch {
	case spec.HostPID:
		option.Pid = runtimeapi.NamespaceMode_NODE
	case spec.ShareProcessNamespace != nil && *spec.ShareProcessNamespace:
		option.Pid = runtimeapi.NamespaceMode_POD
	}
	if spec.HostNetwork {
		option.Network = runtimeapi.NamespaceMode_NODE
	}
	if spec.HostIPC {
		option.Ipc = runtimeapi.NamespaceMode_NODE
	}
	return option
}

// containerConfig is a run of a container as the runtime is asked for it.
func (p *Pod) containerConfig(want *v1.Container, from images, run *Container,
	env *Env) *runtimeapi.ContainerConfig {
	node := env.Node
	variables, err := p.environment(want, env)
	var mounts []*runtimeapi.Mount
	if err == nil {
		mounts, err = p.mounts(want, variables, from, node)
	}
	if err != nil {
		panic("pod: " + p.FullName() + ": a container is made that cannot be: " + err.Error())
	}
	annotations := map[string]string{
		annotationHash:          run.Hash,
		annotationRestarts:      strconv.Itoa(int(run.Restarts)),
		annotationGrace:         strconv.FormatInt(int64(run.Grace/time.Second), 10),
		annotationBackoff:       run.Backoff.String(),
		annotationMessagePath:   want.TerminationMessagePath,
		annotationMessagePolicy: string(want.TerminationMessagePolicy),
	}
	if run.PreStop != nil {
		annotations[annotationPreStop] = text(run.PreStop)
	}
	if len(run.Ports) > 0 {
		annotations[annotationPorts] = text(run.Ports)
	}
	if run.Sidecar > 0 {
		annotations[annotationSidecar] = strconv.Itoa(run.Sidecar)
	}
	if run.Round > 0 {
		annotations[annotationRound] = strconv.Itoa(run.Round)
	}
	return &runtimeapi.ContainerConfig{
		Metadata:    &runtimeapi.ContainerMetadata{Name: want.Name, Attempt: run.Attempt},
		Image:       imageSpec(from.of(""), want.Image),
		Command:     expandAll(want.Command, variables),
		Args:        expandAll(want.Args, variables),
		WorkingDir:  want.WorkingDir,
		Envs:        variables,
		Mounts:      p.idMapped(append(mounts, p.messageMount(want, run, node)...)),
		Labels:      p.labels(nil, want.Name),
		Annotations: annotations,
		LogPath:     fmt.Sprintf("%s/%d.log", want.Name, run.Restarts),
		StopSignal:  stopSignal(want),
		Stdin:       want.Stdin,
		StdinOnce:   want.StdinOnce,
		Tty:         want.TTY,
		Linux: &runtimeapi.LinuxContainerConfig{
			Resources:       p.resources(want, node),
			SecurityContext: p.containerSecurity(want, from.of("").User, node),
		},
	}
}

// imageSpec is an image that is there, as the runtime knows it.
func imageSpec(is image.Answer, ref string) *runtimeapi.ImageSpec {
	return &runtimeapi.ImageSpec{Image: is.ID, UserSpecifiedImage: ref}
}

// text is data in the form that annotations hold it in.
func text(data any) string {
	bytes, err := json.Marshal(data)
	if err != nil {
		panic("pod: an annotation cannot be written: " + err.Error())
	}
	return string(bytes)
}

// stopSignal is what is sent to end a container, if it is to be another one than the image's
// (KEP-4960).
func stopSignal(want *v1.Container) runtimeapi.Signal {
	if want.Lifecycle == nil || want.Lifecycle.StopSignal == nil {
		return runtimeapi.Signal_RUNTIME_DEFAULT
	}
	return runtimeapi.Signal(runtimeapi.Signal_value[string(*want.Lifecycle.StopSignal)])
}

// resources translates requests and limits.
func (p *Pod) resources(want *v1.Container, node *Node) *runtimeapi.LinuxContainerResources {
	cpu, memory := p.ownLimit(want, v1.ResourceCPU), p.ownLimit(want, v1.ResourceMemory)
	r := linuxResources(want.Resources.Requests.Cpu().MilliValue(), cpu.MilliValue(),
		memory.Value())
	r.OomScoreAdj = p.oomScoreAdj(want, node)
	return r
}

// ownLimit is the limit of a container. What it has none of is limited by that of the pod as a
// whole (KEP-2837).
func (p *Pod) ownLimit(c *v1.Container, name v1.ResourceName) resource.Quantity {
	limit := c.Resources.Limits[name]
	if whole := p.Spec.Spec.Resources; limit.IsZero() && whole != nil {
		limit = whole.Limits[name]
	}
	return limit
}

// oomScoreAdj is the kubelet's rule: the more of its request's share of the machine a burstable
// container leaves unused, the later it is killed.
func (p *Pod) oomScoreAdj(want *v1.Container, node *Node) int64 {
	switch QOS(p.Spec) {
	case v1.PodQOSGuaranteed:
		return -997
	case v1.PodQOSBestEffort:
		return 1000
	}
	if node.MemoryBytes <= 0 {
		return 999
	}
	request := want.Resources.Requests.Memory().Value() + p.unclaimed()
	adj := 1000 - 1000*request/node.MemoryBytes
	return min(999, max(3, adj))
}

// unclaimed is each container's share of the memory that the pod as a whole asks for and none of
// its containers does.
func (p *Pod) unclaimed() int64 {
	spec := &p.Spec.Spec
	if !podresources.IsPodLevelRequestsSet(p.Spec) || spec.Resources.Requests.Memory().IsZero() {
		return 0
	}
	claimed := podresources.AggregateContainerRequests(p.Spec, podresources.PodResourcesOptions{})
	containers := int64(len(spec.Containers) + len(spec.InitContainers))
	return (spec.Resources.Requests.Memory().Value() - claimed.Memory().Value()) / containers
}
