package oracle

import (
	"fmt"
	"iter"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"seedlet.dev/sim/truth"
	api "seedlet.dev/world"
)

const economyRecord, economyCgroup = podsDir + "/u1/seedlet.json", "kubepods/podu1"

// wroteAgain adds a write of what is there already.
func wroteAgain(s *script, path string) {
	s.changePath(truth.WroteNothing, path, "")
	if path == economyCgroup {
		s.CheckFact(truth.Fact{Time: s.now, Kind: truth.CgroupCreated, Path: path,
			Limits: truth.Limits{CPUShares: 2}})
		return
	}
	s.changePath(truth.PathWritten, path, "")
}

// settleEconomy starts a pod, and waits until the agent has no more reason to react to that.
func settleEconomy(s *script) run {
	r := s.startPod(always)
	s.changePath(truth.PathWritten, economyRecord, "")
	s.CheckFact(truth.Fact{Time: s.now, Kind: truth.CgroupCreated, Path: economyCgroup,
		Limits: truth.Limits{CPUShares: 2}})
	s.Healed(s.now)
	s.wait(160)
	return r
}

// startAnother begins to start a second pod.
func startAnother(s *script) {
	other := spec("u2", always, "app")
	other.Name = "other"
	s.setDesired(other)
	s.sandbox("u2", 0)
}

// markOther marks another pod, which the agent does not know, for deletion, and waits.
func markOther(s *script) {
	other := spec("u2", always, "app")
	other.Name, other.DeletionTimestamp = "other", &metav1.Time{Time: s.now}
	s.model.opts.HasAPIServer = true
	s.CheckFact(truth.Fact{Time: s.now, Kind: truth.ObjectCreated, Write: &truth.Write{
		Resource: api.ResourcePods, Namespace: "ns", Name: "other", After: api.Object{Pod: other}}})
	s.wait(60)
}

func TestEconomyOfRepeatedWrites(t *testing.T) {
	runCases(t, []testCase{
		{"what a block volume is, written again", "economy", blockDataWrittenAgain(false)},
		{"what a block volume is, after its release", "", blockDataWrittenAgain(true)},
		{"a record again and again, soon after a change", "economy", func(s *script) {
			settleEconomy(s)
			s.changePath(truth.PathWritten, economyRecord, "")
			for range 3 {
				s.wait(3)
				wroteAgain(s, economyRecord)
			}
		}},
		{"limits twice by the next agent", "economy", func(s *script) {
			settleEconomy(s)
			s.AgentStarted(s.now)
			wroteAgain(s, economyCgroup)
			s.wait(10)
			wroteAgain(s, economyCgroup)
		}},
		{"a call while a file is written again and again", "economy", func(s *script) {
			settleEconomy(s)
			for range 12 {
				s.wait(3)
				wroteAgain(s, podsDir+"/u1/containers/app/message")
			}
			s.Called(s.now, &runtimeapi.ContainerStatusRequest{})
		}},
	})
}

// blockDataWrittenAgain writes the vol_data.json of a block volume twice, if wanted with a call in
// between that unstages the volume.
func blockDataWrittenAgain(released bool) func(*script) {
	return func(s *script) {
		const blocks = "/var/lib/kubelet/plugins/kubernetes.io/csi/volumeDevices/"
		settleEconomy(s)
		s.changePath(truth.PathWritten, blocks+"pv/data/vol_data.json", "")
		s.wait(20)
		if released {
			s.checkCSICall(s.now, &api.Effect{Body: &api.UnstageVolume{StagingPath: blocks + "staging/pv"}})
		}
		wroteAgain(s, blocks+"pv/data/vol_data.json")
	}
}

func TestEconomy(t *testing.T) {
	const record, cgroup = economyRecord, economyCgroup
	wrote := func(s *script, path string) { s.changePath(truth.WroteNothing, path, "") }
	settled := settleEconomy
	runCases(t, []testCase{
		{"a record written again", "economy", func(s *script) {
			settled(s)
			wrote(s, record)
		}},
		{"a record written again by the next agent", "economy", func(s *script) {
			settled(s)
			s.AgentStarted(s.now)
			wrote(s, record)
		}},
		{"a write overtakes another", "", func(s *script) {
			settled(s)
			s.changePath(truth.PathWritten, record, "")
			wrote(s, record)
		}},
		{"limits written again", "economy", func(s *script) {
			settled(s)
			wrote(s, cgroup)
		}},
		{"limits written by the next agent", "", func(s *script) {
			settled(s)
			s.AgentStarted(s.now)
			wrote(s, cgroup)
		}},
		{"limits written for the next sandbox", "", func(s *script) {
			settled(s)
			s.changeSandbox(truth.SandboxStopped, "u1-s0")
			wrote(s, cgroup)
		}},
		{"a status without a difference", "economy", func(s *script) {
			settled(s)
			s.CheckFact(truth.Fact{Time: s.now, Kind: truth.ObjectUpdated, Write: &truth.Write{
				Resource: api.ResourcePods, Namespace: "ns", Name: "web"}})
			s.wait(10)
			wrote(s, "pods ns/web")
		}},
		{"a periodic call", "", func(s *script) {
			settled(s)
			s.Called(s.now, &runtimeapi.ListContainersRequest{})
		}},
		{"the status of the node", "", func(s *script) {
			settled(s)
			s.Called(s.now, &api.PatchObject{Resource: api.ResourceNodes})
		}},
		{"a status of a pod", "economy", func(s *script) {
			settled(s)
			s.Called(s.now, &api.PatchObject{Resource: api.ResourcePods})
		}},
		{"a call without a reason", "economy", func(s *script) {
			settled(s)
			s.Called(s.now, &runtimeapi.ContainerStatusRequest{})
		}},
		{"a call after an exit", "", func(s *script) {
			settled(s).exit(0, truth.CauseSelf)
			s.wait(1)
			s.Called(s.now, &runtimeapi.ContainerStatusRequest{})
		}},
		{"a call of an agent that has just started", "", func(s *script) {
			settled(s)
			s.AgentStarted(s.now)
			s.wait(5)
			s.Called(s.now, &runtimeapi.ContainerStatusRequest{})
		}},
	})
}

func TestEconomyOfImages(t *testing.T) {
	settleIntent := func(seconds float64) func(*script) {
		return func(s *script) {
			settleEconomy(s)
			s.wait(seconds)
			s.Called(s.now, &api.RemoveTree{Path: "/var/lib/kubelet/image_manager/pulling/sha256-1"})
		}
	}
	runCases(t, []testCase{
		{"the intent of a pull, settled in the next round", "", settleIntent(200)},
		{"the intent of a pull, settled later", "economy", settleIntent(300)},
		{"an image is removed by the next round", "", func(s *script) {
			settleEconomy(s)
			s.wait(imageGCPeriod.Seconds() - 160 + 1)
			s.Called(s.now, &runtimeapi.RemoveImageRequest{})
		}},
		{"an image is removed without a reason", "economy", func(s *script) {
			settleEconomy(s)
			s.wait((imageGCPeriod + imageGCBound).Seconds())
			s.Called(s.now, &runtimeapi.RemoveImageRequest{})
		}},
	})
}

func TestEconomyOfOnePod(t *testing.T) {
	settled := settleEconomy
	runCases(t, []testCase{
		{"a read of a ConfigMap that is watched", "economy", func(s *script) {
			settled(s)
			s.Called(s.now, &api.GetObject{Resource: api.ResourceConfigMaps})
		}},
		{"a periodic read of a ConfigMap", "", func(s *script) {
			s.model.opts.ChangeDetection.Reads = true
			settled(s)
			s.Called(s.now, &api.GetObject{Resource: api.ResourceConfigMaps})
		}},
		{"a read of a pod", "economy", func(s *script) {
			settled(s)
			s.Called(s.now, &api.GetObject{Resource: api.ResourcePods})
		}},
		{"the renewal of the lease", "", func(s *script) {
			settled(s)
			s.Called(s.now, &api.UpdateObject{Object: api.Object{Lease: &coordinationv1.Lease{}}})
		}},
		{"a call about a settled pod, while another one starts", "economy", func(s *script) {
			settled(s)
			startAnother(s)
			s.Called(s.now, &runtimeapi.ContainerStatusRequest{ContainerId: "u1-app#0"})
		}},
		{"a call about a pod that starts", "", func(s *script) {
			settled(s)
			startAnother(s)
			s.Called(s.now, &runtimeapi.PodSandboxStatusRequest{PodSandboxId: "u2-s0"})
		}},
		{"a patch of a settled pod, while another one is deleted", "economy", func(s *script) {
			settled(s)
			markOther(s)
			s.Called(s.now, &api.PatchObject{Resource: api.ResourcePods, Namespace: "ns", Name: "web"})
		}},
		{"a patch of a pod that is deleted", "", func(s *script) {
			settled(s)
			markOther(s)
			s.Called(s.now, &api.PatchObject{Resource: api.ResourcePods, Namespace: "ns", Name: "other"})
		}},
		{"a file of a settled pod, while another one starts", "economy", func(s *script) {
			settled(s)
			startAnother(s)
			s.Called(s.now, &api.MakeDir{Path: podsDir + "/u1/volumes"})
		}},
	})
}

// The attachment of a volume is read before it is published again, also after a lost answer.
func TestEconomyOfAttachments(t *testing.T) {
	read := func(republishes bool, healed time.Duration) func(*script) {
		return func(s *script) {
			settleEconomy(s)
			s.model.csi.drivers["a.test"] = &storagev1.CSIDriver{
				Spec: storagev1.CSIDriverSpec{RequiresRepublish: &republishes}}
			s.model.healedAt = s.now.Add(-healed)
			s.Called(s.now, &api.GetObject{Resource: api.ResourceAttachments})
		}
	}
	runCases(t, []testCase{
		{"after a lost answer", "", read(true, 3*time.Minute)},
		{"long after it", "economy", read(true, 5*time.Minute)},
		{"of a driver that does not want it", "economy", read(false, 3*time.Minute)},
	})
}

// Every call that names one pod is judged by that pod alone.
func TestEconomyOfCallsAboutOnePod(t *testing.T) {
	const log = logsDir + "/ns_web_u1/app/0.log"
	volume := podsDir + "/u1/volumes/kubernetes.io~empty-dir/data"
	var cases []testCase
	for _, call := range []any{
		&api.Rename{From: log, To: log + ".20260101-000000"},
		&api.Compress{Path: log + ".20260101-000000"},
		&api.MakeLink{Path: "/var/log/containers/web_ns_app-u1-app#0.log", Target: log},
		&api.BindSubPath{Root: "/data", Target: podsDir + "/u1/volume-subpaths/data/app/0"},
		&api.ReadInVolume{Root: volume, Path: "variables"},
		pullFor("u1"),
	} {
		cases = append(cases, testCase{api.CallName(call), "economy", func(s *script) {
			settleEconomy(s)
			startAnother(s)
			s.Called(s.now, call)
		}})
	}
	for size, want := range map[int64]string{99: "economy", 100: ""} { //ordered: each by itself
		cases = append(cases, testCase{fmt.Sprintf("a log of %d bytes", size), want, func(s *script) {
			s.model.opts.LogBytesMax = 100
			s.model.opts.ListFiles = func(dir string) iter.Seq[File] {
				return func(yield func(File) bool) {
					_ = dir == logsDir+"/ns_web_u1/app" && yield(File{Name: "0.log", Size: size})
				}
			}
			settleEconomy(s)
			startAnother(s)
			s.Called(s.now, &api.Compress{Path: log + ".20260101-000000"})
			s.Called(s.now, &api.Rename{From: log, To: log + ".20260102-000000"})
		}})
	}
	runCases(t, cases)
}

// The limits of a pod are written for its next sandbox, also if a resize has written them when the
// last one was lost already.
func TestLimitsWrittenWhenTheSandboxWasLost(t *testing.T) {
	resized := func(after float64) func(*script) {
		return func(s *script) {
			settleEconomy(s)
			s.changeSandbox(truth.SandboxStopped, "u1-s0")
			s.wait(after)
			s.CheckFact(truth.Fact{Time: s.now, Kind: truth.CgroupCreated, Path: economyCgroup,
				Limits: truth.Limits{CPUShares: 4}})
			s.wait(20)
			wroteAgain(s, economyCgroup)
		}
	}
	runCases(t, []testCase{
		{"just after that", "", resized(1)},
		{"when the agent knows it", "economy", resized(4)},
	})
}
