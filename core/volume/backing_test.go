package volume

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"seedlet.dev/core/claim"
	"seedlet.dev/core/csi"
	"seedlet.dev/core/objectcache"
	"seedlet.dev/core/scsi"
	"seedlet.dev/world"
)

// claimed returns a pod that mounts the volume v of a claim, which is bound to a persistent volume.
func claimed(pv v1.PersistentVolumeSpec) *Pod {
	pod := newPod(v1.Volume{Name: "v", VolumeSource: v1.VolumeSource{
		PersistentVolumeClaim: &v1.PersistentVolumeClaimVolumeSource{ClaimName: "c"}}})
	pod.Spec.Namespace = "a"
	pod.DevicesDir = "/plugins/mounts"
	mode := v1.PersistentVolumeFilesystem
	pv.VolumeMode, pv.ClaimRef = &mode, &v1.ObjectReference{UID: "c-1"}
	setObjects(pod, v1.ClaimBound, pv)
	pod.Node = func() (*v1.Node, bool) {
		return &v1.Node{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"zone": "x"}}}, true
	}
	return pod
}

// setObjects sets the phase of the claim, and its persistent volume.
func setObjects(pod *Pod, phase v1.PersistentVolumeClaimPhase, pv v1.PersistentVolumeSpec) {
	pod.Objects = &objectcache.Store{Watches: map[string]*objectcache.Watch{}}
	add := func(target world.WatchTarget, name string, o world.Object) {
		pod.Objects.Watches[objectcache.Key(target)] = &objectcache.Watch{Target: target, Listed: true,
			Objects: map[string]world.Object{name: o}}
	}
	add(claim.Target(pod.Spec, &pod.Spec.Spec.Volumes[0]), "a/c", world.Object{
		Claim: &v1.PersistentVolumeClaim{
			ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: "c", UID: "c-1"},
			Spec:       v1.PersistentVolumeClaimSpec{VolumeName: "pv"},
			Status:     v1.PersistentVolumeClaimStatus{Phase: phase}}})
	add(claim.VolumeTarget("pv"), "/pv", world.Object{Volume: &v1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{Name: "pv"}, Spec: pv}})
}

func localVolume(p string) v1.PersistentVolumeSpec {
	return v1.PersistentVolumeSpec{PersistentVolumeSource: v1.PersistentVolumeSource{
		Local: &v1.LocalVolumeSource{Path: p}}}
}

func nfsVolume(options ...string) v1.PersistentVolumeSpec {
	return v1.PersistentVolumeSpec{MountOptions: options,
		PersistentVolumeSource: v1.PersistentVolumeSource{
			NFS: &v1.NFSVolumeSource{Server: "s", Path: "/e"}}}
}

func hostVolume(p string, options ...string) v1.PersistentVolumeSpec {
	return v1.PersistentVolumeSpec{MountOptions: options,
		PersistentVolumeSource: v1.PersistentVolumeSource{
			HostPath: &v1.HostPathVolumeSource{Path: p}}}
}

func withFSGroup(pod *Pod, policy v1.PodFSGroupChangePolicy) *Pod {
	gid := int64(7)
	pod.Spec.Spec.SecurityContext = &v1.PodSecurityContext{FSGroup: &gid,
		FSGroupChangePolicy: &policy}
	return pod
}

func readOnly(pod *Pod) *Pod {
	pod.Spec.Spec.Volumes[0].PersistentVolumeClaim.ReadOnly = true
	return pod
}

func TestBackedSteps(t *testing.T) {
	const dir = "/pods/u/volumes/kubernetes.io~local-volume/pv"
	stat := &world.StatPath{Path: "/mnt/a"}
	bind := &world.BindMount{Source: "/mnt/a", Path: dir}
	among := &world.BindMount{Source: "/mnt/a", Path: dir, Among: "/pods"}
	share := &world.ShareWithGroup{Path: dir, GID: 7}
	direct := newPod(v1.Volume{Name: "v", VolumeSource: v1.VolumeSource{
		NFS: &v1.NFSVolumeSource{Server: "s", Path: "/e", ReadOnly: true}}})
	unused := claimed(localVolume("/mnt/a"))
	unused.Spec.Spec.EphemeralContainers = nil
	for name, c := range map[string]struct {
		pod   *Pod
		found world.PathKind
		place Place
		want  []any
	}{
		"local directory": {claimed(localVolume("/mnt/a")), world.PathDirectory,
			Place{Path: dir, Relabel: true}, []any{stat, bind}},
		"local device": {claimed(localVolume("/mnt/a")), world.PathBlockDevice,
			Place{Path: dir, Relabel: true}, []any{stat,
				&world.MountDevice{Device: "/mnt/a", Path: "/plugins/mounts/pv", FSType: "ext4"},
				&world.BindMount{Source: "/plugins/mounts/pv", Path: dir, SourceMounted: true}}},
		"group": {withFSGroup(claimed(localVolume("/mnt/a")), v1.FSGroupChangeAlways),
			world.PathDirectory, Place{Path: dir, Relabel: true}, []any{stat, among, share}},
		"group, on root mismatch": {
			withFSGroup(claimed(localVolume("/mnt/a")), v1.FSGroupChangeOnRootMismatch),
			world.PathDirectory, Place{Path: dir, Relabel: true}, []any{stat, among,
				&world.ShareWithGroup{Path: dir, GID: 7, OnRootMismatch: true}}},
		"group, read-only": {
			readOnly(withFSGroup(claimed(localVolume("/mnt/a")), v1.FSGroupChangeAlways)),
			world.PathDirectory, Place{Path: dir, ReadOnly: true}, []any{stat,
				&world.BindMount{Source: "/mnt/a", Path: dir, Among: "/pods", ReadOnly: true}}},
		"nfs": {claimed(nfsVolume("vers=4", "hard", "vers=4")), "",
			Place{Path: "/pods/u/volumes/kubernetes.io~nfs/pv"}, []any{
				&world.MountNFS{Server: "s", Export: "/e", Path: "/pods/u/volumes/kubernetes.io~nfs/pv",
					Options: []string{"hard", "vers=4"}}}},
		"nfs without a claim": {direct, "", Place{Path: "/pods/u/volumes/kubernetes.io~nfs/v",
			ReadOnly: true}, []any{&world.MountNFS{Server: "s", Export: "/e",
			Path: "/pods/u/volumes/kubernetes.io~nfs/v", ReadOnly: true}}},
		"hostPath": {claimed(hostVolume("/data/")), "", Place{Path: "/data", OfNode: true}, nil},
		"not used": {unused, "", Place{}, nil},
	} {
		s := &Set{}
		if diff := cmp.Diff(c.want, runSteps(s, c.pod, c.found)); diff != "" {
			t.Errorf("%s: (-want +got)\n%s", name, diff)
		}
		if !s.Ready(&c.pod.Spec.Spec) || s.Problem() != "" {
			t.Errorf("%s: not ready: %s", name, s.Problem())
		}
		c.place.Name = "v"
		if strings.Contains(c.place.Path, "/pv") || c.place.Path == "/data" { // a persistent volume
			c.place.Name = "pv"
		}
		if got := s.Place(c.pod.Dir, &c.pod.Spec.Spec.Volumes[0]); got != c.place {
			t.Errorf("%s: %+v, want %+v", name, got, c.place)
		}
	}
}

// The files of a volume of a CSI driver are relabeled for SELinux if its file system has labels of
// its own, and if the pod may write.
func TestCSIVolumeIsRelabeled(t *testing.T) {
	driver := v1.PersistentVolumeSpec{PersistentVolumeSource: v1.PersistentVolumeSource{
		CSI: &v1.CSIPersistentVolumeSource{Driver: "d", VolumeHandle: "h"}}}
	for _, hasLabels := range []bool{false, true} {
		for _, isReadOnly := range []bool{false, true} {
			pod, s := claimed(driver), &Set{}
			if isReadOnly {
				readOnly(pod)
			}
			shared := Shared{}
			pod.Shared = func(csi.Use) Shared { return shared }
			runSteps(s, pod, "")
			shared = Shared{Ready: true, Relabel: hasLabels}
			runSteps(s, pod, "")
			shared = Shared{} // the volume is doubted while its containers run
			runSteps(s, pod, "")
			want := Place{Path: "/pods/u/volumes/kubernetes.io~csi/pv/mount", Name: "pv",
				ReadOnly: isReadOnly,
				Relabel:  hasLabels && !isReadOnly}
			if got := s.Place(pod.Dir, &pod.Spec.Spec.Volumes[0]); got != want {
				t.Errorf("labels %v: %+v, want %+v", hasLabels, got, want)
			}
		}
	}
}

func TestBackedProblems(t *testing.T) {
	elsewhere := localVolume("/mnt/a")
	elsewhere.NodeAffinity = &v1.VolumeNodeAffinity{Required: &v1.NodeSelector{
		NodeSelectorTerms: []v1.NodeSelectorTerm{{MatchExpressions: []v1.NodeSelectorRequirement{
			{Key: "zone", Operator: v1.NodeSelectorOpIn, Values: []string{"y"}}}}}}}
	pending := claimed(localVolume("/mnt/a"))
	setObjects(pending, v1.ClaimPending, localVolume("/mnt/a"))
	git := newPod(v1.Volume{Name: "v", VolumeSource: v1.VolumeSource{
		GitRepo: &v1.GitRepoVolumeSource{}}})
	const process = "Unable to attach or mount volumes: unmounted volumes=[v], unattached " +
		"volumes=[], failed to process volumes=[v]: "
	for name, c := range map[string]struct {
		pod   *Pod
		found world.PathKind
		want  string
	}{
		"not bound": {pending, "", process + "error processing PVC a/c: PVC is not bound"},
		"of another node": {claimed(elsewhere), world.PathDirectory,
			`MountVolume.NodeAffinity check failed for volume "pv" : no matching NodeSelectorTerms`},
		"missing": {claimed(localVolume("/mnt/a")), "", "MountVolume.NewMounter " +
			`initialization failed for volume "pv" : path "/mnt/a" does not exist`},
		"a file": {claimed(localVolume("/mnt/a")), world.PathFile, "MountVolume.NewMounter " +
			`initialization failed for volume "pv" : only directory and block device are supported`},
		"upwards": {claimed(localVolume("/mnt/../a")), world.PathDirectory,
			`MountVolume.SetUp failed for volume "pv" : invalid path: /mnt/../a must not contain '..'`},
		"hostPath upwards": {claimed(hostVolume("/mnt/../a")), world.PathDirectory, "MountVolume.SetUp " +
			"failed for volume \"pv\" : invalid HostPath `/mnt/../a`: must not contain '..'"},
		"options": {claimed(hostVolume("/mnt/a", "ro")), world.PathDirectory,
			`MountVolume.MountOptionSupport check failed for volume "pv" : mount options are not ` +
				"supported for this volume type"},
		"git": {git, "", `MountVolume.SetUp failed for volume "v" : git-repo volume plugin has been ` +
			"disabled; if necessary, it may be re-enabled by enabling the feature-gate " +
			"`GitRepoVolumeDriver`"},
		"nothing": {claimed(v1.PersistentVolumeSpec{}), "", process + "failed to get Plugin from " +
			`volumeSpec for volume "pv" err=no volume plugin matched`},
	} {
		s := &Set{}
		runSteps(s, c.pod, c.found)
		if got := s.Problem(); got != c.want || s.Ready(&c.pod.Spec.Spec) {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}

// A volume is set up as soon as its claim is bound, whatever the back-off is. What its containers
// see does not change afterwards.
func TestBackingIsKept(t *testing.T) {
	pod, s := claimed(localVolume("/mnt/a")), &Set{}
	setObjects(pod, v1.ClaimPending, localVolume("/mnt/a"))
	if done := runSteps(s, pod, world.PathDirectory); len(done) > 0 || s.Problem() == "" {
		t.Errorf("%v for a claim that is not bound, %q", done, s.Problem())
	}
	bound := claimed(localVolume("/mnt/a"))
	pod.Objects = bound.Objects
	if runSteps(s, pod, world.PathDirectory); !s.Ready(&pod.Spec.Spec) || s.Problem() != "" {
		t.Errorf("not ready after the claim is bound: %q", s.Problem())
	}
	pod.Objects = claimed(localVolume("/mnt/b")).Objects
	if op, _ := s.NextOperation(pod, t0.Add(time.Hour)); op != nil {
		t.Errorf("%v after a change", op)
	}
	s.Recheck()
	for _, body := range runSteps(s, pod, world.PathDirectory) {
		if bind, ok := body.(*world.BindMount); ok && bind.Source != "/mnt/a" {
			t.Errorf("%+v after a change", bind)
		}
	}
	if place := s.Place(pod.Dir, &pod.Spec.Spec.Volumes[0]); place.Path == "" {
		t.Error("the volume has no path any more")
	}
}

// A volume that no container used is set up when an ephemeral container does.
func TestVolumeIsUsedLater(t *testing.T) {
	pod, s := claimed(localVolume("/mnt/a")), &Set{}
	containers := pod.Spec.Spec.EphemeralContainers
	pod.Spec.Spec.EphemeralContainers = nil
	runSteps(s, pod, world.PathDirectory)
	if !s.Ready(&pod.Spec.Spec) {
		t.Error("the pod waits for a volume that no container uses")
	}
	pod.Spec.Spec.EphemeralContainers, pod.uses = containers, nil
	s.Recheck()
	if op, _ := s.NextOperation(pod, t0); op == nil || s.Ready(&pod.Spec.Spec) {
		t.Errorf("%v, ready %v", op, s.Ready(&pod.Spec.Spec))
	}
}

// The tree of a volume that another pod has as well keeps its group; one that was mounted by an
// earlier agent, which may have ended before the tree was finished, is looked at.
func TestGroupOfSharedVolume(t *testing.T) {
	for _, c := range []struct {
		mounted world.Mounted
		want    *world.ShareWithGroup
	}{
		{world.Mounted{Shared: true, GID: 9}, nil},
		{world.Mounted{Existed: true}, &world.ShareWithGroup{GID: 7, OnRootMismatch: true,
			Path: "/pods/u/volumes/kubernetes.io~local-volume/pv"}},
	} {
		pod, s := withFSGroup(claimed(localVolume("/mnt/a")), v1.FSGroupChangeAlways), &Set{}
		complete := func(body any) {
			op, _ := s.NextOperation(pod, t0)
			s.HandleCompletion("v", world.CallName(op.Body), world.Event{Time: t0, Body: body})
		}
		complete(&world.PathInfo{Kind: world.PathDirectory})
		complete(&c.mounted)
		op, _ := s.NextOperation(pod, t0)
		switch {
		case op == nil && c.want == nil && s.Ready(&pod.Spec.Spec):
		case op == nil || c.want == nil || !cmp.Equal(op.Body, any(c.want)):
			t.Errorf("%+v: %+v, want %+v", c.mounted, op, c.want)
		}
	}
}

func TestLanesOfBackedVolumes(t *testing.T) {
	for want, pv := range map[string]v1.PersistentVolumeSpec{
		"/mnt/a": localVolume("/mnt/a"), "/pods/u/volumes/kubernetes.io~nfs/pv": nfsVolume()} {
		op, _ := (&Set{}).NextOperation(claimed(pv), t0)
		if op == nil || op.HostPath != want {
			t.Errorf("%+v, want the path %s", op, want)
		}
	}
}

// A second pod does not get a volume that one pod alone may have.
func TestReadWriteOncePod(t *testing.T) {
	one := localVolume("/mnt/a")
	one.AccessModes = []v1.PersistentVolumeAccessMode{v1.ReadWriteOncePod}
	pod, s := claimed(one), &Set{}
	op, _ := s.NextOperation(pod, t0)
	s.HandleCompletion("v", "StatPath", world.Event{Time: t0,
		Body: &world.PathInfo{Kind: world.PathDirectory}})
	if op, _ = s.NextOperation(pod, t0); !op.Body.(*world.BindMount).Exclusive {
		t.Errorf("%+v is not exclusive", op.Body)
	}
	s.HandleCompletion("v", "BindMount", world.Event{Time: t0,
		Err: world.Errorf(world.KindRefused, "BindMount", "in use")})
	const want = `MountVolume.SetUp failed for volume "pv" : volume uses the ReadWriteOncePod ` +
		"access mode and is already in use by another pod"
	if got := s.Problem(); got != want {
		t.Errorf("%q, want %q", got, want)
	}
}

// A volume that names the group of its files has the processes of its pods be in it, once it is set
// up. What is no group of a process names none.
func TestGroups(t *testing.T) {
	for annotation, want := range map[string][]int64{"": nil, "1234": {1234}, "-1": nil, "x": nil,
		"4294967296": nil} {
		pod, s := claimed(localVolume("/mnt/a")), &Set{}
		for _, w := range pod.Objects.Watches {
			for _, o := range w.Objects {
				if o.Volume != nil {
					o.Volume.Annotations = map[string]string{groupAnnotation: annotation}
				}
			}
		}
		before := s.Groups()
		runSteps(s, pod, world.PathDirectory)
		if got := s.Groups(); len(before) > 0 || !slices.Equal(got, want) {
			t.Errorf("%q: %v, then %v; want %v", annotation, before, got, want)
		}
	}
}

// withOption returns a persistent volume that is mounted with an option.
func withOption(option string, source v1.PersistentVolumeSource) v1.PersistentVolumeSpec {
	mode := v1.PersistentVolumeFilesystem
	return v1.PersistentVolumeSpec{MountOptions: []string{option}, VolumeMode: &mode,
		ClaimRef: &v1.ObjectReference{UID: "c-1"}, PersistentVolumeSource: source}
}

// A pod that waits for a volume of a CSI driver asks for it with the options that the persistent
// volume has by now. Once it has the volume, it keeps asking for it as it was.
func TestOptionsOfWaitingCSIVolume(t *testing.T) {
	pv := func(option string) v1.PersistentVolumeSpec {
		return withOption(option, v1.PersistentVolumeSource{
			CSI: &v1.CSIPersistentVolumeSource{Driver: "d", VolumeHandle: "h"}})
	}
	pod, s := claimed(pv("wrong")), &Set{}
	var shared Shared
	var asked []string
	pod.Shared = func(u csi.Use) Shared {
		asked = u.MountOptions
		return shared
	}
	for _, c := range []struct {
		option string
		ready  bool
		want   string
	}{{"wrong", false, "wrong"}, {"noatime", false, "noatime"}, {"noatime", true, "noatime"},
		{"later", true, "noatime"}} {
		setObjects(pod, v1.ClaimBound, pv(c.option))
		shared.Ready = c.ready
		s.NextOperation(pod, t0)
		if len(asked) != 1 || asked[0] != c.want {
			t.Errorf("the volume has %s, ready %v: asked with %q, want %s", c.option, c.ready, asked, c.want)
		}
	}
}

// The options of a disk are those of its PersistentVolume as long as the pod waits for it.
func TestOptionsOfWaitingDisk(t *testing.T) {
	pv := func(option string) v1.PersistentVolumeSpec {
		return withOption(option, v1.PersistentVolumeSource{ISCSI: &v1.ISCSIPersistentVolumeSource{
			TargetPortal: "10.0.0.1:3260", IQN: "iqn.2026-11.test:a"}})
	}
	pod, s := claimed(pv("wrong")), &Set{}
	var asked []string
	pod.Disk = func(u scsi.Use) scsi.UseState {
		asked = u.Options
		return scsi.UseState{}
	}
	for _, option := range []string{"wrong", "noatime"} {
		setObjects(pod, v1.ClaimBound, pv(option))
		s.NextOperation(pod, t0)
		if len(asked) != 1 || asked[0] != option {
			t.Errorf("the volume has %s: asked with %q", option, asked)
		}
	}
}
