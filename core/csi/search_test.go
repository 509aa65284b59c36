package csi

import (
	"slices"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"

	"seedlet.dev/world"
)

// A directory that cannot be read keeps only volumes staged that may be published or staged there:
// those of its driver, of its pod, or of any pod if something is mounted there. Once it can be
// read, they are unstaged.
func TestUnreadableDirectory(t *testing.T) {
	const podsDir, dir = "/k/pods", "/k/plugins/kubernetes.io/csi"
	const volumes = "/volumes/kubernetes.io~csi"
	const data = podsDir + "/b" + volumes + "/pv-9/vol_data.json"
	published := []world.Mount{{Path: podsDir + "/b" + volumes + "/pv-9/mount"}}
	for name, c := range map[string]struct {
		path   string
		mounts []world.Mount
		waits  bool
	}{
		"of another driver":           {dir + "/other", nil, false},
		"of a volume of another one":  {dir + "/other/1/vol_data.json", nil, false},
		"of its driver":               {dir + "/" + driverName, nil, true},
		"of a volume of its driver":   {dir + "/" + driverName + "/1/vol_data.json", nil, true},
		"of all pods":                 {podsDir, nil, true},
		"of all drivers":              {dir, nil, false},
		"of a block volume":           {dir + "/volumeDevices/pv-8/data/vol_data.json", nil, false},
		"of all block volumes":        {dir + "/volumeDevices", nil, false},
		"of its pod":                  {podsDir + "/a" + volumes, nil, true},
		"of another pod":              {podsDir + "/b" + volumes, nil, false},
		"of another pod with a mount": {podsDir + "/b" + volumes, published, true},
		"of a publication":            {data, published, true},
		"of what is not mounted":      {data, nil, false},
	} {
		n := newReady(t)
		n.need(use("a"))
		for _, made := range []string{podsDir + "/b" + volumes + "/pv-9", dir + "/other/1",
			dir + "/" + driverName + "/1", dir + "/volumeDevices/pv-8/data"} {
			n.performFS(&world.MakeDir{Path: made})
		}
		n.mounts = append(n.mounts, c.mounts...)
		n.unreadable = map[string]bool{c.path: true}
		n.cleansUp = false
		n.restart().register()
		n.need(use("a"))
		n.cleansUp = true
		n.end("a")
		n.wait(10 * time.Second)
		isUnstaged := func() bool { return slices.Contains(n.calls, "unstage "+n.sha()) }
		if isUnstaged() == c.waits {
			t.Errorf("the directory %s cannot be read: unstaged %v, calls %q", name, !c.waits, n.calls)
		}
		n.unreadable = nil
		if n.wait(10 * time.Minute); !isUnstaged() && c.mounts == nil {
			t.Errorf("the directory %s can be read, and the volume is staged: %q", name, n.calls)
		}
	}
}

// While a directory cannot be read, the Node says of the volumes that may be there that they are
// in use, and of no others.
func TestUnreadableVolumesStayInUse(t *testing.T) {
	const dir = "/k/plugins/kubernetes.io/csi"
	n := newReady(t)
	n.performFS(&world.MakeDir{Path: dir + "/other/1"})
	n.unreadable = map[string]bool{dir + "/other": true}
	n.object.Status.VolumesInUse = append(n.object.Status.VolumesInUse,
		"kubernetes.io/csi/d.example^gone", "kubernetes.io/csi/other^hidden")
	n.restart().register()
	got, known := n.node.VolumesInUse(n.object, n.env())
	if !known || len(got) != 1 || got[0] != "kubernetes.io/csi/other^hidden" {
		t.Errorf("in use %q, known %v", got, known)
	}
}

// So it does of a volume that was to be staged once more, for a pod that has ended meanwhile.
func TestUnreadableVolumeOfEndedPodStaysInUse(t *testing.T) {
	n := newNode(t).run().register()
	n.need(use("a"))
	n.attach()
	n.run()
	name := v1.UniqueVolumeName(UniqueName(driverName, "h1"))
	n.unreadable = map[string]bool{n.node.Dir + "/" + driverName: true}
	n.restart().register()
	full := world.Errorf(world.KindExhausted, "WriteFile", "full")
	n.fail["WriteFile"] = &failure{err: full, times: 9}
	n.need(use("a"))
	n.end("a")
	if got, _ := n.node.VolumesInUse(n.object, n.env()); !slices.Contains(got, name) {
		t.Errorf("in use %q, although the volume may be staged", got)
	}
	n.unreadable = nil
	if n.wait(10 * time.Minute); len(n.object.Status.VolumesInUse) > 0 {
		t.Errorf("in use %q in the end", n.object.Status.VolumesInUse)
	}
	n.expectClean()
}

// A pod and its volume do not wait for a directory that has nothing to do with them, also if their
// own could not be read at first.
func TestDirectoryIsReadBeforeAnother(t *testing.T) {
	n := newReady(t)
	n.need(use("a"))
	n.performFS(&world.MakeDir{Path: n.node.Dir + "/other/1"})
	own := strings.TrimSuffix(n.node.PodsDir+"/a"+volumesDir, "/")
	n.unreadable = map[string]bool{own: true, n.node.Dir + "/other": true}
	n.restart().register()
	n.need(use("a"))
	n.end("a")
	n.wait(10 * time.Second)
	if slices.Contains(n.calls, "unstage "+n.sha()) {
		t.Fatal("unstaged before it is known what is published")
	}
	delete(n.unreadable, own)
	if n.wait(10 * time.Minute); !slices.Contains(n.calls, "unstage "+n.sha()) {
		t.Errorf("not unstaged: %q", n.calls)
	}
}

// What the Node says to be in use stays so as long as the search has not passed, once each.
func TestNamesOfNodeStayBeforeSearch(t *testing.T) {
	n := newNode(t)
	names := []v1.UniqueVolumeName{"kubernetes.io/csi/d.example^z", "kubernetes.io/csi/d.example^a",
		"kubernetes.io/csi/d.example^h1", "kubernetes.io/csi/d.example^a"}
	n.object.Status.VolumesInUse = names
	n.object.Status.VolumesAttached = []v1.AttachedVolume{{Name: names[2]}}
	_, _ = n.node.Use(use("a"), n.now)
	got, known := n.node.VolumesInUse(n.object, n.env())
	if want := []v1.UniqueVolumeName{names[1], names[2], names[0]}; known || !slices.Equal(got, want) {
		t.Errorf("got %q, known %v, want %q", got, known, want)
	}
}

// Of a pod that is not known any more, sub-paths are unmounted before the volume is unpublished:
// they show the same file system.
func TestSubPathsOfUnknownPod(t *testing.T) {
	n := newReady(t)
	n.need(use("a"))
	n.mounts = append(n.mounts, world.Mount{Path: "/k/pods/a/volume-subpaths/pv-1/app/0"})
	delete(n.pods, "a")
	n.hold["UnpublishVolume"] = true
	n.restart().register()
	if len(n.held) != 1 || slices.ContainsFunc(n.mounts, func(m world.Mount) bool {
		return strings.Contains(m.Path, "subpaths")
	}) {
		t.Errorf("in flight %v, mounts %v", n.held, n.mounts)
	}
	n.release("UnpublishVolume")
	n.run()
	n.expectClean()
}
