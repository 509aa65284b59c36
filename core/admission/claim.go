package admission

import (
	"encoding/json"

	v1 "k8s.io/api/core/v1"
	podresources "k8s.io/component-helpers/resource"
)

// Claim is what a pod takes of the node, as text that is kept with what runs of it: an agent that
// does not know the pod yet, or never will, still has to leave it its room. Empty: only a place.
func Claim(pod *v1.Pod) string {
	c := v1.Container{Resources: v1.ResourceRequirements{
		Requests: podresources.PodRequests(pod, podresources.PodResourcesOptions{})}}
	for _, p := range hostPorts(pod) {
		c.Ports = append(c.Ports, v1.ContainerPort{HostIP: p.ip, HostPort: p.port,
			Protocol: v1.Protocol(p.protocol)})
	}
	if len(c.Resources.Requests)+len(c.Ports) == 0 {
		return ""
	}
	data, err := json.Marshal(&c)
	if err != nil {
		panic("admission: a claim cannot be written: " + err.Error())
	}
	return string(data)
}

// Claimed is a pod that takes as much as a claim says. What cannot be read takes a place.
func Claimed(claim string) *v1.Pod {
	var c v1.Container
	if json.Unmarshal([]byte(claim), &c) != nil {
		c = v1.Container{}
	}
	return &v1.Pod{Spec: v1.PodSpec{Containers: []v1.Container{c}}}
}
