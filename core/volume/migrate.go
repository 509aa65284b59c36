package volume

import (
	"fmt"

	"github.com/go-logr/logr"
	v1 "k8s.io/api/core/v1"
	translation "k8s.io/csi-translation-lib"

	"seedlet.dev/core/csi"
)

// Volumes of the kinds whose plugins were removed from Kubernetes, as those of cloud disks, are
// volumes of the CSI drivers that have replaced these plugins (KEP-625). All controllers of a
// cluster translate them alike, by one library: the names of volumes, which include the handle,
// have to be equal.

var translator = translation.New()

// migratePV returns the volume of a CSI driver that a persistent volume of such a kind is; any
// other one as it is.
func migratePV(pv *v1.PersistentVolume) (migrated *v1.PersistentVolume, isMigrated bool,
	err error) {
	if pv.Spec.CSI != nil || !translator.IsPVMigratable(pv) {
		return pv, false, nil
	}
	if migrated, err = translator.TranslateInTreePVToCSI(logr.Discard(), pv); err != nil {
		return nil, true, notTranslated(err)
	}
	return migrated, true, nil
}

// migrateInline returns how a pod uses a volume of such a kind that is written in it. Such a volume
// exists longer than the pod, is attached and staged, and may be used by several pods. As with a
// kubelet, readOnly of its source does not make its mounts read-only.
func migrateInline(pod *v1.Pod, v *v1.Volume) (csi.Use, error) {
	v = v.DeepCopy()
	policy := ""
	if s := v.VsphereVolume; s != nil { // the library looks for it where there is nothing, and panics
		policy, s.StoragePolicyName = s.StoragePolicyName, ""
	}
	pv, err := translator.TranslateInTreeInlineVolumeToCSI(logr.Discard(), v, pod.Namespace)
	if err != nil {
		return csi.Use{}, notTranslated(err)
	}
	if policy != "" {
		pv.Spec.CSI.VolumeAttributes["storagepolicyname"] = policy
	}
	u := csi.PersistentUse(pod, v, pv, false)
	u.SpecName, u.Migrated, u.Inline = csi.EscapeName(pv.Name), true, true
	return u, nil
}

// isMigratedInline reports whether a volume is of such a kind.
func isMigratedInline(v *v1.Volume) bool { return translator.IsInlineMigratable(v) }

func notTranslated(err error) error {
	return &setupError{stepProcess, fmt.Errorf("failed to translate in-tree pv to CSI: %w", err)}
}
