package oracle

import (
	"fmt"
	"iter"
	"testing"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"seedlet.dev/sim/truth"
)

// intend has the agent write files that say that so many images are about to be pulled, some of
// which it has asked the runtime for before.
func (s *script) intend(images, asked int) {
	const dir = "/var/lib/kubelet/image_manager/pulling"
	for i := range asked {
		s.Called(s.now, &runtimeapi.PullImageRequest{
			Image: &runtimeapi.ImageSpec{Image: fmt.Sprint("i", i)}})
	}
	s.model.opts.ListFiles = func(string) iter.Seq[File] {
		return func(yield func(File) bool) {
			for i := range images {
				if !yield(File{Name: intentFile(fmt.Sprint("i", i))}) {
					return
				}
			}
		}
	}
	s.changePath(truth.PathWritten, dir+"/"+intentFile("i0"), "")
}

func TestIntentsAheadOfPulls(t *testing.T) {
	runCases(t, []testCase{
		{"few", "", func(s *script) {
			s.AgentStarted(s.now)
			s.intend(intentsBound, 0)
		}},
		{"many", "image-intents", func(s *script) {
			s.AgentStarted(s.now)
			s.intend(intentsBound+1, 0)
		}},
		{"of pulls that were asked for", "", func(s *script) {
			s.AgentStarted(s.now)
			s.intend(3*intentsBound, 2*intentsBound)
		}},
		{"of two agents", "", func(s *script) {
			s.AgentStarted(s.now)
			s.AgentKilled(s.now)
			s.AgentStarted(s.now)
			s.intend(2*intentsBound, 0)
		}},
	})
}
