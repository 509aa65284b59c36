package sim

import (
	"encoding/json"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// listens are the ports that the processes of a container listen on: those that its manifest
// names, be it only in a probe or a hook. Who asks for another is refused, whatever else runs in
// the pod.
func (p *PlanPod) listens(container string) []int32 {
	ports := []int32{}
	c := p.container(container)
	if c == nil {
		return ports
	}
	named := map[string]int32{}
	for _, port := range c.Ports {
		ports = append(ports, port.ContainerPort)
		named[port.Name] = port.ContainerPort
	}
	add := func(port intstr.IntOrString) {
		if number, is := named[port.StrVal]; is && port.Type == intstr.String {
			ports = append(ports, number)
			return
		}
		ports = append(ports, int32(port.IntValue()))
	}
	for _, h := range c.handlers() {
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

// container is a container as the manifest has it.
type container v1.Container

func (p *PlanPod) container(name string) *container {
	for _, fields := range containerFields(p.Manifest) {
		if fields["name"] != name {
			continue
		}
		data, err := json.Marshal(fields)
		c := &container{}
		if err == nil {
			err = json.Unmarshal(data, c)
		}
		if err != nil {
			panic("sim: a container cannot be read: " + err.Error()) // Validate has read it
		}
		return c
	}
	return nil
}

// handlers are what the container's probes and hooks ask of it.
func (c *container) handlers() []v1.ProbeHandler {
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
