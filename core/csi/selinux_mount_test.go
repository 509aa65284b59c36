package csi

import (
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"

	"seedlet.dev/core/selinux"
	"seedlet.dev/world"
)

// labeled returns the use of a volume of one pod at a time by a pod whose two containers have the
// given options; nil: none.
func labeled(uid string, options ...*v1.SELinuxOptions) Use {
	u := use(uid)
	u.AccessModes = []v1.PersistentVolumeAccessMode{v1.ReadWriteOncePod}
	spec := &v1.PodSpec{}
	for _, o := range options {
		spec.Containers = append(spec.Containers, v1.Container{
			VolumeMounts:    []v1.VolumeMount{{Name: "data"}},
			SecurityContext: &v1.SecurityContext{SELinuxOptions: o}})
	}
	u.SELinux = selinux.OptionsOf(spec, "data")
	return u
}

func level(text string) *v1.SELinuxOptions { return &v1.SELinuxOptions{Level: text} }

// newLabeling returns a node with SELinux whose driver mounts with labels.
func newLabeling(t *testing.T) *node {
	n := newReady(t)
	n.selinux = true
	n.setLabeling(true)
	return n
}

func (n *node) setLabeling(supported bool) *node {
	spec := noAttach()
	spec.SELinuxMount = &supported
	n.setDriverObject(spec)
	return n.run()
}

// flags returns the mount flags of all calls that stage or publish.
func (n *node) flags() (all []string) {
	for _, r := range n.requests {
		switch b := r.(type) {
		case *world.StageVolume:
			all = append(all, "stage "+strings.Join(b.Capability.MountFlags, " "))
		case *world.PublishVolume:
			all = append(all, "publish "+strings.Join(b.Capability.MountFlags, " "))
		}
	}
	n.requests = nil
	return all
}

const context1 = `context="system_u:object_r:container_file_t:s0:c1,c2"`

// A volume is staged and published with the label of its pod, and has it until it is unstaged: an
// agent that is started again reads it in vol_data.json. Nothing is relabeled then.
func TestVolumeIsMountedWithLabel(t *testing.T) {
	n := newLabeling(t)
	n.mounts = []world.Mount{{Path: n.node.PodsDir + "/a/volumes/kubernetes.io~csi/pv-1/mount",
		SELinuxLabels: true}}
	u := labeled("a", level("s0:c1,c2"))
	u.MountOptions = []string{"noatime"}
	if got := n.need(u); got != (UseState{Ready: true}) {
		t.Errorf("%+v", got)
	}
	want := []string{"stage noatime " + context1, "publish noatime " + context1}
	if got := n.flags(); !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	said := 0
	for file, content := range n.files {
		if strings.HasSuffix(file, "/vol_data.json") && strings.Contains(content,
			`"seLinuxMountContext":"system_u:object_r:container_file_t:s0:c1,c2"`) {
			said++
		}
	}
	if said != 2 {
		t.Errorf("%d files have the label: %v", said, n.files)
	}
	n.calls = nil
	n.restart().register()
	u.HasRun = true
	if got := n.need(u); got != (UseState{Ready: true}) {
		t.Errorf("after a restart: %+v", got)
	}
	n.expect("info")
	v := n.node.Volumes[UniqueName(driverName, "h1")]
	if v.Staging.Label == "" || !v.Staging.DataWritten {
		t.Errorf("after a restart: %+v", v)
	}
}

// What is published keeps its label when its driver does not support labels any more, and is
// published again with it. What may be published for a pod that has no containers yet is undone.
func TestLabelStaysWhilePublished(t *testing.T) {
	n := newLabeling(t)
	u := labeled("a", level("s0:c1,c2"))
	n.need(u)
	n.flags()
	unsupported, again := false, true
	spec := noAttach()
	spec.SELinuxMount, spec.RequiresRepublish = &unsupported, &again
	n.setDriverObject(spec)
	n.run().wait(2 * republishPeriod)
	if got := n.flags(); len(got) == 0 || slices.Contains(got, "publish ") {
		t.Errorf("got %q", got)
	}
	n.restart().register()
	n.calls = nil
	n.need(u)
	n.expect("unpublish pv-1", "unstage "+n.sha(), "stage "+n.sha(), "publish pv-1")
	if got := n.flags(); !slices.Equal(got, []string{"stage ", "publish "}) {
		t.Errorf("after a restart: %q", got)
	}
}

// A volume is mounted without a label if its driver, its access mode or its pod do not want that.
func TestVolumeIsMountedWithoutLabel(t *testing.T) {
	recursive := v1.SELinuxChangePolicyRecursive
	for name, change := range map[string]func(n *node, u *Use){
		"no level": func(_ *node, u *Use) { u.SELinux = []v1.SELinuxOptions{{User: "u"}} },
		"relabeled one by one": func(_ *node, u *Use) {
			u.SELinux = selinux.OptionsOf(&v1.PodSpec{
				SecurityContext: &v1.PodSecurityContext{SELinuxChangePolicy: &recursive},
				Containers: []v1.Container{{VolumeMounts: []v1.VolumeMount{{Name: "data"}},
					SecurityContext: &v1.SecurityContext{SELinuxOptions: level("s0:c1,c2")}}}}, "data")
		},
		"not mounted": func(_ *node, u *Use) {
			u.SELinux = selinux.OptionsOf(&v1.PodSpec{}, "data")
		},
		"unsupported":    func(n *node, _ *Use) { n.setLabeling(false) },
		"unsaid":         func(n *node, _ *Use) { n.setDriverObject(noAttach()) },
		"no CSIDriver":   func(n *node, _ *Use) { n.setDriverObject(nil); n.attach() },
		"SELinux is off": func(n *node, _ *Use) { n.selinux = false },
		"several may use it": func(_ *node, u *Use) {
			u.AccessModes = append(u.AccessModes, v1.ReadOnlyMany)
		},
		"another mode": func(_ *node, u *Use) {
			u.AccessModes = []v1.PersistentVolumeAccessMode{v1.ReadWriteOnce}
		},
	} {
		n, u := newLabeling(t), labeled("a", level("s0:c1,c2"))
		change(n, &u)
		n.need(u)
		n.attach()
		n.run()
		if got := n.flags(); !slices.Equal(got, []string{"stage ", "publish "}) {
			t.Errorf("%s: %q", name, got)
		}
	}
}

// With the feature gate SELinuxMount volumes of all access modes have labels. An unknown driver is
// awaited.
func TestAllModesHaveLabels(t *testing.T) {
	n := newLabeling(t)
	n.allModes = true
	w := n.objects.Watch(AllDrivers)
	w.Listed = false
	u := labeled("a", level("s0:c1,c2"))
	u.AccessModes = []v1.PersistentVolumeAccessMode{v1.ReadWriteMany}
	n.need(u)
	if got := n.flags(); len(got) > 0 {
		t.Errorf("the driver is not known, and got %q", got)
	}
	n.setLabeling(true)
	if got := n.flags(); !slices.Equal(got, []string{"stage " + context1, "publish " + context1}) {
		t.Errorf("got %q", got)
	}
}

// Labels that cannot be, and several of one pod, keep the pod waiting, and say why.
func TestImpossibleLabels(t *testing.T) {
	const failed = `MountVolume.SetUp failed for volume "pv-1" : `
	for _, c := range []struct {
		options []*v1.SELinuxOptions
		want    string
	}{
		{[]*v1.SELinuxOptions{level("s0:c3"), level("s0:c1,c2"), nil, level("s0:c3")},
			"multiple SELinux labels found: system_u:object_r:container_file_t:s0:c1,c2," +
				"system_u:object_r:container_file_t:s0:c3"},
		{[]*v1.SELinuxOptions{level(`s0",suid,x="`)}, `failed to construct SELinux label from user "" ` +
			`and level "s0\",suid,x=\"": a label has letters, digits and the characters _ - . , : only`},
		{[]*v1.SELinuxOptions{{User: "a:b", Level: "s0"}}, `failed to construct SELinux label from ` +
			`user "a:b" and level "s0": a label has letters, digits and the characters _ - . , : only`},
	} {
		n := newLabeling(t)
		if got := n.need(labeled("a", c.options...)); got.Ready || got.Problem != failed+c.want {
			t.Errorf("got %+v, want %q", got, c.want)
		}
		n.end("a")
		n.expect()
	}
}

// What happens to the labels of volumes is counted once for each pod, whatever is tried again.
func TestEventsOfLabelsAreCounted(t *testing.T) {
	n := newLabeling(t)
	n.allModes = true
	a, b := labeled("a", level("s0:c1,c2")), labeled("b", level("s0:c3"))
	a.AccessModes = []v1.PersistentVolumeAccessMode{v1.ReadWriteOnce, v1.ReadWriteMany}
	b.AccessModes = a.AccessModes
	n.need(a)
	n.need(b)
	n.need(labeled("c", level("s0:c1"), level("s0:c2")))
	d := labeled("d", level(`s0"`))
	d.AccessModes = nil
	n.need(d)
	n.wait(time.Hour)
	if want := []string{"volumes_admitted_total d.example RWX",
		"volume_context_mismatch_errors_total d.example RWX",
		"pod_context_mismatch_errors_total d.example RWOP",
		"container_errors_total d.example inline"}; !slices.Equal(n.labels, want) {
		t.Errorf("counted %q, want %q", n.labels, want)
	}
}

// Options that differ in their role and type only have one label: those of files are not theirs.
func TestLabelHasTypeOfFiles(t *testing.T) {
	n := newLabeling(t)
	n.need(labeled("a", &v1.SELinuxOptions{User: "u", Role: "r", Type: "t", Level: "s0:c1"},
		&v1.SELinuxOptions{User: "u", Type: "spc_t", Level: "s0:c1"}))
	want := `context="u:object_r:container_file_t:s0:c1"`
	if got := n.flags(); !slices.Equal(got, []string{"stage " + want, "publish " + want}) {
		t.Errorf("got %q", got)
	}
}

// A pod with another label waits until the volume was unstaged, also if an earlier agent had staged
// it. Then the volume is staged with its label.
func TestLabelsOfPodsDiffer(t *testing.T) {
	const context3 = `context="system_u:object_r:container_file_t:s0:c3"`
	for name, restarts := range map[string]bool{"in one life": false, "after a restart": true} {
		n := newLabeling(t)
		n.allModes = true
		a, b := labeled("a", level("s0:c1,c2")), labeled("b", level("s0:c3"))
		a.AccessModes, b.AccessModes = nil, nil
		n.need(a)
		n.flags()
		got := n.need(b)
		if want := `MountVolume.SetUp failed for volume "pv-1" : conflicting SELinux labels of volume ` +
			`pv-1: "system_u:object_r:container_file_t:s0:c1,c2" and ` +
			`"system_u:object_r:container_file_t:s0:c3"`; got.Problem != want || got.Failures == 0 {
			t.Errorf("%s: got %+v, want %q", name, got, want)
		}
		n.calls = nil
		if restarts {
			n.restart().register()
			delete(n.pods, "a")
			n.need(b)
			n.wait(time.Minute)
			n.calls = slices.DeleteFunc(n.calls, func(c string) bool { return c == "info" })
		} else {
			n.end("a")
		}
		n.expect("unpublish pv-1", "unstage "+n.sha(), "stage "+n.sha(), "publish pv-1")
		if got := n.flags(); !slices.Equal(got, []string{"stage " + context3, "publish " + context3}) {
			t.Errorf("%s: %q", name, got)
		}
		if !n.isReady(b) {
			t.Errorf("%s: %+v", name, n.need(b))
		}
		n.end("b")
		n.expect("unpublish pv-1", "unstage "+n.sha())
	}
}

// While it is undone for a pod that has gone, a volume with another label is not staged again.
func TestLabelWaitsForUnpublishing(t *testing.T) {
	n := newLabeling(t)
	a, b := labeled("a", level("s0:c1,c2")), labeled("b", level("s0:c3"))
	n.need(a)
	n.fail["UnpublishVolume"] = &failure{world.Errorf(world.KindTimeout, "UnpublishVolume", "late"), 1,
		false}
	n.end("a")
	if want, got := `MountVolume.SetUp failed for volume "pv-1" : waiting for unmount of volume `+
		`"kubernetes.io/csi/d.example^h1", because it is already mounted to a different pod with a `+
		`different SELinux label`, n.need(b).Problem; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	n.calls = nil
	n.wait(time.Second)
	n.expect("unpublish pv-1", "unstage "+n.sha(), "stage "+n.sha(), "publish pv-1")
	if !n.isReady(b) {
		t.Errorf("got %+v", n.need(b))
	}
}

// A label with which nothing could be mounted gives way to that of another pod.
func TestLabelOfFailedPodGivesWay(t *testing.T) {
	n := newLabeling(t)
	n.fail["StageVolume"] = &failure{world.Errorf(world.KindInvalid, "StageVolume", "no"), 1, false}
	n.need(labeled("b", level("s0:c1,c2")))
	n.flags()
	n.wait(time.Millisecond)
	n.need(labeled("a", level("s0:c3")))
	n.wait(time.Second)
	if !n.isReady(labeled("a")) {
		t.Errorf("%+v", n.need(labeled("a")))
	}
	if v := n.node.Volumes[UniqueName(driverName, "h1")]; !strings.HasSuffix(v.Staging.Label, ":c3") ||
		!strings.Contains(n.files[n.node.dataPath(v)], ":s0:c3") {
		t.Errorf("%+v, %s", v, n.files[n.node.dataPath(v)])
	}
}

// A volume that an earlier agent has staged with another label is unstaged once all pods are known.
func TestStagedLabelOfEarlierAgent(t *testing.T) {
	n := newLabeling(t)
	n.hold["PublishVolume"] = true
	n.need(labeled("a", level("s0:c1,c2")))
	n.files = maps.Clone(n.files)
	for file := range n.files {
		if strings.Contains(file, "/pods/") {
			delete(n.files, file)
		}
	}
	n.cleansUp = false
	n.restart().register()
	n.hold["PublishVolume"], n.calls = false, nil
	b := labeled("b", level("s0:c3"))
	if got := n.need(b); got.Ready || !strings.Contains(got.Problem, "waiting for unmount of volume") {
		t.Errorf("%+v", got)
	}
	n.expect()
	n.cleansUp = true
	n.wait(2 * listedPeriod)
	n.expect("unstage "+n.sha(), "stage "+n.sha(), "publish pv-1")
}

// What an earlier agent had prepared for a pod with another label, and not published, is undone
// before that pod has its turn, whichever is found first.
func TestFoundLabelsDiffer(t *testing.T) {
	const context3 = `context="system_u:object_r:container_file_t:s0:c3"`
	for _, failed := range []string{"a", "c"} {
		n := newLabeling(t)
		n.noStage, n.allModes = true, true
		n.restart().register()
		a, b := labeled(failed, level("s0:c1,c2")), labeled("b", level("s0:c3"))
		a.AccessModes, b.AccessModes = nil, nil
		n.fail["PublishVolume"] = &failure{world.Errorf(world.KindInvalid, "PublishVolume", "no"), 1,
			false}
		n.need(a)
		if got := n.need(b); !got.Ready {
			t.Fatalf("%+v", got)
		}
		n.restart().register()
		n.flags()
		n.need(a)
		n.need(b)
		n.wait(time.Minute)
		if got := n.flags(); slices.Contains(got, "publish "+context1) || n.isReady(a) || !n.isReady(b) {
			t.Errorf("%s: %q, %+v", failed, got, n.need(b))
		}
		n.end("b")
		n.wait(time.Minute)
		if got := n.flags(); !n.isReady(a) || !slices.Equal(got, []string{"publish " + context1}) {
			t.Errorf("%s: %q, %+v", failed, got, n.need(a))
		}
		if slices.Contains(n.flags(), "publish "+context3) {
			t.Error("published again with the label of the other pod")
		}
	}
}

// A pod whose secret is still being read keeps its turn: two labels do not take turns without end.
func TestLabelWaitsForSecret(t *testing.T) {
	n := newLabeling(t)
	a, b := labeled("b", level("s0:c1,c2")), labeled("a", level("s0:c3"))
	a.StageSecret = &v1.SecretReference{Namespace: "ns", Name: "s"}
	b.StageSecret = a.StageSecret
	n.need(a)
	n.wait(time.Millisecond)
	if got := n.need(b); !strings.Contains(got.Problem, "conflicting SELinux labels") {
		t.Errorf("%+v", got)
	}
	n.expect()
}

// A pod that needs another label after its publication has failed has the volume staged again.
func TestLabelChangesBeforePublication(t *testing.T) {
	n := newLabeling(t)
	n.fail["PublishVolume"] = &failure{world.Errorf(world.KindInvalid, "PublishVolume", "no"), 1,
		false}
	n.need(labeled("a", level("s0:c1,c2")))
	n.calls = nil
	n.setLabeling(false).wait(time.Second)
	n.expect("unstage "+n.sha(), "stage "+n.sha(), "publish pv-1")
	if !n.isReady(labeled("a")) {
		t.Errorf("%+v", n.need(labeled("a")))
	}
}

// A driver that says to have unstaged a volume, and has not, is asked again before it is staged
// with another label.
func TestVolumeIsUnstagedBeforeRelabeling(t *testing.T) {
	n := newLabeling(t)
	n.allModes = true
	a, b := labeled("a", level("s0:c1,c2")), labeled("b", level("s0:c3"))
	n.need(a)
	n.need(b)
	n.leaves, n.calls = 1, nil
	n.end("a")
	n.wait(time.Second)
	n.expect("unpublish pv-1", "unstage nothing", "unstage "+n.sha(), "stage "+n.sha(), "publish pv-1")
}

// A volume is not mounted with a label before it is known with which one it is staged.
func TestLabelWaitsForSearch(t *testing.T) {
	n := newLabeling(t)
	n.need(labeled("a", level("s0:c1,c2")))
	file := n.node.dataPath(n.node.Volumes[UniqueName(driverName, "h1")])
	n.unreadable = map[string]bool{file: true}
	delete(n.pods, "a")
	n.cleansUp = false
	n.restart().register()
	n.calls = nil
	n.need(labeled("b", level("s0:c3")))
	n.expect()
	n.unreadable, n.cleansUp = nil, true
	n.wait(time.Minute)
	n.expect("unpublish pv-1", "unstage "+n.sha(), "stage "+n.sha(), "publish pv-1")
}

// Pods that wait for a label have it once all pods are known, also if there are more of them than
// publications.
func TestSeveralPodsWaitForLabel(t *testing.T) {
	n := newLabeling(t)
	n.allModes = true
	n.need(labeled("a", level("s0:c1,c2")))
	delete(n.pods, "a")
	n.cleansUp = false
	n.restart().register()
	b, c := labeled("b", level("s0:c3")), labeled("c", level("s0:c3"))
	b.AccessModes, c.AccessModes = nil, nil
	n.need(b)
	n.need(c)
	n.cleansUp = true
	n.wait(time.Minute)
	if !n.isReady(b) || !n.isReady(c) {
		t.Errorf("%+v", n.need(labeled("b")))
	}
}

// Options without a level count for nothing, and a label in vol_data.json that would end the option
// of a mount is not sent.
func TestLabelsThatCountForNothing(t *testing.T) {
	n := newLabeling(t)
	n.need(labeled("a", &v1.SELinuxOptions{Type: "spc_t"}, level("s0:c1,c2")))
	if got := n.flags(); !slices.Equal(got, []string{"stage " + context1, "publish " + context1}) {
		t.Errorf("got %q", got)
	}
	for file, text := range n.files {
		n.files[file] = strings.ReplaceAll(text, "s0:c1,c2", `s0\",suid,x=\"`)
	}
	spec := noAttach()
	spec.RequiresRepublish = new(bool)
	*spec.RequiresRepublish = true
	n.restart().register()
	n.setDriverObject(spec)
	u := labeled("a", level("s0:c1,c2"))
	u.HasRun = true
	n.need(u)
	n.wait(2 * republishPeriod)
	if got := n.flags(); len(got) == 0 || slices.ContainsFunc(got, func(flag string) bool {
		return strings.Contains(flag, "suid")
	}) {
		t.Errorf("got %q", got)
	}
}

// A pod whose author has written a volume that another one has by a claim does not decide about its
// label.
func TestInlineVolumeKeepsNoLabel(t *testing.T) {
	n := newLabeling(t)
	n.allModes = true
	n.hold["StageVolume"] = true
	inline := labeled("a", level("s0:c1,c2"))
	inline.Inline = true
	n.need(inline)
	n.wait(time.Millisecond)
	n.need(labeled("b", level("s0:c3")))
	n.fail["StageVolume"] = &failure{world.Errorf(world.KindInvalid, "StageVolume", "no"), 1, false}
	n.release("StageVolume")
	n.fail["PublishVolume"] = &failure{world.Errorf(world.KindInvalid, "PublishVolume", "no"), 1,
		false}
	n.wait(5 * time.Second)
	if !n.isReady(labeled("b", level("s0:c3"))) {
		t.Errorf("%+v", n.need(labeled("b")))
	}
}
