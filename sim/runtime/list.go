package runtime

import (
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"seedlet.dev/sim/wire"
)

// Lists and statuses. A list is a snapshot of the instant it takes effect. Messages are built once
// per change.

func (r *Runtime) listContainers(f *runtimeapi.ContainerFilter) *runtimeapi.ListContainersResponse {
	if r.containerList == nil {
		items := make([]*runtimeapi.Container, len(r.containerOrder))
		for i, c := range r.containerOrder {
			items[i] = c.listed()
		}
		r.containerList = &runtimeapi.ListContainersResponse{Containers: items}
	}
	if f == nil || f.Id == "" && f.PodSandboxId == "" && f.State == nil && f.LabelSelector == nil {
		return r.containerList
	}
	answer := &runtimeapi.ListContainersResponse{}
	for _, c := range r.containerList.Containers {
		if (f.Id == "" || f.Id == c.Id) &&
			(f.PodSandboxId == "" || f.PodSandboxId == c.PodSandboxId) &&
			(f.State == nil || f.State.State == c.State) && selects(f.LabelSelector, c.Labels) {
			answer.Containers = append(answer.Containers, c)
		}
	}
	return answer
}

func (r *Runtime) listSandboxes(f *runtimeapi.PodSandboxFilter) *runtimeapi.ListPodSandboxResponse {
	if r.sandboxList == nil {
		items := make([]*runtimeapi.PodSandbox, len(r.sandboxOrder))
		for i, s := range r.sandboxOrder {
			items[i] = s.listed()
		}
		r.sandboxList = &runtimeapi.ListPodSandboxResponse{Items: items}
	}
	if f == nil || f.Id == "" && f.State == nil && f.LabelSelector == nil {
		return r.sandboxList
	}
	answer := &runtimeapi.ListPodSandboxResponse{}
	for _, s := range r.sandboxList.Items {
		if (f.Id == "" || f.Id == s.Id) && (f.State == nil || f.State.State == s.State) &&
			selects(f.LabelSelector, s.Labels) {
			answer.Items = append(answer.Items, s)
		}
	}
	return answer
}

// selects reports whether labels have every label of the selector.
func selects(selector, labels map[string]string) bool {
	for name, value := range selector { //ordered: a conjunction is the same in any order
		if got, ok := labels[name]; !ok || got != value {
			return false
		}
	}
	return true
}

func (c *container) listed() *runtimeapi.Container {
	if c.item == nil {
		c.item = &runtimeapi.Container{
			Id: c.ID, PodSandboxId: c.SandboxID, Metadata: c.config.Metadata,
			Image: c.config.Image, ImageRef: c.imageID, ImageId: c.imageID, State: c.state(),
			CreatedAt: c.CreatedAt.Add(c.skewed.created).UnixNano(),
			Labels:    c.config.Labels, Annotations: c.config.Annotations,
		}
	}
	return c.item
}

func (s *sandbox) listed() *runtimeapi.PodSandbox {
	if s.item == nil {
		s.item = &runtimeapi.PodSandbox{
			Id: s.ID, Metadata: s.config.Metadata, State: s.State,
			CreatedAt: s.CreatedAt.Add(s.skewed).UnixNano(), Labels: s.config.Labels,
			Annotations: s.config.Annotations,
		}
	}
	return s.item
}

func (r *Runtime) containerStatus(call *wire.Call, req *runtimeapi.ContainerStatusRequest) {
	c := r.containers[req.ContainerId]
	if c == nil {
		call.Fail(noContainer(call, req.ContainerId))
		return
	}
	call.Reply(c.inspected())
}

func (c *container) inspected() *runtimeapi.ContainerStatusResponse {
	if c.status != nil {
		return c.status
	}
	status := &runtimeapi.ContainerStatus{
		Id: c.ID, Metadata: c.config.Metadata, State: c.state(),
		CreatedAt: c.CreatedAt.Add(c.skewed.created).UnixNano(), Image: c.config.Image,
		ImageRef: c.imageID, ImageId: c.imageID,
		Labels: c.config.Labels, Annotations: c.config.Annotations,
		Mounts: c.config.Mounts, LogPath: c.logPath, User: &runtimeapi.ContainerUser{},
		StopSignal: runtimeapi.Signal_SIGTERM,
	}
	if !c.StartedAt.IsZero() {
		status.StartedAt = c.StartedAt.Add(c.skewed.started).UnixNano()
	}
	if !c.FinishedAt.IsZero() && !c.lost {
		status.FinishedAt = c.FinishedAt.Add(c.skewed.finished).UnixNano()
		status.ExitCode, status.Reason = c.ExitCode, c.Reason
	}
	c.status = &runtimeapi.ContainerStatusResponse{Status: status}
	return c.status
}

func (r *Runtime) sandboxStatus(call *wire.Call, req *runtimeapi.PodSandboxStatusRequest) {
	s := r.sandboxes[req.PodSandboxId]
	if s == nil {
		call.Fail(noSandbox(call, req.PodSandboxId))
		return
	}
	call.Reply(s.inspected())
}

func (s *sandbox) inspected() *runtimeapi.PodSandboxStatusResponse {
	if s.status == nil {
		s.status = &runtimeapi.PodSandboxStatusResponse{Status: &runtimeapi.PodSandboxStatus{
			Id: s.ID, Metadata: s.config.Metadata, State: s.State,
			CreatedAt: s.CreatedAt.Add(s.skewed).UnixNano(),
			Network:   &runtimeapi.PodSandboxNetworkStatus{Ip: s.IP},
			Linux: &runtimeapi.LinuxPodSandboxStatus{Namespaces: &runtimeapi.Namespace{
				Options: s.config.GetLinux().GetSecurityContext().GetNamespaceOptions(),
			}},
			Labels: s.config.Labels, Annotations: s.config.Annotations,
		}}
	}
	return s.status
}
