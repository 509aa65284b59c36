package manifest

import (
	"regexp"
	"slices"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// Volumes that a claim or an array of disks stands behind, and the devices of containers. Upstream:
// pkg/apis/core/validation/validation.go.

// checkStorage checks a volume of a claim, of iSCSI or of fibre channel.
func (v *validator) checkStorage(s *v1.VolumeSource, p *field.Path) {
	if s.PersistentVolumeClaim != nil {
		v.required(p.Child("persistentVolumeClaim", "claimName"), s.PersistentVolumeClaim.ClaimName)
	}
	if s.Ephemeral != nil {
		v.checkClaimTemplate(s.Ephemeral.VolumeClaimTemplate,
			p.Child("ephemeral", "volumeClaimTemplate"))
	}
	if s.ISCSI != nil {
		v.checkISCSI(s.ISCSI, p.Child("iscsi"))
	}
	if s.FC != nil {
		v.checkFC(s.FC, p.Child("fc"))
	}
}

func (v *validator) checkClaimTemplate(template *v1.PersistentVolumeClaimTemplate, p *field.Path) {
	if template == nil {
		v.add(field.Required(p, ""))
		return
	}
	spec, q := &template.Spec, p.Child("spec")
	if len(spec.AccessModes) == 0 {
		v.add(field.Required(q.Child("accessModes"), "a claim has an access mode"))
	}
	for i, mode := range spec.AccessModes {
		oneOf(v, q.Child("accessModes").Index(i), mode, v1.ReadWriteOnce, v1.ReadOnlyMany,
			v1.ReadWriteMany, v1.ReadWriteOncePod)
	}
	if len(spec.AccessModes) > 1 && slices.Contains(spec.AccessModes, v1.ReadWriteOncePod) {
		v.add(field.Forbidden(q.Child("accessModes"), "ReadWriteOncePod is alone"))
	}
	if size := spec.Resources.Requests.Storage(); size.Sign() <= 0 {
		v.invalid(q.Child("resources", "requests", "storage"), size.String(), "must be positive")
	}
	if mode := spec.VolumeMode; mode != nil {
		oneOf(v, q.Child("volumeMode"), *mode, v1.PersistentVolumeFilesystem, v1.PersistentVolumeBlock)
	}
}

func (v *validator) checkISCSI(s *v1.ISCSIVolumeSource, p *field.Path) {
	v.required(p.Child("targetPortal"), s.TargetPortal)
	v.checkISCSIName(p.Child("iqn"), s.IQN)
	if s.InitiatorName != nil {
		v.checkISCSIName(p.Child("initiatorName"), *s.InitiatorName)
	}
	v.inRange(p.Child("lun"), int64(s.Lun), 0, lunMax)
	if (s.DiscoveryCHAPAuth || s.SessionCHAPAuth) && s.SecretRef == nil {
		v.add(field.Required(p.Child("secretRef"), "CHAP needs its secret"))
	}
}

// iscsiName is the format of the name of a target or an initiator: one of three (RFC 3720, 3.2.6).
// A qualified name has a part after the colon, as the API server demands.
var iscsiName = regexp.MustCompile(`^(iqn\.\d{4}-\d{2}\.[A-Za-z0-9.-]+:[^,;*&$|\s]+|` +
	`eui\.[A-Za-z0-9]{16}|naa\.[A-Za-z0-9]{32})$`)

func (v *validator) checkISCSIName(p *field.Path, name string) {
	if !iscsiName.MatchString(name) {
		v.invalid(p, name, "must be as iqn.2001-04.com.example:disk, eui.… or naa.…")
	}
}

func (v *validator) checkFC(s *v1.FCVolumeSource, p *field.Path) {
	v.exactlyOne(p, "targetWWNs or wwids", len(s.TargetWWNs) > 0, len(s.WWIDs) > 0)
	switch {
	case len(s.TargetWWNs) == 0: // a disk has its WWID whatever its number is
	case s.Lun == nil:
		v.add(field.Required(p.Child("lun"), "a disk of a target has a number"))
	default:
		v.inRange(p.Child("lun"), int64(*s.Lun), 0, lunMax)
	}
}

// lunMax is the greatest number of a logical unit.
const lunMax = 255

// checkDevices checks the block devices of a container. They are of claims, which a static pod
// cannot have. Places are the paths of its mounts.
func (v *validator) checkDevices(c *v1.Container, places map[string]bool, p *field.Path) {
	names := map[string]bool{}
	for i := range c.VolumeMounts {
		names[c.VolumeMounts[i].Name] = true
	}
	for i := range c.VolumeDevices {
		device, q := &c.VolumeDevices[i], p.Child("volumeDevices").Index(i)
		if v.static {
			v.add(field.Forbidden(q, "no volume of a static pod is a block device: "+device.Name))
			continue
		}
		switch volume := v.volumes[device.Name]; {
		case volume == nil:
			v.add(field.NotFound(q.Child("name"), device.Name))
		case volume.PersistentVolumeClaim == nil && volume.Ephemeral == nil:
			v.invalid(q.Child("name"), device.Name, "only a volume of a claim is a block device")
		}
		v.unique(q.Child("name"), device.Name, names)
		v.required(q.Child("devicePath"), device.DevicePath)
		v.noParent(q.Child("devicePath"), device.DevicePath)
		v.unique(q.Child("devicePath"), device.DevicePath, places)
	}
}
