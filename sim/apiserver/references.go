package apiserver

import (
	v1 "k8s.io/api/core/v1"

	"seedlet.dev/world"
)

// reference is an object in a pod's namespace that the pod refers to.
type reference struct {
	resource world.Resource
	name     string
}

// isReferenced reports whether a pod of the node refers to an object, so that the node may read it.
// References of mirror pods do not count, because the node creates them itself.
func (s *Server) isReferenced(r world.Resource, namespace, name string) bool {
	for k, o := range s.store.objects { //ordered: any of them does
		if k.resource != world.ResourcePods || k.namespace != namespace ||
			o.Pod.Spec.NodeName != s.opts.Node {
			continue
		}
		if _, isMirror := o.Pod.Annotations[v1.MirrorPodAnnotationKey]; isMirror {
			continue
		}
		for _, ref := range podReferences(o.Pod) {
			if ref == (reference{r, name}) {
				return true
			}
		}
	}
	return false
}

// isVolumeReferenced reports whether a volume is bound to a claim that a pod of the node refers to.
func (s *Server) isVolumeReferenced(volume *v1.PersistentVolume) bool {
	claim := volume.Spec.ClaimRef
	return claim != nil && s.isReferenced(world.ResourceClaims, claim.Namespace, claim.Name)
}

// podReferences returns all references of a pod, service accounts first.
func podReferences(pod *v1.Pod) []reference {
	var refs []reference
	add := func(kind world.Resource, name string) {
		if name != "" {
			refs = append(refs, reference{kind, name})
		}
	}
	add(world.ResourceServiceAccounts, pod.Spec.ServiceAccountName)
	for _, secret := range pod.Spec.ImagePullSecrets {
		add(world.ResourceSecrets, secret.Name)
	}
	for i := range pod.Spec.InitContainers {
		addContainerReferences(&pod.Spec.InitContainers[i], add)
	}
	for i := range pod.Spec.Containers {
		addContainerReferences(&pod.Spec.Containers[i], add)
	}
	for i := range pod.Spec.Volumes {
		v := &pod.Spec.Volumes[i]
		addVolumeReferences(v, add)
		if v.Ephemeral != nil { // the claim of its own
			add(world.ResourceClaims, pod.Name+"-"+v.Name)
		}
	}
	return refs
}

func addContainerReferences(c *v1.Container, add func(world.Resource, string)) {
	for _, from := range c.EnvFrom {
		if from.ConfigMapRef != nil {
			add(world.ResourceConfigMaps, from.ConfigMapRef.Name)
		}
		if from.SecretRef != nil {
			add(world.ResourceSecrets, from.SecretRef.Name)
		}
	}
	for _, env := range c.Env {
		if env.ValueFrom == nil {
			continue
		}
		if ref := env.ValueFrom.ConfigMapKeyRef; ref != nil {
			add(world.ResourceConfigMaps, ref.Name)
		}
		if ref := env.ValueFrom.SecretKeyRef; ref != nil {
			add(world.ResourceSecrets, ref.Name)
		}
	}
}

func addVolumeReferences(v *v1.Volume, add func(world.Resource, string)) {
	if v.ConfigMap != nil {
		add(world.ResourceConfigMaps, v.ConfigMap.Name)
	}
	if v.Secret != nil {
		add(world.ResourceSecrets, v.Secret.SecretName)
	}
	if v.PersistentVolumeClaim != nil {
		add(world.ResourceClaims, v.PersistentVolumeClaim.ClaimName)
	}
	if v.ISCSI != nil && v.ISCSI.SecretRef != nil {
		add(world.ResourceSecrets, v.ISCSI.SecretRef.Name)
	}
	if v.CSI != nil && v.CSI.NodePublishSecretRef != nil {
		add(world.ResourceSecrets, v.CSI.NodePublishSecretRef.Name)
	}
	if v.Projected == nil {
		return
	}
	for _, source := range v.Projected.Sources {
		if source.ConfigMap != nil {
			add(world.ResourceConfigMaps, source.ConfigMap.Name)
		}
		if source.Secret != nil {
			add(world.ResourceSecrets, source.Secret.Name)
		}
	}
}
