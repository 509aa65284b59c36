package node

import (
	"fmt"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	kubeletconfig "k8s.io/kubelet/config/v1beta1"
	"k8s.io/utils/cpuset"

	"seedlet.dev/core/config"
	"seedlet.dev/core/document"
	"seedlet.dev/core/eviction"
	"seedlet.dev/world"
)

// Reserved are the resources that the node reserves from pods.
type Reserved struct {
	Amounts v1.ResourceList `json:"amounts,omitempty"` // systemReserved and kubeReserved
	// Memory and Storage are the hard eviction thresholds, quantities or percentages: below them pods
	// would be evicted.
	Memory  string `json:"memory,omitempty"`
	Storage string `json:"storage,omitempty"`
	// LimitsPods reports whether the cgroup of all pods is limited to what is not reserved
	// (enforceNodeAllocatable has "pods"). Its limits are the machine's otherwise.
	LimitsPods bool `json:"limitsPods,omitempty"`
}

// ReservedFromConfig returns the resources that a configuration reserves. reservedSystemCPUs
// replaces the other reservations of CPU.
func ReservedFromConfig(c *kubeletconfig.KubeletConfiguration) Reserved {
	r := Reserved{Amounts: v1.ResourceList{}, Memory: c.EvictionHard["memory.available"],
		Storage: c.EvictionHard["nodefs.available"], LimitsPods: config.Enforces(c, config.EnforcePods)}
	for _, amounts := range []map[string]string{c.SystemReserved, c.KubeReserved} {
		for name, text := range amounts { //ordered: sums do not depend on the order
			q, err := document.ParseQuantity(text)
			if err != nil {
				continue // impossible: the configuration was validated
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

// evictionThreshold returns the amount of a resource below which pods would be evicted.
func (r *Reserved) evictionThreshold(name v1.ResourceName,
	capacity resource.Quantity) resource.Quantity {
	switch name {
	case v1.ResourceMemory:
		return eviction.ParseThreshold(r.Memory).Of(capacity.Value())
	case v1.ResourceEphemeralStorage:
		return eviction.ParseThreshold(r.Storage).Of(capacity.Value())
	}
	return resource.Quantity{}
}

const hugePagesPrefix = "hugepages-"

// capacity returns the resources of the machine.
func (s *Settings) capacity(boot *world.Boot) v1.ResourceList {
	c := v1.ResourceList{
		v1.ResourceCPU:    *resource.NewMilliQuantity(int64(boot.CPUs)*1000, resource.DecimalSI),
		v1.ResourceMemory: *resource.NewQuantity(boot.MemoryBytes, resource.BinarySI),
		v1.ResourcePods:   *resource.NewQuantity(int64(s.PodLimit(boot.CPUs)), resource.DecimalSI),
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

// CheckReserved returns an error that names the resources of which more is reserved than the
// machine has. Upstream: validateNodeAllocatable in pkg/kubelet/cm/node_container_manager_linux.go.
func (s *Settings) CheckReserved(boot *world.Boot) error {
	capacity := s.capacity(boot)
	var problems []string
	for name, all := range capacity { //ordered: sorted below
		reserved := s.Reserved.Amounts[name].DeepCopy()
		reserved.Add(s.Reserved.evictionThreshold(name, all))
		if reserved.Cmp(all) > 0 {
			problems = append(problems, fmt.Sprintf("of %s %s is reserved, and there is %s", name,
				reserved.String(), all.String()))
		}
	}
	if len(problems) == 0 {
		return nil
	}
	slices.Sort(problems)
	return fmt.Errorf("kubeReserved, systemReserved and evictionHard: %s",
		strings.Join(problems, "; "))
}

// divide returns the parts of a capacity that pods may have. Unreserved is what is left beside the
// reserved amounts, and what cgroups enforce. Allocatable is what pods are scheduled by, and less:
// at the eviction thresholds pods are evicted before the kernel enforces anything, and the memory
// of huge pages cannot be had as other memory.
func (r *Reserved) divide(capacity v1.ResourceList) (allocatable, unreserved v1.ResourceList) {
	allocatable, unreserved = v1.ResourceList{}, v1.ResourceList{}
	for name, all := range capacity { //ordered: each by itself
		unreserved[name] = subtract(all, r.Amounts[name])
		allocatable[name] = subtract(unreserved[name], r.evictionThreshold(name, all))
	}
	for name, pages := range capacity { //ordered: sums do not depend on the order
		if memory, exists := allocatable[v1.ResourceMemory]; exists && isHugePages(name) {
			allocatable[v1.ResourceMemory] = subtract(memory, pages)
		}
	}
	return allocatable, unreserved
}

// subtract returns the difference of two amounts, at least zero.
func subtract(a, b resource.Quantity) resource.Quantity {
	rest := a.DeepCopy()
	if rest.Sub(b); rest.Sign() < 0 {
		rest.Set(0)
	}
	return rest
}

func isHugePages(name v1.ResourceName) bool {
	return strings.HasPrefix(string(name), hugePagesPrefix)
}

// isExtendedResource reports whether a resource is named outside of Kubernetes, as example.com/gpu.
func isExtendedResource(name v1.ResourceName) bool {
	return strings.Contains(string(name), "/") &&
		!strings.Contains(string(name), v1.ResourceDefaultNamespacePrefix) &&
		!strings.HasPrefix(string(name), v1.DefaultResourceRequestsPrefix)
}

// resources returns the capacity and allocatable of the node. Resources that others have set stay,
// but for huge pages of sizes that the kernel no longer has. With reset, extended resources are
// zero until their owner sets them again: the devices may not have survived, and no device plugin
// has registered yet.
func (s *Settings) resources(boot *world.Boot, current *v1.NodeStatus, reset bool) (
	capacity, allocatable v1.ResourceList) {
	capacity = s.capacity(boot)
	for name, amount := range current.Capacity { //ordered: each by itself
		_, own := capacity[name]
		switch {
		case own || isHugePages(name):
		case reset && isExtendedResource(name):
			capacity[name] = *resource.NewQuantity(0, resource.DecimalSI)
		default:
			capacity[name] = amount
		}
	}
	allocatable, _ = s.Reserved.divide(capacity)
	return capacity, allocatable
}

// Unreserved returns what is not reserved of the machine's CPU, memory, huge pages and process IDs,
// and the limits of all pods together, which are the same or those of the machine.
func (n *Node) Unreserved(boot *world.Boot) (unreserved, limits v1.ResourceList) {
	capacity := n.Settings.capacity(boot)
	if boot.Machine.PIDsMax > 0 {
		capacity[world.ResourcePIDs] = *resource.NewQuantity(boot.Machine.PIDsMax, resource.DecimalSI)
	}
	_, unreserved = n.Settings.Reserved.divide(capacity)
	if !n.Settings.Reserved.LimitsPods {
		return unreserved, capacity
	}
	return unreserved, unreserved
}

// Allocatable returns the resources that pods may have of the node.
func (n *Node) Allocatable(boot *world.Boot) v1.ResourceList {
	current := &v1.NodeStatus{}
	if n.Object != nil {
		current = &n.Object.Status
	}
	_, allocatable := n.Settings.resources(boot, current, false)
	return allocatable
}
