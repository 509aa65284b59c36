package volume

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"seedlet.dev/world"
)

var t0 = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

func newPod(volumes ...v1.Volume) *Pod {
	spec := &v1.Pod{}
	spec.Spec.Volumes = volumes
	var user v1.EphemeralContainer // of all volumes: others are not set up
	for i := range volumes {
		user.VolumeMounts = append(user.VolumeMounts, v1.VolumeMount{Name: volumes[i].Name})
	}
	spec.Spec.EphemeralContainers = []v1.EphemeralContainer{user}
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

// runSteps completes every operation until none is left or one has failed. A StatPath always finds
// the same kind.
func runSteps(s *Set, pod *Pod, found world.PathKind) []any {
	var done []any
	for range 20 {
		operation, _ := s.NextOperation(pod, t0)
		if operation == nil {
			return done
		}
		done = append(done, operation.Body)
		ev := world.Event{Time: t0, Body: &world.Done{}}
		if _, isStat := operation.Body.(*world.StatPath); isStat && found == "" {
			ev = world.Event{Time: t0, Err: world.Errorf(world.KindNotFound, "StatPath", "none")}
		} else if isStat {
			ev.Body = &world.PathInfo{Kind: found}
		}
		s.HandleCompletion(operation.Volume, world.CallName(operation.Body), ev)
	}
	panic("the volumes need more than 20 operations")
}

const emptyDirPath = "/pods/u/volumes/kubernetes.io~empty-dir/v"

func TestSteps(t *testing.T) {
	gid := int64(7)
	shared := newPod(emptyDir("", ""))
	shared.Spec.Spec.SecurityContext = &v1.PodSecurityContext{FSGroup: &gid}
	parent := &world.MakeDir{Path: "/pods/u/volumes/kubernetes.io~empty-dir", Mode: 0o750}
	stat, statHost := &world.StatPath{Path: emptyDirPath}, &world.StatPath{Path: "/data"}
	share := &world.ShareWithGroup{Path: emptyDirPath, GID: 7, OnRootMismatch: true}
	dir := &world.MakeDir{Path: emptyDirPath, Mode: 0o777}
	file := &world.MakeFile{Path: "/data", Mode: 0o644}
	tmpfs := &world.MountMemory{Path: emptyDirPath, BytesMax: 1 << 20, Mode: 0o1777}
	made := &world.MakeDir{Path: "/data", Mode: 0o755}
	for name, c := range map[string]struct {
		pod   *Pod
		there world.PathKind
		want  []any
	}{
		"new":      {newPod(emptyDir("", "")), "", []any{stat, parent, dir}},
		"there":    {newPod(emptyDir("", "")), world.PathDirectory, []any{stat}},
		"fsGroup":  {shared, world.PathDirectory, []any{stat, share}},
		"memory":   {newPod(emptyDir("Memory", "1Mi")), "", []any{parent, tmpfs}},
		"any":      {newPod(hostPath("")), "", nil},
		"makes":    {newPod(hostPath("DirectoryOrCreate")), "", []any{statHost, made}},
		"has":      {newPod(hostPath("DirectoryOrCreate")), world.PathDirectory, []any{statHost}},
		"file":     {newPod(hostPath("FileOrCreate")), "", []any{statHost, file}},
		"a socket": {newPod(hostPath("Socket")), world.PathSocket, []any{statHost}},
	} {
		s := &Set{}
		if diff := cmp.Diff(c.want, runSteps(s, c.pod, c.there)); diff != "" {
			t.Errorf("%s: (-want +got)\n%s", name, diff)
		}
		if !s.Ready(&c.pod.Spec.Spec) || s.Problem() != "" {
			t.Errorf("%s: not ready: %s", name, s.Problem())
		}
	}
}

// A path of another kind is an error in the kubelet's words, and is checked again after a back-off.
func TestHostPathOfAnotherKind(t *testing.T) {
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
		s, pod := &Set{}, newPod(hostPath(c.must))
		runSteps(s, pod, c.there)
		want := `MountVolume.SetUp failed for volume "v" : hostPath type check failed: ` +
			"/data is not " + c.want
		if got := s.Problem(); got != want || s.Ready(&pod.Spec.Spec) {
			t.Errorf("%s: %q, want %q", c.must, got, want)
		}
		ask, wake := s.NextOperation(pod, t0)
		if ask != nil || !wake.Equal(t0.Add(time.Second)) {
			t.Errorf("%s: planned again at %v", c.must, wake)
		}
		if ask, _ := s.NextOperation(pod, wake); ask == nil {
			t.Errorf("%s: not checked again", c.must)
		}
	}
}

// A failed update removes nothing (kubernetes issue 139045).
func TestFailedUpdate(t *testing.T) {
	mode := int32(0o440)
	pod := newPod(v1.Volume{Name: "v", VolumeSource: v1.VolumeSource{
		DownwardAPI: &v1.DownwardAPIVolumeSource{DefaultMode: &mode,
			Items: []v1.DownwardAPIVolumeFile{{Path: "labels",
				FieldRef: &v1.ObjectFieldSelector{FieldPath: "metadata.labels"}}}}}})
	s := &Set{}
	want := &world.WriteDir{Path: "/pods/u/volumes/kubernetes.io~downward-api/v",
		Files: []world.DirFile{{Path: "labels", Text: "metadata.labels", Mode: 0o440}}}
	done := runSteps(s, pod, "")
	if diff := cmp.Diff(want, done[2]); diff != "" {
		t.Error(diff)
	}
	if memory, ok := done[1].(*world.MountMemory); !ok || memory.Path != want.Path {
		t.Errorf("the labels are not in memory, but %+v", done[1])
	}
	s.Recheck()
	ask, _ := s.NextOperation(pod, t0)
	failure := world.Errorf(world.KindInternal, "MakeDir", "EIO")
	s.HandleCompletion(ask.Volume, "MakeDir", world.Event{Time: t0, Err: failure})
	if !s.Ready(&pod.Spec.Spec) || s.Problem() != "" {
		t.Error("the volume is not ready because a label could not be written")
	}
	if _, wake := s.NextOperation(pod, t0); wake.IsZero() {
		t.Error("the label is never written")
	}
	s.Reset()
	if s.Ready(&pod.Spec.Spec) {
		t.Error("ready after a reset")
	}
}

func TestFormatMap(t *testing.T) {
	if got := FormatMap(map[string]string{"b": `say "x"`, "a": "1\n2"}); got !=
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

// The size of a memory volume is the least of the memory that pods can have, the pod's limit and
// its own limit.
func TestMemoryMax(t *testing.T) {
	limited := container(map[v1.ResourceName]string{"memory": "64Mi"})
	for _, c := range []struct {
		limit      string
		containers []v1.Container
		ofPod      *v1.ResourceRequirements
		want       int64
	}{
		{"", []v1.Container{{}}, nil, 1 << 30},
		{"2Gi", []v1.Container{{}}, nil, 1 << 30},
		{"1Mi", []v1.Container{limited}, nil, 1 << 20},
		{"", []v1.Container{limited, limited}, nil, 128 << 20},
		{"", []v1.Container{limited, {}}, nil, 1 << 30},
		{"0", []v1.Container{limited}, nil, 64 << 20},
		{"", []v1.Container{limited, {}}, &limited.Resources, 64 << 20},
	} {
		pod := newPod(emptyDir("Memory", c.limit))
		pod.Spec.Spec.Containers, pod.Spec.Spec.Resources = c.containers, c.ofPod
		if got := memoryMax(pod.Spec.Spec.Volumes[0].EmptyDir, pod); got != c.want {
			t.Errorf("limit %q of %d containers: %d, want %d", c.limit, len(c.containers), got, c.want)
		}
	}
}

func TestHugePageSize(t *testing.T) {
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
		got, err := hugePageSize(c.medium, pod)
		if got != c.want || (err == nil) != (c.want != "") {
			t.Errorf("%s: %q, %v; want %q", c.medium, got, err, c.want)
		}
	}
}

// A volume of a kind that is not supported fails, and the other volumes are set up.
func TestUnknownKindFails(t *testing.T) {
	unknown := v1.Volume{Name: "x", VolumeSource: v1.VolumeSource{RBD: &v1.RBDVolumeSource{}}}
	s, pod := &Set{}, newPod(unknown, emptyDir("", ""))
	if done := runSteps(s, pod, world.PathDirectory); len(done) != 1 || s.Ready(&pod.Spec.Spec) ||
		!strings.Contains(s.Problem(), `volume "x" err=no volume plugin matched`) {
		t.Errorf("%v, %q", done, s.Problem())
	}
}
