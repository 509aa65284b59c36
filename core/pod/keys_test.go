package pod

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"seedlet.dev/core/object"
	"seedlet.dev/core/op"
	"seedlet.dev/world"
)

func meta(name, version string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: "default", Name: name, UID: "o", ResourceVersion: version}
}

func configMap(name, version string, data map[string]string) world.Object {
	return world.Object{ConfigMap: &v1.ConfigMap{ObjectMeta: meta(name, version), Data: data}}
}

func secret(name, version string, data map[string]string) world.Object {
	is := &v1.Secret{ObjectMeta: meta(name, version), Data: map[string][]byte{}}
	for key, value := range data {
		is.Data[key] = []byte(value)
	}
	return world.Object{Secret: is}
}

// server is what a pod is told by the API server.
type server struct {
	store object.Store
	out   op.Out
}

// tell tells what is watched that these objects exist, and nothing else does.
func (s *server) tell(objects ...world.Object) *server {
	for _, name := range []string{"configmaps", "secrets", "services"} {
		r := world.Resource(name)
		for id, key := range s.store.Keys {
			about := s.store.Watches[key].About
			if about.Resource != r {
				continue
			}
			listed := &world.ObjectsListed{Watch: id}
			for i := range objects {
				of, meta := objects[i].Get()
				if of == r && (about.Name == "" || about.Name == meta.GetName()) {
					listed.Objects = append(listed.Objects, objects[i])
				}
			}
			s.store.Take(listed, t0)
		}
	}
	return s
}

// knowing is a server that has told a pod of these objects.
func knowing(p *Pod, objects ...world.Object) *Env {
	s := &server{}
	s.out.Begin(&op.Table{}, t0)
	env := &Env{Node: &Node{}, Objects: &s.store, Out: &s.out}
	p.watch(env)
	s.tell(objects...)
	return env
}

var yes = true

func keyRef(name, key string, optional *bool) *v1.EnvVarSource {
	return &v1.EnvVarSource{ConfigMapKeyRef: &v1.ConfigMapKeySelector{
		LocalObjectReference: v1.LocalObjectReference{Name: name}, Key: key, Optional: optional}}
}

func secretRef(name, key string, optional *bool) *v1.EnvVarSource {
	return &v1.EnvVarSource{SecretKeyRef: &v1.SecretKeySelector{
		LocalObjectReference: v1.LocalObjectReference{Name: name}, Key: key, Optional: optional}}
}

// text is an environment as lines of a shell.
func shell(env []*runtimeapi.KeyValue) string {
	var lines []string
	for _, v := range env {
		lines = append(lines, v.Key+"="+string(v.Value))
	}
	return strings.Join(lines, " ")
}

func TestKeys(t *testing.T) {
	for _, c := range []struct {
		from      *v1.EnvVarSource
		want, err string
	}{
		{keyRef("c", "k", nil), "X=one", ""},
		{secretRef("s", "k", nil), "X=two", ""},
		{keyRef("c", "none", nil), "", "couldn't find key none in ConfigMap default/c"},
		{secretRef("s", "none", nil), "", "couldn't find key none in Secret default/s"},
		{keyRef("c", "none", &yes), "", ""},
		{keyRef("gone", "k", nil), "", `configmap "gone" not found`},
		{secretRef("gone", "k", nil), "", `secret "gone" not found`},
		{secretRef("gone", "k", &yes), "", ""},
	} {
		s := spec(v1.RestartPolicyAlways, "", "web")
		s.Spec.Containers[0].Env = []v1.EnvVar{{Name: "X", ValueFrom: c.from}}
		p := facts(s)
		env := knowing(p, configMap("c", "1", map[string]string{"k": "one"}),
			secret("s", "1", map[string]string{"k": "two"}))
		got, err := p.environment(p.want("web"), env)
		if shell(got) != c.want || err != nil != (c.err != "") || err != nil && err.Error() != c.err {
			t.Errorf("%v: %q, %v; want %q, %q", c.from, shell(got), err, c.want, c.err)
		}
	}
}

// Whole objects come first, in the order of their keys; what the spec names takes their place.
func TestEnvFrom(t *testing.T) {
	from := func(prefix, name string, optional *bool) v1.EnvFromSource {
		return v1.EnvFromSource{Prefix: prefix, ConfigMapRef: &v1.ConfigMapEnvSource{
			LocalObjectReference: v1.LocalObjectReference{Name: name}, Optional: optional}}
	}
	s := spec(v1.RestartPolicyAlways, "", "web")
	s.Spec.Containers[0].EnvFrom = []v1.EnvFromSource{
		from("", "c", nil), from("P-", "c", nil), from("", "gone", &yes),
		{SecretRef: &v1.SecretEnvSource{LocalObjectReference: v1.LocalObjectReference{Name: "s"}}}}
	s.Spec.Containers[0].Env = []v1.EnvVar{{Name: "b", Value: "own"}, {Name: "D", Value: "$(a)$(z)"}}
	p := facts(s)
	env := knowing(p, configMap("c", "1", map[string]string{"b": "2", "a": "1", "x.y": "$(a)"}),
		secret("s", "1", map[string]string{"a": "secret", "z": "9"}))
	got, err := p.environment(p.want("web"), env)
	want := "a=secret b=own x.y=$(a) P-a=1 P-b=2 P-x.y=$(a) z=9 D=secret9"
	if shell(got) != want || err != nil {
		t.Errorf("%s, %v; want %s", shell(got), err, want)
	}
	s.Spec.Containers[0].EnvFrom[2].ConfigMapRef.Optional = nil
	if _, err = p.environment(p.want("web"), env); err == nil ||
		err.Error() != `configmap "gone" not found` {
		t.Errorf("%v", err)
	}
}

// A container waits for what its variables are taken from, says what is missing, and is made when
// that is there.
func TestAContainerWaitsForItsObjects(t *testing.T) {
	s := spec(v1.RestartPolicyAlways, "", "web")
	s.Spec.Containers[0].Env = []v1.EnvVar{{Name: "X", ValueFrom: keyRef("c", "k", nil)}}
	p := facts(s)
	p.Dir, p.LogDirs = true, []string{"web"}
	r := newRig(t, p)
	api := &server{}
	r.env.Objects = &api.store
	p.Storage.Hosts = sumOf([]byte(p.hostsFile(r.env.Node)))
	r.at(0).none("CreateContainer")
	if got := p.waiting("web", App); got.Reason != "ContainerCreating" {
		t.Errorf("waits for what is soon known: %+v", got)
	}
	api.tell()
	r.at(time.Second).none("CreateContainer")
	if got := p.waiting("web", App); got.Reason != "CreateContainerConfigError" ||
		got.Message != `configmap "c" not found` {
		t.Errorf("%+v", got)
	}
	api.tell(configMap("c", "1", map[string]string{"k": "v"}))
	got := r.at(2 * time.Second).want("CreateContainer").Body.(*runtimeapi.CreateContainerRequest)
	if env := shell(got.Config.Envs); env != "X=v" {
		t.Errorf("environment %s", env)
	}
	if got := p.waiting("web", App); got.Reason != "ContainerCreating" {
		t.Errorf("%+v after all is there", got)
	}
}

// While the server cannot be asked, that is told as what is missing.
func TestAContainerSaysThatTheServerIsAway(t *testing.T) {
	s := spec(v1.RestartPolicyAlways, "", "web")
	s.Spec.Containers[0].Env = []v1.EnvVar{{Name: "X", ValueFrom: keyRef("c", "k", nil)}}
	p := facts(s)
	r := newRig(t, p)
	api := &server{}
	r.env.Objects = &api.store
	r.at(0)
	for id, key := range api.store.Keys {
		if api.store.Watches[key].About.Resource == world.ResourceServices {
			api.store.Take(&world.ObjectsListed{Watch: id}, t0)
			continue
		}
		api.store.Take(&world.WatchFailing{Watch: id,
			Err: world.Errorf(world.KindUnavailable, "", "")}, t0)
	}
	r.at(time.Second)
	if got := p.waiting("web", App); got.Message !=
		"failed to sync configmap cache: timed out waiting for the condition" {
		t.Errorf("%+v", got)
	}
}

// What a pod refers to is watched from when it is known until it has ended.
func TestReferencesAreWatched(t *testing.T) {
	s := spec(v1.RestartPolicyAlways, "setup", "web")
	s.Spec.ImagePullSecrets = []v1.LocalObjectReference{{Name: "pull"}, {}}
	s.Spec.InitContainers[0].EnvFrom = []v1.EnvFromSource{{SecretRef: &v1.SecretEnvSource{
		LocalObjectReference: v1.LocalObjectReference{Name: "pull"}}}}
	s.Spec.Containers[0].Env = []v1.EnvVar{{Name: "X", ValueFrom: keyRef("c", "k", nil)}}
	s.Spec.Volumes = []v1.Volume{{VolumeSource: v1.VolumeSource{
		ConfigMap: &v1.ConfigMapVolumeSource{LocalObjectReference: v1.LocalObjectReference{
			Name: "v"}}}}}
	p := facts(s)
	var store object.Store
	env := &Env{Node: &Node{}, Objects: &store, Out: &op.Out{}}
	watched := func(when string, want ...string) {
		t.Helper()
		env.Out.Begin(&op.Table{}, t0)
		p.watch(env)
		got := []string{}
		for _, w := range p.Watching.About {
			if store.Watch(w) != nil {
				got = append(got, object.Key(w))
			}
		}
		if d := cmp.Diff(want, got); d != "" || len(store.Watches) != len(want) {
			t.Errorf("%s: %d watches, %s", when, len(store.Watches), d)
		}
	}
	watched("new", "configmaps/default/c", "configmaps/default/v", "secrets/default/pull",
		"services//")
	changed := s.DeepCopy()
	changed.Spec.Volumes = nil
	p.Want(changed, t0)
	watched("changed", "configmaps/default/c", "secrets/default/pull", "services//")
	p.Unwant(t0)
	watched("ending", "configmaps/default/c", "secrets/default/pull", "services//")
	p.Stage = Terminated
	watched("ended", []string{}...)
}
