package core

import (
	"slices"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"seedlet.dev/core/pod"
	"seedlet.dev/world"
)

// A pod on a disk that is full is ranked by its whole directory, since its containers can write to
// /etc/hosts and to their termination messages, and not to their volumes alone.
func TestDirectoriesOfPodsAreMeasured(t *testing.T) {
	n := bootWithPods(nil, apiPodNamed("a", "u1"), apiPodNamed("b", "u2"))
	var measured, owners []string
	n.answer = func(effect any) any {
		switch e := effect.(type) {
		case *world.MeasureFilesystem:
			return &world.FilesystemMeasured{Device: 1, CapacityBytes: 1 << 40, AvailableBytes: 1 << 20}
		case *runtimeapi.ListPodSandboxStatsRequest:
			return &runtimeapi.ListPodSandboxStatsResponse{}
		case *world.MeasureTrees:
			measured, owners = append(measured, e.Paths...), append(owners, e.Owners...)
			return &world.TreesMeasured{Trees: make([]world.TreeMeasured, len(e.Paths))}
		}
		return nil
	}
	n.advance(2 * time.Minute)
	want := []string{"/var/log/pods/default_a_u1", "/var/lib/kubelet/pods/u1",
		"/var/log/pods/default_b_u2", "/var/lib/kubelet/pods/u2"}
	if len(measured) < len(want) || !slices.Equal(measured[:len(want)], want) {
		t.Errorf("measured are %q, want %q", measured, want)
	}
	if of := slices.Repeat([]string{"default"}, len(measured)); !slices.Equal(owners, of) {
		t.Errorf("of %q, want %q", owners, of)
	}
}

// The removal of a container counts as progress of a reclaim, and nothing else does.
func TestOnlyRemovalsAreNoted(t *testing.T) {
	n := bootWithPods(nil, apiPodNamed("a", "u1"), apiPodNamed("b", "u2"))
	n.agent.state.Eviction.ReclaimSince = n.now
	n.agent.reclaimContainers()
	running, deleted := n.agent.state.Pods["u1"], n.agent.state.Pods["u2"]
	n.agent.noteReclaimed(running)
	deleted.Stage, deleted.ReclaimsRuns, deleted.RunsLeft = pod.Terminated, true, 1
	deleted.NoLongerDesired = true
	n.agent.noteReclaimed(deleted)
	if at := n.agent.state.Eviction.RemovedAt; !at.IsZero() {
		t.Errorf("a removal is noted at %v, although there was none", at)
	}
	deleted.ReclaimsRuns, deleted.RunsLeft, deleted.NoLongerDesired = true, 1, false
	deleted.Containers = nil
	n.agent.noteReclaimed(deleted)
	if at := n.agent.state.Eviction.RemovedAt; at.IsZero() || deleted.ReclaimsRuns {
		t.Errorf("noted at %v after a removal, %t", at, deleted.ReclaimsRuns)
	}
}

// What all pods use is measured in the cgroup above them, by the driver's name of it.
func TestMemoryOfPodsIsThatOfTheirCgroup(t *testing.T) {
	n := bootWithPods(nil)
	for _, systemd := range []bool{false, true} {
		l := &n.agent.state.Node.Cgroups
		l.PerPod, l.DriverKnown, l.Systemd = true, true, systemd
		want := world.MeasureNode{Pods: l.QOSParent(v1.PodQOSGuaranteed), Systemd: systemd}
		if l.QOSParent(v1.PodQOSGuaranteed) == l.QOSParent(v1.PodQOSBestEffort) {
			t.Fatal("all pods and those of BestEffort have one cgroup")
		}
		if got := n.agent.evictionEnv().Request; got != want {
			t.Errorf("%+v, want %+v", got, want)
		}
	}
}

// Pods are ranked by what was allocated to them, not by what a resize asks for and was not granted.
func TestCandidatesWithoutResize(t *testing.T) {
	n := bootWithPods(nil, withRequests(apiPodNamed("a", "u1"), "100m", 0))
	p := n.agent.state.Pods["u1"]
	p.Resize.Desired = withRequests(apiPodNamed("a", "u1"), "3", 0)
	if got := n.agent.evictionCandidates(false); len(got) != 1 || got[0].Pod != p.Spec || got[0].Idle {
		t.Errorf("the candidates are %+v", got)
	}
	p.Containers = nil // its sandbox is ready
	if got := n.agent.evictionCandidates(false); len(got) != 1 || !got[0].Idle {
		t.Errorf("without a container the candidates are %+v", got)
	}
}

// A victim that had ended for another reason, and that is hastened again, is still reported as one
// of the resource.
func TestHastenedVictimIsReportedAsBefore(t *testing.T) {
	n := bootWithPods(nil, apiPodNamed("a", "u1"))
	p := n.agent.state.Pods["u1"]
	p.Termination = pod.Termination{Reason: "DeadlineExceeded", Message: "late", Grace: time.Hour}
	p.Stage = pod.Terminating
	p.Evict("low on memory", time.Minute, n.now)
	n.agent.hastenVictim("u1", time.Second)
	if e := &p.Termination; e.PressureMessage != "low on memory" || e.Message != "late" ||
		e.Hastened != 2*time.Second {
		t.Errorf("%+v", e)
	}
}

// Containers that could not be removed for the space are not removed later, when there is enough.
func TestContainersAreKeptAfterAReclaim(t *testing.T) {
	ended := apiPodNamed("a", "u1")
	ended.Spec.RestartPolicy = v1.RestartPolicyNever
	n := bootWithPods(nil, ended)
	n.failingCalls = map[string]bool{"PatchObject": true, "WriteFile": true}
	n.endContainers()
	n.advance(10 * time.Second)
	p, available := n.agent.state.Pods["u1"], int64(1<<20)
	n.answer = func(effect any) any {
		if _, is := effect.(*world.MeasureFilesystem); !is {
			return nil
		}
		return &world.FilesystemMeasured{Device: 1, CapacityBytes: 1 << 40, AvailableBytes: available,
			Inodes: 1000, InodesFree: 900}
	}
	for range 30 {
		if n.advance(time.Second); p.ReclaimsRuns {
			break
		}
	}
	if p.Stage != pod.Terminated || !p.ReclaimsRuns {
		t.Fatalf("stage %v: no container is to be removed, although the disk is short of space", p.Stage)
	}
	available = 1 << 39
	n.advance(time.Minute)
	n.failingCalls = nil
	n.advance(time.Minute)
	if len(p.Containers) != 1 {
		t.Errorf("%d containers are left, although there is enough space", len(p.Containers))
	}
}

// A pod that was evicted for a limit of its own is waited for until it has given back its disk.
func TestWhenLimitsFreeADisk(t *testing.T) {
	p := withRequests(apiPodNamed("a", "u1"), "100m", 0)
	n := bootWithPods(nil, p, apiPodNamed("b", "u2"))
	if by := n.agent.limitsFreedBy(); !by.IsZero() {
		t.Errorf("%v without an eviction", by)
	}
	n.agent.state.Pods["u2"].Evict("low", time.Second, n.now)
	if by := n.agent.limitsFreedBy(); !by.IsZero() {
		t.Errorf("%v for the victim of a shortage", by)
	}
	a := n.agent.state.Pods["u1"]
	a.Stage = pod.Terminating
	a.Termination = pod.Termination{Reason: pod.ReasonEvicted, Phase: v1.PodFailed,
		Grace: time.Second, Since: n.now}
	a.OverLimit = true
	if by := n.agent.limitsFreedBy(); !by.Equal(n.now.Add(31 * time.Second)) {
		t.Errorf("%v, want 31 s after %v", by, n.now)
	}
	n.agent.enqueuePod("u1")
	n.agent.enqueuePod("u2")
	n.advance(10 * time.Second)
	if by := n.agent.limitsFreedBy(); a.Stage != pod.Terminated || !by.IsZero() {
		t.Errorf("%v after the pod has ended", by)
	}
	if n.agent.state.Eviction.LimitsFreedAt.IsZero() {
		t.Error("the disk is not observed again")
	}
}

// A condition that an earlier agent has left is not kept by one that has no thresholds.
func TestPressureWithoutThresholds(t *testing.T) {
	for _, hasThresholds := range []bool{true, false} {
		n := newNode(nil)
		n.apiServer, n.status = newServer(), runtimeStatus(true)
		n.restart()
		n.advance(2 * time.Second)
		for i := range n.apiServer.node.Status.Conditions {
			if c := &n.apiServer.node.Status.Conditions[i]; c.Type == v1.NodeDiskPressure {
				c.Status = v1.ConditionTrue
			}
		}
		n.answer = func(effect any) any {
			if _, is := effect.(*world.MeasureFilesystem); is {
				return world.Errorf(world.KindTimeout, "", "late")
			}
			return nil
		}
		if !hasThresholds {
			n.evictionHard = map[string]string{"nodefs.available": "0%"}
		}
		n.restart()
		n.advance(20 * time.Second)
		for _, c := range n.apiServer.node.Status.Conditions {
			if c.Type == v1.NodeDiskPressure && (c.Status == v1.ConditionTrue) != hasThresholds {
				t.Errorf("thresholds %t: %+v", hasThresholds, c)
			}
		}
	}
}

// An agent that learns that a pod was evicted waits for its end before it evicts another one.
func TestVictimOfEarlierAgentIsAdopted(t *testing.T) {
	n := bootWithPods(nil, apiPodNamed("a", "u1"), apiPodNamed("b", "u2"))
	n.failingCalls = map[string]bool{"StopContainer": true}
	n.agent.state.Pods["u1"].Evict("low", time.Second, n.now) // as its record would have it
	n.agent.enqueuePod("u1")
	n.advance(2 * time.Second)
	v := n.agent.state.Eviction.Victim
	if v == nil || v.UID != "u1" || !v.HoldsDisk || v.Deadline.After(n.now.Add(31*time.Second)) {
		t.Errorf("the victim is %+v", v)
	}
}

// A victim that has ended, and still holds some of a disk, is waited for once: by the agent that
// has evicted it until the deadline, by a later one from its record on.
func TestVictimThatHasEndedIsAdoptedOnce(t *testing.T) {
	for _, isEarlier := range []bool{true, false} {
		n := bootWithPods(nil, apiPodNamed("a", "u1"), apiPodNamed("b", "u2"))
		n.failingCalls = map[string]bool{"RemoveContainer": true}
		p := n.agent.state.Pods["u1"]
		p.Evict("low", time.Second, n.now)
		n.agent.enqueuePod("u1")
		n.advance(10 * time.Second)
		if p.Stage != pod.Terminated || p.HasFreedDisk() || p.Record.Termination == nil {
			t.Fatalf("stage %v, freed %t, record %+v", p.Stage, p.HasFreedDisk(), p.Record.Termination)
		}
		n.agent.state.Eviction.Victim = nil // its deadline has passed
		if isEarlier {
			n.agent.state.BootedAt = n.now.Add(time.Second)
		}
		n.agent.adoptEvicted(p)
		if v := n.agent.state.Eviction.Victim; (v != nil) != isEarlier {
			t.Errorf("of an earlier agent %t: the victim is %+v", isEarlier, v)
		}
	}
}

// A resize that waits for the end of a pressure is looked at once the pressure has ended.
func TestEndOfPressureHasResizesLookedAt(t *testing.T) {
	r := newResizeNode(withRequests(apiPodNamed("a", "u1"), "1", 0))
	inner := r.answer
	r.answer = func(effect any) any {
		if _, is := effect.(*world.MeasureFilesystem); is {
			return &world.FilesystemMeasured{Device: 1, CapacityBytes: 1 << 40, AvailableBytes: 1 << 20,
				Inodes: 1000, InodesFree: 900}
		}
		return inner(effect)
	}
	r.advance(20 * time.Second)
	r.resize("a", "1500m")
	if got := r.pending("a"); got != "Deferred: The node had condition: [DiskPressure]. " {
		t.Fatalf("pending is %q", got)
	}
	e, queue := &r.agent.state.Eviction, &r.agent.queue
	for i := range e.Thresholds {
		e.Thresholds[i].MetSince, e.Thresholds[i].MetForGrace = time.Time{}, false
	}
	e.LastMet, e.Sources[1].Op, *queue = nil, 9999, planQueue{}
	r.agent.handleEvictionCompletion(9999, world.Event{Op: 9999, Time: r.now,
		Body: &world.FilesystemMeasured{Device: 1, CapacityBytes: 1 << 40, AvailableBytes: 1 << 39}})
	if len(e.Pressure) > 0 || !queue.isQueued[resizeOwner] {
		t.Errorf("pressure %v, resizes are looked at %t", e.Pressure, queue.isQueued[resizeOwner])
	}
}

// answerShortMemory answers for a node that is short of memory, of which pods use so much, by UID.
func answerShortMemory(usage map[string]uint64) func(any) any {
	return func(effect any) any {
		switch effect.(type) {
		case *world.MeasureNode:
			return &world.NodeMeasured{MemoryBytes: 1 << 30, WorkingSetBytes: 1<<30 - 1<<20}
		case *runtimeapi.ListPodSandboxStatsRequest:
			list := &runtimeapi.ListPodSandboxStatsResponse{}
			for uid, bytes := range usage {
				list.Stats = append(list.Stats, &runtimeapi.PodSandboxStats{
					Attributes: &runtimeapi.PodSandboxAttributes{
						Metadata: &runtimeapi.PodSandboxMetadata{Uid: uid}},
					Linux: &runtimeapi.LinuxPodSandboxStats{Memory: &runtimeapi.MemoryUsage{
						WorkingSetBytes: &runtimeapi.UInt64Value{Value: bytes}}}})
			}
			return list
		}
		return nil
	}
}

// A pod that is deleted with a long grace period, and whose containers run, is evicted as any
// other.
func TestDeletedPodIsEvicted(t *testing.T) {
	n := bootWithPods(nil, apiPodNamed("a", "u1"), apiPodNamed("b", "u2"))
	n.failingCalls = map[string]bool{"StopContainer": true}
	n.markDeleted("default/a", 3600)
	n.answer = answerShortMemory(map[string]uint64{"u1": 500 << 20, "u2": 1 << 20})
	n.advance(15 * time.Second)
	deleted, other := n.agent.state.Pods["u1"], n.agent.state.Pods["u2"]
	if !deleted.IsEvicted() || deleted.Termination.Grace > time.Minute || other.IsEvicted() {
		t.Errorf("the deleted pod ends by %+v, the other one by %+v", deleted.Termination,
			other.Termination)
	}
}

// A hard threshold that is met while the victim of a soft one ends leaves it one second, and the
// one that every container has besides.
func TestHardThresholdHastensSoftVictim(t *testing.T) {
	slow, hour := apiPodNamed("a", "u1"), int64(3600)
	slow.Spec.TerminationGracePeriodSeconds = &hour
	n := bootWithPods(nil, slow)
	n.agent.state.Eviction.GraceMax = 10 * time.Minute
	timeout, short := int64(0), answerShortMemory(nil)
	answerStops := func(effect any) any {
		e, is := effect.(*runtimeapi.StopContainerRequest)
		if !is {
			return nil
		}
		timeout = e.Timeout
		return world.Errorf(world.KindTimeout, "StopContainer", "it does not end")
	}
	n.answer = answerStops
	n.agent.state.Pods["u1"].Evict("low", 10*time.Minute, n.now)
	n.agent.enqueuePod("u1")
	if n.event(world.Event{}); timeout != 600 {
		t.Fatalf("the victim of a soft threshold has %d s, want 600", timeout)
	}
	n.answer = func(effect any) any {
		if body := answerStops(effect); body != nil {
			return body
		}
		return short(effect)
	}
	if n.advance(12 * time.Second); timeout != 2 {
		t.Errorf("it has %d s, want 2", timeout)
	}
}

// The node is observed at once when the kernel reports that memory is short.
func TestMemoryAlertHasTheNodeObserved(t *testing.T) {
	n := bootNode(nil)
	n.advance(5 * time.Second)
	s := &n.agent.state.Eviction.Sources[0]
	before := s.AskedAt
	n.event(world.Event{Body: &world.MemoryAlert{}})
	if !s.AskedAt.After(before) {
		t.Errorf("observed at %s, not after the alert", s.AskedAt)
	}
}

// Evictions wait for records that were not read, and for no others.
func TestRecordsThatEvictionsWaitFor(t *testing.T) {
	n := bootWithPods(nil, apiPodNamed("a", "u1"))
	n.advance(5 * time.Second)
	p := n.agent.state.Pods["u1"]
	if !p.HasLiveContainers() || n.agent.lacksRecords() {
		t.Errorf("lacks records, want none: the pod runs, and its record was read")
	}
	if p.Record.Loaded = false; !n.agent.lacksRecords() {
		t.Error("lacks no records, want one")
	}
	p.Containers = nil
	if n.agent.lacksRecords() {
		t.Error("lacks records, want none: nothing of the pod has run")
	}
	if p.Stage = pod.Terminated; p.HasFreedDisk() || !n.agent.lacksRecords() {
		t.Error("lacks no records, want one: the pod has ended, and holds some of a disk")
	}
}
