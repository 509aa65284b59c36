package cri

import (
	"fmt"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// checkComplete returns an error if a response lacks a field that identifies its object. Such a
// runtime is broken; the core gets the error, and relists.
func checkComplete(response any) error {
	var missing string
	switch m := response.(type) {
	case *runtimeapi.RunPodSandboxResponse:
		missing = missingUnless(m.PodSandboxId != "", "podSandboxId")
	case *runtimeapi.CreateContainerResponse:
		missing = missingUnless(m.ContainerId != "", "containerId")
	case *runtimeapi.PodSandboxStatusResponse:
		s := m.Status
		missing = missingUnless(s.GetId() != "" && s.GetMetadata().GetName() != "",
			"status.id or status.metadata")
	case *runtimeapi.ContainerStatusResponse:
		s := m.Status
		missing = missingUnless(s.GetId() != "" && s.GetMetadata().GetName() != "",
			"status.id or status.metadata")
	case *runtimeapi.ContainerEventResponse:
		missing = missingUnless(m.ContainerId != "", "containerId")
	case *runtimeapi.ListPodSandboxResponse:
		for _, s := range m.Items {
			if s.GetId() == "" || s.GetMetadata() == nil {
				missing = "id or metadata of a sandbox"
			}
		}
	case *runtimeapi.ListContainersResponse:
		for _, c := range m.Containers {
			if c.GetId() == "" || c.GetMetadata() == nil {
				missing = "id or metadata of a container"
			}
		}
	}
	if missing == "" {
		return nil
	}
	return fmt.Errorf("the runtime's answer has no %s", missing)
}

// checkSubject returns an error if a response is about another object than its request. The core
// would take the exit code, the addresses or the mounts of that object for those of its own. Stats
// may come without an ID, which is no sign of another object.
func checkSubject(request, response any) error {
	var asked, got string
	switch m := request.(type) {
	case *runtimeapi.PodSandboxStatusRequest:
		asked = m.PodSandboxId
		got = response.(*runtimeapi.PodSandboxStatusResponse).GetStatus().GetId()
	case *runtimeapi.ContainerStatusRequest:
		asked = m.ContainerId
		got = response.(*runtimeapi.ContainerStatusResponse).GetStatus().GetId()
	case *runtimeapi.ContainerStatsRequest:
		asked = m.ContainerId
		got = response.(*runtimeapi.ContainerStatsResponse).GetStats().GetAttributes().GetId()
	}
	if got == asked || got == "" {
		return nil
	}
	return fmt.Errorf("the runtime was asked about %q, and has answered about %q", asked, got)
}

func missingUnless(ok bool, missing string) string {
	if ok {
		return ""
	}
	return missing
}
