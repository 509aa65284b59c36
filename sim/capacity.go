package sim

import (
	"cmp"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kubeletconfig "k8s.io/kubelet/config/v1beta1"

	"seedlet.dev/sim/host"
)

// What a machine has that no scenario says anything of.
const (
	cpusDefault   = 16
	memoryDefault = 16 << 30
)

func (n *Node) cpus() int { return cmp.Or(n.CPUs, cpusDefault) }

func (n *Node) memoryBytes() int64 {
	if n.Memory == nil {
		return memoryDefault
	}
	return n.Memory.Value()
}

// allocatable is what the pods of the node may have, for the judges: what the machine has but for
// what is reserved, huge pages, and what eviction would take back.
func (n *Node) allocatable(c *kubeletconfig.KubeletConfiguration) v1.ResourceList {
	cpu := resource.NewQuantity(int64(n.cpus()), resource.DecimalSI)
	memory := resource.NewQuantity(n.memoryBytes(), resource.BinarySI)
	for _, reserved := range []map[string]string{c.SystemReserved, c.KubeReserved} {
		take(cpu, reserved["cpu"])
		take(memory, reserved["memory"])
	}
	take(memory, c.EvictionHard["memory.available"])
	for _, pages := range host.Machine().HugePages {
		memory.Sub(*resource.NewQuantity(pages.SizeBytes*pages.Count, resource.BinarySI))
	}
	return v1.ResourceList{
		v1.ResourceCPU: *cpu, v1.ResourceMemory: *memory,
		v1.ResourcePods: *resource.NewQuantity(int64(c.MaxPods), resource.DecimalSI),
	}
}

// registers is the Node as the agent makes it, for the judges; nil if there is no API server.
func (n *Node) registers(c *kubeletconfig.KubeletConfiguration) *v1.Node {
	if !n.API {
		return nil
	}
	m := host.Machine()
	return &v1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: nodeName, Labels: map[string]string{
			v1.LabelHostname: nodeName,
			v1.LabelOSStable: m.OperatingSystem, v1.LabelArchStable: m.Architecture,
		}},
		Spec: v1.NodeSpec{Taints: c.RegisterWithTaints},
	}
}

// take takes an amount, if it is one.
func take(from *resource.Quantity, text string) {
	if q, err := resource.ParseQuantity(text); err == nil {
		from.Sub(q)
	}
}
