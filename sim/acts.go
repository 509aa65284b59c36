package sim

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kubeletconfig "k8s.io/kubelet/config/v1beta1"

	"seedlet.dev/core/config"
	"seedlet.dev/core/document"
	"seedlet.dev/core/manifest"
	"seedlet.dev/core/pod"
	"seedlet.dev/core/status"
	"seedlet.dev/core/sysctl"
	"seedlet.dev/world"
)

// PlanObject is an object of the API server other than a pod: a ConfigMap, Secret, Service,
// RuntimeClass or ClusterTrustBundle, with its kind.
type PlanObject struct {
	Name   string         `json:"name"` // by which acts refer to it
	Object map[string]any `json:"object"`
}

// Act is one thing that somebody does to an object of the API server. It is about one of: a pod,
// by the name of an entry of pods, if that is none of the API's about its mirror; an entry of
// objects; or the Node.
type Act struct {
	At     Duration `json:"at"`
	Do     ActKind  `json:"do"`
	Pod    string   `json:"pod,omitempty"`
	Object string   `json:"object,omitempty"`
	Node   bool     `json:"node,omitempty"`

	Grace  *int64         `json:"grace,omitempty"`  // of delete: in seconds, zero is by force
	Patch  map[string]any `json:"patch,omitempty"`  // of patch: strategic merge
	Status bool           `json:"status,omitempty"` // of patch: of the status

	// Rash is of the creation of a pod: it is bound to the node whatever its taints, as by a
	// scheduler that is behind.
	Rash bool `json:"rash,omitempty"`

	Container string `json:"container,omitempty"` // of debug: its name
}

// ActKind is what is done.
type ActKind string

// What can be done. What is there already is made as soon as it has gone.
const (
	ActCreate ActKind = "create"
	ActDelete ActKind = "delete"
	ActPatch  ActKind = "patch"
	ActDebug  ActKind = "debug" // an ephemeral container is added to a pod
	ActEnd    ActKind = "end"   // a patch of a pod that is not over, which calls it so
)

// validateActs checks what is done to the cluster.
func (s *PlanSpec) validateActs() error {
	if !s.Node.API && len(s.Acts) > 0 {
		return errors.New("spec.acts: want none without spec.node.api")
	}
	names := map[string]bool{}
	for i := range s.Objects {
		o := &s.Objects[i]
		if o.Name == "" || names[o.Name] {
			return fmt.Errorf("spec.objects[%d].name: want a name of its own, have %q", i, o.Name)
		}
		names[o.Name] = true
		if _, err := o.decode(); err != nil {
			return fmt.Errorf("spec.objects[%d].object: %w", i, err)
		}
	}
	for i := range s.Acts {
		if err := s.Acts[i].validate(s); err != nil {
			return fmt.Errorf("spec.acts[%d]: %w", i, err)
		}
	}
	return nil
}

func (a *Act) validate(s *PlanSpec) error {
	about := 0
	for _, is := range []bool{a.Pod != "", a.Object != "", a.Node} {
		if is {
			about++
		}
	}
	p := s.pod(a.Pod)
	switch {
	case about != 1:
		return errors.New("want one of pod, object and node")
	case a.Pod != "" && p == nil:
		return fmt.Errorf("pod: no pod is called %q", a.Pod)
	case a.Pod != "" && a.Do == ActCreate && !p.API:
		return fmt.Errorf("pod: %q is not a pod of the API server", a.Pod)
	case a.Object != "" && s.object(a.Object) == nil:
		return fmt.Errorf("object: no object is called %q", a.Object)
	case !slices.Contains([]ActKind{ActCreate, ActDelete, ActPatch, ActDebug, ActEnd}, a.Do):
		return fmt.Errorf("do: want create, delete, patch, debug or end, have %q", a.Do)
	case (a.Do == ActDebug) != (a.Container != "") || a.Container != "" && (p == nil || !p.API):
		return errors.New("container: want one with do: debug of a pod of the API server, and " +
			"only there")
	case (a.Do == ActPatch || a.Do == ActEnd) != (a.Patch != nil):
		return errors.New("patch: want one with do: patch or end, and only there")
	case a.Grace != nil && (a.Do != ActDelete || a.Pod == ""):
		return errors.New("grace: only for the removal of a pod")
	case a.At > s.Duration:
		return fmt.Errorf("at: %s is after spec.duration, %s", a.At, s.Duration)
	}
	return nil
}

// object is an entry of objects; nil if there is none of this name.
func (s *PlanSpec) object(name string) *PlanObject {
	i := slices.IndexFunc(s.Objects, func(o PlanObject) bool { return o.Name == name })
	if i < 0 {
		return nil
	}
	return &s.Objects[i]
}

// objectKinds are the kinds of objects that a plan can make, by the field of world.Object.
var objectKinds = map[string]string{
	"ConfigMap": "configMap", "Secret": "secret", "Service": "service",
	"RuntimeClass": "runtimeClass", kindTrustBundle: "trustBundle",
}

func (o *PlanObject) decode() (world.Object, error) {
	var object world.Object
	kind, _ := o.Object["kind"].(string)
	field := objectKinds[kind]
	if field == "" {
		return object, fmt.Errorf("kind: want one of %s, have %q",
			strings.Join(slices.Sorted(maps.Keys(objectKinds)), ", "), kind)
	}
	data, err := json.Marshal(map[string]any{field: o.Object})
	if err == nil {
		var unknown []string
		unknown, err = document.Decode(data, &object)
		if err == nil && len(unknown) > 0 {
			err = fmt.Errorf("unknown field %s", strings.Join(unknown, ", "))
		}
	}
	if err != nil {
		return object, err
	}
	_, meta := object.Get()
	if kind != "RuntimeClass" && kind != kindTrustBundle && meta.GetNamespace() == "" {
		meta.SetNamespace(metav1.NamespaceDefault)
	}
	return object, nil
}

// bound is the pod of an entry as whoever makes it at the API server has it: on this node.
func (p *PlanPod) bound() (*v1.Pod, error) {
	is := &v1.Pod{}
	unknown, err := document.Decode(p.text(), is)
	switch {
	case err != nil:
		return nil, err
	case len(unknown) > 0:
		return nil, fmt.Errorf("unknown field %s", strings.Join(unknown, ", "))
	}
	if is.Namespace == "" {
		is.Namespace = metav1.NamespaceDefault
	}
	is.Spec.NodeName = nodeName
	manifest.SetDefaults(is)
	return is, nil
}

// validateBound checks that a pod of the API server is one that the agent runs.
func (p *PlanPod) validateBound(node *kubeletconfig.KubeletConfiguration) error {
	is, err := p.bound()
	switch {
	case err != nil:
		return fmt.Errorf("manifest: %w", err)
	case is.Name == "" || len(is.Spec.Containers) == 0:
		return errors.New("manifest: want a name and a container")
	}
	if missing := pod.Unsupported(is, config.RestartsAll(node)); len(missing) > 0 {
		return fmt.Errorf("manifest: the agent does not support %s yet",
			strings.Join(missing, ", "))
	}
	if why := sysctl.Forbidden(&is.Spec, node.AllowedUnsafeSysctls); why != "" {
		return fmt.Errorf("manifest: the agent refuses it: %s", why)
	}
	return nil
}

// actTimes are when something is done to the cluster.
func (s *PlanSpec) actTimes() []Duration {
	var all []Duration
	for i := range s.Acts {
		all = append(all, s.Acts[i].At)
	}
	return all
}

// scheduleActs puts on the agenda what is done to the cluster.
func (r *run) scheduleActs() {
	if r.server == nil {
		return
	}
	for i := range r.plan.Acts {
		act := &r.plan.Acts[i]
		if act.At == 0 {
			r.act(act) // it is done before the agent boots
			continue
		}
		r.at(act.At, func() { r.act(act) })
	}
	r.control()
}

// register makes the Node, as somebody did when it joined the cluster.
func (r *run) register() {
	if r.server.Object(world.ResourceNodes, "", nodeName).Node != nil {
		return
	}
	r.admin("registration", &world.CreateObject{Object: world.Object{Node: &v1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: nodeName,
			Labels: map[string]string{v1.LabelHostname: nodeName}},
	}}})
}

// admin does something at the API server, and says why it was refused. What has gone since, or is
// there since, is no surprise.
func (r *run) admin(by string, body any) *world.Error {
	_, err := r.server.Admin(by, body)
	return err
}

// act does what an entry of the plan says.
func (r *run) act(a *Act) {
	resource, namespace, name := r.target(a)
	switch a.Do {
	case ActDebug:
		r.debug(namespace, name, a.Container)
	case ActCreate:
		r.make(a, resource, namespace, name)
	case ActDelete:
		r.admin("somebody", &world.DeleteObject{Resource: resource, Namespace: namespace,
			Name: name, GracePeriodSeconds: a.Grace})
	case ActEnd, ActPatch:
		if pod := r.server.Object(resource, namespace, name).Pod; a.Do == ActEnd &&
			(pod == nil || status.Terminal(&pod.Status)) {
			return
		}
		data, err := json.Marshal(a.Patch)
		if err != nil {
			panic("sim: a patch cannot be written: " + err.Error())
		}
		r.admin("somebody", &world.PatchObject{Resource: resource, Namespace: namespace, Name: name,
			Status: a.Status, Patch: data})
	}
}

// debug adds an ephemeral container to a pod. One that has gone has none.
func (r *run) debug(namespace, name, container string) {
	_ = r.server.Debug("somebody", namespace, name, v1.EphemeralContainer{
		EphemeralContainerCommon: v1.EphemeralContainerCommon{
			Name: container, Image: "registry.test/debug:1"}})
}

// target is the object that an act is about.
func (r *run) target(a *Act) (resource world.Resource, namespace, name string) {
	switch {
	case a.Node:
		return world.ResourceNodes, "", nodeName
	case a.Object != "":
		o, err := r.plan.object(a.Object).decode()
		if err != nil {
			panic("sim: " + err.Error()) // Validate has read it
		}
		resource, meta := o.Get()
		return resource, meta.GetNamespace(), meta.GetName()
	}
	p := r.plan.pod(a.Pod)
	is, err := p.bound()
	if err != nil {
		panic("sim: " + err.Error())
	}
	if !p.API {
		is.Name += "-" + nodeName // its mirror
	}
	return world.ResourcePods, is.Namespace, is.Name
}

// makeAgain is how long somebody waits who wants to make what is there.
const makeAgain = 500 * time.Millisecond

// make makes what an act is about, as soon as nothing of its name is left; a pod is not bound to a
// node that is called gone.
func (r *run) make(a *Act, resource world.Resource, namespace, name string) {
	if resource == world.ResourceNodes {
		r.register()
		return
	}
	there := r.server.Object(resource, namespace, name)
	if there.Of() != "" || a.Pod != "" && !a.Rash && r.tainted() {
		r.agenda.After(makeAgain, func() { r.make(a, resource, namespace, name) })
		return
	}
	var object world.Object
	if a.Pod != "" {
		is, err := r.plan.pod(a.Pod).bound()
		if err != nil {
			panic("sim: " + err.Error())
		}
		is.UID = "" // the server chooses it
		object.Pod = is
	} else {
		object, _ = r.plan.object(a.Object).decode()
	}
	r.admin("somebody", &world.CreateObject{Object: object})
}
