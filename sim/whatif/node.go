package whatif

import (
	"encoding/json"
	"maps"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"
	kubeletconfig "k8s.io/kubelet/config/v1beta1"

	"seedlet.dev/sim/plan"
)

// Node is the node of the pods.
type Node struct {
	plan   plan.Node
	labels map[string]string // nil: what the pods select
}

// ReadNode reads the node: a Node, of which the labels and the capacity of CPUs and memory count,
// a KubeletConfiguration, or both.
func (in *Input) ReadNode(f File) error {
	sources, err := documents(f)
	if err != nil {
		return err
	}
	for i := range sources {
		s := &sources[i]
		switch s.meta.Kind {
		case "Node":
			err = in.Node.read(s)
		case "KubeletConfiguration":
			err = in.Node.readConfig(s)
		default:
			err = s.errorf("kind: want Node or KubeletConfiguration")
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (n *Node) read(s *source) error {
	var o v1.Node
	if err := s.decode(&o); err != nil {
		return err
	}
	n.labels = map[string]string{}
	maps.Copy(n.labels, o.Labels)
	if cpu, ok := o.Status.Capacity[v1.ResourceCPU]; ok {
		if n.plan.CPUs = int(cpu.Value()); n.plan.CPUs < 1 {
			return s.errorf("status.capacity[cpu]: want at least 1, have %s", cpu.String())
		}
	}
	if memory, ok := o.Status.Capacity[v1.ResourceMemory]; ok {
		if memory.Value() < 1<<26 {
			return s.errorf("status.capacity[memory]: want at least 64Mi, have %s", memory.String())
		}
		n.plan.Memory = &memory
	}
	return nil
}

func (n *Node) readConfig(s *source) error {
	if err := json.Unmarshal(s.doc, &n.plan.Config); err != nil {
		return s.errorf("%w", err)
	}
	for _, name := range []string{"apiVersion", "kind", "staticPodPath", "metadata"} {
		delete(n.plan.Config, name)
	}
	if _, err := plan.KubeletConfig(n.plan.Config); err != nil {
		return s.errorf("%w", err)
	}
	return nil
}

// config returns the configuration of the node agent.
func (n *Node) config() *kubeletconfig.KubeletConfiguration {
	c, err := plan.KubeletConfig(n.plan.Config)
	if err != nil {
		panic("whatif: a configuration that was not checked: " + err.Error())
	}
	return c
}

// shutdownPeriod returns how long the node agent delays a shutdown of the machine at most.
func (n *Node) shutdownPeriod() time.Duration {
	c := n.config()
	total := c.ShutdownGracePeriod.Duration
	for _, g := range c.ShutdownGracePeriodByPodPriority {
		total += time.Duration(g.ShutdownGracePeriodSeconds) * time.Second
	}
	return total
}

// nodeLabels returns the labels of the node. Without a Node it has what the pods select.
func (in *Input) nodeLabels() map[string]string {
	all := map[string]string{v1.LabelHostname: plan.NodeName}
	if in.Node.labels != nil {
		maps.Copy(all, in.Node.labels)
		all[v1.LabelHostname] = plan.NodeName
		return all
	}
	for _, w := range in.Workloads {
		for i := range w.Pods {
			maps.Copy(all, w.Pods[i].spec.NodeSelector)
		}
	}
	return all
}

// labelPatch returns the labels as a part of a patch.
func (in *Input) labelPatch() map[string]any {
	all, patch := in.nodeLabels(), map[string]any{}
	for _, name := range slices.Sorted(maps.Keys(all)) {
		patch[name] = all[name]
	}
	return patch
}

// checkSelectors checks that the node is one that the pods select.
func (in *Input) checkSelectors() error {
	node := &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: plan.NodeName, Labels: in.nodeLabels()}}
	for _, w := range in.Workloads {
		for i := range w.Pods {
			fits, err := nodeaffinity.GetRequiredNodeAffinity(
				&v1.Pod{Spec: *w.Pods[i].spec}).Match(node)
			if err != nil || !fits {
				return w.source.errorf("nodeSelector or affinity: the node does not match; give its " +
					"labels with --node")
			}
		}
	}
	return nil
}
