// Package localstorage measures what a pod keeps on the disks of the node, and finds the limit that
// it exceeds: the size limit of an emptyDir, the limits of ephemeral-storage of its containers, and
// their sum (localStorageEviction in pkg/kubelet/eviction/eviction_manager.go).
//
// Facts: the last measurements, how often each tree could not be measured in a row, and the limit
// that is exceeded. Plan: the next measurement (Usage.NextMeasurement). Events:
// the completions of measurements. Package pod issues the operations and evicts the pod. A pod
// without limits is never measured. Start reading at Usage.
package localstorage

import (
	"fmt"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	podresources "k8s.io/component-helpers/resource"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"seedlet.dev/core/criconfig"
	"seedlet.dev/core/volume"
	"seedlet.dev/world"
)

const (
	// volumesPeriod is the period of passes that measure volumes: the kubelet's
	// volumeStatsAggPeriod.
	volumesPeriod = time.Minute
	// containersPeriod is the period of passes that measure logs and writable layers alone, which is
	// that of the kubelet's eviction manager.
	containersPeriod = 10 * time.Second
	// unfinishedMax is the number of consecutive unfinished measurements from which a tree counts as
	// larger than any limit. One is not enough: a tree that changes fast, or whose inodes have to be
	// read from a busy disk, can be measured in the next pass. Without a bound a pod could evade its
	// limit with a tree that takes too long.
	unfinishedMax = 3
	// bytesMax is what a tree counts as that cannot be measured, and the bound of all sums.
	bytesMax = 1 << 60
)

// Usage is what a pod is known to keep on disks.
type Usage struct {
	Op        world.OpID `json:"op,omitempty"`
	Measuring Item       `json:"measuring"` // what Op measures

	// Passes over containers come before what is left of a pass over volumes, which may take as long
	// as the author of the pod likes.
	Containers Pass `json:"containers"` // over logs and writable layers
	Volumes    Pass `json:"volumes"`    // over volumes and the pod's own files

	Measured   []Measurement  `json:"measured,omitempty"`   // the last one of each item
	Unfinished map[string]int `json:"unfinished,omitempty"` // measurements in a row, by Item.String
	Exceeded   Limit          `json:"exceeded"`             // the limit that the pod exceeds
}

// Pass is one measurement of all items of some kinds.
type Pass struct {
	At       time.Time `json:"at"`                 // when it starts
	Position int       `json:"position,omitempty"` // of its next item
}

// Item is something that can be measured.
type Item struct {
	Kind ItemKind `json:"kind,omitempty"`
	Name string   `json:"name,omitempty"` // of the volume, the files or the container
}

// ItemKind is a kind of items.
type ItemKind string

// The kinds of items.
const (
	VolumeItem ItemKind = "volume"
	LogsItem   ItemKind = "logs"  // of all runs of a container
	LayerItem  ItemKind = "layer" // the writable layer of a running container
	FilesItem  ItemKind = "files" // of the pod's directory, by their name there
)

// ownFiles are the names in the pod's directory of what containers can write besides volumes: a pod
// could have as much in them as the disk takes (CVE-2020-8557).
var ownFiles = [...]string{criconfig.HostsFile, criconfig.MessagesDir}

// String returns the kind and the name.
func (i Item) String() string { return string(i.Kind) + "/" + i.Name }

// Measurement is what an item takes.
type Measurement struct {
	Item
	Bytes  int64 `json:"bytes"`
	Counts bool  `json:"counts,omitempty"` // for the limit of the pod
}

// Limit is a limit of a pod. The zero Limit is none.
type Limit struct {
	Kind LimitKind `json:"kind,omitempty"`
	Name string    `json:"name,omitempty"` // of the volume or the container
}

// LimitKind is a kind of limits.
type LimitKind string

// The kinds of limits, named as the label eviction_signal of the metric kubelet_evictions.
const (
	EmptyDirLimit  LimitKind = "emptydirfs.limit"
	PodLimit       LimitKind = "ephemeralpodfs.limit"
	ContainerLimit LimitKind = "ephemeralcontainerfs.limit"
)

// Pod is what measurements depend on.
type Pod struct {
	Spec        *v1.Pod
	Dir, LogDir string // of the pod
	// IsReady reports whether a volume is set up, by its position and name.
	IsReady func(position int, name string) bool
	// RunningID returns the ID of the running container of a name; empty if none runs.
	RunningID func(container string) string
	// LayersApart reports that writable layers are not, or may not be, in the node's file system. They
	// do not count for the limit of a container then, only for that of the pod.
	LayersApart bool
}

// Operation is a measurement to issue.
type Operation struct {
	Item
	Body any
}

// NextMeasurement returns the next measurement to issue, or nil. The time is when the next pass
// starts, zero if the pod has no limits.
func (u *Usage) NextMeasurement(pod *Pod, now time.Time) (*Operation, time.Time) {
	if !hasLimits(&pod.Spec.Spec) || u.Op != 0 {
		return nil, time.Time{}
	}
	limited := limitOfPod(pod.Spec) != nil
	if limited {
		if u.Containers.Position == 0 && !now.Before(u.Containers.At) {
			u.forgetContainers()
		}
		next := u.next(&u.Containers, containersPeriod, now, func(at int) (Item, any, bool) {
			return containerItem(pod, at)
		})
		if next != nil {
			return next, time.Time{}
		}
	}
	next := u.next(&u.Volumes, volumesPeriod, now, func(position int) (Item, any, bool) {
		return volumeItem(pod, position, limited)
	})
	switch {
	case next != nil:
		return next, time.Time{}
	case limited && u.Containers.At.Before(u.Volumes.At):
		return nil, u.Containers.At
	}
	return nil, u.Volumes.At
}

// next returns the next measurement of a pass. If there is none any more, the next pass starts a
// period later. itemAt returns the item at a position with the request that measures it, which is
// nil if the pass leaves the item out, and false after the last one.
func (u *Usage) next(pass *Pass, period time.Duration, now time.Time,
	itemAt func(position int) (Item, any, bool)) *Operation {
	if now.Before(pass.At) {
		return nil
	}
	for {
		item, body, found := itemAt(pass.Position)
		switch {
		case !found:
			*pass = Pass{At: now.Add(period)} // it may have taken longer than a period
			return nil
		case body != nil:
			pass.Position++
			return &Operation{Item: item, Body: body}
		}
		pass.Position++
		u.forget(item)
	}
}

// volumeItem returns the volume of a pod, or the files of its own, at a position.
func volumeItem(pod *Pod, position int, limited bool) (item Item, body any, found bool) {
	volumes := pod.Spec.Spec.Volumes
	if position < len(volumes) {
		v := &volumes[position]
		if (limited && isLocal(v) || sizeLimit(v) > 0) && pod.IsReady(position, v.Name) {
			body = &world.MeasureTree{Path: volume.Path(pod.Dir, v)}
		}
		return Item{VolumeItem, v.Name}, body, true
	}
	position -= len(volumes)
	if position >= len(ownFiles) {
		return Item{}, nil, false
	}
	if limited {
		body = &world.MeasureTree{Path: pod.Dir + "/" + ownFiles[position]}
	}
	return Item{FilesItem, ownFiles[position]}, body, true
}

// containerItem returns the logs or the writable layer of a container at a position.
func containerItem(pod *Pod, position int) (item Item, body any, found bool) {
	name, found := containerAt(&pod.Spec.Spec, position/2)
	switch {
	case !found:
		return Item{}, nil, false
	case position%2 == 0:
		return Item{LogsItem, name}, &world.MeasureTree{Path: pod.LogDir + "/" + name}, true
	}
	if id := pod.RunningID(name); id != "" {
		body = &runtimeapi.ContainerStatsRequest{ContainerId: id}
	}
	return Item{LayerItem, name}, body, true
}

// containerAt returns the name of the container of any kind at a position.
func containerAt(spec *v1.PodSpec, position int) (string, bool) {
	for _, list := range [][]v1.Container{spec.InitContainers, spec.Containers} {
		if position < len(list) {
			return list[position].Name, true
		}
		position -= len(list)
	}
	if position < len(spec.EphemeralContainers) {
		return spec.EphemeralContainers[position].Name, true
	}
	return "", false
}

// MeasurementIssued records that a measurement is in flight.
func (u *Usage) MeasurementIssued(id world.OpID, item Item) { u.Op, u.Measuring = id, item }

// HandleCompletion applies a completed measurement. An item that could not be measured counts
// nothing until the next pass: what is known of the others is a part of the usage, and may exceed a
// limit alone.
//
// Only the port knows whether a measurement failed because of the tree (TreeMeasured.Unfinished).
// An error never counts as usage, neither does a timeout: the disk may be slow, or the operation
// may have waited for those of other pods, and a pod is not evicted for that.
func (u *Usage) HandleCompletion(pod *Pod, ev world.Event) {
	m := Measurement{Item: u.Measuring, Counts: true}
	u.Op, u.Measuring = 0, Item{}
	u.forget(m.Item)
	if ev.Err != nil || pod.Spec == nil {
		return
	}
	switch body := ev.Body.(type) {
	case *world.TreeMeasured:
		if m.Bytes = body.Bytes; u.countUnfinished(m.Item, body) {
			m.Bytes = bytesMax
		}
	case *runtimeapi.ContainerStatsResponse:
		m.Bytes = int64(min(body.GetStats().GetWritableLayer().GetUsedBytes().GetValue(), bytesMax))
	}
	over := Limit{}
	if m.Kind == VolumeItem {
		v := findVolume(&pod.Spec.Spec, m.Name)
		if limit := sizeLimit(v); limit > 0 && m.Bytes > limit {
			over = Limit{EmptyDirLimit, m.Name}
		}
		m.Counts = isLocal(v)
	}
	u.Measured = append(u.Measured, m)
	if over == (Limit{}) {
		over = u.exceeded(m.Item, pod)
	}
	if over != (Limit{}) {
		u.Exceeded = over
	}
}

// countUnfinished counts the consecutive unfinished measurements of an item, and reports whether
// there are too many.
func (u *Usage) countUnfinished(item Item, measured *world.TreeMeasured) bool {
	key := item.String()
	if !measured.Unfinished {
		delete(u.Unfinished, key)
		return false
	}
	if u.Unfinished == nil {
		u.Unfinished = map[string]int{}
	}
	u.Unfinished[key]++
	return u.Unfinished[key] >= unfinishedMax
}

// forget removes the last measurement of an item.
func (u *Usage) forget(item Item) {
	u.Measured = slices.DeleteFunc(u.Measured, func(m Measurement) bool { return m.Item == item })
}

// forgetContainers removes what was measured of containers in earlier passes: what was in the layer
// of one may be in its log by now, and would count twice.
func (u *Usage) forgetContainers() {
	u.Measured = slices.DeleteFunc(u.Measured, func(m Measurement) bool {
		return m.Kind == LogsItem || m.Kind == LayerItem
	})
}

// exceeded returns the limit of the pod or of a container that the last measurements exceed, the
// newest of which is that of an item.
func (u *Usage) exceeded(newest Item, pod *Pod) Limit {
	limit := limitOfPod(pod.Spec)
	if limit != nil && limit.CmpInt64(u.sum(func(m *Measurement) bool { return m.Counts })) < 0 {
		return Limit{PodLimit, ""}
	}
	if newest.Kind == VolumeItem || newest.Kind == FilesItem {
		return Limit{}
	}
	limit = limitOfContainer(&pod.Spec.Spec, newest.Name)
	if limit != nil && limit.CmpInt64(u.sum(func(m *Measurement) bool {
		return m.Name == newest.Name &&
			(m.Kind == LogsItem || m.Kind == LayerItem && !pod.LayersApart)
	})) < 0 {
		return Limit{ContainerLimit, newest.Name}
	}
	return Limit{}
}

// sum returns what the measured items take that count.
func (u *Usage) sum(counts func(*Measurement) bool) int64 {
	total := int64(0)
	for i := range u.Measured {
		if m := &u.Measured[i]; counts(m) {
			total = min(total+min(m.Bytes, bytesMax), bytesMax)
		}
	}
	return total
}

// hasLimits reports whether a pod has a limit.
func hasLimits(spec *v1.PodSpec) bool {
	limits := func(c v1.Container) bool {
		_, found := c.Resources.Limits[v1.ResourceEphemeralStorage]
		return found
	}
	return slices.ContainsFunc(spec.Containers, limits) ||
		slices.ContainsFunc(spec.InitContainers, limits) ||
		slices.ContainsFunc(spec.Volumes, func(v v1.Volume) bool { return sizeLimit(&v) > 0 })
}

// limitOfPod returns the sum of the limits of a pod's containers; nil if none has a limit.
func limitOfPod(pod *v1.Pod) *resource.Quantity {
	limits := podresources.PodLimits(pod, podresources.PodResourcesOptions{})
	if limit, found := limits[v1.ResourceEphemeralStorage]; found {
		return &limit
	}
	return nil
}

// limitOfContainer returns the limit of a container, nil if it has none. The kubelet does not look
// at those of init containers.
func limitOfContainer(spec *v1.PodSpec, name string) *resource.Quantity {
	for i := range spec.Containers {
		c := &spec.Containers[i]
		if limit := c.Resources.Limits[v1.ResourceEphemeralStorage]; c.Name == name && !limit.IsZero() {
			return &limit
		}
	}
	return nil
}

func findVolume(spec *v1.PodSpec, name string) *v1.Volume {
	i := slices.IndexFunc(spec.Volumes, func(v v1.Volume) bool { return v.Name == name })
	if i < 0 {
		return &v1.Volume{}
	}
	return &spec.Volumes[i]
}

// isLocal reports whether a volume counts for the limit of its pod (IsLocalEphemeralVolume in
// pkg/volume/util/util.go).
func isLocal(v *v1.Volume) bool {
	return v.ConfigMap != nil || v.EmptyDir != nil && v.EmptyDir.Medium == v1.StorageMediumDefault
}

// sizeLimit returns the size limit of an emptyDir on disk; zero if it has none. A file system in
// memory enforces its limit itself.
func sizeLimit(v *v1.Volume) int64 {
	if v.EmptyDir == nil || v.EmptyDir.Medium != v1.StorageMediumDefault ||
		v.EmptyDir.SizeLimit == nil {
		return 0
	}
	return v.EmptyDir.SizeLimit.Value()
}

// Message returns why a pod is evicted that exceeds a limit, in the kubelet's words, which end in a
// space; empty if it exceeds none. The spec may have changed since the limit was exceeded.
func (u *Usage) Message(pod *v1.Pod) string {
	switch name := u.Exceeded.Name; u.Exceeded.Kind {
	case EmptyDirLimit:
		if v := findVolume(&pod.Spec, name); sizeLimit(v) > 0 {
			return fmt.Sprintf("Usage of EmptyDir volume %q exceeds the limit %q. ", name,
				v.EmptyDir.SizeLimit.String())
		}
	case PodLimit:
		if limit := limitOfPod(pod); limit != nil {
			return fmt.Sprintf("Pod ephemeral local storage usage exceeds the total limit of containers "+
				"%s. ", limit.String())
		}
	case ContainerLimit:
		if limit := limitOfContainer(&pod.Spec, name); limit != nil {
			return fmt.Sprintf("Container %s exceeded its local ephemeral storage limit %q. ", name,
				limit.String())
		}
	}
	return ""
}
