package oracle

import (
	"maps"
	"path"
	"slices"
	"strings"

	"seedlet.dev/sim/truth"
	"seedlet.dev/world"
)

// What is given to targets and kept of disks: the settings with which the node logs in, and the
// marks of fibre channel disks.

// chapPrefix begins the settings of CHAP in the record of a session.
const chapPrefix = "node.session.auth."

// findForeignSecret returns that a login gives a target what no Secret of a volume has that names
// the session. A record may still have what an earlier login of a pod has set, or a part of that.
// Without a volume that is known, as its claim has gone meanwhile, nothing is wrong.
func (m *model) findForeignSecret(f *truth.Fact) *finding {
	given := maps.Clone(f.Settings)
	maps.DeleteFunc(given, func(name, _ string) bool { return !strings.HasPrefix(name, chapPrefix) })
	isNamed := false
	for _, p := range m.podsInOrder {
		for _, spec := range p.specs {
			for i := range spec.Spec.Volumes {
				d := m.volumes.diskOf(spec, &spec.Spec.Volumes[i])
				if d == nil || d.kind != "iscsi" || d.target != f.Source || d.iface != f.NewPath ||
					!slices.Contains(d.portals, f.Path) {
					continue
				}
				if isNamed = true; m.mayBeGiven(d, given) {
					return nil
				}
			}
		}
	}
	if !isNamed {
		return nil
	}
	return findingf("a login to %s at %s by %s gives it %v, which no volume of it says", f.Source,
		f.Path, f.NewPath, given)
}

// mayBeGiven reports whether a disk says that a target is given some settings of CHAP.
func (m *model) mayBeGiven(d *disk, given map[string]string) bool {
	if len(given) == 0 || !d.hasCHAP || d.secret == nil {
		return len(given) == 0 // a target that needs more refuses the login
	}
	key := objectKey(world.ResourceSecrets, d.secret.Namespace, d.secret.Name)
	return slices.ContainsFunc(m.objectHistory.states[key], func(data map[string][]byte) bool {
		for name, value := range given { //ordered: whether all are
			if string(data[name]) != value && (name != chapPrefix+"authmethod" || value != "CHAP") {
				return false
			}
		}
		return true
	})
}

// findWrongMark returns that the mark of a fibre channel disk names another one.
func (m *model) findWrongMark(f *truth.Fact) *finding {
	dir, id := path.Split(f.Path)
	name, isMark := strings.CutPrefix(path.Clean(dir), m.diskDir("fc")+"/"+diskMarks+"/")
	if f.Cause != "" || !isMark || name == "volumeDevices" {
		return nil
	}
	name = path.Base(name)
	for _, p := range m.podsInOrder {
		for _, spec := range p.specs {
			for i := range spec.Spec.Volumes {
				d := m.volumes.diskOf(spec, &spec.Spec.Volumes[i])
				if d != nil && d.kind == "fc" && d.dir() == name && d.wwid() != id {
					return findingf("the mark of %s has the name %s, and that is %s", d.node(), id, d.wwid())
				}
			}
		}
	}
	return nil
}

// wwid returns the name that the kernel has for a fibre channel disk.
func (d *disk) wwid() string {
	array, lun, _ := strings.Cut(strings.TrimPrefix(d.node(), "/dev/fc/"), "-lun-")
	return "naa." + array + strings.Repeat("0", max(0, 4-len(lun))) + lun
}
