package oracle

import (
	"testing"

	v1 "k8s.io/api/core/v1"

	"seedlet.dev/sim/truth"
	"seedlet.dev/world"
)

func TestVolumesBetweenGroups(t *testing.T) {
	// with begins a shutdown after which the first group has ended, with a volume mounted.
	with := func(then func(s *script, critical run)) func(*script) {
		return func(s *script) {
			ordinary, critical := shutdownScript(s)
			s.changePath(truth.Mounted, volumeInMemory, "")
			s.machine(truth.ShutdownAnnounced, "")
			ordinary.end(5)
			then(s, critical)
			s.losePower()
		}
	}
	unmount := func(s *script) { s.changePath(truth.Unmounted, volumeInMemory, "") }
	runCases(t, []testCase{
		{"unmounted before the next group", "", with(func(s *script, critical run) {
			unmount(s)
			critical.end(5)
		})},
		{"mounted while the next group is stopped", "shutdown", with(func(s *script, critical run) {
			critical.end(5)
			unmount(s)
		})},
		{"mounted until the period of its group has passed", "", with(func(s *script, critical run) {
			s.wait(15)
			critical.end(5)
		})},
		{"mounted when the lock is released", "shutdown", with(func(s *script, critical run) {
			critical.exit(0, truth.CauseSelf)
			s.machine(truth.ShutdownPermitted, "")
		})},
	})
}

// The turn of a group comes when the volumes of the pods of the groups before it are unmounted: a
// driver that does not answer, and a mount that was asked for before, are waited for.
func TestTurnAfterVolumes(t *testing.T) {
	unpublish := &world.UnpublishVolume{Driver: world.CSIDriver{Name: csiDriver}, Handle: "h",
		TargetPath: csiTarget("u1")}
	// with begins a shutdown that ends the first group after two seconds.
	with := func(mounts bool, then func(s *script)) func(*script) {
		return func(s *script) {
			ordinary, _ := shutdownScript(s)
			if mounts {
				s.changePath(truth.Mounted, volumeInMemory, "")
			}
			s.machine(truth.ShutdownAnnounced, "")
			ordinary.end(2)
			then(s)
			s.losePower()
		}
	}
	unmount := func(s *script) { s.changePath(truth.Unmounted, volumeInMemory, "") }
	runCases(t, []testCase{
		{"no volume", "shutdown", with(false, func(s *script) { pollAfter(s, 6) })},
		{"mounted", "", with(true, func(s *script) { pollAfter(s, 17) })},
		{"mounted for longer than the period", "shutdown", with(true, func(s *script) {
			pollAfter(s, 24)
		})},
		{"unmounted a while ago", "", with(true, func(s *script) {
			s.wait(10)
			unmount(s)
			pollAfter(s, 4)
		})},
		{"unmounted too long ago", "shutdown", with(true, func(s *script) {
			s.wait(10)
			unmount(s)
			pollAfter(s, 6)
		})},
		{"the driver does not answer", "", with(false, func(s *script) {
			s.ask(1, unpublish)
			pollAfter(s, 10)
		})},
		{"the driver has failed, and unmounted it", "", with(false, func(s *script) {
			s.ask(1, unpublish)
			s.answer(1, world.Errorf(world.KindTimeout, "UnpublishVolume", "no answer"))
			pollAfter(s, 10)
		})},
		{"the driver has answered", "shutdown", with(false, func(s *script) {
			s.ask(1, unpublish)
			s.wait(5)
			s.answer(1, &world.Done{})
			pollAfter(s, 6)
		})},
		{"the driver has answered just now", "", with(false, func(s *script) {
			s.ask(1, unpublish)
			s.wait(10)
			s.answer(1, &world.Done{})
			pollAfter(s, 4)
		})},
		{"the pod waits for a mount", "", with(false, func(s *script) {
			s.ask(1, &world.BindMount{Path: podsDir + "/u1/volumes/kubernetes.io~local-volume/pv"})
			pollAfter(s, 10)
		})},
		{"another pod waits for a mount", "shutdown", with(false, func(s *script) {
			s.ask(1, &world.BindMount{Path: podsDir + "/u9/volumes/kubernetes.io~local-volume/pv"})
			pollAfter(s, 10)
		})},
	})
}

// A shutdown is not idle while a pod waits for a device to be mounted, which takes its time.
func TestShutdownAwaitsMount(t *testing.T) {
	with := func(claim string) func(*script) {
		return func(s *script) {
			s.model.volumes.claims = map[string]*v1.PersistentVolumeClaim{"ns/data": {
				Spec: v1.PersistentVolumeClaimSpec{VolumeName: "pv"}}}
			ordinary, critical := shutdownScript(s)
			s.pods["u1"].Spec.Volumes = []v1.Volume{{Name: "v", VolumeSource: v1.VolumeSource{
				PersistentVolumeClaim: &v1.PersistentVolumeClaimVolumeSource{ClaimName: claim}}}}
			s.machine(truth.ShutdownAnnounced, "")
			ordinary.end(1)
			critical.end(1)
			s.ask(1, &world.MountDevice{
				Path: "/var/lib/kubelet/plugins/kubernetes.io/local-volume/mounts/pv"})
			pollAfter(s, 0)
			pollAfter(s, 21)
			s.losePower()
		}
	}
	runCases(t, []testCase{
		{"of the volume of a pod", "", with("data")},
		{"of the volume of no pod", "shutdown", with("other")},
	})
}
