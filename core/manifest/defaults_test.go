package manifest

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"pgregory.net/rapid"
	"sigs.k8s.io/yaml"
)

// Specs and the API server's defaults for them.
var defaultCases = []struct{ name, in, want string }{
	{"an empty spec", `{}`, `
dnsPolicy: ClusterFirst
enableServiceLinks: true
restartPolicy: Always
schedulerName: default-scheduler
securityContext: {}
terminationGracePeriodSeconds: 30
containers: null
`},
	{"nothing that is set", `
dnsPolicy: Default
enableServiceLinks: false
restartPolicy: Never
schedulerName: mine
securityContext: {runAsUser: 5}
terminationGracePeriodSeconds: 0
containers: null
`, `
dnsPolicy: Default
enableServiceLinks: false
restartPolicy: Never
schedulerName: mine
securityContext: {runAsUser: 5}
terminationGracePeriodSeconds: 0
containers: null
`},
	{"containers", `
hostNetwork: true
containers:
- name: a
  image: nginx
  ports: [{containerPort: 80}]
  livenessProbe: {grpc: {port: 5}, periodSeconds: 3}
  lifecycle: {preStop: {httpGet: {port: 80}}}
  env: [{name: N, valueFrom: {fieldRef: {fieldPath: metadata.name}}}]
  securityContext: {privileged: true}
  resources: {limits: {cpu: 1, memory: 1Gi}, requests: {cpu: 100u}}
initContainers:
- {name: b, image: "nginx:1"}
volumes:
- name: e
- {name: h, hostPath: {path: /a}}
- {name: d, downwardAPI: {items: [{path: a, fieldRef: {fieldPath: metadata.name}}]}}
- {name: i, image: {reference: x}}
`, `
hostNetwork: true
containers:
- name: a
  image: nginx
  imagePullPolicy: Always
  ports: [{containerPort: 80, hostPort: 80, protocol: TCP}]
  livenessProbe: {grpc: {port: 5, service: ""}, periodSeconds: 3, timeoutSeconds: 1,
    successThreshold: 1, failureThreshold: 3}
  lifecycle: {preStop: {httpGet: {port: 80, path: /, scheme: HTTP}}}
  env: [{name: N, valueFrom: {fieldRef: {fieldPath: metadata.name, apiVersion: v1}}}]
  securityContext: {privileged: true}
  resources: {limits: {cpu: 1, memory: 1Gi}, requests: {cpu: 1m, memory: 1Gi}}
  terminationMessagePath: /dev/termination-log
  terminationMessagePolicy: File
initContainers:
- name: b
  image: "nginx:1"
  imagePullPolicy: IfNotPresent
  terminationMessagePath: /dev/termination-log
  terminationMessagePolicy: File
volumes:
- {name: e, emptyDir: {}}
- {name: h, hostPath: {path: /a, type: ""}}
- name: d
  downwardAPI:
    defaultMode: 420
    items: [{path: a, fieldRef: {fieldPath: metadata.name, apiVersion: v1}}]
- {name: i, image: {reference: x, pullPolicy: Always}}
dnsPolicy: ClusterFirst
enableServiceLinks: true
restartPolicy: Always
schedulerName: default-scheduler
securityContext: {}
terminationGracePeriodSeconds: 30
`},
}

func TestDefaults(t *testing.T) {
	for _, c := range defaultCases {
		t.Run(c.name, func(t *testing.T) {
			var pod, want v1.Pod
			parse(t, c.in, &pod.Spec)
			parse(t, c.want, &want.Spec)
			SetDefaults(&pod)
			if diff := cmp.Diff(want.Spec, pod.Spec); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestDefaultsOfPodResources(t *testing.T) {
	var pod v1.Pod
	parse(t, `
resources: {limits: {cpu: 4, memory: 4Gi}}
containers:
- {name: a, resources: {requests: {cpu: 1}}}
- {name: b, resources: {limits: {cpu: 500m}}}
`, &pod.Spec)
	SetDefaults(&pod)
	got := pod.Spec.Resources.Requests
	if got.Cpu().String() != "1500m" || got.Memory().String() != "4Gi" {
		t.Errorf("requests %v", got)
	}
}

func TestPullPolicyDependsOnTag(t *testing.T) {
	const digest = "@sha256:91fb4b041da273d5a3273b6d587d62d518300a6ad268b28628f74997b93171b2"
	for image, want := range map[string]v1.PullPolicy{
		"nginx":                 v1.PullAlways,
		"nginx:latest":          v1.PullAlways,
		"localhost:5000/a/b":    v1.PullAlways,
		"localhost:5000/a/b:1":  v1.PullIfNotPresent,
		"nginx" + digest:        v1.PullIfNotPresent,
		"nginx:latest" + digest: v1.PullAlways,
		"NotAReference":         v1.PullIfNotPresent,
		"":                      v1.PullIfNotPresent,
		// Too long to be parsed.
		strings.Repeat("h", 400<<10) + ".test/a:latest": v1.PullIfNotPresent,
	} {
		if got := pullPolicy(image); got != want {
			t.Errorf("%.40q: got %s, want %s", image, got, want)
		}
	}
}

// For any pod: defaults are idempotent, do not overwrite set fields, and do not change the hash of
// a container.
func TestDefaultsProperties(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		pod := generatePod(t)
		doc, err := json.Marshal(pod)
		if err != nil {
			t.Fatal(err)
		}
		once := pod.DeepCopy()
		SetDefaults(once)
		twice := once.DeepCopy()
		SetDefaults(twice)
		if diff := cmp.Diff(once, twice); diff != "" {
			t.Fatal("defaults are not idempotent:", diff)
		}
		for i := range pod.Spec.Containers {
			if ContainerHash(&pod.Spec.Containers[i]) != ContainerHash(&once.Spec.Containers[i]) {
				t.Fatal("defaults change a container's hash")
			}
		}
		if _, _, err := DecodeText("f", doc, "n"); err != nil {
			t.Fatalf("%v\n%s", err, doc)
		}
	})
}

// generatePod returns a valid pod in which each field with a default is set or not.
func generatePod(t *rapid.T) *v1.Pod {
	pod := &v1.Pod{}
	pod.APIVersion, pod.Kind, pod.Name = "v1", "Pod", "p"
	spec := &pod.Spec
	spec.HostNetwork = rapid.Bool().Draw(t, "hostNetwork")
	spec.RestartPolicy = rapid.SampledFrom([]v1.RestartPolicy{"", "Always", "Never"}).Draw(t, "rp")
	if rapid.Bool().Draw(t, "grace") {
		grace := rapid.Int64Range(0, 60).Draw(t, "graceSeconds")
		spec.TerminationGracePeriodSeconds = &grace
	}
	for i := range rapid.IntRange(1, 3).Draw(t, "containers") {
		c := v1.Container{Name: fmt.Sprint("c", i)}
		c.Image = rapid.SampledFrom([]string{"a", "a:1", "a:latest", "A?"}).Draw(t, "image")
		if rapid.Bool().Draw(t, "port") {
			c.Ports = []v1.ContainerPort{{ContainerPort: int32(80 + i)}}
		}
		if rapid.Bool().Draw(t, "limit") {
			milli := rapid.Int64Range(1, 4000).Draw(t, "milli")
			c.Resources.Limits = v1.ResourceList{
				v1.ResourceCPU: *resource.NewMilliQuantity(milli, resource.DecimalSI)}
		}
		if rapid.Bool().Draw(t, "probe") {
			c.LivenessProbe = &v1.Probe{PeriodSeconds: rapid.Int32Range(0, 9).Draw(t, "period")}
			c.LivenessProbe.Exec = &v1.ExecAction{Command: []string{"true"}}
		}
		if rapid.Bool().Draw(t, "volume") {
			spec.Volumes = append(spec.Volumes, v1.Volume{Name: fmt.Sprint("v", i)})
			c.VolumeMounts = []v1.VolumeMount{{Name: fmt.Sprint("v", i), MountPath: "/v"}}
		}
		spec.Containers = append(spec.Containers, c)
	}
	if rapid.Bool().Draw(t, "podLimits") {
		spec.Resources = &v1.ResourceRequirements{Limits: v1.ResourceList{
			v1.ResourceCPU: resource.MustParse("12"), v1.ResourceMemory: resource.MustParse("1Gi")}}
	}
	return pod
}

func parse(t *testing.T, text string, into any) {
	t.Helper()
	if err := yaml.UnmarshalStrict([]byte(text), into); err != nil {
		t.Fatal(err)
	}
}
