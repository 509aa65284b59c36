package eviction

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	kubeletconfig "k8s.io/kubelet/config/v1beta1"

	"seedlet.dev/world"
)

// disks are the file systems of a node: the device and the free MiB by path.
type disks struct {
	layersPath string // that the runtime reports; empty: none
	imagePath  string // that the runtime reports; empty: imagePath
	devices    map[string]uint64
	freeMiB    map[uint64]int64
}

// The paths of the file systems.
const (
	rootPath   = "/var/lib/kubelet"
	imagePath  = "/images"
	layersPath = "/layers"
)

// layouts are the disks of each layout, with 500 of 1000 MiB free.
func layouts() map[Layout]*disks {
	return map[Layout]*disks{
		LayoutOne: {layersPath: imagePath, devices: map[string]uint64{rootPath: 1, imagePath: 1},
			freeMiB: map[uint64]int64{1: 500}},
		LayoutImagefs: {devices: map[string]uint64{rootPath: 1, imagePath: 2},
			freeMiB: map[uint64]int64{1: 500, 2: 500}},
		LayoutSplit: {layersPath: layersPath,
			devices: map[string]uint64{rootPath: 1, imagePath: 2, layersPath: 1},
			freeMiB: map[uint64]int64{1: 500, 2: 500}},
		LayoutContainerfs: {layersPath: layersPath,
			devices: map[string]uint64{rootPath: 1, imagePath: 1, layersPath: 3},
			freeMiB: map[uint64]int64{1: 500, 3: 500}},
	}
}

// observeLayout answers what is due on a node with such disks, until nothing is issued. Pod a has
// large layers, pod b large logs. It returns the paths that were measured.
func (h *harness) observeLayout(wait time.Duration, d *disks) []string {
	h.t.Helper()
	h.now = h.now.Add(wait)
	var measured []string
	filesystem := func(path string) []*runtimeapi.FilesystemUsage {
		return []*runtimeapi.FilesystemUsage{{FsId: &runtimeapi.FilesystemIdentifier{Mountpoint: path}},
			{FsId: &runtimeapi.FilesystemIdentifier{Mountpoint: "/other"}}}
	}
	for issued := h.plan(); len(issued) > 0; issued = h.plan() {
		for _, eff := range issued {
			var answer any
			switch body := eff.Body.(type) {
			case *world.MeasureFilesystem:
				measured = append(measured, body.Path)
				device := d.devices[body.Path]
				answer = &world.FilesystemMeasured{Device: device, CapacityBytes: 1000 * mib,
					AvailableBytes: d.freeMiB[device] * mib, Inodes: 1000, InodesFree: d.freeMiB[device]}
			case *runtimeapi.ImageFsInfoRequest:
				info := &runtimeapi.ImageFsInfoResponse{
					ImageFilesystems: filesystem(cmp.Or(d.imagePath, imagePath))}
				if d.layersPath != "" {
					info.ContainerFilesystems = filesystem(d.layersPath)
				}
				answer = info
			case *world.MeasureTrees:
				trees := &world.TreesMeasured{}
				for _, path := range body.Paths {
					size := int64(10)
					if strings.HasPrefix(path, "/logs/b") {
						size = 200
					}
					trees.Trees = append(trees.Trees, world.TreeMeasured{Bytes: size * mib, Inodes: size})
				}
				answer = trees
			default:
				stats := statsOf(map[string]int64{"a": 1, "b": 1, "c": 1})
				for _, s := range stats.Stats {
					size := uint64(10)
					if s.Attributes.Metadata.Uid == "a" {
						size = 100
					}
					s.Linux.Containers[0].WritableLayer = &runtimeapi.FilesystemUsage{
						UsedBytes:  &runtimeapi.UInt64Value{Value: size * mib},
						InodesUsed: &runtimeapi.UInt64Value{Value: size}}
				}
				answer = stats
			}
			h.complete(eff.Op, answer)
		}
	}
	return measured
}

func newLayoutHarness(t *testing.T) *harness {
	h := newHarness(t, &kubeletconfig.KubeletConfiguration{EvictionHard: map[string]string{
		"nodefs.available": "10%", "nodefs.inodesFree": "5%", "imagefs.available": "15%",
		"containerfs.available": "99%", "containerfs.inodesFree": "99%"}})
	for _, uid := range []string{"a", "b", "c"} {
		h.addPod(uid, 0, 0)
		c := &h.candidates[len(h.candidates)-1]
		c.LogDir, c.Dir = "/logs/"+uid, "/pods/"+uid
	}
	h.candidates[2].Pod.Spec.Containers[0].Resources.Requests = v1.ResourceList{
		v1.ResourceEphemeralStorage: *resource.NewQuantity(100*mib, resource.BinarySI)}
	return h
}

// The thresholds of the file system of the layers are those of the node or of the images, and what
// the configuration says about it does not count.
func TestContainerfsThresholds(t *testing.T) {
	common := "imagefs.available 0.15, nodefs.available 0.1, nodefs.inodesFree 0.05"
	asNodefs := common + ", containerfs.available 0.1, containerfs.inodesFree 0.05"
	want := map[Layout]string{LayoutOne: asNodefs, LayoutSplit: asNodefs, LayoutContainerfs: asNodefs,
		LayoutImagefs: common + ", containerfs.available 0.15"}
	for layout, d := range layouts() { //ordered: each by itself
		h := newLayoutHarness(t)
		thresholds := func() string {
			var all []string
			for _, t := range h.m.Thresholds {
				all = append(all, fmt.Sprint(t.Signal, " ", t.Amount.Share))
			}
			return strings.Join(all, ", ")
		}
		if got := thresholds(); got != common {
			t.Errorf("%s, before it is known: %s", layout, got)
		}
		h.observeLayout(0, d)
		h.observeLayout(period, d)
		if got := thresholds(); got != want[layout] || h.m.Layout != layout {
			t.Errorf("%s: layout %q with %s, want %s", layout, h.m.Layout, got, want[layout])
		}
		if apart := layout == LayoutImagefs || layout == LayoutContainerfs; h.m.LayersApart() != apart {
			t.Errorf("%s: layers apart: %v", layout, !apart)
		}
	}
}

// The file system of the layers is measured by itself as long as it may be none of the others.
func TestContainerfsIsMeasured(t *testing.T) {
	two, three := []string{rootPath, imagePath}, []string{rootPath, imagePath, layersPath}
	want := map[Layout][]string{LayoutOne: two, LayoutImagefs: two, LayoutSplit: two,
		LayoutContainerfs: three}
	for layout, d := range layouts() { //ordered: each by itself
		h := newLayoutHarness(t)
		first := h.observeLayout(0, d)
		if apart := d.layersPath == layersPath; slices.Contains(first, layersPath) != apart {
			t.Errorf("%s: first %s are measured", layout, first)
		}
		measured := h.observeLayout(period, d)
		measured = h.observeLayout(period, d)
		if !slices.Equal(measured, want[layout]) {
			t.Errorf("%s: %s are measured, want %s", layout, measured, want[layout])
		}
		for signal, path := range map[Signal]string{NodefsAvailable: rootPath,
			ImagefsAvailable: imagePath, ContainerfsAvailable: d.layersPath} { //ordered: each by itself
			if path == "" {
				path = imagePath
			}
			if o := h.m.Observed[signal]; o.Available != d.freeMiB[d.devices[path]]*mib {
				t.Errorf("%s: %s is %d", layout, signal, o.Available)
			}
		}
	}
}

// A runtime that is started again may have its images elsewhere: it is asked again, at once if the
// path is gone. While it does not answer, what it has said counts.
func TestImagesMove(t *testing.T) {
	const moved = "/moved"
	for _, isGone := range []bool{false, true} {
		d := layouts()[LayoutOne]
		h := newLayoutHarness(t)
		h.observeLayout(0, d)
		h.observeLayout(period, d)
		d.imagePath, d.layersPath, d.devices[moved], d.freeMiB[2] = moved, moved, 2, 500
		if measured := h.observeLayout(period, d); slices.Contains(measured, moved) {
			t.Errorf("%s are measured, although nothing tells that the images have moved", measured)
		}
		wait := infoPeriod
		if isGone {
			wait = period
			h.now = h.now.Add(period)
			for _, eff := range h.plan() {
				h.failWith(eff.Op, world.KindNotFound)
			}
		}
		if measured := h.observeLayout(wait, d); !slices.Contains(measured, moved) {
			t.Errorf("gone %v: %s are measured, want %s", isGone, measured, moved)
		}
		if h.m.Layout != LayoutImagefs {
			t.Errorf("gone %v: layout %q", isGone, h.m.Layout)
		}
		h.now = h.now.Add(infoPeriod)
		for _, eff := range h.plan() {
			h.failWith(eff.Op, world.KindUnavailable)
		}
		if measured := h.observeLayout(0, d); !slices.Equal(measured, []string{moved}) {
			t.Errorf("gone %v: %s are measured while the runtime does not answer", isGone, measured)
		}
	}
}

// What is removed before a pod is evicted, and which pod is, depends on what is on the file system
// that is full. Pod a has the largest layers, b the largest logs, and c requests most.
func TestReclaimAndRankOfLayout(t *testing.T) {
	for _, test := range []struct {
		layout  Layout
		device  uint64
		removed string
		victim  string
	}{
		{LayoutOne, 1, "containers images", "b"},
		{LayoutImagefs, 1, "", "b"},
		{LayoutImagefs, 2, "containers images", "a"},
		{LayoutSplit, 1, "containers", "b"},
		{LayoutSplit, 2, "images", "a"}, // none has anything there: by what they do not request
		{LayoutContainerfs, 1, "images", "b"},
		{LayoutContainerfs, 3, "containers", "a"},
	} {
		d := layouts()[test.layout]
		h := newLayoutHarness(t)
		h.collected, h.reclaimed = true, true
		h.observeLayout(0, d)
		h.observeLayout(period, d)
		d.freeMiB[test.device] = 40
		h.observeLayout(period, d)
		h.observeLayout(time.Second, d)
		removed := strings.TrimSpace(strings.Repeat("containers ", h.collections) +
			strings.Repeat("images", h.reclaims))
		if removed != test.removed {
			t.Errorf("%s, device %d: %q removed, want %q", test.layout, test.device, removed, test.removed)
		}
		if len(h.evicted) != 1 || !strings.HasPrefix(h.evicted[0], test.victim+" ") {
			t.Errorf("%s, device %d: evicted %q, want %s", test.layout, test.device, h.evicted, test.victim)
		}
		if !slices.Contains(h.m.Pressure, v1.NodeDiskPressure) {
			t.Errorf("%s, device %d: conditions %v", test.layout, test.device, h.m.Pressure)
		}
	}
}

// Files in writable layers count for inodes as those of volumes do.
func TestInodesOfLayersCount(t *testing.T) {
	d := layouts()[LayoutOne]
	h := newLayoutHarness(t)
	h.observeLayout(0, d)
	a := &Attempt{Usage: map[string]*PodUsage{"a": {}, "b": {}, "c": {}}}
	a.Usage["a"].Layers.add(0, 500)
	a.Usage["b"].Files.add(0, 10)
	for _, s := range []Signal{NodefsInodesFree, ImagefsInodesFree} {
		if first, found := h.m.first(a, h.candidates, s); !found || first.UID != "a" {
			t.Errorf("%s: %s comes first, want a", s, first.UID)
		}
	}
	usage := usageOf(statsWithLayer("a", 7, 500))["a"].Layers
	if usage.Bytes != 7 || usage.Inodes != 500 {
		t.Errorf("the layers use %+v", usage)
	}
}

// statsWithLayer returns statistics of a pod with a container and its writable layer.
func statsWithLayer(uid string, bytes, inodes uint64) *runtimeapi.ListPodSandboxStatsResponse {
	used := func(n uint64) *runtimeapi.UInt64Value { return &runtimeapi.UInt64Value{Value: n} }
	return &runtimeapi.ListPodSandboxStatsResponse{Stats: []*runtimeapi.PodSandboxStats{{
		Attributes: &runtimeapi.PodSandboxAttributes{Metadata: &runtimeapi.PodSandboxMetadata{Uid: uid}},
		Linux: &runtimeapi.LinuxPodSandboxStats{
			Memory: &runtimeapi.MemoryUsage{WorkingSetBytes: used(1)},
			Containers: []*runtimeapi.ContainerStats{{WritableLayer: &runtimeapi.FilesystemUsage{
				UsedBytes: used(bytes), InodesUsed: used(inodes)}}}}}}}
}

// Two file systems that are both full do not keep each other from evicting a pod.
func TestReclaimsOfTwoFilesystemsEnd(t *testing.T) {
	d := layouts()[LayoutSplit]
	h := newLayoutHarness(t)
	h.collected, h.reclaimed = true, true
	h.observeLayout(0, d)
	d.freeMiB[1], d.freeMiB[2] = 40, 40
	for range 4 {
		h.observeLayout(period, d)
	}
	if len(h.evicted) != 1 {
		t.Errorf("evicted %q after %d and %d removals", h.evicted, h.collections, h.reclaims)
	}
}
