package sim

import (
	"encoding/json"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"

	"seedlet.dev/core/statuswriter"
	"seedlet.dev/sim/plan"
	"seedlet.dev/world"
)

// performAct does what a user or a controller does at the API server, or to the machine.
func (r *run) performAct(a *plan.Act) {
	resource, namespace, name := r.actTarget(a)
	switch a.Verb {
	case plan.VerbDate:
		r.changeDate(time.Duration(a.By))
	case plan.VerbDebug:
		r.addEphemeralContainer(namespace, name, a.Container, a.Volume)
	case plan.VerbResize:
		_ = r.server.ResizePod("somebody", namespace, name, encodePatch(a))
	case plan.VerbCreate:
		r.createWhenFree(a, resource, namespace, name)
	case plan.VerbDelete:
		r.adminWrite("somebody", &world.DeleteObject{Resource: resource, Namespace: namespace,
			Name: name, GracePeriodSeconds: a.Grace})
	case plan.VerbSetTerminalPhase, plan.VerbPatch:
		pod := r.server.Object(resource, namespace, name).Pod
		if a.Verb == plan.VerbSetTerminalPhase && (pod == nil || statuswriter.IsTerminal(&pod.Status)) {
			return
		}
		r.adminWrite("somebody", &world.PatchObject{Resource: resource, Namespace: namespace,
			Name: name, Status: a.Status, Patch: encodePatch(a)})
	}
}

func encodePatch(a *plan.Act) []byte {
	data, err := json.Marshal(a.Patch)
	if err != nil {
		panic("sim: cannot encode a patch: " + err.Error())
	}
	return data
}

// adminWrite writes to the API server on behalf of a user or controller. The error is ignored: the
// object may have been deleted or created meanwhile.
func (r *run) adminWrite(by string, body any) { _, _ = r.server.Admin(by, body) }

// createNode creates the Node, as an administrator does when the node joins the cluster.
func (r *run) createNode() {
	if r.server.Object(world.ResourceNodes, "", plan.NodeName).Node != nil {
		return
	}
	r.adminWrite("registration", &world.CreateObject{Object: world.Object{Node: &v1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: plan.NodeName,
			Labels: map[string]string{v1.LabelHostname: plan.NodeName}},
	}}})
}

// addEphemeralContainer adds an ephemeral container to a pod, if the pod exists. The container has
// the device of a volume, if one is named.
func (r *run) addEphemeralContainer(namespace, name, container, device string) {
	c := v1.EphemeralContainer{EphemeralContainerCommon: v1.EphemeralContainerCommon{
		Name: container, Image: "registry.test/debug:1"}}
	if device != "" {
		c.VolumeDevices = []v1.VolumeDevice{{Name: device, DevicePath: "/dev/debugged"}}
	}
	_ = r.server.AddEphemeralContainer("somebody", namespace, name, c)
}

// actTarget returns the object that an act is about.
func (r *run) actTarget(a *plan.Act) (resource world.Resource, namespace, name string) {
	switch {
	case a.Node:
		return world.ResourceNodes, "", plan.NodeName
	case a.Object != "":
		o, err := r.plan.ObjectNamed(a.Object).Decode()
		if err != nil {
			panic("sim: " + err.Error()) // Validate has decoded it
		}
		resource, meta := o.Meta()
		return resource, meta.GetNamespace(), meta.GetName()
	}
	p := r.plan.PodNamed(a.Pod)
	pod := boundPod(p)
	if a.Volume != "" && a.Verb == plan.VerbDelete {
		return world.ResourceClaims, pod.Namespace, pod.Name + "-" + a.Volume
	}
	if !p.API {
		pod.Name += "-" + plan.NodeName // its mirror
	}
	return world.ResourcePods, pod.Namespace, pod.Name
}

// fullName returns the namespace and name that the pod of an entry of the plan has on the node.
func (r *run) fullName(entry string) string {
	full, known := r.fullNames[entry]
	if !known {
		_, namespace, name := r.actTarget(&plan.Act{Pod: entry})
		full = namespace + "/" + name
		r.fullNames[entry] = full
	}
	return full
}

// boundPod returns the pod of an entry of the plan, as bound to the node.
func boundPod(p *plan.Pod) *v1.Pod {
	pod, err := p.BoundPod()
	if err != nil {
		panic("sim: " + err.Error()) // Validate has decoded it
	}
	return pod
}

// createRetryPeriod is how often a creation is retried while it has to wait.
const createRetryPeriod = 500 * time.Millisecond

// createWhenFree creates the object of an act as soon as no object has its name. A pod is bound
// only to a node that it can run on by labels and taints, unless the act is rash.
func (r *run) createWhenFree(a *plan.Act, resource world.Resource, namespace, name string) {
	if resource == world.ResourceNodes {
		r.createNode()
		return
	}
	existing := r.server.Object(resource, namespace, name)
	if existing.Resource() == "" {
		object := r.objectOf(a)
		if object.Pod == nil || a.Rash || r.nodeTakes(object.Pod) {
			r.adminWrite("somebody", &world.CreateObject{Object: object})
			return
		}
	}
	r.agenda.After(createRetryPeriod, func() { r.createWhenFree(a, resource, namespace, name) })
}

// objectOf returns the object that an act creates.
func (r *run) objectOf(a *plan.Act) (object world.Object) {
	if a.Pod == "" {
		object, _ = r.plan.ObjectNamed(a.Object).Decode()
		return object
	}
	object.Pod = boundPod(r.plan.PodNamed(a.Pod))
	object.Pod.UID = "" // the server chooses it
	return object
}

// nodeTakes reports whether a scheduler may bind a pod to the node: the Node, if there is one,
// matches the pod's node selector and affinity, and has no taint of effect NoExecute.
func (r *run) nodeTakes(pod *v1.Pod) bool {
	node := r.server.Object(world.ResourceNodes, "", plan.NodeName).Node
	if node == nil {
		return true
	}
	fits, err := nodeaffinity.GetRequiredNodeAffinity(pod).Match(node)
	return fits && err == nil && !slices.ContainsFunc(node.Spec.Taints, func(t v1.Taint) bool {
		return t.Effect == v1.TaintEffectNoExecute
	})
}
