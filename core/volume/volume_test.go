package volume

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"seedlet.dev/world"
)

var t0 = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

func podOf(volumes ...v1.Volume) *Pod {
	spec := &v1.Pod{}
	spec.Spec.Volumes = volumes
	return &Pod{Spec: spec, Dir: "/pods/u", MemoryBytes: 1 << 30,
		Value: func(f *v1.DownwardAPIVolumeFile) (string, error) { return f.FieldRef.FieldPath, nil }}
}

func emptyDir(medium v1.StorageMedium, limit string) v1.Volume {
	source := &v1.EmptyDirVolumeSource{Medium: medium}
	if limit != "" {
		q := resource.MustParse(limit)
		source.SizeLimit = &q
	}
	return v1.Volume{Name: "v", VolumeSource: v1.VolumeSource{EmptyDir: source}}
}

func hostPath(t v1.HostPathType) v1.Volume {
	return v1.Volume{Name: "v", VolumeSource: v1.VolumeSource{
		HostPath: &v1.HostPathVolumeSource{Path: "/data", Type: &t}}}
}

// drive answers every operation until nothing is left to do, or one has failed. What is at paths
// is always the same.
func drive(s *Set, pod *Pod, there world.PathKind) []any {
	var done []any
	for range 20 {
		ask, _ := s.Next(pod, t0)
		if ask == nil {
			return done
		}
		done = append(done, ask.Body)
		ev := world.Event{Time: t0, Body: &world.Done{}}
		if _, look := ask.Body.(*world.StatPath); look && there == "" {
			ev = world.Event{Time: t0, Err: world.Errorf(world.KindNotFound, "StatPath", "none")}
		} else if look {
			ev.Body = &world.PathInfo{Kind: there}
		}
		s.Answered(ask.Volume, world.Call(ask.Body), ev)
	}
	panic("it never ends")
}

const at = "/pods/u/volumes/kubernetes.io~empty-dir/v"

func TestSteps(t *testing.T) {
	gid := int64(7)
	shared := podOf(emptyDir("", ""))
	shared.Spec.Spec.SecurityContext = &v1.PodSecurityContext{FSGroup: &gid}
	parent := &world.MakeDir{Path: "/pods/u/volumes/kubernetes.io~empty-dir", Mode: 0o750}
	stat, look := &world.StatPath{Path: at}, &world.StatPath{Path: "/data"}
	share := &world.ShareWithGroup{Path: at, GID: 7, OnRootMismatch: true}
	dir, file := &world.MakeDir{Path: at, Mode: 0o777}, &world.MakeFile{Path: "/data", Mode: 0o644}
	tmpfs := &world.MountMemory{Path: at, BytesMax: 1 << 20, Mode: 0o777}
	made := &world.MakeDir{Path: "/data", Mode: 0o755}
	for name, c := range map[string]struct {
		pod   *Pod
		there world.PathKind
		want  []any
	}{
		"new":      {podOf(emptyDir("", "")), "", []any{stat, parent, dir}},
		"there":    {podOf(emptyDir("", "")), world.PathDirectory, []any{stat}},
		"fsGroup":  {shared, world.PathDirectory, []any{stat, share}},
		"memory":   {podOf(emptyDir("Memory", "1Mi")), "", []any{parent, tmpfs}},
		"any":      {podOf(hostPath("")), "", nil},
		"makes":    {podOf(hostPath("DirectoryOrCreate")), "", []any{look, made}},
		"has":      {podOf(hostPath("DirectoryOrCreate")), world.PathDirectory, []any{look}},
		"file":     {podOf(hostPath("FileOrCreate")), "", []any{look, file}},
		"a socket": {podOf(hostPath("Socket")), world.PathSocket, []any{look}},
	} {
		s := &Set{}
		if diff := cmp.Diff(c.want, drive(s, c.pod, c.there)); diff != "" {
			t.Errorf("%s: (-want +got)\n%s", name, diff)
		}
		if !s.Ready(&c.pod.Spec.Spec) || s.Problem() != "" {
			t.Errorf("%s: not ready: %s", name, s.Problem())
		}
	}
}

// A path of another kind is refused in the kubelet's words, and looked at again later.
func TestAHostPathOfAnotherKind(t *testing.T) {
	for _, c := range []struct {
		must  v1.HostPathType
		there world.PathKind
		want  string
	}{
		{"Directory", "", "a directory"}, {"Directory", world.PathFile, "a directory"},
		{"DirectoryOrCreate", world.PathFile, "a directory"}, {"File", "", "a file"},
		{"CharDevice", world.PathBlockDevice, "a character device"},
		{"BlockDevice", world.PathFile, "a block device"}, {"Socket", "", "a socket file"},
	} {
		s, pod := &Set{}, podOf(hostPath(c.must))
		drive(s, pod, c.there)
		want := `MountVolume.SetUp failed for volume "v" : hostPath type check failed: ` +
			"/data is not " + c.want
		if got := s.Problem(); got != want || s.Ready(&pod.Spec.Spec) {
			t.Errorf("%s: %q, want %q", c.must, got, want)
		}
		ask, wake := s.Next(pod, t0)
		if ask != nil || !wake.Equal(t0.Add(time.Second)) {
			t.Errorf("%s: tried again at %v", c.must, wake)
		}
		if ask, _ := s.Next(pod, wake); ask == nil {
			t.Errorf("%s: not looked at again", c.must)
		}
	}
}

// A refresh that fails takes nothing away (kubernetes issue 139045).
func TestAFailedRefresh(t *testing.T) {
	mode := int32(0o440)
	pod := podOf(v1.Volume{Name: "v", VolumeSource: v1.VolumeSource{
		DownwardAPI: &v1.DownwardAPIVolumeSource{DefaultMode: &mode,
			Items: []v1.DownwardAPIVolumeFile{{Path: "labels",
				FieldRef: &v1.ObjectFieldSelector{FieldPath: "metadata.labels"}}}}}})
	s := &Set{}
	want := &world.WriteDir{Path: "/pods/u/volumes/kubernetes.io~downward-api/v",
		Files: []world.DirFile{{Path: "labels", Data: []byte("metadata.labels"), Mode: 0o440}}}
	if diff := cmp.Diff(want, drive(s, pod, "")[1]); diff != "" {
		t.Error(diff)
	}
	s.Recheck()
	ask, _ := s.Next(pod, t0)
	failure := world.Errorf(world.KindInternal, "MakeDir", "EIO")
	s.Answered(ask.Volume, "MakeDir", world.Event{Time: t0, Err: failure})
	if !s.Ready(&pod.Spec.Spec) || s.Problem() != "" {
		t.Error("the volume is gone because a label could not be written")
	}
	if _, wake := s.Next(pod, t0); wake.IsZero() {
		t.Error("the label is never written")
	}
	s.Forget()
	if s.Ready(&pod.Spec.Spec) {
		t.Error("ready although nothing is known of it")
	}
}

func TestLines(t *testing.T) {
	if got := Lines(map[string]string{"b": `say "x"`, "a": "1\n2"}); got !=
		"a=\"1\\n2\"\nb=\"say \\\"x\\\"\"" {
		t.Errorf("%s", got)
	}
}

func container(limits map[v1.ResourceName]string) v1.Container {
	c := v1.Container{Resources: v1.ResourceRequirements{Limits: v1.ResourceList{},
		Requests: v1.ResourceList{}}}
	for name, text := range limits {
		c.Resources.Limits[name] = resource.MustParse(text)
		c.Resources.Requests[name] = resource.MustParse(text)
	}
	return c
}

// The size of a memory volume is the least of the machine, the pod's limit and its own.
func TestMemoryMax(t *testing.T) {
	limited := container(map[v1.ResourceName]string{"memory": "64Mi"})
	for _, c := range []struct {
		limit      string
		containers []v1.Container
		want       int64
	}{
		{"", []v1.Container{{}}, 1 << 30},
		{"2Gi", []v1.Container{{}}, 1 << 30},
		{"1Mi", []v1.Container{limited}, 1 << 20},
		{"", []v1.Container{limited, limited}, 128 << 20},
		{"", []v1.Container{limited, {}}, 1 << 30},
		{"0", []v1.Container{limited}, 64 << 20},
	} {
		pod := podOf(emptyDir("Memory", c.limit))
		pod.Spec.Spec.Containers = c.containers
		if got := memoryMax(pod.Spec.Spec.Volumes[0].EmptyDir, pod); got != c.want {
			t.Errorf("limit %q of %d containers: %d, want %d", c.limit, len(c.containers), got, c.want)
		}
	}
}

func TestPageSize(t *testing.T) {
	two := container(map[v1.ResourceName]string{"hugepages-2Mi": "4Mi"})
	both := container(map[v1.ResourceName]string{"hugepages-2Mi": "4Mi", "hugepages-1Gi": "1Gi"})
	for _, c := range []struct {
		medium v1.StorageMedium
		in     v1.Container
		want   string // empty: an error
	}{
		{"HugePages", two, "2M"}, {"HugePages-2Mi", both, "2M"}, {"HugePages-1Gi", both, "1G"},
		{"HugePages", both, ""}, {"HugePages", v1.Container{}, ""}, {"HugePages-1Gi", two, ""},
	} {
		pod := &v1.Pod{Spec: v1.PodSpec{Containers: []v1.Container{c.in}}}
		got, err := pageSize(c.medium, pod)
		if got != c.want || (err == nil) != (c.want != "") {
			t.Errorf("%s: %q, %v; want %q", c.medium, got, err, c.want)
		}
	}
}

// A disk volume with a limit is measured once a minute, and found too large only above the limit.
func TestMeasure(t *testing.T) {
	s, pod := &Set{}, podOf(emptyDir("", "1Mi"))
	if ask, wake := s.Measure(pod, t0); ask != nil || !wake.IsZero() {
		t.Fatal("measured before it is there")
	}
	drive(s, pod, "")
	for i, bytes := range []int64{1 << 20, 1<<20 + 1} {
		now := t0.Add(time.Duration(i) * measurePeriod)
		ask, _ := s.Measure(pod, now)
		if ask == nil {
			t.Fatalf("round %d: not measured", i)
		}
		s.Began(9, ask.Volume)
		if again, _ := s.Measure(pod, now); again != nil {
			t.Errorf("round %d: measured twice at a time", i)
		}
		s.MeasureAnswered(&pod.Spec.Spec, world.Event{Time: now,
			Body: &world.TreeMeasured{Bytes: bytes}})
		if _, wake := s.Measure(pod, now); !wake.Equal(now.Add(measurePeriod)) {
			t.Errorf("round %d: again at %v", i, wake)
		}
		want := []string{"", `Usage of EmptyDir volume "v" exceeds the limit "1Mi". `}[i]
		if got := s.OverMessage(&pod.Spec.Spec); got != want {
			t.Errorf("round %d: %q, want %q", i, got, want)
		}
	}
}
