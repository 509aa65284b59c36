package pod

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"seedlet.dev/core/manifest"
	"seedlet.dev/core/objectcache"
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
	object := &v1.Secret{ObjectMeta: meta(name, version), Data: map[string][]byte{}}
	for key, value := range data {
		object.Data[key] = []byte(value)
	}
	return world.Object{Secret: object}
}

// fakeServer is the API server as a pod sees it.
type fakeServer struct {
	store objectcache.Store
	out   op.Effects
}

// list completes the lists of all watches: these objects exist, and no others.
func (s *fakeServer) list(objects ...world.Object) *fakeServer {
	for _, name := range []string{"configmaps", "secrets", "services"} {
		r := world.Resource(name)
		for id, key := range s.store.Keys {
			about := s.store.Watches[key].Target
			if about.Resource != r {
				continue
			}
			listed := &world.ObjectsListed{Watch: id}
			for i := range objects {
				of, meta := objects[i].Meta()
				if of == r && (about.Name == "" || about.Name == meta.GetName()) {
					listed.Objects = append(listed.Objects, objects[i])
				}
			}
			s.store.HandleWatchEvent(listed, t0)
		}
	}
	return s
}

func keyRef(name, key string, optional *bool) *v1.EnvVarSource {
	return &v1.EnvVarSource{ConfigMapKeyRef: &v1.ConfigMapKeySelector{
		LocalObjectReference: v1.LocalObjectReference{Name: name}, Key: key, Optional: optional}}
}

// A container waits for the objects of its environment variables, the status has the missing
// object, and the container is created when the object exists.
func TestContainerWaitsForReferences(t *testing.T) {
	s := spec(v1.RestartPolicyAlways, "", "web")
	s.Spec.Containers[0].Env = []v1.EnvVar{{Name: "X", ValueFrom: keyRef("c", "k", nil)}}
	p := podWith(s)
	p.DirCreated, p.LogDirs = true, []string{"web"}
	r := newHarness(t, p)
	api := &fakeServer{}
	r.env.Objects = &api.store
	p.Storage.HostsChecksum = hostsChecksum([]byte(p.criPod(r.env).HostsFileContent()))
	r.planAt(0).expectNoCall("CreateContainer")
	if got := waiting(p); got.Reason != "ContainerCreating" {
		t.Errorf("before the objects are listed: %+v", got)
	}
	api.list()
	r.planAt(time.Second).expectNoCall("CreateContainer")
	if got := waiting(p); got.Reason != "CreateContainerConfigError" ||
		got.Message != `configmap "c" not found` {
		t.Errorf("%+v", got)
	}
	api.list(configMap("c", "1", map[string]string{"k": "v"}))
	created := r.planAt(2 * time.Second).expectCall("CreateContainer")
	got := created.Body.(*runtimeapi.CreateContainerRequest)
	if env := got.Config.Envs; len(env) != 1 || env[0].Key+"="+string(env[0].Value) != "X=v" {
		t.Errorf("environment %v", env)
	}
	if got := waiting(p); got.Reason != "ContainerCreating" {
		t.Errorf("%+v after the objects are listed", got)
	}
}

// While the API server is not available, the status says so in place of a missing object.
func TestContainerReportsUnavailableServer(t *testing.T) {
	s := spec(v1.RestartPolicyAlways, "", "web")
	s.Spec.Containers[0].Env = []v1.EnvVar{{Name: "X", ValueFrom: keyRef("c", "k", nil)}}
	p := podWith(s)
	r := newHarness(t, p)
	api := &fakeServer{}
	r.env.Objects = &api.store
	r.planAt(0)
	for id, key := range api.store.Keys {
		if api.store.Watches[key].Target.Resource == world.ResourceServices {
			api.store.HandleWatchEvent(&world.ObjectsListed{Watch: id}, t0)
			continue
		}
		api.store.HandleWatchEvent(&world.WatchFailing{Watch: id,
			Err: world.Errorf(world.KindUnavailable, "", "")}, t0)
	}
	r.planAt(time.Second)
	if got := waiting(p); got.Message !=
		"failed to sync configmap cache: timed out waiting for the condition" {
		t.Errorf("%+v", got)
	}
}

// The objects that a pod refers to are watched until the pod has terminated.
func TestReferencesAreWatched(t *testing.T) {
	s := spec(v1.RestartPolicyAlways, "setup", "web")
	s.Spec.ImagePullSecrets = []v1.LocalObjectReference{{Name: "pull"}, {}}
	s.Spec.InitContainers[0].EnvFrom = []v1.EnvFromSource{{SecretRef: &v1.SecretEnvSource{
		LocalObjectReference: v1.LocalObjectReference{Name: "pull"}}}}
	s.Spec.Containers[0].Env = []v1.EnvVar{{Name: "X", ValueFrom: keyRef("c", "k", nil)}}
	s.Spec.Volumes = []v1.Volume{{VolumeSource: v1.VolumeSource{
		ConfigMap: &v1.ConfigMapVolumeSource{LocalObjectReference: v1.LocalObjectReference{
			Name: "v"}}}}}
	s.Spec.Volumes = append(s.Spec.Volumes, v1.Volume{VolumeSource: v1.VolumeSource{
		AzureFile: &v1.AzureFileVolumeSource{SecretName: "share"}}})
	p := podWith(s)
	var store objectcache.Store
	env := &Env{Node: &Node{}, Objects: &store, Effects: &op.Effects{}}
	watched := func(when string, want ...string) {
		t.Helper()
		env.Effects.Reset(&op.Table{}, t0)
		p.watchReferences(env)
		got := []string{}
		for _, w := range p.Watches.Objects {
			if store.Watch(w) != nil {
				got = append(got, objectcache.Key(w))
			}
		}
		if d := cmp.Diff(want, got); d != "" || len(store.Watches) != len(want) {
			t.Errorf("%s: %d watches, %s", when, len(store.Watches), d)
		}
	}
	watched("new", "configmaps/default/v", "secrets/default/share", "secrets/default/pull",
		"configmaps/default/c", "services//")
	changed := s.DeepCopy()
	changed.Spec.Volumes = nil
	p.SetDesired(changed, nil, t0)
	watched("changed", "secrets/default/pull", "configmaps/default/c", "services//")
	p.ClearDesired(t0)
	watched("ending", "secrets/default/pull", "configmaps/default/c", "services//")
	p.Stage = Terminated
	watched("ended", []string{}...)
}

// A pod of the API server waits for the first list of services; a static pod does not.
func TestContainerWaitsForServices(t *testing.T) {
	for source, waits := range map[string]bool{"": true, "api": true, "file": false} {
		s := spec(v1.RestartPolicyAlways, "", "web")
		s.Annotations = map[string]string{manifest.ConfigSourceAnnotation: source}
		p := podWith(s)
		api := &fakeServer{}
		env := &Env{Node: &Node{}, Objects: &api.store, Effects: &api.out}
		if p.watchReferences(env); p.hasKnownEnvironment(p.specContainer("web"), env) == waits {
			t.Errorf("source %q: ready %v before services are listed", source, !waits)
		}
		api.store.HandleWatchEvent(&world.WatchFailing{Watch: 1,
			Err: world.Errorf(world.KindUnavailable, "", "")}, t0)
		_, err := p.criPod(env).Environment(p.specContainer("web"))
		if !p.hasKnownEnvironment(p.specContainer("web"), env) || (err != nil) != waits {
			t.Errorf("source %q: %v while the server is away", source, err)
		}
		if api.list(); !p.hasKnownEnvironment(p.specContainer("web"), env) {
			t.Errorf("source %q: not ready after services are listed", source)
		}
	}
}
