package oracle

import (
	"strings"
	"testing"

	"seedlet.dev/sim/truth"
)

// A private image that a kubelet has pulled and recorded is not pulled again while it stays.
func TestNothingChangesOfImages(t *testing.T) {
	const ref, dir = "registry.test/app:1", "/var/lib/kubelet/image_manager/pulling/"
	image := func(s *script, kind truth.Kind) { s.addFact(kind, truth.Fact{Image: ref}) }
	for name, test := range map[string]struct {
		fires  bool
		before func(*script)
		change func(*script)
	}{ //ordered: each by itself
		"pulled again": {true, func(*script) {}, func(*script) {}},
		"pulled after its removal": {false, func(*script) {}, func(s *script) {
			image(s, truth.ImageRemoved)
		}},
		"unreadable": {false, func(*script) {}, func(s *script) { s.faultBetween(0, 60) }},
		"not recorded": {false, func(s *script) {
			s.changePath(truth.PathWritten, dir+intentFile(ref), "")
		}, func(*script) {}},
		"recorded": {true, func(s *script) {
			s.changePath(truth.PathWritten, dir+intentFile(ref), "")
			s.changePath(truth.PathRemoved, dir+intentFile(ref), "")
		}, func(*script) {}},
	} {
		s := newScript()
		s.model.opts.PullUsers = map[string][]string{ref: {"a"}}
		s.KubeletStarted()
		image(s, truth.ImagePulled)
		test.before(s)
		s.KubeletEnded(s.now)
		s.AgentStarted(s.now)
		s.wait(5)
		test.change(s)
		image(s, truth.ImagePulled)
		if got := strings.Contains(s.violated(), "nothing-changes"); got != test.fires {
			t.Errorf("%s: fires: %v, want %v (%q)", name, got, test.fires, s.Violations())
		}
	}
}
