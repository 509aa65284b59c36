package oracle

import (
	"testing"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"seedlet.dev/sim/truth"
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
			s.beginImages(70, 0)
			s.model.opts.ImageGC.AgeMax = 10 * time.Minute
			s.passMinutes(30)
			f := truth.Fact{ContainerID: "u1-app#0", Container: "app", Image: "image:1",
				ContainerConfig: &runtimeapi.ContainerConfig{}}
			s.addFact(truth.ContainerCreated, f)
			s.addFact(truth.ContainerExited, f)
			s.addFact(truth.ContainerRemoved, f)
			s.passMinutes(2)
			s.removeImage("image:1")
		}},
	})
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
			s.passMinutes(13)
			s.imageDisk(80)
			s.addFact(truth.ContainerRemoved, truth.Fact{ContainerID: "u1-app#0"})
			s.imageDisk(86)
			s.passMinutes(6)
		}},
		{"above it, but all in use", "", func(s *script) {
			s.imageDisk(86)
			s.model.opts.UnusedImages = nil
			s.AgentStarted(s.now)
			s.passMinutes(20)
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
