package kubelet

import (
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"seedlet.dev/sim/runtime"
	"seedlet.dev/world"
)

// stopStep ends a pod that is deleted: its containers, the sidecars last, then the object, and when
// that has gone, all that is left.
func (k *Kubelet) stopStep(p *pod, s *state) *step {
	spec := &p.object.Spec
	order := slices.Clone(spec.Containers)
	for i := range spec.EphemeralContainers {
		order = append(order, *ephemeral(spec, i))
	}
	for _, c := range slices.Backward(spec.InitContainers) {
		order = append(order, c)
	}
	for i := range order {
		if now, _ := s.newest(order[i].Name); isRunning(now) {
			return k.stopContainerStep(p, s, &order[i], now)
		}
	}
	if w := k.cleanUpStep(p, s); w != nil {
		return w
	}
	w := p.once(&step{"object", world.PortAPI, &world.DeleteObject{Resource: world.ResourcePods,
		Namespace: p.object.Namespace, Name: p.object.Name, UID: string(p.object.UID),
		GracePeriodSeconds: new(int64)}})
	if w != nil {
		return w
	}
	if w := p.once(&step{"removed " + sandboxID(s), world.PortCRI,
		&runtimeapi.RemovePodSandboxRequest{PodSandboxId: sandboxID(s)}}); w != nil && s.sandbox != nil {
		return w
	}
	return p.once(&step{"tree", world.PortFS, &world.RemoveTree{Path: k.dir(p)}},
		&step{"logs", world.PortFS, &world.RemoveTree{Path: k.logDir(p)}})
}

func sandboxID(s *state) string {
	if s.sandbox == nil {
		return ""
	}
	return s.sandbox.ID
}

// stopContainerStep runs the preStop hook of a container, and then stops it within what is left of
// the grace period.
func (k *Kubelet) stopContainerStep(p *pod, s *state, c *v1.Container,
	run *runtime.Container) *step {
	grace := time.Duration(*p.object.DeletionGracePeriodSeconds) * time.Second
	if hook := c.Lifecycle; hook != nil && hook.PreStop != nil && p.hookEnded[run.ID].IsZero() {
		return k.handlerStep("hook "+run.ID, s, run.ID, hook.PreStop.Exec, hook.PreStop.HTTPGet,
			int64(grace/time.Second))
	}
	ends := p.object.DeletionTimestamp.Time // the end of the grace period
	left := max(2*time.Second, ends.Sub(k.opts.Agenda.Now()))
	return &step{"stop " + run.ID, world.PortCRI, &runtimeapi.StopContainerRequest{
		ContainerId: run.ID, Timeout: int64((left + time.Second - 1) / time.Second)}}
}

// cleanUpStep releases what a pod has whose containers have all ended: its sandbox, its volumes and
// its cgroup. Its directory and what the runtime has of it stay.
func (k *Kubelet) cleanUpStep(p *pod, s *state) *step {
	for i := range s.runs {
		if isRunning(&s.runs[i]) { // a sidecar
			return &step{"stop " + s.runs[i].ID, world.PortCRI, &runtimeapi.StopContainerRequest{
				ContainerId: s.runs[i].ID, Timeout: *p.object.Spec.TerminationGracePeriodSeconds}}
		}
	}
	if s.isReady() {
		return &step{"sandbox is stopped", world.PortCRI,
			&runtimeapi.StopPodSandboxRequest{PodSandboxId: s.sandbox.ID}}
	}
	if w := p.once(k.subPathsRemovedSteps(p)...); w != nil {
		return w
	}
	if w := k.releaseStep(p); w != nil {
		return w
	}
	if !p.done["volumes"] && !k.opts.Disk.Exists(k.dir(p)+"/volumes") {
		return p.once(k.cgroupRemovedStep(p), k.releaseIDsStep(p)) // an agent has removed them
	}
	return p.once(&step{"unmounted", world.PortFS, &world.Unmount{Path: k.dir(p)}},
		&step{"volumes", world.PortFS, &world.RemoveTree{Path: k.dir(p) + "/volumes"}},
		mkdir(k.dir(p)+"/volumes", 0o750), k.cgroupRemovedStep(p), k.releaseIDsStep(p))
}

func (k *Kubelet) cgroupRemovedStep(p *pod) *step {
	return &step{"cgroup is removed", world.PortHost, &world.RemoveCgroup{Path: k.cgroup(p),
		Systemd: k.opts.Systemd}}
}
