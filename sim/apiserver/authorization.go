package apiserver

import (
	"fmt"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	kubeletapis "k8s.io/kubelet/pkg/apis"

	"seedlet.dev/world"
)

// The rules of the Node authorizer and of the admission plugin NodeRestriction. A function that
// returns a denial reason returns the empty string if the request is allowed.

const noRelationship = "no relationship found between node '%s' and this object"

// authorize returns an error if the node may not send a request. The creation of a mirror pod
// without a Node, and of a token for a missing pod, fails with KindNotFound before it is validated.
func (s *Server) authorize(body any) *world.Error {
	if reason := s.denialReason(body); reason != "" {
		return world.Errorf(world.KindRefused, world.CallName(body), "%s", reason)
	}
	var err *world.Error
	switch m := body.(type) {
	case *world.CreateObject:
		if m.Object.Pod != nil {
			_, err = s.find(body, key{world.ResourceNodes, "", s.opts.Node})
		}
		if m.Object.CertificateRequest != nil {
			err = s.certificateDenial(m)
		}
	case *world.CreateToken:
		_, err = s.find(body, key{world.ResourcePods, m.Namespace, m.Spec.BoundObjectRef.Name})
	}
	return err
}

// denialReason returns why the node may not send a request.
func (s *Server) denialReason(body any) string {
	switch m := body.(type) {
	case *world.GetObject:
		return s.readDenialReason(&world.WatchTarget{Resource: m.Resource, Namespace: m.Namespace,
			Name: m.Name})
	case *world.CreateObject:
		return s.createDenialReason(&m.Object)
	case *world.UpdateObject:
		_, meta := m.Object.Meta()
		if meta == nil {
			return ""
		}
		return s.changeDenialReason(m.TargetResource(), meta.GetNamespace(), meta.GetName(), false)
	case *world.PatchObject:
		return s.changeDenialReason(m.Resource, m.Namespace, m.Name, m.Status)
	case *world.DeleteObject:
		return s.deleteDenialReason(m)
	case *world.CreateToken:
		return s.tokenDenialReason(m)
	}
	return ""
}

// watchDenialReason returns why the node may not start a watch. A node may always watch the pods
// that are bound to it, and the requests for certificates that name it.
func (s *Server) watchDenialReason(w *world.WatchTarget) string {
	switch w.Resource {
	case world.ResourcePods, world.ResourcePodCertificateRequests:
		return ""
	case world.ResourceClaims, world.ResourceVolumes, world.ResourceAttachments,
		world.ResourceCSINodes, world.ResourceServiceAccounts:
		return "can only get individual resources of this type"
	}
	return s.readDenialReason(w)
}

// readDenialReason returns why the node may not read one object, or all objects of a namespace.
func (s *Server) readDenialReason(w *world.WatchTarget) string {
	node := s.opts.Node
	switch w.Resource {
	case world.ResourceServices, world.ResourceRuntimeClasses, world.ResourceTrustBundles,
		world.ResourceCSIDrivers:
		return ""
	case world.ResourceCSINodes:
		return s.csiNodeDenialReason(w.Name)
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
	case world.ResourcePodCertificateRequests:
		if o := s.Object(w.Resource, w.Namespace, w.Name); o.CertificateRequest != nil &&
			string(o.CertificateRequest.Spec.NodeName) == node {
			return ""
		}
	case world.ResourceLeases:
		return s.leaseDenialReason(w.Namespace, w.Name)
	case world.ResourceConfigMaps, world.ResourceSecrets:
		if w.Name != "" && (s.isReferenced(w.Resource, w.Namespace, w.Name) ||
			w.Resource == world.ResourceSecrets && s.isSecretOfVolume(w.Namespace, w.Name)) {
			return ""
		}
	case world.ResourceClaims, world.ResourceServiceAccounts:
		if s.isReferenced(w.Resource, w.Namespace, w.Name) {
			return ""
		}
	case world.ResourceVolumes:
		if o := s.Object(w.Resource, "", w.Name); o.Volume != nil && s.isVolumeReferenced(o.Volume) {
			return ""
		}
	case world.ResourceAttachments:
		if o := s.Object(w.Resource, "", w.Name); o.Attachment != nil &&
			o.Attachment.Spec.NodeName == node {
			return ""
		}
	}
	return fmt.Sprintf(noRelationship, node)
}

// isSecretOfVolume reports whether a volume that the node may read names a Secret for a call of its
// node service, or for CHAP (VisitPVSecretNames in pkg/api/persistentvolume).
func (s *Server) isSecretOfVolume(namespace, name string) bool {
	for _, o := range s.Objects(world.ResourceVolumes) {
		var refs []*v1.SecretReference
		if source := o.Volume.Spec.CSI; source != nil {
			refs = []*v1.SecretReference{source.NodeStageSecretRef, source.NodePublishSecretRef,
				source.NodeExpandSecretRef}
		}
		if source := o.Volume.Spec.ISCSI; source != nil {
			refs = append(refs, source.SecretRef)
		}
		if len(refs) == 0 || !s.isVolumeReferenced(o.Volume) {
			continue
		}
		for _, ref := range refs {
			if ref != nil && ref.Namespace == namespace && ref.Name == name {
				return true
			}
		}
	}
	return false
}

func (s *Server) leaseDenialReason(namespace, name string) string {
	switch {
	case namespace != v1.NamespaceNodeLease:
		return fmt.Sprintf("can only access leases in the %q system namespace",
			v1.NamespaceNodeLease)
	case name != s.opts.Node:
		return "can only access node lease with the same name as the requesting node"
	}
	return ""
}

// csiNodeDenialReason returns why the node may not access a CSINode.
func (s *Server) csiNodeDenialReason(name string) string {
	if name != s.opts.Node {
		return "can only access CSINode with the same name as the requesting node"
	}
	return ""
}

func (s *Server) createDenialReason(o *world.Object) string {
	switch {
	case o.Pod != nil:
		return s.mirrorDenialReason(o.Pod)
	case o.Node != nil:
		if o.Node.Name != s.opts.Node {
			return fmt.Sprintf("node %q is not allowed to modify node %q", s.opts.Node, o.Node.Name)
		}
		return labelDenialReason(o.Node.Labels, nil)
	case o.Lease != nil:
		return s.leaseDenialReason(o.Lease.Namespace, o.Lease.Name)
	case o.CSINode != nil:
		return s.csiNodeDenialReason(o.CSINode.Name)
	case o.CertificateRequest != nil:
		return "" // see authorize
	}
	return fmt.Sprintf(noRelationship, s.opts.Node)
}

// mirrorDenialReason returns why the node may not create a pod. A node may only create mirror pods
// of its own static pods, which are owned by its Node object and refer to no other objects.
func (s *Server) mirrorDenialReason(pod *v1.Pod) string {
	node := s.opts.Node
	denied := func(what string) string { return fmt.Sprintf("node %q can only create %s", node, what) }
	if _, mirror := pod.Annotations[v1.MirrorPodAnnotationKey]; !mirror {
		return denied("mirror pods")
	}
	if pod.Spec.NodeName != node {
		return denied("pods with spec.nodeName set to itself")
	}
	if len(pod.OwnerReferences) != 1 {
		return denied("pods with a single owner reference set to itself")
	}
	owner := &pod.OwnerReferences[0]
	registered := s.Object(world.ResourceNodes, "", node)
	switch {
	case owner.APIVersion != "v1" || owner.Kind != "Node" || owner.Name != node:
		return denied("pods with an owner reference set to itself")
	case owner.Controller == nil || !*owner.Controller:
		return denied("pods with a controller owner reference set to itself")
	case owner.BlockOwnerDeletion != nil && *owner.BlockOwnerDeletion:
		return fmt.Sprintf("node %q must not set blockOwnerDeletion on an owner reference", node)
	case registered.Node != nil && registered.Node.UID != owner.UID: // see authorize if it is nil
		return fmt.Sprintf("node %s UID mismatch: expected %s got %s", node, owner.UID,
			registered.Node.UID)
	}
	if refs := podReferences(pod); len(refs) > 0 {
		return fmt.Sprintf("node %q can not create pods that reference %s", node, refs[0].resource)
	}
	return ""
}

func (s *Server) changeDenialReason(r world.Resource, namespace, name string, status bool) string {
	node := s.opts.Node
	switch r {
	case world.ResourceLeases:
		return s.leaseDenialReason(namespace, name)
	case world.ResourceCSINodes:
		return s.csiNodeDenialReason(name)
	case world.ResourceClaims:
		if status && s.isReferenced(r, namespace, name) {
			return ""
		}
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
	return fmt.Sprintf(noRelationship, node)
}

func (s *Server) deleteDenialReason(m *world.DeleteObject) string {
	switch m.Resource {
	case world.ResourceLeases:
		return s.leaseDenialReason(m.Namespace, m.Name)
	case world.ResourceCSINodes:
		return s.csiNodeDenialReason(m.Name)
	case world.ResourcePods:
		if o := s.Object(m.Resource, m.Namespace, m.Name); o.Pod == nil ||
			o.Pod.Spec.NodeName == s.opts.Node {
			return ""
		}
		return fmt.Sprintf("node %q can only delete pods with spec.nodeName set to itself",
			s.opts.Node)
	}
	return fmt.Sprintf(noRelationship, s.opts.Node)
}

// restrictionReason returns why the node may not change an object in this way.
func (s *Server) restrictionReason(o, old *world.Object) string {
	node := s.opts.Node
	switch {
	case o.Pod != nil:
		if !equality.Semantic.DeepEqual(o.Pod.Labels, old.Pod.Labels) {
			return fmt.Sprintf("node %q cannot update labels through pod status", node)
		}
	case o.Claim != nil:
		return s.claimRestrictionReason(o.Claim, old.Claim)
	case o.Node != nil:
		if !equality.Semantic.DeepEqual(o.Node.Spec.Taints, old.Node.Spec.Taints) {
			return fmt.Sprintf("node %q is not allowed to modify taints", node)
		}
		if !equality.Semantic.DeepEqual(o.Node.OwnerReferences, old.Node.OwnerReferences) {
			return fmt.Sprintf("node %q is not allowed to modify ownerReferences", node)
		}
		return labelDenialReason(o.Node.Labels, old.Node.Labels)
	}
	return ""
}

// claimRestrictionReason returns why the node may not change the status of a claim in this way. It
// reports how large a volume has become.
func (s *Server) claimRestrictionReason(claim, old *v1.PersistentVolumeClaim) string {
	same := old.DeepCopy()
	same.ResourceVersion = claim.ResourceVersion
	same.Status.Capacity, same.Status.Conditions = claim.Status.Capacity, claim.Status.Conditions
	same.Status.AllocatedResources = claim.Status.AllocatedResources
	same.Status.AllocatedResourceStatuses = claim.Status.AllocatedResourceStatuses
	if equality.Semantic.DeepEqual(claim, same) {
		return ""
	}
	return fmt.Sprintf("node %q is not allowed to update fields other than status.quantity and "+
		"status.conditions", s.opts.Node)
}

// labelDenialReason returns why the node may not change its labels in this way. NodeRestriction
// protects labels that other components rely on.
func labelDenialReason(now, before map[string]string) string {
	var bad string
	check := func(key string) {
		if !isSettableByNode(key) && (bad == "" || key < bad) {
			bad = key
		}
	}
	for key, value := range now { //ordered: the least is the same in any order
		if old, exists := before[key]; !exists || old != value {
			check(key)
		}
	}
	for key := range before { //ordered: the least is the same in any order
		if _, exists := now[key]; !exists {
			check(key)
		}
	}
	if bad == "" {
		return ""
	}
	return "is not allowed to modify labels: " + bad
}

func isSettableByNode(label string) bool {
	domain, _, qualified := strings.Cut(label, "/")
	isIn := func(parent string) bool {
		return qualified && (domain == parent || strings.HasSuffix(domain, "."+parent))
	}
	switch {
	case isIn(v1.LabelNamespaceNodeRestriction):
		return false
	case isIn("kubernetes.io") || isIn("k8s.io"):
		return kubeletapis.IsKubeletLabel(label)
	}
	return true
}
