package runtime

import (
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"seedlet.dev/sim/wire"
)

// Lists and statuses. A list is a snapshot at the instant when the call takes effect. Messages are
// built once after each change.

func (r *Runtime) listContainers(f *runtimeapi.ContainerFilter) *runtimeapi.ListContainersResponse {
	if r.containerList == nil {
		items := make([]*runtimeapi.Container, len(r.containerOrder))
		for i, c := range r.containerOrder {
			items[i] = c.listItem()
		}
		r.containerList = &runtimeapi.ListContainersResponse{Containers: items}
	}
	if f == nil || f.Id == "" && f.PodSandboxId == "" && f.State == nil && f.LabelSelector == nil {
		return r.containerList
	}
	response := &runtimeapi.ListContainersResponse{}
	for _, c := range r.containerList.Containers {
		if (f.Id == "" || f.Id == c.Id) &&
			(f.PodSandboxId == "" || f.PodSandboxId == c.PodSandboxId) &&
			(f.State == nil || f.State.State == c.State) && matchesSelector(f.LabelSelector, c.Labels) {
			response.Containers = append(response.Containers, c)
		}
	}
	return response
}

func (r *Runtime) listSandboxes(f *runtimeapi.PodSandboxFilter) *runtimeapi.ListPodSandboxResponse {
	if r.sandboxList == nil {
		items := make([]*runtimeapi.PodSandbox, len(r.sandboxOrder))
		for i, s := range r.sandboxOrder {
			items[i] = s.listItem()
		}
		r.sandboxList = &runtimeapi.ListPodSandboxResponse{Items: items}
	}
	if f == nil || f.Id == "" && f.State == nil && f.LabelSelector == nil {
		return r.sandboxList
	}
	response := &runtimeapi.ListPodSandboxResponse{}
	for _, s := range r.sandboxList.Items {
		if (f.Id == "" || f.Id == s.Id) && (f.State == nil || f.State.State == s.State) &&
			matchesSelector(f.LabelSelector, s.Labels) {
			response.Items = append(response.Items, s)
		}
	}
	return response
}

// matchesSelector reports whether labels contain every label of the selector.
func matchesSelector(selector, labels map[string]string) bool {
	for name, value := range selector { //ordered: a conjunction is the same in any order
		if got, ok := labels[name]; !ok || got != value {
			return false
		}
	}
	return true
}

func (c *container) listItem() *runtimeapi.Container {
	if c.cachedListItem == nil {
		c.cachedListItem = &runtimeapi.Container{
			Id: c.ID, PodSandboxId: c.SandboxID, Metadata: c.config.Metadata,
			Image: c.config.Image, ImageRef: c.imageID, ImageId: c.imageID, State: c.reportedState(),
			CreatedAt: c.CreatedAt.Add(c.skews.created).UnixNano(),
			Labels:    c.config.Labels, Annotations: c.config.Annotations,
		}
	}
	return c.cachedListItem
}

func (s *sandbox) listItem() *runtimeapi.PodSandbox {
	if s.cachedListItem == nil {
		s.cachedListItem = &runtimeapi.PodSandbox{
			Id: s.ID, Metadata: s.config.Metadata, State: s.State,
			CreatedAt: s.CreatedAt.Add(s.createdSkew).UnixNano(), Labels: s.config.Labels,
			Annotations: s.config.Annotations,
		}
	}
	return s.cachedListItem
}

func (r *Runtime) containerStatus(call *wire.Call, req *runtimeapi.ContainerStatusRequest) {
	c := r.containers[req.ContainerId]
	if c == nil {
		call.Fail(noContainer(call, req.ContainerId))
		return
	}
	call.Reply(c.statusResponse())
}

func (c *container) statusResponse() *runtimeapi.ContainerStatusResponse {
	if c.cachedStatus != nil {
		return c.cachedStatus
	}
	status := &runtimeapi.ContainerStatus{
		Id: c.ID, Metadata: c.config.Metadata, State: c.reportedState(),
		CreatedAt: c.CreatedAt.Add(c.skews.created).UnixNano(), Image: c.config.Image,
		ImageRef: c.imageID, ImageId: c.imageID,
		Labels: c.config.Labels, Annotations: c.config.Annotations,
		Mounts: c.config.Mounts, LogPath: c.logPath, User: &runtimeapi.ContainerUser{},
		StopSignal: runtimeapi.Signal_SIGTERM,
	}
	if l := c.resources(); l != nil && !c.withoutResources {
		status.Resources = &runtimeapi.ContainerResources{Linux: l}
	}
	if !c.StartedAt.IsZero() {
		status.StartedAt = c.StartedAt.Add(c.skews.started).UnixNano()
	}
	if !c.FinishedAt.IsZero() && !c.stateUnknown {
		status.FinishedAt = c.FinishedAt.Add(c.skews.finished).UnixNano()
		status.ExitCode, status.Reason = c.ExitCode, c.Reason
	}
	c.cachedStatus = &runtimeapi.ContainerStatusResponse{Status: status}
	return c.cachedStatus
}

func (r *Runtime) sandboxStatus(call *wire.Call, req *runtimeapi.PodSandboxStatusRequest) {
	s := r.sandboxes[req.PodSandboxId]
	if s == nil {
		call.Fail(noSandbox(call, req.PodSandboxId))
		return
	}
	call.Reply(s.statusResponse())
}

func (s *sandbox) statusResponse() *runtimeapi.PodSandboxStatusResponse {
	if s.cachedStatus == nil {
		s.cachedStatus = &runtimeapi.PodSandboxStatusResponse{Status: &runtimeapi.PodSandboxStatus{
			Id: s.ID, Metadata: s.config.Metadata, State: s.State,
			CreatedAt: s.CreatedAt.Add(s.createdSkew).UnixNano(),
			Network:   &runtimeapi.PodSandboxNetworkStatus{Ip: s.IP},
			Linux: &runtimeapi.LinuxPodSandboxStatus{Namespaces: &runtimeapi.Namespace{
				Options: s.config.GetLinux().GetSecurityContext().GetNamespaceOptions(),
			}},
			Labels: s.config.Labels, Annotations: s.config.Annotations,
		}}
	}
	return s.cachedStatus
}

// Statuses returns what PodSandboxStatus and ContainerStatus answer for everything that there is.
func (r *Runtime) Statuses() (sandboxes []*runtimeapi.PodSandboxStatus,
	containers []*runtimeapi.ContainerStatus) {
	for _, s := range r.sandboxOrder {
		sandboxes = append(sandboxes, s.statusResponse().Status)
	}
	for _, c := range r.containerOrder {
		containers = append(containers, c.statusResponse().Status)
	}
	return sandboxes, containers
}
