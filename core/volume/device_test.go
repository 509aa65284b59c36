package volume

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"seedlet.dev/core/csi"
	"seedlet.dev/world"
)

// withDevice returns a pod whose container has the device of a local volume, bound at a path.
func withDevice(local string, modes ...v1.PersistentVolumeAccessMode) *Pod {
	pv := localVolume(local)
	pod := claimed(pv)
	block := v1.PersistentVolumeBlock
	pv.VolumeMode, pv.ClaimRef, pv.AccessModes = &block, &v1.ObjectReference{UID: "c-1"}, modes
	setObjects(pod, v1.ClaimBound, pv)
	pod.BlocksDir = "/plugins/blocks"
	pod.Spec.Spec.EphemeralContainers = nil
	pod.Spec.Spec.Containers = []v1.Container{{
		VolumeDevices: []v1.VolumeDevice{{Name: "v", DevicePath: "/dev/x"}}}}
	return pod
}

const (
	boundAt  = "/plugins/blocks/pv/u"
	deviceAt = "/pods/u/volumeDevices/kubernetes.io~local-volume/pv"
)

// The device is bound, kept open and linked, in this order, and the pod declares that it uses it
// before anything is bound. A group of the pod changes nothing of it.
func TestDeviceSteps(t *testing.T) {
	for _, isReadOnly := range []bool{false, true} {
		pod, s := withFSGroup(withDevice("/dev/sdb"), v1.FSGroupChangeAlways), &Set{}
		if isReadOnly {
			readOnly(pod)
		}
		var used []string
		pod.UseDevice = func(volume string) { used = append(used, volume) }
		want := []any{&world.StatPath{Path: "/dev/sdb"},
			&world.BindMount{Source: "/dev/sdb", Path: boundAt}, &world.HoldDevice{Path: boundAt},
			&world.MakeLink{Path: deviceAt, Target: boundAt}}
		if diff := cmp.Diff(want, runSteps(s, pod, world.PathBlockDevice)); diff != "" {
			t.Errorf("(-want +got)\n%s", diff)
		}
		if !s.Ready(&pod.Spec.Spec) || len(used) == 0 || used[0] != "pv" {
			t.Errorf("ready %v, used %v", s.Ready(&pod.Spec.Spec), used)
		}
		place := Place{Path: deviceAt, Name: "pv", ReadOnly: isReadOnly, Block: true}
		if got := s.Place(pod.Dir, &pod.Spec.Spec.Volumes[0]); got != place {
			t.Errorf("%+v, want %+v", got, place)
		}
		if volume, bound, link := s.Device("v", pod); volume != "pv" || bound != boundAt ||
			link != deviceAt {
			t.Errorf("device of %q at %q and %q", volume, bound, link)
		}
		measure, use := s.Measured("v", pod)
		if m, is := measure.(*world.MeasureDevice); !is || m.Path != boundAt || use != nil ||
			s.IsBackedBy("pv") {
			t.Errorf("measured by %+v, or its file system is mounted", measure)
		}
	}
}

// Messages are the kubelet's, where it has one (GenerateMapVolumeFunc in operationexecutor).
func TestDeviceProblems(t *testing.T) {
	elsewhere := withDevice("/dev/sdb")
	pv := elsewhere.Objects.Watches
	for _, w := range pv {
		for _, o := range w.Objects {
			if o.Volume != nil {
				o.Volume.Spec.NodeAffinity = &v1.VolumeNodeAffinity{Required: &v1.NodeSelector{
					NodeSelectorTerms: []v1.NodeSelectorTerm{{
						MatchExpressions: []v1.NodeSelectorRequirement{
							{Key: "zone", Operator: v1.NodeSelectorOpIn, Values: []string{"y"}}}}}}}
			}
		}
	}
	beside := withDevice("/dev/sdb")
	beside.Spec.Spec.Containers = append(beside.Spec.Spec.Containers, v1.Container{
		VolumeMounts: []v1.VolumeMount{{Name: "v", MountPath: "/x"}}})
	const mapping = `MapVolume.MapBlockVolume failed for volume "pv" : `
	for name, c := range map[string]struct {
		pod   *Pod
		found world.PathKind
		want  string
	}{
		"missing": {withDevice("/dev/sdb"), "", `MapVolume.EvalHostSymlinks failed for volume "pv" : ` +
			"lstat /dev/sdb: no such file or directory"},
		"directory": {withDevice("/dev/sdb"), world.PathDirectory,
			mapping + `path "/dev/sdb" is not a block device`},
		"file": {withDevice("/dev/sdb"), world.PathFile,
			mapping + `path "/dev/sdb" is not a block device`},
		"character device": {withDevice("/dev/null"), world.PathCharDevice,
			mapping + `path "/dev/null" is not a block device`},
		"upwards": {withDevice("/dev/../sdb"), world.PathBlockDevice,
			mapping + "invalid path: /dev/../sdb must not contain '..'"},
		"of another node": {elsewhere, world.PathBlockDevice,
			`MapVolume.NodeAffinity check failed for volume "pv" : no matching NodeSelectorTerms`},
		"mounted as well": {beside, world.PathBlockDevice, "Unable to attach or mount volumes: " +
			"unmounted volumes=[v], unattached volumes=[], failed to process volumes=[v]: volume v has " +
			"volumeMode Block, but is specified in volumeMounts"},
	} {
		s := &Set{}
		done := runSteps(s, c.pod, c.found)
		if got := s.Problem(); got != c.want || s.Ready(&c.pod.Spec.Spec) {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
		if len(done) > 1 {
			t.Errorf("%s: %v", name, done)
		}
	}
}

// After a failure of any step, all of them are repeated.
func TestFailedDeviceSteps(t *testing.T) {
	for call, step := range map[string]string{"StatPath": stepResolve, "BindMount": stepMap,
		"HoldDevice": stepMap, "MakeLink": stepMap} {
		pod, s := withDevice("/dev/sdb"), &Set{}
		for {
			op, _ := s.NextOperation(pod, t0)
			ev := world.Event{Time: t0, Body: &world.PathInfo{Kind: world.PathBlockDevice}}
			if world.CallName(op.Body) == call {
				ev = world.Event{Time: t0, Err: world.Errorf(world.KindInternal, call, "EIO")}
			}
			s.HandleCompletion("v", world.CallName(op.Body), ev)
			if ev.Err != nil {
				break
			}
		}
		if want := step + ` failed for volume "pv" : EIO`; s.Problem() != want {
			t.Errorf("%s: %q, want %q", call, s.Problem(), want)
		}
		op, _ := s.NextOperation(pod, t0.Add(backoffFirst))
		if op == nil || world.CallName(op.Body) != "StatPath" {
			t.Errorf("%s: then %+v", call, op)
		}
	}
}

// One that a pod alone may have is refused while it is bound for another one.
func TestDeviceOfOnePod(t *testing.T) {
	pod, s := withDevice("/dev/sdb", v1.ReadWriteOncePod), &Set{}
	s.NextOperation(pod, t0)
	s.HandleCompletion("v", "StatPath", world.Event{Time: t0,
		Body: &world.PathInfo{Kind: world.PathBlockDevice}})
	op, _ := s.NextOperation(pod, t0)
	bind := op.Body.(*world.BindMount)
	if !bind.Exclusive || bind.Among != "/plugins/blocks/pv" {
		t.Errorf("%+v is not exclusive", bind)
	}
	s.HandleCompletion("v", "BindMount", world.Event{Time: t0,
		Err: world.Errorf(world.KindRefused, "BindMount", "in use")})
	const want = `MapVolume.SetUpDevice failed for volume "pv" : ` + csi.InUseElsewhere
	if got := s.Problem(); got != want {
		t.Errorf("%q, want %q", got, want)
	}
}

// What touches the device may hang with it, and waits for no other path; the link does not.
func TestLanesOfDevices(t *testing.T) {
	pod, s := withDevice("/dev/sdb"), &Set{}
	for _, want := range []string{"/dev/sdb", "/dev/sdb", "/dev/sdb", ""} {
		op, _ := s.NextOperation(pod, t0)
		if op.HostPath != want {
			t.Errorf("%+v: the path is %q, want %q", op.Body, op.HostPath, want)
		}
		s.HandleCompletion("v", world.CallName(op.Body), world.Event{Time: t0,
			Body: &world.PathInfo{Kind: world.PathBlockDevice}})
	}
}

// A pod whose volume is not resolved yet may have a device of an earlier agent.
func TestMayHaveDevice(t *testing.T) {
	pod, s := withDevice("/dev/sdb"), &Set{}
	files := claimed(localVolume("/mnt/a"))
	driver := withDevice("/dev/sdb")
	driver.Spec.ObjectMeta = metav1.ObjectMeta{Namespace: "a"}
	drivers := &Set{Volumes: []Volume{{Name: "v", Backing: &Backing{Plugin: CSIPlugin}}}}
	switch {
	case !s.MayHaveDevice(pod.Spec, LocalPlugin):
		t.Error("not before it is resolved")
	case s.MayHaveDevice(files.Spec, LocalPlugin):
		t.Error("a pod with a file system")
	case drivers.MayHaveDevice(driver.Spec, LocalPlugin):
		t.Error("a pod with a device of a driver")
	}
	if runSteps(s, pod, world.PathBlockDevice); !s.MayHaveDevice(pod.Spec, LocalPlugin) {
		t.Error("not after it is set up")
	}
}
