package sim

import (
	"fmt"
	"iter"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kubeletconfig "k8s.io/kubelet/config/v1beta1"

	"seedlet.dev/core/config"
	corelogs "seedlet.dev/core/logs"
	"seedlet.dev/sim/disk"
	"seedlet.dev/sim/host"
	"seedlet.dev/sim/oracle"
	"seedlet.dev/sim/plan"
	"seedlet.dev/sim/truth"
	"seedlet.dev/world"
)

// newOracles returns the oracles of the run, and gives them what they know about the node.
func (r *run) newOracles(kubelet *kubeletconfig.KubeletConfiguration,
	images imageRegistry) *oracle.Set {
	node, rotation := &r.plan.Node, corelogs.NewRotation(kubelet)
	return oracle.NewSet(oracle.Options{
		NodeName: plan.NodeName, PodsDir: plan.RootDir + "/pods", LogsDir: kubelet.PodLogsDir,
		BackoffMax: config.RestartBackoffMax(kubelet), EventedPLEG: kubelet.FeatureGates["EventedPLEG"],
		LogLinksDir: corelogs.LinksDirDefault, LogBytesMax: rotation.BytesMax,
		LogFilesMax: rotation.FilesMax, LogMonitorInterval: rotation.Period, ListFiles: r.files,
		DiskUsage: r.usage,
		IsUnmeasurable: func(path string) bool {
			return r.disk.Names(path) > disk.MeasurableNames
		},
		IsHostile: hostilePods(r.plan), HungDrivers: hungDrivers(r.plan),
		LastFault:     r.excuses.LastFault,
		FaultPossible: r.excuses.MayHaveFailed,
		IsCalm: func() bool {
			return !r.troubled && !r.excuses.HasWindow(r.agenda.Now())
		},
		ImageGC:      r.oracleImageGC(kubelet),
		AbsentImages: slices.Sorted(maps.Keys(images.planned)),
		UnusedImages: unusedImages(r.plan), ImagesApart: node.ImageBytes > 0,
		LayersApart: node.ImageBytes > 0 && !node.LayersOnRoot, LayersPath: layersPath(node),
		MemoryBytes: node.MemoryBytes(), Pressure: oraclePressure(node, kubelet),
		NodeUsage:       func() world.NodeMeasured { return r.host.Measure() },
		ContainerMemory: func(id string) int64 { return r.runtime.ContainerMemory(id) },
		Exists:          func(path string) bool { return r.disk.Exists(path) },
		DeviceAt: func(path string) (string, bool) {
			at, isMounted := r.disk.MountedAt(path)
			if at.FSType != disk.NodeFSType { // a device of the node itself
				return at.Root, isMounted
			}
			return at.Source, isMounted
		},
		DeviceBytes: disk.DeviceBytes,
		Filesystem:  r.filesystem,
		DNS: oracle.DNS{Servers: kubelet.ClusterDNS, Domain: kubelet.ClusterDomain,
			Resolv: host.ResolvConf},
		Cgroups: oracleCgroups(kubelet), Tiers: oracleTiers(node, kubelet),
		SystemCgroups: host.SystemCgroups,
		ImageUser:     images.userOf, HasAPIServer: node.API,
		SELinux: node.SELinux, LabelsAllModes: kubelet.FeatureGates["SELinuxMount"],
		NodeAddresses: []string{plan.NodeIP}, Node: r.nodeFacts(kubelet),
		PullUsers: r.plan.PrivateImages, PullPolicy: pullPolicy(kubelet),
		UserAnnotation: userAnnotation(node), NodePulls: nodePulls(node, r.plan.PrivateImages),
		ClockSkew: r.clocks.runtimeSkew, DateOffset: r.clocks.dateOffset, ReadFile: r.read,
		GroupOf:         r.groupOf,
		Allocatable:     allocatable(node, kubelet),
		ChangeDetection: changeDetection(kubelet),
		RegisteredNode:  registeredNode(node, kubelet),
		Shutdown:        oracleShutdown(kubelet),
		Periods: oracle.Periods{
			LeaseDuration: time.Duration(kubelet.NodeLeaseDurationSeconds) * time.Second,
			NodeCheck:     kubelet.NodeStatusUpdateFrequency.Duration,
			NodeReport:    kubelet.NodeStatusReportFrequency.Duration,
		},
	})
}

// pullPolicy returns which images on the node have to be verified; empty: none.
func pullPolicy(
	kubelet *kubeletconfig.KubeletConfiguration) kubeletconfig.ImagePullCredentialsVerificationPolicy {
	if on, isSet := kubelet.FeatureGates["KubeletEnsureSecretPulledImages"]; isSet && !on {
		return ""
	}
	return kubelet.ImagePullCredentialsVerificationPolicy
}

// oracleShutdown returns how the agent has to end pods when the machine shuts down.
func oracleShutdown(kubelet *kubeletconfig.KubeletConfiguration) *oracle.Shutdown {
	if len(kubelet.ShutdownGracePeriodByPodPriority) > 0 {
		s := &oracle.Shutdown{}
		for _, g := range kubelet.ShutdownGracePeriodByPodPriority {
			s.Groups = append(s.Groups, oracle.ShutdownGroup{Priority: g.Priority,
				Period: time.Duration(g.ShutdownGracePeriodSeconds) * time.Second})
		}
		return s
	}
	all := kubelet.ShutdownGracePeriod.Duration
	critical := kubelet.ShutdownGracePeriodCriticalPods.Duration
	if all == 0 {
		return nil
	}
	return &oracle.Shutdown{Groups: []oracle.ShutdownGroup{{Period: all - critical},
		{Priority: 2_000_000_000, Period: critical}}}
}

// shutdownPriorities returns from which priority on each group of a shutdown is.
func shutdownPriorities(kubelet *kubeletconfig.KubeletConfiguration) []int32 {
	var priorities []int32
	if s := oracleShutdown(kubelet); s != nil {
		for _, g := range s.Groups {
			priorities = append(priorities, g.Priority)
		}
	}
	return priorities
}

// changeDetection returns how the agent learns of changes of ConfigMaps and Secrets.
func changeDetection(kubelet *kubeletconfig.KubeletConfiguration) oracle.ChangeDetection {
	d := oracle.ChangeDetection{SyncPeriod: kubelet.SyncFrequency.Duration}
	switch kubelet.ConfigMapAndSecretChangeDetectionStrategy {
	case kubeletconfig.GetChangeDetectionStrategy:
		d.Reads = true
	case kubeletconfig.TTLCacheChangeDetectionStrategy:
		d.Reads, d.Cached = true, true
	}
	return d
}

// hostilePods returns which pods are hostile, by name; nil if nothing harms the other pods of the
// node. A pod over which the agent panics has to run in the end, so it is none. One that can never
// be made counts as hostile: it does not have to run, the others have to as if it were not there.
func hostilePods(spec *plan.Spec) func(name string) bool {
	var hostile map[string]bool
	for i := range spec.Pods {
		if p := &spec.Pods[i]; p.Hostile != nil || p.Panics > 0 || spec.IsForever(p.Name) {
			if hostile == nil {
				hostile = map[string]bool{}
			}
			name := plan.ManifestName(p.Manifest)
			hostile[name] = p.Hostile != nil || spec.IsForever(p.Name)
			hostile[name+"-"+plan.NodeName] = !p.API && hostile[name] // of a static pod
		}
	}
	if hostile == nil {
		return nil
	}
	return func(name string) bool { return hostile[name] }
}

// hungDrivers returns the CSI drivers that answer no call for a volume before the faults heal.
func hungDrivers(spec *plan.Spec) (names []string) {
	for _, h := range spec.Happenings {
		if h.Plugin != nil && h.Plugin.Driver != nil && h.Plugin.Driver.Hangs < 0 {
			names = append(names, h.Plugin.Name)
		}
	}
	return names
}

// statusRoom returns how many bytes the status of a pod may have, by its name.
func statusRoom(spec *plan.Spec) func(name string) int {
	room := map[string]int{}
	for i := range spec.Pods {
		if h := spec.Pods[i].Hostile; h != nil {
			room[plan.ManifestName(spec.Pods[i].Manifest)] = h.StatusRoom
		}
	}
	return func(name string) int { return room[name] }
}

// checkOracles ends the run at the first violation.
func (r *run) checkOracles() {
	if violations := r.oracles.Violations(); len(violations) > 0 && r.failure == nil {
		r.fail(violations[0].Oracle, violations[0].Message)
	}
}

// files returns the entries of a directory.
func (r *run) files(dir string) iter.Seq[oracle.File] {
	return func(yield func(oracle.File) bool) {
		for e := range r.disk.Entries(dir) {
			if !yield(oracle.File(e)) {
				return
			}
		}
	}
}

func (r *run) read(path string) ([]byte, bool) { return r.disk.Read(path) }

func (r *run) groupOf(path string) (gid int64, exists bool) {
	if !r.disk.Exists(path) {
		return 0, false
	}
	_, gid = r.disk.ModeAndGroup(path)
	return gid, true
}

func (r *run) usage(path string) int64 { return r.disk.Usage(path) }

func oracleCgroups(kubelet *kubeletconfig.KubeletConfiguration) oracle.Cgroups {
	c := oracle.Cgroups{PerPod: *kubelet.CgroupsPerQOS, PidsMax: max(0, *kubelet.PodPidsLimit)}
	for _, pages := range host.Machine().HugePages {
		c.PageSizes = append(c.PageSizes, pages.SizeBytes)
	}
	return c
}

// oracleTiers returns what the cgroups above those of the pods have to enforce.
func oracleTiers(n *plan.Node, c *kubeletconfig.KubeletConfiguration) *oracle.Tiers {
	m := host.Machine()
	cpu := resource.NewQuantity(int64(n.CPUCount()), resource.DecimalSI)
	memory := resource.NewQuantity(n.MemoryBytes(), resource.BinarySI)
	pids := resource.NewQuantity(m.PIDsMax, resource.DecimalSI)
	for _, reserved := range []map[string]string{c.SystemReserved, c.KubeReserved} {
		subtract(cpu, reserved["cpu"])
		subtract(memory, reserved["memory"])
		subtract(pids, reserved["pid"])
	}
	t := &oracle.Tiers{
		CPU: cpu.MilliValue(), MemoryBytes: memory.Value(), PidsMax: pids.Value(),
		UnreservedMemory: memory.Value(), MachineMemory: n.MemoryBytes(), SwapBytes: m.SwapBytes,
		LimitedSwap: c.MemorySwap.SwapBehavior == "LimitedSwap",
		MemoryQoS:   c.FeatureGates["MemoryQoS"], ThrottlingFactor: *c.MemoryThrottlingFactor,
		ReservesMemory: c.MemoryReservationPolicy == "TieredReservation",
		NoQuota:        !*c.CPUCFSQuota,
	}
	if c.FeatureGates["QOSReserved"] {
		percent, _ := strings.CutSuffix(c.QOSReserved["memory"], "%")
		t.MemoryPercent, _ = strconv.ParseInt(percent, 10, 64) // the configuration was validated
	}
	if !slices.Contains(c.EnforceNodeAllocatable, "pods") {
		t.CPU, t.MemoryBytes, t.PidsMax = int64(n.CPUCount())*1000, n.MemoryBytes(), m.PIDsMax
	}
	t.Reserved = reservedCgroups(c)
	t.HugePages = fmt.Sprintf("2MB %d, 1GB 0", m.HugePages[0].SizeBytes*m.HugePages[0].Count)
	return t
}

// reservedCgroups returns what the agent has to set for the cgroups of others: what is reserved for
// them, or the weight alone.
func reservedCgroups(c *kubeletconfig.KubeletConfiguration) map[string]truth.Limits {
	all := map[string]truth.Limits{}
	for _, r := range []struct {
		cgroup, key string
		amounts     map[string]string
	}{
		{c.SystemReservedCgroup, "system-reserved", c.SystemReserved},
		{c.KubeReservedCgroup, "kube-reserved", c.KubeReserved},
	} {
		whole := slices.Contains(c.EnforceNodeAllocatable, r.key)
		if !whole && !slices.Contains(c.EnforceNodeAllocatable, r.key+"-compressible") {
			continue
		}
		amount := func(name string) *resource.Quantity {
			q := resource.NewQuantity(0, resource.DecimalSI)
			subtract(q, r.amounts[name])
			q.Neg()
			return q
		}
		var l truth.Limits
		if r.amounts["cpu"] != "" {
			l.CPUShares = uint64(max(amount("cpu").MilliValue()*1024/1000, 2))
		}
		if whole {
			l.MemoryBytes, l.PidsMax = amount("memory").Value(), amount("pid").Value()
			if c.FeatureGates["MemoryQoS"] && c.MemoryReservationPolicy == "TieredReservation" {
				l.MemoryMin = l.MemoryBytes
			}
		}
		all[strings.TrimPrefix(r.cgroup, "/")] = l
	}
	return all
}

// allocatable returns the allocatable resources of the node: the capacity of the machine less what
// is reserved for system and agent, huge pages, and the hard eviction threshold.
func allocatable(n *plan.Node, c *kubeletconfig.KubeletConfiguration) v1.ResourceList {
	cpu := resource.NewQuantity(int64(n.CPUCount()), resource.DecimalSI)
	memory := resource.NewQuantity(n.MemoryBytes(), resource.BinarySI)
	for _, reserved := range []map[string]string{c.SystemReserved, c.KubeReserved} {
		subtract(cpu, reserved["cpu"])
		subtract(memory, reserved["memory"])
	}
	memory.Sub(*resource.NewQuantity(amountOf(c.EvictionHard["memory.available"],
		n.MemoryBytes()), resource.BinarySI))
	for _, pages := range host.Machine().HugePages {
		memory.Sub(*resource.NewQuantity(pages.SizeBytes*pages.Count, resource.BinarySI))
	}
	return v1.ResourceList{
		v1.ResourceCPU: *cpu, v1.ResourceMemory: *memory,
		v1.ResourcePods: *resource.NewQuantity(int64(c.MaxPods), resource.DecimalSI),
	}
}

// nodeFacts returns what the Node has to say of the machine; nil if there is no API server.
func (r *run) nodeFacts(c *kubeletconfig.KubeletConfiguration) *oracle.NodeFacts {
	n, m := &r.plan.Node, host.Machine()
	if !n.API {
		return nil
	}
	pods := allocatable(n, c)
	disk := resource.NewQuantity(m.RootDirBytes, resource.BinarySI)
	capacity := v1.ResourceList{
		v1.ResourceCPU:    *resource.NewQuantity(int64(n.CPUCount()), resource.DecimalSI),
		v1.ResourceMemory: *resource.NewQuantity(n.MemoryBytes(), resource.BinarySI),
		v1.ResourcePods:   pods[v1.ResourcePods], v1.ResourceEphemeralStorage: disk.DeepCopy(),
	}
	for _, reserved := range []map[string]string{c.SystemReserved, c.KubeReserved} {
		subtract(disk, reserved["ephemeral-storage"])
	}
	disk.Sub(*resource.NewQuantity(amountOf(c.EvictionHard["nodefs.available"], m.RootDirBytes),
		resource.BinarySI))
	pods[v1.ResourceEphemeralStorage] = *disk
	for _, pages := range m.HugePages {
		name := v1.ResourceName("hugepages-" +
			resource.NewQuantity(pages.SizeBytes, resource.BinarySI).String())
		capacity[name] = *resource.NewQuantity(pages.SizeBytes*pages.Count, resource.BinarySI)
		pods[name] = capacity[name]
	}
	version := "containerd://2.4.2"
	if n.OldRuntime {
		version = "containerd://1.6.20"
	}
	return &oracle.NodeFacts{
		Addresses: []v1.NodeAddress{{Type: v1.NodeInternalIP, Address: plan.NodeIP},
			{Type: v1.NodeHostName, Address: plan.NodeName}},
		Capacity: capacity, Allocatable: pods, Port: c.Port,
		BootID: func() string { return fmt.Sprint("boot-", r.reboots+1) },
		Info: v1.NodeSystemInfo{MachineID: m.MachineID, SystemUUID: m.SystemUUID,
			KernelVersion: m.KernelVersion, OSImage: m.OSImage, ContainerRuntimeVersion: version,
			OperatingSystem: m.OperatingSystem, Architecture: m.Architecture,
			Swap: &v1.NodeSwapStatus{Capacity: &m.SwapBytes}},
		Images:    func() []string { return r.runtime.PresentImages() },
		ImagesMax: int(*c.NodeStatusMaxImages),
	}
}

// subtract subtracts an amount. A text that is not a quantity, as a percentage, counts as zero.
func subtract(from *resource.Quantity, text string) {
	if q, err := resource.ParseQuantity(text); err == nil {
		from.Sub(q)
	}
}

// registeredNode returns the Node as the agent registers it; nil if there is no API server.
func registeredNode(n *plan.Node, c *kubeletconfig.KubeletConfiguration) *v1.Node {
	if !n.API {
		return nil
	}
	m := host.Machine()
	return &v1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: plan.NodeName, Labels: map[string]string{
			v1.LabelHostname: plan.NodeName,
			v1.LabelOSStable: m.OperatingSystem, v1.LabelArchStable: m.Architecture,
		}},
		Spec: v1.NodeSpec{Taints: c.RegisterWithTaints},
	}
}
