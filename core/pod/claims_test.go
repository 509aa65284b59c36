package pod

import (
	"slices"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"seedlet.dev/core/claim"
	"seedlet.dev/core/objectcache"
	"seedlet.dev/core/op"
	"seedlet.dev/core/timer"
	"seedlet.dev/core/volume"
	"seedlet.dev/world"
)

// withClaim returns a pod that mounts a claim.
func withClaim() *Pod {
	p := withVolume(v1.VolumeMount{MountPath: "/data"})
	p.Spec.Spec.Volumes[0].VolumeSource = v1.VolumeSource{
		PersistentVolumeClaim: &v1.PersistentVolumeClaimVolumeSource{ClaimName: "c"}}
	return p
}

// claimEnv is the environment of plans with an API server.
func claimEnv(store *objectcache.Store) *Env {
	env := &Env{Node: volumesNode, Effects: &op.Effects{}, Objects: store,
		Enqueue: func(timer.Key) {}}
	env.Effects.Reset(&op.Table{}, t0)
	return env
}

// The persistent volume that a claim names is read as long as the pod has not terminated, and so is
// another one that the claim names later.
func TestVolumeOfClaimIsRead(t *testing.T) {
	p, store := withClaim(), &objectcache.Store{}
	env, w := claimEnv(store), &wakeTimer{now: t0}
	phase := v1.ClaimPending
	claimed := func(volume string) {
		watch := store.Watch(claim.Target(p.Spec, &p.Spec.Spec.Volumes[0]))
		watch.Listed, watch.Objects = true, map[string]world.Object{"default/c": {
			Claim: &v1.PersistentVolumeClaim{Spec: v1.PersistentVolumeClaimSpec{VolumeName: volume},
				Status: v1.PersistentVolumeClaimStatus{Phase: phase}}}}
	}
	check := func(when string, want ...string) {
		t.Helper()
		p.watchReferences(env)
		p.watchVolumes(env, w)
		for _, name := range []string{"pv-a", "pv-b"} {
			isRead := store.Watch(claim.VolumeTarget(name)) != nil
			if isRead != strings.Contains(strings.Join(want, " "), name) {
				t.Errorf("%s: %s is read: %v", when, name, isRead)
			}
		}
	}
	check("before the claim is known")
	claimed("")
	check("before the claim names a volume")
	claimed("pv-a")
	check("before the claim is bound")
	phase = v1.ClaimBound
	claimed("pv-a")
	check("the claim names a volume", "pv-a")
	claimed("pv-b")
	check("the claim names another one", "pv-b")
	p.Stage = Terminated
	check("after the end of the pod")
	if len(store.Watches) > 0 {
		t.Errorf("left: %v", store.Watches)
	}
}

// A claim counts for the volume that is bound to it.
func TestClaimsCountTwice(t *testing.T) {
	if got := countReferences(withClaim().Spec); got != 2 {
		t.Errorf("%d references, want 2", got)
	}
}

// A pod that waits has a bound claim, or its volume, read again soon which it cannot use, and no
// more once it can or has its volume.
func TestUnusableClaim(t *testing.T) {
	p, store := withClaim(), &objectcache.Store{}
	env, w := claimEnv(store), &wakeTimer{now: t0}
	var enqueued []string
	env.Enqueue = func(key timer.Key) { enqueued = append(enqueued, key.Name) }
	p.watchReferences(env)
	target := claim.Target(p.Spec, &p.Spec.Spec.Volumes[0])
	shown := &v1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Name: "c", Namespace: "default", UID: "c-1",
			DeletionTimestamp: &metav1.Time{Time: t0}},
		Spec:   v1.PersistentVolumeClaimSpec{VolumeName: "pv"},
		Status: v1.PersistentVolumeClaimStatus{Phase: v1.ClaimBound}}
	watch := store.Watch(target)
	watch.Listed = true
	watch.Objects = map[string]world.Object{"default/c": {Claim: shown}}
	check := func(what string, target world.WatchTarget, want bool) {
		t.Helper()
		enqueued = nil
		p.watchVolumes(env, w)
		read := store.Watch(target).Read
		if slices.Contains(read.UnusableTo, p.UID) != want {
			t.Errorf("%s: unusable to %q", what, read.UnusableTo)
		}
		if want && !slices.Contains(enqueued, objectcache.Key(target)) {
			t.Errorf("%s: planned %q", what, enqueued)
		}
	}
	check("a claim that is being deleted", target, true)
	shown.DeletionTimestamp = nil
	p.watchVolumes(env, w)
	volumeTarget := claim.VolumeTarget("pv")
	watch = store.Watch(volumeTarget)
	watch.Listed = true
	watch.Objects = map[string]world.Object{"/pv": {Volume: &v1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{Name: "pv"}, Spec: v1.PersistentVolumeSpec{
			ClaimRef: &v1.ObjectReference{Namespace: "default", Name: "c", UID: "c-0"}}}}}
	check("a volume of an earlier claim", volumeTarget, true)
	p.Storage.Volumes.Volumes = []volume.Volume{{Name: p.Spec.Spec.Volumes[0].Name,
		Backing: &volume.Backing{}}}
	check("the pod has its volume", volumeTarget, false)
}
