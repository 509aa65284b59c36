package volume

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"seedlet.dev/core/object"
	"seedlet.dev/world"
)

type silent struct{}

func (silent) Tell(any)       {}
func (silent) Now() time.Time { return t0 }

// knowing has the pod told of objects; what else it refers to is told not to exist.
func knowing(pod *Pod, objects ...world.Object) *Pod {
	pod.Spec.Namespace = "n"
	if pod.Objects == nil {
		pod.Objects = &object.Store{}
		for _, name := range []string{"a", "b"} {
			for _, r := range []world.Resource{world.ResourceConfigMaps, world.ResourceSecrets} {
				about := world.Watched{Resource: r, Namespace: "n", Name: name}
				pod.Objects.Want(about, "u", silent{})
			}
		}
	}
	for id, key := range pod.Objects.Keys {
		listed := &world.ObjectsListed{Watch: id}
		for i := range objects {
			of, meta := objects[i].Get()
			if object.Key(world.Watched{Resource: of, Namespace: "n", Name: meta.GetName()}) == key {
				listed.Objects = append(listed.Objects, objects[i])
			}
		}
		pod.Objects.Take(listed, t0)
	}
	return pod
}

func meta(name, version string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: "n", Name: name, UID: "o", ResourceVersion: version}
}

func configMap(name, version string, data map[string]string) world.Object {
	return world.Object{ConfigMap: &v1.ConfigMap{ObjectMeta: meta(name, version), Data: data,
		BinaryData: map[string][]byte{"raw": {0, 1}}}}
}

func secret(name, version string, data map[string][]byte) world.Object {
	return world.Object{Secret: &v1.Secret{ObjectMeta: meta(name, version), Data: data}}
}

var yes, mode400, mode644 = true, int32(0o400), int32(0o644)

func named(name string) v1.LocalObjectReference { return v1.LocalObjectReference{Name: name} }

func ofConfigMap(optional *bool, items ...v1.KeyToPath) v1.Volume {
	return v1.Volume{Name: "v", VolumeSource: v1.VolumeSource{ConfigMap: &v1.ConfigMapVolumeSource{
		LocalObjectReference: named("a"), DefaultMode: &mode644, Optional: optional, Items: items}}}
}

// files are what is written last: "path:mode=data", in order.
func files(done []any) string {
	var lines []string
	for i := len(done) - 1; i >= 0; i-- {
		if body, is := done[i].(*world.WriteDir); is {
			for _, f := range body.Files {
				lines = append(lines, f.Path+":"+mode(f.Mode)+"="+string(f.Data))
			}
			return strings.Join(lines, " ")
		}
	}
	return "nothing is written"
}

func mode(bits uint32) string {
	return string([]byte{'0' + byte(bits>>6&7), '0' + byte(bits>>3&7), '0' + byte(bits&7)})
}

func TestConfigMapVolume(t *testing.T) {
	is := configMap("a", "1", map[string]string{"k": "1", "j": "2"})
	for _, c := range []struct {
		name    string
		volume  v1.Volume
		objects []world.Object
		want    string
		problem string
	}{
		{"all keys", ofConfigMap(nil), []world.Object{is}, "j:644=2 k:644=1 raw:644=\x00\x01", ""},
		{"named keys", ofConfigMap(nil, v1.KeyToPath{Key: "k", Path: "d/./x", Mode: &mode400}),
			[]world.Object{is}, "d/x:400=1", ""},
		{"two on one path", ofConfigMap(nil, v1.KeyToPath{Key: "k", Path: "x"},
			v1.KeyToPath{Key: "j", Path: "x"}), []world.Object{is}, "x:644=2", ""},
		{"a missing key", ofConfigMap(nil, v1.KeyToPath{Key: "no", Path: "x"}), []world.Object{is},
			"nothing is written", "configmap references non-existent config key: no"},
		{"an optional key", ofConfigMap(&yes, v1.KeyToPath{Key: "no", Path: "x"},
			v1.KeyToPath{Key: "k", Path: "y"}), []world.Object{is}, "y:644=1", ""},
		{"missing", ofConfigMap(nil), nil, "nothing is written", `configmap "a" not found`},
		{"optional", ofConfigMap(&yes), nil, "", ""},
	} {
		s, pod := &Set{}, knowing(podOf(c.volume), c.objects...)
		got := files(drive(s, pod, ""))
		problem := strings.TrimPrefix(s.Problem(), `MountVolume.SetUp failed for volume "v" : `)
		if got != c.want || problem != c.problem || s.Ready(&pod.Spec.Spec) != (c.problem == "") {
			t.Errorf("%s: %q, %q; want %q, %q", c.name, got, problem, c.want, c.problem)
		}
	}
}

// What is secret is written into memory; the group of the pod can read it.
func TestSecretVolume(t *testing.T) {
	gid := int64(7)
	pod := podOf(v1.Volume{Name: "v", VolumeSource: v1.VolumeSource{
		Secret: &v1.SecretVolumeSource{SecretName: "a"}}})
	pod.Spec.Spec.SecurityContext = &v1.PodSecurityContext{FSGroup: &gid}
	knowing(pod, secret("a", "1", map[string][]byte{"k": []byte("x")}))
	const at = "/pods/u/volumes/kubernetes.io~secret/v"
	want := []any{&world.MakeDir{Path: "/pods/u/volumes/kubernetes.io~secret", Mode: 0o750},
		&world.MountMemory{Path: at, BytesMax: 1 << 30, Mode: 0o777},
		&world.WriteDir{Path: at, GID: &gid, Files: []world.DirFile{
			{Path: "k", Data: []byte("x"), Mode: 0o644}}}}
	if d := cmp.Diff(want, drive(&Set{}, pod, "")); d != "" {
		t.Error(d)
	}
}

func projected(sources ...v1.VolumeProjection) v1.Volume {
	return v1.Volume{Name: "v", VolumeSource: v1.VolumeSource{
		Projected: &v1.ProjectedVolumeSource{Sources: sources, DefaultMode: &mode644}}}
}

func everything() *Pod {
	return podOf(projected(
		v1.VolumeProjection{ConfigMap: &v1.ConfigMapProjection{LocalObjectReference: named("a"),
			Items: []v1.KeyToPath{{Key: "k", Path: "map"}}}},
		v1.VolumeProjection{Secret: &v1.SecretProjection{LocalObjectReference: named("b")}},
		v1.VolumeProjection{DownwardAPI: &v1.DownwardAPIProjection{
			Items: []v1.DownwardAPIVolumeFile{{Path: "name",
				FieldRef: &v1.ObjectFieldSelector{FieldPath: "metadata.name"}}}}},
		v1.VolumeProjection{ServiceAccountToken: &v1.ServiceAccountTokenProjection{Path: "token"}},
	))
}

// A projected volume is written in one piece, and only when all of it is there.
func TestProjectedVolume(t *testing.T) {
	pod, s := everything(), &Set{}
	var value, version string
	var problem error
	pod.Token = func(*v1.ServiceAccountTokenProjection) (string, string, error) {
		return value, version, problem
	}
	knowing(pod)
	if done := drive(s, pod, ""); len(done) > 0 || s.Problem() != "" {
		t.Errorf("%v, %q while the token is being asked for", done, s.Problem())
	}
	problem = errors.New("no token")
	drive(s, pod, "")
	want := `MountVolume.SetUp failed for volume "v" : [configmap "a" not found, ` +
		`secret "b" not found, no token]`
	if s.Problem() != want {
		t.Errorf("%s, want %s", s.Problem(), want)
	}
	value, version, problem = "t1", "1", nil
	knowing(pod, configMap("a", "1", map[string]string{"k": "c"}),
		secret("b", "1", map[string][]byte{"s": []byte("x")}))
	done := drive(s, pod, "")
	const all = "map:644=c s:644=x name:644=metadata.name token:644=t1"
	if got := files(done); got != all || s.Problem() != "" || len(done) != 3 {
		t.Errorf("%v, %s; want %s", done, got, all)
	}
	value, version = "t2", "2"
	if got := files(drive(s, pod, "")); !strings.HasSuffix(got, "token:644=t2") {
		t.Errorf("%s after the token was renewed", got)
	}
	gid := int64(7)
	pod.Spec.Spec.SecurityContext = &v1.PodSecurityContext{FSGroup: &gid}
	s.Recheck()
	if got := files(drive(s, pod, "")); !strings.HasSuffix(got, "token:600=t2") {
		t.Errorf("%s with a group", got)
	}
}

// A volume follows its object. When that is removed, or a key is, what is there stays, and says so
// to the log only; an optional one becomes empty.
func TestAVolumeFollowsItsObject(t *testing.T) {
	for optional, want := range map[bool][]string{
		false: {"k:644=1 raw:644=\x00\x01", "k:644=2 raw:644=\x00\x01", "nothing is written",
			"k:644=3 raw:644=\x00\x01"},
		true: {"k:644=1 raw:644=\x00\x01", "k:644=2 raw:644=\x00\x01", "",
			"k:644=3 raw:644=\x00\x01"},
	} {
		s, pod := &Set{}, podOf(ofConfigMap(&optional))
		for i, objects := range [][]world.Object{
			{configMap("a", "1", map[string]string{"k": "1"})},
			{configMap("a", "2", map[string]string{"k": "2"})},
			nil,
			{configMap("a", "3", map[string]string{"k": "3"})},
		} {
			knowing(pod, objects...)
			if got := files(drive(s, pod, "")); got != want[i] {
				t.Errorf("optional %v, step %d: %q, want %q", optional, i, got, want[i])
			}
			gone := objects == nil && !optional
			if !s.Ready(&pod.Spec.Spec) || s.Problem() != "" || (s.Failing() != "") != gone {
				t.Errorf("optional %v, step %d: ready %v, %q", optional, i,
					s.Ready(&pod.Spec.Spec), s.Failing())
			}
			if again := drive(s, pod, ""); len(again) > 0 {
				t.Errorf("step %d: written twice: %v", i, again)
			}
		}
	}
}

// What changes while it is written is written once more.
func TestAnObjectThatChangesWhileItIsWritten(t *testing.T) {
	s, pod := &Set{}, knowing(podOf(ofConfigMap(nil)),
		configMap("a", "1", map[string]string{"k": "1"}))
	var ask *Ask
	for ask == nil || world.Call(ask.Body) != "WriteDir" {
		if ask != nil {
			s.Answered("v", world.Call(ask.Body), world.Event{Time: t0, Body: &world.Done{}})
		}
		ask, _ = s.Next(pod, t0)
	}
	knowing(pod, configMap("a", "2", map[string]string{"k": "2"}))
	s.Answered("v", "WriteDir", world.Event{Time: t0, Body: &world.Done{}})
	if got := files(drive(s, pod, "")); got != "k:644=2 raw:644=\x00\x01" {
		t.Errorf("%q", got)
	}
	holds := s.Holds("v")
	knowing(pod, configMap("a", "3", map[string]string{"k": "3"}))
	ask, _ = s.Next(pod, t0)
	s.Answered("v", "MakeDir", world.Event{Time: t0, Err: world.Errorf(world.KindInternal, "", "EIO")})
	if ask == nil || s.Holds("v") != holds || !s.Ready(&pod.Spec.Spec) {
		t.Errorf("holds %q, ready %v after a write that failed", s.Holds("v"), s.Ready(&pod.Spec.Spec))
	}
	knowing(pod, configMap("a", "4", map[string]string{"k": "4"}))
	if ask, _ = s.Next(pod, t0); ask == nil {
		t.Error("a change waits for the back-off of what was wrong before")
	}
}

// While the server cannot be asked nothing is written, and that is said; what is there stays.
func TestAServerThatIsAway(t *testing.T) {
	s, pod := &Set{}, podOf(ofConfigMap(nil))
	pod.Spec.Namespace, pod.Objects = "n", &object.Store{}
	pod.Objects.Want(world.Watched{Resource: world.ResourceConfigMaps, Namespace: "n", Name: "a"},
		"u", silent{})
	if done := drive(s, pod, ""); len(done) > 0 || s.Problem() != "" {
		t.Errorf("%v, %q before anything is known", done, s.Problem())
	}
	away := &world.WatchFailing{Watch: 1, Err: world.Errorf(world.KindUnavailable, "", "away")}
	pod.Objects.Take(away, t0)
	drive(s, pod, "")
	if !strings.HasSuffix(s.Problem(), "timed out waiting for the condition") {
		t.Errorf("%q", s.Problem())
	}
	is := configMap("a", "1", map[string]string{"k": "1"})
	pod.Objects.Take(&world.ObjectsListed{Watch: 1, Objects: []world.Object{is}}, t0)
	if len(drive(s, pod, "")) == 0 || s.Problem() != "" {
		t.Errorf("not written at once: %q", s.Problem())
	}
	pod.Objects.Take(away, t0.Add(time.Second))
	if done := drive(s, pod, ""); len(done) > 0 || s.Failing() != "" {
		t.Errorf("%v, %q after the server went away", done, s.Failing())
	}
}

func TestContentIsBounded(t *testing.T) {
	large := map[string][]byte{"k": make([]byte, contentMax+1)}
	s, pod := &Set{}, knowing(podOf(v1.Volume{Name: "v", VolumeSource: v1.VolumeSource{
		Secret: &v1.SecretVolumeSource{SecretName: "a"}}}), secret("a", "1", large))
	if done := drive(s, pod, ""); len(done) > 0 || s.Problem() == "" {
		t.Errorf("%d operations, %q", len(done), s.Problem())
	}
}
