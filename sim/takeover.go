package sim

import (
	"maps"
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	corelogs "seedlet.dev/core/logs"
	"seedlet.dev/core/manifest"
	"seedlet.dev/sim/host"
	"seedlet.dev/sim/kubelet"
	"seedlet.dev/sim/plan"
	"seedlet.dev/sim/truth"
	"seedlet.dev/world"
)

// runFirstKubelet runs the kubelet that had the node before the agent, until Start.
func (r *run) runFirstKubelet(t *plan.TakeOver) {
	r.runKubelet(&t.KubeletLife, plan.Start)
	if t.Reboot {
		r.troubled = true
		r.rebootMachine(t.Down)
	}
}

// returnToKubelet carries out the rounds in which a kubelet has the node back, from a time on. It
// returns when the last agent was started, which has as long as after a heal until everything is
// right: the given time if there are no rounds.
func (r *run) returnToKubelet(now time.Time) time.Time {
	if r.plan.TakeOver == nil {
		return now
	}
	for i := range r.plan.TakeOver.Rounds {
		round := &r.plan.TakeOver.Rounds[i]
		now = now.Add(time.Duration(round.After))
		if r.passUntil(now); r.isDone() {
			break
		}
		r.troubled = true // to the oracles, an agent is restarted
		r.endAgent()
		if now = now.Add(time.Duration(round.Ran)); r.injector.LandsBy().After(now) {
			now = r.injector.LandsBy() // the kubelet sees what earlier agents have asked for
		}
		r.runKubelet(&round.KubeletLife, now)
		now = now.Add(time.Duration(round.Down))
		r.agenda.At(now, r.bootAgent)
		r.passUntil(now)
		r.oracles.Healed(now)
	}
	return now
}

// passUntil runs until a time, at which it then is.
func (r *run) passUntil(t time.Time) {
	r.agenda.At(t, func() {})
	r.runUntil(t)
}

// runKubelet runs a kubelet until its end.
func (r *run) runKubelet(life *plan.KubeletLife, end time.Time) {
	k := kubelet.New(kubelet.Options{
		Node: r.kubeletNode(), Agenda: r.agenda, Runtime: r.runtime, Disk: r.disk, Server: r.server,
		Do: map[world.PortName]func(world.Effect){
			world.PortCRI: r.runtime.Do, world.PortFS: r.disk.Do, world.PortHost: r.host.Do,
			world.PortNetwork: r.network.Do, world.PortAPI: r.server.Do, world.PortCSI: r.drivers.Do,
		},
		Static: r.staticOfKubelet, Drivers: r.drivers.Running,
	})
	ports := []interface {
		Connect(func(world.Event))
		Disconnect()
	}{r.runtime, r.disk, r.network, r.host, r.server, r.drivers}
	for _, p := range ports {
		p.Connect(k.Deliver)
	}
	act := func(acts []plan.EarlyAct, a plan.Act) {
		for _, early := range acts {
			one := a
			one.Pod = early.Pod
			r.agenda.At(end.Add(-time.Duration(early.Before)), func() { r.performAct(&one) })
		}
	}
	act(life.Deletions, plan.Act{Verb: plan.VerbDelete})
	act(life.Debugs, plan.Act{Verb: plan.VerbDebug, Container: "debug"})
	act(life.Creations, plan.Act{Verb: plan.VerbCreate})
	for _, early := range life.Resizes {
		act([]plan.EarlyAct{early.EarlyAct}, plan.Act{Verb: plan.VerbResize, Patch: early.Patch})
	}
	for _, early := range life.Replaced {
		r.agenda.At(end.Add(-time.Duration(early.Before)), func() {
			r.performAct(&plan.Act{Verb: plan.VerbDelete, Object: early.Object})
			r.performAct(&plan.Act{Verb: plan.VerbCreate, Object: early.Object})
		})
	}
	r.oracles.KubeletStarted()
	r.agenda.After(0, k.Run)
	r.passUntil(end)
	k.End()
	r.oracles.KubeletEnded(end)
	for _, p := range ports {
		p.Disconnect()
	}
}

// backOracle is the name under which a run fails if a kubelet that comes back would change what the
// agent has left.
const backOracle = "back-to-kubelet"

// checkBack checks what a kubelet would do if it took the node back now, if one had it before.
func (r *run) checkBack(isSettled bool) {
	if r.plan.TakeOver == nil || r.isDone() || r.incarnations == 0 {
		return
	}
	left := &kubelet.Left{Node: r.kubeletNode(), Static: r.staticOfKubelet(), ReadFile: r.read,
		List: r.disk.List, IsSettled: isSettled, IsMounted: func(path string) bool {
			_, isMounted := r.disk.MountedAt(path)
			return isMounted
		},
		VolumeOf: func(p *v1.Pod, v *v1.Volume) *v1.PersistentVolume {
			pv, _ := r.volumeOf(p, v)
			return pv
		},
		Secret: func(namespace, name string) *v1.Secret {
			return r.server.Object(world.ResourceSecrets, namespace, name).Secret
		}, NeedsRecord: func(ref string) bool { return r.pulledPrivately[ref] }}
	left.Sandboxes, left.Containers = r.runtime.Statuses()
	for _, o := range r.server.Objects(world.ResourcePods) {
		left.Pods = append(left.Pods, o.Pod)
	}
	if problems := kubelet.Read(left); len(problems) > 0 {
		r.fail(backOracle, "a kubelet that took the node back: "+
			strings.Join(firstLines(problems, 4), "; "))
	}
}

// notePull notes which private images have been pulled.
func (r *run) notePull(f truth.Fact) {
	if len(r.plan.PrivateImages[f.Image]) > 0 &&
		(f.Kind == truth.ImagePulled || f.Kind == truth.ImageRemoved) {
		r.pulledPrivately[f.Image] = f.Kind == truth.ImagePulled
	}
}

// staticOfKubelet returns the pods of the manifests as the kubelet has them.
func (r *run) staticOfKubelet() (all []*v1.Pod) {
	desired := r.manifests.desired()
	for _, uid := range slices.Sorted(maps.Keys(desired)) {
		all = append(all, r.ofKubelet(desired[uid]))
	}
	return all
}

// ofKubelet returns a static pod as the kubelet has it, with the UID that it gives it.
func (r *run) ofKubelet(static *v1.Pod) *v1.Pod {
	uid := ""
	for _, src := range r.manifests.sources() {
		if r.manifests.current[src] == static && !src.url {
			data, _ := r.disk.Read(plan.ManifestDir + "/" + src.file)
			uid = kubelet.RecordedUID(data)
		}
	}
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
		Systemd: node.SystemdCgroups, StaticManagers: r.plan.TakeOver.StaticManagers,
		PidsMax: max(0, *config.PodPidsLimit), Search: []string{"lab.test", "old.test"},
		Servers: []string{"192.168.7.2", "192.168.7.3"}, Extra: []string{"timeout:2", "ndots:2"},
	}
	for _, pages := range host.Machine().HugePages {
		n.PageSizes = append(n.PageSizes, pages.SizeBytes)
	}
	return n
}
