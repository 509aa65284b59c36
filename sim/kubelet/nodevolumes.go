package kubelet

import (
	"path"

	v1 "k8s.io/api/core/v1"

	"seedlet.dev/world"
)

// Persistent volumes of the kinds local, hostPath and NFS (pkg/volume/local, host_path and nfs).
// The device of a local volume is mounted once for all pods, in plugins/kubernetes.io/local-volume,
// and bound for each of them; a device that containers get is bound for each pod in
// plugins/kubernetes.io~local-volume, and held there.

const localPlugin = "kubernetes.io~local-volume"

// nodePath returns where a volume is for its pod.
func (k *Kubelet) nodePath(u *usedVolume) string {
	dir := k.opts.RootDir + "/pods/" + u.uid
	switch s := &u.pv.Spec; {
	case s.HostPath != nil:
		return path.Clean(s.HostPath.Path)
	case s.NFS != nil:
		return dir + "/volumes/kubernetes.io~nfs/" + u.name
	case u.isBlock:
		return dir + "/volumeDevices/" + localPlugin + "/" + u.name
	}
	return dir + "/volumes/" + localPlugin + "/" + u.name
}

// deviceMountPath returns where the file system of a device is mounted for all pods; empty if the
// volume is a directory (MountDevice in local.go).
func (k *Kubelet) deviceMountPath(u *usedVolume) string {
	if u.pv.Spec.Local == nil || u.isBlock || path.Dir(u.pv.Spec.Local.Path) != "/dev" {
		return ""
	}
	return k.opts.RootDir + "/plugins/kubernetes.io/local-volume/mounts/" + u.name
}

// globalMapPath returns the directory in which a device is bound for its pods.
func (k *Kubelet) globalMapPath(u *usedVolume) string {
	return k.opts.RootDir + "/plugins/" + localPlugin + "/volumeDevices/" + u.name
}

// nodeSteps returns what gives a volume to a pod.
func (k *Kubelet) nodeSteps(u *usedVolume) []*step {
	at, s := k.nodePath(u), &u.pv.Spec
	switch {
	case s.HostPath != nil:
		if s.HostPath.Type != nil && *s.HostPath.Type == v1.HostPathDirectoryOrCreate {
			return []*step{mkdir(at, 0o755)}
		}
		return nil
	case s.NFS != nil:
		return []*step{mkdir(at, 0o750), {ofPod("mounted", u.uid), world.PortFS, &world.MountNFS{
			Server: s.NFS.Server, Export: s.NFS.Path, Path: at, ReadOnly: u.readOnly || s.NFS.ReadOnly,
			Options: s.MountOptions}}}
	case u.isBlock:
		return k.mapSteps(u, s.Local.Path, k.globalMapPath(u), at)
	}
	source, steps := s.Local.Path, []*step(nil)
	if global := k.deviceMountPath(u); global != "" {
		source = global
		steps = []*step{mkdir(global, 0o750), {"device", world.PortFS, &world.MountDevice{
			Device: s.Local.Path, Path: global, FSType: "ext4", ReadOnly: u.readOnly}}}
	}
	return append(steps, mkdir(at, 0o750), &step{ofPod("mounted", u.uid), world.PortFS,
		&world.BindMount{Source: source, Path: at, ReadOnly: u.readOnly}})
}

// mapSteps returns what gives a device to a pod: it is bound, linked to and held (MapBlockVolume in
// pkg/volume/util).
func (k *Kubelet) mapSteps(u *usedVolume, device, global, link string) []*step {
	bound := global + "/" + u.uid
	return []*step{mkdir(global, 0o750),
		{ofPod("file", u.uid), world.PortFS, &world.WriteFile{Path: bound, Mode: 0o750, Volatile: true}},
		{ofPod("bound", u.uid), world.PortFS, &world.BindMount{Source: device, Path: bound}},
		mkdir(path.Dir(link), 0o750),
		{ofPod("link", u.uid), world.PortFS, &world.MakeLink{Path: link, Target: device}},
		{ofPod("held", u.uid), world.PortFS, &world.HoldDevice{Path: bound}}}
}

// unmapSteps undoes mapSteps (UnmapBlockVolume).
func (k *Kubelet) unmapSteps(u *usedVolume, global, link string) []*step {
	bound := global + "/" + u.uid
	return []*step{
		{ofPod("freed", u.uid), world.PortFS, &world.ReleaseDevice{Path: bound}},
		{ofPod("unlinked", u.uid), world.PortFS, &world.RemoveTree{Path: link}},
		{ofPod("unbound", u.uid), world.PortFS, &world.Unmount{Path: bound}},
		{ofPod("file removed", u.uid), world.PortFS, &world.RemoveTree{Path: bound}}}
}

// nodeTearDown returns what takes a volume from a pod, and what then undoes the rest if no other
// pod has it.
func (k *Kubelet) nodeTearDown(u *usedVolume) (ofThis, last []*step) {
	at := k.nodePath(u)
	switch {
	case u.pv.Spec.HostPath != nil:
		return nil, nil
	case u.isBlock:
		return k.unmapSteps(u, k.globalMapPath(u), at),
			[]*step{{"map removed", world.PortFS, &world.RemoveTree{Path: k.globalMapPath(u)}}}
	}
	ofThis = []*step{{ofPod("unmounted", u.uid), world.PortFS, &world.Unmount{Path: at}},
		{ofPod("removed", u.uid), world.PortFS, &world.RemoveTree{Path: at}}}
	if global := k.deviceMountPath(u); global != "" {
		last = []*step{{"device unmounted", world.PortFS, &world.Unmount{Path: global}},
			{"device removed", world.PortFS, &world.RemoveTree{Path: global}}}
	}
	return ofThis, last
}
