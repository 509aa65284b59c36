// Package admission decides whether a pod fits the node.
//
// It has no state: the decision is a function of the pod, the node and the other pods. The reasons
// and messages are those of the kubelet, in the kubelet's order, because people and programs read
// them in the status of the pod. Start reading at Check.Failures; preempt.go chooses the pods that
// a critical pod preempts.
package admission

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/go-logr/logr"
	v1 "k8s.io/api/core/v1"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"
)

// Failure is one reason why a pod does not fit, as its status has it.
type Failure struct {
	Reason  string
	Message string
	// Shortage is what the node lacks, if that is the reason.
	Shortage Shortage
}

// CausedByOtherPods reports whether a pod does not fit because of what other pods use.
func CausedByOtherPods(f Failure) bool {
	return f.Shortage.Resource != "" || f.Reason == reasonNodePorts
}

// CausedByNode reports whether the labels or taints of the Node are the reason why a pod does not
// fit. What is known of them may be older than the pod.
func CausedByNode(f Failure) bool {
	return f.Reason == reasonNodeAffinity || f.Reason == reasonTaints
}

// The reasons if the pod's node selector or affinity does not match the Node, and if the pod does
// not tolerate a taint of effect NoExecute.
const (
	reasonNodeAffinity = "NodeAffinity"
	reasonTaints       = "TaintToleration"
)

// reasonNodePorts is the reason if another pod uses the same port of the host.
const reasonNodePorts = "NodePorts"

// Shortage is an amount of a resource: in thousandths for CPU, else in bytes or pieces.
type Shortage struct {
	Resource v1.ResourceName
	Amount   int64
}

// Check is the check of one pod against the node and its other pods.
type Check struct {
	Pod    *v1.Pod
	Static bool // static pods tolerate all taints
	// Node has the labels and taints. It is nil while the Node at the API server is not known; then
	// they are not checked.
	Node        *v1.Node
	Allocatable v1.ResourceList
	OtherPods   []*v1.Pod // those that are admitted and not terminal
	Requests    Requests  // of other pods, as far as they are known, and their host ports
	// StrictGroups reports whether the runtime gives processes no groups beside those of the spec.
	StrictGroups bool
}

// Work returns what a check counts as work of a step, in bytes: it looks at all other pods, and for
// a host port in several places.
func (c *Check) Work() int {
	const workOfPod, workOfPort = 64, 1 << 10
	ports := 0
	for _, list := range [][]v1.Container{c.Pod.Spec.InitContainers, c.Pod.Spec.Containers} {
		for i := range list {
			ports += len(list[i].Ports)
		}
	}
	return len(c.OtherPods)*workOfPod + ports*workOfPort
}

// Failures returns the reasons why the pod does not fit, in the kubelet's order; none if it fits.
func (c *Check) Failures() []Failure {
	if failure := c.mismatch(); failure != (Failure{}) {
		return []Failure{failure}
	}
	failures := c.insufficientResources()
	if c.Node != nil {
		if fits, err := nodeaffinity.GetRequiredNodeAffinity(c.Pod).Match(c.Node); !fits || err != nil {
			failures = append(failures, predicateFailure(reasonNodeAffinity,
				"didn't match Pod's node affinity/selector"))
		}
		if name := c.Pod.Spec.NodeName; name != "" && name != c.Node.Name {
			failures = append(failures, predicateFailure("NodeName",
				"didn't match the requested node name"))
		}
	}
	if c.hasHostPortConflict() {
		failures = append(failures, predicateFailure(reasonNodePorts,
			"didn't have free ports for the requested pod ports"))
	}
	if c.Node != nil && !c.Static && !c.toleratesTaints() {
		failures = append(failures, predicateFailure(reasonTaints,
			"had taints that the pod didn't tolerate"))
	}
	return failures
}

// predicateFailure returns the failure of a check of the scheduler, in the scheduler's words.
func predicateFailure(name, why string) Failure {
	return Failure{Reason: name, Message: "Predicate " + name + " failed: node(s) " + why}
}

// OSMismatch returns why no node of this operating system can run the pod; the zero value if it
// can. Like the kubelet, it looks at the label of the pod for the operating system, not at its
// selector.
func OSMismatch(pod *v1.Pod) Failure {
	if os, isLabeled := pod.Labels[v1.LabelOSStable]; isLabeled && os != string(v1.Linux) {
		return Failure{Reason: "PodOSSelectorNodeLabelDoesNotMatch", Message: "Failed to " +
			"admit pod as the `kubernetes.io/os` label doesn't match node label"}
	}
	if os := pod.Spec.OS; os != nil && os.Name != v1.Linux {
		return Failure{Reason: "PodOSNotSupported",
			Message: "Failed to admit pod as the OS field doesn't match node OS"}
	}
	return Failure{}
}

// mismatch returns why no node like this one can run the pod, whatever else runs there; the zero
// value if it can.
func (c *Check) mismatch() Failure {
	if failure := OSMismatch(c.Pod); failure != (Failure{}) {
		return failure
	}
	if NeedsStrictGroups(c.Pod) && !c.StrictGroups {
		return Failure{Reason: "SupplementalGroupsPolicyNotSupported",
			Message: "SupplementalGroupsPolicy=Strict is not supported in this node"}
	}
	return Failure{}
}

// toleratesTaints reports whether the pod tolerates every taint with the effect NoExecute.
func (c *Check) toleratesTaints() bool {
	for i := range c.Node.Spec.Taints {
		taint := &c.Node.Spec.Taints[i]
		tolerated := taint.Effect != v1.TaintEffectNoExecute
		for j := range c.Pod.Spec.Tolerations {
			tolerated = tolerated || c.Pod.Spec.Tolerations[j].ToleratesTaint(logr.Logger{}, taint, false)
		}
		if !tolerated {
			return false
		}
	}
	return true
}

// insufficientResources returns a failure for each resource that the node lacks: first the number
// of pods, then what the pod requests. An extended resource that is not allocatable at all is not
// checked: the component that provides it decides. Huge pages of a size that the node does not have
// are none. Upstream: removeMissingExtendedResources in pkg/kubelet/lifecycle/predicate.go.
func (c *Check) insufficientResources() []Failure {
	var failures []Failure
	podsMax, isLimited := c.Allocatable[v1.ResourcePods]
	if count := int64(len(c.OtherPods)); isLimited && count >= podsMax.Value() {
		failures = append(failures, insufficientFailure(v1.ResourcePods, 1, count, podsMax.Value()))
	}
	requested := requests(c.Pod)
	maps.DeleteFunc(requested, func(name v1.ResourceName, amount int64) bool {
		_, isLimited := c.Allocatable[name]
		return amount == 0 ||
			!isLimited && !strings.HasPrefix(string(name), v1.ResourceHugePagesPrefix)
	})
	for _, name := range sortedNames(requested) {
		amount, used, capacity := requested[name], c.used(name), AmountOf(name, c.Allocatable[name])
		if amount > capacity-used {
			failures = append(failures, insufficientFailure(name, amount, used, capacity))
		}
	}
	return failures
}

// used returns how much of a resource the other pods request.
func (c *Check) used(name v1.ResourceName) (sum int64) {
	for _, other := range c.OtherPods {
		sum = min(sum+c.Requests.of(other)[name], sumMax)
	}
	return sum
}

func insufficientFailure(name v1.ResourceName, requested, used, capacity int64) Failure {
	return Failure{
		Reason: "OutOf" + string(name),
		Message: fmt.Sprintf("Node didn't have enough resource: %s, requested: %d, used: %d, "+
			"capacity: %d", name, requested, used, capacity),
		Shortage: Shortage{name, requested - (capacity - used)},
	}
}

// hasHostPortConflict reports whether another pod uses a host port of this one.
func (c *Check) hasHostPortConflict() bool {
	mine := hostPorts(c.Pod)
	if len(mine) == 0 {
		return false
	}
	isUsed := c.Requests.portsOf(c.OtherPods)
	return slices.ContainsFunc(mine, func(p hostPort) bool {
		return isUsed(p) || isUsed(p.at(allAddresses)) ||
			p.ip == allAddresses && isUsed(p.at(anyAddress))
	})
}

type hostPort struct {
	ip, protocol string
	port         int32
}

const (
	allAddresses = "0.0.0.0" // the port is taken at every address
	anyAddress   = ""        // the port is taken at one address at least
)

// at returns the same port at another address.
func (p hostPort) at(ip string) hostPort {
	p.ip = ip
	return p
}

// hostPorts returns the host ports of the containers that run together. Of the init containers only
// sidecars keep their ports.
func hostPorts(pod *v1.Pod) []hostPort {
	var ports []hostPort
	add := func(c *v1.Container) {
		for i := range c.Ports {
			p := &c.Ports[i]
			if p.HostPort == 0 {
				continue
			}
			port := hostPort{p.HostIP, string(p.Protocol), p.HostPort}
			if port.ip == "" {
				port.ip = allAddresses
			}
			if port.protocol == "" {
				port.protocol = string(v1.ProtocolTCP)
			}
			ports = append(ports, port)
		}
	}
	for i := range pod.Spec.InitContainers {
		c := &pod.Spec.InitContainers[i]
		if c.RestartPolicy != nil && *c.RestartPolicy == v1.ContainerRestartPolicyAlways {
			add(c)
		}
	}
	for i := range pod.Spec.Containers {
		add(&pod.Spec.Containers[i])
	}
	return ports
}
