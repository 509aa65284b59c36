package plan

import (
	"encoding/json"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// ListeningPorts returns the ports that the processes of a container listen on: every port that the
// container's part of the manifest names, even if only in a probe or a hook. A connection to any
// other port is refused, whatever else runs in the pod.
func (p *Pod) ListeningPorts(container string) []int32 {
	ports := []int32{}
	c := p.decodeContainer(container)
	if c == nil {
		return ports
	}
	named := map[string]int32{}
	for _, port := range c.Ports {
		ports = append(ports, port.ContainerPort)
		named[port.Name] = port.ContainerPort
	}
	add := func(port intstr.IntOrString) {
		if number, ok := named[port.StrVal]; ok && port.Type == intstr.String {
			ports = append(ports, number)
			return
		}
		ports = append(ports, int32(port.IntValue()))
	}
	for _, h := range probeHandlers(c) {
		switch {
		case h.HTTPGet != nil && h.HTTPGet.Host == "":
			add(h.HTTPGet.Port)
		case h.TCPSocket != nil && h.TCPSocket.Host == "":
			add(h.TCPSocket.Port)
		case h.GRPC != nil:
			ports = append(ports, h.GRPC.Port)
		}
	}
	return ports
}

// decodeContainer returns a container of the manifest; nil if the manifest has none of this name.
func (p *Pod) decodeContainer(name string) *v1.Container {
	for _, fields := range containerFields(p.Manifest) {
		if fields["name"] != name {
			continue
		}
		data, err := json.Marshal(fields)
		c := &v1.Container{}
		if err == nil {
			err = json.Unmarshal(data, c)
		}
		if err != nil {
			panic("plan: cannot decode a container: " + err.Error()) // Validate has decoded it
		}
		return c
	}
	return nil
}

// probeHandlers returns the handlers of the probes and hooks of a container.
func probeHandlers(c *v1.Container) []v1.ProbeHandler {
	var all []v1.ProbeHandler
	for _, probe := range []*v1.Probe{c.StartupProbe, c.LivenessProbe, c.ReadinessProbe} {
		if probe != nil {
			all = append(all, probe.ProbeHandler)
		}
	}
	if c.Lifecycle == nil {
		return all
	}
	for _, hook := range []*v1.LifecycleHandler{c.Lifecycle.PostStart, c.Lifecycle.PreStop} {
		if hook != nil {
			all = append(all, v1.ProbeHandler{HTTPGet: hook.HTTPGet, TCPSocket: hook.TCPSocket})
		}
	}
	return all
}
