package core

import (
	"bytes"
	"slices"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"seedlet.dev/world"
)

const web = `{apiVersion: v1, kind: Pod, metadata: {name: web}, spec: {
  terminationGracePeriodSeconds: 7,
  initContainers: [{name: setup, image: i}], containers: [{name: web, image: i}]}}`

func TestPodLifeCycle(t *testing.T) {
	n := bootNode(map[string]string{"web.yaml": web})
	n.advance(5 * time.Second)
	want := "run sandbox, create setup, start setup, create web, start web"
	if got := n.takeCalls(); got != want {
		t.Fatalf("started with %q, want %q", got, want)
	}
	n.event(world.Event{Body: &world.PodsRequest{}})
	if len(n.pods) != 1 || n.pods[0].Status.Phase != v1.PodRunning ||
		n.pods[0].Status.PodIP != "10.0.0.2" || n.pods[0].Name != "web-n1" {
		t.Fatalf("served as %+v", n.pods)
	}
	n.restart()
	n.advance(time.Minute)
	if got := n.takeCalls(); got != "" {
		t.Fatalf("a restart of the agent led to %q", got)
	}
	n.manifests = nil
	n.advance(time.Minute)
	want = "stop web 7, stop sandbox, remove setup, remove web, remove sandbox"
	if got := n.takeCalls(); got != want {
		t.Fatalf("terminated with %q, want %q", got, want)
	}
	if len(n.agent.state.Pods) != 0 || len(n.agent.podUIDsByName) != 0 {
		t.Error("the state of the pod is not removed")
	}
}

// An orphaned pod of the runtime is terminated once the sources are known not to have it.
func TestOrphanedPodIsTerminated(t *testing.T) {
	n := bootNode(map[string]string{"web.yaml": web})
	n.advance(5 * time.Second)
	n.takeCalls()
	n.manifests = nil
	n.restart()
	n.advance(time.Minute)
	want := "stop web 2, stop sandbox, remove setup, remove web, remove sandbox"
	if got := n.takeCalls(); got != want {
		t.Errorf("terminated with %q, want %q", got, want)
	}
}

func TestBrokenManifestIsSkipped(t *testing.T) {
	n := bootNode(map[string]string{"a.yaml": "kind: {", "web.yaml": web, ".hidden.yaml": web})
	n.advance(5 * time.Second)
	if got := len(n.agent.state.Pods); got != 1 {
		t.Errorf("%d pods, want the one with a valid manifest", got)
	}
}

// A file that is invalid while a tool writes it does not end its pod; one that stays invalid does.
func TestHalfWrittenManifest(t *testing.T) {
	n := bootNode(map[string]string{"web.yaml": web})
	n.advance(5 * time.Second)
	n.takeCalls()
	n.manifests["web.yaml"] = web[:40]
	n.event(world.Event{Body: &world.FileChanged{Path: "/manifests"}})
	n.advance(500 * time.Millisecond)
	n.manifests["web.yaml"] = web
	n.event(world.Event{Body: &world.FileChanged{Path: "/manifests"}})
	n.advance(time.Minute)
	if got := n.takeCalls(); got != "" {
		t.Fatalf("a half-written manifest led to %q", got)
	}
	n.manifests["web.yaml"] = web[:40]
	n.advance(time.Minute)
	if got := n.takeCalls(); !strings.HasPrefix(got, "stop web") {
		t.Errorf("a manifest that stays broken led to %q", got)
	}
}

// An agent that starts while a manifest is half written does not end its pod.
func TestHalfWrittenManifestAtStart(t *testing.T) {
	n := bootNode(map[string]string{"web.yaml": web})
	n.advance(5 * time.Second)
	n.takeCalls()
	n.manifests["web.yaml"] = web[:40]
	n.restart()
	n.advance(500 * time.Millisecond)
	n.manifests["web.yaml"] = web
	n.advance(time.Minute)
	if got := n.takeCalls(); got != "" {
		t.Errorf("it led to %q", got)
	}
}

func TestSnapshotIsTheWholeState(t *testing.T) {
	n := bootNode(map[string]string{"web.yaml": web})
	n.advance(3 * time.Second)
	before, err := n.agent.Snapshot()
	if err != nil {
		t.Fatal(err)
	}
	if n.agent, err = Restore(before); err != nil {
		t.Fatal(err)
	}
	after, _ := n.agent.Snapshot()
	if !bytes.Equal(before, after) {
		t.Errorf("restored as\n%s\nwant\n%s", after, before)
	}
	n.takeCalls()
	n.advance(time.Minute)
	if got := n.takeCalls(); got != "" {
		t.Errorf("the restored agent did %q", got)
	}
	if _, err := Restore([]byte("{")); err == nil {
		t.Error("half a snapshot was accepted")
	}
}

// At rest the agent only polls.
func TestOperationsAtRest(t *testing.T) {
	n := bootNode(map[string]string{"web.yaml": web})
	n.advance(time.Minute)
	n.takeCalls()
	before := n.agent.state.Ops.LastID
	n.advance(100 * time.Second)
	// Two lists a second, a status every 5 s, a log, the usage of the node and of two file systems
	// every 10 s, the manifests every 20 s, two directories, three cgroups, the links and two files of
	// the node a minute.
	if ops := n.agent.state.Ops.LastID - before; ops > 100*2+100/5+4*100/10+100/20+2*6+2*2+5 {
		t.Errorf("%d operations in 100 s at rest", ops)
	}
}

func podNamed(name string) string {
	return `{apiVersion: v1, kind: Pod, metadata: {name: ` + name + `}, spec: {
	  containers: [{name: web, image: i}]}}`
}

// Pods above maxPods are rejected. Neither a manifest that is added nor a restart of the agent ends
// a running pod.
func TestMaxPods(t *testing.T) {
	n := bootNode(nil)
	n.podsMax = 2
	n.manifests = map[string]string{"m.yaml": podNamed("m"), "z.yaml": podNamed("z")}
	n.restart()
	n.advance(30 * time.Second)
	n.takeCalls()
	n.manifests["a.yaml"] = podNamed("a")
	n.advance(time.Minute)
	n.restart()
	n.advance(time.Minute)
	if got := n.takeCalls(); got != "" {
		t.Errorf("one manifest too many led to %q", got)
	}
	if len(n.agent.state.StaticRejections) != 1 {
		t.Errorf("rejected: %v, want one pod", n.agent.state.StaticRejections)
	}
	delete(n.manifests, "m.yaml")
	n.advance(time.Minute)
	if got := n.takeCalls(); !strings.Contains(got, "run sandbox") {
		t.Errorf("the rejected pod does not run although another pod has ended: %q", got)
	}
}

// unsupported is what a container has that bootUnsupporting's agent does not support.
const unsupported = `restartPolicy: Never, restartPolicyRules: [{action: RestartAllContainers,
  exitCodes: {operator: In, values: [1]}}]`

// bootUnsupporting is bootNode with an agent that does not restart all containers of a pod.
func bootUnsupporting(manifests map[string]string) *fakeNode {
	n := newNode(manifests)
	n.gates = map[string]bool{"RestartAllContainersOnContainerExits": false}
	n.restart()
	return n
}

// A pod with an unsupported feature is rejected, with a message.
func TestUnsupportedPodIsRejected(t *testing.T) {
	n := bootUnsupporting(map[string]string{"v.yaml": `{apiVersion: v1, kind: Pod, metadata: {name: v},
	  spec: {containers: [{name: web, image: i, ` + unsupported + `}]}}`})
	n.advance(time.Minute)
	if got := n.takeCalls(); got != "" {
		t.Errorf("it led to %q", got)
	}
	for _, rejection := range n.agent.state.StaticRejections {
		if rejection.Message != "not supported yet: spec.containers[0].restartPolicyRules[0]."+
			"action (RestartAllContainers, feature gate RestartAllContainersOnContainerExits)" {
			t.Errorf("rejected because of %+v", rejection)
		}
	}
}

func TestSingleManifestFile(t *testing.T) {
	n := bootNode(map[string]string{".pod.yaml": web})
	n.singleFile = true
	n.restart()
	n.advance(30 * time.Second)
	if len(n.agent.state.Pods) != 1 {
		t.Errorf("%d pods from the file that is the manifest path, want 1", len(n.agent.state.Pods))
	}
}

func TestServedStateHasNoSecrets(t *testing.T) {
	n := bootNode(map[string]string{"p.yaml": `{apiVersion: v1, kind: Pod, metadata: {name: p}, spec: {
	  containers: [{name: web, image: i, env: [{name: PASSWORD, value: hunter2}]}]}}`})
	n.advance(5 * time.Second)
	n.event(world.Event{Body: &world.StateRequest{}})
	if n.stateJSON == "" || strings.Contains(n.stateJSON, "hunter2") ||
		!strings.Contains(n.stateJSON, "PASSWORD") {
		t.Errorf("served as %s", n.stateJSON)
	}
}

func TestRejectedPodIsServed(t *testing.T) {
	n := bootUnsupporting(map[string]string{"v.yaml": `{apiVersion: v1, kind: Pod, metadata: {name: v},
	  spec: {containers: [{name: web, image: i, ` + unsupported + `}]}}`})
	n.advance(5 * time.Second)
	n.event(world.Event{Body: &world.PodsRequest{}})
	if len(n.pods) != 1 || n.pods[0].Status.Reason != "Refused" ||
		!strings.Contains(n.pods[0].Status.Message, "restartPolicyRules") {
		t.Errorf("served as %+v", n.pods)
	}
}

// An image is pulled for the sandbox of a pod that waits for it.
func TestPullNamesSandbox(t *testing.T) {
	p := apiPodNamed("a", "u1")
	p.Spec.Containers[0].ImagePullPolicy = v1.PullAlways
	n := bootWithPods(nil)
	var pulledFor []string
	n.apiServer.onEffect = func(effect any) {
		if pull, ok := effect.(*runtimeapi.PullImageRequest); ok {
			pulledFor = append(pulledFor, pull.SandboxConfig.GetMetadata().GetUid())
		}
	}
	n.apiServer.put(p)
	n.advance(10 * time.Second)
	if !slices.Equal(pulledFor, []string{"u1"}) {
		t.Errorf("images were pulled for %q", pulledFor)
	}
}

const podWithUnsafeSysctl = `{apiVersion: v1, kind: Pod, metadata: {name: p}, spec: {
  securityContext: {sysctls: [{name: kernel.msgmax, value: "1"}]},
  containers: [{name: web, image: i}]}}`

// A pod that the node can never run has failed, as with the kubelet, so that its controller makes
// another one.
func TestPermanentRejection(t *testing.T) {
	for _, c := range []struct{ pod, reason, message string }{
		{podWithUnsafeSysctl, "SysctlForbidden",
			`Pod was rejected: forbidden sysctl: "kernel.msgmax" not allowlisted`},
		{`{apiVersion: v1, kind: Pod, metadata: {name: p}, spec: {
		  securityContext: {appArmorProfile: {type: RuntimeDefault}},
		  containers: [{name: web, image: i}]}}`, "AppArmor",
			"Pod was rejected: Cannot enforce AppArmor: AppArmor is not enabled on the host"},
	} {
		n := bootNode(map[string]string{"p.yaml": c.pod})
		n.advance(time.Minute)
		n.event(world.Event{Body: &world.PodsRequest{}})
		if got := n.takeCalls(); got != "" || len(n.pods) != 1 {
			t.Fatalf("%s: %d pods, and it led to %q", c.reason, len(n.pods), got)
		}
		status := n.pods[0].Status
		if status.Phase != v1.PodFailed || status.Reason != c.reason || status.Message != c.message {
			t.Errorf("%s: %+v", c.reason, status)
		}
	}
}

// A pod with an allowed sysctl runs, and still runs after a restart of the agent that no longer
// allows the sysctl. It is not started again after a reboot.
func TestAllowedSysctl(t *testing.T) {
	n := bootNode(nil)
	n.manifests, n.sysctls = map[string]string{"p.yaml": podWithUnsafeSysctl}, []string{"kernel.msg*"}
	n.restart()
	n.advance(time.Minute)
	if got := n.takeCalls(); !strings.Contains(got, "start web") {
		t.Fatalf("an allowed sysctl led to %q", got)
	}
	n.sysctls = nil
	n.restart()
	n.advance(time.Minute)
	if got := n.takeCalls(); got != "" {
		t.Errorf("a restart of the agent led to %q", got)
	}
	n.sandboxes, n.containers = map[string]*runtimeapi.PodSandbox{},
		map[string]*runtimeapi.Container{}
	n.restart()
	n.advance(time.Minute)
	if got := n.takeCalls(); got != "" {
		t.Errorf("after a reboot: %q", got)
	}
}

// The start time of a pod is durable.
func TestStartTimeOutlivesTheAgent(t *testing.T) {
	n := bootNode(map[string]string{"web.yaml": web})
	n.advance(5 * time.Second)
	want := n.now
	for _, s := range n.sandboxes {
		s.CreatedAt = want.UnixNano()
	}
	for _, c := range n.containers {
		c.CreatedAt = want.UnixNano()
	}
	n.advance(time.Hour)
	n.restart()
	n.advance(5 * time.Second)
	n.event(world.Event{Body: &world.PodsRequest{}})
	if got := n.pods[0].Status.StartTime; got == nil || !got.Time.Equal(want) {
		t.Errorf("started at %v, want %v", got, want)
	}
}

// A manifest that gives its UID to a pod of another name ends the one pod and starts the other.
func TestUIDMovesToAnotherName(t *testing.T) {
	named := func(name string) string {
		return strings.Replace(podNamed(name), "name: "+name+"}", "name: "+name+", uid: u1}", 1)
	}
	n := bootNode(map[string]string{"p.yaml": named("one")})
	n.advance(5 * time.Second)
	n.takeCalls()
	n.manifests["p.yaml"] = named("two")
	n.advance(time.Minute)
	want := "stop web 30, stop sandbox, remove web, remove sandbox, run sandbox, create web, " +
		"start web"
	if got := n.takeCalls(); got != want {
		t.Errorf("it led to %q, want %q", got, want)
	}
	if got := n.agent.state.Pods["u1"].Name; got != "two-n1" {
		t.Errorf("known as %s", got)
	}
}
