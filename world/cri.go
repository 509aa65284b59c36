package world

import (
	"google.golang.org/protobuf/proto"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// The CRI port. The requests and responses of k8s.io/cri-api are the bodies: an effect carries
// *runtimeapi.XRequest, its completion *runtimeapi.XResponse. Errors of the runtime are mapped
// to kinds by their gRPC code.
//
// A request that the runtime's own semantics make idempotent (StopPodSandbox, StopContainer,
// RemovePodSandbox, RemoveContainer) succeeds for an object that does not exist, or answers
// KindNotFound; both mean the same.

// GetEventsRequest opens the stream of container events. While it is open the world speaks first:
// every event of the stream is an Event without an Op whose body is a *ContainerEventResponse. The
// operation is answered when the stream has ended, always with an Err: KindInvalid if the runtime
// does not offer it, and never with a body.

// criMessages are one request and one response of every call, for the registry of bodies.
var criMessages = []proto.Message{
	&runtimeapi.VersionRequest{}, &runtimeapi.VersionResponse{},
	&runtimeapi.StatusRequest{}, &runtimeapi.StatusResponse{},
	&runtimeapi.RuntimeConfigRequest{}, &runtimeapi.RuntimeConfigResponse{},
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
	&runtimeapi.ExecSyncRequest{}, &runtimeapi.ExecSyncResponse{},
	&runtimeapi.ReopenContainerLogRequest{}, &runtimeapi.ReopenContainerLogResponse{},
	&runtimeapi.GetEventsRequest{}, &runtimeapi.ContainerEventResponse{},
	&runtimeapi.ImageStatusRequest{}, &runtimeapi.ImageStatusResponse{},
	&runtimeapi.PullImageRequest{}, &runtimeapi.PullImageResponse{},
	&runtimeapi.ListImagesRequest{}, &runtimeapi.ListImagesResponse{},
}
