package e2e

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	coordinationv1 "k8s.io/api/coordination/v1"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"seedlet.dev/realworld/porttest"
)

// hostileKind is a kind of pod that takes as much of what all pods of a node share as the API
// server accepts. Its pod has one container "main", which sleeps, and is changed by change.
type hostileKind struct {
	name   string
	change func(*v1.Pod)
	// inStatus and inEvent are texts that the pod's status and one of its events have in the end
	// (see statusText): why it does not run, with the number and the bound, or that it runs.
	inStatus, inEvent string
}

const (
	// hostileApp is the label app of hostile pods.
	hostileApp = "hostile"
	// endless is a time in seconds that no part of a test waits for.
	endless = 1_000_000
	// keysOfLargeMap is as many keys as an object of etcd has room for, with the record of the
	// fields' owners.
	keysOfLargeMap = 40_000
)

// hostileKinds returns all kinds. A FIFO is at pipe.
func hostileKinds(pipe string) []hostileKind {
	runs := "main: running"
	return []hostileKind{
		{"tokens", manyTokens(33, 500),
			"the pod needs 16500 service account tokens, and one pod may have 64",
			"BudgetExceeded: the pod needs 16500 service account tokens, and one pod may have 64"},
		{"references", manyReferences(3000),
			"the pod refers to 3000 API objects, and one pod may refer to 256",
			"BudgetExceeded: the pod refers to 3000 API objects, and one pod may refer to 256"},
		{"containers", manyContainers(5000),
			"the pod has 5000 containers, and one pod may have 256",
			"BudgetExceeded: the pod has 5000 containers, and one pod may have 256"},
		{"volumes", manyVolumes(3000), "the pod has 3000 volumes, and one pod may have 256",
			"BudgetExceeded: the pod has 3000 volumes, and one pod may have 256"},
		{"doublings", chainedVariables("DOUBLED_", 40, 2),
			"main: waiting CreateContainerConfigError environment variable DOUBLED_11 is longer " +
				"than 131072 bytes", "DOUBLED_11 is longer than 131072 bytes"},
		{"variables", chainedVariables("V", 4000, 1), runs, ""},
		{"variables-of-keys", largeMapAsVariables(3),
			"main: waiting CreateContainerConfigError more than 16384 environment variables",
			"more than 16384 environment variables"},
		{"files", largeMapAsFiles, "", fmt.Sprintf("FailedMount: MountVolume.SetUp failed for "+
			`volume "many" : its files take %d bytes`, keysOfLargeMap*4096)},
		{"deep", deepTree(5000), runs, ""},
		{"prestop", func(p *v1.Pod) {
			p.Spec.Containers[0].Lifecycle = &v1.Lifecycle{
				PreStop: execHandler("exit", "--after", "1000h")}
		}, runs, ""},
		{"ignores-term", func(p *v1.Pod) {
			p.Spec.Containers[0].Args = []string{"sleep", "--ignore-term"}
		}, runs, ""},
		{"probes-hang", hangingProbes(9), runs, ""},
		{"probe-output", loudProbe, runs, "Unhealthy: Readiness probe "},
		{"messages", func(p *v1.Pod) {
			p.Spec.RestartPolicy = v1.RestartPolicyNever
			p.Spec.Containers[0].Args = []string{"exit", "--message", strings.Repeat("m", 100_000)}
		}, "main: terminated Completed " + strings.Repeat("m", 4096) + "\n", ""},
		{"log-flood", func(p *v1.Pod) {
			p.Spec.Containers[0].Args = []string{"talk", "--lines", "100000000", "--bytes", "10000",
				"--every", "100ms"}
		}, runs, ""},
		{"crash-loop", crashLoop(10), "main: waiting CrashLoopBackOff back-off ",
			"BackOff: Back-off restarting failed container"},
		{"unsupported", func(p *v1.Pod) {
			p.Spec.NodeName = nodeName // the scheduler would wait for the claim
			p.Spec.ResourceClaims = []v1.PodResourceClaim{
				{Name: "device", ResourceClaimName: new("none")}}
		}, "spec.resourceClaims", "spec.resourceClaims"},
		{"pipe", func(p *v1.Pod) {
			addVolume(p, "pipe", v1.VolumeSource{HostPath: &v1.HostPathVolumeSource{Path: pipe,
				Type: new(v1.HostPathFile)}})
		}, "", "hostPath type check failed: " + pipe + " is not a file"},
		{"pipe-mounted", func(p *v1.Pod) {
			addVolume(p, "pipe", v1.VolumeSource{HostPath: &v1.HostPathVolumeSource{
				Path: filepath.Dir(pipe)}})
			p.Spec.Containers[0].VolumeMounts[0].SubPath = filepath.Base(pipe)
		}, runs, ""},
	}
}

// testHostilePods creates a pod of each hostile kind beside the ready pods of deployment shop. The
// process of the agent goes on, the other pods and the node stay ready, a new pod runs, each
// hostile pod says why it does not run, and all of them can be deleted.
func (c *clusterSuite) testHostilePods(t *testing.T) {
	before := c.runningPods(t)
	shop := c.apiPods(t, "shop")
	if len(shop) != shopReplicas {
		t.Fatalf("deployment shop has %d pods, want %d", len(shop), shopReplicas)
	}
	process := c.agent.runningProcess(t)
	heartbeats := c.watchHeartbeats(t)
	pipe := filepath.Join(c.node.Dir, "pipes", "pipe")
	if err := makePipe(pipe); err != nil {
		t.Fatal(err)
	}
	start := time.Now()
	c.createObject(t, largeMap())
	kinds := hostileKinds(pipe)
	for i := range kinds {
		c.createObject(t, c.hostilePod(&kinds[i]))
	}
	t.Logf("%d hostile pods were created in %.1f s", len(kinds), time.Since(start).Seconds())
	c.apply(t, holderManifest("bystander", ""))
	c.waitUntil(t, "a new pod runs beside the hostile ones", func() bool {
		return isPodReady(c.apiPod(t, "bystander"))
	})
	for i := range kinds {
		k := &kinds[i]
		c.waitUntil(t, fmt.Sprintf("pod %s has %q in its status and %q in an event", k.name,
			k.inStatus, k.inEvent), func() bool {
			return strings.Contains(statusText(c.apiPod(t, k.name)), k.inStatus) &&
				(k.inEvent == "" || strings.Contains(c.eventText(t, k.name), k.inEvent))
		})
	}
	t.Logf("all had said why they do not run after %.1f s", time.Since(start).Seconds())
	time.Sleep(quietPeriod) // probes, floods and loops go on
	c.kubectl(t, "delete", "pod", "bystander", patience)
	c.kubectl(t, "delete", "pods", "-l", "app="+hostileApp, "--grace-period=2", "--wait=false")
	c.kubectl(t, "delete", "configmap", "large")
	c.waitUntil(t, "the hostile pods are deleted", func() bool {
		return len(c.apiPods(t, hostileApp)) == 0
	})
	t.Logf("all were deleted after %.1f s", time.Since(start).Seconds())

	c.agent.waitHealthy(t)
	if now := c.agent.runningProcess(t); now != process {
		t.Errorf("the agent was %s, and is %s", process, now)
	}
	c.checkUnchanged(t, before, c.runningPods(t))
	for i := range shop {
		c.checkStayedReady(t, &shop[i], start)
	}
	heartbeats.check(t)
}

// hostilePod returns the pod of a kind.
func (c *clusterSuite) hostilePod(k *hostileKind) *v1.Pod {
	p := &v1.Pod{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"},
		ObjectMeta: metav1.ObjectMeta{Name: k.name, Namespace: testNamespace,
			Labels: map[string]string{"app": hostileApp}},
		Spec: v1.PodSpec{TerminationGracePeriodSeconds: new(int64(endless)),
			AutomountServiceAccountToken: new(false),
			Containers: []v1.Container{{Name: "main", Image: c.agent.sampleImage,
				Args: []string{"sleep"}}}},
	}
	k.change(p)
	return p
}

// createObject creates an object of the API server, with kubectl. A busy API server may take longer
// for the largest objects than for any request, and may have created the object nevertheless.
func (c *clusterSuite) createObject(t *testing.T, object any) {
	t.Helper()
	data, err := json.Marshal(object)
	if err != nil {
		t.Fatal(err)
	}
	start := time.Now()
	for tries := 1; ; tries++ {
		cmd := c.cluster.KubectlCommand(t.Context(), "create", "-f", "-")
		cmd.Stdin = bytes.NewReader(data)
		out, err := cmd.CombinedOutput()
		if err == nil || tries > 1 && bytes.Contains(out, []byte("AlreadyExists")) {
			return
		}
		if time.Since(start) > porttest.Patience ||
			!bytes.Contains(out, []byte("request did not complete within requested timeout")) {
			t.Fatalf("creating an object of %d bytes: %v\n%.2000s", len(data), err, out)
		}
	}
}

// statusText returns what a pod's status says: its reason and message, and each container's state
// as "main: waiting ErrImagePull message"; empty for no pod.
func statusText(p *v1.Pod) string {
	if p == nil {
		return ""
	}
	text := fmt.Sprintf("%s %s %s\n", p.Status.Phase, p.Status.Reason, p.Status.Message)
	for _, c := range p.Status.Conditions {
		text += fmt.Sprintf("%s %s %s %s\n", c.Type, c.Status, c.Reason, c.Message)
	}
	for i := range p.Status.ContainerStatuses {
		state := &p.Status.ContainerStatuses[i].State
		switch name := p.Status.ContainerStatuses[i].Name; {
		case state.Running != nil:
			text += name + ": running\n"
		case state.Waiting != nil:
			text += fmt.Sprintf("%s: waiting %s %s\n", name, state.Waiting.Reason,
				state.Waiting.Message)
		case state.Terminated != nil:
			text += fmt.Sprintf("%s: terminated %s %s\n", name, state.Terminated.Reason,
				state.Terminated.Message)
		}
	}
	return text
}

// eventText returns the events about a pod, each as a line "BudgetExceeded: message".
func (c *clusterSuite) eventText(t *testing.T, pod string) string {
	t.Helper()
	list, err := c.api.CoreV1().Events(testNamespace).List(t.Context(),
		metav1.ListOptions{FieldSelector: "involvedObject.name=" + pod})
	if err != nil {
		t.Fatal(err)
	}
	text := ""
	for i := range list.Items {
		text += list.Items[i].Reason + ": " + list.Items[i].Message + "\n"
	}
	return text
}

// checkStayedReady checks that a pod was ready, and was not restarted, in every state since a time,
// from when the given state is. Times in a status are whole seconds.
func (c *clusterSuite) checkStayedReady(t *testing.T, pod *v1.Pod, since time.Time) {
	t.Helper()
	states := c.history.statesOf(pod.UID)
	if len(states) == 0 || !isPodReady(states[len(states)-1]) {
		t.Errorf("%s is not ready in the last of %d states", pod.Name, len(states))
	}
	for _, state := range states {
		for _, condition := range state.Status.Conditions {
			if condition.Type == v1.PodReady &&
				!condition.LastTransitionTime.Time.Before(since.Truncate(time.Second)) {
				t.Errorf("%s did not stay ready: %s", pod.Name, statusText(state))
			}
		}
		if totalRestarts(state) > totalRestarts(pod) {
			t.Errorf("%s was restarted: %s", pod.Name, statusText(state))
		}
	}
}

// runningProcess returns the number and the start time of the agent's process, in which nothing
// runs if the agent has exited: then the test fails.
func (a *agent) runningProcess(t *testing.T) string {
	t.Helper()
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", a.cmd.Process.Pid))
	if err != nil {
		t.Fatal(err)
	}
	// The state is the third field, the start time the 22nd; the second is the name in parentheses.
	_, rest, _ := strings.Cut(string(stat), ") ")
	fields := strings.Fields(rest)
	if len(fields) < 20 || fields[0] == "Z" || fields[0] == "X" {
		t.Fatalf("the agent has exited: %s\n%s", stat, a.logTail(t, 40))
	}
	return fmt.Sprintf("process %d, started %s ticks after boot", a.cmd.Process.Pid, fields[19])
}

// heartbeatWatch looks at the lease and the Ready condition of the node until a test ends.
type heartbeatWatch struct {
	mu       sync.Mutex
	looks    int
	oldest   time.Duration // the greatest age of the lease
	duration time.Duration // for which the lease is valid
	// readySince are the times since which the node was ready, and oldestStatus is the greatest age
	// of the condition.
	readySince   map[time.Time]bool
	oldestStatus time.Duration
	problems     map[string]int // and how often each was seen
}

// statusPeriod is how often the agent writes the status of an unchanged node: the default of
// nodeStatusReportFrequency, and the half of it that is added at random, as by the kubelet.
const statusPeriod = 5*time.Minute + 5*time.Minute/2

// watchHeartbeats starts to look, once a second.
func (c *clusterSuite) watchHeartbeats(t *testing.T) *heartbeatWatch {
	w := &heartbeatWatch{readySince: map[time.Time]bool{}, problems: map[string]int{}}
	ctx := t.Context()
	go func() {
		for ; ctx.Err() == nil; time.Sleep(time.Second) {
			lease, err := c.api.CoordinationV1().Leases(v1.NamespaceNodeLease).Get(ctx, nodeName,
				metav1.GetOptions{})
			node, nodeErr := c.api.CoreV1().Nodes().Get(ctx, nodeName, metav1.GetOptions{})
			w.mu.Lock()
			if err = errors.Join(err, nodeErr); err != nil {
				w.problems[err.Error()]++
			} else {
				w.record(lease, node, time.Now())
			}
			w.mu.Unlock()
		}
	}()
	return w
}

// record records a lease and a node.
func (w *heartbeatWatch) record(lease *coordinationv1.Lease, node *v1.Node, now time.Time) {
	w.looks++
	w.duration = time.Duration(*lease.Spec.LeaseDurationSeconds) * time.Second
	w.oldest = max(w.oldest, now.Sub(lease.Spec.RenewTime.Time))
	for _, condition := range node.Status.Conditions {
		switch {
		case condition.Type != v1.NodeReady:
		case condition.Status != v1.ConditionTrue:
			w.problems["the node is not ready: "+condition.Message]++
		default:
			w.readySince[condition.LastTransitionTime.Time] = true
			w.oldestStatus = max(w.oldestStatus, now.Sub(condition.LastHeartbeatTime.Time))
		}
	}
}

// check checks that the lease was never older than its duration, and that the node was ready all
// the time.
func (w *heartbeatWatch) check(t *testing.T) {
	t.Helper()
	w.mu.Lock()
	defer w.mu.Unlock()
	t.Logf("%d looks: the lease is valid for %v, its greatest age was %v; that of the node's Ready "+
		"condition was %v", w.looks, w.duration, w.oldest, w.oldestStatus)
	for problem, times := range w.problems {
		t.Errorf("%d times: %s", times, problem)
	}
	if w.looks == 0 || w.duration == 0 || w.oldest > w.duration {
		t.Error("the lease was not renewed in time")
	}
	if len(w.readySince) != 1 {
		t.Errorf("the node was ready since %v, want since one time", w.readySince)
	}
	if w.oldestStatus > statusPeriod {
		t.Errorf("the Ready condition was %v old, want at most %v", w.oldestStatus, statusPeriod)
	}
}

// makePipe makes a FIFO, to which nothing ever writes, in a directory of its own.
func makePipe(path string) error {
	if err := unix.Mkdir(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	return unix.Mkfifo(path, 0o644)
}

// addVolume adds a volume to a pod, and its mount to the first container.
func addVolume(p *v1.Pod, name string, source v1.VolumeSource) {
	p.Spec.Volumes = append(p.Spec.Volumes, v1.Volume{Name: name, VolumeSource: source})
	c := &p.Spec.Containers[0]
	c.VolumeMounts = append(c.VolumeMounts, v1.VolumeMount{Name: name, MountPath: "/" + name})
}

// largeMap returns a ConfigMap with as many keys as fit.
func largeMap() *v1.ConfigMap {
	m := &v1.ConfigMap{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "ConfigMap"},
		ObjectMeta: metav1.ObjectMeta{Name: "large", Namespace: testNamespace},
		Data:       map[string]string{}}
	for n := range keysOfLargeMap {
		m.Data[fmt.Sprintf("k%05d", n)] = ""
	}
	return m
}

func largeMapAsFiles(p *v1.Pod) {
	source := &v1.ConfigMapVolumeSource{}
	source.Name = "large"
	addVolume(p, "many", v1.VolumeSource{ConfigMap: source})
}

// largeMapAsVariables takes the variables of the ConfigMap a number of times.
func largeMapAsVariables(times int) func(*v1.Pod) {
	return func(p *v1.Pod) {
		for n := range times {
			from := v1.EnvFromSource{Prefix: fmt.Sprintf("P%d_", n),
				ConfigMapRef: &v1.ConfigMapEnvSource{}}
			from.ConfigMapRef.Name = "large"
			p.Spec.Containers[0].EnvFrom = append(p.Spec.Containers[0].EnvFrom, from)
		}
	}
}

// manyTokens adds volumes with as many tokens each. In a single volume, the API server compares
// each path with each other one, which takes minutes on a busy machine.
func manyTokens(volumes, each int) func(*v1.Pod) {
	return func(p *v1.Pod) {
		for v := range volumes {
			var sources []v1.VolumeProjection
			for i := range each {
				sources = append(sources, v1.VolumeProjection{
					ServiceAccountToken: &v1.ServiceAccountTokenProjection{
						Audience: fmt.Sprint("a", v*each+i), ExpirationSeconds: new(int64(3600)),
						Path: fmt.Sprint("t", i)}})
			}
			addVolume(p, fmt.Sprint("tokens-", v), v1.VolumeSource{
				Projected: &v1.ProjectedVolumeSource{Sources: sources}})
		}
	}
}

// manyReferences refers to Secrets, none of which exists.
func manyReferences(n int) func(*v1.Pod) {
	return func(p *v1.Pod) {
		for i := range n {
			from := v1.EnvFromSource{SecretRef: &v1.SecretEnvSource{Optional: new(true)}}
			from.SecretRef.Name = fmt.Sprint("none-", i)
			p.Spec.Containers[0].EnvFrom = append(p.Spec.Containers[0].EnvFrom, from)
		}
	}
}

func manyContainers(n int) func(*v1.Pod) {
	return func(p *v1.Pod) {
		for i := range n - 1 {
			c := *p.Spec.Containers[0].DeepCopy()
			c.Name = fmt.Sprint("c", i)
			p.Spec.Containers = append(p.Spec.Containers, c)
		}
	}
}

func manyVolumes(n int) func(*v1.Pod) {
	return func(p *v1.Pod) {
		for i := range n {
			p.Spec.Volumes = append(p.Spec.Volumes, v1.Volume{Name: fmt.Sprint("v", i),
				VolumeSource: v1.VolumeSource{EmptyDir: &v1.EmptyDirVolumeSource{}}})
		}
	}
}

// chainedVariables adds variables, each of which refers to the one before a number of times. The
// first has 64 bytes.
func chainedVariables(prefix string, n, references int) func(*v1.Pod) {
	return func(p *v1.Pod) {
		c, value := &p.Spec.Containers[0], strings.Repeat("x", 64)
		for i := range n {
			name := fmt.Sprint(prefix, i)
			c.Env = append(c.Env, v1.EnvVar{Name: name, Value: value})
			value = strings.Repeat("$("+name+")", references)
		}
	}
}

// deepTree makes directories in a volume that is measured and has to be removed.
func deepTree(depth int) func(*v1.Pod) {
	return func(p *v1.Pod) {
		addVolume(p, "tree", v1.VolumeSource{EmptyDir: &v1.EmptyDirVolumeSource{
			SizeLimit: resource.NewQuantity(1<<30, resource.BinarySI)}})
		p.Spec.Containers[0].Args = []string{"nest", "--depth", fmt.Sprint(depth), "/tree"}
	}
}

func execHandler(args ...string) *v1.LifecycleHandler {
	return &v1.LifecycleHandler{Exec: &v1.ExecAction{Command: append([]string{"/sample"}, args...)}}
}

// hangingProbes adds containers, whose probes take longer than anybody waits.
func hangingProbes(containers int) func(*v1.Pod) {
	return func(p *v1.Pod) {
		p.Spec.Containers[0].ReadinessProbe = &v1.Probe{PeriodSeconds: 1, TimeoutSeconds: endless,
			ProbeHandler: v1.ProbeHandler{Exec: execHandler("check", "--takes", "1000h").Exec}}
		p.Spec.Containers[0].LivenessProbe = p.Spec.Containers[0].ReadinessProbe
		manyContainers(containers)(p)
	}
}

// loudProbe adds a probe that writes 64 MiB to each answer, and one of an HTTP port that is none: a
// rare one, as its events may be too many for the other's to be recorded on a busy machine.
func loudProbe(p *v1.Pod) {
	c := &p.Spec.Containers[0]
	c.ReadinessProbe = &v1.Probe{PeriodSeconds: 5, TimeoutSeconds: 60,
		ProbeHandler: v1.ProbeHandler{Exec: execHandler("talk", "--lines", "64000", "--bytes",
			"1024", "--exit").Exec}}
	c.LivenessProbe = &v1.Probe{PeriodSeconds: 30, TimeoutSeconds: 60, FailureThreshold: endless,
		ProbeHandler: v1.ProbeHandler{HTTPGet: &v1.HTTPGetAction{Port: intstr.FromInt32(1)}}}
}

// crashLoop adds containers, all of which fail at once.
func crashLoop(containers int) func(*v1.Pod) {
	return func(p *v1.Pod) {
		p.Spec.Containers[0].Args = []string{"exit", "--code", "1"}
		manyContainers(containers)(p)
	}
}
