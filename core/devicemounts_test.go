package core

import (
	"path"
	"slices"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"seedlet.dev/world"
)

const blocksDir = "/var/lib/kubelet/plugins/kubernetes.io~local-volume/volumeDevices"

// deviceNode is a node with a disk on which the device of a local volume can be bound.
type deviceNode struct {
	*fakeNode
	bound []string // paths
	fails string   // a call that fails
	// unmounted is set if nothing is mounted at the paths.
	unmounted bool
	calls     []string // of devices
	devices   []*runtimeapi.Device
}

// bootWithDevice returns a node with a pod that has the device of the local volume pv.
func bootWithDevice() *deviceNode {
	n := &deviceNode{fakeNode: newNode(nil)}
	n.apiServer, n.answer = newServer(), n.answerDevices
	block := v1.PersistentVolumeBlock
	n.apiServer.others = map[string]world.Object{
		"c": {Claim: &v1.PersistentVolumeClaim{
			ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "c", UID: "c-1"},
			Spec:       v1.PersistentVolumeClaimSpec{VolumeName: "pv"},
			Status:     v1.PersistentVolumeClaimStatus{Phase: v1.ClaimBound}}},
		"pv": {Volume: &v1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "pv"},
			Spec: v1.PersistentVolumeSpec{VolumeMode: &block,
				ClaimRef: &v1.ObjectReference{UID: "c-1"},
				PersistentVolumeSource: v1.PersistentVolumeSource{
					Local: &v1.LocalVolumeSource{Path: "/dev/sdb"}}}}}}
	p := apiPodNamed("web", "u1")
	p.Spec.Volumes = []v1.Volume{{Name: "raw", VolumeSource: v1.VolumeSource{
		PersistentVolumeClaim: &v1.PersistentVolumeClaimVolumeSource{ClaimName: "c",
			ReadOnly: true}}}}
	p.Spec.Containers[0].VolumeDevices = []v1.VolumeDevice{{Name: "raw", DevicePath: "/dev/x"}}
	n.apiServer.put(p)
	n.restart()
	n.advance(5 * time.Second)
	return n
}

// answerDevices answers calls that are about devices; nil: any other.
func (n *deviceNode) answerDevices(effect any) any {
	call := world.CallName(effect)
	fails := func() any { return world.Errorf(world.KindInternal, call, "EIO") }
	at := ""
	switch e := effect.(type) {
	case *world.StatPath:
		if e.Path == "/dev/sdb" {
			return &world.PathInfo{Kind: world.PathBlockDevice}
		}
	case *world.BindMount:
		if at = e.Path; !slices.Contains(n.bound, at) {
			n.bound = append(n.bound, at)
		}
	case *world.HoldDevice:
		at = e.Path
	case *world.ReleaseDevice:
		at = e.Path
	case *world.Unmount:
		if slices.Contains(n.bound, e.Path) {
			at = e.Path
		}
	case *world.RemoveTree:
		if at = e.Path; strings.HasPrefix(at, blocksDir) && call != n.fails {
			n.bound = slices.DeleteFunc(n.bound, func(b string) bool { return b == at })
		}
	case *world.ListMounts:
		listed := &world.MountsListed{}
		for _, b := range n.bound {
			if n.unmounted {
				break
			}
			listed.Mounts = append(listed.Mounts, world.Mount{Path: b})
		}
		return listed
	case *world.ListDir:
		return n.listBound(e.Path)
	case *world.GetObject:
		return n.readObject(e)
	case *runtimeapi.CreateContainerRequest:
		n.devices = e.Config.Devices
	}
	if at == "" {
		return nil
	}
	n.calls = append(n.calls, call+" "+strings.TrimPrefix(at, "/var/lib/kubelet"))
	if call == n.fails {
		return fails()
	}
	if call == "BindMount" {
		return &world.Mounted{}
	}
	return &world.Done{}
}

// readObject reads a claim or a persistent volume; nil: it is another object.
func (n *deviceNode) readObject(e *world.GetObject) any {
	object, exists := n.apiServer.others[e.Name]
	switch {
	case exists:
		return &world.ObjectRead{Object: object}
	case e.Resource == world.ResourceClaims || e.Resource == world.ResourceVolumes:
		return world.Errorf(world.KindNotFound, "GetObject", "%s not found", e.Name)
	}
	return nil
}

// listBound lists a directory of devices; nil: it is another one.
func (n *deviceNode) listBound(dir string) any {
	if !strings.HasPrefix(dir, blocksDir) {
		return nil
	}
	listed := &world.DirListed{}
	for _, b := range n.bound {
		name, isBelow := strings.CutPrefix(b, dir+"/")
		if name, _, isDir := strings.Cut(name, "/"); isBelow {
			listed.Entries = append(listed.Entries, world.DirEntry{Name: name, Directory: isDir})
		}
	}
	return listed
}

// expectTaken expects that the device was taken from the pod, whose directory was removed after
// that.
func (n *deviceNode) expectTaken(t *testing.T) {
	t.Helper()
	const bound = "/plugins/kubernetes.io~local-volume/volumeDevices/pv/u1"
	want := []string{"RemoveTree /pods/u1/volumeDevices/kubernetes.io~local-volume/pv",
		"ReleaseDevice " + bound, "Unmount " + bound, "RemoveTree " + bound, "RemoveTree /pods/u1"}
	at := 0
	for _, call := range n.calls {
		if at < len(want) && call == want[at] {
			at++
		}
	}
	if at < len(want) || len(n.bound) > 0 {
		t.Errorf("bound %v, and not %s, in %v", n.bound, want[at:], n.calls)
	}
}

// A container gets the device; after the pod has ended, it waits until the device is taken away,
// and is removed from the API server then.
func TestPodWithLocalDevice(t *testing.T) {
	n := bootWithDevice()
	const link = "/var/lib/kubelet/pods/u1/volumeDevices/kubernetes.io~local-volume/pv"
	if len(n.devices) != 1 || n.devices[0].HostPath != link ||
		n.devices[0].ContainerPath != "/dev/x" || n.devices[0].Permissions != "r" {
		t.Fatalf("devices %+v, after %v: %s", n.devices, n.calls, n.takeEvents())
	}
	const mapped = `MapVolume.MapPodDevice succeeded for volume "pv" `
	events := n.takeEvents()
	if count := strings.Count(events, "SuccessfulMountVolume"); count != 2 {
		t.Errorf("%d events SuccessfulMountVolume, want two", count)
	}
	for _, place := range []string{`globalMapPath "` + blocksDir + `/pv"`,
		`volumeMapPath "` + path.Dir(link) + `"`} {
		if !strings.Contains(events, mapped+place) {
			t.Errorf("no event %q in %s", mapped+place, events)
		}
	}
	n.fails, n.calls = "ReleaseDevice", nil
	n.markDeleted("default/web", 0)
	n.advance(time.Minute)
	if n.apiServer.objects["default/web"] == nil || len(n.sandboxes) == 0 ||
		slices.Contains(n.calls, "RemoveTree /pods/u1") {
		t.Errorf("the pod is removed while its device is bound: %v", n.calls)
	}
	n.fails = ""
	n.advance(2 * time.Minute)
	if n.apiServer.objects["default/web"] != nil || len(n.sandboxes) > 0 {
		t.Error("the pod is left")
	}
	n.expectTaken(t)
}

// An agent that is started again ends the pod: its claim and persistent volume have gone.
func TestLocalDeviceOfEarlierAgent(t *testing.T) {
	for _, isKept := range []bool{true, false} {
		n := bootWithDevice()
		n.calls = nil
		if !isKept {
			n.apiServer.others = nil
		}
		n.restart()
		n.advance(time.Minute)
		if len(n.bound) != 1 || slices.ContainsFunc(n.calls, func(call string) bool {
			return strings.HasPrefix(call, "RemoveTree /p") || strings.HasPrefix(call, "Release")
		}) {
			t.Fatalf("bound %v after a restart: %v", n.bound, n.calls)
		}
		n.markDeleted("default/web", 0)
		n.advance(2 * time.Minute)
		n.expectTaken(t)
		if n.apiServer.objects["default/web"] != nil {
			t.Error("the pod is left")
		}
	}
}

// After a loss of power nothing is mounted, and the directory of a pod that has gone is left with
// the file to which its device was bound.
func TestFileOfLocalDeviceOfOrphan(t *testing.T) {
	n := &deviceNode{fakeNode: newNode(nil), bound: []string{blocksDir + "/pv/u1"}, unmounted: true}
	n.apiServer, n.answer, n.podDirs = newServer(), n.answerDevices, []string{"u1"}
	n.restart()
	n.advance(5 * time.Minute)
	if len(n.bound) > 0 {
		t.Errorf("left: %v, after %v", n.bound, n.calls)
	}
}

// What is bound for a pod of which nothing is left is found in the mount table.
func TestLocalDeviceOfUnknownPod(t *testing.T) {
	n := &deviceNode{fakeNode: newNode(nil), bound: []string{blocksDir + "/pv/u1"}}
	n.apiServer, n.answer, n.podDirs = newServer(), n.answerDevices, []string{"u1"}
	n.restart()
	n.advance(5 * time.Minute)
	n.expectTaken(t)
}
