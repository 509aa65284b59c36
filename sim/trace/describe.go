package trace

import (
	"cmp"
	"encoding/json"
	"fmt"
	"reflect"
	"strings"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"seedlet.dev/sim/plan"
	"seedlet.dev/sim/truth"
	"seedlet.dev/world"
)

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
	case *world.RunISCSIAdm:
		return strings.Join(b.Args, " ")
	case *world.SCSIDisksFound:
		return describeDisks(b)
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
	case *world.GetPluginInfo:
		return b.Socket.Path
	case *world.PluginInfo:
		return b.Type + " " + b.Name
	case *world.NotifyPluginRegistration:
		return strings.TrimSpace(fmt.Sprintf("%s %v %s", b.Socket.Path, b.Registered, b.Error))
	case *world.PluginSocketsObserved:
		return fmt.Sprintf("%d sockets", len(b.Sockets))
	case *world.FetchManifest:
		return b.URL
	case *world.ManifestFetched:
		return fmt.Sprintf("%d bytes", len(b.Doc))
	case *world.ReadFiles:
		return b.Path
	case *world.FilesRead:
		return fmt.Sprintf("%d files", len(b.Files))
	case *world.ListDir:
		return b.Path
	case *world.DirListed:
		return fmt.Sprintf("%d entries", len(b.Entries))
	case *world.MeasureFiles:
		return fmt.Sprintf("%d files", len(b.Paths))
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
		return strings.TrimSpace(fmt.Sprintf("%d pods %s", len(pods), strings.Join(pods, ", ")))
	case *world.Log:
		text := b.Message
		for i := 0; i+1 < len(b.Fields); i += 2 {
			text += fmt.Sprintf(" %v=%v", b.Fields[i], b.Fields[i+1])
		}
		return text
	}
	return describeContainer(body)
}

// describeDisks describes the sessions with a target, and their disks.
func describeDisks(found *world.SCSIDisksFound) string {
	var sessions []string
	for _, s := range found.Paths {
		sessions = append(sessions, fmt.Sprintf("host%d %s %s %s", s.Host,
			strings.Join(s.Portals, ","), s.Iface, s.Device.Path))
	}
	return strings.Join(sessions, "; ")
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
	case *world.VolumeStatsAnswer:
		return fmt.Sprintf("%d volumes", len(b.Volumes))
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
		return strings.TrimSpace(fmt.Sprintf("%d cgroups %s", len(b.Names), strings.Join(b.Names, " ")))
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
	return describeFields(body)
}

// describeFields describes a body by those of its fields that have a value: texts and numbers as
// they are, lists and bytes by their lengths.
func describeFields(body any) string {
	v := reflect.ValueOf(body)
	if v.Kind() != reflect.Pointer || v.IsNil() || v.Elem().Kind() != reflect.Struct {
		return ""
	}
	v = v.Elem()
	var parts []string
	for i := range v.NumField() {
		field, name := v.Field(i), v.Type().Field(i).Name
		if !v.Type().Field(i).IsExported() || field.IsZero() {
			continue
		}
		text := ""
		switch field.Kind() {
		case reflect.String, reflect.Bool, reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32,
			reflect.Int64, reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64,
			reflect.Float64:
			text = fmt.Sprint(field.Interface())
			if name == "Token" {
				text = "…"
			}
		case reflect.Slice, reflect.Map, reflect.Array:
			text = fmt.Sprintf("[%d]", field.Len())
		default:
			text = "…"
		}
		parts = append(parts, lowerFirst(name)+"="+shortText(text))
	}
	return strings.Join(parts, " ")
}

func lowerFirst(name string) string { return strings.ToLower(name[:1]) + name[1:] }

// textMax bounds the text of one field.
const textMax = 120

func shortText(text string) string {
	if len(text) <= textMax {
		return text
	}
	return text[:textMax] + "…"
}

// shortID returns the beginning of an ID, which distinguishes it from others.
func shortID(id string) string {
	if len(id) > 12 {
		return id[:12]
	}
	return id
}

// describeFact returns what a fact says beyond its kind.
func describeFact(f *truth.Fact) string {
	var parts []string
	add := func(text string) {
		if text != "" {
			parts = append(parts, text)
		}
	}
	if f.PodName != "" {
		add(strings.TrimSuffix(f.PodName+"/"+f.Container, "/"))
	}
	switch {
	case f.ContainerID != "":
		add(shortID(f.ContainerID))
	case f.SandboxID != "":
		add(shortID(f.SandboxID))
	}
	switch f.Kind {
	case truth.ContainerExited:
		add(fmt.Sprintf("exit %d", f.ExitCode))
	case truth.StopRequested:
		add(fmt.Sprintf("grace %ds", f.GraceSeconds))
	case truth.LayerResized, truth.LayerFreed:
		add(fmt.Sprintf("%d bytes", f.Bytes))
	case truth.SystemOOM:
		add(f.Message)
	case truth.PluginStarted:
		add(fmt.Sprintf("%s %.70s %.8q %s", f.Plugin.Type, f.Plugin.Name, f.Plugin.Versions,
			f.Plugin.File))
	case truth.PluginNotified:
		add(fmt.Sprint("registered ", f.IsRegistered))
		add(shortText(f.Message))
	case truth.EventRecorded:
		add(f.Reason)
		add(shortText(f.Message))
	}
	if f.Attempt > 0 {
		add(fmt.Sprintf("attempt %d", f.Attempt))
	}
	for _, text := range []string{f.Cause, f.Request, string(f.Reply), f.Path, f.NewPath, f.Image} {
		add(text)
	}
	if w := f.Write; w != nil {
		add(strings.Trim(fmt.Sprintf("%s %s/%s", w.Resource, w.Namespace, w.Name), "/ "))
		if pod := w.After.Pod; pod != nil {
			add(string(pod.Status.Phase))
			add(pod.Status.Reason)
		}
		add("by " + cmp.Or(w.Client, "the agent"))
	}
	return strings.Join(parts, " ")
}

// describeDeed returns the fields of a deed as the plan's file has them.
func describeDeed(deed plan.Deed) string {
	data, err := json.Marshal(deed)
	if err != nil {
		return err.Error()
	}
	text := strings.NewReplacer(`":`, " ", `"`, "", "{", "", "}", "", ",", " ").Replace(string(data))
	return shortText(text)
}
