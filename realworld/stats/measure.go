package stats

import (
	"context"
	"errors"
	"fmt"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	statsapi "k8s.io/kubelet/pkg/apis/stats/v1alpha1"

	"seedlet.dev/realworld/stats/cgroup"
)

// usage is one look at what everything uses of what is not a disk. Nobody changes it.
type usage struct {
	node statsapi.NodeStats
	pods []statsapi.PodStats
	of   []*v1.Pod // whose the pods are, in the same order
	// podsErr says why the pods are not known, err what else could not be had.
	podsErr, err error
}

// look is a measurement of usage under way.
type look struct {
	source  *Source
	at      time.Time
	cgroups *cgroup.Reader // nil: there are none
	memory  cgroup.MemInfo
	psi     bool // the kernel counts what waits
	runtime runtimeStats
	// podCgroups are the cgroups of pods by UID, as cgroup.PodKey has it.
	podCgroups map[string]string
}

// measure looks at the runtime first: it may take its time, and what is read of cgroups must not
// be older than the sample's time.
func (s *Source) measure(ctx context.Context) *usage {
	u := &usage{}
	pods, err := s.pods(ctx)
	if err != nil {
		u.podsErr = fmt.Errorf("asking for the pods: %w", err)
	}
	l := look{source: s}
	if len(pods) > 0 {
		l.runtime = s.askRuntime(ctx)
	}
	l.at = s.opts.Now()
	cgroups, err := cgroup.New(s.opts.Roots)
	if err == nil {
		l.cgroups = cgroups
		l.psi = hasPressure(s.opts.Roots.Proc)
		l.podCgroups, _ = cgroups.Pods(cgroups.Kubepods(s.opts.Cgroups.Root))
	}
	memory, memoryErr := cgroup.ReadMemInfo(s.opts.Roots.Proc)
	l.memory = memory
	u.err = errors.Join(u.podsErr, l.runtime.err, err, memoryErr)
	u.node = l.node()
	for _, pod := range pods {
		if measured, any := l.pod(pod); any {
			u.pods = append(u.pods, measured)
			u.of = append(u.of, pod)
		}
	}
	s.rates.end()
	return u
}

func (s *Source) pods(ctx context.Context) ([]*v1.Pod, error) {
	ctx, cancel := context.WithTimeout(ctx, podsMax)
	defer cancel()
	return s.opts.Pods(ctx)
}

// node is the machine, by its root cgroup and the kernel's own files.
func (l *look) node() statsapi.NodeStats {
	roots := l.source.opts.Roots
	n := statsapi.NodeStats{
		NodeName:  l.source.opts.NodeName,
		StartTime: metav1.NewTime(cgroup.BootTime(roots.Proc)),
		Network:   network(roots.Proc, 1, l.at),
		Rlimit:    limitOfProcesses(roots.Proc, l.at),
	}
	used := l.read("node", "/")
	n.CPU, n.Memory, n.IO = used.cpu, used.memory, used.io
	if n.Memory != nil && l.memory.Total > 0 {
		n.Memory.AvailableBytes = positive(l.memory.Total, *n.Memory.WorkingSetBytes)
	}
	if l.memory.Total > 0 {
		n.Swap = &statsapi.SwapStats{Time: metav1.NewTime(l.at),
			SwapUsageBytes:     positive(l.memory.SwapTotal, l.memory.SwapFree),
			SwapAvailableBytes: &l.memory.SwapFree}
	}
	for _, system := range l.source.systemCgroups(l.cgroups) {
		used := l.read("system/"+system.name, system.path)
		if used.cpu == nil && used.memory == nil {
			continue
		}
		c := statsapi.ContainerStats{Name: system.name, CPU: used.cpu, Memory: used.memory,
			Swap: used.swap, IO: used.io,
			StartTime: metav1.NewTime(l.cgroups.Created(system.path))}
		n.SystemContainers = append(n.SystemContainers, c)
	}
	return n
}

// positive is a difference, or zero.
func positive(of, less uint64) *uint64 {
	left := of - min(of, less)
	return &left
}
