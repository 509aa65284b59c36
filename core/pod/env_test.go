package pod

import (
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"seedlet.dev/core/image"
	"seedlet.dev/core/op"
	"seedlet.dev/world"
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

// envPod has labels, IPs and two containers, of which only the first has resources.
func envPod() *Pod {
	pod := spec(v1.RestartPolicyAlways, "setup", "web")
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
	p := facts(pod)
	p.Sandboxes[0].IPs = []string{"10.0.0.7", "fd00::7"}
	return p
}

func TestValueFrom(t *testing.T) {
	node := &Node{CPUs: 4, MemoryBytes: 8 << 30}
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
		{resourceOf("setup", "limits.memory", "1Gi"), "8"}, // the node's
		{resourceOf("", "limits.cpu", ""), "4"},
		{resourceOf("", "limits.cpu", "1m"), "4000"},
		{resourceOf("", "requests.cpu", ""), "0"},
		{resourceOf("", "requests.ephemeral-storage", ""), "0"},
	} {
		c := &v1.Container{Name: "web", Env: []v1.EnvVar{
			{Name: "A", Value: "1"}, {Name: "B", ValueFrom: test.from}, {Name: "C", Value: "<$(B)>"},
		}}
		env, err := envPod().environment(c, &Env{Node: node})
		if err != nil {
			t.Errorf("%v: %v", test.from, err)
			continue
		}
		if got, after := string(env[1].Value), string(env[2].Value); got != test.want ||
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
		{resourceOf("", "usage.cpu", ""), "unsupported container resource: usage.cpu"},
		{&v1.EnvVarSource{FileKeyRef: &v1.FileKeySelector{}}, "its source is not supported"},
	} {
		c := &v1.Container{Name: "web", Env: []v1.EnvVar{{Name: "A", ValueFrom: test.from}}}
		env, err := envPod().environment(c, &Env{Node: &Node{}})
		if env != nil || err == nil || err.Error() != "environment variable A: "+test.want {
			t.Errorf("%v: %v, %v; want %s", test.from, env, err, test.want)
		}
	}
}

// A container that is told the pod's IP is not made before that is known. Any other is.
func TestEnvReady(t *testing.T) {
	for _, test := range []struct {
		from  *v1.EnvVarSource
		waits bool
	}{
		{nil, false}, {field("metadata.name"), false}, {resourceOf("", "limits.cpu", ""), false},
		{field("status.podIP"), true}, {field("status.podIPs"), true},
	} {
		p := envPod()
		want := p.want("web")
		want.Env = []v1.EnvVar{{Name: "A", ValueFrom: test.from}}
		p.Sandboxes[0].Inspected = false
		if got := p.envReady(want, &Env{}); got == test.waits {
			t.Errorf("%v before the sandbox is inspected: ready %v", test.from, got)
		}
		if test.waits && p.create(want, &Env{Node: &Node{}}) {
			t.Errorf("%v: a container is made without the pod's IP", test.from)
		}
		p.Sandboxes[0].Inspected = true
		if !p.envReady(want, &Env{}) {
			t.Errorf("%v after the sandbox was inspected: not ready", test.from)
		}
	}
}

// The answer to the inspection is what gets the container made, and with the IP of its sandbox.
func TestPodIPReachesTheContainer(t *testing.T) {
	p := facts(spec(v1.RestartPolicyAlways, "", "web"))
	p.want("web").Env = []v1.EnvVar{{Name: "IP", ValueFrom: field("status.podIP")}}
	p.Sandboxes[0].Inspected, p.Dir, p.LogDirs = false, true, []string{"web"}
	var table op.Table
	env := &Env{Node: &Node{}, Out: &op.Out{}, Images: &image.Store{
		Images: map[string]*image.Image{"i": {ID: "sha", UserOf: "sha", PulledAt: t0.Add(1)}},
	}}
	env.Out.Begin(&table, t0)
	p.Plan(env)
	inspect := p.Sandboxes[0].InspectOp
	if inspect == 0 || p.Op != 0 {
		t.Fatalf("inspection %d, operation %d; want only an inspection", inspect, p.Op)
	}
	record, _ := table.Settle(inspect)
	p.Answered(inspect, record, world.Event{Time: t0, Body: &runtimeapi.PodSandboxStatusResponse{
		Status: &runtimeapi.PodSandboxStatus{
			Network: &runtimeapi.PodSandboxNetworkStatus{Ip: "10.0.0.9"},
		},
	}}, env)
	p.Storage.Hosts = sumOf([]byte(p.hostsFile(env.Node)))
	env.Out.Begin(&table, t0)
	p.Plan(env)
	for _, effect := range env.Out.Take() {
		if create, ok := effect.Body.(*runtimeapi.CreateContainerRequest); ok {
			if got := create.Config.Envs; len(got) != 1 || string(got[0].Value) != "10.0.0.9" {
				t.Errorf("environment %v, want the IP 10.0.0.9", got)
			}
			return
		}
	}
	t.Errorf("no container is made: %v", env.Out.Take())
}

func TestUnsupportedSources(t *testing.T) {
	for _, test := range []struct {
		from *v1.EnvVarSource
		host bool // network
		want string
	}{
		{field("metadata.name"), true, ""},
		{field("status.podIP"), false, ""},
		{field("status.podIPs"), true, ""},
		{field("status.hostIP"), false, ""},
		{resourceOf("", "limits.cpu", ""), false, ""},
		{resourceOf("setup", "limits.ephemeral-storage", ""), false, ""},
		{resourceOf("other", "limits.ephemeral-storage", ""), false, ""},
		{resourceOf("", "requests.ephemeral-storage", ""), false, ""},
		{resourceOf("", "limits.ephemeral-storage", ""), false,
			"resourceFieldRef (limits.ephemeral-storage without a limit)"},
		{&v1.EnvVarSource{ConfigMapKeyRef: &v1.ConfigMapKeySelector{}}, false, ""},
		{&v1.EnvVarSource{SecretKeyRef: &v1.SecretKeySelector{}}, false, ""},
		{&v1.EnvVarSource{FileKeyRef: &v1.FileKeySelector{}}, false, "fileKeyRef"},
	} {
		pod := envPod().Spec
		pod.Spec.HostNetwork = test.host
		pod.Spec.Containers[0].Env = []v1.EnvVar{{Name: "A"}, {Name: "B", ValueFrom: test.from}}
		want := ""
		if test.want != "" {
			want = "spec.containers[0].env[1].valueFrom." + test.want
		}
		if got := strings.Join(Unsupported(pod, false), "; "); got != want {
			t.Errorf("%v, host network %v: %q, want %q", test.from, test.host, got, want)
		}
	}
}

func TestExpand(t *testing.T) {
	env, err := envPod().environment(&v1.Container{Env: []v1.EnvVar{
		{Name: "A", Value: "1"}, {Name: "B", Value: "$(A)2"}, {Name: "C", Value: "$(D)$$(A)$(B"},
	}}, &Env{Node: &Node{}})
	if err != nil {
		t.Fatal(err)
	}
	for text, want := range map[string]string{
		"$(A)-$(B)": "1-12", "$(C)": "$(D)$(A)$(B", "$$(A)": "$(A)", "$": "$", "a$b": "a$b",
	} {
		if got := expand(text, env); got != want {
			t.Errorf("expand(%q) = %q, want %q", text, got, want)
		}
	}
}
