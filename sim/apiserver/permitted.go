package apiserver

import (
	"fmt"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	kubeletapis "k8s.io/kubelet/pkg/apis"

	"seedlet.dev/world"
)

// What the Node authorizer and the admission plugin NodeRestriction keep a node from.

const anything = "no relationship found between node '%s' and this object"

// permit refuses what the node may not ask for. What belongs to something that is not there is not
// found, even before it could be made.
func (s *Server) permit(body any) *world.Error {
	if why := s.forbids(body); why != "" {
		return world.Errorf(world.KindRefused, world.Call(body), "%s", why)
	}
	var err *world.Error
	switch m := body.(type) {
	case *world.CreateObject:
		if m.Object.Pod != nil {
			_, err = s.find(body, key{world.ResourceNodes, "", s.opts.Node})
		}
	case *world.CreateToken:
		_, err = s.find(body, key{world.ResourcePods, m.Namespace, m.Spec.BoundObjectRef.Name})
	}
	return err
}

// forbids says why the node may not ask for something; empty if it may.
func (s *Server) forbids(body any) string {
	switch m := body.(type) {
	case *world.GetObject:
		return s.forbidsReading(&world.Watched{Resource: m.Resource, Namespace: m.Namespace,
			Name: m.Name})
	case *world.CreateObject:
		return s.forbidsCreating(&m.Object)
	case *world.UpdateObject:
		_, meta := m.Object.Get()
		if meta == nil {
			return ""
		}
		return s.forbidsChanging(m.Of(), meta.GetNamespace(), meta.GetName(), false)
	case *world.PatchObject:
		return s.forbidsChanging(m.Resource, m.Namespace, m.Name, m.Status)
	case *world.DeleteObject:
		return s.forbidsDeleting(m)
	case *world.CreateToken:
		return s.forbidsToken(m)
	}
	return ""
}

// forbidsWatching is about what a watch is about. Pods are watched by the node that they are on.
func (s *Server) forbidsWatching(w *world.Watched) string {
	if w.Resource == world.ResourcePods {
		return ""
	}
	return s.forbidsReading(w)
}

// forbidsReading is about one object, or about all of a namespace.
func (s *Server) forbidsReading(w *world.Watched) string {
	node := s.opts.Node
	switch w.Resource {
	case world.ResourceServices, world.ResourceRuntimeClasses, world.ResourceTrustBundles:
		return ""
	case world.ResourcePods:
		if o := s.Object(w.Resource, w.Namespace, w.Name); o.Pod != nil &&
			o.Pod.Spec.NodeName == node {
			return ""
		}
	case world.ResourceNodes:
		if w.Name == node {
			return ""
		}
		return fmt.Sprintf("node '%s' cannot read '%s', only its own Node object", node, w.Name)
	case world.ResourceLeases:
		return s.forbidsLease(w.Namespace, w.Name)
	case world.ResourceConfigMaps, world.ResourceSecrets:
		if w.Name != "" && s.refers(w.Resource, w.Namespace, w.Name) {
			return ""
		}
	}
	return fmt.Sprintf(anything, node)
}

func (s *Server) forbidsLease(namespace, name string) string {
	switch {
	case namespace != v1.NamespaceNodeLease:
		return fmt.Sprintf("can only access leases in the %q system namespace",
			v1.NamespaceNodeLease)
	case name != s.opts.Node:
		return "can only access node lease with the same name as the requesting node"
	}
	return ""
}

func (s *Server) forbidsCreating(o *world.Object) string {
	switch {
	case o.Pod != nil:
		return s.forbidsMirror(o.Pod)
	case o.Node != nil:
		if o.Node.Name != s.opts.Node {
			return fmt.Sprintf("node %q is not allowed to modify node %q", s.opts.Node, o.Node.Name)
		}
		return badLabels(o.Node.Labels, nil)
	case o.Lease != nil:
		return s.forbidsLease(o.Lease.Namespace, o.Lease.Name)
	}
	return fmt.Sprintf(anything, s.opts.Node)
}

// forbidsMirror says why the node may not make a pod. All it may make is mirrors of its own
// static pods, that belong to its Node and refer to nothing else.
func (s *Server) forbidsMirror(pod *v1.Pod) string {
	node := s.opts.Node
	can := func(what string) string { return fmt.Sprintf("node %q can only create %s", node, what) }
	if _, mirror := pod.Annotations[v1.MirrorPodAnnotationKey]; !mirror {
		return can("mirror pods")
	}
	if pod.Spec.NodeName != node {
		return can("pods with spec.nodeName set to itself")
	}
	if len(pod.OwnerReferences) != 1 {
		return can("pods with a single owner reference set to itself")
	}
	owner := &pod.OwnerReferences[0]
	is := s.Object(world.ResourceNodes, "", node)
	switch {
	case owner.APIVersion != "v1" || owner.Kind != "Node" || owner.Name != node:
		return can("pods with an owner reference set to itself")
	case owner.Controller == nil || !*owner.Controller:
		return can("pods with a controller owner reference set to itself")
	case owner.BlockOwnerDeletion != nil && *owner.BlockOwnerDeletion:
		return fmt.Sprintf("node %q must not set blockOwnerDeletion on an owner reference", node)
	case is.Node != nil && is.Node.UID != owner.UID: // without a Node it is not found
		return fmt.Sprintf("node %s UID mismatch: expected %s got %s", node, owner.UID, is.Node.UID)
	}
	if refs := referencesOf(pod); len(refs) > 0 {
		return fmt.Sprintf("node %q can not create pods that reference %s", node, refs[0].kind)
	}
	return ""
}

func (s *Server) forbidsChanging(r world.Resource, namespace, name string, status bool) string {
	node := s.opts.Node
	switch r {
	case world.ResourceLeases:
		return s.forbidsLease(namespace, name)
	case world.ResourceNodes:
		if name == node {
			return ""
		}
		return fmt.Sprintf("node %q is not allowed to modify node %q", node, name)
	case world.ResourcePods:
		if !status {
			break
		}
		if o := s.Object(r, namespace, name); o.Pod == nil || o.Pod.Spec.NodeName == node {
			return ""
		}
		return fmt.Sprintf("node %q can only update pod status for pods with spec.nodeName set to "+
			"itself", node)
	}
	return fmt.Sprintf(anything, node)
}

func (s *Server) forbidsDeleting(m *world.DeleteObject) string {
	switch m.Resource {
	case world.ResourceLeases:
		return s.forbidsLease(m.Namespace, m.Name)
	case world.ResourcePods:
		if o := s.Object(m.Resource, m.Namespace, m.Name); o.Pod == nil ||
			o.Pod.Spec.NodeName == s.opts.Node {
			return ""
		}
		return fmt.Sprintf("node %q can only delete pods with spec.nodeName set to itself",
			s.opts.Node)
	}
	return fmt.Sprintf(anything, s.opts.Node)
}

// restricts says why the node may not make this of an object; empty if it may.
func (s *Server) restricts(o, old *world.Object) string {
	node := s.opts.Node
	switch {
	case o.Pod != nil:
		if !equality.Semantic.DeepEqual(o.Pod.Labels, old.Pod.Labels) {
			return fmt.Sprintf("node %q cannot update labels through pod status", node)
		}
	case o.Node != nil:
		if !equality.Semantic.DeepEqual(o.Node.Spec.Taints, old.Node.Spec.Taints) {
			return fmt.Sprintf("node %q is not allowed to modify taints", node)
		}
		if !equality.Semantic.DeepEqual(o.Node.OwnerReferences, old.Node.OwnerReferences) {
			return fmt.Sprintf("node %q is not allowed to modify ownerReferences", node)
		}
		return badLabels(o.Node.Labels, old.Node.Labels)
	}
	return ""
}

// badLabels checks that the node changes none of its labels that others rely on.
func badLabels(now, before map[string]string) string {
	var bad string
	check := func(key string) {
		if !nodeMaySet(key) && (bad == "" || key < bad) {
			bad = key
		}
	}
	for key, value := range now { //ordered: the least is the same in any order
		if was, is := before[key]; !is || was != value {
			check(key)
		}
	}
	for key := range before { //ordered: the least is the same in any order
		if _, is := now[key]; !is {
			check(key)
		}
	}
	if bad == "" {
		return ""
	}
	return "is not allowed to modify labels: " + bad
}

func nodeMaySet(label string) bool {
	domain, _, qualified := strings.Cut(label, "/")
	below := func(parent string) bool {
		return qualified && (domain == parent || strings.HasSuffix(domain, "."+parent))
	}
	switch {
	case below(v1.LabelNamespaceNodeRestriction):
		return false
	case below("kubernetes.io") || below("k8s.io"):
		return kubeletapis.IsKubeletLabel(label)
	}
	return true
}
