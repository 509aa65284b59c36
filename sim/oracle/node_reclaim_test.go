package oracle

import (
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"seedlet.dev/sim/truth"
)

// A file system without writable layers and images has nothing removed before an eviction.
func TestReclaimOfTwoFilesystems(t *testing.T) {
	// evicted has a pod evicted for a file system while that of images is or is not full as well, a
	// minute after another pod has ended, whose container is left or was removed.
	evicted := func(removed bool, full ...string) func(*script) {
		return func(s *script) {
			s.setDisks()
			s.beginImages(70, 5)
			s.setDesired(spec("u1", v1.RestartPolicyNever, "app"))
			s.setDesired(spec("u2", v1.RestartPolicyAlways, "app"))
			r := s.start(s.sandbox("u1", 0), "app", 0)
			s.start(s.sandbox("u2", 0), "app", 0)
			s.wait(60)
			s.measureDisk(fromImagefs, 300)
			s.measureDisk(fromNodefs, 300)
			r.exit(0, truth.CauseSelf)
			s.serve("u1", v1.PodSucceeded, "app#0 completed")
			s.model.pods["u1"].terminalAt = s.now
			s.wait(60)
			for _, source := range full {
				s.measureDisk(source, 100)
			}
			if removed {
				r.change(truth.ContainerRemoved, "")
				s.removeImage("old:1")
			}
			s.CheckFact(truth.Fact{Time: s.now, Kind: truth.EventRecorded, PodUID: "u2",
				Reason: reasonEvicted, Message: lowPrefix + resourceStorage + ". "})
		}
	}
	for _, c := range []struct {
		name string
		want bool
		do   func(*script)
	}{
		{"nothing was removed", true, evicted(false, fromImagefs)},
		{"everything was removed", false, evicted(true, fromImagefs)},
		{"nothing was removed for the other one", false, evicted(false, fromNodefs)},
		{"nothing was removed, and both are full", false, evicted(false, fromImagefs, fromNodefs)},
	} {
		s := newScript()
		c.do(s)
		if strings.Contains(s.violated(), "reclaim") != c.want {
			t.Errorf("%s: %v", c.name, s.Violations())
		}
	}
}

// No image is removed for an eviction while a container is left that could be.
func TestContainersGoBeforeImages(t *testing.T) {
	for _, c := range []struct {
		name    string
		percent int64   // of the file system of the images that is used
		seconds float64 // since the pod has ended
		removed bool    // the container was
		want    bool
	}{
		{"a container is left", 70, 60, false, true},
		{"no container is left", 70, 60, true, false},
		{"its pod has ended just now", 70, 50, false, false},
		{"the removal may be of the ordinary collection", 80, 60, false, false},
	} {
		s := newScript()
		s.setDisks()
		s.beginImages(c.percent, 5)
		s.setDesired(spec("u1", v1.RestartPolicyNever, "app"))
		r := s.start(s.sandbox("u1", 0), "app", 0)
		s.measureDisk(fromImagefs, 300)
		s.measureDisk(fromNodefs, 300)
		r.exit(0, truth.CauseSelf)
		s.serve("u1", v1.PodSucceeded, "app#0 completed")
		s.model.pods["u1"].terminalAt = s.now
		s.wait(c.seconds)
		s.measureDisk(fromImagefs, 100)
		if c.removed {
			r.change(truth.ContainerRemoved, "")
		}
		s.removeImage("old:1")
		if strings.Contains(s.violated(), "reclaim") != c.want {
			t.Errorf("%s: %v", c.name, s.Violations())
		}
	}
}

// An image that a pod has used is removed before an eviction as well.
func TestReclaimOfUsedImages(t *testing.T) {
	for _, c := range []struct {
		name    string
		want    bool
		removed bool
		seconds float64 // after the container was removed
	}{
		{"left for long", true, false, 200},
		{"left for a moment", false, false, 30},
		{"removed", false, true, 200},
	} {
		s := newScript()
		s.setDisks()
		s.beginImages(70, 5)
		const image = "job:1"
		s.setDesired(spec("u2", v1.RestartPolicyAlways, "app"))
		p := spec("u1", v1.RestartPolicyNever, "app")
		p.Spec.Containers[0].Image = image
		s.setDesired(p)
		r := run{s, truth.Fact{PodUID: "u1", SandboxID: s.sandbox("u1", 0), Container: "app",
			ContainerID: "u1-app#0"}}
		created := r.fact
		created.ContainerConfig = &runtimeapi.ContainerConfig{
			Image: &runtimeapi.ImageSpec{UserSpecifiedImage: image}}
		s.addFact(truth.ContainerCreated, created)
		r.change(truth.ContainerStarted, "")
		s.wait(60)
		s.CheckServed(s.now, nil)
		r.exit(0, truth.CauseSelf)
		r.change(truth.ContainerRemoved, "")
		s.model.pods["u1"].terminalAt = s.now
		for range int(c.seconds) {
			s.wait(1)
			s.CheckServed(s.now, nil)
		}
		if s.removeImage("old:1"); c.removed {
			s.removeImage(image)
		}
		s.wait(50)
		s.measureDisk(fromNodefs, 300)
		s.measureDisk(fromImagefs, 100)
		s.CheckFact(truth.Fact{Time: s.now, Kind: truth.EventRecorded, PodUID: "u2",
			Reason: reasonEvicted, Message: lowPrefix + resourceStorage + ". "})
		if strings.Contains(s.violated(), "reclaim") != c.want {
			t.Errorf("%s: %v", c.name, s.Violations())
		}
	}
}

// Without the writable layers the pods have not been observed.
func TestUsageWithoutLayers(t *testing.T) {
	u := &usageSample{pods: map[string]podUsage{"u1": {diskBytes: 7}}}
	if got := u.withLayers(nil); got != nil {
		t.Errorf("without layers: %+v", got)
	}
	layers := &usageSample{pods: map[string]podUsage{"u1": {layerBytes: 5}}}
	if got := u.withLayers(layers); got == nil ||
		got.pods["u1"] != (podUsage{diskBytes: 7, layerBytes: 5}) {
		t.Errorf("with layers: %+v", got)
	}
}

// What a pod has on another file system does not count in its rank.
func TestUsageOfOneFilesystem(t *testing.T) {
	s := newScript()
	s.setDisks()
	all := &usageSample{pods: map[string]podUsage{"u1": {diskBytes: 7, layerBytes: 5, inodes: 3,
		layerInodes: 2}}}
	for _, c := range []struct {
		name                     string
		imagesApart, layersApart bool
		source                   string
		bytes, inodes            int64
	}{
		{"one file system", false, false, fromImagefs, 12, 5},
		{"one file system, for the node", false, false, fromNodefs, 12, 5},
		{"images and layers apart", true, true, fromImagefs, 5, 2},
		{"images and layers apart, for the node", true, true, fromNodefs, 7, 3},
		{"images apart", true, false, fromImagefs, 0, 0},
		{"images apart, for the node", true, false, fromNodefs, 12, 5},
	} {
		s.model.opts.ImagesApart, s.model.opts.LayersApart = c.imagesApart, c.layersApart
		got := all.on(s.model, c.source).pods["u1"]
		if got.diskBytes != c.bytes || got.inodes != c.inodes {
			t.Errorf("%s: %+v", c.name, got)
		}
	}
}

// The containers of a static pod that has ended stay, as long as the pod is desired.
func TestContainersOfEndedStaticPods(t *testing.T) {
	ended := func(then func(s *script, r run)) func(*script) {
		return func(s *script) {
			p := spec("u1", v1.RestartPolicyNever, "app")
			p.Annotations = map[string]string{annotationSource: sourceFile}
			s.AgentStarted(s.now)
			s.setDesired(p)
			r := s.start(s.sandbox("u1", 0), "app", 0)
			r.exit(0, truth.CauseSelf)
			s.serve("u1", v1.PodSucceeded, "app#0 completed")
			then(s, r)
		}
	}
	runCases(t, []testCase{
		{"removed while the pod is desired", "reclaim", ended(func(_ *script, r run) {
			r.change(truth.ContainerRemoved, "")
		})},
		{"removed by an administrator", "", ended(func(_ *script, r run) {
			r.change(truth.ContainerRemoved, truth.CauseAdministrator)
		})},
		{"removed after the manifest", "", ended(func(s *script, r run) {
			s.PodNoLongerDesired(s.now, "u1")
			r.change(truth.ContainerRemoved, "")
		})},
	})
}
