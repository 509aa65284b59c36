package criconfig

import (
	"maps"

	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"seedlet.dev/core/admission"
	"seedlet.dev/core/budget"
	"seedlet.dev/core/pleg"
)

// SandboxConfig returns the configuration of a sandbox of the pod. The cgroup is the path of the
// pod's cgroup; it is not used if pods have no cgroups of their own on the node.
func (p *Pod) SandboxConfig(attempt uint32, cgroup string) *runtimeapi.PodSandboxConfig {
	pod, node := p.Spec, p.Node
	annotations := boundAnnotations(pod)
	config := &runtimeapi.PodSandboxConfig{
		Metadata: &runtimeapi.PodSandboxMetadata{
			Name: pod.Name, Uid: string(pod.UID), Namespace: pod.Namespace, Attempt: attempt,
		},
		LogDirectory: node.PodLogDir(pod.Namespace, pod.Name, string(pod.UID)),
		PortMappings: portMappings(&pod.Spec),
		Labels:       p.labels(pod.Labels, ""),
		Annotations:  p.sandboxAnnotations(annotations, cgroup),
		Linux: &runtimeapi.LinuxPodSandboxConfig{
			SecurityContext: p.sandboxSecurity(),
			Sysctls:         sysctls(&pod.Spec),
			Overhead:        p.overhead(),
			Resources:       p.sandboxResources(),
		},
	}
	config.DnsConfig = p.DNSConfig()
	if node.Cgroups.PerPod {
		config.Linux.CgroupParent = node.Cgroups.CgroupParent(cgroup)
	}
	if !pod.Spec.HostNetwork {
		config.Hostname, _ = p.SandboxHostname()
	}
	return config
}

// boundAnnotations returns a copy of the annotations of a pod. If they and its labels exceed the
// budget, the manifest that kubectl keeps in them is left out: no plugin of the runtime reads it.
// All others stay, since administrators set limits and policies by them; a pod that still exceeds
// the budget is refused (CheckMetadata). The runtime lists the metadata of all sandboxes in one
// message of bounded size, and no pod may keep the agent from knowing what runs.
func boundAnnotations(pod *v1.Pod) map[string]string {
	annotations := make(map[string]string, len(pod.Annotations))
	maps.Copy(annotations, pod.Annotations)
	if metadataBytes(pod.Labels)+metadataBytes(annotations) > budget.SandboxMetadataMax {
		delete(annotations, v1.LastAppliedConfigAnnotation)
	}
	return annotations
}

// CheckMetadata returns an error if the labels and annotations of a pod exceed the budget even
// without the manifest that boundAnnotations leaves out.
func CheckMetadata(pod *v1.Pod) error {
	bytes := metadataBytes(pod.Labels) + metadataBytes(pod.Annotations)
	if manifest, exists := pod.Annotations[v1.LastAppliedConfigAnnotation]; exists {
		bytes -= len(v1.LastAppliedConfigAnnotation) + len(manifest)
	}
	if bytes <= budget.SandboxMetadataMax {
		return nil
	}
	return budget.SandboxMetadata.Errorf("the labels and annotations of the pod, without %s, take %d "+
		"bytes, and one pod may have %d", v1.LastAppliedConfigAnnotation, bytes,
		budget.SandboxMetadataMax)
}

// CheckAllocation returns an error if the agent's own annotation of the resources and host ports of
// a pod, which is not part of its metadata, exceeds the budget.
func CheckAllocation(pod *v1.Pod) error {
	if hasSmallAllocation(&pod.Spec) {
		return nil // most pods: they are checked with each change
	}
	bytes, orMore := admission.LeastAllocation(pod), " or more"
	if bytes <= budget.AllocationMax {
		bytes, orMore = len(admission.EncodeAllocation(pod)), ""
	}
	if bytes <= budget.AllocationMax {
		return nil
	}
	return budget.AllocationBytes.Errorf("the resources and host ports of the pod take %d bytes%s, "+
		"and one pod may have %d", bytes, orMore, budget.AllocationMax)
}

// hasSmallAllocation reports whether the allocation of a pod is within the budget, whatever its
// amounts and addresses are.
func hasSmallAllocation(spec *v1.PodSpec) bool {
	const resourceBytes, portBytes, othersBytes = 40, 150, 100 // beside the names of resources
	ports, resources := 0, len(spec.Overhead)
	if spec.Resources != nil {
		resources += len(spec.Resources.Requests)
	}
	for _, list := range [][]v1.Container{spec.InitContainers, spec.Containers} {
		for i := range list {
			ports += len(list[i].Ports)
			resources += len(list[i].Resources.Requests)
		}
	}
	return othersBytes+budget.ResourceNameBytes(spec)+resources*resourceBytes+ports*portBytes <=
		budget.AllocationMax
}

func metadataBytes(metadata map[string]string) int {
	n := 0
	for key, value := range metadata { //ordered: a sum
		n += len(key) + len(value)
	}
	return n
}

// sandboxAnnotations adds the agent's own annotations, by which a later incarnation of the agent
// knows facts that it cannot find elsewhere, to those of the pod. A pod cannot set the agent's own
// annotations.
func (p *Pod) sandboxAnnotations(annotations map[string]string, cgroup string) map[string]string {
	delete(annotations, pleg.AnnotationCgroup)
	delete(annotations, pleg.AnnotationUserNamespace)
	delete(annotations, pleg.AnnotationAllocation)
	if allocation := admission.EncodeAllocation(p.Spec); allocation != "" {
		annotations[pleg.AnnotationAllocation] = allocation
	}
	if p.Node.Cgroups.PerPod {
		annotations[pleg.AnnotationCgroup] = cgroup
	}
	if !p.IDs.IsEmpty() {
		annotations[pleg.AnnotationUserNamespace] = p.IDs.String()
	}
	return annotations
}

// labels returns the given labels and those by which a container or sandbox is found to be the
// pod's. A sandbox has no container name.
func (p *Pod) labels(own map[string]string, container string) map[string]string {
	labels := make(map[string]string, len(own)+4)
	maps.Copy(labels, own)
	labels[pleg.LabelPodName] = p.Spec.Name
	labels[pleg.LabelPodNamespace] = p.Spec.Namespace
	labels[pleg.LabelPodUID] = string(p.Spec.UID)
	if container != "" {
		labels[pleg.LabelContainer] = container
	}
	return labels
}

// portMappings returns the host ports of the app containers. With hostNetwork there are none: every
// port is the host's already.
func portMappings(spec *v1.PodSpec) []*runtimeapi.PortMapping {
	if spec.HostNetwork {
		return nil
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

// containerNamespaces returns the namespaces of a container. An ephemeral container with a target
// has the target's processes (kubectl debug --target), unless all containers of the pod have the
// same ones anyhow.
func (p *Pod) containerNamespaces() *runtimeapi.NamespaceOption {
	option := p.namespaces()
	if p.TargetID != "" && option.Pid == runtimeapi.NamespaceMode_CONTAINER {
		option.Pid, option.TargetId = runtimeapi.NamespaceMode_TARGET, p.TargetID
	}
	return option
}

// namespaces returns which namespaces the sandbox and the containers have.
func (p *Pod) namespaces() *runtimeapi.NamespaceOption {
	spec := &p.Spec.Spec
	option := &runtimeapi.NamespaceOption{
		Pid: runtimeapi.NamespaceMode_CONTAINER, UsernsOptions: p.IDs.UserNamespace(),
	}
	switch {
	case spec.HostPID:
		option.Pid = runtimeapi.NamespaceMode_NODE
	case isTrue(spec.ShareProcessNamespace):
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
