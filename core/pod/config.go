package pod

import (
	"encoding/json"
	"fmt"
	"maps"
	"strconv"
	"time"

	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

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
		Annotations:  maps.Clone(p.Spec.Annotations),
		Linux: &runtimeapi.LinuxPodSandboxConfig{
			SecurityContext: p.sandboxSecurity(),
			Sysctls:         sysctls(spec),
		},
	}
	config.DnsConfig, _ = p.dnsConfig(node)
	if !spec.HostNetwork {
		config.Hostname, _ = p.sandboxHostname(node)
	}
	return config
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

func namespaces(spec *v1.PodSpec) *runtimeapi.NamespaceOption {
	option := &runtimeapi.NamespaceOption{Pid: runtimeapi.NamespaceMode_CONTAINER}
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
	node *Node) *runtimeapi.ContainerConfig {
	env, err := p.environment(want, node)
	var mounts []*runtimeapi.Mount
	if err == nil {
		mounts, err = p.mounts(want, env, from, node)
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
	return &runtimeapi.ContainerConfig{
		Metadata:    &runtimeapi.ContainerMetadata{Name: want.Name, Attempt: run.Attempt},
		Image:       imageSpec(from[""], want.Image),
		Command:     expandAll(want.Command, env),
		Args:        expandAll(want.Args, env),
		WorkingDir:  want.WorkingDir,
		Envs:        env,
		Mounts:      append(mounts, p.messageMount(want, run, node)...),
		Labels:      p.labels(nil, want.Name),
		Annotations: annotations,
		LogPath:     fmt.Sprintf("%s/%d.log", want.Name, run.Restarts),
		StopSignal:  stopSignal(want),
		Stdin:       want.Stdin,
		StdinOnce:   want.StdinOnce,
		Tty:         want.TTY,
		Linux: &runtimeapi.LinuxContainerConfig{
			Resources:       p.resources(want, node),
			SecurityContext: p.containerSecurity(want, from[""].User, node),
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

// resources translates requests and limits: shares = max(2, milli*1024/1000), quota milli*100 µs
// in each 100 ms but at least 1 ms.
func (p *Pod) resources(want *v1.Container, node *Node) *runtimeapi.LinuxContainerResources {
	r := &runtimeapi.LinuxContainerResources{
		CpuPeriod:   100_000,
		CpuShares:   max(2, want.Resources.Requests.Cpu().MilliValue()*1024/1000),
		OomScoreAdj: p.oomScoreAdj(want, node),
	}
	if limit := want.Resources.Limits.Cpu().MilliValue(); limit > 0 {
		r.CpuQuota = max(1000, limit*100)
	}
	r.MemoryLimitInBytes = want.Resources.Limits.Memory().Value()
	return r
}

// oomScoreAdj is the kubelet's rule: the more of its request's share of the machine a burstable
// container leaves unused, the later it is killed.
func (p *Pod) oomScoreAdj(want *v1.Container, node *Node) int64 {
	switch qos(p.Spec) {
	case v1.PodQOSGuaranteed:
		return -997
	case v1.PodQOSBestEffort:
		return 1000
	}
	if node.MemoryBytes <= 0 {
		return 999
	}
	adj := 1000 - 1000*want.Resources.Requests.Memory().Value()/node.MemoryBytes
	return min(999, max(3, adj))
}
