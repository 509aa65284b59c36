package stats

import (
	"context"
	"fmt"
	"net/http"
	"path"

	"github.com/google/cadvisor/lib/container"
	"github.com/google/cadvisor/lib/machine"
	"github.com/google/cadvisor/lib/metrics"
	"github.com/google/cadvisor/lib/model"
	v1 "k8s.io/api/core/v1"
	kubetypes "k8s.io/kubelet/pkg/types"
	"k8s.io/utils/clock"

	"seedlet.dev/realworld/stats/cgroup"
)

// shown are the kinds of numbers on the page: those of the kubelet that are measured here. The
// load, which the kubelet shows as zeros, is not.
var shown = container.MetricSet{
	container.CpuUsageMetrics: {}, container.MemoryUsageMetrics: {}, container.DiskIOMetrics: {},
	container.DiskUsageMetrics: {}, container.NetworkUsageMetrics: {}, container.ProcessMetrics: {},
	container.OOMMetrics: {},
}

// containers is one look at the cgroups of the node, in cAdvisor's terms. Nobody changes it.
type containers struct {
	all map[string]*model.ContainerInfo
	psi bool
	err error
}

func (s *Source) serveCadvisor(w http.ResponseWriter, r *http.Request) {
	found, err := s.cadvisor.get(r.Context())
	if err != nil {
		unavailable(w, err)
		return
	}
	machine, err := s.machine.get(r.Context())
	if err != nil {
		unavailable(w, err)
		return
	}
	included := shown
	if found.psi {
		included = container.MetricSet{container.PressureMetrics: {}}.Append(shown)
	}
	from := provider{found, machine}
	page(w, r, metrics.NewPrometheusMachineCollector(from, included),
		metrics.NewPrometheusCollector(from, labelsOf, included, clock.RealClock{},
			model.RequestOptions{Count: 1, Recursive: true}))
}

// provider is what cAdvisor's collectors ask.
type provider struct {
	*containers
	machine *model.MachineInfo
}

// GetRequestedContainersInfo returns all cgroups, whichever are asked for.
func (p provider) GetRequestedContainersInfo(string,
	model.RequestOptions) (map[string]*model.ContainerInfo, error) {
	return p.all, p.err
}

// GetVersionInfo returns what the machine runs.
func (p provider) GetVersionInfo() (*model.VersionInfo, error) {
	return &model.VersionInfo{KernelVersion: machine.KernelVersion(),
		ContainerOsVersion: machine.ContainerOsVersion()}, nil
}

// GetMachineInfo returns what the machine is.
func (p provider) GetMachineInfo() (*model.MachineInfo, error) {
	if p.machine == nil {
		return nil, fmt.Errorf("the machine could not be looked at")
	}
	return p.machine, nil
}

// labelsOf are those that dashboards select by. All have all: a missing one is empty.
func labelsOf(c *model.ContainerInfo) map[string]string {
	labels := map[string]string{metrics.LabelID: c.Name, metrics.LabelName: "",
		metrics.LabelImage: c.Spec.Image,
		podLabel:           c.Spec.Labels[kubetypes.KubernetesPodNameLabel],
		namespaceLabel:     c.Spec.Labels[kubetypes.KubernetesPodNamespaceLabel],
		containerLabel:     c.Spec.Labels[kubetypes.KubernetesContainerNameLabel]}
	if len(c.Aliases) > 0 {
		labels[metrics.LabelName] = c.Aliases[0]
	}
	return labels
}

// measureContainers looks at the cgroups of the system, of the pods, and of what is in them.
func (s *Source) measureContainers(ctx context.Context) *containers {
	found := &containers{all: map[string]*model.ContainerInfo{}}
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
	found.psi = hasPressure(s.opts.Roots.Proc)
	t := tour{s, reader, found.all}
	if root := t.visit("/", nil, "", ""); root != nil {
		root.Spec.HasNetwork, root.Stats[0].Network = true, t.network(1)
		s.addFileSystems(ctx, root.Stats[0])
	}
	for _, system := range s.systemCgroups(reader) {
		t.visit(system.path, nil, "", "")
	}
	cgroups, groups := reader.Pods(s.opts.Cgroups.Pods)
	for _, group := range groups {
		t.visit(group, nil, "", "")
	}
	for _, pod := range pods {
		if at := cgroups[cgroup.PodKey(string(pod.UID))]; at != "" {
			t.pod(pod, at)
		}
	}
	return found
}

// tour is a visit to one cgroup after the other.
type tour struct {
	source *Source
	reader *cgroup.Reader
	all    map[string]*model.ContainerInfo
}

// visit measures one cgroup; nil if it has gone.
func (t *tour) visit(at string, pod *v1.Pod, id, name string) *model.ContainerInfo {
	at = path.Clean("/" + at)
	stats, err := t.reader.Usage(at)
	if err != nil {
		return nil
	}
	t.reader.Detail(at, stats)
	info := &model.ContainerInfo{ContainerReference: model.ContainerReference{Name: at},
		Spec: t.reader.Spec(at), Stats: []*model.ContainerStats{stats}}
	info.Spec.Labels = map[string]string{}
	if pod != nil {
		info.Spec.Labels[kubetypes.KubernetesPodNameLabel] = pod.Name
		info.Spec.Labels[kubetypes.KubernetesPodNamespaceLabel] = pod.Namespace
	}
	if id != "" {
		info.Id, info.Aliases = id, []string{id}
	}
	if name != "" {
		info.Spec.Labels[kubetypes.KubernetesContainerNameLabel] = name
	}
	t.all[at] = info
	return info
}

// pod visits the cgroups of a pod. The network is shown with its sandbox, which is the one that is
// no container; where there is none, as with virtual machines, with the pod.
func (t *tour) pod(pod *v1.Pod, at string) {
	above := t.visit(at, pod, "", "")
	known := map[string]containerRun{}
	for _, c := range running(pod) {
		known[c.id] = c
	}
	var carrier *model.ContainerInfo
	pid := 0
	for id, below := range t.reader.Containers(at) { //ordered: the page is sorted
		c, is := known[id]
		info := t.visit(below, pod, id, c.name)
		if info == nil {
			continue
		}
		if pids := t.reader.Processes(below); len(pids) > 0 && (pid == 0 || !is) {
			pid = pids[0]
		}
		if is {
			info.Spec.Image, info.Spec.StartTime = c.image, c.since.Time
		} else if info.Stats[0].Processes.ProcessCount > 0 {
			carrier = info
		}
	}
	if carrier == nil {
		carrier = above
	}
	if carrier != nil && pid > 0 && !pod.Spec.HostNetwork {
		carrier.Spec.HasNetwork, carrier.Stats[0].Network = true, t.network(pid)
	}
}

func (t *tour) network(pid int) *model.NetworkStats {
	n := &model.NetworkStats{Interfaces: interfaces(t.source.opts.Roots.Proc, pid)}
	if len(n.Interfaces) > 0 {
		n.InterfaceStats = n.Interfaces[0]
	}
	return n
}
