package e2e

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"seedlet.dev/realworld/porttest"
)

// workloadManifests are one workload of each kind. Every pod holds a connection to the recorder
// under its own name.
const workloadManifests = `apiVersion: v1
kind: ConfigMap
metadata: {name: settings, namespace: town}
data: {colour: green, shape: round}
---
apiVersion: v1
kind: Secret
metadata: {name: keys, namespace: town}
stringData: {door: open sesame}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: shop, namespace: town}
spec:
  replicas: 30
  selector: {matchLabels: {app: shop}}
  template:
    metadata: {labels: {app: shop}}
    spec:
      terminationGracePeriodSeconds: 10
      containers:
      - name: main
        image: IMAGE
        args: [hold, --http, "8080", RECORDER, $(POD)]
        env:
        - {name: POD, valueFrom: {fieldRef: {fieldPath: metadata.name}}}
        - {name: COLOUR, valueFrom: {configMapKeyRef: {name: settings, key: colour}}}
        envFrom: [{secretRef: {name: keys}}]
        readinessProbe:
          httpGet: {path: /healthz, port: 8080}
          periodSeconds: 5
          timeoutSeconds: 60
        livenessProbe:
          httpGet: {path: /healthz, port: 8080}
          periodSeconds: 5
          timeoutSeconds: 60
        startupProbe: # a busy machine may take long until the process listens
          httpGet: {path: /healthz, port: 8080}
          periodSeconds: 1
          timeoutSeconds: 60
          failureThreshold: 600
        volumeMounts:
        - {name: settings, mountPath: /settings}
        - {name: keys, mountPath: /keys}
      volumes:
      - {name: settings, configMap: {name: settings}}
      - {name: keys, secret: {secretName: keys, defaultMode: 0400}}
---
apiVersion: batch/v1
kind: Job
metadata: {name: chore, namespace: town}
spec:
  completions: 3
  parallelism: 2
  template:
    metadata: {labels: {app: chore}}
    spec:
      restartPolicy: Never
      containers:
      - name: main
        image: IMAGE
        args: [hold, --after, 1s, RECORDER, $(POD)]
        env: [{name: POD, valueFrom: {fieldRef: {fieldPath: metadata.name}}}]
---
apiVersion: apps/v1
kind: StatefulSet
metadata: {name: depot, namespace: town}
spec:
  replicas: 2
  serviceName: depot
  selector: {matchLabels: {app: depot}}
  template:
    metadata: {labels: {app: depot}}
    spec:
      terminationGracePeriodSeconds: 5
      containers:
      - name: main
        image: IMAGE
        args: [hold, RECORDER, $(POD)/$(UID)]
        env:
        - {name: POD, valueFrom: {fieldRef: {fieldPath: metadata.name}}}
        - {name: UID, valueFrom: {fieldRef: {fieldPath: metadata.uid}}}
---
apiVersion: apps/v1
kind: DaemonSet
metadata: {name: post, namespace: town}
spec:
  selector: {matchLabels: {app: post}}
  template:
    metadata: {labels: {app: post}}
    spec:
      terminationGracePeriodSeconds: 5
      containers:
      - name: main
        image: IMAGE
        args: [hold, RECORDER, $(POD)]
        env: [{name: POD, valueFrom: {fieldRef: {fieldPath: metadata.name}}}]
`

// testWorkloads creates all workloads at once, and checks that each reaches its desired state.
func (c *clusterSuite) testWorkloads(t *testing.T) {
	c.kubectl(t, "create", "namespace", testNamespace)
	c.kubectl(t, "wait", "--for=create", patience, "serviceaccount/default")
	start := time.Now()
	c.apply(t, workloadManifests)
	c.kubectl(t, "rollout", "status", "deployment/shop", patience)
	t.Logf("%d pods with volumes were ready after %.1f s", shopReplicas,
		time.Since(start).Seconds())
	c.kubectl(t, "wait", "--for=condition=Complete", patience, "job/chore")
	c.kubectl(t, "rollout", "status", "statefulset/depot", patience)
	c.kubectl(t, "rollout", "status", "daemonset/post", patience)
	for app, want := range map[string]int{"shop": shopReplicas, "chore": 3, "depot": 2, "post": 1} {
		if got := len(c.apiPods(t, app)); got != want {
			t.Errorf("%s has %d pods, want %d", app, got, want)
		}
	}
	for _, p := range c.apiPods(t, "chore") {
		if terminated := p.Status.ContainerStatuses[0].State.Terminated; terminated == nil ||
			terminated.ExitCode != 0 || terminated.Reason != "Completed" {
			t.Errorf("the terminated state of %s is %v", p.Name, terminated)
		}
	}
	before := c.apiPod(t, "depot-0")
	c.kubectl(t, "delete", "pod", "depot-0")
	c.waitUntil(t, "the new depot-0 is ready", func() bool {
		p := c.apiPod(t, "depot-0")
		return isPodReady(p) && p.UID != before.UID
	})
}

// overLimitManifest are pods that exceed limits of local storage. Volumes are measured once a
// minute.
var overLimitManifest = strings.ReplaceAll(`apiVersion: v1
kind: Pod
metadata: {name: greedy-volume, namespace: town}
spec:
  terminationGracePeriodSeconds: 5
  volumes: [{name: disk, emptyDir: {sizeLimit: 4Ki}}]
  initContainers:
  - name: first
    image: IMAGE
    args: [write, /disk/file, hello]
    volumeMounts: [{name: disk, mountPath: /disk}]
  containers:
  - {name: main, image: IMAGE, args: [sleep]}
---
apiVersion: v1
kind: Pod
metadata: {name: greedy-layer, namespace: town}
spec:
  terminationGracePeriodSeconds: 5
  containers:
  - name: main
    image: IMAGE
    args: [sleep]
    resources: {limits: {ephemeral-storage: 8Ki}}
    lifecycle: {postStart: {exec: {command: [/sample, write, /tmp/file, TEXT]}}}
  - {name: beside, image: IMAGE, args: [sleep], resources: {limits: {ephemeral-storage: 1Gi}}}
---
apiVersion: v1
kind: Pod
metadata: {name: greedy-log, namespace: town}
spec:
  terminationGracePeriodSeconds: 5
  containers:
  - name: main
    image: IMAGE
    args: [talk, --lines, "1000"]
    resources: {limits: {ephemeral-storage: 32Ki}}
  - {name: beside, image: IMAGE, args: [sleep]}
`, "TEXT", strings.Repeat("x", 16<<10))

// testLocalStorageLimits checks that the pods of overLimitManifest, which testRolloutUnderKills
// created, are evicted.
func (c *clusterSuite) testLocalStorageLimits(t *testing.T) {
	for name, message := range map[string]string{ //ordered: the pods are independent
		"greedy-volume": `Usage of EmptyDir volume "disk" exceeds the limit "4Ki". `,
		"greedy-layer":  `Container main exceeded its local ephemeral storage limit "8Ki". `,
		"greedy-log":    `Pod ephemeral local storage usage exceeds the total limit of containers 32Ki. `,
	} {
		c.waitUntil(t, name+" is evicted", func() bool {
			return c.apiPod(t, name).Status.Phase == v1.PodFailed
		})
		status := c.apiPod(t, name).Status
		if status.Reason != "Evicted" || status.Message != message {
			t.Errorf("the reason of %s is %q, its message %q", name, status.Reason, status.Message)
		}
		for _, s := range status.ContainerStatuses { // the eviction may have come before its start
			if s.State.Running != nil {
				t.Errorf("%s: container %s: %+v", name, s.Name, s)
			}
		}
	}
}

// testAPIVolumes checks a pod of deployment shop: its volumes and its environment have the content
// of the API objects, the API server authenticates its token, and a change of the ConfigMap
// arrives.
func (c *clusterSuite) testAPIVolumes(t *testing.T) {
	shop := c.apiPods(t, "shop")
	const account = "/var/run/secrets/kubernetes.io/serviceaccount"
	r := c.runReport(t, &shop[0], "/settings/colour", "/settings/shape", "/keys/door", "/keys",
		account+"/token", account+"/namespace", account+"/ca.crt")
	for path, want := range map[string]string{
		"/settings/colour": "green", "/settings/shape": "round", "/keys/door": "open sesame",
		account + "/namespace": testNamespace,
	} {
		if got := r.Paths[path]; got.Text != want {
			t.Errorf("%s is %+v, want the content %q", path, got, want)
		}
	}
	if keys := r.Paths["/keys"]; !keys.Tmpfs {
		t.Errorf("the secret is not on tmpfs: %+v", keys)
	}
	for _, want := range []string{"COLOUR=green", "door=open sesame"} {
		if !slices.Contains(r.Env, want) {
			t.Errorf("want %q in the environment %q", want, r.Env)
		}
	}
	if ca := r.Paths[account+"/ca.crt"].Text; !strings.Contains(ca, "BEGIN CERTIFICATE") {
		t.Errorf("the CA certificate is %q", ca)
	}
	review, err := c.api.AuthenticationV1().TokenReviews().Create(t.Context(),
		&authenticationv1.TokenReview{Spec: authenticationv1.TokenReviewSpec{
			Token: r.Paths[account+"/token"].Text}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if got := review.Status.User; !review.Status.Authenticated ||
		got.Username != "system:serviceaccount:town:default" ||
		!slices.Equal(got.Extra["authentication.kubernetes.io/pod-name"],
			authenticationv1.ExtraValue{shop[0].Name}) {
		t.Errorf("the review of the token is %+v", review.Status)
	}
	nested := c.runNestedVolumes(t)
	c.kubectl(t, "patch", "configmap", "settings", "-p", `{"data": {"colour": "red"}}`)
	c.waitUntil(t, "the change is in the first, the last and the nested pod", func() bool {
		for _, p := range []*v1.Pod{&shop[0], &shop[len(shop)-1], nested} {
			if c.runReport(t, p, "/settings/colour").Paths["/settings/colour"].Text != "red" {
				return false
			}
		}
		return true
	})
	c.kubectl(t, "delete", "pod", "nested", patience)
}

// nestedManifest is a pod that mounts volumes in its volumes of API objects, in directories that
// the objects do not have.
const nestedManifest = `apiVersion: v1
kind: Pod
metadata: {name: nested, namespace: town}
spec:
  terminationGracePeriodSeconds: 1
  volumes:
  - {name: settings, configMap: {name: settings}}
  - {name: keys, secret: {secretName: keys}}
  - {name: work, emptyDir: {}}
  containers:
  - name: main
    image: IMAGE
    args: [sleep]
    volumeMounts:
    - {name: work, mountPath: /settings/keys/work}
    - {name: keys, mountPath: /settings/keys}
    - {name: settings, mountPath: /settings}
    - {name: work, mountPath: /settings/far/away}
`

// runNestedVolumes checks a pod with volumes in volumes of a ConfigMap and a Secret: all of them
// are mounted, and only the emptyDir can be written to. It returns the pod.
func (c *clusterSuite) runNestedVolumes(t *testing.T) *v1.Pod {
	c.apply(t, nestedManifest)
	c.waitUntil(t, "the pod with nested volumes runs", func() bool {
		return isPodReady(c.apiPod(t, "nested"))
	})
	p := c.apiPod(t, "nested")
	const work, away = "/settings/keys/work", "/settings/far/away"
	r := c.runReport(t, p, "/settings", "/settings/shape", "/settings/keys", "/settings/keys/door",
		work, away)
	if r.Paths["/settings/shape"].Text != "round" ||
		r.Paths["/settings/keys/door"].Text != "open sesame" {
		t.Errorf("the content of nested volumes is %+v", r.Paths)
	}
	for path, want := range map[string]bool{"/settings": true, "/settings/keys": true, work: false,
		away: false} {
		if got := r.Paths[path]; got.ReadOnly != want || got.Problem != "" {
			t.Errorf("%s is %+v, want read-only %v", path, got, want)
		}
	}
	return p
}

// execReport is the part of the output of "sample report" that testAPIVolumes and testTrustBundles
// check.
type execReport struct {
	Env   []string
	Paths map[string]struct {
		Text, Problem   string
		Tmpfs, ReadOnly bool
		Size            int64
	}
}

// runReport runs "sample report" in a pod.
func (c *clusterSuite) runReport(t *testing.T, p *v1.Pod, paths ...string) execReport {
	t.Helper()
	response, err := c.node.Runtime().ExecSync(t.Context(), &runtimeapi.ExecSyncRequest{
		ContainerId: onlyContainerID(p.Status.ContainerStatuses),
		Timeout:     int64(porttest.Patience.Seconds()),
		Cmd:         append([]string{"/sample", "report"}, paths...),
	})
	if err != nil || response.ExitCode != 0 {
		t.Fatalf("running a report in %s: %v, %v", p.Name, response, err)
	}
	var r execReport
	if err := json.Unmarshal(response.Stdout, &r); err != nil {
		t.Fatalf("reading the report of %s: %v", p.Name, err)
	}
	return r
}

// onlyContainerID returns the ID of the only container in the runtime.
func onlyContainerID(statuses []v1.ContainerStatus) string {
	if len(statuses) != 1 {
		return fmt.Sprintf("(%d containers)", len(statuses))
	}
	_, id, _ := strings.Cut(statuses[0].ContainerID, "://")
	return id
}

// testMirrorPod checks that a static pod has a mirror pod at the API server, and that deletions of
// the mirror pod do not affect the container.
func (c *clusterSuite) testMirrorPod(t *testing.T) {
	c.agent.addManifest(t, "statue", c.replacePlaceholders(holderManifest("statue", "")))
	const name = "statue-" + nodeName
	c.waitUntil(t, "the mirror pod is ready", func() bool {
		return isPodReady(c.apiPod(t, name))
	})
	before, container := c.apiPod(t, name), c.newestContainer(t, "statue", "main").GetId()
	if id := onlyContainerID(before.Status.ContainerStatuses); id != container {
		t.Errorf("the mirror pod has container %s, want %s", id, container)
	}
	for _, args := range [][]string{{"delete", "pod", name},
		{"delete", "pod", name, "--force", "--grace-period=0"}} {
		before := c.apiPod(t, name)
		c.kubectl(t, args...)
		c.waitUntil(t, "a new mirror pod is ready", func() bool {
			p := c.apiPod(t, name)
			return isPodReady(p) && p.UID != before.UID
		})
		after := c.newestContainer(t, "statue", "main")
		if after.GetId() != container || after.GetState() != running {
			t.Errorf("the container of the static pod changed: %v", after)
		}
	}
}

// testPodDeletion deletes two pods that ignore TERM: one is force-deleted, the other's grace period
// is shortened by a second deletion.
func (c *clusterSuite) testPodDeletion(t *testing.T) {
	const stubborn = `apiVersion: v1
kind: Pod
metadata: {name: NAME, namespace: town, annotations: {seedlet.dev/forced: "FORCED"}}
spec:
  terminationGracePeriodSeconds: GRACE
  containers:
  - {name: main, image: IMAGE, args: [sleep, --ignore-term]}
---
`
	manifest := func(name, grace string) string {
		return strings.NewReplacer("NAME", name, "GRACE", grace).Replace(stubborn)
	}
	c.apply(t, manifest("forced", "4")+manifest("patient", "600"))
	c.waitUntil(t, "both pods run", func() bool {
		return isPodReady(c.apiPod(t, "forced")) && isPodReady(c.apiPod(t, "patient"))
	})
	forced := onlyContainerID(c.apiPod(t, "forced").Status.ContainerStatuses)
	c.kubectl(t, "delete", "pod", "forced", "--force", "--grace-period=0")
	c.kubectl(t, "delete", "pod", "patient", "--wait=false")
	c.waitUntil(t, "patient has a deletion timestamp", func() bool {
		p := c.apiPod(t, "patient")
		return p != nil && p.DeletionTimestamp != nil
	})
	start := time.Now()
	c.kubectl(t, "delete", "pod", "patient", "--grace-period=2", patience)
	if took := time.Since(start); took < 1500*time.Millisecond {
		t.Errorf("a pod whose grace period was shortened to 2 s took %v to end", took)
	}
	c.waitUntil(t, "the container of the force-deleted pod is removed", func() bool {
		response, err := c.node.Runtime().ListContainers(t.Context(),
			&runtimeapi.ListContainersRequest{Filter: &runtimeapi.ContainerFilter{Id: forced}})
		return err == nil && len(response.Containers) == 0
	})
}

// testDebugContainer adds an ephemeral container to a running pod.
func (c *clusterSuite) testDebugContainer(t *testing.T) {
	name := c.apiPods(t, "shop")[0].Name
	before := c.apiPod(t, name).Status.ContainerStatuses[0]
	c.kubectl(t, "debug", name, "--image="+c.agent.sampleImage, "--container=look", "--",
		"/sample", "hold", c.connections.address(c.node), "look")
	c.waitUntil(t, "the ephemeral container runs", func() bool {
		list := c.apiPod(t, name).Status.EphemeralContainerStatuses
		return len(list) == 1 && list[0].State.Running != nil
	})
	c.waitUntil(t, "the ephemeral container is connected", func() bool {
		return c.connections.lastRun("look ").name != ""
	})
	after := c.apiPod(t, name).Status.ContainerStatuses[0]
	if after.ContainerID != before.ContainerID {
		t.Errorf("the status of the pod's own container is %v, before %v", after, before)
	}
}
