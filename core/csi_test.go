package core

import (
	"fmt"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"seedlet.dev/core/csi"
	"seedlet.dev/world"
)

// fakeDriver is a CSI driver and its plugin: it answers everything at once.
type fakeDriver struct {
	calls    []string
	requests []any
	fails    map[string]bool
}

// answer answers a call; nil for what is no call of the driver.
func (d *fakeDriver) answer(effect any) any {
	call := world.CallName(effect)
	if d.fails[call] {
		return world.Errorf(world.KindUnavailable, call, "the driver is away")
	}
	switch e := effect.(type) {
	case *world.GetPluginInfo:
		return &world.PluginInfo{Type: world.PluginTypeCSI, Name: "d", Endpoint: "/d",
			Versions: []string{"1.0.0"}}
	case *world.NotifyPluginRegistration:
		d.calls = append(d.calls, "registered "+e.Error)
		return &world.Done{}
	case *world.GetCSINodeInfo:
		return &world.CSINodeInfo{NodeID: "id-1",
			Capabilities: world.CSICapabilities{StageUnstage: true}}
	case *world.StageVolume, *world.UnstageVolume, *world.PublishVolume, *world.UnpublishVolume:
		d.calls = append(d.calls, call)
		d.requests = append(d.requests, e)
		return &world.Done{}
	}
	return nil
}

// bootWithDriver returns a node with a registered driver, which needs no attachments.
func bootWithDriver(pods ...*v1.Pod) (*fakeNode, *fakeDriver) {
	no, policy := false, storagev1.NoneFSGroupPolicy
	driver := &fakeDriver{fails: map[string]bool{}}
	n := newNode(nil)
	n.apiServer, n.answer = newServer(), driver.answer
	n.apiServer.others = map[string]world.Object{"": {CSIDriver: &storagev1.CSIDriver{
		ObjectMeta: metav1.ObjectMeta{Name: "d"}, Spec: storagev1.CSIDriverSpec{
			AttachRequired: &no, FSGroupPolicy: &policy, PodInfoOnMount: new(true),
			VolumeLifecycleModes: []storagev1.VolumeLifecycleMode{storagev1.VolumeLifecycleEphemeral,
				storagev1.VolumeLifecyclePersistent}}}}}
	for _, p := range pods {
		n.apiServer.put(p)
	}
	n.restart()
	return n, driver
}

// inlinePod returns a pod with an inline volume of the driver.
func inlinePod() *v1.Pod {
	p := apiPodNamed("web", "u1")
	p.Spec.Volumes = []v1.Volume{{Name: "scratch", VolumeSource: v1.VolumeSource{
		CSI: &v1.CSIVolumeSource{Driver: "d"}}}}
	p.Spec.Containers[0].VolumeMounts = []v1.VolumeMount{{Name: "scratch", MountPath: "/scratch"}}
	return p
}

func (n *fakeNode) observeSockets(paths ...string) {
	observed := &world.PluginSocketsObserved{}
	for _, path := range paths {
		observed.Sockets = append(observed.Sockets, world.PluginSocket{Path: path, File: "1"})
	}
	n.event(world.Event{Body: observed})
	n.advance(2 * time.Second)
}

// A pod waits for its CSI volume, which waits for its driver; after the pod has ended, it waits
// until the volume is unpublished, and is removed from the API server then.
func TestPodWithInlineVolume(t *testing.T) {
	n, driver := bootWithDriver(inlinePod())
	n.advance(5 * time.Second)
	if events := n.takeEvents(); len(n.containers) > 0 ||
		!strings.Contains(events, "driver name d not found") {
		t.Fatalf("the pod does not wait: %s", events)
	}
	n.observeSockets("/d-reg")
	n.advance(10 * time.Second)
	if got := strings.Join(driver.calls, ", "); got != "registered , PublishVolume" {
		t.Fatalf("got %q", got)
	}
	publish := driver.requests[0].(*world.PublishVolume)
	want := "/var/lib/kubelet/pods/u1/volumes/kubernetes.io~csi/scratch/mount"
	if publish.TargetPath != want || publish.Handle != csi.EphemeralHandle("u1", "scratch") ||
		publish.VolumeContext["csi.storage.k8s.io/pod.name"] != "web" ||
		publish.VolumeContext["csi.storage.k8s.io/ephemeral"] != "true" {
		t.Errorf("published with %+v", publish)
	}
	if len(n.containers) != 1 {
		t.Error("the container is not created")
	}
	driver.fails["UnpublishVolume"] = true
	n.markDeleted("default/web", 0)
	n.advance(time.Minute)
	if n.apiServer.objects["default/web"] == nil || len(n.sandboxes) == 0 {
		t.Error("the pod is removed while its volume is published")
	}
	driver.fails["UnpublishVolume"] = false
	n.advance(5 * time.Minute)
	if n.apiServer.objects["default/web"] != nil || len(n.sandboxes) > 0 {
		t.Error("the pod is left")
	}
	if last := driver.calls[len(driver.calls)-1]; last != "UnpublishVolume" {
		t.Errorf("got %q", driver.calls)
	}
}

// The operations on a volume are counted by its driver, and so are the measurements of it.
func TestCSIMetrics(t *testing.T) {
	n, _ := bootWithDriver(inlinePod())
	answer := n.answer
	n.answer = func(effect any) any {
		switch effect.(type) {
		case *world.GetCSINodeInfo:
			return &world.CSINodeInfo{NodeID: "id-1", Capabilities: world.CSICapabilities{Stats: true}}
		case *world.GetVolumeStats:
			return &world.CSIVolumeStats{CapacityBytes: 7}
		}
		return answer(effect)
	}
	n.observeSockets("/d-reg")
	n.advance(2 * time.Minute)
	const operations = "storage_operation_duration_seconds kubernetes.io/csi:d "
	const measured = "kubelet_volume_metric_collection_duration_seconds d"
	n.expectMetrics(t, "running", map[string]float64{operations + "volume_mount success false": 1,
		"reconstruct_volume_operations_total": 0})
	if got := n.metricValues()[measured]; got < 1 {
		t.Errorf("%v measurements, want some", got)
	}
	n.markDeleted("default/web", 0)
	n.advance(time.Minute)
	n.expectMetrics(t, "removed", map[string]float64{operations + "volume_unmount success false": 1})
	for name := range n.metricValues() {
		if strings.Contains(name, "kubernetes.io/csi volume_") {
			t.Errorf("%s: the driver is missing", name)
		}
	}
}

// Pods that name drivers which the node does not have leave one series of all of them, and no more
// on /metrics.
func TestUnknownDriversAreOneSeries(t *testing.T) {
	const drivers = 10_000
	const series = "storage_operation_duration_seconds kubernetes.io/csi:"
	n, _ := bootWithDriver()
	n.observeSockets("/d-reg")
	before := len(n.metricValues())
	for i := range drivers {
		n.agent.recordCSIOperation(csi.Counted{Driver: fmt.Sprint("d-", i),
			Operation: csi.OperationMount, Failed: true})
	}
	n.agent.recordCSIOperation(csi.Counted{Driver: "d", Operation: csi.OperationMount})
	n.expectMetrics(t, "named", map[string]float64{
		series + "other volume_mount fail-unknown false": drivers,
		series + "d volume_mount success false":          1})
	if got := len(n.metricValues()) - before; got != 2 {
		t.Errorf("%d more metrics, want 2", got)
	}
}

// A pod may name as many as it has volumes.
func TestPodOfUnknownDrivers(t *testing.T) {
	p := inlinePod()
	for i := range 20 {
		v := *p.Spec.Volumes[0].DeepCopy()
		v.Name, v.CSI.Driver = fmt.Sprint("v", i), fmt.Sprintf("d-%d.test", i)
		p.Spec.Volumes = append(p.Spec.Volumes, v)
	}
	mountAll(&p.Spec)
	n, _ := bootWithDriver(p)
	n.observeSockets("/d-reg")
	n.advance(time.Minute)
	found := 0
	for name := range n.metricValues() {
		if strings.HasPrefix(name, "storage_operation_duration_seconds kubernetes.io/csi:d-") {
			t.Errorf("%s is a series", name)
		} else if strings.Contains(name, "kubernetes.io/csi:other volume_mount fail-unknown") {
			found++
		}
	}
	if found != 1 {
		t.Errorf("failed mounts of %d drivers are counted", found)
	}
}

// An operation for a pod says in which namespace the pod is: those whose file systems hang share
// lanes by it (world/loop).
func TestOperationsHaveTheNamespaceOfTheirPod(t *testing.T) {
	p := apiPodNamed("web", "u1")
	p.Spec.Volumes = []v1.Volume{{Name: "share", VolumeSource: v1.VolumeSource{
		NFS: &v1.NFSVolumeSource{Server: "s", Path: "/e"}}}}
	p.Spec.Containers[0].VolumeMounts = []v1.VolumeMount{{Name: "share", MountPath: "/share"}}
	n := newNode(nil)
	n.apiServer = newServer()
	n.apiServer.put(p)
	found := 0
	n.measure = func(ev world.Event, step func(world.Event) []world.Effect) ([]world.Effect, bool) {
		effects := step(ev)
		for _, eff := range effects {
			want := ""
			if eff.Tenant == "u1" {
				want = p.Namespace
				found++
			}
			if eff.Namespace != want {
				t.Errorf("%s of %q has the namespace %q", world.CallName(eff.Body), eff.Tenant,
					eff.Namespace)
			}
		}
		return effects, false
	}
	n.restart()
	n.advance(time.Minute)
	if found == 0 {
		t.Error("no operation is for the pod")
	}
}
