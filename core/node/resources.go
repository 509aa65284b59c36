package node

import (
	"strconv"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	kubeletconfig "k8s.io/kubelet/config/v1beta1"
	"k8s.io/utils/cpuset"

	"seedlet.dev/core/document"
	"seedlet.dev/world"
)

// Reserve is what the node keeps from pods.
type Reserve struct {
	Amounts v1.ResourceList `json:"amounts,omitempty"` // for the system and for the agents
	// Memory and Storage are the hard thresholds of eviction, amounts or percentages: pods would
	// not be left in peace with what is below them.
	Memory  string `json:"memory,omitempty"`
	Storage string `json:"storage,omitempty"`
}

// ReserveOf is what a configuration reserves. CPUs that are reserved by number replace what is
// reserved of CPU otherwise.
func ReserveOf(c *kubeletconfig.KubeletConfiguration) Reserve {
	r := Reserve{Amounts: v1.ResourceList{}, Memory: c.EvictionHard["memory.available"],
		Storage: c.EvictionHard["nodefs.available"]}
	for _, amounts := range []map[string]string{c.SystemReserved, c.KubeReserved} {
		for name, text := range amounts { //ordered: sums do not depend on the order
			q, err := document.ParseQuantity(text)
			if err != nil {
				continue // the configuration was validated
			}
			sum := r.Amounts[v1.ResourceName(name)]
			sum.Add(q)
			r.Amounts[v1.ResourceName(name)] = sum
		}
	}
	if cpus, err := cpuset.Parse(c.ReservedSystemCPUs); err == nil && cpus.Size() > 0 {
		r.Amounts[v1.ResourceCPU] = *resource.NewQuantity(int64(cpus.Size()), resource.DecimalSI)
	}
	return r
}

// of is what is kept of one resource.
func (r *Reserve) of(name v1.ResourceName, capacity resource.Quantity) resource.Quantity {
	kept := r.Amounts[name].DeepCopy()
	switch name {
	case v1.ResourceMemory:
		kept.Add(threshold(r.Memory, capacity))
	case v1.ResourceEphemeralStorage:
		kept.Add(threshold(r.Storage, capacity))
	}
	return kept
}

// threshold is how much a threshold of eviction is. The kubelet takes 0% and 100% for none, and
// calculates with 32 bits; the same amount is expected here.
func threshold(text string, capacity resource.Quantity) resource.Quantity {
	percent, isPercent := strings.CutSuffix(text, "%")
	if !isPercent {
		q, err := document.ParseQuantity(text)
		if err != nil {
			return resource.Quantity{} // none
		}
		return q
	}
	p, err := strconv.ParseFloat(percent, 32)
	if err != nil || p <= 0 || p >= 100 {
		return resource.Quantity{}
	}
	share := float64(float32(p) / 100)
	return *resource.NewQuantity(int64(float64(capacity.Value())*share), resource.BinarySI)
}

const hugePagesPrefix = "hugepages-"

// capacity is what the machine has.
func (s *Settings) capacity(boot *world.Boot) v1.ResourceList {
	c := v1.ResourceList{
		v1.ResourceCPU:    *resource.NewMilliQuantity(int64(boot.CPUs)*1000, resource.DecimalSI),
		v1.ResourceMemory: *resource.NewQuantity(boot.MemoryBytes, resource.BinarySI),
		v1.ResourcePods:   *resource.NewQuantity(int64(s.PodsOn(boot.CPUs)), resource.DecimalSI),
	}
	if bytes := boot.Machine.RootDirBytes; s.LocalStorage && bytes > 0 {
		c[v1.ResourceEphemeralStorage] = *resource.NewQuantity(bytes, resource.BinarySI)
	}
	for _, pages := range boot.Machine.HugePages {
		size := resource.NewQuantity(pages.SizeBytes, resource.BinarySI)
		c[v1.ResourceName(hugePagesPrefix+size.String())] =
			*resource.NewQuantity(pages.SizeBytes*pages.Count, resource.BinarySI)
	}
	return c
}

// allocatable is what pods may have of a capacity. Huge pages are taken out of the memory.
func (r *Reserve) allocatable(capacity v1.ResourceList) v1.ResourceList {
	a := v1.ResourceList{}
	for name, all := range capacity { //ordered: each by itself
		a[name] = less(all, r.of(name, all))
	}
	for name, pages := range capacity { //ordered: sums do not depend on the order
		if memory, has := a[v1.ResourceMemory]; has && isHugePages(name) {
			a[v1.ResourceMemory] = less(memory, pages)
		}
	}
	return a
}

// less is the difference of two amounts, and not below zero.
func less(a, b resource.Quantity) resource.Quantity {
	rest := a.DeepCopy()
	if rest.Sub(b); rest.Sign() < 0 {
		rest.Set(0)
	}
	return rest
}

func isHugePages(name v1.ResourceName) bool {
	return strings.HasPrefix(string(name), hugePagesPrefix)
}

// isExtended says whether somebody outside Kubernetes has named a resource, as example.com/gpu.
func isExtended(name v1.ResourceName) bool {
	return strings.Contains(string(name), "/") &&
		!strings.Contains(string(name), v1.ResourceDefaultNamespacePrefix) &&
		!strings.HasPrefix(string(name), v1.DefaultResourceRequestsPrefix)
}

// resources are the capacity and the allocatable of the node. What others have put there stays,
// but for huge pages of sizes that the kernel no longer has. With reset, extended resources are
// there again only once somebody says so: the devices may not have survived (no device plugin
// has registered yet).
func (s *Settings) resources(boot *world.Boot, is *v1.NodeStatus, reset bool) (
	capacity, allocatable v1.ResourceList) {
	capacity = s.capacity(boot)
	for name, amount := range is.Capacity { //ordered: each by itself
		_, own := capacity[name]
		switch {
		case own || isHugePages(name):
		case reset && isExtended(name):
			capacity[name] = *resource.NewQuantity(0, resource.DecimalSI)
		default:
			capacity[name] = amount
		}
	}
	return capacity, s.Reserve.allocatable(capacity)
}

// Allocatable is what pods may have of the node.
func (n *Node) Allocatable(boot *world.Boot) v1.ResourceList {
	is := &v1.NodeStatus{}
	if n.Object != nil {
		is = &n.Object.Status
	}
	_, allocatable := n.Settings.resources(boot, is, false)
	return allocatable
}
