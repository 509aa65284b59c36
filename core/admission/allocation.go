package admission

import (
	"encoding/json"

	v1 "k8s.io/api/core/v1"
	podresources "k8s.io/component-helpers/resource"

	"seedlet.dev/core/document"
)

// EncodeAllocation returns the resources and host ports that a pod uses on the node, as the text of
// an annotation of its sandbox. An agent that does not know the pod's spec, or not yet, counts the
// pod by this text. The text is empty for a pod that requests no resources and no host ports.
func EncodeAllocation(pod *v1.Pod) string {
	c := v1.Container{Resources: v1.ResourceRequirements{
		Requests: podresources.PodRequests(pod, podresources.PodResourcesOptions{})}}
	for _, p := range hostPorts(pod) {
		port := v1.ContainerPort{HostPort: p.port}
		if p.ip != allAddresses {
			port.HostIP = p.ip
		}
		if protocol := v1.Protocol(p.protocol); protocol != v1.ProtocolTCP {
			port.Protocol = protocol
		}
		c.Ports = append(c.Ports, port)
	}
	if len(c.Resources.Requests)+len(c.Ports) == 0 {
		return ""
	}
	data, err := json.Marshal(&c)
	if err != nil {
		panic("admission: an allocation cannot be encoded: " + err.Error())
	}
	return string(data)
}

// LeastAllocation returns how many bytes EncodeAllocation returns for a pod at least, by the number
// of its host ports, without encoding them: a pod may name thousands.
func LeastAllocation(pod *v1.Pod) int {
	return len(hostPorts(pod)) * len(`{"hostPort":1,"containerPort":0},`)
}

// DecodeAllocation returns a pod that uses the resources and host ports in the text. Text that
// cannot be read counts as a pod that requests nothing. The text is not trusted: the annotations of
// a kubelet's sandbox are those of its pod.
func DecodeAllocation(text string) *v1.Pod {
	var c v1.Container
	if _, err := document.Decode([]byte(text), &c); err != nil {
		c = v1.Container{}
	}
	return &v1.Pod{Spec: v1.PodSpec{Containers: []v1.Container{c}}}
}
