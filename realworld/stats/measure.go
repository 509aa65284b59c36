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

// usageSample is one measurement of the node and its pods, disks excluded. It is immutable.
type usageSample struct {
	nodeStats statsapi.NodeStats
	podStats  []statsapi.PodStats
	pods      []*v1.Pod // the pods of podStats, in the same order
	// podsErr is set if the pods are unknown, err if another measurement failed.
	podsErr, err error
}

// sampler takes one usageSample.
type sampler struct {
	source      *Source
	at          time.Time
	cgroups     *cgroup.Reader // nil without cgroups
	memory      cgroup.MemInfo
	hasPressure bool // the kernel keeps PSI
	runtime     runtimeStats
	// podCgroups are the cgroups of pods, by cgroup.PodKey of the UID.
	podCgroups map[string]string
}

// measure takes a sample. It queries the runtime first, because that may take long, and readings of
// cgroups must not be older than the time of the sample.
func (s *Source) measure(ctx context.Context) *usageSample {
	u := &usageSample{}
	pods, err := s.pods(ctx)
	if err != nil {
		u.podsErr = fmt.Errorf("asking for the pods: %w", err)
	}
	l := sampler{source: s}
	if len(pods) > 0 {
		l.runtime = s.requestRuntimeStats(ctx)
	}
	l.at = s.opts.Now()
	cgroups, err := cgroup.New(s.opts.Roots)
	if err == nil {
		l.cgroups = cgroups
		l.hasPressure = hasPressure(s.opts.Roots.Proc)
		l.podCgroups, _ = cgroups.Pods(cgroups.Kubepods(s.opts.Cgroups.Root))
	}
	memory, memoryErr := cgroup.ReadMemInfo(s.opts.Roots.Proc)
	l.memory = memory
	u.err = errors.Join(u.podsErr, l.runtime.err, err, memoryErr)
	u.nodeStats = l.nodeStats()
	for _, pod := range pods {
		if measured, any := l.podStats(pod); any {
			u.podStats = append(u.podStats, measured)
			u.pods = append(u.pods, pod)
		}
	}
	s.rates.rotate()
	return u
}

func (s *Source) pods(ctx context.Context) ([]*v1.Pod, error) {
	ctx, cancel := context.WithTimeout(ctx, podsTimeout)
	defer cancel()
	return s.opts.Pods(ctx)
}

// nodeStats measures the machine by its root cgroup and the kernel's files.
func (l *sampler) nodeStats() statsapi.NodeStats {
	roots := l.source.opts.Roots
	n := statsapi.NodeStats{
		NodeName:  l.source.opts.NodeName,
		StartTime: metav1.NewTime(cgroup.BootTime(roots.Proc)),
		Network:   networkOfProcess(roots.Proc, hostPID, l.at),
		Rlimit:    processLimit(roots.Proc, l.at),
	}
	used := l.cgroupUsage("node", "/")
	n.CPU, n.Memory, n.IO = used.cpu, used.memory, used.io
	if n.Memory != nil && l.memory.Total > 0 {
		n.Memory.AvailableBytes = nonNegative(l.memory.Total, *n.Memory.WorkingSetBytes)
	}
	if l.memory.Total > 0 {
		n.Swap = &statsapi.SwapStats{Time: metav1.NewTime(l.at),
			SwapUsageBytes:     nonNegative(l.memory.SwapTotal, l.memory.SwapFree),
			SwapAvailableBytes: &l.memory.SwapFree}
	}
	for _, system := range l.source.systemCgroups(l.cgroups) {
		used := l.cgroupUsage("system/"+system.name, system.path)
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

// nonNegative returns a difference, zero if it is negative.
func nonNegative(of, less uint64) *uint64 {
	left := of - min(of, less)
	return &left
}
