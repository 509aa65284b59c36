package volume

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"seedlet.dev/core/budget"
	"seedlet.dev/core/objectcache"
	"seedlet.dev/world"
)

type noEffects struct{}

func (noEffects) Emit(any)       {}
func (noEffects) Now() time.Time { return t0 }

// withObjects reports objects to the pod; its other references do not exist.
func withObjects(pod *Pod, objects ...world.Object) *Pod {
	pod.Spec.Namespace = "n"
	if pod.Objects == nil {
		pod.Objects = &objectcache.Store{}
		for _, name := range []string{"a", "b"} {
			for _, r := range []world.Resource{world.ResourceConfigMaps, world.ResourceSecrets} {
				about := world.WatchTarget{Resource: r, Namespace: "n", Name: name}
				pod.Objects.AddReference(about, "u", noEffects{})
			}
		}
	}
	for id, key := range pod.Objects.Keys {
		listed := &world.ObjectsListed{Watch: id}
		for i := range objects {
			of, meta := objects[i].Meta()
			if objectcache.Key(world.WatchTarget{Resource: of, Namespace: "n",
				Name: meta.GetName()}) == key {
				listed.Objects = append(listed.Objects, objects[i])
			}
		}
		pod.Objects.HandleWatchEvent(listed, t0)
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

func refTo(name string) v1.LocalObjectReference { return v1.LocalObjectReference{Name: name} }

func configMapVolume(optional *bool, items ...v1.KeyToPath) v1.Volume {
	return v1.Volume{Name: "v", VolumeSource: v1.VolumeSource{ConfigMap: &v1.ConfigMapVolumeSource{
		LocalObjectReference: refTo("a"), DefaultMode: &mode644, Optional: optional, Items: items}}}
}

// writtenFiles returns the files written last: "path:mode=data", in order.
func writtenFiles(done []any) string {
	var lines []string
	for i := len(done) - 1; i >= 0; i-- {
		if body, is := done[i].(*world.WriteDir); is {
			for _, f := range body.Files {
				lines = append(lines, f.Path+":"+octal(f.Mode)+"="+string(f.Bytes()))
			}
			return strings.Join(lines, " ")
		}
	}
	return "nothing is written"
}

func octal(bits uint32) string {
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
		{"all keys", configMapVolume(nil), []world.Object{is}, "j:644=2 k:644=1 raw:644=\x00\x01", ""},
		{"named keys", configMapVolume(nil, v1.KeyToPath{Key: "k", Path: "d/./x", Mode: &mode400}),
			[]world.Object{is}, "d/x:400=1", ""},
		{"two on one path", configMapVolume(nil, v1.KeyToPath{Key: "k", Path: "x"},
			v1.KeyToPath{Key: "j", Path: "x"}), []world.Object{is}, "x:644=2", ""},
		{"a missing key", configMapVolume(nil, v1.KeyToPath{Key: "no", Path: "x"}), []world.Object{is},
			"nothing is written", "configmap references non-existent config key: no"},
		{"an optional key", configMapVolume(&yes, v1.KeyToPath{Key: "no", Path: "x"},
			v1.KeyToPath{Key: "k", Path: "y"}), []world.Object{is}, "y:644=1", ""},
		{"missing", configMapVolume(nil), nil, "nothing is written", `configmap "a" not found`},
		{"optional", configMapVolume(&yes), nil, "", ""},
	} {
		s, pod := &Set{}, withObjects(newPod(c.volume), c.objects...)
		got := writtenFiles(runSteps(s, pod, ""))
		problem := strings.TrimPrefix(s.Problem(), `MountVolume.SetUp failed for volume "v" : `)
		if got != c.want || problem != c.problem || s.Ready(&pod.Spec.Spec) != (c.problem == "") {
			t.Errorf("%s: %q, %q; want %q, %q", c.name, got, problem, c.want, c.problem)
		}
	}
}

// Sensitive content is written to memory; the group of the pod can read it.
func TestSecretVolume(t *testing.T) {
	gid := int64(7)
	pod := newPod(v1.Volume{Name: "v", VolumeSource: v1.VolumeSource{
		Secret: &v1.SecretVolumeSource{SecretName: "a"}}})
	pod.Spec.Spec.SecurityContext = &v1.PodSecurityContext{FSGroup: &gid}
	withObjects(pod, secret("a", "1", map[string][]byte{"k": []byte("x")}))
	const at = "/pods/u/volumes/kubernetes.io~secret/v"
	want := []any{&world.MakeDir{Path: "/pods/u/volumes/kubernetes.io~secret", Mode: 0o750},
		&world.MountMemory{Path: at, BytesMax: 1 << 30, Mode: 0o1777},
		&world.WriteDir{Path: at, GID: &gid, Files: []world.DirFile{
			{Path: "k", Data: []byte("x"), Mode: 0o644}}}}
	if d := cmp.Diff(want, runSteps(&Set{}, pod, "")); d != "" {
		t.Error(d)
	}
}

func projected(sources ...v1.VolumeProjection) v1.Volume {
	return v1.Volume{Name: "v", VolumeSource: v1.VolumeSource{
		Projected: &v1.ProjectedVolumeSource{Sources: sources, DefaultMode: &mode644}}}
}

func podWithAllSources() *Pod {
	return newPod(projected(
		v1.VolumeProjection{ConfigMap: &v1.ConfigMapProjection{LocalObjectReference: refTo("a"),
			Items: []v1.KeyToPath{{Key: "k", Path: "map"}}}},
		v1.VolumeProjection{Secret: &v1.SecretProjection{LocalObjectReference: refTo("b")}},
		v1.VolumeProjection{DownwardAPI: &v1.DownwardAPIProjection{
			Items: []v1.DownwardAPIVolumeFile{{Path: "name",
				FieldRef: &v1.ObjectFieldSelector{FieldPath: "metadata.name"}}}}},
		v1.VolumeProjection{ServiceAccountToken: &v1.ServiceAccountTokenProjection{Path: "token"}},
	))
}

// A token belongs to the user of the pod, if all containers have the same one, and to no other.
func TestTokenOwner(t *testing.T) {
	as := func(uid int64) *v1.SecurityContext { return &v1.SecurityContext{RunAsUser: &uid} }
	root, seven, mode400 := int64(0), int64(7), int32(0o400)
	for _, c := range []struct {
		name                       string
		pod                        *v1.PodSecurityContext
		init, app, other, debugger *v1.SecurityContext
		want                       string
	}{
		{name: "no user", want: "400 <nil> <nil>"},
		{name: "the pod's", pod: &v1.PodSecurityContext{RunAsUser: &seven}, want: "600 7 <nil>"},
		{name: "the pod's, with a group", want: "600 7 7",
			pod: &v1.PodSecurityContext{RunAsUser: &seven, FSGroup: &seven}},
		{name: "a group", pod: &v1.PodSecurityContext{FSGroup: &seven}, want: "600 <nil> 7"},
		{name: "root", pod: &v1.PodSecurityContext{RunAsUser: &root}, want: "600 0 <nil>"},
		{name: "each container's", init: as(7), app: as(7), other: as(7), debugger: as(7),
			want: "600 7 <nil>"},
		{name: "one has another", pod: &v1.PodSecurityContext{RunAsUser: &seven}, other: as(8),
			want: "400 <nil> <nil>"},
		{name: "one has none", init: as(7), app: as(7), debugger: as(7), want: "400 <nil> <nil>"},
		{name: "a debugger has another", pod: &v1.PodSecurityContext{RunAsUser: &seven},
			debugger: as(0), want: "400 <nil> <nil>"},
	} {
		volume := projected(
			v1.VolumeProjection{ServiceAccountToken: &v1.ServiceAccountTokenProjection{Path: "t"}},
			v1.VolumeProjection{DownwardAPI: &v1.DownwardAPIProjection{
				Items: []v1.DownwardAPIVolumeFile{{Path: "name",
					FieldRef: &v1.ObjectFieldSelector{FieldPath: "metadata.name"}}}}})
		volume.Projected.DefaultMode = &mode400
		pod := newPod(volume)
		pod.Token = func(*v1.ServiceAccountTokenProjection) (string, string, error) {
			return "x", "1", nil
		}
		spec := &pod.Spec.Spec
		spec.SecurityContext = c.pod
		spec.InitContainers = []v1.Container{{SecurityContext: c.init}}
		spec.Containers = []v1.Container{{SecurityContext: c.app,
			VolumeMounts: []v1.VolumeMount{{Name: volume.Name}}}, {SecurityContext: c.other}}
		spec.EphemeralContainers = []v1.EphemeralContainer{{
			EphemeralContainerCommon: v1.EphemeralContainerCommon{SecurityContext: c.debugger}}}
		done := runSteps(&Set{}, pod, "")
		written := done[len(done)-1].(*world.WriteDir)
		show := func(id *int64) string {
			if id == nil {
				return "<nil>"
			}
			return fmt.Sprint(*id)
		}
		token, name := written.Files[0], written.Files[1]
		got := octal(token.Mode) + " " + show(token.UID) + " " + show(written.GID)
		if got != c.want || octal(name.Mode) != "400" || name.UID != nil {
			t.Errorf("%s: %s, want %s; the other file %s %s", c.name, got, c.want, octal(name.Mode),
				show(name.UID))
		}
	}
}

// A certificate is up to three files: the key with the chain, the key, and the chain. Like a token
// they belong to the user of the pod.
func TestCertificateFiles(t *testing.T) {
	for _, c := range []struct {
		name string
		user *int64
		want string // the mode of each file
	}{
		{"no user", nil, "644"}, {"a user", new(int64), "600"},
	} {
		pod := newPod(projected(
			v1.VolumeProjection{PodCertificate: &v1.PodCertificateProjection{
				CredentialBundlePath: "all.pem"}},
			v1.VolumeProjection{PodCertificate: &v1.PodCertificateProjection{KeyPath: "k/key.pem",
				CertificateChainPath: "chain.pem"}}))
		pod.Spec.Spec.SecurityContext = &v1.PodSecurityContext{RunAsUser: c.user}
		pod.Certificate = func(volume string, source int) (key, chain, version string, err error) {
			n := fmt.Sprint(volume, source)
			return "K" + n, "C" + n, n, nil
		}
		done := runSteps(&Set{}, pod, "")
		got := map[string]string{}
		for _, f := range done[len(done)-1].(*world.WriteDir).Files {
			got[f.Path] = f.Text + string(f.Data)
			if octal(f.Mode) != c.want || (f.UID == nil) != (c.user == nil) {
				t.Errorf("%s: %s has the mode %s and the user %v", c.name, f.Path, octal(f.Mode), f.UID)
			}
		}
		want := map[string]string{"all.pem": "Kv0Cv0", "k/key.pem": "Kv1", "chain.pem": "Cv1"}
		if d := cmp.Diff(want, got); d != "" {
			t.Errorf("%s: %s", c.name, d)
		}
	}
}

// A volume with a certificate waits until it is issued, or says why it is not, and is written again
// when it is renewed.
func TestCertificateOfVolume(t *testing.T) {
	pod := newPod(projected(v1.VolumeProjection{PodCertificate: &v1.PodCertificateProjection{
		CredentialBundlePath: "all.pem"}}))
	var s Set
	if runSteps(&s, pod, ""); s.AnyProblem() != `MountVolume.SetUp failed for volume "v" : `+
		`unimplemented` {
		t.Errorf("without the feature gate: %q", s.AnyProblem())
	}
	key, version, failure := "", "", error(nil)
	pod.Certificate = func(string, int) (string, string, string, error) {
		return key, "C", version, failure
	}
	s = Set{}
	if done := runSteps(&s, pod, ""); len(done) > 0 || s.AnyProblem() != "" {
		t.Errorf("not known: %v, %q", done, s.AnyProblem())
	}
	failure = errors.New("credential bundle is not issued yet")
	if done := runSteps(&s, pod, ""); len(done) > 0 || s.AnyProblem() == "" {
		t.Errorf("not issued: %v, %q", done, s.AnyProblem())
	}
	key, version, failure = "one", "1", nil
	first := runSteps(&s, pod, "")
	key, version = "two", "2"
	second := runSteps(&s, pod, "")
	for i, done := range [][]any{first, second} {
		written := done[len(done)-1].(*world.WriteDir).Files[0]
		if want := []string{"oneC", "twoC"}[i]; written.Text+string(written.Data) != want {
			t.Errorf("written %s, not %s", written.Text, want)
		}
	}
	failure, version = errors.New("PodCertificateRequest was permanently denied"), ""
	if done := runSteps(&s, pod, ""); len(done) > 0 || !s.IsReady(0, "v") {
		t.Errorf("denied: %v, ready %v", done, s.IsReady(0, "v"))
	}
}

// A projected volume is written at once, and only when all its sources are available.
func TestProjectedVolume(t *testing.T) {
	pod, s := podWithAllSources(), &Set{}
	var value, version string
	var problem error
	pod.Token = func(*v1.ServiceAccountTokenProjection) (string, string, error) {
		return value, version, problem
	}
	withObjects(pod)
	if done := runSteps(s, pod, ""); len(done) > 0 || s.Problem() != "" {
		t.Errorf("%v, %q while the token is being requested", done, s.Problem())
	}
	problem = errors.New("no token")
	runSteps(s, pod, "")
	want := `MountVolume.SetUp failed for volume "v" : [configmap "a" not found, ` +
		`secret "b" not found, no token]`
	if s.Problem() != want {
		t.Errorf("%s, want %s", s.Problem(), want)
	}
	value, version, problem = "t1", "1", nil
	withObjects(pod, configMap("a", "1", map[string]string{"k": "c"}),
		secret("b", "1", map[string][]byte{"s": []byte("x")}))
	done := runSteps(s, pod, "")
	const all = "map:644=c s:644=x name:644=metadata.name token:644=t1"
	if got := writtenFiles(done); got != all || s.Problem() != "" || len(done) != 3 {
		t.Errorf("%v, %s; want %s", done, got, all)
	}
	value, version = "t2", "2"
	if got := writtenFiles(runSteps(s, pod, "")); !strings.HasSuffix(got, "token:644=t2") {
		t.Errorf("%s after the token was renewed", got)
	}
	gid := int64(7)
	pod.Spec.Spec.SecurityContext = &v1.PodSecurityContext{FSGroup: &gid}
	s.Recheck()
	if got := writtenFiles(runSteps(s, pod, "")); !strings.HasSuffix(got, "token:600=t2") {
		t.Errorf("%s with a group", got)
	}
}

// A volume is updated when its object changes. When the object or a key is deleted, the content
// stays, with a problem for the log only; an optional volume becomes empty.
func TestVolumeFollowsObject(t *testing.T) {
	for optional, want := range map[bool][]string{
		false: {"k:644=1 raw:644=\x00\x01", "k:644=2 raw:644=\x00\x01", "nothing is written",
			"k:644=3 raw:644=\x00\x01"},
		true: {"k:644=1 raw:644=\x00\x01", "k:644=2 raw:644=\x00\x01", "",
			"k:644=3 raw:644=\x00\x01"},
	} {
		s, pod := &Set{}, newPod(configMapVolume(&optional))
		for i, objects := range [][]world.Object{
			{configMap("a", "1", map[string]string{"k": "1"})},
			{configMap("a", "2", map[string]string{"k": "2"})},
			nil,
			{configMap("a", "3", map[string]string{"k": "3"})},
		} {
			withObjects(pod, objects...)
			if got := writtenFiles(runSteps(s, pod, "")); got != want[i] {
				t.Errorf("optional %v, step %d: %q, want %q", optional, i, got, want[i])
			}
			missing := objects == nil && !optional
			if !s.Ready(&pod.Spec.Spec) || s.Problem() != "" || (s.AnyProblem() != "") != missing {
				t.Errorf("optional %v, step %d: ready %v, %q", optional, i,
					s.Ready(&pod.Spec.Spec), s.AnyProblem())
			}
			if again := runSteps(s, pod, ""); len(again) > 0 {
				t.Errorf("step %d: written twice: %v", i, again)
			}
		}
	}
}

// A change during a write is written again.
func TestObjectChangesDuringWrite(t *testing.T) {
	s, pod := &Set{}, withObjects(newPod(configMapVolume(nil)),
		configMap("a", "1", map[string]string{"k": "1"}))
	var ask *Operation
	for ask == nil || world.CallName(ask.Body) != "WriteDir" {
		if ask != nil {
			s.HandleCompletion("v", world.CallName(ask.Body), world.Event{Time: t0, Body: &world.Done{}})
		}
		ask, _ = s.NextOperation(pod, t0)
	}
	withObjects(pod, configMap("a", "2", map[string]string{"k": "2"}))
	s.HandleCompletion("v", "WriteDir", world.Event{Time: t0, Body: &world.Done{}})
	if got := writtenFiles(runSteps(s, pod, "")); got != "k:644=2 raw:644=\x00\x01" {
		t.Errorf("%q", got)
	}
	holds := s.ContentVersion("v")
	withObjects(pod, configMap("a", "3", map[string]string{"k": "3"}))
	ask, _ = s.NextOperation(pod, t0)
	s.HandleCompletion("v", "MakeDir",
		world.Event{Time: t0, Err: world.Errorf(world.KindInternal, "", "EIO")})
	if ask == nil || s.ContentVersion("v") != holds || !s.Ready(&pod.Spec.Spec) {
		t.Errorf("version %q, ready %v after a failed write", s.ContentVersion("v"),
			s.Ready(&pod.Spec.Spec))
	}
	withObjects(pod, configMap("a", "4", map[string]string{"k": "4"}))
	if ask, _ = s.NextOperation(pod, t0); ask == nil {
		t.Error("a change waits for the back-off of an earlier failure")
	}
}

// While the server is unavailable nothing is written, with a problem; written content stays.
func TestServerUnavailable(t *testing.T) {
	s, pod := &Set{}, newPod(configMapVolume(nil))
	pod.Spec.Namespace, pod.Objects = "n", &objectcache.Store{}
	pod.Objects.AddReference(world.WatchTarget{Resource: world.ResourceConfigMaps, Namespace: "n",
		Name: "a"},
		"u", noEffects{})
	if done := runSteps(s, pod, ""); len(done) > 0 || s.Problem() != "" {
		t.Errorf("%v, %q before the first list", done, s.Problem())
	}
	away := &world.WatchFailing{Watch: 1, Err: world.Errorf(world.KindUnavailable, "", "away")}
	pod.Objects.HandleWatchEvent(away, t0)
	runSteps(s, pod, "")
	if !strings.HasSuffix(s.Problem(), "timed out waiting for the condition") {
		t.Errorf("%q", s.Problem())
	}
	is := configMap("a", "1", map[string]string{"k": "1"})
	pod.Objects.HandleWatchEvent(&world.ObjectsListed{Watch: 1, Objects: []world.Object{is}}, t0)
	if len(runSteps(s, pod, "")) == 0 || s.Problem() != "" {
		t.Errorf("not written after the first list: %q", s.Problem())
	}
	pod.Objects.HandleWatchEvent(away, t0.Add(time.Second))
	if done := runSteps(s, pod, ""); len(done) > 0 || s.AnyProblem() != "" {
		t.Errorf("%v, %q after the server became unavailable", done, s.AnyProblem())
	}
}

func TestContentIsBounded(t *testing.T) {
	large := map[string][]byte{"k": make([]byte, budget.ContentMax+1)}
	s, pod := &Set{}, withObjects(newPod(v1.Volume{Name: "v", VolumeSource: v1.VolumeSource{
		Secret: &v1.SecretVolumeSource{SecretName: "a"}}}), secret("a", "1", large))
	if done := runSteps(s, pod, ""); len(done) > 0 || s.Problem() == "" {
		t.Errorf("%d operations, %q", len(done), s.Problem())
	}
}

// All volumes of a pod are bounded together, each file by the pages that it takes. A refused volume
// holds back no other one, and what was written before goes on to count.
func TestContentOfPodIsBounded(t *testing.T) {
	volumes := make([]v1.Volume, 5)
	for i := range volumes {
		volumes[i] = v1.Volume{Name: "v" + strconv.Itoa(i), VolumeSource: v1.VolumeSource{
			Secret: &v1.SecretVolumeSource{SecretName: "a"}}}
	}
	volumes[4].Secret.SecretName = "b"
	small := secret("b", "1", map[string][]byte{"k": []byte("x")})
	of := func(version string, size int) world.Object {
		return secret("a", version, map[string][]byte{"k": make([]byte, size)})
	}
	s, pod := &Set{}, withObjects(newPod(volumes...), of("1", budget.ContentOfPodMax/3), small)
	written := func() string {
		ready := ""
		for i := range s.Volumes {
			ready += fmt.Sprint(s.Volumes[i].Ready, " ")
		}
		return ready
	}
	runSteps(s, pod, "")
	if got := written(); got != "true true false false true " ||
		s.OverBudget() != "content_bytes_pod" || !strings.HasSuffix(s.Problem(), "its files take "+
		"44740608 bytes and those of other volumes of the pod 89481216, together more than 134217728") {
		t.Errorf("%s, %q, %q", got, s.OverBudget(), s.Problem())
	}
	s.Recheck()
	runSteps(s, pod, "")
	if got := written(); got != "true true false false true " {
		t.Errorf("after the spec has changed: %s", got)
	}
	withObjects(pod, of("2", budget.ContentOfPodMax/8), small)
	runSteps(s, pod, "")
	if got := written(); got != "true true true true true " || s.AnyProblem() != "" {
		t.Errorf("after the object has become smaller: %s, %q", got, s.AnyProblem())
	}
}

// keysOf returns the data of an object with n keys.
func keysOf(n int) map[string]string {
	data := map[string]string{}
	for i := range n {
		data["k"+strconv.Itoa(i)] = ""
	}
	return data
}

// A volume that names a large object repeatedly takes no longer than its bounds allow.
func TestRepeatedSourcesAreBounded(t *testing.T) {
	source := v1.VolumeProjection{ConfigMap: &v1.ConfigMapProjection{LocalObjectReference: refTo("a")}}
	times := func(n int, source v1.VolumeProjection) v1.Volume {
		return v1.Volume{Name: "v", VolumeSource: v1.VolumeSource{Projected: &v1.ProjectedVolumeSource{
			Sources: slices.Repeat([]v1.VolumeProjection{source}, n)}}}
	}
	items := func(n int) v1.VolumeProjection {
		items := make([]v1.KeyToPath, n)
		for i := range items {
			items[i] = v1.KeyToPath{Key: "k", Path: strconv.Itoa(i)}
		}
		return v1.VolumeProjection{ConfigMap: &v1.ConfigMapProjection{
			LocalObjectReference: refTo("a"), Items: items}}
	}
	many, large := keysOf(16_383), map[string]string{"k": strings.Repeat("x", 1<<20)}
	for _, c := range []struct {
		name   string
		volume v1.Volume
		data   map[string]string
		want   string
	}{
		{"one large object", configMapVolume(nil), many, ""},
		{"all keys repeatedly", times(10_000, source), many,
			"it has 32768 files or more, and one volume may have 16384"},
		{"too large an object", configMapVolume(nil), keysOf(60_000),
			"it has 60001 files or more, and one volume may have 16384"},
		{"one key repeatedly", times(10_000, items(1)), map[string]string{"k": "", "l": ""}, ""},
		{"a large key repeatedly", times(10_000, items(1)), large,
			"its files hold 68157440 bytes, more than 67108864"},
		{"a large key at many paths", times(1, items(10_000)), large,
			"its files hold 68157440 bytes, more than 67108864"},
	} {
		pod := withObjects(newPod(c.volume), configMap("a", "1", c.data))
		files := 0
		content, err := pod.contentOf(&c.volume)
		if err == nil {
			files = len(content.dirFiles())
		}
		if c.want == "" && (err != nil || files == 0) || c.want != "" && (err == nil ||
			err.Error() != c.want) {
			t.Errorf("%s: %d files, %v; want %q", c.name, files, err, c.want)
		}
	}
}

func BenchmarkContentFiles(b *testing.B) {
	v := configMapVolume(nil)
	pod := withObjects(newPod(v), configMap("a", "1", keysOf(16_000)))
	for b.Loop() {
		if c, err := pod.contentOf(&v); err != nil || len(c.dirFiles()) != 16_001 {
			b.Fatal(err)
		}
	}
}
