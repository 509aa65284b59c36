package sim

import (
	"iter"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kubeletconfig "k8s.io/kubelet/config/v1beta1"

	"seedlet.dev/core/config"
	corelogs "seedlet.dev/core/logs"
	"seedlet.dev/core/objectcache"
	"seedlet.dev/sim/disk"
	"seedlet.dev/sim/host"
	"seedlet.dev/sim/oracle"
	"seedlet.dev/sim/plan"
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
		IsHostile: hostilePods(r.plan), LastFault: r.excuses.LastFault,
		FaultPossible: r.excuses.MayHaveFailed,
		Cgroups:       oracleCgroups(kubelet), ImageUser: images.userOf, HasAPIServer: node.API,
		ClockSkew: r.clocks.runtimeSkew, DateOffset: r.clocks.dateOffset, ReadFile: r.read,
		Allocatable:     allocatable(node, kubelet),
		ChangeDetection: objectcache.StrategyFromConfig(kubelet),
		RegisteredNode:  registeredNode(node, kubelet),
		Periods: oracle.Periods{
			LeaseDuration: time.Duration(kubelet.NodeLeaseDurationSeconds) * time.Second,
			NodeCheck:     kubelet.NodeStatusUpdateFrequency.Duration,
			NodeReport:    kubelet.NodeStatusReportFrequency.Duration,
		},
	})
}

// hostilePods returns which pods are hostile, by name; nil if nothing harms the other pods of the
// node. A pod over which the agent panics has to run in the end, so it is none.
func hostilePods(spec *plan.Spec) func(name string) bool {
	var hostile map[string]bool
	for i := range spec.Pods {
		if p := &spec.Pods[i]; p.Hostile != nil || p.Panics > 0 {
			if hostile == nil {
				hostile = map[string]bool{}
			}
			hostile[plan.ManifestName(p.Manifest)] = p.Hostile != nil
		}
	}
	if hostile == nil {
		return nil
	}
	return func(name string) bool { return hostile[name] }
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

func (r *run) usage(path string) int64 { return r.disk.Usage(path) }

func oracleCgroups(kubelet *kubeletconfig.KubeletConfiguration) oracle.Cgroups {
	return oracle.Cgroups{PerPod: *kubelet.CgroupsPerQOS, PidsMax: max(0, *kubelet.PodPidsLimit)}
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
	subtract(memory, c.EvictionHard["memory.available"])
	for _, pages := range host.Machine().HugePages {
		memory.Sub(*resource.NewQuantity(pages.SizeBytes*pages.Count, resource.BinarySI))
	}
	return v1.ResourceList{
		v1.ResourceCPU: *cpu, v1.ResourceMemory: *memory,
		v1.ResourcePods: *resource.NewQuantity(int64(c.MaxPods), resource.DecimalSI),
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
