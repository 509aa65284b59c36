package oracle

import (
	"path"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"seedlet.dev/sim/truth"
	"seedlet.dev/world"
)

// imageDisk has the images take a share of their file system, of 1000 bytes.
func (s *script) imageDisk(percent int64) {
	s.model.opts.ImagesApart, s.model.opts.UnusedImages = true, []string{"old:1"}
	s.model.opts.ImageGC = ImageGC{HighPercent: 85, LowPercent: 80, AgeMin: 2 * time.Minute,
		Filesystem: func() (used, capacity int64) { return 10 * percent, 1000 }}
}

// passMinutes has the statuses served once a second.
func (s *script) passMinutes(minutes int) {
	for range 60 * minutes {
		s.wait(1)
		s.CheckServed(s.now, nil)
	}
}

// removeImage removes an image by a request of the agent.
func (s *script) removeImage(name string) {
	if !s.model.agentDown {
		s.Called(s.now, &runtimeapi.RemoveImageRequest{})
	}
	s.CheckFact(truth.Fact{Time: s.now, Kind: truth.ImageRemoved, Image: name, Bytes: 10})
}

// beginImages starts an agent, whose images take a share of their file system.
func (s *script) beginImages(percent int64, minutes int) {
	s.imageDisk(percent)
	s.AgentStarted(s.now)
	s.passMinutes(minutes)
}

func TestImagesThatAreRemoved(t *testing.T) {
	runCases(t, []testCase{
		{"for the space", "", func(s *script) {
			s.beginImages(90, 5)
			s.removeImage("old:1")
		}},
		{"too new for the agent", "image-gc", func(s *script) {
			s.beginImages(90, 1)
			s.removeImage("old:1")
		}},
		{"by the request of an agent that was killed", "", func(s *script) {
			s.beginImages(90, 5)
			s.Called(s.now, &runtimeapi.RemoveImageRequest{})
			s.AgentKilled(s.now)
			s.removeImage("old:1")
		}},
		{"by the request of an agent before this one", "", func(s *script) {
			s.beginImages(90, 5)
			s.Called(s.now, &runtimeapi.RemoveImageRequest{})
			s.AgentKilled(s.now)
			s.wait(0.1)
			s.AgentStarted(s.now)
			s.CheckFact(truth.Fact{Time: s.now, Kind: truth.ImageRemoved, Image: "old:1", Bytes: 10})
		}},
		{"too new since its pull", "image-gc", func(s *script) {
			s.beginImages(90, 5)
			s.removeImage("old:1")
			s.passMinutes(3)
			s.CheckFact(truth.Fact{Time: s.now, Kind: truth.ImagePulled, Image: "old:1"})
			s.passMinutes(1)
			s.removeImage("old:1")
		}},
		{"below the low threshold", "image-gc", func(s *script) {
			s.beginImages(70, 5)
			s.removeImage("old:1")
		}},
		{"below the low threshold, on the file system of the pods", "", func(s *script) {
			s.beginImages(70, 5)
			s.model.opts.ImagesApart = false // an eviction has asked for it
			s.removeImage("old:1")
		}},
	})
}

// measureDisk has the agent observe a file system, with so much of 1000 bytes available.
func (s *script) measureDisk(source string, available int64) {
	dir := path.Dir(s.model.opts.PodsDir)
	if source == fromImagefs {
		dir = "/images"
	}
	id := world.OpID(1000 + len(source))
	s.CallIssued(s.now, &world.Effect{Op: id, Body: &world.MeasureFilesystem{Path: dir},
		Deadline: s.now.Add(observationTimeout)})
	s.answer(id, &world.FilesystemMeasured{CapacityBytes: 1000, AvailableBytes: available})
}

// setDisks sets thresholds for two file systems, of which one has the images and writable layers.
func (s *script) setDisks() {
	o := &s.model.opts
	o.ImagesApart, o.LayersApart = true, true
	o.Pressure = Pressure{Transition: time.Minute, Thresholds: []PressureThreshold{
		{Signal: "imagefs.available", Amount: 200}, {Signal: "nodefs.available", Amount: 200}}}
	s.model.pressure = newPressureModel(&o.Pressure)
}

// An eviction has all unused images removed from its file system, however much that has.
func TestImagesThatAreRemovedForAnEviction(t *testing.T) {
	after := func(source string, available int64, seconds float64) func(*script) {
		return func(s *script) {
			s.setDisks()
			s.beginImages(70, 5)
			s.measureDisk(fromNodefs, 300)
			s.measureDisk(fromImagefs, 300)
			s.measureDisk(source, available)
			s.wait(seconds)
			s.removeImage("old:1")
		}
	}
	runCases(t, []testCase{
		{"its file system is full", "", after(fromImagefs, 100, 60)},
		{"its file system was full", "image-gc", after(fromImagefs, 100, 600)},
		{"the other file system is full", "image-gc", after(fromNodefs, 100, 60)},
		{"no file system is full", "image-gc", after(fromImagefs, 300, 60)},
		{"the other one is full, and it is not known that they are two", "", func(s *script) {
			s.setDisks()
			s.beginImages(70, 5)
			s.measureDisk(fromNodefs, 100)
			s.wait(60)
			s.removeImage("old:1")
		}},
		{"one after the other, slowly", "", func(s *script) {
			after(fromImagefs, 100, 120)(s)
			s.wait(120)
			s.removeImage("old:2")
		}},
	})
}

func TestImagesThatAreRemovedForTheirAge(t *testing.T) {
	runCases(t, []testCase{
		{"older than the maximum age", "", func(s *script) {
			s.beginImages(70, 0)
			s.model.opts.ImageGC.AgeMax = 10 * time.Minute
			s.passMinutes(15)
			s.removeImage("old:1")
		}},
		{"younger than the maximum age", "image-gc", func(s *script) {
			s.beginImages(70, 0)
			s.model.opts.ImageGC.AgeMax = 10 * time.Minute
			s.passMinutes(5)
			s.removeImage("old:1")
		}},
		{"used within the maximum age", "image-gc", func(s *script) {
			s.removeUsedImage(nil)
		}},
		{"used within the maximum age, while no round could see that", "", func(s *script) {
			s.removeUsedImage(func(from, to time.Time) bool {
				fails := begin.Add(25 * time.Minute)
				return !from.After(fails) && !to.Before(fails)
			})
		}},
		{"used within the maximum age, with failed rounds long before", "image-gc", func(s *script) {
			s.removeUsedImage(func(from, to time.Time) bool {
				fails := begin.Add(20 * time.Minute)
				return !from.After(fails) && !to.Before(fails)
			})
		}},
	})
}

// removeUsedImage has an image removed whose last container was removed two minutes before.
func (s *script) removeUsedImage(roundFails func(from, to time.Time) bool) {
	s.beginImages(70, 0)
	s.model.opts.UnusedImages, s.model.opts.ImageGC.AgeMax = nil, 10*time.Minute
	s.passMinutes(30)
	f := truth.Fact{ContainerID: "u1-app#0", Container: "app", Image: "image:1",
		ContainerConfig: &runtimeapi.ContainerConfig{}}
	s.addFact(truth.ContainerCreated, f)
	s.addFact(truth.ContainerExited, f)
	s.addFact(truth.ContainerRemoved, f)
	s.passMinutes(2)
	if roundFails != nil {
		s.model.opts.FaultPossible = func(call string, from, to time.Time) bool {
			return call == "ListContainers" && roundFails(from, to)
		}
	}
	s.removeImage("image:1")
}

// beginFull starts an agent whose images take too much, all of which are in use.
func (s *script) beginFull() {
	s.imageDisk(86)
	s.model.opts.UnusedImages = nil
	s.AgentStarted(s.now)
}

// passRounds has rounds of five minutes, each with events.
func (s *script) passRounds(rounds int, events ...string) {
	for range rounds {
		s.passMinutes(5)
		for _, reason := range events {
			s.CheckFact(truth.Fact{Time: s.now, Kind: truth.EventRecorded, Reason: reason})
		}
	}
}

// useImage starts a pod with an image that its container has used since it was pulled.
func (s *script) useImage(image string) truth.Fact {
	s.CheckFact(truth.Fact{Time: s.now, Kind: truth.ImagePulled, Image: image})
	p := spec("u1", always, "app")
	p.Spec.Containers[0].Image = image
	s.setDesired(p)
	f := truth.Fact{PodUID: "u1", ContainerID: "u1-app#0", Container: "app", Image: image,
		ContainerConfig: &runtimeapi.ContainerConfig{
			Image: &runtimeapi.ImageSpec{UserSpecifiedImage: image}}}
	s.addFact(truth.ContainerCreated, f)
	return f
}

// image-gc is the only oracle that is asked here: these pods have no sandboxes.
func (s *script) firesForImages() bool { return strings.Contains(s.violated(), "image-gc") }

// An image that a pod has used is removed as any other one, and not before.
func TestImagesThatPodsUse(t *testing.T) {
	for _, c := range []struct {
		name    string
		minutes int // after the end of the pod
		want    bool
	}{
		{"removed in time", 10, false}, {"not removed after the maximum age", 30, true},
	} {
		s := newScript()
		s.imageDisk(50)
		s.model.opts.UnusedImages, s.model.opts.ImageGC.AgeMax = nil, 10*time.Minute
		s.AgentStarted(s.now)
		f := s.useImage("used:1")
		s.passMinutes(40)
		if s.firesForImages() {
			t.Fatalf("%s: while it is used: %v", c.name, s.Violations())
		}
		s.addFact(truth.ContainerRemoved, f)
		s.PodNoLongerDesired(s.now, "u1")
		s.passMinutes(c.minutes)
		if s.firesForImages() != c.want {
			t.Errorf("%s: %v", c.name, s.Violations())
		}
	}
}

// No image is removed that a pod names which has no container yet.
func TestImagesThatPodsAreAboutToUse(t *testing.T) {
	for _, c := range []struct {
		name     string
		phase    v1.PodPhase
		served   bool
		isVolume bool
		want     bool
	}{
		{"a pod that waits", v1.PodPending, true, false, true},
		{"a pod that waits, for a volume", v1.PodPending, true, true, true},
		{"a pod that the agent may not know", v1.PodPending, false, false, false},
		{"a pod that has ended", v1.PodFailed, true, false, false},
	} {
		s := newScript()
		s.beginImages(90, 5)
		p := spec("u1", always, "app")
		if c.isVolume {
			p.Spec.Volumes = []v1.Volume{{Name: "site", VolumeSource: v1.VolumeSource{
				Image: &v1.ImageVolumeSource{Reference: "old:1"}}}}
		} else {
			p.Spec.Containers[0].Image = "old:1"
		}
		s.setDesired(p)
		s.wait(180)
		if c.served {
			s.serve("u1", c.phase)
		}
		s.removeImage("old:1")
		if s.firesForImages() != c.want {
			t.Errorf("%s: %v", c.name, s.Violations())
		}
	}
}

// A round removes images until they take less than the low threshold.
func TestRoundOfImages(t *testing.T) {
	images := []string{"old:1", "old:2", "old:3", "old:4", "old:5", "old:6", "old:7"}
	for _, c := range []struct {
		name    string
		removed []string // 10 bytes each, of 60 that are too much
		event   string
		want    bool
	}{
		{"two of seven images", images[:2], "", true},
		{"six of seven images", images[:6], "", false},
		{"two images, and an event", images[:2], "FreeDiskSpaceFailed", true},
	} {
		s := newScript()
		s.imageDisk(86)
		s.model.opts.UnusedImages = images
		s.AgentStarted(s.now)
		s.passMinutes(10)
		for i, image := range c.removed {
			used := int64(860 - 10*(i+1))
			s.model.opts.ImageGC.Filesystem = func() (int64, int64) { return used, 1000 }
			s.removeImage(image)
		}
		if c.event != "" {
			s.CheckFact(truth.Fact{Time: s.now, Kind: truth.EventRecorded, Reason: c.event})
		}
		s.passMinutes(3)
		if s.firesForImages() != c.want {
			t.Errorf("%s: %v", c.name, s.Violations())
		}
	}
}

func TestImagesThatAreNotRemoved(t *testing.T) {
	runCases(t, []testCase{
		{"above the high threshold", "image-gc", func(s *script) {
			s.imageDisk(86)
			s.AgentStarted(s.now)
			s.passMinutes(20)
		}},
		{"below it", "", func(s *script) {
			s.imageDisk(84)
			s.AgentStarted(s.now)
			s.passMinutes(20)
		}},
		{"above it until another container was removed", "", func(s *script) {
			s.imageDisk(86)
			s.AgentStarted(s.now)
			s.passMinutes(11)
			s.imageDisk(80)
			s.addFact(truth.ContainerRemoved, truth.Fact{ContainerID: "u1-app#0"})
			s.imageDisk(86)
			s.passMinutes(6)
		}},
		{"above it, but all in use", "", func(s *script) {
			s.beginFull()
			s.passRounds(4, "FreeDiskSpaceFailed", "ImageGCFailed")
		}},
		{"above it, but all in use, and no event says so", "image-gc", func(s *script) {
			s.beginFull()
			s.passMinutes(20)
		}},
		{"above it, but all in use, and no event says that it failed again", "image-gc",
			func(s *script) {
				s.beginFull()
				s.passRounds(4, "FreeDiskSpaceFailed")
			}},
		{"above it, but all in use, in one round", "", func(s *script) {
			s.beginFull()
			s.passRounds(1, "FreeDiskSpaceFailed")
		}},
		{"above it, with faults", "", func(s *script) {
			s.imageDisk(86)
			last := s.now.Add(10 * time.Minute)
			s.model.opts.LastFault = func(time.Time) time.Time { return last }
			s.AgentStarted(s.now)
			s.passMinutes(20)
		}},
		{"above it, with an agent that is started again", "", func(s *script) {
			s.imageDisk(86)
			for range 3 {
				s.AgentStarted(s.now)
				s.passMinutes(12)
				s.AgentKilled(s.now)
				s.passMinutes(12)
			}
		}},
		{"for the maximum age", "image-gc", func(s *script) {
			s.imageDisk(50)
			s.model.opts.ImageGC.AgeMax = 10 * time.Minute
			s.AgentStarted(s.now)
			s.passMinutes(30)
		}},
		{"for less than the maximum age", "", func(s *script) {
			s.imageDisk(50)
			s.model.opts.ImageGC.AgeMax = time.Hour
			s.AgentStarted(s.now)
			s.passMinutes(30)
		}},
	})
}

// With a maximum age, an image that no pod uses any more is removed in the end.
func TestUnsettledImages(t *testing.T) {
	s := newScript()
	s.beginImages(70, 0)
	s.model.opts.UnusedImages, s.model.opts.ImageGC.AgeMax = nil, 10*time.Minute
	expect := func(when string, want int) {
		t.Helper()
		s.passMinutes(1)
		if got := s.model.unsettledImages(); len(got) != want {
			t.Errorf("%s: %q", when, got)
		}
	}
	f := truth.Fact{ContainerID: "u1-app#0", Container: "app", Image: "image:1",
		ContainerConfig: &runtimeapi.ContainerConfig{
			Image: &runtimeapi.ImageSpec{UserSpecifiedImage: "image:1"}}}
	s.addFact(truth.ContainerCreated, f)
	expect("a container uses it", 0)
	s.addFact(truth.ContainerExited, f)
	s.addFact(truth.ContainerRemoved, f)
	expect("no container uses it", 1)
	s.setDesired(spec("u2", always, "app"))
	expect("a pod names it", 0)
	s.PodNoLongerDesired(s.now, "u2")
	expect("no pod names it", 1)
	s.removeImage("image:1")
	expect("it was removed", 0)
}
