package claim

import (
	"slices"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"seedlet.dev/core/objectcache"
	"seedlet.dev/world"
)

// fixture is a pod with the volume data of a claim, and the objects that back it.
type fixture struct {
	pod    *v1.Pod
	claim  *v1.PersistentVolumeClaim
	volume *v1.PersistentVolume
}

func newFixture() *fixture {
	mode := v1.PersistentVolumeFilesystem
	return &fixture{
		pod: &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: "p", UID: "p-1"},
			Spec: v1.PodSpec{
				Volumes: []v1.Volume{{Name: "data", VolumeSource: v1.VolumeSource{
					PersistentVolumeClaim: &v1.PersistentVolumeClaimVolumeSource{ClaimName: "c"}}}},
				Containers: []v1.Container{{Name: "main",
					VolumeMounts: []v1.VolumeMount{{Name: "data", MountPath: "/data"}}}}}},
		claim: &v1.PersistentVolumeClaim{
			ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: "c", UID: "c-1"},
			Spec:       v1.PersistentVolumeClaimSpec{VolumeName: "pv"},
			Status:     v1.PersistentVolumeClaimStatus{Phase: v1.ClaimBound}},
		volume: &v1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "pv"},
			Spec: v1.PersistentVolumeSpec{VolumeMode: &mode,
				ClaimRef: &v1.ObjectReference{Namespace: "a", Name: "c", UID: "c-1"}}},
	}
}

// ephemeral makes the volume a generic ephemeral one, whose claim the pod controls.
func (f *fixture) ephemeral() {
	yes := true
	f.pod.Spec.Volumes[0].VolumeSource = v1.VolumeSource{Ephemeral: &v1.EphemeralVolumeSource{}}
	f.claim.Name = "p-data"
	f.claim.OwnerReferences = []metav1.OwnerReference{{Kind: "Pod", Name: "p", UID: "p-1",
		Controller: &yes}}
}

// useAsDevice has the container use the volume as a device.
func (f *fixture) useAsDevice() {
	c := &f.pod.Spec.Containers[0]
	c.VolumeMounts, c.VolumeDevices = nil, []v1.VolumeDevice{{Name: "data", DevicePath: "/dev/x"}}
}

// objects returns a store with objects as if each had been listed. Nil: the object does not exist.
func (f *fixture) objects() *objectcache.Store {
	store := &objectcache.Store{Watches: map[string]*objectcache.Watch{}}
	add := func(target world.WatchTarget, exists bool, name string, o world.Object) {
		w := &objectcache.Watch{Target: target, Listed: true, Objects: map[string]world.Object{}}
		if exists {
			w.Objects[name] = o
		}
		store.Watches[objectcache.Key(target)] = w
	}
	v := &f.pod.Spec.Volumes[0]
	target := Target(f.pod, v)
	add(target, f.claim != nil, target.Namespace+"/"+target.Name, world.Object{Claim: f.claim})
	add(VolumeTarget("pv"), f.volume != nil, "/pv", world.Object{Volume: f.volume})
	return store
}

func (f *fixture) resolve() (Resolved, bool, error) {
	v := &f.pod.Spec.Volumes[0]
	return Resolve(f.pod, v, UsesOf(f.pod)[v.Name], f.objects())
}

func TestResolve(t *testing.T) {
	f := newFixture()
	r, known, err := f.resolve()
	if err != nil || !known || r.Claim != f.claim || r.Volume != f.volume || r.ReadOnly ||
		r.Mode != v1.PersistentVolumeFilesystem {
		t.Errorf("%+v, known %v, %v", r, known, err)
	}
	f.pod.Spec.Volumes[0].PersistentVolumeClaim.ReadOnly = true
	if r, _, _ := f.resolve(); !r.ReadOnly {
		t.Error("the volume is not read-only")
	}
	f = newFixture()
	f.ephemeral()
	if r, known, err := f.resolve(); err != nil || !known || r.Volume != f.volume {
		t.Errorf("ephemeral: %+v, known %v, %v", r, known, err)
	}
}

func TestResolveErrors(t *testing.T) {
	deleted := metav1.NewTime(time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC))
	block := v1.PersistentVolumeBlock
	const processing = "error processing PVC a/c: "
	for _, test := range []struct {
		name   string
		change func(*fixture)
		want   string // empty: none
	}{
		{"no claim", func(f *fixture) { f.claim = nil },
			processing + `failed to fetch PVC from API server: persistentvolumeclaims "c" not found`},
		{"claim being deleted", func(f *fixture) { f.claim.DeletionTimestamp = &deleted },
			processing + "PVC is being deleted"},
		{"claim being deleted in use", func(f *fixture) {
			f.claim.DeletionTimestamp = &deleted
			f.claim.Finalizers = []string{"kubernetes.io/pvc-protection"}
		}, ""},
		{"claim not bound", func(f *fixture) { f.claim.Status.Phase = v1.ClaimPending },
			processing + "PVC is not bound"},
		{"claim lost", func(f *fixture) { f.claim.Status.Phase = v1.ClaimLost },
			processing + "PVC is not bound"},
		{"no name of a volume", func(f *fixture) { f.claim.Spec.VolumeName = "" },
			processing + "PVC has empty pvc.Spec.VolumeName"},
		{"no volume", func(f *fixture) { f.volume = nil }, processing +
			`failed to fetch PV pv from API server: persistentvolumes "pv" not found`},
		{"volume without a claim", func(f *fixture) { f.volume.Spec.ClaimRef = nil }, processing +
			"found PV object pv but it has a nil pv.Spec.ClaimRef indicating it is not yet bound to " +
			"the claim"},
		{"volume of an earlier claim", func(f *fixture) { f.volume.Spec.ClaimRef.UID = "c-0" },
			processing + "found PV object pv but its pv.Spec.ClaimRef.UID c-0 does not point to " +
				"claim.UID c-1"},
		{"volume without a mode", func(f *fixture) { f.volume.Spec.VolumeMode = nil },
			"cannot get volumeMode for volume: pv"},
		{"device mounted", func(f *fixture) { f.volume.Spec.VolumeMode = &block },
			"volume data has volumeMode Block, but is specified in volumeMounts"},
		{"file system as a device", func(f *fixture) { f.useAsDevice() },
			"volume data has volumeMode Filesystem, but is specified in volumeDevices"},
		{"device as a device", func(f *fixture) {
			f.volume.Spec.VolumeMode = &block
			f.useAsDevice()
		}, ""},
		{"ephemeral, of nobody", func(f *fixture) {
			f.ephemeral()
			f.claim.OwnerReferences = nil
		}, "PVC a/p-data was not created for pod a/p (pod is not owner)"},
		{"ephemeral, of an earlier pod", func(f *fixture) {
			f.ephemeral()
			f.claim.OwnerReferences[0].UID = "p-0"
		}, "PVC a/p-data was not created for pod a/p (pod is not owner)"},
	} {
		f := newFixture()
		test.change(f)
		_, known, err := f.resolve()
		got := ""
		if err != nil {
			got = err.Error()
		}
		if !known || got != test.want {
			t.Errorf("%s: known %v, %q, want %q", test.name, known, got, test.want)
		}
	}
}

func TestResolveUnknown(t *testing.T) {
	f := newFixture()
	v := &f.pod.Spec.Volumes[0]
	if _, known, err := Resolve(f.pod, v, Use{}, nil); !known || err == nil {
		t.Errorf("without an API server: known %v, %v", known, err)
	}
	store := f.objects()
	pv := store.Watch(VolumeTarget("pv"))
	pv.Listed, pv.Objects = false, nil
	if _, known, err := Resolve(f.pod, v, Use{}, store); known || err != nil {
		t.Errorf("volume not read: known %v, %v", known, err)
	}
	if got := VolumeName(f.pod, v, store); got != "pv" {
		t.Errorf("the claim names the volume %q", got)
	}
	pv.Failing = world.Errorf(world.KindRefused, "", "no relationship found")
	const want = "error processing PVC a/c: failed to fetch PV pv from API server: " +
		"no relationship found"
	if _, known, err := Resolve(f.pod, v, Use{}, store); known || err == nil || err.Error() != want {
		t.Errorf("volume cannot be read: known %v, %v", known, err)
	}
	if _, known, err := Resolve(f.pod, v, Use{}, &objectcache.Store{}); known || err != nil {
		t.Errorf("nothing read: known %v, %v", known, err)
	}
	if got := VolumeName(f.pod, v, &objectcache.Store{}); got != "" {
		t.Errorf("an unknown claim names the volume %q", got)
	}
	other := &v1.Volume{Name: "x"}
	if _, known, err := Resolve(f.pod, other, Use{}, store); !known || err == nil {
		t.Errorf("a volume without a claim: known %v, %v", known, err)
	}
}

func TestUsesOf(t *testing.T) {
	f := newFixture()
	if use := UsesOf(f.pod)["data"]; use != (Use{Mounted: true}) {
		t.Errorf("mounted: %+v", use)
	}
	if use := UsesOf(f.pod)["other"]; use != (Use{}) {
		t.Errorf("not used: %+v", use)
	}
	f.pod.Spec.InitContainers = []v1.Container{{VolumeDevices: []v1.VolumeDevice{{Name: "init"}}}}
	f.pod.Spec.EphemeralContainers = []v1.EphemeralContainer{{
		EphemeralContainerCommon: v1.EphemeralContainerCommon{
			VolumeMounts: []v1.VolumeMount{{Name: "debug"}}}}}
	if use := UsesOf(f.pod)["init"]; use != (Use{Device: true}) {
		t.Errorf("a device of an init container: %+v", use)
	}
	if use := UsesOf(f.pod)["debug"]; use != (Use{Mounted: true}) {
		t.Errorf("mounted by an ephemeral container: %+v", use)
	}
}

// A claim is rejected that is bound and not the pod's, and so are a claim and a volume that are not
// of each other; one that is not bound is awaited anyway.
func TestUnusable(t *testing.T) {
	claim := world.WatchTarget{Resource: world.ResourceClaims, Namespace: "a", Name: "c"}
	ofPod := claim
	ofPod.Name = "p-data"
	now := metav1.Now()
	for name, test := range map[string]struct {
		change func(*fixture)
		want   []world.WatchTarget
	}{
		"usable":    {func(*fixture) {}, nil},
		"no claim":  {func(f *fixture) { f.claim = nil }, nil},
		"no volume": {func(f *fixture) { f.volume = nil }, []world.WatchTarget{claim}},
		"not bound": {func(f *fixture) { f.claim.Status.Phase = v1.ClaimPending }, nil},
		"being deleted": {func(f *fixture) { f.claim.DeletionTimestamp = &now },
			[]world.WatchTarget{claim}},
		"the pod's own": {(*fixture).ephemeral, nil},
		"another pod's": {func(f *fixture) {
			f.ephemeral()
			f.claim.OwnerReferences[0].UID = "p-0"
		}, []world.WatchTarget{ofPod}},
		"of an earlier claim": {func(f *fixture) { f.volume.Spec.ClaimRef.UID = "c-0" },
			[]world.WatchTarget{claim, VolumeTarget("pv")}},
	} {
		f := newFixture()
		test.change(f)
		got := Unusable(f.pod, &f.pod.Spec.Volumes[0], f.objects())
		if !slices.Equal(got, test.want) {
			t.Errorf("%s: %v", name, got)
		}
	}
}
