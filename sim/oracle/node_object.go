package oracle

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"

	v1 "k8s.io/api/core/v1"

	"seedlet.dev/sim/truth"
	api "seedlet.dev/world"
)

// NodeFacts are what the Node has to say of the machine. What a field does not have is not checked.
type NodeFacts struct {
	Addresses             []v1.NodeAddress
	Capacity, Allocatable v1.ResourceList // of the node itself; others may have added theirs
	// Info is of the hardware and software; of the boot, BootID tells.
	Info   v1.NodeSystemInfo
	BootID func() string
	Port   int32

	Images    func() []string // the references of the images on the node, sorted
	ImagesMax int             // that the Node lists; negative: all
}

// nodeObject fires when the Node says something untrue of the machine, or says it too late. That of
// the pressure conditions is judged by node-pressure, and that of volumesInUse by csi-calls and
// csi-release.
type nodeObject struct {
	images          []string // on the node, when a client last looked
	imagesChangedAt time.Time
}

func (*nodeObject) describe() Entry {
	return Entry{"node-object", "The Node has the addresses, the capacity, the allocatable, the " +
		"boot and the software of the machine, whenever the agent writes it; its condition Ready is " +
		"what the runtime has said, with the reason of a kubelet, as are those of pressure; and it " +
		"lists the images of the runtime. What changes it has within a bound, if no fault hides it."}
}

const (
	// readinessSlack is how long after a report of the runtime the agent may write a Node without it:
	// the time of a request.
	readinessSlack = 5 * time.Second
	// nodeWriteBound is how long a write of the Node takes after its comparison is due.
	nodeWriteBound = 10 * time.Second
	// imagesPeriod is that in which the images are listed for the Node.
	imagesPeriod = 30 * time.Second
)

// nodeCalls are those that the agent needs to write the Node.
var nodeCalls = []string{"GetObject", "CreateObject", "PatchObject", "UpdateObject", "WatchObjects",
	"ObjectChanged"}

func (o *nodeObject) checkFact(m *model, f *truth.Fact) *finding {
	if f.Kind == truth.ImagePulled || f.Kind == truth.ImageRemoved { // it may have gone and come back
		o.imagesChangedAt = f.Time
	}
	if f.Write == nil || f.Write.Resource != api.ResourceNodes || f.Write.After.Node == nil ||
		f.Write.Incarnation != m.incarnation || f.Write.Name != m.opts.NodeName ||
		m.opts.Node == nil || m.agentDown {
		return nil
	}
	node := f.Write.After.Node
	before := f.Write.Before.Node
	if len(node.Status.Conditions) == 0 ||
		before != nil && equality.Semantic.DeepEqual(before.Status, node.Status) {
		return nil // labels, annotations or taints alone
	}
	if problem := m.opts.Node.problem(&node.Status); problem != "" {
		return findingf("%s", problem)
	}
	for _, c := range node.Status.Conditions {
		if problem := reasonOfConditionProblem(&c); problem != "" {
			return findingf("%s", problem)
		}
	}
	ready := conditionOf(node, v1.NodeReady).Status == v1.ConditionTrue
	if problem := m.readyProblem(ready, readinessSlack, f.Time); problem != "" {
		return findingf("%s", problem)
	}
	return nil
}

// problem returns what is untrue in the status of a Node; empty if nothing is.
func (n *NodeFacts) problem(s *v1.NodeStatus) string {
	info := n.Info
	info.BootID = n.BootID()
	if s.NodeInfo.ContainerRuntimeVersion == "" { // the runtime was not asked yet
		info.ContainerRuntimeVersion = ""
	}
	switch {
	case !equality.Semantic.DeepEqual(s.Addresses, n.Addresses):
		return fmt.Sprintf("the Node has the addresses %v, the machine has %v", s.Addresses,
			n.Addresses)
	case !equality.Semantic.DeepEqual(s.NodeInfo, info):
		return fmt.Sprintf("the Node has the info %+v, the machine has %+v", s.NodeInfo, info)
	case s.DaemonEndpoints.KubeletEndpoint.Port != n.Port:
		return fmt.Sprintf("the Node has the port %d, the agent has %d",
			s.DaemonEndpoints.KubeletEndpoint.Port, n.Port)
	}
	for _, name := range slices.Sorted(maps.Keys(n.Capacity)) {
		want, has := n.Capacity[name], s.Capacity[name]
		if has.Cmp(want) != 0 {
			return fmt.Sprintf("the Node has the capacity %s of %s, the machine has %s", has.String(),
				name, want.String())
		}
		want, has = n.Allocatable[name], s.Allocatable[name]
		if has.Cmp(want) != 0 {
			return fmt.Sprintf("the Node has %s allocatable of %s, and should have %s", has.String(),
				name, want.String())
		}
	}
	return ""
}

// nodeReasons are the reasons that a kubelet gives the conditions of a Node, if they are true, and
// if they are not.
var nodeReasons = map[v1.NodeConditionType][2]string{
	v1.NodeReady:          {"KubeletReady", "KubeletNotReady"},
	v1.NodeMemoryPressure: {"KubeletHasInsufficientMemory", "KubeletHasSufficientMemory"},
	v1.NodeDiskPressure:   {"KubeletHasDiskPressure", "KubeletHasNoDiskPressure"},
	v1.NodePIDPressure:    {"KubeletHasInsufficientPID", "KubeletHasSufficientPID"},
}

// reasonOfConditionProblem returns what is wrong with the reason of a condition of the Node.
func reasonOfConditionProblem(c *v1.NodeCondition) string {
	reasons, isOwn := nodeReasons[c.Type]
	want := reasons[1]
	if c.Status == v1.ConditionTrue {
		want = reasons[0]
	}
	if isOwn && (c.Reason != want || c.Status == v1.ConditionUnknown || c.Message == "") {
		return fmt.Sprintf("condition %s of the Node is %s with reason %q and message %q, its reason "+
			"is %q", c.Type, c.Status, c.Reason, c.Message, want)
	}
	return ""
}

// readyProblem returns what is wrong with the condition Ready of the Node, some time after a report
// of the runtime. A shutdown, a fault or a start of the agent may be why it is not ready.
func (m *model) readyProblem(ready bool, slack time.Duration, now time.Time) string {
	r := &m.runtime
	since := later(r.since, m.agentStartedAt)
	if !r.hasReported || now.Sub(since) <= slack {
		return ""
	}
	from := now.Add(-slack - callBound)
	switch isDown := r.notReady || r.networkNotReady; {
	case isDown && ready && !m.anyFaultPossible(from, now, nodeCalls...):
		return fmt.Sprintf("the Node is ready, but the runtime has said since %v that it, or its "+
			"network, is not", r.since)
	case !isDown && !ready && now.Sub(m.undisturbedSince(now)) > slack+callBound:
		return fmt.Sprintf("the Node is not ready, but the runtime has said since %v that it and its "+
			"network are", r.since)
	}
	return ""
}

// checkServed checks what the API server has, while a client looks at the agent.
func (o *nodeObject) checkServed(m *model, now time.Time, _ []*v1.Pod) *finding {
	if m.opts.Node == nil || m.agentDown || m.objects.node == nil {
		return nil
	}
	facts, status := m.opts.Node, &m.objects.node.Status
	images := facts.Images()
	if !slices.Equal(images, o.images) {
		o.images, o.imagesChangedAt = images, now
	}
	bound := m.opts.Periods.NodeCheck + nodeWriteBound
	since := later(m.agentStartedAt, m.objects.nodeCreatedAt)
	if now.Sub(since) <= bound {
		return nil
	}
	ready := conditionOf(m.objects.node, v1.NodeReady).Status == v1.ConditionTrue
	if problem := m.readyProblem(ready, bound, now); problem != "" {
		return findingf("%s", problem)
	}
	if !m.isReportingUndisturbed(now) || now.Sub(since) <= bound+imagesPeriod {
		return nil
	}
	if problem := facts.problem(status); problem != "" {
		return findingf("%s", problem)
	}
	if now.Sub(o.imagesChangedAt) <= bound+imagesPeriod ||
		facts.ImagesMax >= 0 && len(images) > facts.ImagesMax {
		return nil
	}
	var listed []string
	for _, image := range status.Images {
		listed = append(listed, image.Names...)
	}
	if slices.Sort(listed); !slices.Equal(listed, images) {
		return findingf("the Node has the images %v, the runtime has had %v since %v", listed, images,
			o.imagesChangedAt)
	}
	return nil
}
