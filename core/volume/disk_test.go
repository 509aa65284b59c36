package volume

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"

	"seedlet.dev/core/scsi"
	"seedlet.dev/world"
)

const diskTarget = "iqn.2026-11.test:t"

func diskVolume(mode v1.PersistentVolumeMode) v1.PersistentVolumeSpec {
	return v1.PersistentVolumeSpec{VolumeMode: &mode, MountOptions: []string{"noatime"},
		ClaimRef: &v1.ObjectReference{UID: "c-1"},
		PersistentVolumeSource: v1.PersistentVolumeSource{ISCSI: &v1.ISCSIPersistentVolumeSource{
			TargetPortal: "10.0.0.1", IQN: diskTarget, Lun: 2, ReadOnly: true}}}
}

// withDisk returns a pod with a claim on a disk, and how far the disk is.
func withDisk(mode v1.PersistentVolumeMode) (*Pod, *scsi.UseState) {
	pod, state := claimed(v1.PersistentVolumeSpec{}), &scsi.UseState{}
	setObjects(pod, v1.ClaimBound, diskVolume(mode))
	pod.RootDir, pod.Spec.UID = "/k", "u"
	pod.Disk = func(scsi.Use) scsi.UseState { return *state }
	if mode == v1.PersistentVolumeBlock {
		pod.Spec.Spec.EphemeralContainers = nil
		pod.Spec.Spec.Containers = []v1.Container{{
			VolumeDevices: []v1.VolumeDevice{{Name: "v", DevicePath: "/dev/x"}}}}
	}
	return pod, state
}

const (
	diskGlobal = "/k/plugins/kubernetes.io/iscsi/iface-default/10.0.0.1:3260-" + diskTarget + "-lun-2"
	diskMount  = "/pods/u/volumes/kubernetes.io~iscsi/pv"
)

// The file system of a disk is bound from where it is mounted for all pods, once it is, and given
// to the group of the pod. Whether it is read-only is up to the claim of the pod.
func TestDiskSteps(t *testing.T) {
	for _, isReadOnly := range []bool{false, true} {
		plain, state := withDisk(v1.PersistentVolumeFilesystem)
		pod, s := withFSGroup(plain, v1.FSGroupChangeAlways), &Set{}
		if isReadOnly {
			readOnly(pod)
		}
		state.Problem, state.Failures = "MountVolume.WaitForAttach failed", 2
		done := runSteps(s, pod, "")
		if len(done) > 0 || s.Problem() != state.Problem || s.Failures() != 2 {
			t.Errorf("%v for a disk that is not there, %q", done, s.Problem())
		}
		*state = scsi.UseState{Ready: true}
		bind := &world.BindMount{Source: diskGlobal, SourceMounted: true, Path: diskMount,
			ReadOnly: isReadOnly, Options: []string{"noatime"}}
		want := []any{bind}
		if !isReadOnly {
			want = append(want, &world.ShareWithGroup{Path: diskMount, GID: 7})
		}
		if diff := cmp.Diff(want, runSteps(s, pod, "")); diff != "" {
			t.Errorf("(-want +got)\n%s", diff)
		}
		place := Place{Path: diskMount, Name: "pv", ReadOnly: isReadOnly, Relabel: !isReadOnly}
		if got := s.Place(pod.Dir, &pod.Spec.Spec.Volumes[0]); got != place ||
			!s.Ready(&pod.Spec.Spec) || s.Problem() != "" {
			t.Errorf("%+v, want %+v, %q", got, place, s.Problem())
		}
		labeled := &Set{}
		state.HasLabel = true
		if runSteps(labeled, pod, ""); labeled.Place(pod.Dir, &pod.Spec.Spec.Volumes[0]).Relabel {
			t.Error("a disk that is mounted with a label is relabeled")
		}
		measure, _ := s.Measured("v", pod)
		if m, is := measure.(*world.MeasureFilesystem); !is || m.Path != diskMount ||
			s.MayHaveDevice(pod.Spec, ISCSIPlugin) {
			t.Errorf("measured by %+v, or may have a device", measure)
		}
	}
}

// The device of a disk is bound, kept open and linked.
func TestDiskDeviceSteps(t *testing.T) {
	pod, state := withDisk(v1.PersistentVolumeBlock)
	s := &Set{}
	if !s.MayHaveDevice(pod.Spec, ISCSIPlugin) {
		t.Error("the pod may have no device")
	}
	*state = scsi.UseState{Ready: true, Device: world.BlockDevice{Path: "/dev/sdc", Sequence: 9}}
	const bound = "/k/plugins/kubernetes.io/iscsi/volumeDevices/iface-default/10.0.0.1:3260-" +
		diskTarget + "-lun-2/u"
	const link = "/pods/u/volumeDevices/kubernetes.io~iscsi/pv"
	want := []any{&world.BindMount{Source: "/dev/sdc", Sequence: 9, Path: bound},
		&world.HoldDevice{Path: bound},
		&world.MakeLink{Path: link, Target: bound}}
	if diff := cmp.Diff(want, runSteps(s, pod, "")); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
	if place := s.Place(pod.Dir, &pod.Spec.Spec.Volumes[0]); place.Path != link || !place.Block ||
		place.Relabel || !s.MayHaveDevice(pod.Spec, ISCSIPlugin) ||
		s.MayHaveDevice(pod.Spec, LocalPlugin) {
		t.Errorf("%+v", place)
	}
}

// A bind that fails has the disk looked at again: the pod says how often that was.
func TestDiskCannotBeBound(t *testing.T) {
	pod, state := withDisk(v1.PersistentVolumeFilesystem)
	*state = scsi.UseState{Ready: true}
	failures := -1
	pod.Disk = func(u scsi.Use) scsi.UseState {
		failures = u.BindFailures
		return *state
	}
	s := &Set{}
	operation, _ := s.NextOperation(pod, t0)
	s.HandleCompletion(operation.Volume, "BindMount", world.Event{Time: t0,
		Err: world.Errorf(world.KindNotFound, "BindMount", "nothing is mounted")})
	if s.NextOperation(pod, t0); failures != 1 || s.Ready(&pod.Spec.Spec) {
		t.Errorf("%d failures", failures)
	}
}

// The volume of a pod itself decides if it is read-only.
func TestInlineDisk(t *testing.T) {
	pod := newPod(v1.Volume{Name: "v", VolumeSource: v1.VolumeSource{ISCSI: &v1.ISCSIVolumeSource{
		TargetPortal: "10.0.0.1", IQN: diskTarget, Lun: 2, ReadOnly: true, FSType: "xfs"}}})
	pod.RootDir = "/k"
	var used scsi.Use
	pod.Disk = func(u scsi.Use) scsi.UseState {
		used = u
		return scsi.UseState{Ready: true}
	}
	s := &Set{}
	want := []any{&world.BindMount{Source: diskGlobal, SourceMounted: true, ReadOnly: true,
		Path: "/pods/u/volumes/kubernetes.io~iscsi/v"}}
	if diff := cmp.Diff(want, runSteps(s, pod, "")); diff != "" || used.FSType != "xfs" ||
		used.Unique != "kubernetes.io/iscsi/10.0.0.1:"+diskTarget+":2" {
		t.Errorf("%+v (-want +got)\n%s", used, diff)
	}
}
