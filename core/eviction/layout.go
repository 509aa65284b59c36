package eviction

import (
	"slices"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"seedlet.dev/core/runtime"
)

// On which file systems the images and the writable layers of containers are (KEP-4191), as the
// runtime and the devices say.

// Layout is which of the file systems of the node, the images and the writable layers are one.
type Layout string

// The layouts. The kubelet supports the first three.
const (
	LayoutOne         Layout = "one"         // all are one
	LayoutImagefs     Layout = "imagefs"     // images and layers are on one of their own
	LayoutSplit       Layout = "split"       // images are, layers are on that of the node
	LayoutContainerfs Layout = "containerfs" // the layers are on one of their own
)

// layout returns the layout; empty if a device is not known yet.
func (m *Manager) layout() Layout {
	layers := m.device(sourceContainerfs)
	switch {
	case m.Nodefs == 0 || m.Imagefs == 0 || layers == 0:
		return ""
	case layers != m.Nodefs && layers != m.Imagefs:
		return LayoutContainerfs
	case m.Nodefs == m.Imagefs:
		return LayoutOne
	case layers == m.Imagefs:
		return LayoutImagefs
	}
	return LayoutSplit
}

// device returns the device of the file system that a source is about; zero: not known.
func (m *Manager) device(source int) uint64 {
	switch {
	case source == sourceNodefs:
		return m.Nodefs
	case source == sourceContainerfs && m.LayersPath != "":
		return m.Containerfs
	}
	return m.Imagefs
}

// setDevice records the device of a file system that was measured. The thresholds of the file
// system of the layers follow from it, unless the search for a victim refers to them.
func (m *Manager) setDevice(source int, device uint64) {
	switch source {
	case sourceNodefs:
		m.Nodefs = device
	case sourceImagefs:
		m.Imagefs = device
	case sourceContainerfs:
		m.Containerfs = device
	}
	if layout := m.layout(); layout != m.Layout && m.Attempt == nil {
		m.Layout = layout
		m.copyThresholds()
	}
}

// isOneDevice reports whether two sources are about one file system, as far as that is known.
func (m *Manager) isOneDevice(x, y int) bool {
	mine, its := m.device(x), m.device(y)
	return mine == 0 || its == 0 || mine == its
}

// sourceOf returns which request observes a signal: for the file system of the writable layers the
// one that observes it as that of the node or of the images, if it is one of them.
func (m *Manager) sourceOf(s Signal) int {
	source, _ := sourceOf(s)
	if source != sourceContainerfs {
		return source
	}
	switch m.device(sourceContainerfs) {
	case 0:
	case m.Nodefs:
		return sourceNodefs
	case m.Imagefs:
		return sourceImagefs
	}
	return sourceContainerfs
}

// copyThresholds makes the thresholds of the file system of the writable layers: they are those of
// the images if it has both, and of the node otherwise (UpdateContainerFsThresholds in
// pkg/kubelet/eviction/helpers.go). The others come first, and so decide what messages say.
func (m *Manager) copyThresholds() {
	m.Thresholds = slices.DeleteFunc(m.Thresholds, func(t Threshold) bool {
		return t.Signal == ContainerfsAvailable || t.Signal == ContainerfsInodesFree
	})
	delete(m.Observed, ContainerfsAvailable)
	delete(m.Observed, ContainerfsInodesFree)
	if m.Layout == "" {
		return
	}
	available, inodesFree := NodefsAvailable, NodefsInodesFree
	if m.Layout == LayoutImagefs {
		available, inodesFree = ImagefsAvailable, ImagefsInodesFree
	}
	for _, t := range m.Thresholds {
		switch t.Signal {
		case available:
			t.Signal = ContainerfsAvailable
		case inodesFree:
			t.Signal = ContainerfsInodesFree
		default:
			continue
		}
		t.MetSince, t.MetForGrace = time.Time{}, false
		m.Thresholds = append(m.Thresholds, t)
	}
}

// applyInfo takes over where the runtime has its images and writable layers. A runtime that does
// not say where its layers are has them beside its images. One that does not say where its images
// are any more has not moved them.
func (m *Manager) applyInfo(info *runtimeapi.ImageFsInfoResponse) {
	images := runtime.Mountpoint(info.GetImageFilesystems())
	if images == "" {
		return
	}
	layers := runtime.Mountpoint(info.GetContainerFilesystems())
	if layers == images {
		layers = ""
	}
	if images != m.ImagePath {
		m.Imagefs = 0
	}
	if layers != m.LayersPath {
		m.Containerfs = 0
	}
	m.ImagePath, m.LayersPath = images, layers
}

// LayersApart reports whether the writable layers are, or may be, in another file system than that
// of the node. It is false without a threshold for a file system: no device is observed then.
func (m *Manager) LayersApart() bool {
	return m.observes(sourceNodefs) &&
		(m.Nodefs == 0 || m.Nodefs != m.device(sourceContainerfs))
}

// observes reports whether a source is observed. A threshold for one file system has all of them
// observed: what is removed before a pod is evicted depends on which of them are one. The source of
// the writable layers is observed unless it is known to be that of the node or of the images.
func (m *Manager) observes(source int) bool {
	if source == sourceContainerfs && (m.LayersPath == "" ||
		m.sourceOf(ContainerfsAvailable) != sourceContainerfs) {
		return false
	}
	return slices.ContainsFunc(m.Thresholds, func(t Threshold) bool {
		return (m.sourceOf(t.Signal) == sourceNode) == (source == sourceNode)
	})
}
