package csi

import (
	"path"
	"strings"

	"seedlet.dev/core/op"
	"seedlet.dev/world"
)

// Block volumes: containers get the device itself. Their files are those of a kubelet
// (csi_block.go), below plugins/kubernetes.io/csi and the directory of the pod:
//
//	volumeDevices/PV/data/vol_data.json          what the volume is
//	volumeDevices/staging/PV                     where it is staged
//	volumeDevices/publish/PV/UID                 where its driver publishes the device for a pod
//	volumeDevices/PV/dev/UID                     where the agent binds that device, and holds it
//	pods/UID/volumeDevices/kubernetes.io~csi/PV  a link to the device, which the runtime gets
//
// The file to which the device is bound is made before the driver is called, and is removed last:
// it is what an agent that is started after a crash finds of a publication.

const (
	blocksDir  = "volumeDevices"
	stagedDir  = "staging" // of blocksDir
	targetsDir = "publish" // of blocksDir
	blockLinks = "/volumeDevices/kubernetes.io~csi/"
)

// isDirOfBlocks reports whether a directory beside those of the block volumes has the name.
func isDirOfBlocks(name string) bool { return name == stagedDir || name == targetsDir }

// DevicePath returns the link to the device of a block volume, below the directory of its pod.
func DevicePath(podDir, specName string) string { return podDir + blockLinks + specName }

func (n *Node) blocksDir() string { return n.Dir + "/" + blocksDir }

// blockDir returns the directory of the block volume with a name.
func (n *Node) blockDir(specName string) string { return n.blocksDir() + "/" + specName }

// publishDir returns the directory in which a block volume is published for all pods.
func (n *Node) publishDir(specName string) string {
	return n.blocksDir() + "/" + targetsDir + "/" + specName
}

func (n *Node) boundDir(specName string) string { return n.blockDir(specName) + "/dev" }

// boundPath returns the file to which the device of a publication is bound.
func (n *Node) boundPath(p *Publication) string { return n.boundDir(p.SpecName) + "/" + p.UID }

func (n *Node) linkPath(p *Publication) string {
	return DevicePath(n.PodsDir+"/"+p.UID, p.SpecName)
}

// stagingDirs returns the directories that are made before a volume is staged.
func (n *Node) stagingDirs(v *Volume) []string {
	if v.Device == "" {
		return []string{n.stagingPath(v)}
	}
	return []string{n.stagingPath(v), n.blockDir(v.Device) + "/data", n.boundDir(v.Device),
		n.publishDir(v.Device)}
}

// stagingTrees returns the directories that are removed after a volume was unstaged. What says
// that there is a volume goes last.
func (n *Node) stagingTrees(v *Volume) []string {
	if v.Device == "" {
		return []string{n.stagingDir(v)}
	}
	return []string{n.stagingPath(v), n.publishDir(v.Device), n.stagingDir(v)}
}

// mountsBelow returns the directory in whose mounts those of a staged volume are.
func (n *Node) mountsBelow(v *Volume) string {
	if v.Device == "" {
		return n.stagingDir(v)
	}
	return n.blocksDir()
}

// ofVolume returns the mounts that are in the directories of a volume.
func (n *Node) ofVolume(v *Volume, listed *world.MountsListed) *world.MountsListed {
	found := &world.MountsListed{}
	for _, m := range listed.Mounts {
		for _, dir := range n.stagingTrees(v) {
			if m.Path == dir || strings.HasPrefix(m.Path, dir+"/") {
				found.Mounts = append(found.Mounts, m)
				break
			}
		}
	}
	return found
}

// bind issues the next operation that gives a published device to a pod.
func (n *Node) bind(v *Volume, u *Use, p *Publication, env *Env) {
	var body any = &world.BindMount{Source: n.publishedPath(p), Path: n.boundPath(p)}
	switch {
	case p.Held:
		body = &world.MakeLink{Path: n.linkPath(p), Target: n.publishedPath(p)}
	case p.Bound:
		body = &world.HoldDevice{Path: n.boundPath(p)}
	}
	v.issue(subjectUse+u.target(), body, env)
}

// unbind issues the next operation that takes a device from a pod, and reports whether it has.
func (n *Node) unbind(v *Volume, p *Publication, subject string, env *Env) bool {
	switch {
	case !p.Block || v.Driver == "":
		return false
	case !p.Removal.Unlinked:
		v.issue(subject, &world.RemoveTree{Path: n.linkPath(p)}, env)
	case !p.Removal.Freed:
		v.issue(subject, &world.ReleaseDevice{Path: n.boundPath(p)}, env)
	case !p.Removal.Unbound:
		v.issue(subject, &world.Unmount{Path: n.boundPath(p)}, env)
	default:
		return false
	}
	return true
}

// keepDevice has a publication that was about to be undone be used again.
func (p *Publication) keepDevice() {
	p.Linked = p.Linked && !p.Removal.Unlinked
	p.Held = p.Held && !p.Removal.Freed
	p.Bound = p.Bound && !p.Removal.Unbound
	if p.State != "" {
		p.Removal = Removal{}
	}
}

// noteDevice notes what was done for a device; false for any other operation.
func (m *Removal) noteDevice(p *Publication, r op.Record) bool {
	switch {
	case p.Block && r.Call == "RemoveTree" && !m.Unlinked:
		m.Unlinked, p.Linked = true, false
	case p.Block && r.Call == "ReleaseDevice":
		m.Freed, p.Held = true, false
	case p.Block && r.Call == "Unmount":
		m.Unbound, p.Bound = true, false
	default:
		return false
	}
	return true
}

// notDevice is the failure of a driver that says that it has published a device.
const notDevice = "NodePublishVolume has succeeded, but there is no block device at the path"

// itemsOfBlocks adds what is in the directory of all block volumes to the search.
func (n *Node) itemsOfBlocks(item *Item, listed *world.DirListed) {
	for _, entry := range listed.Entries {
		if entry.Directory && !isDirOfBlocks(entry.Name) {
			n.Search.Items = append(n.Search.Items, Item{Kind: itemBlock, Name: entry.Name,
				Path: item.Path + "/" + entry.Name + "/data/" + dataFile})
		}
	}
}

// noteBlock records that a block volume was found, and searches for its publications.
func (n *Node) noteBlock(v *Volume, item *Item, read *world.FilesRead) {
	if v.Device == "" && !v.isGone() {
		return // a file system has the name of the volume
	}
	if v.Device == "" {
		v.Device = item.Name
	}
	if v.Device == item.Name && v.Staging.State == "" {
		v.Staging = Staging{State: Uncertain, Dir: true, DataWritten: isContent(read, n.stagingData(v))}
	}
	for _, dir := range []string{n.boundDir(item.Name), n.publishDir(item.Name)} {
		n.Search.Items = append(n.Search.Items,
			Item{Kind: itemDevices, Name: v.name(), Device: item.Name, Path: dir})
	}
}

// noteDevices records the publications of a block volume, each of which is named as its pod.
func (n *Node) noteDevices(item *Item, listed *world.DirListed) {
	v := n.Volumes[item.Name]
	if v == nil || v.Device == "" {
		return
	}
	for _, entry := range listed.Entries {
		target := TargetOf(entry.Name, item.Device)
		if v.Publications == nil {
			v.Publications = map[string]*Publication{}
		}
		p := v.Publications[target]
		if p == nil {
			p = &Publication{UID: entry.Name, SpecName: item.Device, Block: true, State: Uncertain}
			v.Publications[target] = p
			n.Owners.Add(p.UID, v.name())
			n.Search.Found++
		}
		if item.Path == n.boundDir(item.Device) {
			p.DataWritten, p.Mounted = true, n.Search.Mounts[path.Join(item.Path, entry.Name)]
		}
	}
}
