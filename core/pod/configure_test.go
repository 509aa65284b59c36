package pod

import (
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

// envPod returns a pod with labels, IPs and two containers, of which only the init container has
// resources.
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
	p := podWith(pod)
	p.Sandboxes[0].IPs = []string{"10.0.0.7", "fd00::7"}
	return p
}

// A container with the pod's IP in its environment is not created before the IP is known; any other
// container is.
func TestEnvironmentWaitsForPodIP(t *testing.T) {
	for _, test := range []struct {
		from  *v1.EnvVarSource
		waits bool
	}{
		{nil, false}, {field("metadata.name"), false}, {resourceOf("", "limits.cpu", ""), false},
		{field("status.podIP"), true}, {field("status.podIPs"), true},
	} {
		p := envPod()
		container := p.specContainer("web")
		container.Env = []v1.EnvVar{{Name: "A", ValueFrom: test.from}}
		p.Sandboxes[0].Inspected = false
		if got := p.hasKnownEnvironment(container, &Env{}); got == test.waits {
			t.Errorf("%v before the sandbox is inspected: known %v", test.from, got)
		}
		if test.waits && p.createContainer(container, &Env{Node: &Node{}}) {
			t.Errorf("%v: a container is created without the pod's IP", test.from)
		}
		p.Sandboxes[0].Inspected = true
		if !p.hasKnownEnvironment(container, &Env{}) {
			t.Errorf("%v after the sandbox was inspected: not known", test.from)
		}
	}
}

// The completed inspection of the sandbox causes the creation of the container, with the IP of the
// sandbox.
func TestPodIPReachesTheContainer(t *testing.T) {
	p := podWith(spec(v1.RestartPolicyAlways, "", "web"))
	p.specContainer("web").Env = []v1.EnvVar{{Name: "IP", ValueFrom: field("status.podIP")}}
	p.Sandboxes[0].Inspected, p.DirCreated, p.LogDirs = false, true, []string{"web"}
	var table op.Table
	env := &Env{Node: &Node{}, Effects: &op.Effects{}, Images: &image.Store{
		Images: map[string]*image.Image{"i": {ID: "sha", InspectedID: "sha", PulledAt: t0.Add(1)}},
	}}
	env.Effects.Reset(&table, t0)
	p.Plan(env)
	inspect := p.Sandboxes[0].InspectOp
	if inspect == 0 || p.Op != 0 {
		t.Fatalf("inspection %d, operation %d; want only an inspection", inspect, p.Op)
	}
	record, _ := table.Complete(inspect)
	p.HandleCompletion(inspect, record,
		world.Event{Time: t0, Body: &runtimeapi.PodSandboxStatusResponse{
			Status: &runtimeapi.PodSandboxStatus{
				Network: &runtimeapi.PodSandboxNetworkStatus{Ip: "10.0.0.9"},
			},
		}}, env)
	p.Storage.HostsChecksum = hostsChecksum([]byte(p.criPod(env).HostsFileContent()))
	env.Effects.Reset(&table, t0)
	p.Plan(env)
	for _, effect := range env.Effects.List() {
		if create, ok := effect.Body.(*runtimeapi.CreateContainerRequest); ok {
			if got := create.Config.Envs; len(got) != 1 || string(got[0].Value) != "10.0.0.9" {
				t.Errorf("environment %v, want the IP 10.0.0.9", got)
			}
			return
		}
	}
	t.Errorf("no container is created: %v", env.Effects.List())
}

func ref[T any](v T) *T { return &v }

// secured returns an observed pod with these security contexts of the pod and of its app container.
func secured(pod *v1.PodSecurityContext, container *v1.SecurityContext) *Pod {
	s := spec(v1.RestartPolicyAlways, "", "web")
	s.Spec.SecurityContext, s.Spec.Containers[0].SecurityContext = pod, container
	return podWith(s)
}

// A container that is to run as root and must not is never created; the status has the reason until
// the spec is corrected.
func TestRunAsNonRootRefusesRoot(t *testing.T) {
	p := secured(&v1.PodSecurityContext{RunAsNonRoot: ref(true)},
		&v1.SecurityContext{RunAsUser: ref(int64(0))})
	container := p.specContainer("web")
	env := &Env{Node: &Node{}, Effects: &op.Effects{}}
	for range 2 { // each plan tries it again
		if p.createContainer(container, env) || p.Op != 0 || len(p.Problems) != 1 {
			t.Fatalf("operation %d, problems %v", p.Op, p.Problems)
		}
	}
	if n := len(env.Effects.List()); n != 1 {
		t.Errorf("%d events", n)
	}
	waiting := waiting(p)
	const message = `container's runAsUser breaks non-root policy ` +
		`(pod: "p_default(u)", container: web)`
	if waiting.Reason != "CreateContainerConfigError" || waiting.Message != message {
		t.Errorf("%s: %s", waiting.Reason, waiting.Message)
	}
	container.SecurityContext.RunAsUser = ref(int64(7))
	p.checks = containerChecks{} // the spec was changed in place
	if p.recordMisconfiguration(container, p.criPod(env), env) || len(p.Problems) != 0 {
		t.Errorf("user 7 is refused, or problems remain: %v", p.Problems)
	}
	container.SecurityContext = &v1.SecurityContext{
		RunAsUser: ref(int64(0)), RunAsNonRoot: ref(false),
	}
	p.checks = containerChecks{}
	if p.recordMisconfiguration(container, p.criPod(env), env) {
		t.Error("root is refused to a container that may run as root, unlike the rest of its pod")
	}
}

// An ephemeral container waits for its target to exist, and then has its processes.
func TestEphemeralContainerFindsItsTarget(t *testing.T) {
	s := spec(v1.RestartPolicyAlways, "", "web")
	s.Spec.EphemeralContainers = []v1.EphemeralContainer{{TargetContainerName: "web",
		EphemeralContainerCommon: v1.EphemeralContainerCommon{Name: "debug", Image: "i"}}}
	for _, exists := range []bool{false, true} {
		p := podWith(s)
		if exists {
			c := run("web", 0, Running)
			c.Hash, c.RunningSeenAt = containerHash(&s.Spec.Containers[0]), t0
			p = podWith(s, c)
		}
		p.DirCreated, p.LogDirs = true, []string{"web", "debug"}
		r := newHarness(t, p).planAt(0)
		created := r.expectCall("CreateContainer").Body.(*runtimeapi.CreateContainerRequest)
		pr := p.ProblemOf("debug")
		if !exists {
			const want = "unable to find target container web"
			if pr == nil || pr.Reason != "CreateContainerConfigError" || pr.Message != want ||
				created.Config.Metadata.Name != "web" {
				t.Errorf("without the target: %+v, created %v", pr, created.Config.Metadata)
			}
			continue
		}
		namespaces := created.Config.Linux.SecurityContext.NamespaceOptions
		if created.Config.Metadata.Name != "debug" ||
			namespaces.Pid != runtimeapi.NamespaceMode_TARGET ||
			namespaces.TargetId != p.NewestRun("web").ID || pr != nil {
			t.Errorf("created %v with %v, problem %+v", created.Config.Metadata, namespaces, pr)
		}
	}
}
