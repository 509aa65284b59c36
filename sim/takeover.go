package sim

import (
	"maps"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	corelogs "seedlet.dev/core/logs"
	"seedlet.dev/core/manifest"
	"seedlet.dev/sim/host"
	"seedlet.dev/sim/kubelet"
	"seedlet.dev/sim/plan"
	"seedlet.dev/world"
)

// runKubelet runs the kubelet that had the node before the agent, until Start.
func (r *run) runKubelet(t *plan.TakeOver) {
	k := kubelet.New(kubelet.Options{
		Node: r.kubeletNode(), Agenda: r.agenda, Runtime: r.runtime, Disk: r.disk, Server: r.server,
		Do: map[world.PortName]func(world.Effect){
			world.PortCRI: r.runtime.Do, world.PortFS: r.disk.Do, world.PortHost: r.host.Do,
			world.PortNetwork: r.network.Do, world.PortAPI: r.server.Do,
		},
		Static: func() []*v1.Pod {
			var all []*v1.Pod
			desired := r.manifests.desired()
			for _, uid := range slices.Sorted(maps.Keys(desired)) {
				all = append(all, r.ofKubelet(desired[uid]))
			}
			return all
		},
	})
	ports := []interface {
		Connect(func(world.Event))
		Disconnect()
	}{r.runtime, r.disk, r.network, r.host, r.server}
	for _, p := range ports {
		p.Connect(k.Deliver)
	}
	for _, d := range t.Deletions {
		r.agenda.At(plan.Start.Add(-time.Duration(d.Before)), func() {
			r.performAct(&plan.Act{Verb: plan.VerbDelete, Pod: d.Pod})
		})
	}
	r.oracles.KubeletStarted()
	r.agenda.After(0, k.Run)
	r.runUntil(plan.Start)
	k.End()
	r.oracles.KubeletEnded(plan.Start)
	for _, p := range ports {
		p.Disconnect()
	}
}

// ofKubelet returns a static pod as the kubelet has it, with the UID that it gives it.
func (r *run) ofKubelet(static *v1.Pod) *v1.Pod {
	p := r.plan.PodNamed(withoutNodeSuffix(static.Name))
	if p == nil {
		return static
	}
	uid := kubelet.RecordedUID(p.ManifestJSON())
	if uid == "" {
		return static // its manifest has the UID, or it is another one than those recorded
	}
	static = static.DeepCopy()
	static.UID = types.UID(uid)
	static.Annotations[manifest.ConfigHashAnnotation] = uid
	return static
}

// kubeletNode returns what a kubelet knows about the node.
func (r *run) kubeletNode() kubelet.Node {
	node, config := &r.plan.Node, r.options.Config
	n := kubelet.Node{
		Name: plan.NodeName, IP: plan.NodeIP, RootDir: plan.RootDir, LogsDir: config.PodLogsDir,
		LinksDir: corelogs.LinksDirDefault, CPUs: node.CPUCount(), MemoryBytes: node.MemoryBytes(),
		PidsMax: max(0, *config.PodPidsLimit), Search: []string{"lab.test", "old.test"},
		Servers: []string{"192.168.7.2", "192.168.7.3"}, Extra: []string{"timeout:2", "ndots:2"},
	}
	for _, pages := range host.Machine().HugePages {
		n.PageSizes = append(n.PageSizes, pages.SizeBytes)
	}
	return n
}
