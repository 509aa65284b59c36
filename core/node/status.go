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

// pressures are the conditions of which eviction will know one day; until then there is none.
var pressures = []v1.NodeCondition{
	{Type: v1.NodeMemoryPressure, Status: v1.ConditionFalse, Reason: "KubeletHasSufficientMemory",
		Message: "kubelet has sufficient memory available"},
	{Type: v1.NodeDiskPressure, Status: v1.ConditionFalse, Reason: "KubeletHasNoDiskPressure",
		Message: "kubelet has no disk pressure"},
	{Type: v1.NodePIDPressure, Status: v1.ConditionFalse, Reason: "KubeletHasSufficientPID",
		Message: "kubelet has sufficient PID available"},
}

// status is what the status of the object shall be: what is the node's to say, over what is there.
// Of conditions it has the node's own only, Ready last. What is not known yet stays as it is.
func (n *Node) status(env *Env, fix bool) *v1.NodeStatus {
	s, is := &n.Settings, &v1.NodeStatus{}
	if n.Object != nil {
		is = &n.Object.Status
	}
	want := is.DeepCopy()
	want.Capacity, want.Allocatable = s.resources(env.Boot, is, fix)
	want.Addresses = s.addresses(env.Boot.Addresses, is.Addresses)
	want.DaemonEndpoints.KubeletEndpoint.Port = s.Port
	want.NodeInfo = s.info(env, &is.NodeInfo)
	want.DeclaredFeatures = nil // none of those that are to be declared is there yet
	if n.Images.Known {
		want.Images = n.Images.List
	}
	if !env.Runtime.AsOf.IsZero() {
		want.RuntimeHandlers = handlers(env.Runtime.Handlers)
	}
	if policy := env.Runtime.SupplementalGroupsPolicy; policy != nil {
		want.Features = &v1.NodeFeatures{SupplementalGroupsPolicy: policy}
	}
	want.Conditions = conditions(append(slices.Clone(pressures), env.ready(s)), is.Conditions,
		env.Out.Now())
	return want
}

// ready is the condition Ready, but for its times.
func (e *Env) ready(s *Settings) v1.NodeCondition {
	problems, network := e.Runtime.Unfit(e.Out.Now())
	if e.PLEG != "" {
		problems = append(problems, "PLEG is not healthy: "+e.PLEG)
	}
	problems = append(problems, network...)
	if s.LocalStorage && e.Boot.Machine.RootDirBytes == 0 {
		problems = append(problems, "missing node capacity for resources: ephemeral-storage")
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

// readiness is what a status says of being ready; empty if it says nothing.
func readiness(s *v1.NodeStatus) v1.ConditionStatus {
	if i := slices.IndexFunc(s.Conditions, ofType(v1.NodeReady)); i >= 0 {
		return s.Conditions[i].Status
	}
	return ""
}

func ofType(t v1.NodeConditionType) func(v1.NodeCondition) bool {
	return func(c v1.NodeCondition) bool { return c.Type == t }
}

// conditions gives conditions their times. One that says the same as before has changed when it
// did: that it is known from the object keeps it over a restart of the agent.
func conditions(want, are []v1.NodeCondition, now time.Time) []v1.NodeCondition {
	second := metav1.NewTime(now.Truncate(time.Second)) // JSON has no more
	for i := range want {
		c := &want[i]
		c.LastHeartbeatTime, c.LastTransitionTime = second, second
		at := slices.IndexFunc(are, ofType(c.Type))
		if at >= 0 && are[at].Status == c.Status && !are[at].LastTransitionTime.IsZero() {
			c.LastTransitionTime = are[at].LastTransitionTime
		}
	}
	return want
}

// addresses are the node's own. With an external cloud provider they are that one's to say; until
// it does, there are those of the command line. found are the machine's, are those of the object.
func (s *Settings) addresses(found []string, are []v1.NodeAddress) []v1.NodeAddress {
	if s.ExternalCloud && len(are) > 0 {
		return are
	}
	ips := s.IPs
	if len(ips) < 2 && !(s.ExternalCloud && len(ips) == 0) {
		ips = s.oneIP(found)
		if ips == nil {
			return are // none that others could reach it by
		}
	}
	var list []v1.NodeAddress
	for _, ip := range ips {
		list = append(list, v1.NodeAddress{Type: v1.NodeInternalIP, Address: ip})
	}
	return append(list, v1.NodeAddress{Type: v1.NodeHostName, Address: s.Name})
}

// oneIP is the address of the command line; or the first of those found, of the family that is
// asked for if there is one, as the kubelet reports one family only unless both are given.
func (s *Settings) oneIP(found []string) []string {
	if len(s.IPs) == 1 && !unspecified(s.IPs[0]) {
		return s.IPs
	}
	six := len(s.IPs) == 1 && s.IPs[0] == "::"
	for _, ip := range found {
		if strings.Contains(ip, ":") == six {
			return []string{ip}
		}
	}
	return found[:min(len(found), 1)]
}

// HostIPs are the addresses by which others reach the node, out of those that were found.
func (s *Settings) HostIPs(found []string) []string {
	if len(s.IPs) > 0 && !unspecified(s.IPs[0]) {
		return s.IPs
	}
	return found
}

// info is what the node runs on, and with.
func (s *Settings) info(env *Env, is *v1.NodeSystemInfo) v1.NodeSystemInfo {
	m := &env.Boot.Machine
	info := v1.NodeSystemInfo{
		MachineID: m.MachineID, SystemUUID: m.SystemUUID, BootID: env.Boot.BootID,
		KernelVersion: m.KernelVersion, OSImage: m.OSImage, KubeletVersion: s.Version,
		OperatingSystem: m.OperatingSystem, Architecture: m.Architecture,
		ContainerRuntimeVersion: is.ContainerRuntimeVersion,
	}
	if env.Runtime.Name != "" {
		info.ContainerRuntimeVersion = env.Runtime.Name + "://" + plainVersion(env.Runtime.Version)
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

// plainVersion is a version as the kubelet reports it: without a v, and without what
// distributions append.
func plainVersion(version string) string {
	for _, form := range []*regexp.Regexp{semanticVersion, versionNumber} {
		if parts := form.FindStringSubmatch(strings.TrimSpace(version)); parts != nil {
			return parts[1]
		}
	}
	return "Unknown"
}

// handlers are the ways in which the runtime runs pods, by name.
func handlers(are []runtime.Handler) []v1.NodeRuntimeHandler {
	var list []v1.NodeRuntimeHandler
	for _, h := range are {
		list = append(list, v1.NodeRuntimeHandler{Name: h.Name,
			Features: &v1.NodeRuntimeHandlerFeatures{
				RecursiveReadOnlyMounts: &h.RecursiveReadOnly, UserNamespaces: &h.UserNamespaces}})
	}
	slices.SortStableFunc(list, func(x, y v1.NodeRuntimeHandler) int {
		return strings.Compare(x.Name, y.Name)
	})
	return list
}
