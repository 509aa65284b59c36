package csi

import (
	"strings"
	"testing"
	"time"

	"seedlet.dev/world"
)

// migratedUse returns the use of the same volume as use, which the author of a pod has written
// there.
func migratedUse(uid, fsType string) Use {
	u := use(uid)
	u.SpecName, u.FSType, u.Migrated, u.Inline = driverName+"-h1", fsType, true, true
	return u
}

// Metrics tell what is done for a volume of an in-tree kind, and so do the calls of its driver.
func TestMigratedIsCounted(t *testing.T) {
	n := newReady(t)
	u := claimed("a")
	u.Migrated = true
	n.need(u)
	n.resize("2Gi")
	n.run()
	n.end("a")
	n.expectCounted("volume_mount 0s false migrated", "volume_fs_resize 0s false migrated",
		"volume_unmount 0s false migrated", "unmount_device 0s false migrated")
	calls := 0
	for _, request := range n.requests {
		call, isCall := request.(world.CSICall)
		_, isUndone := request.(*world.UnpublishVolume)
		_, isUnstaged := request.(*world.UnstageVolume)
		if isCall && !isUndone && !isUnstaged {
			if calls++; !world.IsMigrated(call) {
				t.Errorf("%T is not of a migrated volume", request)
			}
		}
	}
	if calls < 3 {
		t.Errorf("only %d calls", calls)
	}
}

// What the author of a pod has written does not keep pods with a claim on the same volume from it:
// it is staged as the claims' persistent volume says, and as the others say after a failure.
func TestStagedAsTheClaimSays(t *testing.T) {
	n := newReady(t)
	n.hold["StageVolume"] = true
	n.need(migratedUse("a", "xfs"))
	n.need(claimed("b"))
	n.hold["StageVolume"] = false
	v := n.node.Volumes[UniqueName(driverName, "h1")]
	for failures, want := range []string{"ext4", "xfs", "ext4"} {
		v.Staging.Attempts.Failures = failures
		if got := v.stagingUse().FSType; got != want {
			t.Errorf("after %d failures staged with %q, want %q", failures, got, want)
		}
	}
}

// A claim is expanded although another pod has the volume without one.
func TestExpandedBesideAnotherUse(t *testing.T) {
	n := newReady(t)
	n.need(migratedUse("a", "ext4"))
	n.need(claimed("b"))
	n.resize("2Gi")
	n.run()
	n.wait(time.Minute)
	n.expectCounted("volume_mount 0s false migrated", "volume_mount 0s false",
		"volume_fs_resize 0s false")
}

// The author of a pod cannot give a volume every name.
func TestNamesOfVolumesInPods(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*Use)
		want   string
	}{
		"as a volume of a claim": {func(*Use) {}, ""},
		"of an ephemeral volume": {func(u *Use) { u.Handle = EphemeralHandle("b", "scratch") },
			"of the form that ephemeral volumes have"},
		"long":        {func(u *Use) { u.Handle = strings.Repeat("h", 500) }, "status of the Node"},
		"long, coded": {func(u *Use) { u.Handle = strings.Repeat("<", 90) }, "status of the Node"},
		"with NUL":    {func(u *Use) { u.SpecName = "a\x00" }, "none that a directory can have"},
		"a path":      {func(u *Use) { u.SpecName = "a/b" }, "none that a directory can have"},
		"the parent":  {func(u *Use) { u.SpecName = ".." }, "none that a directory can have"},
		"endless":     {func(u *Use) { u.SpecName = strings.Repeat("n", 1<<20) }, "too long"},
	} {
		n := newReady(t)
		u := migratedUse("a", "ext4")
		c.change(&u)
		state, _ := n.node.Use(u, n.now)
		if !strings.Contains(state.Problem, c.want) || (c.want == "") != (state.Problem == "") ||
			len(state.Problem) > 1000 {
			t.Errorf("%s: %.300q, want %q", name, state.Problem, c.want)
		}
	}
}
