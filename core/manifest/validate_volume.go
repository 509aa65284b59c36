package manifest

import (
	"path"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// checkVolumes checks the pod's volumes, and records them by name for the mounts.
func (v *validator) checkVolumes(volumes []v1.Volume, p *field.Path) {
	for i := range volumes {
		volume, q := &volumes[i], p.Index(i)
		if volume.Name == "" {
			v.add(field.Required(q.Child("name"), "a volume has a name"))
			continue
		}
		v.addInvalid(q.Child("name"), volume.Name, validation.IsDNS1123Label(volume.Name))
		if v.volumes[volume.Name] != nil {
			v.add(field.Duplicate(q.Child("name"), volume.Name))
		}
		v.volumes[volume.Name] = volume
		v.checkVolumeSource(&volume.VolumeSource, q)
	}
}

func (v *validator) checkVolumeSource(s *v1.VolumeSource, p *field.Path) {
	v.exactlyOne(p, "a source", s.HostPath != nil, s.EmptyDir != nil, s.Secret != nil,
		s.NFS != nil, s.ISCSI != nil, s.PersistentVolumeClaim != nil, s.DownwardAPI != nil,
		s.FC != nil, s.ConfigMap != nil, s.Projected != nil, s.CSI != nil, s.Ephemeral != nil,
		s.Image != nil, s.FlexVolume != nil, s.GCEPersistentDisk != nil,
		s.AWSElasticBlockStore != nil, s.GitRepo != nil, s.Glusterfs != nil, s.RBD != nil,
		s.Cinder != nil, s.CephFS != nil, s.Flocker != nil, s.AzureFile != nil,
		s.VsphereVolume != nil, s.Quobyte != nil, s.AzureDisk != nil,
		s.PhotonPersistentDisk != nil, s.PortworxVolume != nil, s.ScaleIO != nil,
		s.StorageOS != nil)
	if s.HostPath != nil {
		v.checkHostPath(s.HostPath, p.Child("hostPath"))
	}
	if s.EmptyDir != nil {
		v.checkEmptyDir(s.EmptyDir, p.Child("emptyDir"))
	}
	if s.NFS != nil {
		v.required(p.Child("nfs", "server"), s.NFS.Server)
		if !path.IsAbs(s.NFS.Path) {
			v.invalid(p.Child("nfs", "path"), s.NFS.Path, "must be an absolute path")
		}
	}
	if s.CSI != nil && s.CSI.Driver == "" {
		v.add(field.Required(p.Child("csi", "driver"), ""))
	}
	if s.Image != nil {
		v.required(p.Child("image", "reference"), s.Image.Reference)
		oneOf(v, p.Child("image", "pullPolicy"), s.Image.PullPolicy,
			v1.PullAlways, v1.PullIfNotPresent, v1.PullNever)
	}
	if s.DownwardAPI != nil {
		v.mode(p.Child("downwardAPI", "defaultMode"), s.DownwardAPI.DefaultMode)
		v.checkDownwardFiles(s.DownwardAPI.Items, p.Child("downwardAPI", "items"))
	}
	if s.Projected != nil {
		v.checkProjected(s.Projected, p.Child("projected"))
	}
	v.checkStorage(s, p)
}

func (v *validator) checkHostPath(s *v1.HostPathVolumeSource, p *field.Path) {
	v.required(p.Child("path"), s.Path)
	v.noParent(p.Child("path"), s.Path)
	oneOf(v, p.Child("type"), *s.Type, v1.HostPathUnset, v1.HostPathDirectoryOrCreate,
		v1.HostPathDirectory, v1.HostPathFileOrCreate, v1.HostPathFile, v1.HostPathSocket,
		v1.HostPathCharDev, v1.HostPathBlockDev)
}

func (v *validator) checkEmptyDir(s *v1.EmptyDirVolumeSource, p *field.Path) {
	if s.SizeLimit != nil && s.SizeLimit.Sign() < 0 {
		v.invalid(p.Child("sizeLimit"), s.SizeLimit.String(), "must not be negative")
	}
	if !strings.HasPrefix(string(s.Medium), string(v1.StorageMediumHugePages)) {
		oneOf(v, p.Child("medium"), s.Medium, v1.StorageMediumDefault, v1.StorageMediumMemory,
			v1.StorageMediumHugePages)
	}
}

func (v *validator) checkProjected(s *v1.ProjectedVolumeSource, p *field.Path) {
	v.mode(p.Child("defaultMode"), s.DefaultMode)
	for i, source := range s.Sources {
		q := p.Child("sources").Index(i)
		v.exactlyOne(q, "a source", source.Secret != nil, source.DownwardAPI != nil,
			source.ConfigMap != nil, source.ServiceAccountToken != nil,
			source.ClusterTrustBundle != nil, source.PodCertificate != nil)
		if source.DownwardAPI != nil {
			v.checkDownwardFiles(source.DownwardAPI.Items, q.Child("downwardAPI", "items"))
		}
		if source.ClusterTrustBundle != nil {
			v.checkTrustBundle(source.ClusterTrustBundle, q.Child("clusterTrustBundle"))
		}
	}
}

// checkTrustBundle checks a projection of trust anchors: one bundle by name, or those of a signer.
func (v *validator) checkTrustBundle(s *v1.ClusterTrustBundleProjection, p *field.Path) {
	v.exactlyOne(p, "name or signerName", s.Name != nil, s.SignerName != nil)
	if s.Name != nil && s.LabelSelector != nil {
		v.add(field.Forbidden(p.Child("labelSelector"), "only with signerName"))
	}
	v.required(p.Child("path"), s.Path)
	v.relativePath(p.Child("path"), s.Path)
}

func (v *validator) checkDownwardFiles(files []v1.DownwardAPIVolumeFile, p *field.Path) {
	for i, file := range files {
		q := p.Index(i)
		v.required(q.Child("path"), file.Path)
		v.relativePath(q.Child("path"), file.Path)
		if strings.HasPrefix(file.Path, "..") {
			v.invalid(q.Child("path"), file.Path, "must not begin with '..'")
		}
		v.mode(q.Child("mode"), file.Mode)
		v.exactlyOne(q, "fieldRef or resourceFieldRef",
			file.FieldRef != nil, file.ResourceFieldRef != nil)
		if file.FieldRef != nil {
			v.checkFieldRef(file.FieldRef, q.Child("fieldRef"))
			if !volumeField(file.FieldRef.FieldPath) {
				v.invalid(q.Child("fieldRef", "fieldPath"), file.FieldRef.FieldPath,
					"is not a field that a volume may show")
			}
		}
		if file.ResourceFieldRef != nil {
			v.checkResourceFieldRef(file.ResourceFieldRef, q.Child("resourceFieldRef"))
			v.required(q.Child("resourceFieldRef", "containerName"), file.ResourceFieldRef.ContainerName)
		}
	}
}

// volumeField reports whether a volume can project a field: labels, annotations, and fields that do
// not change while the pod runs.
func volumeField(path string) bool {
	object, _, _ := strings.Cut(path, "['")
	return slices.Contains([]string{"metadata.name", "metadata.namespace", "metadata.uid",
		"metadata.labels", "metadata.annotations"}, object)
}

func (v *validator) mode(p *field.Path, mode *int32) {
	if mode != nil && (*mode < 0 || *mode > 0o777) {
		v.invalid(p, *mode, "must be between 0 and 0777 octal")
	}
}

// checkMounts checks the mount paths and devices of a container.
func (v *validator) checkMounts(c *v1.Container, p *field.Path) {
	places := map[string]bool{}
	for i := range c.VolumeMounts {
		mount, q := &c.VolumeMounts[i], p.Child("volumeMounts").Index(i)
		v.checkMount(mount, q)
		v.unique(q.Child("mountPath"), mount.MountPath, places)
		privileged := c.SecurityContext != nil && c.SecurityContext.Privileged != nil &&
			*c.SecurityContext.Privileged
		if mount.MountPropagation == nil {
			continue
		}
		oneOf(v, q.Child("mountPropagation"), *mount.MountPropagation,
			v1.MountPropagationNone, v1.MountPropagationHostToContainer,
			v1.MountPropagationBidirectional)
		if *mount.MountPropagation == v1.MountPropagationBidirectional && !privileged {
			v.add(field.Forbidden(q.Child("mountPropagation"),
				"Bidirectional is only for privileged containers"))
		}
	}
	v.checkDevices(c, places, p)
}

func (v *validator) checkMount(mount *v1.VolumeMount, p *field.Path) {
	switch {
	case mount.Name == "":
		v.add(field.Required(p.Child("name"), "a mount names a volume"))
	case v.volumes[mount.Name] == nil:
		v.add(field.NotFound(p.Child("name"), mount.Name))
	}
	v.required(p.Child("mountPath"), mount.MountPath)
	if strings.Contains(mount.MountPath, ":") {
		v.invalid(p.Child("mountPath"), mount.MountPath, "must not contain ':'")
	}
	if mount.SubPath != "" && mount.SubPathExpr != "" {
		v.invalid(p.Child("subPathExpr"), mount.SubPathExpr, "cannot be set together with subPath")
	}
	v.relativePath(p.Child("subPath"), mount.SubPath)
	v.relativePath(p.Child("subPathExpr"), mount.SubPathExpr)
	if mount.RecursiveReadOnly != nil {
		oneOf(v, p.Child("recursiveReadOnly"), *mount.RecursiveReadOnly,
			v1.RecursiveReadOnlyDisabled, v1.RecursiveReadOnlyIfPossible,
			v1.RecursiveReadOnlyEnabled)
		recursive := *mount.RecursiveReadOnly != v1.RecursiveReadOnlyDisabled
		if recursive && !mount.ReadOnly {
			v.add(field.Forbidden(p.Child("recursiveReadOnly"), "needs readOnly"))
		}
		if how := mount.MountPropagation; recursive && how != nil && *how != v1.MountPropagationNone {
			v.add(field.Forbidden(p.Child("recursiveReadOnly"), "needs mountPropagation None"))
		}
	}
}
