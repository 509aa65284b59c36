package criconfig

import (
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"seedlet.dev/core/objectcache"
	"seedlet.dev/core/op"
	"seedlet.dev/world"
)

func ref[T any](v T) *T { return &v }

// newPod returns pod default/p with the init container "setup" and the app container "web", on a
// node without anything.
func newPod() *Pod {
	spec := &v1.Pod{ObjectMeta: metav1.ObjectMeta{UID: "u", Namespace: "default", Name: "p"}}
	spec.Spec.InitContainers = []v1.Container{{Name: "setup", Image: "i"}}
	spec.Spec.Containers = []v1.Container{{Name: "web", Image: "i"}}
	return &Pod{Spec: spec, Node: &Node{PodsDir: "/pods", LogsDir: "/logs"}}
}

// setVolumes gives the pod these volumes and no others.
func (p *Pod) setVolumes(volumes ...v1.Volume) {
	p.Spec.Spec.Volumes = volumes
	p.Volumes = VolumesByName(&p.Spec.Spec)
}

// web returns the app container of newPod.
func (p *Pod) web() *v1.Container { return &p.Spec.Spec.Containers[0] }

func resources(cpu, memory string) v1.ResourceList {
	return v1.ResourceList{v1.ResourceCPU: resource.MustParse(cpu),
		v1.ResourceMemory: resource.MustParse(memory)}
}

func configMap(name string, data map[string]string) world.Object {
	return world.Object{ConfigMap: &v1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name}, Data: data}}
}

func secret(name string, data map[string]string) world.Object {
	s := &v1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name},
		Data: map[string][]byte{}}
	for key, value := range data {
		s.Data[key] = []byte(value)
	}
	return world.Object{Secret: s}
}

func service(namespace, name, ip string, ports ...v1.ServicePort) world.Object {
	return world.Object{Service: &v1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Spec:       v1.ServiceSpec{ClusterIP: ip, Ports: ports}}}
}

// serve gives the pod an API server that has these objects and no others. The services and the
// ConfigMaps and Secrets "c", "s" and "gone" of the pod's namespace are watched.
func (p *Pod) serve(objects ...world.Object) {
	var out op.Effects
	out.Reset(&op.Table{}, time.Unix(0, 0))
	p.Objects = &objectcache.Store{}
	p.Objects.AddReference(AllServices, "u", &out)
	for _, name := range []string{"c", "s", "gone"} {
		for _, r := range []world.Resource{world.ResourceConfigMaps, world.ResourceSecrets} {
			p.Objects.AddReference(world.WatchTarget{Resource: r, Namespace: p.Spec.Namespace, Name: name},
				"u",
				&out)
		}
	}
	for id, key := range p.Objects.Keys {
		about := p.Objects.Watches[key].Target
		listed := &world.ObjectsListed{Watch: id}
		for i := range objects {
			r, meta := objects[i].Meta()
			if r == about.Resource && (about.Name == "" || about.Name == meta.GetName()) {
				listed.Objects = append(listed.Objects, objects[i])
			}
		}
		p.Objects.HandleWatchEvent(listed, time.Unix(0, 0))
	}
}

// shell returns an environment in the syntax of a shell.
func shell(env *Variables) string {
	var lines []string
	for i := 0; env != nil && i < len(env.List); i++ {
		v := env.List[i]
		lines = append(lines, v.Key+"="+string(v.Value))
	}
	return strings.Join(lines, " ")
}

// newVariables returns the variables of a list that has each name once.
func newVariables(list []*runtimeapi.KeyValue) *Variables {
	v := &Variables{List: list, index: make(map[string]int, len(list))}
	for i := range list {
		v.index[list[i].Key] = i
	}
	return v
}
