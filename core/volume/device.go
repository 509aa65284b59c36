package volume

import (
	"fmt"
	"path"

	"seedlet.dev/core/csi"
	"seedlet.dev/core/devicemount"
	"seedlet.dev/core/scsi"
	"seedlet.dev/world"
)

// Local volumes of volumeMode Block: package devicemount has their files, and takes the devices
// from pods that have ended.

// deviceSteps returns the operations that give the device of a local volume to a pod. The link
// leads to what is bound: the path of the volume may itself be a link, which leads to another
// device after a restart of the agent, while the pod keeps the one that it has.
func (v *Volume) deviceSteps(b *Backing, pod *Pod) ([]any, error) {
	if hasBacksteps(b.Source) {
		return nil, &setupError{stepMap, fmt.Errorf("invalid path: %s must not contain '..'", b.Source)}
	}
	steps := []any{&world.StatPath{Path: b.Source}}
	switch {
	case v.StepsDone == 0:
		return steps, nil
	case v.Found == "":
		return nil, &setupError{stepResolve, fmt.Errorf("lstat %s: no such file or directory", b.Source)}
	case v.Found != world.PathBlockDevice:
		return nil, &setupError{stepMap, fmt.Errorf("path %q is not a block device", b.Source)}
	}
	if pod.UseDevice != nil {
		pod.UseDevice(b.Name)
	}
	bound := b.boundPath(pod)
	bind := &world.BindMount{Source: b.Source, Path: bound}
	if b.OnePod {
		bind.Among, bind.Exclusive = path.Dir(bound), true
	}
	return append(steps, bind, &world.HoldDevice{Path: bound},
		&world.MakeLink{Path: b.path(pod.Dir), Target: bound}), nil
}

// boundPath returns the file to which the device of the volume is bound for a pod.
func (b *Backing) boundPath(pod *Pod) string {
	if b.Disk != nil {
		return scsi.BoundPath(pod.RootDir, b.Disk)
	}
	return devicemount.BoundPath(pod.BlocksDir, b.Name, path.Base(pod.Dir))
}

// Device returns where a pod has the device of a volume that is being set up: the name of the
// persistent volume, the file to which the device is bound, and the link in the pod's directory.
// Without a volume it returns empty texts: it was reset meanwhile.
func (s *Set) Device(name string, pod *Pod) (volume, bound, link string) {
	v := s.find(name)
	if v == nil || v.Backing == nil || !v.Backing.Block {
		return "", "", ""
	}
	return v.Backing.Name, v.Backing.boundPath(pod), v.Backing.path(pod.Dir)
}

// failedMapStep returns the step of the kubelet that has failed with an operation of deviceSteps.
func (v *Volume) failedMapStep(call string) string {
	switch {
	case call == "StatPath":
		return stepResolve
	case v.Problem == csi.InUseElsewhere:
		return stepMapAlone
	}
	return stepMap
}
