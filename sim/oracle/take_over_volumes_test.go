package oracle

import (
	"path"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"

	"seedlet.dev/sim/truth"
	api "seedlet.dev/world"
)

const (
	takenStaging = "/var/lib/kubelet/plugins/kubernetes.io/csi/d.test/hash/globalmount"
	takenTarget  = podsDir + "/u1/volumes/kubernetes.io~csi/data/mount"
	takenToken   = podsDir + "/u1/volumes/kubernetes.io~projected/token"
	takenMap     = podsDir + "/u1/volumes/kubernetes.io~configmap/map"
)

// csiFact adds a fact about the volume of a driver that the pod u1 has.
func (s *script) csiFact(kind truth.Kind, at, cause string) {
	s.addFact(kind, truth.Fact{Path: at, Cause: cause,
		Volume: &truth.Volume{Driver: "d.test", Handle: inlineHandle("u1", "data")}})
}

// takeOverVolumes starts an agent on the node of a kubelet that runs u1 with a volume of a driver,
// a token and a ConfigMap.
func (s *script) takeOverVolumes(policy v1.RestartPolicy) run {
	s.KubeletStarted()
	p := spec("u1", policy, "app")
	p.Spec.Volumes = []v1.Volume{
		{Name: "data", VolumeSource: v1.VolumeSource{CSI: &v1.CSIVolumeSource{Driver: "d.test"}}},
		{Name: "token", VolumeSource: v1.VolumeSource{Projected: &v1.ProjectedVolumeSource{
			Sources: []v1.VolumeProjection{
				{ServiceAccountToken: &v1.ServiceAccountTokenProjection{Path: "token"}}}}}},
		{Name: "map", VolumeSource: v1.VolumeSource{ConfigMap: &v1.ConfigMapVolumeSource{}}},
	}
	s.setDesired(p)
	s.csiFact(truth.VolumeStaged, takenStaging, "")
	s.csiFact(truth.VolumePublished, takenTarget, "")
	for _, dir := range []string{path.Dir(takenStaging), path.Dir(takenTarget)} {
		s.changePath(truth.PathWritten, dir+"/vol_data.json", "")
	}
	s.changePath(truth.PathWritten, takenToken, "")
	s.changePath(truth.PathWritten, takenMap, "")
	r := s.start(s.sandbox("u1", 0), "app", 0)
	if policy == v1.RestartPolicyNever {
		r.exit(0, truth.CauseSelf)
	}
	s.wait(1)
	s.KubeletEnded(s.now)
	s.AgentStarted(s.now)
	s.wait(5)
	return r
}

// What a pod has of its volumes stays as a kubelet has left it, in its own directory and where pods
// share it.
func TestNothingChangesOfVolumes(t *testing.T) {
	for name, test := range map[string]struct {
		policy v1.RestartPolicy
		fires  bool
		change func(*script)
	}{ //ordered: each by itself
		"nothing": {always, false, func(*script) {}},
		"unstaged": {always, true, func(s *script) {
			s.csiFact(truth.VolumeUnstaged, takenStaging, "")
		}},
		"unpublished": {always, true, func(s *script) {
			s.csiFact(truth.VolumeUnpublished, takenTarget, "")
		}},
		"lost by another": {always, false, func(s *script) {
			s.csiFact(truth.VolumeUnstaged, takenStaging, truth.CauseAdministrator)
		}},
		"unmounted": {always, true, func(s *script) {
			s.changePath(truth.Unmounted, takenTarget, "")
		}},
		"staged data written": {always, true, func(s *script) {
			s.changePath(truth.PathWritten, path.Dir(takenStaging)+"/vol_data.json", "")
		}},
		"staged data written as it was": {always, true, (*script).writeStagedAgain},
		"staged data written as it was, unread": {always, false, func(s *script) {
			s.faultBetween(0, 60)
			s.writeStagedAgain()
		}},
		"published data removed": {always, true, func(s *script) {
			s.changePath(truth.PathRemoved, path.Dir(takenTarget)+"/vol_data.json", "")
		}},
		"staged data of another volume": {always, false, func(s *script) {
			s.changePath(truth.PathWritten, path.Dir(path.Dir(takenStaging))+"/new/vol_data.json", "")
		}},
		"a ConfigMap written": {always, true, func(s *script) {
			s.changePath(truth.PathWritten, takenMap, "")
		}},
		"a token written": {always, false, func(s *script) {
			s.changePath(truth.PathWritten, takenToken, "")
		}},
		"a token written twice": {always, true, func(s *script) {
			s.changePath(truth.PathWritten, takenToken, "")
			s.changePath(truth.PathWritten, takenToken, "")
		}},
		"a token written by each agent": {always, false, func(s *script) {
			s.changePath(truth.PathWritten, takenToken, "")
			s.restartAgent()
			s.changePath(truth.PathWritten, takenToken, "")
		}},
		"after the end of the pod": {v1.RestartPolicyNever, false, func(s *script) {
			s.csiFact(truth.VolumeUnpublished, takenTarget, "")
			s.csiFact(truth.VolumeUnstaged, takenStaging, "")
		}},
		"of a pod that was removed": {always, false, func(s *script) {
			s.PodNoLongerDesired(s.now, "u1")
			s.csiFact(truth.VolumeUnstaged, takenStaging, "")
		}},
		"the CSINode written": {always, true, func(s *script) { s.writeCSINode() }},
		"the CSINode of a driver that started": {always, false, func(s *script) {
			s.addFact(truth.DriverStarted, truth.Fact{Driver: &truth.Driver{Name: "d.test"}})
			s.writeCSINode()
		}},
	} {
		s := newScript()
		s.takeOverVolumes(test.policy)
		test.change(s)
		if got := strings.Contains(s.violated(), "nothing-changes"); got != test.fires {
			t.Errorf("%s: fires: %v, want %v (%q)", name, got, test.fires, s.Violations())
		}
	}
}

// writeStagedAgain writes the data of what is staged as it was.
func (s *script) writeStagedAgain() {
	s.changePath(truth.WroteNothing, path.Dir(takenStaging)+"/vol_data.json", "")
	s.changePath(truth.PathWritten, path.Dir(takenStaging)+"/vol_data.json", "")
}

func (s *script) writeCSINode() {
	s.CheckFact(truth.Fact{Time: s.now, Kind: truth.ObjectUpdated, Write: &truth.Write{
		Resource: api.ResourceCSINodes, Name: "n1", Incarnation: 1}})
}
