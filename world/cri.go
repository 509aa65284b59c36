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
	&runtimeapi.ImageStatusRequest{}, &runtimeapi.ImageStatusResponse{},
	&runtimeapi.PullImageRequest{}, &runtimeapi.PullImageResponse{},
}
