// Package admission decides whether a node takes a pod.
//
// It keeps nothing: whether a pod fits is a function of the pod, the node and the pods that are
// there. The reasons and messages are the kubelet's, in the kubelet's order, since people and
// programs read them in the pod's status. Start reading at Reject; who makes room for a critical
// pod is in preempt.go.
package admission

import (
	"fmt"

	"github.com/go-logr/logr"
	v1 "k8s.io/api/core/v1"
	podresources "k8s.io/component-helpers/resource"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"
)

// Failure is why a pod is not taken, as its status tells.
type Failure struct {
	Reason  string
	Message string
	// Missing is what the node has too little of, if that is why.
	Missing Missing
}

// OfRoom says whether a pod is not taken for what others have.
func OfRoom(f Failure) bool { return f.Missing.Resource != "" || f.Reason == nodePorts }

// nodePorts is the reason of a pod whose port of the host another one has.
const nodePorts = "NodePorts"

// Missing is an amount of a resource: thousandths for CPU, bytes or pieces for any other.
type Missing struct {
	Resource v1.ResourceName
	Amount   int64
}

// Check is a question whether a node takes a pod.
type Check struct {
	Pod    *v1.Pod
	Static bool // from the node itself: no taint keeps it away
	// Node is the node with its labels, taints and what pods may have of it. Nil is a node of
	// which nothing is known but that, as one without an API server is.
	Node        *v1.Node
	Allocatable v1.ResourceList
	Others      []*v1.Pod // that have been taken and are not over
}

// Reject is every reason not to take a pod, the one that counts first. None means to take it.
func (c *Check) Reject() []Failure {
	if os := c.Pod.Spec.OS; os != nil && os.Name != v1.Linux {
		return []Failure{{Reason: "PodOSNotSupported",
			Message: "Failed to admit pod as the OS field doesn't match node OS"}}
	}
	if c.Node != nil {
		want, asks := c.Pod.Spec.NodeSelector[v1.LabelOSStable]
		if has := c.Node.Labels[v1.LabelOSStable]; asks && has != "" && want != has {
			return []Failure{{Reason: "PodOSSelectorNodeLabelDoesNotMatch", Message: "Failed to " +
				"admit pod as the `kubernetes.io/os` label doesn't match node label"}}
		}
	}
	failures := c.tooLittle()
	if c.Node != nil {
		if fits, err := nodeaffinity.GetRequiredNodeAffinity(c.Pod).Match(c.Node); !fits || err != nil {
			failures = append(failures, predicate("NodeAffinity"))
		}
		if name := c.Pod.Spec.NodeName; name != "" && name != c.Node.Name {
			failures = append(failures, predicate("NodeName"))
		}
	}
	if c.portTaken() {
		failures = append(failures, predicate(nodePorts))
	}
	if c.Node != nil && !c.Static && !c.tolerates() {
		failures = append(failures, predicate("TaintToleration"))
	}
	return failures
}

func predicate(name string) Failure {
	return Failure{Reason: name, Message: "Predicate " + name + " failed"}
}

// tolerates says whether the pod stands every taint that would drive it away.
func (c *Check) tolerates() bool {
	for i := range c.Node.Spec.Taints {
		taint := &c.Node.Spec.Taints[i]
		stands := taint.Effect != v1.TaintEffectNoExecute
		for j := range c.Pod.Spec.Tolerations {
			stands = stands || c.Pod.Spec.Tolerations[j].ToleratesTaint(logr.Logger{}, taint, false)
		}
		if !stands {
			return false
		}
	}
	return true
}

// tooLittle is what the node has too little of for the pod: places first, then the resources that
// it asks for. What the node does not have at all is not the node's to judge: who offers it does.
func (c *Check) tooLittle() []Failure {
	var failures []Failure
	if places, is := c.Allocatable[v1.ResourcePods]; is && int64(len(c.Others)) >= places.Value() {
		failures = append(failures, insufficient(v1.ResourcePods, 1, int64(len(c.Others)),
			places.Value()))
	}
	used := map[v1.ResourceName]int64{}
	for _, other := range c.Others {
		for name, amount := range requests(other) { //ordered: sums
			used[name] += amount
		}
	}
	asked := requests(c.Pod)
	for _, name := range inOrder(asked) {
		has, is := c.Allocatable[name]
		if amount := asked[name]; amount > 0 && is && amount > value(name, has)-used[name] {
			failures = append(failures, insufficient(name, amount, used[name], value(name, has)))
		}
	}
	return failures
}

func insufficient(name v1.ResourceName, asked, used, has int64) Failure {
	return Failure{
		Reason: "OutOf" + string(name),
		Message: fmt.Sprintf("Node didn't have enough resource: %s, requested: %d, used: %d, "+
			"capacity: %d", name, asked, used, has),
		Missing: Missing{name, asked - (has - used)},
	}
}

// requests is what a pod asks for, overhead included.
func requests(pod *v1.Pod) map[v1.ResourceName]int64 {
	asked := map[v1.ResourceName]int64{}
	all := podresources.PodRequests(pod, podresources.PodResourcesOptions{})
	for name, q := range all { //ordered: a map
		asked[name] = value(name, q)
	}
	return asked
}

// portTaken says whether another pod has a port of the host that this one asks for.
func (c *Check) portTaken() bool {
	for _, mine := range hostPorts(c.Pod) {
		for _, other := range c.Others {
			for _, its := range hostPorts(other) {
				if mine.clashes(its) {
					return true
				}
			}
		}
	}
	return false
}

type hostPort struct {
	ip, protocol string
	port         int32
}

func (p hostPort) clashes(q hostPort) bool {
	const all = "0.0.0.0"
	return p.port == q.port && p.protocol == q.protocol &&
		(p.ip == q.ip || p.ip == all || q.ip == all)
}

// hostPorts are the ports of the host of all containers that may run side by side with others: of
// init containers only sidecars hold theirs.
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
				port.ip = "0.0.0.0"
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
