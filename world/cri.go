package world

import (
	"google.golang.org/protobuf/proto"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// The CRI port. Its bodies are the requests and responses of k8s.io/cri-api: an effect carries a
// *runtimeapi.XRequest, its completion a *runtimeapi.XResponse. The port maps errors of the runtime
// to kinds by their gRPC code.
//
// StopPodSandbox, StopContainer, RemovePodSandbox and RemoveContainer are idempotent by the CRI's
// definition. For an object that does not exist they either succeed or fail with KindNotFound; both
// mean the same.

// RemoveImage removes an image with all its tags, and succeeds if the runtime does not have it. The
// runtime does not refuse it for an image that a container uses: that container runs on, and no
// other can be created before the next pull. A pinned image is removed as well.

// GetEventsRequest opens the stream of container events. Every event of the stream is an Event
// without an Op whose body is a *ContainerEventResponse. The operation completes when the stream
// ends, always with an Err and never with a body. The Err is KindInvalid if the runtime does not
// support the stream.

// criMessages are the request and the response of every CRI call that the agent uses, for the
// registry of bodies.
var criMessages = []proto.Message{
	&runtimeapi.VersionRequest{}, &runtimeapi.VersionResponse{},
	&runtimeapi.StatusRequest{}, &runtimeapi.StatusResponse{},
	&runtimeapi.RuntimeConfigRequest{}, &runtimeapi.RuntimeConfigResponse{},
	&runtimeapi.UpdateRuntimeConfigRequest{}, &runtimeapi.UpdateRuntimeConfigResponse{},
	&runtimeapi.RunPodSandboxRequest{}, &runtimeapi.RunPodSandboxResponse{},
	&runtimeapi.StopPodSandboxRequest{}, &runtimeapi.StopPodSandboxResponse{},
	&runtimeapi.RemovePodSandboxRequest{}, &runtimeapi.RemovePodSandboxResponse{},
	&runtimeapi.PodSandboxStatusRequest{}, &runtimeapi.PodSandboxStatusResponse{},
	&runtimeapi.ListPodSandboxRequest{}, &runtimeapi.ListPodSandboxResponse{},
	&runtimeapi.CreateContainerRequest{}, &runtimeapi.CreateContainerResponse{},
	&runtimeapi.StartContainerRequest{}, &runtimeapi.StartContainerResponse{},
	&runtimeapi.StopContainerRequest{}, &runtimeapi.StopContainerResponse{},
	&runtimeapi.RemoveContainerRequest{}, &runtimeapi.RemoveContainerResponse{},
	&runtimeapi.ListContainersRequest{}, &runtimeapi.ListContainersResponse{},
	&runtimeapi.ContainerStatusRequest{}, &runtimeapi.ContainerStatusResponse{},
	&runtimeapi.UpdateContainerResourcesRequest{}, &runtimeapi.UpdateContainerResourcesResponse{},
	&runtimeapi.UpdatePodSandboxResourcesRequest{}, &runtimeapi.UpdatePodSandboxResourcesResponse{},
	&runtimeapi.ContainerStatsRequest{}, &runtimeapi.ContainerStatsResponse{},
	&runtimeapi.ExecSyncRequest{}, &runtimeapi.ExecSyncResponse{},
	&runtimeapi.ReopenContainerLogRequest{}, &runtimeapi.ReopenContainerLogResponse{},
	&runtimeapi.GetEventsRequest{}, &runtimeapi.ContainerEventResponse{},
	&runtimeapi.ListPodSandboxStatsRequest{}, &runtimeapi.ListPodSandboxStatsResponse{},
	&runtimeapi.ImageStatusRequest{}, &runtimeapi.ImageStatusResponse{},
	&runtimeapi.PullImageRequest{}, &runtimeapi.PullImageResponse{},
	&runtimeapi.ListImagesRequest{}, &runtimeapi.ListImagesResponse{},
	&runtimeapi.RemoveImageRequest{}, &runtimeapi.RemoveImageResponse{},
	&runtimeapi.ImageFsInfoRequest{}, &runtimeapi.ImageFsInfoResponse{},
}
