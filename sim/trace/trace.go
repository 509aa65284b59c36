// Package trace prints the steps of a run as aligned lines that people read and grep.
//
// Start reading at Printer.
package trace

import (
	"fmt"
	"strings"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"seedlet.dev/sim"
	"seedlet.dev/sim/plan"
	"seedlet.dev/world"
)

// Printer prints the steps of a run, a line for each event and each effect:
//
//	#12     0:01.004318  1  ← ListContainers        #4  3 containers
//	                        → StopContainer         #9  c-ab12… grace 30s
//
// The columns are the event's number, the virtual time, the incarnation of the agent, the
// direction, the call, the operation, and the essential parts of the body. Set Write before use.
type Printer struct {
	Write func(line string)

	calls       map[world.OpID]string // by operation in flight
	incarnation int
}

// Step writes the lines of one step. It fits sim.Options.Watch.
func (t *Printer) Step(s sim.Step) {
	if s.Incarnation != t.incarnation {
		t.incarnation, t.calls = s.Incarnation, map[world.OpID]string{}
		t.Write(fmt.Sprintf("%-7s %13s %2d  the agent starts", "", virtualTime(s.Event.Time),
			s.Incarnation))
	}
	call, known := t.calls[s.Event.Op]
	delete(t.calls, s.Event.Op)
	switch {
	case known:
	case s.Event.Body == nil && s.Event.Op == 0:
		call = "wake"
	default:
		call = world.BodyName(s.Event.Body)
	}
	t.line(fmt.Sprintf("#%d", s.Number), virtualTime(s.Event.Time), fmt.Sprint(s.Incarnation),
		"←", call, s.Event.Op, outcome(s.Event))
	for _, eff := range s.Effects {
		name := world.CallName(eff.Body)
		if eff.Op != 0 {
			t.calls[eff.Op] = name
		}
		t.line("", "", "", "→", name, eff.Op, describe(eff.Body))
	}
}

func (t *Printer) line(number, at, incarnation, arrow, call string, op world.OpID, text string) {
	id := ""
	if op != 0 {
		id = fmt.Sprintf("#%d", op)
	}
	t.Write(strings.TrimRight(fmt.Sprintf("%-7s %13s %2s  %s %-18s %-7s %s", number, at,
		incarnation, arrow, call, id, text), " "))
}

// virtualTime returns the time since the start of the run, in minutes and seconds.
func virtualTime(t time.Time) string {
	d := t.Sub(plan.Start)
	return fmt.Sprintf("%d:%09.6f", int(d.Minutes()), (d % time.Minute).Seconds())
}

// outcome describes the body of an event, or its error.
func outcome(ev world.Event) string {
	if ev.Err != nil {
		return ev.Err.Error()
	}
	if ev.Body == nil {
		return ""
	}
	return describe(ev.Body)
}

// describe returns the essential parts of a body in a few words; empty if it knows none.
func describe(body any) string {
	switch b := body.(type) {
	case *runtimeapi.ListPodSandboxResponse:
		return fmt.Sprintf("%d sandboxes", len(b.Items))
	case *runtimeapi.ListContainersResponse:
		return fmt.Sprintf("%d containers", len(b.Containers))
	case *runtimeapi.RunPodSandboxRequest:
		m := b.Config.Metadata
		return fmt.Sprintf("%s/%s attempt %d", m.Namespace, m.Name, m.Attempt)
	case *runtimeapi.RunPodSandboxResponse:
		return shortID(b.PodSandboxId)
	case *runtimeapi.CreateContainerRequest:
		m := b.Config.Metadata
		return fmt.Sprintf("%s/%s attempt %d in %s", b.SandboxConfig.GetMetadata().GetName(),
			m.Name, m.Attempt, shortID(b.PodSandboxId))
	case *runtimeapi.CreateContainerResponse:
		return shortID(b.ContainerId)
	case *runtimeapi.StartContainerRequest:
		return shortID(b.ContainerId)
	case *runtimeapi.StopContainerRequest:
		return fmt.Sprintf("%s grace %ds", shortID(b.ContainerId), b.Timeout)
	case *runtimeapi.RemoveContainerRequest:
		return shortID(b.ContainerId)
	case *runtimeapi.StopPodSandboxRequest:
		return shortID(b.PodSandboxId)
	case *runtimeapi.RemovePodSandboxRequest:
		return shortID(b.PodSandboxId)
	case *runtimeapi.PodSandboxStatusRequest:
		return shortID(b.PodSandboxId)
	case *runtimeapi.ContainerStatusRequest:
		return shortID(b.ContainerId)
	case *runtimeapi.ExecSyncRequest:
		return shortID(b.ContainerId) + " " + strings.Join(b.Cmd, " ")
	case *runtimeapi.ExecSyncResponse:
		return fmt.Sprintf("exit %d", b.ExitCode)
	case *runtimeapi.ContainerStatusResponse:
		s := b.GetStatus()
		return fmt.Sprintf("%s exit %d %s", s.GetState(), s.GetExitCode(), s.GetReason())
	}
	return describeOther(body)
}

// describeOther describes the bodies that are not about containers and sandboxes of the runtime.
func describeOther(body any) string {
	switch b := body.(type) {
	case *runtimeapi.ImageStatusRequest:
		return b.GetImage().GetImage()
	case *runtimeapi.PullImageRequest:
		return b.GetImage().GetImage()
	case *world.HTTPGet:
		return fmt.Sprintf("%s://%s:%d%s", b.Scheme, b.Host, b.Port, b.Path)
	case *world.HTTPGot:
		return fmt.Sprint(b.Status)
	case *world.TCPConnect:
		return fmt.Sprintf("%s:%d", b.Host, b.Port)
	case *world.GRPCCheck:
		return fmt.Sprintf("%s:%d %s", b.Host, b.Port, b.Service)
	case *world.GRPCChecked:
		return b.Status
	case *world.FetchManifest:
		return b.URL
	case *world.ManifestFetched:
		return fmt.Sprintf("%d bytes", len(b.Data))
	case *world.ReadFiles:
		return b.Path
	case *world.FilesRead:
		return fmt.Sprintf("%d files", len(b.Files))
	case *world.ListDir:
		return b.Path
	case *world.DirListed:
		return fmt.Sprintf("%d entries", len(b.Entries))
	case *world.MakeDir:
		return b.Path
	case *world.RemoveTree:
		return b.Path
	case *world.WriteFile:
		return fmt.Sprintf("%s, %d bytes", b.Path, len(b.Data))
	case *world.Watch:
		return b.Path
	case *world.FileChanged:
		return b.Path
	case *world.PodsAnswer:
		var pods []string
		for _, pod := range b.Pods {
			pods = append(pods, pod.Name+" "+string(pod.Status.Phase))
		}
		return strings.Join(pods, ", ")
	case *world.Log:
		text := b.Message
		for i := 0; i+1 < len(b.Fields); i += 2 {
			text += fmt.Sprintf(" %v=%v", b.Fields[i], b.Fields[i+1])
		}
		return text
	}
	return describeContainer(body)
}

// describeContainer describes a client's request for a container or for the running pods, and the
// response.
func describeContainer(body any) string {
	switch b := body.(type) {
	case *world.ContainerRequest:
		return fmt.Sprintf("%s/%s %s uid %q", b.Namespace, b.Pod, b.Container, b.UID)
	case *world.ContainerAnswer:
		if b.Err != nil {
			return b.Err.Error()
		}
		return fmt.Sprintf("uid %s %s sandbox %s container %s", b.UID, b.Phase, shortID(b.SandboxID),
			shortID(b.ContainerID))
	case *world.RunningPodsAnswer:
		return fmt.Sprintf("%d pods", len(b.Pods))
	}
	return describeCgroup(body)
}

// describeCgroup describes a call about a cgroup, and its response.
func describeCgroup(body any) string {
	switch b := body.(type) {
	case *world.SetCgroup:
		return fmt.Sprintf("%s shares %d quota %d memory %d", b.Path, b.CPUShares, b.CPUQuota,
			b.MemoryBytes)
	case *world.RemoveCgroup:
		return b.Path
	case *world.ListCgroups:
		return b.Path
	case *world.CgroupsListed:
		return strings.Join(b.Names, " ")
	case *world.MachineRead:
		return fmt.Sprintf("%d CPUs, %d bytes, %s", b.CPUs, b.MemoryBytes, b.Addresses)
	}
	return describeObject(body)
}

// describeObject describes a call about objects of the API server, its response, and watch events.
func describeObject(body any) string {
	path := func(r world.Resource, namespace, name string) string {
		return strings.Trim(fmt.Sprintf("%s %s/%s", r, namespace, name), "/ ")
	}
	summary := func(o *world.Object) string {
		r, meta := o.Meta()
		if meta == nil {
			return "nothing"
		}
		text := path(r, meta.GetNamespace(), meta.GetName()) + " v" + meta.GetResourceVersion()
		if o.Pod != nil {
			text += " " + string(o.Pod.Status.Phase)
		}
		if meta.GetDeletionTimestamp() != nil {
			text += " marked"
		}
		return text
	}
	switch b := body.(type) {
	case *world.WatchObjects:
		return path(b.Resource, b.Namespace, b.Name)
	case *world.ObjectsListed:
		return fmt.Sprintf("watch %d: %d objects", b.Watch, len(b.Objects))
	case *world.ObjectChanged:
		return summary(&b.Object)
	case *world.ObjectGone:
		return summary(&b.Object)
	case *world.WatchFailing:
		return fmt.Sprintf("watch %d: %v", b.Watch, b.Err)
	case *world.GetObject:
		return path(b.Resource, b.Namespace, b.Name)
	case *world.ObjectRead:
		return summary(&b.Object)
	case *world.CreateObject:
		return summary(&b.Object)
	case *world.UpdateObject:
		return summary(&b.Object)
	case *world.PatchObject:
		return path(b.Resource, b.Namespace, b.Name) + " " + string(b.Patch)
	case *world.DeleteObject:
		return path(b.Resource, b.Namespace, b.Name)
	case *world.CreateToken:
		return path("serviceaccounts", b.Namespace, b.ServiceAccount)
	}
	return ""
}

// shortID returns the beginning of an ID, which distinguishes it from others.
func shortID(id string) string {
	if len(id) > 12 {
		return id[:12]
	}
	return id
}
