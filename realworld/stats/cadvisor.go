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

// containers is one look at the cgroups of the node. Nobody changes it.
type containers struct {
	at  time.Time
	all []*shown
	// told is what the runtime has of pods that have no cgroup of their own.
	told toldMetrics
	err  error
}

// shown is a cgroup as the page for dashboards shows it.
type shown struct {
	*model.ContainerStats
	spec model.ContainerSpec
	psi  bool // the kernel counts what waits in it
	path string
	// What is not of a pod, or of a container, has none of these.
	pod, namespace string
	container      string
	id, image      string // of the container, or the id of the sandbox
}

// measureContainers looks at the cgroups of the system, of the pods, and of what is in them.
func (s *Source) measureContainers(ctx context.Context) *containers {
	found := &containers{at: s.opts.Now()}
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
	t := tour{source: s, reader: reader, visited: map[string]bool{},
		psi: hasPressure(s.opts.Roots.Proc)}
	if root := t.visit("/"); root != nil {
		root.Network = t.network(1)
		s.addFileSystems(ctx, root.ContainerStats)
	}
	for _, system := range s.systemCgroups(reader) {
		t.visit(system.path)
	}
	cgroups, groups := reader.Pods(reader.Kubepods(s.opts.Cgroups.Root))
	for _, group := range groups {
		t.visit(group)
	}
	var without []*v1.Pod
	for _, pod := range pods {
		if at := cgroups[cgroup.PodKey(string(pod.UID))]; at != "" {
			t.pod(pod, at)
		} else if len(running(pod)) > 0 {
			without = append(without, pod)
		}
	}
	found.all = t.all
	if len(without) > 0 {
		found.told, found.err = s.runtimeMetrics(ctx, without)
	}
	return found
}

// tour is a visit to one cgroup after the other.
type tour struct {
	source  *Source
	reader  *cgroup.Reader
	psi     bool
	visited map[string]bool
	all     []*shown
}

// visit measures one cgroup; nil if it has gone, or has been measured already.
func (t *tour) visit(at string) *shown {
	at = path.Clean("/" + at)
	stats, err := t.reader.Usage(at)
	if err != nil || t.visited[at] {
		return nil
	}
	t.visited[at] = true
	t.reader.Detail(at, stats)
	c := &shown{ContainerStats: stats, path: at, spec: t.reader.Spec(at),
		psi: t.psi && (t.reader.Unified() || at == "/")}
	t.all = append(t.all, c)
	return c
}

// pod visits the cgroups of a pod. The network is shown with its sandbox, which is the one that is
// no container; where there is none, as with virtual machines, with the pod.
func (t *tour) pod(pod *v1.Pod, at string) {
	carrier, pid := t.visit(at), 0
	if carrier != nil {
		carrier.pod, carrier.namespace = pod.Name, pod.Namespace
	}
	known := map[string]containerRun{}
	for _, c := range running(pod) {
		known[c.id] = c
	}
	for id, below := range t.reader.Containers(at) { //ordered: samples of a page have no order
		c := t.visit(below)
		if c == nil {
			continue
		}
		c.pod, c.namespace, c.id = pod.Name, pod.Namespace, id
		pids := t.reader.Processes(below)
		if run, is := known[id]; is {
			c.container, c.image, c.spec.StartTime = run.name, run.image, run.since.Time
		} else if len(pids) > 0 {
			carrier, pid = c, pids[0]
		}
		if len(pids) > 0 && pid == 0 {
			pid = pids[0]
		}
	}
	if carrier != nil && pid > 0 && !pod.Spec.HostNetwork {
		carrier.Network = t.network(pid)
	}
}

func (t *tour) network(pid int) *model.NetworkStats {
	return &model.NetworkStats{Interfaces: interfaces(t.source.opts.Roots.Proc, pid)}
}
