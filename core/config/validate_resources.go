package config

import (
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	kubeletconfigv1beta1 "k8s.io/kubelet/config/v1beta1"
	"k8s.io/utils/cpuset"

	"seedlet.dev/core/sysctl"
)

// idsPerPodUnit is the number that the IDs of a user namespace must be a multiple of.
const idsPerPodUnit = 65536

// checkResources checks the node's resources and their allocation.
func (v *validator) checkResources() {
	c := v.config
	v.atLeast("maxPods", int64(c.MaxPods), 0)
	v.atLeast("podsPerCore", int64(c.PodsPerCore), 0)
	v.atLeast("maxOpenFiles", c.MaxOpenFiles, 0)
	v.inRange("oomScoreAdj", int64(*c.OOMScoreAdj), -1000, 1000)
	v.inRange("iptablesDropBit", int64(*c.IPTablesDropBit), 0, 31)
	v.inRange("iptablesMasqueradeBit", int64(*c.IPTablesMasqueradeBit), 0, 31)
	v.oneOf("cgroupDriver", c.CgroupDriver, "cgroupfs", "systemd")
	v.oneOf("hairpinMode", c.HairpinMode, kubeletconfigv1beta1.HairpinVeth,
		kubeletconfigv1beta1.PromiscuousBridge, kubeletconfigv1beta1.HairpinNone)
	v.oneOf("memorySwap.swapBehavior", c.MemorySwap.SwapBehavior, "", "NoSwap", "LimitedSwap")
	if c.SystemCgroups != "" && c.CgroupRoot == "" {
		v.add(field.Required(fieldPath("cgroupRoot"), "systemCgroups needs it"))
	}
	period := *c.CPUCFSQuotaPeriod
	v.durationWithin("cpuCFSQuotaPeriod", period, time.Millisecond, time.Second)
	if period.Duration != 100*time.Millisecond &&
		!isGateOn(v.config, gateQuotaPeriod) {
		v.invalid("cpuCFSQuotaPeriod", period.Duration.String(),
			"needs feature gate CustomCPUCFSQuotaPeriod")
	}
	ids := *c.UserNamespaces.IDsPerPod
	if ids <= 0 || ids >= 1<<32 || ids%idsPerPodUnit != 0 {
		v.invalid("userNamespaces.idsPerPod", ids, "must be a multiple of %d below %d",
			idsPerPodUnit, int64(1)<<32)
	}
	v.checkResourceManagers()
	v.checkMemoryQoS()
	v.checkReserved("kubeReserved", c.KubeReserved)
	v.checkReserved("systemReserved", c.SystemReserved)
	v.checkQOSReserved()
	v.checkReservedCPUs()
	v.checkSysctls()
}

// checkSysctls checks the patterns of kernel parameters that pods may set besides the safe ones.
func (v *validator) checkSysctls() {
	for i, pattern := range v.config.AllowedUnsafeSysctls {
		p := fieldPath("allowedUnsafeSysctls").Index(i)
		switch {
		case strings.Contains(strings.TrimSuffix(pattern, "*"), "*"):
			v.add(field.Invalid(p, pattern, "may have an asterisk at its end only"))
		case !sysctl.IsNamespaced(pattern):
			v.add(field.Invalid(p, pattern, "is not known to belong to a pod's own namespaces"))
		}
	}
}

// checkResourceManagers checks the policies of the CPU, memory and topology managers.
func (v *validator) checkResourceManagers() {
	c := v.config
	v.oneOf("cpuManagerPolicy", c.CPUManagerPolicy, "none", "static")
	v.oneOf("memoryManagerPolicy", c.MemoryManagerPolicy,
		kubeletconfigv1beta1.NoneMemoryManagerPolicy, kubeletconfigv1beta1.StaticMemoryManagerPolicy)
	v.oneOf("topologyManagerPolicy", c.TopologyManagerPolicy,
		kubeletconfigv1beta1.NoneTopologyManagerPolicy,
		kubeletconfigv1beta1.BestEffortTopologyManagerPolicy,
		kubeletconfigv1beta1.RestrictedTopologyManagerPolicy,
		kubeletconfigv1beta1.SingleNumaNodeTopologyManagerPolicy)
	v.oneOf("topologyManagerScope", c.TopologyManagerScope,
		kubeletconfigv1beta1.ContainerTopologyManagerScope,
		kubeletconfigv1beta1.PodTopologyManagerScope)
}

func (v *validator) checkMemoryQoS() {
	c := v.config
	if f := *c.MemoryThrottlingFactor; !(f > 0 && f <= 1) {
		v.invalid("memoryThrottlingFactor", f, "must be more than 0 and at most 1")
	}
	tiered := kubeletconfigv1beta1.TieredReservationMemoryReservationPolicy
	v.oneOf("memoryReservationPolicy", string(c.MemoryReservationPolicy),
		string(kubeletconfigv1beta1.NoneMemoryReservationPolicy), string(tiered))
	if c.MemoryReservationPolicy == tiered && !MemoryQoSEnabled(v.config) {
		v.invalid("memoryReservationPolicy", tiered, "needs feature gate MemoryQoS")
	}
}

// checkReserved checks the amounts reserved for the system or for Kubernetes.
func (v *validator) checkReserved(name string, amounts map[string]string) {
	for _, key := range slices.Sorted(maps.Keys(amounts)) {
		switch v1.ResourceName(key) {
		case v1.ResourceCPU, v1.ResourceMemory, v1.ResourceEphemeralStorage, "pid":
			v.quantity(fieldPath(name).Key(key), amounts[key])
		default:
			v.add(field.NotSupported(fieldPath(name), key,
				[]string{"cpu", "memory", "ephemeral-storage", "pid"}))
		}
	}
}

// checkQOSReserved checks the percentages that are reserved for pods of higher classes.
func (v *validator) checkQOSReserved() {
	for _, name := range slices.Sorted(maps.Keys(v.config.QOSReserved)) {
		key, text := fieldPath("qosReserved").Key(name), v.config.QOSReserved[name]
		digits, hasSign := strings.CutSuffix(text, "%")
		percent, err := strconv.ParseInt(digits, 10, 64)
		switch {
		case name != string(v1.ResourceMemory):
			v.add(field.NotSupported(fieldPath("qosReserved"), name, []string{"memory"}))
		case !hasSign || err != nil || percent < 0 || percent > 100:
			v.add(field.Invalid(key, text, "must be a percentage from 0% to 100%"))
		}
	}
}

func (v *validator) checkReservedCPUs() {
	c := v.config
	if c.ReservedSystemCPUs == "" {
		return
	}
	if _, err := cpuset.Parse(c.ReservedSystemCPUs); err != nil {
		v.invalid("reservedSystemCPUs", c.ReservedSystemCPUs, "must be a list of CPUs, as 0-3,8")
	}
	if c.SystemReservedCgroup != "" || c.KubeReservedCgroup != "" {
		v.invalid("reservedSystemCPUs", c.ReservedSystemCPUs,
			"cannot be set together with systemReservedCgroup or kubeReservedCgroup")
	}
}

// checkEnforcement checks enforceNodeAllocatable and the fields that its entries need.
func (v *validator) checkEnforcement() {
	c := v.config
	seen := map[string]bool{}
	for i, entry := range c.EnforceNodeAllocatable {
		p := fieldPath("enforceNodeAllocatable").Index(i)
		if seen[entry] {
			v.add(field.Duplicate(p, entry))
			continue
		}
		seen[entry] = true
		base, compressible := strings.CutSuffix(entry, "-compressible")
		switch {
		case entry == "none" && len(c.EnforceNodeAllocatable) > 1:
			v.add(field.Invalid(p, entry, "must be the only entry"))
		case entry == "none", entry == "pods":
		case base == "system-reserved" && c.SystemReservedCgroup == "":
			v.add(field.Required(fieldPath("systemReservedCgroup"), entry+" needs it"))
		case base == "kube-reserved" && c.KubeReservedCgroup == "":
			v.add(field.Required(fieldPath("kubeReservedCgroup"), entry+" needs it"))
		case base == "system-reserved" && len(c.SystemReserved) == 0:
			v.add(field.Required(fieldPath("systemReserved"), entry+" needs it"))
		case base == "kube-reserved" && len(c.KubeReserved) == 0:
			v.add(field.Required(fieldPath("kubeReserved"), entry+" needs it"))
		case base != "system-reserved" && base != "kube-reserved":
			v.add(field.NotSupported(p, entry, []string{"none", "pods", "system-reserved",
				"system-reserved-compressible", "kube-reserved", "kube-reserved-compressible"}))
		case seen[base] && compressible, seen[base+"-compressible"] && !compressible:
			v.add(field.Invalid(p, entry, "only one of "+base+" and "+base+"-compressible"))
		}
		if entry != "none" && !*c.CgroupsPerQOS {
			v.add(field.Invalid(p, entry, "needs cgroupsPerQOS"))
		}
	}
}

// checkReservedMemory checks the memory reserved by NUMA node.
func (v *validator) checkReservedMemory() {
	seen := map[string]bool{}
	for i, reservation := range v.config.ReservedMemory {
		entry := fieldPath("reservedMemory").Index(i)
		if len(reservation.Limits) == 0 {
			v.add(field.Required(entry.Child("limits"), "a reservation has at least one limit"))
		}
		for _, name := range slices.Sorted(maps.Keys(reservation.Limits)) {
			q, limit := reservation.Limits[name], entry.Child("limits").Key(string(name))
			key := strconv.Itoa(int(reservation.NumaNode)) + "/" + string(name)
			if seen[key] {
				v.add(field.Duplicate(limit, key))
			}
			seen[key] = true
			if name != v1.ResourceMemory && !strings.HasPrefix(string(name), "hugepages-") {
				v.add(field.NotSupported(limit, name, []string{"memory", "hugepages-SIZE"}))
			}
			if q.Sign() <= 0 {
				v.add(field.Invalid(limit, q.String(), "must be more than 0"))
			}
		}
	}
}
