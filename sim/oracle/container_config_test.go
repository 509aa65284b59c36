package oracle

import (
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"seedlet.dev/sim/truth"
)

// configured is a spec with its container, and the configuration that the spec asks for.
func configured() (*v1.Pod, *runtimeapi.ContainerConfig) {
	pod := spec("u1", always, "app")
	pod.Namespace, pod.Name = "ns", "web"
	pod.Spec.Volumes = []v1.Volume{{Name: "data",
		VolumeSource: v1.VolumeSource{EmptyDir: &v1.EmptyDirVolumeSource{}}}}
	c := &pod.Spec.Containers[0]
	c.Image, c.Command = "image:1", []string{"/app", "$(A)", "$$(A)", "$(B)"}
	c.Env = []v1.EnvVar{{Name: "A", Value: "one"}}
	c.VolumeMounts = []v1.VolumeMount{{Name: "data", MountPath: "data", ReadOnly: true}}
	c.Resources.Requests = v1.ResourceList{v1.ResourceMemory: resource.MustParse("1Gi")}
	c.Resources.Limits = v1.ResourceList{v1.ResourceCPU: resource.MustParse("500m")}
	profile := func(t runtimeapi.SecurityProfile_ProfileType) *runtimeapi.SecurityProfile {
		return &runtimeapi.SecurityProfile{ProfileType: t}
	}
	return pod, &runtimeapi.ContainerConfig{
		Image:   &runtimeapi.ImageSpec{UserSpecifiedImage: "image:1"},
		Command: []string{"/app", "one", "$(A)", "$(B)"},
		LogPath: "app/0.log",
		Labels: map[string]string{"io.kubernetes.pod.name": "web", "io.kubernetes.pod.namespace": "ns",
			"io.kubernetes.pod.uid": "u1", "io.kubernetes.container.name": "app"},
		Annotations: map[string]string{annotationRestarts: "0"},
		Mounts: []*runtimeapi.Mount{
			{ContainerPath: "/etc/hosts", HostPath: podsDir + "/u1/etc-hosts"},
			{ContainerPath: "/data", HostPath: podsDir + "/u1/volumes/kubernetes.io~empty-dir/data",
				Readonly: true},
		},
		Linux: &runtimeapi.LinuxContainerConfig{
			Resources: &runtimeapi.LinuxContainerResources{CpuShares: 512, CpuQuota: 50_000,
				CpuPeriod: 100_000, OomScoreAdj: 938},
			SecurityContext: &runtimeapi.LinuxContainerSecurityContext{
				NamespaceOptions: &runtimeapi.NamespaceOption{Pid: runtimeapi.NamespaceMode_CONTAINER},
				MaskedPaths:      []string{"/proc/kcore"},
				Seccomp:          profile(runtimeapi.SecurityProfile_Unconfined),
			},
		},
	}
}

func TestContainerConfig(t *testing.T) {
	with := func(change func(*runtimeapi.ContainerConfig)) func(*script) {
		return func(s *script) {
			pod, config := configured()
			change(config)
			s.model.opts.MemoryBytes = 16 << 30
			s.setDesired(pod)
			s.addFact(truth.ContainerCreated, truth.Fact{
				SandboxID: s.sandbox("u1", 0), Container: "app", ContainerID: "u1-app#0",
				ContainerConfig: config, Env: map[string]string{"A": "one"},
				Annotations: map[string]string{annotationRestarts: "0",
					annotationHash: containerHash(&pod.Spec.Containers[0])},
			})
		}
	}
	context := func(c *runtimeapi.ContainerConfig) *runtimeapi.LinuxContainerSecurityContext {
		return c.Linux.SecurityContext
	}
	runCases(t, []testCase{
		{"as its spec says", "", with(func(*runtimeapi.ContainerConfig) {})},
		{"another image", "container-config", with(func(c *runtimeapi.ContainerConfig) {
			c.Image.UserSpecifiedImage = "image:2"
		})},
		{"a reference that is not expanded", "container-config", with(
			func(c *runtimeapi.ContainerConfig) { c.Command[1] = "$(A)" })},
		{"a volume that can be written", "container-config", with(
			func(c *runtimeapi.ContainerConfig) { c.Mounts[1].Readonly = false })},
		{"a mount that is missing", "container-config", with(
			func(c *runtimeapi.ContainerConfig) { c.Mounts = c.Mounts[:1] })},
		{"a mount that nobody asked for", "container-config", with(
			func(c *runtimeapi.ContainerConfig) {
				c.Mounts = append(c.Mounts, &runtimeapi.Mount{ContainerPath: "/root", HostPath: "/"})
			})},
		{"more CPU", "container-config", with(func(c *runtimeapi.ContainerConfig) {
			c.Linux.Resources.CpuQuota = 60_000
		})},
		{"another score", "container-config", with(func(c *runtimeapi.ContainerConfig) {
			c.Linux.Resources.OomScoreAdj = 937
		})},
		{"privileges", "container-config", with(func(c *runtimeapi.ContainerConfig) {
			context(c).Privileged = true
		})},
		{"the processes of the node", "container-config", with(func(c *runtimeapi.ContainerConfig) {
			context(c).NamespaceOptions.Pid = runtimeapi.NamespaceMode_NODE
		})},
		{"a group", "container-config", with(func(c *runtimeapi.ContainerConfig) {
			context(c).SupplementalGroups = []int64{0}
		})},
		{"an open /proc", "container-config", with(func(c *runtimeapi.ContainerConfig) {
			context(c).MaskedPaths = nil
		})},
		{"the log of another run", "container-config", with(func(c *runtimeapi.ContainerConfig) {
			c.LogPath = "app/1.log"
		})},
		{"the labels of another pod", "container-config", with(func(c *runtimeapi.ContainerConfig) {
			c.Labels["io.kubernetes.pod.uid"] = "u2"
		})},
	})
}

// A container whose creation takes effect after its pod was removed is not judged by a claim that
// was made later under the name of its own.
func TestContainerWithAnEarlierClaim(t *testing.T) {
	with := func(madeAfter time.Duration) func(*script) {
		return func(s *script) {
			pod, config := configured()
			pod.Spec.Volumes[0].VolumeSource = v1.VolumeSource{
				PersistentVolumeClaim: &v1.PersistentVolumeClaimVolumeSource{ClaimName: "data"}}
			config.Mounts[1].HostPath = "/old"
			s.model.opts.MemoryBytes = 16 << 30
			s.setDesired(pod)
			sandboxID := s.sandbox("u1", 0)
			s.wait(10)
			s.PodNoLongerDesired(s.now, "u1")
			s.model.volumes.claims = map[string]*v1.PersistentVolumeClaim{"ns/data": {
				ObjectMeta: metav1.ObjectMeta{CreationTimestamp: metav1.NewTime(s.now.Add(madeAfter))},
				Spec:       v1.PersistentVolumeClaimSpec{VolumeName: "pv"}}}
			s.model.volumes.volumes = map[string]*v1.PersistentVolume{"pv": {
				Spec: v1.PersistentVolumeSpec{PersistentVolumeSource: v1.PersistentVolumeSource{
					HostPath: &v1.HostPathVolumeSource{Path: "/new"}}}}}
			s.wait(10)
			s.addFact(truth.ContainerCreated, truth.Fact{SandboxID: sandboxID, Container: "app",
				ContainerID: "u1-app#0", ContainerConfig: config, Env: map[string]string{"A": "one"},
				Annotations: map[string]string{annotationRestarts: "0",
					annotationHash: containerHash(&pod.Spec.Containers[0])}})
		}
	}
	runCases(t, []testCase{
		{"the claim is another one", "", with(5 * time.Second)},
		{"the claim is its own", "container-config", with(-5 * time.Second)},
	})
}

func TestExpand(t *testing.T) {
	env := map[string]string{"A": "one", "B": "$(A)"}
	for text, want := range map[string]string{ //ordered: each alone
		"$(A)": "one", "$(B)": "$(A)", "$$(A)": "$(A)", "$(C)": "$(C)", "$(A": "$(A", "a$": "a$",
		"$$$(A)": "$one", "x$(A)y$(A)": "xoneyone",
	} {
		if got := expand(text, env); got != want {
			t.Errorf("%s becomes %s, want %s", text, got, want)
		}
	}
}
