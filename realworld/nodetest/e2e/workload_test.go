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
)

// townManifests are one workload of each kind. All pods hold a connection in their own name.
const townManifests = `apiVersion: v1
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
        args: [hold, --http, "8080", WITNESS, $(POD)]
        env:
        - {name: POD, valueFrom: {fieldRef: {fieldPath: metadata.name}}}
        - {name: COLOUR, valueFrom: {configMapKeyRef: {name: settings, key: colour}}}
        envFrom: [{secretRef: {name: keys}}]
        readinessProbe: {httpGet: {path: /healthz, port: 8080}, periodSeconds: 5}
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
        args: [hold, --after, 1s, WITNESS, $(POD)]
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
        args: [hold, WITNESS, $(POD)/$(UID)]
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
        args: [hold, WITNESS, $(POD)]
        env: [{name: POD, valueFrom: {fieldRef: {fieldPath: metadata.name}}}]
`

// workloads makes everything at once, and sees each get where it should.
func (c *town) workloads(t *testing.T) {
	c.kubectl(t, "create", "namespace", townNamespace)
	c.kubectl(t, "wait", "--for=create", "--timeout=60s", "serviceaccount/default")
	start := time.Now()
	c.apply(t, townManifests)
	c.kubectl(t, "rollout", "status", "deployment/shop", "--timeout=180s")
	t.Logf("%d pods with volumes were ready after %.1f s", shopPods, time.Since(start).Seconds())
	c.kubectl(t, "wait", "--for=condition=Complete", "--timeout=120s", "job/chore")
	c.kubectl(t, "rollout", "status", "statefulset/depot", "--timeout=120s")
	c.kubectl(t, "rollout", "status", "daemonset/post", "--timeout=120s")
	for app, want := range map[string]int{"shop": shopPods, "chore": 3, "depot": 2, "post": 1} {
		if got := len(c.pods(t, app)); got != want {
			t.Errorf("there are %d pods of %s, want %d", got, app, want)
		}
	}
	for _, p := range c.pods(t, "chore") {
		if ended := p.Status.ContainerStatuses[0].State.Terminated; ended == nil ||
			ended.ExitCode != 0 || ended.Reason != "Completed" {
			t.Errorf("%s has ended as %v", p.Name, ended)
		}
	}
	before := c.pod(t, "depot-0")
	c.kubectl(t, "delete", "pod", "depot-0")
	c.until(t, late, "another depot-0 is ready", func() bool {
		p := c.pod(t, "depot-0")
		return podReady(p) && p.UID != before.UID
	})
}

// greedy is a pod that uses more of a volume than it may. That is measured once a minute.
const greedy = `apiVersion: v1
kind: Pod
metadata: {name: greedy, namespace: town}
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
`

// overLimit sees how greedy, which rollOver made, has ended.
func (c *town) overLimit(t *testing.T) {
	c.until(t, late, "greedy is evicted", func() bool {
		return c.pod(t, "greedy").Status.Phase == v1.PodFailed
	})
	const message = `Usage of EmptyDir volume "disk" exceeds the limit "4Ki". `
	is := c.pod(t, "greedy").Status
	if is.Reason != "Evicted" || is.Message != message {
		t.Errorf("the pod's reason is %q, %q", is.Reason, is.Message)
	}
	for _, s := range is.ContainerStatuses {
		if s.State.Running != nil || s.RestartCount != 0 { // it may have been ended before main began
			t.Errorf("container %s: %+v", s.Name, s)
		}
	}
}

// volumes looks into a pod of the shop: what is in its volumes and its environment is what the API
// server has, the token is one that the server knows, and a change of the ConfigMap arrives.
func (c *town) volumes(t *testing.T) {
	shop := c.pods(t, "shop")
	const account = "/var/run/secrets/kubernetes.io/serviceaccount"
	f := c.report(t, &shop[0], "/settings/colour", "/settings/shape", "/keys/door", "/keys",
		account+"/token", account+"/namespace", account+"/ca.crt")
	for at, want := range map[string]string{
		"/settings/colour": "green", "/settings/shape": "round", "/keys/door": "open sesame",
		account + "/namespace": townNamespace,
	} {
		if got := f.Paths[at]; got.Text != want {
			t.Errorf("%s holds %+v, want %q", at, got, want)
		}
	}
	if keys := f.Paths["/keys"]; !keys.Tmpfs {
		t.Errorf("the secret is not in memory: %+v", keys)
	}
	for _, want := range []string{"COLOUR=green", "door=open sesame"} {
		if !slices.Contains(f.Env, want) {
			t.Errorf("no %q in the environment %q", want, f.Env)
		}
	}
	if ca := f.Paths[account+"/ca.crt"].Text; !strings.Contains(ca, "BEGIN CERTIFICATE") {
		t.Errorf("the authority is %q", ca)
	}
	review, err := c.api.AuthenticationV1().TokenReviews().Create(t.Context(),
		&authenticationv1.TokenReview{Spec: authenticationv1.TokenReviewSpec{
			Token: f.Paths[account+"/token"].Text}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if got := review.Status.User; !review.Status.Authenticated ||
		got.Username != "system:serviceaccount:town:default" ||
		!slices.Equal(got.Extra["authentication.kubernetes.io/pod-name"],
			authenticationv1.ExtraValue{shop[0].Name}) {
		t.Errorf("the token is of %+v", review.Status)
	}
	c.kubectl(t, "patch", "configmap", "settings", "-p", `{"data": {"colour": "red"}}`)
	c.until(t, soon, "the change has arrived in the first pod and the last", func() bool {
		for _, p := range []*v1.Pod{&shop[0], &shop[len(shop)-1]} {
			if c.report(t, p, "/settings/colour").Paths["/settings/colour"].Text != "red" {
				return false
			}
		}
		return true
	})
}

// reported is what a process found around it.
type reported struct {
	Env   []string
	Paths map[string]struct {
		Text, Problem string
		Tmpfs         bool
	}
}

// report runs "sample report" in a pod.
func (c *town) report(t *testing.T, p *v1.Pod, paths ...string) reported {
	t.Helper()
	answer, err := c.node.Runtime().ExecSync(t.Context(), &runtimeapi.ExecSyncRequest{
		ContainerId: idOf(p.Status.ContainerStatuses), Timeout: 20,
		Cmd: append([]string{"/sample", "report"}, paths...),
	})
	if err != nil || answer.ExitCode != 0 {
		t.Fatalf("looking into %s: %v, %v", p.Name, answer, err)
	}
	var f reported
	if err := json.Unmarshal(answer.Stdout, &f); err != nil {
		t.Fatalf("looking into %s: %v", p.Name, err)
	}
	return f
}

// idOf is the id of the only container, as the runtime knows it.
func idOf(statuses []v1.ContainerStatus) string {
	if len(statuses) != 1 {
		return fmt.Sprintf("(%d containers)", len(statuses))
	}
	_, id, _ := strings.Cut(statuses[0].ContainerID, "://")
	return id
}

// mirror sees that a static pod is at the API server, and that whatever is done to it there does
// nothing to its container.
func (c *town) mirror(t *testing.T) {
	text := strings.NewReplacer("IMAGE", c.agent.image, "WITNESS", c.held.address(c.node)).
		Replace(holder("statue", ""))
	c.agent.add(t, "statue", text)
	const name = "statue-" + nodeName
	c.until(t, late, "the mirror is ready", func() bool { return podReady(c.pod(t, name)) })
	before, run := c.pod(t, name), c.container(t, "statue", "main").GetId()
	if id := idOf(before.Status.ContainerStatuses); id != run {
		t.Errorf("the mirror tells of container %s, it is %s", id, run)
	}
	for _, args := range [][]string{{"delete", "pod", name},
		{"delete", "pod", name, "--force", "--grace-period=0"}} {
		before := c.pod(t, name)
		c.kubectl(t, args...)
		c.until(t, soon, "there is another mirror, and it is ready", func() bool {
			p := c.pod(t, name)
			return podReady(p) && p.UID != before.UID
		})
		after := c.container(t, "statue", "main")
		if after.GetId() != run || after.GetState() != running {
			t.Errorf("the container of the static pod was touched: %v", after)
		}
	}
}

// endings are two pods that do not end by themselves: one is forced, the other's grace is cut.
func (c *town) endings(t *testing.T) {
	const stubborn = `apiVersion: v1
kind: Pod
metadata: {name: NAME, namespace: town, annotations: {seedlet.dev/forced: "FORCED"}}
spec:
  terminationGracePeriodSeconds: GRACE
  containers:
  - {name: main, image: IMAGE, args: [sleep, --ignore-term]}
---
`
	make := func(name, grace string) string {
		return strings.NewReplacer("NAME", name, "GRACE", grace).Replace(stubborn)
	}
	c.apply(t, make("forced", "4")+make("patient", "600"))
	c.until(t, late, "both run", func() bool {
		return podReady(c.pod(t, "forced")) && podReady(c.pod(t, "patient"))
	})
	forced := idOf(c.pod(t, "forced").Status.ContainerStatuses)
	c.kubectl(t, "delete", "pod", "forced", "--force", "--grace-period=0")
	c.kubectl(t, "delete", "pod", "patient", "--wait=false")
	c.until(t, soon, "patient is told to end", func() bool {
		p := c.pod(t, "patient")
		return p != nil && p.DeletionTimestamp != nil
	})
	start := time.Now()
	c.kubectl(t, "delete", "pod", "patient", "--grace-period=2", "--timeout=60s")
	if took := time.Since(start); took < 1500*time.Millisecond || took > soon {
		t.Errorf("a pod whose grace was cut to 2 s took %v", took)
	}
	c.until(t, soon, "the runtime has nothing of what was forced", func() bool {
		answer, err := c.node.Runtime().ListContainers(t.Context(),
			&runtimeapi.ListContainersRequest{Filter: &runtimeapi.ContainerFilter{Id: forced}})
		return err == nil && len(answer.Containers) == 0
	})
}

// debugging adds a container to a pod that runs.
func (c *town) debugging(t *testing.T) {
	name := c.pods(t, "shop")[0].Name
	before := c.pod(t, name).Status.ContainerStatuses[0]
	c.kubectl(t, "debug", name, "--image="+c.agent.image, "--container=look", "--",
		"/sample", "hold", c.held.address(c.node), "look")
	c.until(t, soon, "the container runs that was added", func() bool {
		list := c.pod(t, name).Status.EphemeralContainerStatuses
		return len(list) == 1 && list[0].State.Running != nil
	})
	c.until(t, soon, "it has connected", func() bool { return c.held.last("look ").name != "" })
	if after := c.pod(t, name).Status.ContainerStatuses[0]; after.ContainerID != before.ContainerID {
		t.Errorf("the pod's own container is %v, it was %v", after, before)
	}
}
