package criconfig

import (
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

func field(path string) *v1.EnvVarSource {
	return &v1.EnvVarSource{FieldRef: &v1.ObjectFieldSelector{FieldPath: path}}
}

func resourceOf(container, name, divisor string) *v1.EnvVarSource {
	ref := &v1.ResourceFieldSelector{ContainerName: container, Resource: name}
	if divisor != "" {
		ref.Divisor = resource.MustParse(divisor)
	}
	return &v1.EnvVarSource{ResourceFieldRef: ref}
}

// envPod returns a pod with labels, IPs and two containers, of which only the init container has
// resources.
func envPod() *Pod {
	p := newPod()
	p.Node.Allocatable = map[v1.ResourceName]int64{v1.ResourceCPU: 4000, v1.ResourceMemory: 8 << 30,
		v1.ResourceEphemeralStorage: 10 << 30, "hugepages-2Mi": 1 << 30}
	p.IPs = []string{"10.0.0.7", "fd00::7"}
	pod := p.Spec
	pod.Labels = map[string]string{"app": "shop", "a.b/c": "$(A)"}
	pod.Annotations = map[string]string{"note": "two\nlines"}
	pod.Spec.NodeName = "node-a"
	pod.Spec.InitContainers[0].Resources = v1.ResourceRequirements{
		Limits: v1.ResourceList{
			"cpu": resource.MustParse("1500m"), "ephemeral-storage": resource.MustParse("1Gi"),
			"hugepages-2Mi": resource.MustParse("4Mi"),
		},
		Requests: v1.ResourceList{
			"cpu": resource.MustParse("250m"), "memory": resource.MustParse("1000001"),
		},
	}
	return p
}

func TestValueFrom(t *testing.T) {
	for _, test := range []struct {
		from *v1.EnvVarSource
		want string
	}{
		{field("metadata.name"), "p"},
		{field("metadata.namespace"), "default"},
		{field("metadata.uid"), "u"},
		{field("metadata.labels['app']"), "shop"},
		{field("metadata.labels['a.b/c']"), "$(A)"}, // is not expanded
		{field("metadata.labels['none']"), ""},
		{field("metadata.annotations['note']"), "two\nlines"},
		{field("spec.nodeName"), "node-a"},
		{field("spec.serviceAccountName"), ""},
		{field("status.podIP"), "10.0.0.7"},
		{field("status.podIPs"), "10.0.0.7,fd00::7"},

		{resourceOf("setup", "limits.cpu", ""), "2"}, // rounded up
		{resourceOf("setup", "limits.cpu", "1m"), "1500"},
		{resourceOf("setup", "requests.cpu", "1m"), "250"},
		{resourceOf("setup", "requests.memory", ""), "1000001"},
		{resourceOf("setup", "requests.memory", "1M"), "2"},
		{resourceOf("setup", "limits.ephemeral-storage", "1Mi"), "1024"},
		{resourceOf("setup", "limits.hugepages-2Mi", "1Mi"), "4"},
		{resourceOf("setup", "limits.memory", "1Gi"), "8"}, // the node's allocatable
		{resourceOf("", "limits.ephemeral-storage", "1Gi"), "10"},
		{resourceOf("", "limits.hugepages-2Mi", ""), "0"},
		{resourceOf("", "limits.cpu", ""), "4"},
		{resourceOf("", "limits.cpu", "1m"), "4000"},
		{resourceOf("", "requests.cpu", ""), "0"},
		{resourceOf("", "requests.ephemeral-storage", ""), "0"},
	} {
		c := &v1.Container{Name: "web", Env: []v1.EnvVar{
			{Name: "A", Value: "1"}, {Name: "B", ValueFrom: test.from}, {Name: "C", Value: "<$(B)>"},
		}}
		env, err := envPod().Environment(c)
		if err != nil {
			t.Errorf("%v: %v", test.from, err)
			continue
		}
		if got, after := string(env.List[1].Value), string(env.List[2].Value); got != test.want ||
			after != "<"+test.want+">" {
			t.Errorf("%v: %q, used as %q; want %q", test.from, got, after, test.want)
		}
	}
}

func TestValueFromFails(t *testing.T) {
	for _, test := range []struct {
		from *v1.EnvVarSource
		want string
	}{
		{field("status.qosClass"), "unsupported fieldPath: status.qosClass"},
		{field("metadata.labels"), "unsupported fieldPath: metadata.labels"},
		{field("spec.x['a']"), "unsupported fieldPath: spec.x['a']"},
		{resourceOf("other", "limits.cpu", ""), "container other not found"},
		{resourceOf("", "usage.cpu", ""), "unsupported container resource : usage.cpu"},
		{resourceOf("", "limits.example.com/gpu", ""),
			"unsupported container resource : limits.example.com/gpu"},
		{resourceOf("", "requests.storage", ""), "unsupported container resource : requests.storage"},
		{&v1.EnvVarSource{}, "its source is not supported"},
	} {
		c := &v1.Container{Name: "web", Env: []v1.EnvVar{{Name: "A", ValueFrom: test.from}}}
		env, err := envPod().Environment(c)
		if env != nil || err == nil || err.Error() != "environment variable A: "+test.want {
			t.Errorf("%v: %v, %v; want %s", test.from, env, err, test.want)
		}
	}
}

func TestExpand(t *testing.T) {
	env, err := envPod().Environment(&v1.Container{Env: []v1.EnvVar{
		{Name: "A", Value: "1"}, {Name: "B", Value: "$(A)2"}, {Name: "C", Value: "$(D)$$(A)$(B"},
	}})
	if err != nil {
		t.Fatal(err)
	}
	for text, want := range map[string]string{
		"$(A)-$(B)": "1-12", "$(C)": "$(D)$(A)$(B", "$$(A)": "$(A)", "$": "$", "a$b": "a$b",
	} {
		if got, fits := expand(text, 99, env); got != want || !fits {
			t.Errorf("expand(%q) = %q, want %q", text, got, want)
		}
	}
}
