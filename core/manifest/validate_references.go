package manifest

import (
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// checkReferences rejects references to objects that only the API server has: a static pod has to
// run without an API server, and the server rejects the mirror pod (kubernetes issue 103587).
func (v *validator) checkReferences(pod *v1.Pod) {
	spec, p := &pod.Spec, field.NewPath("spec")
	v.forbidReference(p.Child("serviceAccountName"), spec.ServiceAccountName != "", "service accounts")
	v.forbidReference(p.Child("imagePullSecrets"), len(spec.ImagePullSecrets) > 0, "secrets")
	v.forbidReference(p.Child("resourceClaims"), len(spec.ResourceClaims) > 0, "resource claims")
	for i := range spec.Volumes {
		v.checkVolumeReferences(&spec.Volumes[i], p.Child("volumes").Index(i))
	}
	for i := range spec.InitContainers {
		v.checkContainerReferences(&spec.InitContainers[i], p.Child("initContainers").Index(i))
	}
	for i := range spec.Containers {
		v.checkContainerReferences(&spec.Containers[i], p.Child("containers").Index(i))
	}
	if len(spec.EphemeralContainers) > 0 {
		v.add(field.Forbidden(p.Child("ephemeralContainers"),
			"come to a running pod through the API only"))
	}
}

func (v *validator) checkContainerReferences(c *v1.Container, p *field.Path) {
	for i, env := range c.Env {
		if from, q := env.ValueFrom, p.Child("env").Index(i).Child("valueFrom"); from != nil {
			v.forbidReference(q.Child("configMapKeyRef"), from.ConfigMapKeyRef != nil, "config maps")
			v.forbidReference(q.Child("secretKeyRef"), from.SecretKeyRef != nil, "secrets")
		}
	}
	for i, from := range c.EnvFrom {
		q := p.Child("envFrom").Index(i)
		v.forbidReference(q.Child("configMapRef"), from.ConfigMapRef != nil, "config maps")
		v.forbidReference(q.Child("secretRef"), from.SecretRef != nil, "secrets")
	}
	v.forbidReference(p.Child("resources", "claims"), len(c.Resources.Claims) > 0, "resource claims")
}

func (v *validator) checkVolumeReferences(volume *v1.Volume, p *field.Path) {
	const claims, secrets = "persistent volume claims", "secrets"
	v.forbidReference(p.Child("persistentVolumeClaim"), volume.PersistentVolumeClaim != nil, claims)
	v.forbidReference(p.Child("ephemeral"), volume.Ephemeral != nil, claims)
	v.forbidReference(p.Child("configMap"), volume.ConfigMap != nil, "config maps")
	v.forbidReference(p.Child("secret"), volume.Secret != nil, secrets)
	v.forbidReference(p.Child("azureFile"), volume.AzureFile != nil, secrets)
	v.forbidReference(p.Child("cephfs", "secretRef"),
		volume.CephFS != nil && volume.CephFS.SecretRef != nil, secrets)
	v.forbidReference(p.Child("cinder", "secretRef"),
		volume.Cinder != nil && volume.Cinder.SecretRef != nil, secrets)
	v.forbidReference(p.Child("flexVolume", "secretRef"),
		volume.FlexVolume != nil && volume.FlexVolume.SecretRef != nil, secrets)
	v.forbidReference(p.Child("rbd", "secretRef"),
		volume.RBD != nil && volume.RBD.SecretRef != nil, secrets)
	v.forbidReference(p.Child("scaleIO", "secretRef"),
		volume.ScaleIO != nil && volume.ScaleIO.SecretRef != nil, secrets)
	v.forbidReference(p.Child("iscsi", "secretRef"),
		volume.ISCSI != nil && volume.ISCSI.SecretRef != nil, secrets)
	v.forbidReference(p.Child("storageos", "secretRef"),
		volume.StorageOS != nil && volume.StorageOS.SecretRef != nil, secrets)
	v.forbidReference(p.Child("csi", "nodePublishSecretRef"),
		volume.CSI != nil && volume.CSI.NodePublishSecretRef != nil, secrets)
	if volume.Projected == nil {
		return
	}
	for i, source := range volume.Projected.Sources {
		q := p.Child("projected", "sources").Index(i)
		v.forbidReference(q.Child("secret"), source.Secret != nil, secrets)
		v.forbidReference(q.Child("configMap"), source.ConfigMap != nil, "config maps")
		v.forbidReference(q.Child("serviceAccountToken"), source.ServiceAccountToken != nil,
			"service accounts")
		v.forbidReference(q.Child("clusterTrustBundle"), source.ClusterTrustBundle != nil,
			"cluster trust bundles")
		v.forbidReference(q.Child("podCertificate"), source.PodCertificate != nil, "pod certificates")
	}
}

func (v *validator) forbidReference(p *field.Path, set bool, kind string) {
	if set {
		v.add(field.Forbidden(p, "a static pod may not reference "+kind))
	}
}
