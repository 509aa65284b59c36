package core

import (
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"seedlet.dev/world"
)

// exitWith makes every exited container have an exit code and a reason.
func (n *fakeNode) exitWith(code int32, reason string) {
	n.answer = func(effect any) any {
		status, ok := effect.(*runtimeapi.ContainerStatusRequest)
		if !ok || n.containers[status.ContainerId] == nil {
			return nil
		}
		answer := n.perform(effect).(*runtimeapi.ContainerStatusResponse)
		if answer.Status.State == runtimeapi.ContainerState_CONTAINER_EXITED {
			answer.Status.ExitCode, answer.Status.Reason = code, reason
		}
		return answer
	}
}

// endContainers ends the running containers.
func (n *fakeNode) endContainers() {
	for _, c := range n.containers { //ordered: each is independent of the others
		c.State = runtimeapi.ContainerState_CONTAINER_EXITED
	}
}

// Each run of a container counts once, when its end is known: neither a later plan, nor the run
// that follows, nor another agent counts it again.
func TestTerminatedContainersMetric(t *testing.T) {
	const ended = "kubelet_terminated_containers_total "
	p := apiPodNamed("web", "u1")
	p.Spec.InitContainers = []v1.Container{{Name: "setup", Image: "i"}}
	n := bootWithPods(nil, p)
	n.advance(5 * time.Second)
	n.expectMetrics(t, "running", map[string]float64{ended + "init_container 0 ": 1})
	n.exitWith(137, "OOMKilled")
	n.endContainers()
	n.advance(2 * time.Minute)
	n.expectMetrics(t, "restarted", map[string]float64{
		ended + "container 137 OOMKilled": 1, ended + "init_container 0 ": 1})
	n.endContainers()
	n.advance(2 * time.Minute)
	n.expectMetrics(t, "restarted again", map[string]float64{
		ended + "container 137 OOMKilled": 2, ended + "init_container 0 ": 1})
	n.restart()
	n.advance(time.Minute)
	if got := n.agent.state.Metrics.ContainersTerminated; len(got) > 0 {
		t.Errorf("another agent counts again: %v", got)
	}
	n.exitWith(1, "Error")
	n.endContainers() // while no agent runs
	n.restart()
	n.advance(time.Minute)
	n.expectMetrics(t, "ended while no agent ran", map[string]float64{
		ended + "container 1 Error": 1})
}

// A runtime may report any number and text.
func TestTerminatedContainersMetricHasAClosedList(t *testing.T) {
	const ended = "kubelet_terminated_containers_total container "
	for _, c := range []struct {
		code   int32
		reason string
		want   string
	}{
		{0, "Completed", "0 Completed"}, {255, "Unknown", "255 Unknown"}, {256, "Error", "other Error"},
		{-1, "Error", "other Error"}, {1, "seccomp killed", "1 seccomp killed"},
		{2, "lies 7", "2 other"},
	} {
		n := bootNode(map[string]string{"a": podNamed("a")})
		n.advance(5 * time.Second)
		n.exitWith(c.code, c.reason)
		n.endContainers()
		n.advance(3 * time.Second)
		n.expectMetrics(t, c.reason, map[string]float64{ended + c.want: 1})
	}
}

// A pod counts when this agent starts to work on it, also if an earlier one has started it. Its
// init containers do not count.
func TestContainersPerPodMetric(t *testing.T) {
	const perPod = "kubelet_containers_per_pod_count"
	n := bootNode(map[string]string{"web.yaml": web})
	for _, when := range []string{"started", "after a restart of the agent"} {
		n.advance(time.Minute)
		n.expectMetrics(t, when, map[string]float64{perPod: 1})
		if got := n.agent.state.Metrics.ContainersPerPod; got.Sum != time.Second {
			t.Errorf("%s: %v containers, want one", when, got.Sum.Seconds())
		}
		n.restart()
	}
	n.manifests = nil
	n.restart()
	n.advance(time.Minute)
	n.expectMetrics(t, "of a pod that only the runtime has", map[string]float64{perPod: 0})
}

// A pod that waits for another one of its name has not started.
func TestContainersPerPodMetricOfAWaitingPod(t *testing.T) {
	n := bootWithPods(nil, apiPodNamed("web", "u1"))
	n.stopsFail = true
	n.apiServer.remove("default/web")
	n.apiServer.put(apiPodNamed("web", "u2"))
	n.event(world.Event{})
	n.advance(time.Minute)
	n.expectMetrics(t, "waiting", map[string]float64{"kubelet_containers_per_pod_count": 1})
	n.stopsFail = false
	n.advance(2 * time.Minute)
	n.expectMetrics(t, "started", map[string]float64{"kubelet_containers_per_pod_count": 2})
}

// A pod over its budget never starts, and does not count.
func TestContainersPerPodMetricOfAPodOverBudget(t *testing.T) {
	n := bootWithPods(nil, apiPodNamed("web", "u1"), podOfTokens("h", "u2", 70))
	n.advance(10 * time.Second)
	n.expectMetrics(t, "over budget", map[string]float64{"kubelet_containers_per_pod_count": 1})
}

// The start of a pod with a user namespace fails with its sandbox, or with anything else that comes
// before its containers run.
func TestUserNamespaceFailureMetric(t *testing.T) {
	const started, failed = "kubelet_started_user_namespaced_pods_total",
		"kubelet_started_user_namespaced_pods_errors_total"
	inNamespace := strings.Replace(podNamed("a"), "spec: {", "spec: {hostUsers: false, ", 1)
	for _, call := range []string{"RunPodSandbox", "PullImage", "MakeDir", "runAsNonRoot", "none"} {
		manifest := inNamespace
		if call == "runAsNonRoot" {
			manifest = strings.Replace(manifest, "spec: {",
				"spec: {securityContext: {runAsNonRoot: true, runAsUser: 0}, ", 1)
		}
		n := newNode(map[string]string{"a": manifest})
		n.status.RuntimeHandlers = []*runtimeapi.RuntimeHandler{{
			Features: &runtimeapi.RuntimeHandlerFeatures{UserNamespaces: true}}}
		failures := 0
		n.answer = func(effect any) any {
			if _, isStatus := effect.(*runtimeapi.ImageStatusRequest); isStatus &&
				call == "PullImage" && failures == 0 {
				return &runtimeapi.ImageStatusResponse{} // the image has to be pulled
			}
			if dir, ok := effect.(*world.MakeDir); ok && !strings.Contains(dir.Path, "/containers/") {
				return nil // of the pod, before the sandbox
			}
			if world.CallName(effect) != call || failures == 3 {
				return nil
			}
			failures++
			return world.Errorf(world.KindInternal, call, "broken")
		}
		n.restart()
		n.advance(10 * time.Minute)
		want := map[string]map[string]float64{
			"RunPodSandbox": {started: 4, failed: 3}, // each attempt is another sandbox
			"PullImage":     {started: 1, failed: 1},
			"MakeDir":       {started: 1, failed: 1},
			"runAsNonRoot":  {started: 1, failed: 1},
			"none":          {started: 1, failed: 0},
		}
		n.expectMetrics(t, call, want[call])
	}
}

// A request for an image counts by what it has led to, once for each run of a container.
func TestImageRequestMetric(t *testing.T) {
	const requests = "kubelet_image_manager_ensure_image_requests_total "
	for _, c := range []struct {
		policy  v1.PullPolicy
		ref     string
		answers map[string]any // instead of an image that is present
		want    map[string]float64
	}{
		{v1.PullIfNotPresent, "i", nil, map[string]float64{"ifnotpresent true false": 1}},
		{v1.PullNever, "i", nil, map[string]float64{"never true false": 1}},
		{v1.PullAlways, "i", nil, map[string]float64{"always unknown true": 1}},
		{v1.PullNever, "i", map[string]any{"ImageStatus": &runtimeapi.ImageStatusResponse{}},
			map[string]float64{"never false unknown": 1}},
		{v1.PullIfNotPresent, "i", map[string]any{
			"ImageStatus": &runtimeapi.ImageStatusResponse{},
			"PullImage":   world.Errorf(world.KindInternal, "PullImage", "broken")},
			map[string]float64{"ifnotpresent false true": 1}},
		{v1.PullIfNotPresent, "i", map[string]any{
			"ImageStatus": world.Errorf(world.KindInternal, "ImageStatus", "broken")},
			map[string]float64{"ifnotpresent unknown unknown": 1}},
		{v1.PullIfNotPresent, "I!", nil, map[string]float64{"ifnotpresent unknown unknown": 1}},
	} {
		p := apiPodNamed("web", "u1")
		p.Spec.Containers[0].Image, p.Spec.Containers[0].ImagePullPolicy = c.ref, c.policy
		n := newNode(nil)
		n.apiServer = newServer()
		n.apiServer.put(p)
		n.answer = func(effect any) any { return c.answers[world.CallName(effect)] }
		n.restart()
		n.advance(5 * time.Minute)
		got, values := map[string]float64{}, n.metricValues()
		for name, value := range values {
			if labels, ok := strings.CutPrefix(name, requests); ok {
				got[labels] = value
			}
		}
		const allowed = "kubelet_imagemanager_image_mustpull_checks_total credentialPolicyAllowed"
		isPresent := c.policy != v1.PullAlways && c.answers == nil && c.ref == "i"
		if isPresent != (values[allowed] == 1) {
			t.Errorf("%s of %s: %v times present and allowed", c.policy, c.ref, values[allowed])
		}
		if len(got) != len(c.want) {
			t.Errorf("%s of %s: %v, want %v", c.policy, c.ref, got, c.want)
		}
		for labels, value := range c.want {
			if got[labels] != value {
				t.Errorf("%s of %s: %v, want %v", c.policy, c.ref, got, c.want)
			}
		}
	}
}

// An image that was missing and comes, by a pull or by other means, is requested once more only if
// nothing was pulled for the first request.
func TestImageRequestMetricOfLaterImages(t *testing.T) {
	const requests = "kubelet_image_manager_ensure_image_requests_total "
	for _, c := range []struct {
		policy v1.PullPolicy
		want   map[string]float64
	}{
		{v1.PullIfNotPresent, map[string]float64{requests + "ifnotpresent false true": 1}},
		{v1.PullNever, map[string]float64{requests + "never false unknown": 1,
			requests + "never true false": 1}},
	} {
		p := apiPodNamed("web", "u1")
		p.Spec.Containers[0].ImagePullPolicy = c.policy
		n := newNode(nil)
		n.apiServer = newServer()
		n.apiServer.put(p)
		missing := true
		n.answer = func(effect any) any {
			if _, isStatus := effect.(*runtimeapi.ImageStatusRequest); isStatus && missing {
				missing = false
				return &runtimeapi.ImageStatusResponse{}
			}
			return nil
		}
		n.restart()
		n.advance(time.Minute)
		n.expectMetrics(t, string(c.policy), c.want)
		if total := n.agent.state.Metrics.ImageRequests; len(total) != len(c.want) {
			t.Errorf("%s: %v", c.policy, total)
		}
	}
}

// A status counts from its first change until the server has it: retries are a part of that, and
// so is the time for which a write before it was in flight.
func TestStatusSyncMetric(t *testing.T) {
	n := bootWithPods(nil, apiPodNamed("web", "u1"))
	n.advance(time.Minute)
	synced := &n.agent.state.Metrics.StatusSync
	before := *synced
	if before.Sum >= time.Second || n.metricValues()["kubelet_pod_status_sync_duration_seconds"] !=
		float64(n.agent.state.StatusWriter.Written) {
		t.Errorf("%v for %d statuses", before, n.agent.state.StatusWriter.Written)
	}
	n.apiServer.unavailable = true
	n.endContainers()
	n.advance(20 * time.Second)
	n.apiServer.unavailable = false
	n.advance(2 * time.Minute)
	if took := synced.Sum - before.Sum; took < 18*time.Second || took > 90*time.Second {
		t.Errorf("%v after a failure of 20s", took)
	}
	n.expectMetrics(t, "after failures", map[string]float64{
		"kubelet_pod_status_sync_duration_seconds": float64(n.agent.state.StatusWriter.Written)})
}

// The gauge is about the first stateless pod with a network of its own.
func TestFirstNetworkPodMetric(t *testing.T) {
	const first = "kubelet_first_network_pod_start_sli_duration_seconds"
	host, stateful := apiPodNamed("host", "u1"), apiPodNamed("stateful", "u2")
	host.Spec.HostNetwork = true
	unset := v1.HostPathUnset
	stateful.Spec.Volumes = []v1.Volume{{Name: "data", VolumeSource: v1.VolumeSource{
		HostPath: &v1.HostPathVolumeSource{Path: "/data", Type: &unset}}}}
	mountAll(&stateful.Spec)
	n := bootWithPods(nil, host, stateful)
	n.advance(time.Minute)
	n.expectMetrics(t, "others", map[string]float64{first: 0,
		"kubelet_pod_start_sli_duration_seconds": 1})
	for i, name := range []string{"a", "b"} {
		p := apiPodNamed(name, "u-"+name)
		p.CreationTimestamp.Time = n.now.Add(-time.Duration(40*(i+1)) * time.Second)
		n.apiServer.put(p)
		n.event(world.Event{})
		n.advance(5 * time.Second)
		if got := n.metricValues()[first]; got < 40 || got > 46 {
			t.Errorf("%s: %v", name, got)
		}
	}
}

func TestCgroupVersionMetric(t *testing.T) {
	n := newNode(nil)
	n.machine.Machine.CgroupV1 = true
	n.restart()
	n.expectMetrics(t, "hierarchies of version 1", map[string]float64{"kubelet_cgroup_version": 1,
		"kubelet_metrics_provider cadvisor": 1})
}

// A postStart hook's sleep is cut as well if the container changes.
func TestShortenedSleepMetricOfAChangedContainer(t *testing.T) {
	p := apiPodNamed("web", "u1")
	p.Spec.Containers[0].Lifecycle = &v1.Lifecycle{
		PostStart: &v1.LifecycleHandler{Sleep: &v1.SleepAction{Seconds: 60}}}
	n := bootWithPods(nil, p)
	n.advance(5 * time.Second)
	changed := n.apiServer.objects["default/web"].DeepCopy()
	changed.Spec.Containers[0].Image = "i2"
	n.apiServer.put(changed)
	n.event(world.Event{})
	n.advance(2 * time.Minute)
	n.expectMetrics(t, "changed", map[string]float64{
		"kubelet_sleep_action_terminated_early_total":      1,
		"kubelet_started_containers_total container":       2,
		"kubelet_running_containers running":               1,
		"kubelet_terminated_containers_total container 0 ": 1})
}

// A sleep counts if it was ended: a postStart hook's by the end of the pod, a preStop hook's by a
// shorter grace period. A sleep that lasts does not count, nor another hook.
func TestShortenedSleepMetric(t *testing.T) {
	sleep := func(seconds int64) *v1.LifecycleHandler {
		return &v1.LifecycleHandler{Sleep: &v1.SleepAction{Seconds: seconds}}
	}
	exec := &v1.LifecycleHandler{Exec: &v1.ExecAction{Command: []string{"a"}}}
	for _, c := range []struct {
		when  string
		hooks v1.Lifecycle
		grace int64
		want  float64
	}{
		{"during postStart", v1.Lifecycle{PostStart: sleep(60)}, 30, 1},
		{"after postStart", v1.Lifecycle{PostStart: sleep(2)}, 30, 0},
		{"short preStop", v1.Lifecycle{PreStop: sleep(5)}, 30, 0},
		{"preStop of the whole grace period", v1.Lifecycle{PreStop: sleep(5)}, 5, 0},
		{"preStop with a shorter grace period", v1.Lifecycle{PreStop: sleep(20)}, 5, 1},
		{"other hooks", v1.Lifecycle{PostStart: exec, PreStop: exec}, 1, 0},
	} {
		p := apiPodNamed("web", "u1")
		p.Spec.Containers[0].Lifecycle = &c.hooks
		n := bootWithPods(nil, p)
		n.advance(5 * time.Second)
		n.markDeleted("default/web", c.grace)
		n.advance(2 * time.Minute)
		n.expectMetrics(t, c.when, map[string]float64{
			"kubelet_sleep_action_terminated_early_total": c.want, "kubelet_running_pods": 0})
	}
}

// Volumes count while they are desired, and while they are set up; so do the operations on them.
func TestVolumeMetrics(t *testing.T) {
	const total, operations = "volume_manager_total_volumes ", "storage_operation_duration_seconds "
	const emptyDir, hostPath, image = "kubernetes.io/empty-dir", "kubernetes.io/host-path",
		"kubernetes.io/image"
	const desired, actual = " desired_state_of_world", " actual_state_of_world"
	const volumes = `{apiVersion: v1, kind: Pod, metadata: {name: a}, spec: {
	  volumes: [{name: a, emptyDir: {}}, {name: b, emptyDir: {}}, {name: c, hostPath: {path: /c}},
	    {name: d, image: {reference: v}}],
	  containers: [{name: a, image: i, volumeMounts: [{name: a, mountPath: /a},
	    {name: b, mountPath: /b}, {name: c, mountPath: /c}, {name: d, mountPath: /d}]}]}}`
	n, broken := newNode(map[string]string{"a": volumes}), 3
	n.answer = func(effect any) any {
		if _, isStat := effect.(*world.StatPath); !isStat || broken == 0 {
			return nil
		}
		broken--
		return world.Errorf(world.KindInternal, "StatPath", "broken")
	}
	n.restart()
	n.advance(500 * time.Millisecond)
	n.expectMetrics(t, "failing", map[string]float64{
		total + emptyDir + desired: 2, total + hostPath + desired: 1, total + image + desired: 1,
		operations + emptyDir + " volume_mount fail-unknown false": 2})
	n.advance(time.Minute)
	mounted := map[string]float64{
		total + emptyDir + desired: 2, total + hostPath + desired: 1, total + image + desired: 1,
		total + emptyDir + actual: 2, total + hostPath + actual: 1, total + image + actual: 1,
		operations + emptyDir + " volume_mount fail-unknown false": 3,
		operations + emptyDir + " volume_mount success false":      2,
		operations + hostPath + " volume_mount success false":      1,
		operations + image + " volume_mount success false":         1}
	n.expectMetrics(t, "running", mounted)
	unmounts := 2
	n.answer = func(effect any) any {
		unmount, ok := effect.(*world.Unmount)
		if !ok || unmounts == 0 || strings.HasSuffix(unmount.Path, "/volume-subpaths") {
			return nil
		}
		unmounts--
		return world.Errorf(world.KindInternal, "Unmount", "broken")
	}
	n.stopsFail, n.manifests = true, nil
	n.advance(time.Minute)
	n.expectMetrics(t, "terminating", mounted)
	n.stopsFail = false
	n.advance(2 * time.Minute)
	n.expectMetrics(t, "removed", map[string]float64{"seedlet_pods": 0,
		operations + emptyDir + " volume_unmount fail-unknown false": 4,
		operations + emptyDir + " volume_unmount success false":      2,
		operations + hostPath + " volume_unmount success false":      1,
		operations + emptyDir + " volume_mount success false":        2})
	for name := range n.metricValues() {
		if strings.HasPrefix(name, total) {
			t.Errorf("%s of a removed pod", name)
		}
	}
}

// The volumes of a pod that has ended and is still desired are unmounted: it has none any more.
func TestVolumeMetricsOfAnEndedPod(t *testing.T) {
	const volumes = `{apiVersion: v1, kind: Pod, metadata: {name: a}, spec: {restartPolicy: Never,
	  volumes: [{name: a, emptyDir: {}}], containers: [{name: a, image: i}]}}`
	n := bootNode(map[string]string{"a": volumes})
	n.advance(10 * time.Second)
	n.endContainers()
	n.failingCalls = map[string]bool{"RemoveTree": true} // no unmount
	n.advance(time.Minute)
	n.expectMetrics(t, "ended", map[string]float64{"seedlet_pods": 1,
		"storage_operation_duration_seconds kubernetes.io/empty-dir volume_unmount success false": 1})
	for name, value := range n.metricValues() {
		if strings.HasPrefix(name, "volume_manager_total_volumes") ||
			strings.Contains(name, "fail-unknown") {
			t.Errorf("%s is %v", name, value)
		}
	}
}
