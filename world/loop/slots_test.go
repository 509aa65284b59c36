package loop

import (
	"fmt"
	"slices"
	"testing"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"pgregory.net/rapid"

	"seedlet.dev/world"
)

// sampleBodies has an operation of each lane, for a number that tells paths apart.
var sampleBodies = [laneCount]func(n int) any{
	LaneList:    func(int) any { return &runtimeapi.ListContainersRequest{} },
	LaneObserve: func(int) any { return &runtimeapi.ContainerStatusRequest{} },
	LaneAct:     func(int) any { return &runtimeapi.RemoveContainerRequest{} },
	LaneStop:    func(int) any { return &runtimeapi.StopContainerRequest{} },
	LanePull:    func(int) any { return &runtimeapi.PullImageRequest{} },
	LaneFS:      func(n int) any { return &world.MakeDir{Path: fmt.Sprint("/", n)} },
	LaneRemove:  func(n int) any { return &world.RemoveTree{Path: fmt.Sprint("/", n)} },
	LaneMeasure: func(int) any { return &world.MeasureTree{} },
	LaneTree:    func(n int) any { return &world.Compress{Path: fmt.Sprint("/", n)} },
	LaneProbe:   func(int) any { return &world.HTTPGet{} },
	LaneStream:  func(int) any { return &runtimeapi.GetEventsRequest{} },
	LaneHost:    func(n int) any { return &world.SetCgroup{Path: fmt.Sprint("/", n)} },
	LaneAPI: func(int) any {
		return &world.GetObject{Resource: world.ResourceSecrets, Namespace: "a", Name: "s"}
	},
	LaneStatus: func(int) any {
		return &world.PatchObject{Resource: world.ResourcePods, Status: true}
	},
	LaneHeartbeat:  func(int) any { return &world.GetObject{Resource: world.ResourceNodes} },
	LaneHostPath:   func(int) any { return &world.StatPath{} },
	LaneUnmount:    func(int) any { return &world.Unmount{} },
	LaneStatfs:     func(n int) any { return &world.MeasureFilesystem{Path: fmt.Sprint("/", n)} },
	LanePlugin:     func(int) any { return &world.GetPluginInfo{} },
	LaneCredential: func(int) any { return &world.GetCredentials{} },
	LaneKey:        func(int) any { return &world.MakeKey{Type: "RSA4096"} },
	LaneCSI:        func(n int) any { return publishBy(fmt.Sprint("driver-", n)) },
	LaneSCSI:       func(int) any { return &world.RunISCSIAdm{} },
}

// sharing drives a loop with one fake port, whose operations complete only when the test says so.
type sharing struct {
	t        *testing.T
	loop     *Loop
	core     *scriptedCore
	port     *recordingPort
	now      time.Time
	issued   int
	inFlight []world.Effect
}

func newSharing(t *testing.T, limits Limits) *sharing {
	s := &sharing{t: t, core: &scriptedCore{}, port: &recordingPort{}, now: t0}
	ports := map[world.PortName]world.Port{}
	for _, name := range []world.PortName{world.PortCRI, world.PortFS, world.PortAPI, world.PortHost,
		world.PortNetwork, world.PortPlugins, world.PortCredentials, world.PortCSI,
		world.PortSCSI} {
		ports[name] = s.port
	}
	s.loop = New(Options{Core: s.core, Limits: limits, Ports: ports})
	return s
}

// turn runs the loop, and adds what it starts to the operations in flight.
func (s *sharing) turn() {
	for s.loop.Turn(s.now) {
	}
	s.inFlight = append(s.inFlight, s.port.started...)
	s.port.started = nil
}

// issue issues operations of a tenant, which has a namespace to itself, in one step, and returns
// how many of them were started.
func (s *sharing) issue(lane Lane, tenant string, count int, timeout time.Duration) int {
	return s.issueIn(tenant, lane, tenant, count, timeout)
}

// issueIn is issue for a tenant in a namespace.
func (s *sharing) issueIn(namespace string, lane Lane, tenant string, count int,
	timeout time.Duration) int {
	var effects []world.Effect
	for range count {
		s.issued++
		eff := world.Effect{Op: world.OpID(s.issued), Body: sampleBodies[lane](s.issued),
			Deadline: s.now.Add(timeout), Tenant: tenant, Namespace: namespace}
		if lane == LaneHostPath || lane == LaneUnmount {
			eff.HostPath = fmt.Sprint("/", s.issued)
		}
		if LaneOf(eff) != lane {
			s.t.Fatalf("%T is in lane %s, want %s", eff.Body, LaneOf(eff), lane)
		}
		effects = append(effects, eff)
	}
	before := len(s.inFlight)
	s.core.effects = [][]world.Effect{effects}
	s.loop.Offer(world.Event{Body: &world.FileChanged{}})
	s.turn()
	return len(s.inFlight) - before
}

// complete completes the oldest operation in flight of a tenant, and returns the tenants of the
// operations that are started by that.
func (s *sharing) complete(tenant string) []string {
	i := slices.IndexFunc(s.inFlight, func(eff world.Effect) bool { return eff.Tenant == tenant })
	if i < 0 {
		s.t.Fatalf("nothing of %q is in flight", tenant)
	}
	op := s.inFlight[i].Op
	s.inFlight = slices.Delete(s.inFlight, i, i+1)
	before := len(s.inFlight)
	s.loop.Offer(world.Event{Op: op, Body: &world.Done{}})
	s.turn()
	var tenants []string
	for _, eff := range s.inFlight[before:] {
		tenants = append(tenants, eff.Tenant)
	}
	return tenants
}

// lanesOfPods are the lanes that pods have operations in.
func lanesOfPods() []Lane {
	var lanes []Lane
	for lane := range laneCount {
		if !slices.Contains([]Lane{LaneList, LaneStream, LaneHeartbeat}, lane) {
			lanes = append(lanes, lane)
		}
	}
	return lanes
}

// A tenant whose operations never complete gets a share of each lane, and waits behind itself: an
// operation of another tenant, or of the node, is started at once.
func TestGreedyTenantDelaysNoOther(t *testing.T) {
	for _, lane := range lanesOfPods() {
		s := newSharing(t, Limits{})
		limit := defaultLimits.InFlight[lane]
		if held := s.issue(lane, "greedy", 2*limit, time.Hour); held == 0 || held > limit/8 {
			t.Errorf("lane %s: the greedy tenant holds %d of %d slots", lane, held, limit)
		}
		for _, tenant := range []string{"ordinary", ""} {
			if started := s.issue(lane, tenant, 1, time.Minute); started != 1 {
				t.Errorf("lane %s: the operation of %q waits", lane, tenant)
			}
		}
	}
}

// Operations of many pods of one namespace hang on a file server that does not respond, and more
// than can be replaced are issued. Pods of other namespaces and the node start theirs at once, and
// so do the unmounts of the pods themselves, which end what hangs.
func TestNamespaceThatHangsDelaysNoOther(t *testing.T) {
	for _, lane := range []Lane{LaneHostPath, LaneStatfs, LaneTree, LaneUnmount} {
		s := newSharing(t, Limits{})
		limit := defaultLimits.InFlight[lane]
		pods := 256
		for range 4 { // deadlines pass, and each of them has more operations issued
			for pod := range pods {
				s.issueIn("greedy", lane, fmt.Sprint("pod-", pod), 2, time.Minute)
			}
			s.now = s.now.Add(time.Minute)
			s.turn()
		}
		if got := s.loop.lanes[lane].inFlight; got > limit {
			t.Errorf("lane %s: the namespace holds %d slots of %d", lane, got, 2*limit)
		}
		for _, tenant := range []string{"ordinary", ""} {
			if started := s.issue(lane, tenant, 1, time.Minute); started != 1 {
				t.Errorf("lane %s: the operation of %q waits", lane, tenant)
			}
		}
		if lane == LaneUnmount {
			continue
		}
		for pod := range 8 {
			if s.issueIn("greedy", LaneUnmount, fmt.Sprint("pod-", pod), 1, time.Minute) != 1 {
				t.Errorf("lane %s: the unmount of pod %d waits for what hangs", lane, pod)
			}
		}
	}
}

// Pods that are not known any more count as one namespace: an attacker who deletes pods whose
// operations hang gets no more slots by that.
func TestUnknownPodsAreOneNamespace(t *testing.T) {
	s := newSharing(t, Limits{})
	for range 4 {
		for pod := range 2 * defaultLimits.InFlight[LaneHostPath] {
			s.issueIn("", LaneHostPath, fmt.Sprint("pod-", pod), 1, time.Minute)
		}
		s.now = s.now.Add(time.Minute)
		s.turn()
	}
	if s.issueIn("ordinary", LaneHostPath, "ordinary", 1, time.Minute) != 1 {
		t.Error("the operation of an ordinary pod waits")
	}
}

// What may hang on a device is in no lane of the node's own files.
func TestDevicesAreInLanesThatMayHang(t *testing.T) {
	for lane, body := range map[Lane]any{LaneHostPath: &world.HoldDevice{},
		LaneUnmount: &world.ReleaseDevice{}} {
		if got := LaneOf(world.Effect{Body: body}); got != lane {
			t.Errorf("%T is in lane %s, want %s", body, got, lane)
		}
	}
}

func publishBy(driver string) *world.PublishVolume {
	return &world.PublishVolume{CSIVolume: world.CSIVolume{Driver: world.CSIDriver{Name: driver}}}
}

// A driver that hangs holds half of the lane, whatever pods it is called for. Calls of another
// driver start at once, also those for a pod that waits for the first.
func TestDriverThatHangsDelaysNoOther(t *testing.T) {
	s := newSharing(t, Limits{})
	call := func(driver, tenant string) (started bool) {
		s.issued++
		before := len(s.inFlight)
		s.core.effects = [][]world.Effect{{{Op: world.OpID(s.issued), Body: publishBy(driver),
			Deadline: s.now.Add(time.Hour), Tenant: tenant}}}
		s.loop.Offer(world.Event{Body: &world.FileChanged{}})
		s.turn()
		return len(s.inFlight) > before
	}
	limit, held := defaultLimits.InFlight[LaneCSI], 0
	for pod := range 4 * limit {
		if call("hangs", fmt.Sprint("pod", pod)) {
			held++
		}
	}
	if call("hangs", "") || held != limit/2 {
		t.Errorf("the driver that hangs holds %d of %d slots, or has one for the node as well", held,
			limit)
	}
	for _, tenant := range []string{"other", fmt.Sprint("pod", 4*limit-1), ""} {
		if !call("works", tenant) {
			t.Errorf("the call for %q waits", tenant)
		}
	}
}

// Stops and probes may take as long as a pod's author likes. Even if every pod of a full node holds
// what it can get, there are free slots, and an ordinary pod has several of them.
func TestManyGreedyTenantsLeaveStopsAndProbes(t *testing.T) {
	for _, lane := range []Lane{LaneStop, LaneProbe} {
		s := newSharing(t, Limits{})
		for i := range 250 {
			s.issue(lane, fmt.Sprint("greedy-", i), 200, 1<<40)
		}
		if started := s.issue(lane, "ordinary", 4, time.Minute); started < 2 {
			t.Errorf("lane %s: %d operations of the ordinary pod are started", lane, started)
		}
	}
}

// In a full lane every tenant has its turn: no tenant starts a second operation while another one
// waits with its first. The node has slots that tenants cannot take.
func TestTenantsTakeTurns(t *testing.T) {
	for _, lane := range lanesOfPods() {
		var limits Limits
		limits.InFlight[lane] = 8
		s := newSharing(t, limits)
		var tenants []string
		for i := range 20 {
			tenants = append(tenants, fmt.Sprintf("greedy-%02d", i))
			s.issue(lane, tenants[i], 50, time.Hour)
		}
		if len(s.inFlight) != 7 {
			t.Fatalf("lane %s: %d in flight, want all slots but the node's", lane, len(s.inFlight))
		}
		if s.issue(lane, "", 1, time.Hour) != 1 {
			t.Errorf("lane %s: the node's operation waits", lane)
		}
		s.issue(lane, "ordinary", 1, time.Hour)
		completions := 0
		isOrdinary := func(e world.Effect) bool { return e.Tenant == "ordinary" }
		for !slices.ContainsFunc(s.inFlight, isOrdinary) {
			// The tenant that holds a slot longest issues another operation as well.
			holder := s.inFlight[slices.IndexFunc(s.inFlight, func(e world.Effect) bool {
				return e.Tenant != ""
			})].Tenant
			s.issue(lane, holder, 1, time.Hour)
			s.complete(holder)
			if completions++; completions > len(tenants)+1 { // one turn of each
				t.Fatalf("lane %s: the ordinary tenant still waits after %d completions", lane, completions)
			}
		}
	}
}

// An operation that is issued in the step of a completion does not take the slot from one that
// waits.
func TestReissuedOperationDoesNotOvertake(t *testing.T) {
	var limits Limits
	limits.InFlight[LaneProbe] = 2
	s := newSharing(t, limits)
	s.issue(LaneProbe, "greedy", 1, time.Hour)
	s.issue(LaneProbe, "ordinary", 1, time.Hour)
	s.core.effects = [][]world.Effect{{{Op: 99, Body: &world.HTTPGet{}, Tenant: "greedy",
		Deadline: t0.Add(time.Hour)}}}
	if started := s.complete("greedy"); !slices.Equal(started, []string{"ordinary"}) {
		t.Errorf("started operations of %q, want ordinary", started)
	}
}

// Hung operations keep their slots and count against their tenant. The lane gets replacements, up
// to its limit, and says so.
func TestHungOperations(t *testing.T) {
	var limits Limits
	limits.InFlight[LaneFS] = 8
	s := newSharing(t, limits)
	if problem := s.loop.Check().Problem; problem != "" {
		t.Errorf("the check of a new loop fails: %s", problem)
	}
	for i := range 20 {
		s.issue(LaneFS, fmt.Sprint("hangs-", i), 3, time.Minute)
	}
	if s.issue(LaneFS, "ordinary", 1, time.Hour) != 0 {
		t.Fatal("the lane is not full")
	}
	s.now = s.now.Add(time.Minute)
	if next := s.loop.NextWake(); !next.Equal(s.now) {
		t.Errorf("wakes at %v, want %v", next, s.now)
	}
	s.turn()
	if got := s.loop.lanes[LaneFS]; got.hung != 7 || got.inFlight != 8 || got.waiters != 0 {
		t.Fatalf("%d hung, %d in flight, %d wait; want 7, 8, 0", got.hung, got.inFlight, got.waiters)
	}
	const want = "lane fs: 7 of 8 operations in flight are hung"
	if got := s.loop.Check(); got.Name != "lanes" || got.Problem != want {
		t.Errorf("check %+v, want %s", got, want)
	}
	if s.issue(LaneFS, "hangs-0", 1, time.Minute) != 0 {
		t.Error("a tenant whose operation hangs gets another slot")
	}
	for i := range 20 {
		s.issue(LaneFS, fmt.Sprint("hangs-too-", i), 1, time.Minute)
	}
	s.now = s.now.Add(time.Minute)
	for i := range 20 {
		s.issue(LaneFS, fmt.Sprint("hangs-as-well-", i), 1, time.Minute)
	}
	if got := s.loop.lanes[LaneFS]; got.inFlight != 15 {
		t.Errorf("%d in flight, want twice the limit but for the node's slot", got.inFlight)
	}
	if s.issue(LaneFS, "", 1, time.Hour) != 1 {
		t.Error("the node's operation waits")
	}
	for len(s.inFlight) > 0 {
		s.complete(s.inFlight[0].Tenant)
	}
	if got := &s.loop.lanes[LaneFS]; got.hung != 0 || got.inFlight != 0 || len(got.byTenant) != 0 ||
		s.loop.Check().Problem != "" {
		t.Errorf("left at the end: %+v", got)
	}
}

// For operations and completions in any order: a tenant's operations of the same urgency start in
// the order in which they were issued, no tenant waits while its share would allow a start, and
// nothing is left at the end.
func TestSharingUnderRandomOperations(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		var limits Limits
		limits.InFlight[LaneProbe] = rapid.IntRange(1, 20).Draw(r, "limit")
		s := newSharing(t, limits)
		lane := &s.loop.lanes[LaneProbe]
		newest := map[string]world.OpID{}
		for range rapid.IntRange(1, 60).Draw(r, "steps") {
			s.now = s.now.Add(time.Duration(rapid.IntRange(0, 3).Draw(r, "delay")) * time.Second)
			before := s.inFlight[:len(s.inFlight):len(s.inFlight)]
			if len(s.inFlight) > 0 && rapid.Bool().Draw(r, "complete") {
				i := rapid.IntRange(0, len(s.inFlight)-1).Draw(r, "index")
				s.complete(s.inFlight[i].Tenant)
				before = s.inFlight[:0]
			} else {
				tenant := rapid.SampledFrom([]string{"a", "b", "c", ""}).Draw(r, "tenant")
				s.issue(LaneProbe, tenant, rapid.IntRange(1, 9).Draw(r, "count"),
					time.Duration(rapid.IntRange(1, 9).Draw(r, "timeout"))*time.Second)
			}
			for _, eff := range s.inFlight[len(before):] {
				if len(before) > 0 && eff.Op < newest[eff.Tenant] {
					r.Fatalf("operation %d of %q starts after %d", eff.Op, eff.Tenant, newest[eff.Tenant])
				}
				newest[eff.Tenant] = max(newest[eff.Tenant], eff.Op)
			}
			for i := range lane.waiting {
				for _, tenant := range lane.waiting[i].order {
					if lane.hasSlot(tenant) {
						r.Fatalf("%q waits although it may have a slot", tenant)
					}
				}
			}
			if len(s.inFlight) != lane.inFlight || lane.inFlight > 2*lane.limit {
				r.Fatalf("%d in flight, counted %d", len(s.inFlight), lane.inFlight)
			}
		}
		for len(s.inFlight) > 0 {
			s.complete(s.inFlight[0].Tenant)
		}
		if lane.inFlight+lane.hung+lane.waiters+len(lane.byTenant) != 0 ||
			len(s.loop.queued.heap)+len(s.loop.started.heap) != 0 {
			r.Fatalf("left at the end: %+v", lane)
		}
	})
}

// Containers that are created without end leave others a share: a sandbox waits for a few of them.
func TestRestartsLeaveSandboxesAShare(t *testing.T) {
	s := newSlots(LaneAct, 1)
	op := func(tenant string, body any) *operation {
		return &operation{effect: world.Effect{Tenant: tenant, Body: body}, lane: LaneAct}
	}
	s.enqueue(op("ordinary", &runtimeapi.RunPodSandboxRequest{}))
	for i := range 10 {
		tenant := fmt.Sprint("restarting-", i)
		s.enqueue(op(tenant, &runtimeapi.CreateContainerRequest{}))
		next := s.dequeue()
		s.take(next)
		if next.effect.Tenant == "ordinary" {
			if i != urgentInRowMax {
				t.Errorf("the sandbox has the place %d", i)
			}
			return
		}
		s.release(next)
	}
	t.Error("the sandbox never has its turn")
}

// A pod whose stops take all slots that it can have is hastened: the stops that are superseded are
// canceled, those that wait are dropped, and the shorter ones start as slots become free.
func TestCanceledOperationsReleaseTheirSlots(t *testing.T) {
	s := newSharing(t, Limits{})
	const count = 40
	held := s.issue(LaneStop, "pod", count, 1<<40)
	if held != ShareMax(LaneStop) {
		t.Fatalf("%d stops are started, want %d", held, ShareMax(LaneStop))
	}
	var cancellations []world.Effect
	for op := range world.OpID(count + 2) { // one more of each end is unknown
		cancellations = append(cancellations, world.Effect{Body: &world.CancelOperation{Operation: op}})
	}
	s.core.effects, s.core.events = [][]world.Effect{cancellations}, nil
	s.loop.Offer(world.Event{Body: &world.FileChanged{}})
	s.turn()
	if len(s.port.canceled) != held || len(s.inFlight) != held {
		t.Errorf("%d operations are canceled, %d in flight, want %d", len(s.port.canceled),
			len(s.inFlight), held)
	}
	dropped := 0
	for _, ev := range s.core.events {
		if ev.Err.Has(world.KindCanceled) {
			dropped++
		}
	}
	if dropped != count-held {
		t.Errorf("%d waiting operations are completed, want %d", dropped, count-held)
	}
	if started := s.issue(LaneStop, "pod", count, time.Minute); started != 0 {
		t.Errorf("%d operations are started before the port has ended others", started)
	}
	for range held {
		s.complete("pod")
	}
	if len(s.inFlight) != held {
		t.Errorf("%d operations in flight after the cancellations, want %d", len(s.inFlight), held)
	}
	if next := s.loop.NextWake(); !next.Equal(s.now.Add(time.Minute)) {
		t.Errorf("the next wake is %v", next)
	}
}
