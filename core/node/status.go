package node

import (
	"regexp"
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"seedlet.dev/core/runtime"
)

// noPressureConditions are the pressure conditions of a node without pressure.
var noPressureConditions = []v1.NodeCondition{
	{Type: v1.NodeMemoryPressure, Status: v1.ConditionFalse, Reason: "KubeletHasSufficientMemory",
		Message: "kubelet has sufficient memory available"},
	{Type: v1.NodeDiskPressure, Status: v1.ConditionFalse, Reason: "KubeletHasNoDiskPressure",
		Message: "kubelet has no disk pressure"},
	{Type: v1.NodePIDPressure, Status: v1.ConditionFalse, Reason: "KubeletHasSufficientPID",
		Message: "kubelet has sufficient PID available"},
}

// desiredStatus returns the status that the object should have: the current status with the fields
// that the node sets. Its conditions are only those of the node, Ready last. Fields whose value is
// not known yet stay as they are.
func (n *Node) desiredStatus(env *Env, reconcile bool) *v1.NodeStatus {
	s, current := &n.Settings, &v1.NodeStatus{}
	if n.Object != nil {
		current = &n.Object.Status
	}
	desired := current.DeepCopy()
	desired.Capacity, desired.Allocatable = s.resources(env.Boot, current, reconcile)
	desired.Addresses = s.addresses(env.Boot, current.Addresses)
	desired.DaemonEndpoints.KubeletEndpoint.Port = s.Port
	desired.NodeInfo = s.systemInfo(env, &current.NodeInfo)
	desired.DeclaredFeatures = slices.Clone(s.DeclaredFeatures)
	if n.Images.Listed {
		desired.Images = n.Images.List
	}
	if !env.Runtime.AsOf.IsZero() {
		desired.RuntimeHandlers = runtimeHandlers(env.Runtime.Handlers)
	}
	if env.VolumesInUse != nil && n.Object != nil && !env.Effects.Now().Before(n.LesserUntil) {
		if names, known := env.VolumesInUse(n.Object); known {
			desired.VolumesInUse = names
		}
	}
	if policy := env.Runtime.SupplementalGroupsPolicy; policy != nil {
		desired.Features = &v1.NodeFeatures{SupplementalGroupsPolicy: policy}
	}
	desired.Conditions = setConditionTimes(
		append(env.pressureConditions(current.Conditions), env.readyCondition(s)), current.Conditions,
		env.Effects.Date())
	return desired
}

// pressureConditions returns the pressure conditions without their times. Before the node was
// observed they stay as they are. Upstream: pkg/kubelet/nodestatus/setters.go.
func (e *Env) pressureConditions(current []v1.NodeCondition) []v1.NodeCondition {
	all := slices.Clone(noPressureConditions)
	for i := range all {
		at := slices.IndexFunc(current, hasType(all[i].Type))
		wasTrue := at >= 0 && current[at].Status == v1.ConditionTrue
		if slices.Contains(e.Pressure, all[i].Type) || e.PressureUnknown && wasTrue {
			all[i] = pressureCondition(all[i].Type)
		}
	}
	return all
}

// pressureCondition returns a pressure condition that is true.
func pressureCondition(t v1.NodeConditionType) v1.NodeCondition {
	c := v1.NodeCondition{Type: t, Status: v1.ConditionTrue}
	switch t {
	case v1.NodeMemoryPressure:
		c.Reason, c.Message = "KubeletHasInsufficientMemory",
			"kubelet has insufficient memory available"
	case v1.NodeDiskPressure:
		c.Reason, c.Message = "KubeletHasDiskPressure", "kubelet has disk pressure"
	default:
		c.Reason, c.Message = "KubeletHasInsufficientPID", "kubelet has insufficient PID available"
	}
	return c
}

// readyCondition returns the Ready condition without its times.
func (e *Env) readyCondition(s *Settings) v1.NodeCondition {
	problems, network := e.Runtime.ReadinessProblems(e.Effects.Now())
	if e.PLEGProblem != "" {
		problems = append(problems, "PLEG is not healthy: "+e.PLEGProblem)
	}
	problems = append(problems, network...)
	if s.LocalStorage && e.Boot.Machine.RootDirBytes == 0 {
		problems = append(problems, "missing node capacity for resources: ephemeral-storage")
	}
	if e.Shutdown != "" {
		problems = append(problems, e.Shutdown)
	}
	c := v1.NodeCondition{Type: v1.NodeReady, Status: v1.ConditionTrue, Reason: "KubeletReady",
		Message: "kubelet is posting ready status"}
	if len(problems) > 0 {
		c.Status, c.Reason, c.Message = v1.ConditionFalse, "KubeletNotReady", problems[0]
	}
	if len(problems) > 1 {
		c.Message = "[" + strings.Join(problems, ", ") + "]"
	}
	return c
}

// readyStatus returns the status of the Ready condition; empty without one.
func readyStatus(s *v1.NodeStatus) v1.ConditionStatus {
	if i := slices.IndexFunc(s.Conditions, hasType(v1.NodeReady)); i >= 0 {
		return s.Conditions[i].Status
	}
	return ""
}

func hasType(t v1.NodeConditionType) func(v1.NodeCondition) bool {
	return func(c v1.NodeCondition) bool { return c.Type == t }
}

// setConditionTimes sets the times of conditions. A condition with an unchanged status keeps its
// transition time from the object, so also over a restart of the agent.
func setConditionTimes(desired, current []v1.NodeCondition, now time.Time) []v1.NodeCondition {
	second := metav1.NewTime(now.Truncate(time.Second)) // the precision of the API
	for i := range desired {
		c := &desired[i]
		c.LastHeartbeatTime, c.LastTransitionTime = second, second
		at := slices.IndexFunc(current, hasType(c.Type))
		if at >= 0 && current[at].Status == c.Status && !current[at].LastTransitionTime.IsZero() {
			c.LastTransitionTime = current[at].LastTransitionTime
		}
	}
	return desired
}

// systemInfo returns the software and hardware of the node.
func (s *Settings) systemInfo(env *Env, current *v1.NodeSystemInfo) v1.NodeSystemInfo {
	m := &env.Boot.Machine
	info := v1.NodeSystemInfo{
		MachineID: m.MachineID, SystemUUID: m.SystemUUID, BootID: env.Boot.BootID,
		KernelVersion: m.KernelVersion, OSImage: m.OSImage, KubeletVersion: s.Version,
		OperatingSystem: m.OperatingSystem, Architecture: m.Architecture,
		ContainerRuntimeVersion: current.ContainerRuntimeVersion,
	}
	if env.Runtime.Name != "" {
		info.ContainerRuntimeVersion = env.Runtime.Name + "://" + normalizeVersion(env.Runtime.Version)
	}
	if m.SwapBytes > 0 {
		info.Swap = &v1.NodeSwapStatus{Capacity: &m.SwapBytes}
	}
	return info
}

var (
	semanticVersion = regexp.MustCompile(
		`^v?(\d+\.\d+\.\d+(-[0-9A-Za-z.-]+)?(\+[0-9A-Za-z.-]+)?)$`)
	versionNumber = regexp.MustCompile(`^v?(\d+(\.\d+)*)`)
)

// normalizeVersion returns a version as the kubelet reports it: without the letter v and suffixes
// of distributions.
func normalizeVersion(version string) string {
	for _, pattern := range []*regexp.Regexp{semanticVersion, versionNumber} {
		if parts := pattern.FindStringSubmatch(strings.TrimSpace(version)); parts != nil {
			return parts[1]
		}
	}
	return "Unknown"
}

// runtimeHandlers returns the handlers of the runtime by name.
func runtimeHandlers(handlers []runtime.Handler) []v1.NodeRuntimeHandler {
	var list []v1.NodeRuntimeHandler
	for _, h := range handlers {
		list = append(list, v1.NodeRuntimeHandler{Name: h.Name,
			Features: &v1.NodeRuntimeHandlerFeatures{
				RecursiveReadOnlyMounts: &h.RecursiveReadOnly, UserNamespaces: &h.UserNamespaces}})
	}
	slices.SortStableFunc(list, func(x, y v1.NodeRuntimeHandler) int {
		return strings.Compare(x.Name, y.Name)
	})
	return list
}
