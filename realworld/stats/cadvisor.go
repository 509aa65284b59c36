package stats

import (
	"context"
	"fmt"
	"path"
	"time"

	"github.com/google/cadvisor/lib/model"
	v1 "k8s.io/api/core/v1"

	"seedlet.dev/realworld/stats/cgroup"
)

// cgroupSample is one measurement of the cgroups of the node. It is immutable.
type cgroupSample struct {
	at  time.Time
	all []*cgroupStats
	// runtimeMetrics are the runtime's metrics of pods without a cgroup of their own.
	runtimeMetrics runtimeMetricFamilies
	err            error
}

// cgroupStats is a cgroup as /metrics/cadvisor serves it.
type cgroupStats struct {
	*model.ContainerStats
	spec        model.ContainerSpec
	hasPressure bool // the kernel keeps pressure stall information (PSI) of it
	path        string
	// Empty for a cgroup that belongs to no pod or no container.
	pod, namespace string
	container      string
	id, image      string // of the container, or the id of the sandbox
}

// measureContainers measures the cgroups of the system, of pods, and of their containers.
func (s *Source) measureContainers(ctx context.Context) *cgroupSample {
	found := &cgroupSample{at: s.opts.Now()}
	reader, err := cgroup.New(s.opts.Roots)
	if err != nil {
		found.err = err
		return found
	}
	pods, err := s.pods(ctx)
	if err != nil {
		found.err = fmt.Errorf("asking for the pods: %w", err)
		return found
	}
	t := collector{source: s, reader: reader, visited: map[string]bool{},
		hasPressure: hasPressure(s.opts.Roots.Proc)}
	if root := t.collect("/"); root != nil {
		root.Network = t.networkStats(hostPID)
		s.addFileSystems(ctx, root.ContainerStats)
	}
	for _, system := range s.systemCgroups(reader) {
		t.collect(system.path)
	}
	cgroups, groups := reader.Pods(reader.Kubepods(s.opts.Cgroups.Root))
	for _, group := range groups {
		t.collect(group)
	}
	var without []*v1.Pod
	for _, pod := range pods {
		if at := cgroups[cgroup.PodKey(string(pod.UID))]; at != "" {
			t.collectPod(pod, at)
		} else if len(runningContainers(pod)) > 0 {
			without = append(without, pod)
		}
	}
	found.all = t.all
	s.sandboxImages.fill(ctx, s.opts.Runtime, found.at, t.sandboxes)
	if len(without) > 0 {
		found.runtimeMetrics, found.err = s.requestRuntimeMetrics(ctx, without)
	}
	return found
}

// collector measures one cgroup after the other.
type collector struct {
	source      *Source
	reader      *cgroup.Reader
	hasPressure bool
	visited     map[string]bool
	all         []*cgroupStats
	sandboxes   []*cgroupStats // of all
}

// collect measures one cgroup. It returns nil if the cgroup no longer exists or was measured
// before.
func (t *collector) collect(at string) *cgroupStats {
	at = path.Clean("/" + at)
	stats, err := t.reader.Usage(at)
	if err != nil || t.visited[at] {
		return nil
	}
	t.visited[at] = true
	t.reader.Detail(at, stats)
	c := &cgroupStats{ContainerStats: stats, path: at, spec: t.reader.Spec(at),
		hasPressure: t.hasPressure && (t.reader.IsUnified() || at == "/")}
	t.all = append(t.all, c)
	return c
}

// collectPod measures the cgroups of a pod. Network metrics belong to the sandbox's cgroup, the one
// that is no container's; without one, as with virtual machines, to the pod's.
func (t *collector) collectPod(pod *v1.Pod, at string) {
	carrier, pid := t.collect(at), 0
	if carrier != nil {
		carrier.pod, carrier.namespace = pod.Name, pod.Namespace
	}
	known := map[string]containerRun{}
	for _, c := range runningContainers(pod) {
		known[c.id] = c
	}
	for id, below := range t.reader.Containers(at) { //ordered: samples of a page have no order
		c := t.collect(below)
		if c == nil {
			continue
		}
		c.pod, c.namespace, c.id = pod.Name, pod.Namespace, id
		pids := t.reader.Processes(below)
		if run, is := known[id]; is {
			c.container, c.image, c.spec.StartTime = run.name, run.image, run.since.Time
		} else if len(pids) > 0 {
			carrier, pid = c, pids[0]
			t.sandboxes = append(t.sandboxes, c)
		}
		if len(pids) > 0 && pid == 0 {
			pid = pids[0]
		}
	}
	if carrier != nil && pid > 0 && !pod.Spec.HostNetwork {
		carrier.Network = t.networkStats(pid)
	}
}

func (t *collector) networkStats(pid int) *model.NetworkStats {
	return &model.NetworkStats{Interfaces: interfaces(t.source.opts.Roots.Proc, pid)}
}
