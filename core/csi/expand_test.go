package csi

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/strategicpatch"

	"seedlet.dev/world"
)

// claimed returns the use of the persistent volume pv-1 by a pod that names its claim.
func claimed(uid string) Use {
	u := use(uid)
	u.Claim = "claim"
	return u
}

// resize has the controller make the volume of the claim larger, and the agent read that.
func (n *node) resize(size string) {
	n.t.Helper()
	if n.claim == nil {
		n.claim = &v1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "ns",
			Name: "claim", UID: "claim-uid"}, Spec: v1.PersistentVolumeClaimSpec{VolumeName: "pv-1"},
			Status: v1.PersistentVolumeClaimStatus{Capacity: storage("1Gi")}}
	}
	n.claim.ResourceVersion = size
	n.claim.Status.AllocatedResources = storage(size)
	n.claim.Status.AllocatedResourceStatuses = map[v1.ResourceName]v1.ClaimResourceStatus{
		v1.ResourceStorage: v1.PersistentVolumeClaimNodeResizePending}
	n.claim.Status.Conditions = []v1.PersistentVolumeClaimCondition{
		{Type: v1.PersistentVolumeClaimFileSystemResizePending, Status: v1.ConditionTrue}}
	n.cache(size)
}

// cache has the agent read the claim, and its volume with a size.
func (n *node) cache(size string) {
	pv := &v1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "pv-1", ResourceVersion: size},
		Spec: v1.PersistentVolumeSpec{Capacity: storage(size)}}
	for _, o := range []world.Object{{Claim: n.claim.DeepCopy()}, {Volume: pv}} {
		r, meta := o.Meta()
		target := world.WatchTarget{Resource: r, Namespace: meta.GetNamespace(), Name: meta.GetName()}
		n.objects.AddReference(target, "pod", &n.effects)
		w := n.objects.Watch(target)
		w.Listed = true
		w.Objects = map[string]world.Object{target.Namespace + "/" + target.Name: o}
	}
	n.queue = append(n.queue, VolumeKey(UniqueName(driverName, "h1")))
}

func storage(size string) v1.ResourceList {
	return v1.ResourceList{v1.ResourceStorage: resource.MustParse(size)}
}

// patchClaim applies a change of the status of the claim.
func (n *node) patchClaim(p *world.PatchObject) (any, *world.Error) {
	var of struct{ Metadata metav1.ObjectMeta }
	if err := json.Unmarshal(p.Patch, &of); err != nil {
		n.t.Fatal(err)
	}
	if of.Metadata.ResourceVersion != n.claim.ResourceVersion || of.Metadata.UID != n.claim.UID {
		return nil, world.Errorf(world.KindConflict, "PatchObject", "the claim has changed")
	}
	before, _ := json.Marshal(n.claim)
	after, err := strategicpatch.StrategicMergePatch(before, p.Patch, &v1.PersistentVolumeClaim{})
	if err != nil {
		n.t.Fatal(err)
	}
	n.claim = &v1.PersistentVolumeClaim{}
	if err := json.Unmarshal(after, n.claim); err != nil {
		n.t.Fatal(err)
	}
	n.claim.ResourceVersion += "'"
	n.calls = append(n.calls, strings.TrimSpace("claim "+n.claim.Status.Capacity.Storage().String()+
		" "+string(n.claim.Status.AllocatedResourceStatuses[v1.ResourceStorage])))
	return &world.ObjectRead{Object: world.Object{Claim: n.claim.DeepCopy()}}, nil
}

// A volume in use is expanded where it is published, and its claim says so before and after.
func TestVolumeInUseIsExpanded(t *testing.T) {
	n := newReady(t)
	n.need(claimed("a"))
	n.calls = nil
	n.resize("2Gi")
	n.run()
	n.expect("claim 1Gi NodeResizeInProgress", "expand 2147483648", "claim 2Gi")
	if len(n.claim.Status.Conditions) > 0 {
		t.Errorf("conditions %+v, want none", n.claim.Status.Conditions)
	}
	expand := n.requests[len(n.requests)-1].(*world.ExpandVolume)
	if expand.Path != PublishedPath("/k/pods/a", "pv-1") ||
		!strings.HasSuffix(expand.StagingPath, globalMount) || expand.Capability.FSType != "ext4" {
		t.Errorf("expanded by %+v", expand)
	}
	n.cache("2Gi")
	n.wait(time.Hour)
	n.expect()
	n.resize("3Gi")
	n.run()
	n.expect("claim 2Gi NodeResizeInProgress", "expand 3221225472", "claim 3Gi")
}

// A pod gets a volume after its expansion. One that has it read-only does not wait for that.
func TestVolumeIsExpandedBeforeAPodGetsIt(t *testing.T) {
	n := newReady(t)
	n.resize("2Gi")
	n.hold["ExpandVolume"] = true
	if s := n.need(claimed("a")); s.Ready {
		t.Error("the pod has the volume before it is expanded")
	}
	n.expect("stage "+n.sha(), "publish pv-1", "claim 1Gi NodeResizeInProgress")
	n.release("ExpandVolume")
	n.expect("expand 2147483648", "claim 2Gi")
	if !n.isReady(claimed("a")) {
		t.Error("not ready after the expansion")
	}
	n = newReady(t)
	n.resize("2Gi")
	u := claimed("b")
	u.ReadOnly = true
	if s := n.need(u); !s.Ready {
		t.Errorf("got %+v, want it ready", s)
	}
	n.expect("stage "+n.sha(), "publish pv-1")
	const want = `b FileSystemResizeFailed MountVolume.NodeExpandVolume failed for volume "pv-1" ` +
		`requested read-only file system`
	claimed := "claim-uid" + strings.TrimPrefix(want, "b")
	if !slices.Equal(n.events, []string{want, claimed}) {
		t.Errorf("events %q, want %q of the pod and of the claim", n.events, want)
	}
	n.wait(time.Hour)
	if len(n.events) != 2 {
		t.Errorf("events %q after an hour", n.events)
	}
}

// A driver that goes while it publishes a volume that is to be expanded may refuse to expand it
// once a pod has it, so the pod waits until the driver is there again. A volume that needs no
// expansion waits for no driver.
func TestExpansionWaitsForDriver(t *testing.T) {
	for _, isNeeded := range []bool{true, false} {
		n := newReady(t)
		spec, policy := noAttach(), storagev1.FileFSGroupPolicy
		spec.FSGroupPolicy = &policy
		n.setDriverObject(spec)
		if n.resize("2Gi"); !isNeeded {
			n.claim.Status.AllocatedResources, n.claim.Status.AllocatedResourceStatuses = nil, nil
			n.claim.Status.Capacity = storage("2Gi")
			n.cache("2Gi")
		}
		u := inGroup("a")
		u.Claim = "claim"
		n.hold["ShareWithGroup"] = true
		n.need(u)
		n.observe() // the driver has gone
		n.release("ShareWithGroup")
		n.expect("stage "+n.sha(), "publish pv-1", "update CSINode", "group 7")
		n.wait(5 * time.Minute)
		s := n.node.UseStateOf(&u)
		want := `MountVolume.Setup failed while expanding volume for volume "pv-1" : driver name ` +
			driverName + ` not found in the list of registered CSI drivers`
		if s.Ready == isNeeded || isNeeded && (s.Problem != want || s.Failures < 2) {
			t.Errorf("needed %v: got %+v without the driver", isNeeded, s)
		}
		n.calls = nil
		n.register()
		if s := n.node.UseStateOf(&u); !s.Ready || s.Problem != "" {
			t.Errorf("needed %v: got %+v with the driver", isNeeded, s)
		}
		n.calls = slices.DeleteFunc(n.calls, func(call string) bool {
			return call == "info" || strings.HasSuffix(call, "CSINode")
		})
		if !isNeeded {
			n.expect()
			continue
		}
		n.expect("claim 1Gi NodeResizeInProgress", "expand 2147483648", "claim 2Gi")
	}
}

// An expansion that a controller leaves to a node whose driver cannot expand volumes fails, and is
// tried again; a pod that needs the volume waits.
func TestExpansionWithoutCapability(t *testing.T) {
	n := newReady(t)
	n.need(claimed("a"))
	n.calls, n.events = nil, nil
	n.node.session(driverName).Info.Capabilities.Expand = false
	n.resize("2Gi")
	n.claim.Spec.Resources.Requests = storage("2Gi")
	n.run()
	n.expect("claim 1Gi NodeResizeInProgress", "claim 1Gi NodeResizeInProgress")
	const reason = "NodeExpand is not supported by the CSI driver " + driverName
	isFailed := func(c v1.PersistentVolumeClaimCondition) bool {
		return c.Type == v1.PersistentVolumeClaimNodeResizeError &&
			c.Message == "failed to expand pvc with "+reason
	}
	if !slices.ContainsFunc(n.claim.Status.Conditions, isFailed) {
		t.Errorf("conditions %+v", n.claim.Status.Conditions)
	}
	const failed = `NodeExpandVolume.NodeExpandVolume failed for volume "pv-1" : `
	want := "a VolumeResizeFailed " + failed + reason
	if !slices.Equal(n.events, []string{want}) {
		t.Errorf("events %q, want %q", n.events, want)
	}
	if !n.isReady(claimed("a")) {
		t.Error("the pod that has the volume has it no more")
	}
	if s := n.need(claimed("b")); s.Ready {
		t.Error("another pod gets the volume")
	}
	n.wait(10 * time.Minute)
	attempts := &n.node.Volumes[UniqueName(driverName, "h1")].Expansion.Attempts
	if attempts.Failures < 3 || attempts.Failures > 15 {
		t.Errorf("%d attempts in ten minutes", attempts.Failures)
	}
	const waiting = `MountVolume.Setup failed while expanding volume for volume "pv-1" : `
	if attempts.Problem != waiting+reason || len(n.events) != 1 {
		t.Errorf("the pod that waits has %q, want %q; events %q", attempts.Problem, waiting+reason,
			n.events)
	}
}

// A controller that does not wait for the node needs no capability of the driver.
func TestFinishedExpansionWithoutCapability(t *testing.T) {
	n := newReady(t)
	n.node.session(driverName).Info.Capabilities.Expand = false
	n.resize("2Gi")
	n.claim.Status.AllocatedResources, n.claim.Status.AllocatedResourceStatuses = nil, nil
	n.cache("2Gi")
	if s := n.need(claimed("a")); !s.Ready {
		t.Errorf("got %+v, want it ready", s)
	}
	n.expect("stage "+n.sha(), "publish pv-1")
	if n.wait(time.Hour); len(n.events) > 0 {
		t.Errorf("events %q, want none", n.events)
	}
}

// A volume of many nodes is expanded for a second pod of the node, although another node has
// written that already; then that pod gets it.
func TestVolumeOfManyNodesIsExpandedBeforeAPodGetsIt(t *testing.T) {
	n := newReady(t)
	n.resize("2Gi")
	n.claim.Spec.AccessModes = []v1.PersistentVolumeAccessMode{v1.ReadWriteMany}
	n.cache("2Gi")
	n.need(claimed("b"))
	n.calls = nil
	n.claim.Status.Capacity = storage("3Gi")
	n.cache("3Gi")
	if s := n.need(claimed("a")); !s.Ready {
		t.Errorf("the second pod has %+v, want it ready", s)
	}
	n.expect("publish pv-1", "expand 3221225472")
}

// A volume that cannot be expanded for want of a secret is tried again by itself.
func TestExpansionWithoutSecret(t *testing.T) {
	n := newReady(t)
	u := claimed("a")
	u.ExpandSecret = ref("expand")
	n.resize("2Gi")
	n.need(u)
	n.listSecret("expand", nil)
	if n.isReady(u) {
		t.Error("ready without its expansion")
	}
	if n.wakes[VolumeKey(UniqueName(driverName, "h1"))].IsZero() {
		t.Error("it is not tried again")
	}
	n.listSecret("expand", map[string][]byte{"key": []byte("x")})
	if n.wait(time.Minute); !n.isReady(u) {
		t.Error("not ready with the secret")
	}
}

// What a failure means for the claim, and whether the call is repeated.
func TestFailedExpansion(t *testing.T) {
	const inProgress = "claim 1Gi NodeResizeInProgress"
	for _, c := range []struct {
		kind    world.ErrorKind
		want    []string // after the first call
		again   bool
		message string // of the condition
		events  int
	}{
		{world.KindTimeout, []string{inProgress}, true, "", 1},
		{world.KindInternal, []string{inProgress, inProgress}, true, "no space", 1},
		{world.KindInvalid, []string{inProgress, "claim 1Gi NodeResizeInfeasible"}, false, "no space", 1},
		{world.KindConflict, []string{inProgress, inProgress}, false, "no space", 0},
	} {
		n := newReady(t)
		n.need(claimed("a"))
		n.calls, n.events = nil, nil
		n.fail["ExpandVolume"] = &failure{world.Errorf(c.kind, "", "no space"), 1, false}
		n.resize("2Gi")
		n.run()
		n.expect(c.want...)
		if len(n.events) != c.events {
			t.Errorf("%s: events %q, want %d", c.kind, n.events, c.events)
		}
		var message string
		for _, condition := range n.claim.Status.Conditions {
			if condition.Type == v1.PersistentVolumeClaimNodeResizeError {
				message = condition.Message
			}
		}
		if !strings.Contains(message, c.message) || (message == "") != (c.message == "") {
			t.Errorf("%s: condition %q", c.kind, message)
		}
		n.wait(time.Minute)
		if again := len(n.calls) > 0; again != c.again || !n.isReady(claimed("a")) {
			t.Errorf("%s: then %q", c.kind, n.calls)
		}
	}
}

// A driver that keeps failing is not asked any more once a user has lowered the request: the
// controller can begin with that.
func TestFailedExpansionIsGivenUpForAnotherRequest(t *testing.T) {
	n := newReady(t)
	n.need(claimed("a"))
	n.fail["ExpandVolume"] = &failure{world.Errorf(world.KindInternal, "", "no space"), 1000, false}
	n.resize("3Gi")
	n.claim.Spec.Resources.Requests = storage("3Gi")
	n.run()
	n.wait(time.Hour)
	if status := n.claim.Status.AllocatedResourceStatuses[v1.ResourceStorage]; status !=
		v1.PersistentVolumeClaimNodeResizeInProgress {
		t.Errorf("the status is %q while the request is that size", status)
	}
	n.claim.Spec.Resources.Requests = storage("2Gi")
	n.claim.ResourceVersion += " lowered"
	n.cache("3Gi")
	n.wait(time.Hour)
	if status := n.claim.Status.AllocatedResourceStatuses[v1.ResourceStorage]; status !=
		v1.PersistentVolumeClaimNodeResizeInfeasible {
		t.Errorf("the status is %q after the request was lowered", status)
	}
	n.calls = nil
	n.wait(time.Hour)
	n.expect()
}

// An expansion that another agent has started is finished, and one whose claim has changed is
// looked at again.
func TestExpansionIsTakenUp(t *testing.T) {
	n := newReady(t)
	n.need(claimed("a"))
	n.hold["ExpandVolume"] = true
	n.resize("2Gi")
	n.run()
	n.cache("2Gi")
	n.hold["ExpandVolume"] = false
	n.restart()
	n.register()
	n.calls = nil
	u := claimed("a")
	u.HasRun = true
	n.hold["ExpandVolume"] = true
	if !n.need(u).Ready {
		t.Error("a restart makes the volume unready")
	}
	n.claim.ResourceVersion = "other"
	n.release("ExpandVolume")
	n.wait(time.Minute)
	n.expect("expand 2147483648", "claim 2Gi")
}
