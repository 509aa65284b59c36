package cri

import (
	"fmt"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// incomplete reports what an answer lacks without which the core could not name what it is
// about. A runtime that answers so is broken; the core is told, and looks again.
func incomplete(response any) error {
	var missing string
	switch m := response.(type) {
	case *runtimeapi.RunPodSandboxResponse:
		missing = unless(m.PodSandboxId != "", "podSandboxId")
	case *runtimeapi.CreateContainerResponse:
		missing = unless(m.ContainerId != "", "containerId")
	case *runtimeapi.PodSandboxStatusResponse:
		s := m.Status
		missing = unless(s.GetId() != "" && s.GetMetadata().GetName() != "",
			"status.id or status.metadata")
	case *runtimeapi.ContainerStatusResponse:
		s := m.Status
		missing = unless(s.GetId() != "" && s.GetMetadata().GetName() != "",
			"status.id or status.metadata")
	case *runtimeapi.ContainerEventResponse:
		missing = unless(m.ContainerId != "", "containerId")
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

func unless(ok bool, missing string) string {
	if ok {
		return ""
	}
	return missing
}
