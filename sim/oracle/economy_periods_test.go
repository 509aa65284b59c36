package oracle

import (
	"strings"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	v1 "k8s.io/api/core/v1"

	"seedlet.dev/sim/truth"
	api "seedlet.dev/world"
)

func TestEconomyOfPeriods(t *testing.T) {
	lease := &api.UpdateObject{Object: api.Object{Lease: &coordinationv1.Lease{}}}
	node := &api.PatchObject{Resource: api.ResourceNodes, Name: "node"}
	seconds := int64(3600)
	token := &api.CreateToken{Namespace: "ns", ServiceAccount: "default",
		Spec: authenticationv1.TokenRequestSpec{ExpirationSeconds: &seconds,
			BoundObjectRef: &authenticationv1.BoundObjectReference{Name: "web", UID: "u1"}}}
	logList := &api.ListDir{Path: logsDir + "/ns_web_u1/app"}
	var cases []testCase
	for _, c := range []struct {
		name     string
		request  any
		interval float64 // in seconds
		want     string
	}{
		{"the lease 100 times in 10 s", lease, 0.1, "economy"},
		{"the lease every quarter", lease, 10, ""},
		{"the Node each second", node, 1, "economy"},
		{"the Node at each comparison", node, 10, "economy"},
		{"the Node early after a change", node, 150, ""},
		{"no Node, read each second", &api.GetObject{Resource: api.ResourceNodes}, 1, "economy"},
		{"no Node, read every 7 s", &api.GetObject{Resource: api.ResourceNodes}, 7, ""},
		{"a claim twice a second", &api.GetObject{Resource: api.ResourceClaims}, 0.5, "economy"},
		{"a new claim each second", &api.GetObject{Resource: api.ResourceClaims}, 1, ""},
		{"a volume each second", &api.GetObject{Resource: api.ResourceVolumes}, 1, "economy"},
		{"a token in a loop", token, 0.01, "economy"},
		{"a token after failures", token, 1, ""},
		{"the machine each second", &api.ReadMachine{}, 1, "economy"},
		{"the machine every period", &api.ReadMachine{}, 10, ""},
		{"all pods' directories each second", &api.ListDir{Path: podsDir}, 1, "economy"},
		{"a log's directory each second", logList, 1, "economy"},
		{"a log's directory every minute", logList, 60, ""},
		{"all pods' directories every minute", &api.ListDir{Path: podsDir}, 60, ""},
	} {
		cases = append(cases, testCase{c.name, c.want, func(s *script) {
			s.model.opts.Periods = Periods{LeaseDuration: 40 * time.Second,
				NodeCheck: 10 * time.Second, NodeReport: 5 * time.Minute}
			s.model.opts.LogMonitorInterval = time.Minute
			settleEconomy(s)
			s.model.objects.node = &v1.Node{}
			if strings.HasPrefix(c.name, "no Node") {
				s.model.objects.node = nil
			}
			for range 100 {
				s.Called(s.now, c.request)
				s.wait(c.interval)
			}
		}})
	}
	cases = append(cases, testCase{"the lease by the next agent", "", func(s *script) {
		s.model.opts.Periods.LeaseDuration = 40 * time.Second
		settleEconomy(s)
		s.Called(s.now, lease)
		s.AgentStarted(s.now)
		s.wait(1)
		s.Called(s.now, lease)
	}}, testCase{"a log's directory before the run and in it", "", func(s *script) {
		s.model.opts.LogMonitorInterval = time.Minute
		r := settleEconomy(s)
		r.exit(0, truth.CauseSelf)
		s.Called(s.now, logList)
		s.wait(1)
		s.start("u1-s0", "app", 1)
		s.wait(40)
		s.Called(s.now, logList)
	}})
	runCases(t, cases)
}

// A claim and its volume are read earlier than once a minute if there is a new pod that uses them.
func TestClaimsOfNewPods(t *testing.T) {
	with := func(resource api.Resource, name, claim string, reads int) func(*script) {
		return func(s *script) {
			settleEconomy(s)
			s.model.volumes.claims = map[string]*v1.PersistentVolumeClaim{"ns/data": {
				Spec:   v1.PersistentVolumeClaimSpec{VolumeName: "pv"},
				Status: v1.PersistentVolumeClaimStatus{Phase: v1.ClaimBound}}}
			get := &api.GetObject{Resource: resource, Name: name}
			if resource == api.ResourceClaims {
				get.Namespace = "ns"
			}
			s.Called(s.now, get)
			s.wait(30)
			p := spec("u2", always, "app")
			p.Name = "newer"
			p.Spec.Volumes = []v1.Volume{{VolumeSource: v1.VolumeSource{
				PersistentVolumeClaim: &v1.PersistentVolumeClaimVolumeSource{ClaimName: claim}}}}
			s.setDesired(p)
			for range reads {
				s.wait(2)
				s.Called(s.now, get)
			}
		}
	}
	runCases(t, []testCase{
		{"the claim", "", with(api.ResourceClaims, "data", "data", 1)},
		{"its volume", "", with(api.ResourceVolumes, "pv", "data", 1)},
		{"another claim", "economy", with(api.ResourceClaims, "data", "other", 1)},
		{"the volume of another claim", "economy", with(api.ResourceVolumes, "pv", "other", 1)},
		{"the claim twice", "economy", with(api.ResourceClaims, "data", "data", 2)},
		{"its volume twice", "economy", with(api.ResourceVolumes, "pv", "data", 2)},
	})
}

// Just after an expansion a claim may be read again: that has read it, too.
func TestClaimsJustExpanded(t *testing.T) {
	after := func(seconds float64) func(*script) {
		return func(s *script) {
			settleEconomy(s)
			claim := &v1.PersistentVolumeClaim{Status: v1.PersistentVolumeClaimStatus{
				Phase: v1.ClaimBound}}
			s.model.volumes.claims = map[string]*v1.PersistentVolumeClaim{"ns/data": claim}
			s.model.reads.noteExpansion(&truth.Write{Resource: api.ResourceClaims, Namespace: "ns",
				Name: "data", After: api.Object{Claim: claim}}, s.now)
			s.wait(seconds)
			get := &api.GetObject{Resource: api.ResourceClaims, Namespace: "ns", Name: "data"}
			s.Called(s.now, get)
			s.wait(5)
			s.Called(s.now, get)
		}
	}
	runCases(t, []testCase{
		{"at once", "", after(1)},
		{"later", "economy", after(60)},
	})
}

// A driver whose answer was lost is called again after minutes. The agent learns then that the
// volume is not in use any more, and says so in the status of the Node.
func TestNodeAfterLostRelease(t *testing.T) {
	node := &api.PatchObject{Resource: api.ResourceNodes, Name: "node"}
	with := func(answer any, wait float64) func(*script) {
		return func(s *script) {
			s.model.opts.Periods = Periods{NodeCheck: 10 * time.Second, NodeReport: 5 * time.Minute}
			settleEconomy(s)
			s.model.objects.node = &v1.Node{}
			s.Called(s.now, node)
			s.checkCSICall(s.now, &api.Effect{Op: 1, Deadline: s.now.Add(2 * time.Minute),
				Body: &api.UnstageVolume{Driver: api.CSIDriver{Name: csiDriver}, Handle: "h",
					StagingPath: csiStaging}})
			s.answer(1, answer)
			s.wait(wait)
			s.Called(s.now, node)
		}
	}
	failure := api.Errorf(api.KindTimeout, "UnstageVolume", "no answer")
	runCases(t, []testCase{
		{"unstaged", "", with(&api.Done{}, 20)},
		{"unstaged two minutes ago", "economy", with(&api.Done{}, 120)},
		{"the driver has failed", "economy", with(failure, 20)},
	})
}
