package cgroup

import (
	"reflect"
	"slices"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	kubeletconfig "k8s.io/kubelet/config/v1beta1"

	"seedlet.dev/world"
)

func TestPaths(t *testing.T) {
	l := Layout{}
	for _, test := range []struct {
		root, uid string
		class     v1.PodQOSClass
		want      string
	}{
		{"", "1-2", v1.PodQOSGuaranteed, "kubepods/pod1-2"},
		{"", "1-2", v1.PodQOSBurstable, "kubepods/burstable/pod1-2"},
		{"", "1-2", v1.PodQOSBestEffort, "kubepods/besteffort/pod1-2"},
		{"a/b", "u", v1.PodQOSBestEffort, "a/b/kubepods/besteffort/podu"},
	} {
		l.Root = test.root
		if got := l.PodPath(test.uid, test.class); got != test.want {
			t.Errorf("%v: %s", test, got)
		}
	}
	if got := strings.Join(l.PodPaths("u"), " "); got !=
		"a/b/kubepods/podu a/b/kubepods/burstable/podu a/b/kubepods/besteffort/podu" {
		t.Errorf("paths %s", got)
	}
	for _, path := range l.PodPaths("u") {
		if !l.IsPodPath(path, "u") || l.IsPodPath(path, "") || l.IsPodPath(path+"/x", "u") ||
			l.IsPodPath("x/"+path, "u") {
			t.Errorf("%s: wrong answer", path)
		}
	}
}

func TestCgroupParent(t *testing.T) {
	cgroupfs, systemd := Layout{}, Layout{Systemd: true}
	if got := cgroupfs.CgroupParent("kubepods/pod1-2"); got != "/kubepods/pod1-2" {
		t.Errorf("cgroupfs: %s", got)
	}
	want := "/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod1_2.slice"
	if got := systemd.CgroupParent("kubepods/burstable/pod1-2"); got != want {
		t.Errorf("systemd: %s, want %s", got, want)
	}
}

func TestLayoutFromConfig(t *testing.T) {
	no, limit := false, int64(7)
	l := LayoutFromConfig(&kubeletconfig.KubeletConfiguration{CgroupRoot: "/a/../b/",
		PodPidsLimit: &limit, CgroupDriver: "systemd"})
	if !reflect.DeepEqual(l, Layout{PerPod: true, Root: "b", Systemd: true, PidsMax: 7}) {
		t.Errorf("%+v", l)
	}
	limit = -1
	l = LayoutFromConfig(&kubeletconfig.KubeletConfiguration{CgroupsPerQOS: &no, PodPidsLimit: &limit})
	if !reflect.DeepEqual(l, Layout{}) {
		t.Errorf("%+v", l)
	}
}

// The driver that the runtime reports replaces the configured one, once.
func TestSetDriver(t *testing.T) {
	for _, test := range []struct {
		configured bool
		driver     string
		want       bool
	}{{true, "", true}, {true, "CGROUPFS", false}, {false, "SYSTEMD", true}, {false, "", false}} {
		l := Layout{Systemd: test.configured}
		if !l.SetDriver(test.driver) || l.Systemd != test.want || l.SetDriver("SYSTEMD") {
			t.Errorf("%+v: %+v", test, l)
		}
	}
}

func TestUIDOf(t *testing.T) {
	for name, want := range map[string]string{"podu": "u", "pod": "", "burstable": ""} {
		if uid, is := UIDOf(name); is != (want != "") || is && uid != want {
			t.Errorf("%s: %q, %v", name, uid, is)
		}
	}
	cgroupfs, systemd := Layout{}, Layout{Systemd: true}
	if cgroupfs.MayShareCgroup("a-b", "a_b") || !systemd.MayShareCgroup("a-b", "a_b") ||
		systemd.MayShareCgroup("a-b", "ab") {
		t.Error("a dash is an underscore with systemd, and only there")
	}
}

func TestSharesAndQuota(t *testing.T) {
	for milli, want := range map[int64][2]int64{
		0: {2, 0}, 1: {2, 1000}, 2: {2, 1000}, 3: {3, 1000}, 10: {10, 1000}, 11: {11, 1100},
		500: {512, 50_000}, 1000: {1024, 100_000}, 256_000: {262_144, 25_600_000},
		1_000_000: {262_144, 100_000_000},
	} {
		quota, period := (&Policy{}).Quota(milli)
		if got := [2]int64{MilliCPUToShares(milli), quota}; got != want || period != 100_000 {
			t.Errorf("%dm: shares and quota %v of %d, want %v", milli, got, period, want)
		}
	}
}

// container returns a container. The text has its CPU and memory requests and limits, in this
// order; "-" is none.
func container(text string) v1.Container {
	words := strings.Fields(text)
	return v1.Container{Resources: v1.ResourceRequirements{
		Requests: resourceList(words[0], words[1]), Limits: resourceList(words[2], words[3])}}
}

func resourceList(cpu, memory string) v1.ResourceList {
	list := v1.ResourceList{}
	if cpu != "-" {
		list[v1.ResourceCPU] = resource.MustParse(cpu)
	}
	if memory != "-" {
		list[v1.ResourceMemory] = resource.MustParse(memory)
	}
	return list
}

func TestLimits(t *testing.T) {
	sidecar := func(text string) v1.Container {
		c, always := container(text), v1.ContainerRestartPolicyAlways
		c.RestartPolicy = &always
		return c
	}
	type list = []v1.Container
	const mib = 1 << 20
	for _, test := range []struct {
		name          string
		init, app     list
		own, overhead string
		want          world.SetCgroup
	}{
		{"all limited", nil, list{container("100m 8Mi 200m 16Mi"),
			container("100m 8Mi 300m 16Mi")}, "", "",
			world.SetCgroup{CPUShares: 204, CPUQuota: 50_000, CPUPeriod: 100_000,
				MemoryBytes: 32 * mib}},
		{"one without a limit of CPUs", nil, list{container("1 - 1 1Mi"), container("1 - - 1Mi")}, "", "",
			world.SetCgroup{CPUShares: 2048, MemoryBytes: 2 * mib}},
		{"one without a limit of memory", nil, list{container("- - 1 1Mi"), container("- - 1 -")}, "", "",
			world.SetCgroup{CPUShares: 2, CPUQuota: 200_000, CPUPeriod: 100_000}},
		{"an init container that needs more", list{container("2 - 3 9Mi")},
			list{container("1 - 1 1Mi")}, "", "",
			world.SetCgroup{CPUShares: 2048, CPUQuota: 300_000, CPUPeriod: 100_000,
				MemoryBytes: 9 * mib}},
		{"an init container without a limit", list{container("1 - - -")},
			list{container("2 - 2 1Mi")}, "", "",
			world.SetCgroup{CPUShares: 2048}},
		{"a sidecar adds up", list{sidecar("1 - 1 1Mi"), container("1 - 1 1Mi")},
			list{container("1 - 1 1Mi")},
			"", "", world.SetCgroup{CPUShares: 2048, CPUQuota: 200_000, CPUPeriod: 100_000,
				MemoryBytes: 2 * mib}},
		{"overhead, also of the limits that there are", nil, list{container("1 - 1 -")}, "", "500m 1Mi",
			world.SetCgroup{CPUShares: 1536, CPUQuota: 150_000, CPUPeriod: 100_000}},
		{"the pod as a whole", nil, list{container("1 - - -"), container("- - - -")}, "2 - 3 4Mi", "",
			world.SetCgroup{CPUShares: 2048, CPUQuota: 300_000, CPUPeriod: 100_000,
				MemoryBytes: 4 * mib}},
		{"the pod as a whole, with overhead", nil, list{container("- - - -")}, "1 - 1 1Mi", "1 1Mi",
			world.SetCgroup{CPUShares: 2048, CPUQuota: 200_000, CPUPeriod: 100_000,
				MemoryBytes: 2 * mib}},
	} {
		pod := &v1.Pod{Spec: v1.PodSpec{InitContainers: test.init, Containers: test.app}}
		if test.own != "" {
			own := container(test.own).Resources
			pod.Spec.Resources = &own
		}
		if words := strings.Fields(test.overhead); len(words) == 2 {
			pod.Spec.Overhead = resourceList(words[0], words[1])
		}
		l := Layout{PidsMax: 9, Systemd: true}
		test.want.Path, test.want.PidsMax, test.want.Systemd = "p", 9, true
		if got := l.Limits(pod, v1.PodQOSBurstable, "p"); !got.Equal(&test.want) {
			t.Errorf("%s:\n got %+v\nwant %+v", test.name, got, test.want)
		}
	}
}

func TestBestEffortHasMinimumShares(t *testing.T) {
	l := Layout{PidsMax: 5}
	pod := &v1.Pod{Spec: v1.PodSpec{Containers: []v1.Container{container("- - - -")}}}
	want := world.SetCgroup{Path: "p", CPUShares: 2, PidsMax: 5}
	if got := l.Limits(pod, v1.PodQOSBestEffort, "p"); !got.Equal(&want) {
		t.Errorf("%+v", got)
	}
}

// The huge pages of every size of the machine are limited, to zero if the pod requests none.
func TestHugePageLimits(t *testing.T) {
	l := Layout{PageSizes: []int64{64 << 10, 2 << 20, 1 << 30}}
	pod := &v1.Pod{Spec: v1.PodSpec{Containers: make([]v1.Container, 2)}}
	for i := range pod.Spec.Containers {
		pod.Spec.Containers[i].Resources.Requests = v1.ResourceList{
			"hugepages-2Mi": resource.MustParse("4Mi"), "hugepages-16Mi": resource.MustParse("16Mi")}
	}
	want := []world.HugePageLimit{{SizeBytes: 64 << 10}, {SizeBytes: 2 << 20, MaxBytes: 8 << 20},
		{SizeBytes: 1 << 30}}
	for _, class := range []v1.PodQOSClass{v1.PodQOSBurstable, v1.PodQOSBestEffort} {
		if got := l.Limits(pod, class, "p").HugePages; !slices.Equal(got, want) {
			t.Errorf("%s: %v", class, got)
		}
	}
	list := v1.ResourceList{"hugepages-2Mi": resource.MustParse("-4Mi")}
	if got := l.HugePageLimits(list); got[1].MaxBytes != 0 {
		t.Errorf("less than nothing is a limit of %d", got[1].MaxBytes)
	}
}

// CPU shares stand for the request that they come from, or for a little more.
func TestSharesToMilliCPU(t *testing.T) {
	for _, milli := range []int64{2, 3, 100, 250, 999, 1000, 1500, 64000} {
		if got := SharesToMilliCPU(uint64(MilliCPUToShares(milli))); got != milli {
			t.Errorf("%d became %d", milli, got)
		}
	}
}

func TestClassOf(t *testing.T) {
	for _, root := range []string{"", "a/b"} {
		l := Layout{Root: root}
		for _, class := range []v1.PodQOSClass{v1.PodQOSGuaranteed, v1.PodQOSBurstable,
			v1.PodQOSBestEffort} {
			if got := l.ClassOf(l.PodPath("u", class)); got != class {
				t.Errorf("a %s pod's cgroup is of class %s", class, got)
			}
		}
	}
}
