package localstorage

import (
	"slices"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"seedlet.dev/world"
)

var t0 = time.Unix(1000, 0)

// newPod returns a pod whose containers all run; with volumes, which all are ready.
func newPod(containers []v1.Container, volumes ...v1.Volume) *Pod {
	return &Pod{Spec: &v1.Pod{Spec: v1.PodSpec{Containers: containers, Volumes: volumes}},
		Dir: "/pods/u1", LogDir: "/logs/u1",
		IsReady:   func(int, string) bool { return true },
		RunningID: func(container string) string { return container + "-id" }}
}

func container(name, limit string) v1.Container {
	c := v1.Container{Name: name}
	if limit != "" {
		c.Resources.Limits = v1.ResourceList{v1.ResourceEphemeralStorage: resource.MustParse(limit)}
	}
	return c
}

func emptyDir(name, limit string) v1.Volume {
	source := &v1.EmptyDirVolumeSource{}
	if limit != "" {
		q := resource.MustParse(limit)
		source.SizeLimit = &q
	}
	return v1.Volume{Name: name, VolumeSource: v1.VolumeSource{EmptyDir: source}}
}

// pass makes a whole pass, in which the trees have the given bytes by path and the writable layers
// by container, and returns what was measured and when the next pass starts.
func pass(t *testing.T, u *Usage, pod *Pod, now time.Time,
	answers map[string]world.Event) ([]string, time.Time) {
	t.Helper()
	var asked []string
	for {
		step, wake := u.NextMeasurement(pod, now)
		if step == nil {
			return asked, wake
		}
		key := step.String()
		switch body := step.Body.(type) {
		case *world.MeasureTree:
			key = body.Path
		case *runtimeapi.ContainerStatsRequest:
			key = body.ContainerId
		}
		asked = append(asked, key)
		u.MeasurementIssued(9, step.Item)
		if again, _ := u.NextMeasurement(pod, now); again != nil {
			t.Errorf("%s is measured while %s is", again, key)
		}
		u.HandleCompletion(pod, answers[key])
	}
}

func tree(bytes int64) world.Event { return world.Event{Body: &world.TreeMeasured{Bytes: bytes}} }

func layer(bytes uint64) world.Event {
	return world.Event{Body: &runtimeapi.ContainerStatsResponse{Stats: &runtimeapi.ContainerStats{
		WritableLayer: &runtimeapi.FilesystemUsage{
			UsedBytes: &runtimeapi.UInt64Value{Value: bytes}}}}}
}

const (
	dataPath         = "/pods/u1/volumes/kubernetes.io~empty-dir/data"
	emptyDirMessage  = `Usage of EmptyDir volume "data" exceeds the limit "1Ki". `
	podMessage       = "Pod ephemeral local storage usage exceeds the total limit of containers 1Ki. "
	containerMessage = `Container app exceeded its local ephemeral storage limit "1Ki". `
)

func TestLimits(t *testing.T) {
	limited := []v1.Container{container("app", "1Ki")}
	half := tree(512)
	for name, c := range map[string]struct { //ordered: the cases are independent
		pod     *Pod
		answers map[string]world.Event
		want    string
	}{
		"a volume at its limit": {newPod([]v1.Container{container("app", "")}, emptyDir("data", "1Ki")),
			map[string]world.Event{dataPath: tree(1024)}, ""},
		"a volume above its limit": {newPod([]v1.Container{container("app", "")},
			emptyDir("data", "1Ki")), map[string]world.Event{dataPath: tree(1025)}, emptyDirMessage},
		"logs and a layer at the limit": {newPod(limited),
			map[string]world.Event{"/logs/u1/app": half, "app-id": layer(512)}, ""},
		"a single container": {newPod(limited),
			map[string]world.Event{"/logs/u1/app": half, "app-id": layer(513)}, podMessage},
		"another container has no limit": {newPod(append(limited, container("other", ""))),
			map[string]world.Event{"app-id": layer(512), "other-id": layer(513)}, podMessage},
		"a container above its own limit": {newPod(append(limited, container("other", "1Ki"))),
			map[string]world.Event{"/logs/u1/app": half, "app-id": layer(513)}, containerMessage},
		"volumes count for the pod": {newPod(limited, emptyDir("data", "")),
			map[string]world.Event{dataPath: half, "app-id": layer(513)}, podMessage},
		"a volume in memory does not count": {newPod(limited, v1.Volume{Name: "data",
			VolumeSource: v1.VolumeSource{EmptyDir: &v1.EmptyDirVolumeSource{
				Medium: v1.StorageMediumMemory}}}), map[string]world.Event{dataPath: tree(1 << 30)}, ""},
		"/etc/hosts counts for the pod": {newPod(limited), map[string]world.Event{
			"/pods/u1/etc-hosts": tree(600), "app-id": layer(425)}, podMessage},
		"termination messages count for the pod": {newPod(limited), map[string]world.Event{
			"/pods/u1/containers": tree(1025)}, podMessage},
		"a failure counts nothing, the rest counts": {newPod(limited, emptyDir("data", "")),
			map[string]world.Event{dataPath: {Err: world.Errorf(world.KindInternal, "x", "y")},
				"app-id": layer(1025)}, podMessage},
		"more than can be added": {newPod(append(limited, container("other", "7Ei"))),
			map[string]world.Event{"app-id": layer(1 << 63), "other-id": layer(1 << 63)}, containerMessage},
	} {
		u := &Usage{}
		answers := map[string]world.Event{dataPath: tree(0), "/logs/u1/app": tree(0),
			"/logs/u1/other": tree(0), "app-id": layer(0), "other-id": layer(0),
			"/pods/u1/etc-hosts": tree(0), "/pods/u1/containers": tree(0)}
		for key, ev := range c.answers { //ordered: a map is filled
			answers[key] = ev
		}
		pass(t, u, c.pod, t0, answers)
		if got := u.Message(c.pod.Spec); got != c.want {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}

// What was in a layer and is in a log now counts once.
func TestWhatMovesCountsOnce(t *testing.T) {
	pod, u := newPod([]v1.Container{container("app", "1Ki")}), &Usage{}
	pass(t, u, pod, t0, map[string]world.Event{"/logs/u1/app": tree(0), "app-id": layer(600)})
	pass(t, u, pod, t0.Add(containersPeriod), map[string]world.Event{"/logs/u1/app": tree(600),
		"app-id": layer(0)})
	if got := u.Message(pod.Spec); got != "" {
		t.Errorf("%q", got)
	}
}

// Writable layers that are in the file system of the images count for the pod, not for a container.
func TestLayersApart(t *testing.T) {
	pod := newPod([]v1.Container{container("app", "1Ki"), container("other", "1Ki")})
	pod.LayersApart = true
	u := &Usage{}
	pass(t, u, pod, t0, map[string]world.Event{"app-id": layer(2000)})
	if got := u.Message(pod.Spec); got != "" {
		t.Errorf("%q for a layer", got)
	}
	pass(t, u, pod, u.Containers.At, map[string]world.Event{"app-id": layer(2049)})
	if u.Exceeded.Kind != PodLimit {
		t.Errorf("%v, want that of the pod", u.Exceeded)
	}
}

// Volumes and other files of the pod are measured once a minute, logs and layers every ten seconds,
// what has no limit never.
func TestPeriods(t *testing.T) {
	u := &Usage{}
	if asked, wake := pass(t, u, newPod([]v1.Container{container("app", "")},
		emptyDir("data", "")), t0, nil); asked != nil || !wake.IsZero() {
		t.Errorf("without limits: %v is measured, and again at %v", asked, wake)
	}
	pod := newPod([]v1.Container{container("app", "")}, emptyDir("free", ""), emptyDir("data", "1Ki"))
	asked, wake := pass(t, u, pod, t0, nil)
	if !slices.Equal(asked, []string{dataPath}) || !wake.Equal(t0.Add(time.Minute)) {
		t.Errorf("a volume: %v is measured, and again at %v", asked, wake)
	}
	u, pod = &Usage{}, newPod([]v1.Container{container("app", ""), container("b", "1Ki")},
		emptyDir("data", ""))
	pod.RunningID = func(name string) string { return map[string]string{"b": "b-id"}[name] }
	containers := []string{"/logs/u1/app", "/logs/u1/b", "b-id"}
	now := t0
	for i := range 8 {
		want := containers
		if i%6 == 0 {
			want = append(slices.Clip(containers), dataPath, "/pods/u1/etc-hosts", "/pods/u1/containers")
		}
		asked, wake := pass(t, u, pod, now, nil)
		if !slices.Equal(asked, want) || !wake.Equal(now.Add(10*time.Second)) {
			t.Errorf("pass %d: %v is measured, and again at %v", i, asked, wake)
		}
		now = wake
	}
}

// A tree that cannot be measured counts as over the limit after three measurements in a row. What
// was found counts at once. An error or a timeout says nothing about the tree.
func TestUnfinishedMeasurements(t *testing.T) {
	unfinished := world.Event{Body: &world.TreeMeasured{Bytes: 1, Unfinished: true}}
	large := world.Event{Body: &world.TreeMeasured{Bytes: 1025, Unfinished: true}}
	timeout := world.Event{Err: world.Errorf(world.KindTimeout, "MeasureTree", "gave up")}
	failure := world.Event{Err: world.Errorf(world.KindInternal, "MeasureTree", "I/O error")}
	mixed := []world.Event{unfinished, timeout, unfinished, failure, unfinished}
	for name, c := range map[string]struct { //ordered: the cases are independent
		events []world.Event
		over   bool
	}{
		"three in a row":          {[]world.Event{unfinished, unfinished, unfinished}, true},
		"two":                     {[]world.Event{unfinished, unfinished}, false},
		"with a finished one":     {[]world.Event{unfinished, unfinished, tree(1), unfinished}, false},
		"with failures":           {mixed, true},
		"only timeouts":           {[]world.Event{timeout, timeout, timeout, timeout}, false},
		"only failures":           {[]world.Event{failure, failure, failure, failure}, false},
		"more found than allowed": {[]world.Event{large}, true},
	} {
		u, pod, now := &Usage{}, newPod(nil, emptyDir("data", "1Ki")), t0
		for _, ev := range c.events {
			_, now = pass(t, u, pod, now, map[string]world.Event{dataPath: ev})
		}
		want := ""
		if c.over {
			want = emptyDirMessage
		}
		if got := u.Message(pod.Spec); got != want {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
	}
}

// A limit that a changed spec no longer has is not exceeded.
func TestMessageOfAChangedSpec(t *testing.T) {
	spec := newPod([]v1.Container{container("app", "")}, emptyDir("data", "")).Spec
	for _, over := range []Limit{{EmptyDirLimit, "data"}, {EmptyDirLimit, "gone"}, {PodLimit, ""},
		{ContainerLimit, "app"}, {}} {
		u := &Usage{Exceeded: over}
		if got := u.Message(spec); got != "" {
			t.Errorf("%v: %q", over, got)
		}
	}
}

// An operation completes after the pod has lost its spec.
func TestCompletionWithoutSpec(t *testing.T) {
	u := &Usage{Op: 9, Measuring: Item{VolumeItem, "data"}}
	u.HandleCompletion(&Pod{}, tree(1))
	if u.Op != 0 || u.Measured != nil {
		t.Errorf("%+v", u)
	}
}

// A pass that takes longer than the period is followed by another one.
func TestSlowPass(t *testing.T) {
	u, pod := &Usage{}, newPod(nil, emptyDir("data", "1Ki"))
	step, _ := u.NextMeasurement(pod, t0)
	u.MeasurementIssued(9, step.Item)
	later := t0.Add(2 * time.Minute)
	u.HandleCompletion(pod, world.Event{Err: world.Errorf(world.KindTimeout, "x", "y"), Time: later})
	if step, wake := u.NextMeasurement(pod, later); step != nil || !wake.After(later) {
		t.Errorf("%v, again at %v, want a time after %v", step, wake, later)
	}
}

// Volumes that take long to measure do not keep logs and layers waiting. What was measured of them
// counts beside what is measured of the containers later.
func TestSlowVolumes(t *testing.T) {
	u, now, before := &Usage{}, t0, t0
	pod := newPod([]v1.Container{container("app", "1Ki")}, emptyDir("a", ""), emptyDir("b", ""),
		emptyDir("c", ""))
	for range 12 {
		step, _ := u.NextMeasurement(pod, now)
		if step == nil {
			t.Fatalf("nothing is measured at %v", now)
		}
		u.MeasurementIssued(9, step.Item)
		switch step.Kind {
		case LayerItem:
			if now.Sub(before) > time.Minute {
				t.Errorf("a layer is measured after %v", now.Sub(before))
			}
			before = now
			u.HandleCompletion(pod, layer(500))
		case LogsItem:
			u.HandleCompletion(pod, tree(0))
		default:
			now = now.Add(55 * time.Second)
			u.HandleCompletion(pod, tree(200))
		}
	}
	if u.Exceeded.Kind != PodLimit {
		t.Errorf("%v is exceeded by three volumes of 200 bytes and a layer of 500: %+v", u.Exceeded,
			u.Measured)
	}
}

// The sum of limits may be more than an int64 holds.
func TestLargeLimits(t *testing.T) {
	u, pod := &Usage{}, newPod([]v1.Container{container("a", "5Ei"), container("b", "5Ei")})
	pass(t, u, pod, t0, map[string]world.Event{"a-id": layer(2049)})
	if got := u.Message(pod.Spec); got != "" {
		t.Error(got)
	}
}
