package pod

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"seedlet.dev/core/probe"
	"seedlet.dev/world"
)

// expectEvents fails unless exactly these events were recorded since the last call, as "Reason
// where: message".
func (r *harness) expectEvents(want ...string) {
	r.t.Helper()
	got := []string{}
	for _, e := range r.events {
		where := strings.TrimPrefix(e.Regarding.FieldPath, "spec.")
		got = append(got, strings.TrimSpace(e.Reason+" "+where)+": "+e.Message)
	}
	r.events = nil
	if diff := cmp.Diff(append([]string{}, want...), got); diff != "" {
		r.t.Error(diff)
	}
}

func internalError(message string) *world.Error {
	return world.Errorf(world.KindInternal, "", "%s", message)
}

func TestEventsOfContainerCreation(t *testing.T) {
	r := readyHarness(t, func(*v1.PodSpec) {}).planAt(0)
	r.expectEvents(`Pulled containers{web}: Container image "i" already present on machine and ` +
		`can be accessed by the pod`)
	r.complete("CreateContainer", nil, internalError("EIO"))
	r.expectEvents("Failed containers{web}: Error: EIO")
	r.pod.StaleSince = time.Time{} // as after a relist
	r.planAt(0).expectEvents()
	r.env.Images.Images["i"].CheckedAt = t0.Add(time.Hour)
	r.planAt(time.Second).expectEvents(`Pulled containers{web}: Container image "i" already ` +
		`present on machine and can be accessed by the pod`)
	r.complete("CreateContainer", &runtimeapi.CreateContainerResponse{ContainerId: "c"}, nil)
	r.expectEvents("Created containers{web}: Container created")
	r.complete("StartContainer", &runtimeapi.StartContainerResponse{}, nil)
	r.expectEvents("Started containers{web}: Container started")
	r.planAt(time.Minute).expectEvents()
}

// An event about a container has the path of the container in the pod.
func TestEventObjectReference(t *testing.T) {
	s := spec(v1.RestartPolicyAlways, "setup", "web")
	s.Spec.EphemeralContainers = []v1.EphemeralContainer{{
		EphemeralContainerCommon: v1.EphemeralContainerCommon{Name: "debug"}}}
	p := podWith(s)
	for name, want := range map[string]string{
		"": "", "web": "spec.containers{web}", "setup": "spec.initContainers{setup}",
		"debug": "spec.ephemeralContainers{debug}", "old": "implicitly required container old",
	} {
		ref := p.objectReference(name)
		if ref.FieldPath != want || ref.Kind != "Pod" || ref.UID != "u" || ref.Name != "p" ||
			ref.Namespace != "default" {
			t.Errorf("%q: %+v", name, ref)
		}
	}
	orphan := NewOrphan("u", "default", "p", t0)
	if ref := orphan.objectReference("old"); ref.UID != "u" ||
		ref.FieldPath != "implicitly required container old" {
		t.Errorf("reference of an orphaned pod: %+v", ref)
	}
}

// A pull records an event when it starts, and one for each failure.
func TestEventsOfPull(t *testing.T) {
	r := readyHarness(t, func(*v1.PodSpec) {})
	delete(r.env.Images.Images, "i")
	r.planAt(0).planImage("i").completeImage("ImageStatus", &runtimeapi.ImageStatusResponse{}, nil)
	for _, at := range []time.Duration{0, 10 * time.Second} {
		r.now = t0.Add(at)
		r.planImage("i").planAt(at).expectEvents(`Pulling containers{web}: Pulling image "i"`)
		r.planAt(at + time.Second).expectEvents()
		r.completeImage("PullImage", nil, internalError("no route"))
		r.expectEvents(`Failed containers{web}: Failed to pull image "i": no route`,
			"Failed containers{web}: Error: ErrImagePull",
			`BackOff containers{web}: Back-off pulling image "i"`,
			"Failed containers{web}: Error: ImagePullBackOff")
		r.planAt(at + 2*time.Second).expectEvents()
		r.env.Images.Images["i"].PullNotBefore = t0.Add(10 * time.Second)
	}
	r.env.Images.Images["i"].PullNotBefore = time.Time{}
	r.now = t0.Add(time.Minute)
	r.planImage("i").planAt(time.Minute)
	r.now = t0.Add(62 * time.Second)
	r.completeImage("PullImage", &runtimeapi.PullImageResponse{ImageRef: "sha"}, nil)
	r.planImage("i").completeImage("ImageStatus", &runtimeapi.ImageStatusResponse{
		Image: &runtimeapi.Image{Id: "sha", Size: 4096}}, nil)
	r.expectEvents(`Pulling containers{web}: Pulling image "i"`,
		`Pulled containers{web}: Successfully pulled image "i" in 2s (1m2s including waiting). `+
			`Image size: 4096 bytes.`)
}

func TestEventsOfImageFailures(t *testing.T) {
	r := readyHarness(t, func(s *v1.PodSpec) { s.Containers[0].Image = "I//" })
	r.planAt(0)
	if len(r.events) != 2 || r.events[0].Reason != "InspectFailed" ||
		r.events[1].Message != "Error: InvalidImageName" {
		t.Errorf("recorded %v", r.events)
	}
	count := len(r.events)
	r.events = nil
	if r.planAt(time.Minute - 1).expectEvents(); len(r.planAt(time.Minute).events) != count {
		t.Errorf("recorded a minute later: %v", r.events)
	}

	r = readyHarness(t, func(s *v1.PodSpec) { s.Containers[0].ImagePullPolicy = v1.PullNever })
	delete(r.env.Images.Images, "i")
	r.planAt(0).planImage("i").completeImage("ImageStatus", nil, internalError("busy"))
	r.expectEvents(`InspectFailed containers{web}: Failed to inspect image "i": busy`,
		"Failed containers{web}: Error: ImageInspectError")
	r.now = t0.Add(time.Second)
	r.planImage("i").completeImage("ImageStatus", &runtimeapi.ImageStatusResponse{}, nil)
	never := []string{`ErrImageNeverPull containers{web}: Container image "i" is not present ` +
		`with pull policy of Never`, "Failed containers{web}: Error: ErrImageNeverPull"}
	r.expectEvents(never...)
	r.planAt(61 * time.Second).expectEvents(never...)
	if r.planAt(119 * time.Second).expectEvents(); !r.wake.Equal(t0.Add(121 * time.Second)) {
		t.Errorf("woken at %v to repeat the events", r.wake.Sub(t0))
	}
}

// The back-off of a restart is recorded when the exit becomes known, and every minute while the
// back-off lasts.
func TestEventsOfCrash(t *testing.T) {
	c := run("web", 0, Running)
	c.Backoff, c.StartIssuedAt = 90*time.Second, t0
	r := newHarness(t, podWith(spec(v1.RestartPolicyAlways, "", "web"), c))
	r.pod.Containers[0].State, r.pod.Containers[0].ExitSeenAt = Exited, t0
	r.planAt(0).complete("ContainerStatus", &runtimeapi.ContainerStatusResponse{
		Status: &runtimeapi.ContainerStatus{State: runtimeapi.ContainerState_CONTAINER_EXITED,
			ExitCode: 1}}, nil)
	const back = "BackOff containers{web}: Back-off restarting failed container web in pod " +
		"p_default(u)"
	r.expectEvents(back)
	r.planAt(5 * time.Second).expectEvents()
	r.planAt(time.Minute).expectEvents(back)
	r.planAt(61 * time.Second).expectEvents()
	if r.planAt(90 * time.Second); len(r.pod.RepeatedEvents) > 0 {
		t.Error("the event is repeated after the back-off")
	}
}

// The stop of a container records its reason when it starts.
func TestEventsOfStops(t *testing.T) {
	r := newHarness(t, notDesired(runningPod(func(*v1.Container) {}))).planAt(0)
	r.expectEvents("Killing containers{web}: Stopping container web")
	r.complete("StopContainer", nil, internalError("busy"))
	r.expectEvents("FailedKillPod: error killing pod: busy")
	r.planAt(time.Minute).expectEvents()

	p := runningPod(func(*v1.Container) {})
	p.Containers[0].Hash = "another"
	newHarness(t, p).planAt(0).expectEvents(
		"Killing containers{web}: Container web definition changed, will be restarted")

	limit := int64(60)
	p = runningPod(func(*v1.Container) {})
	p.Spec.Spec.ActiveDeadlineSeconds = &limit
	newHarness(t, p).planAt(time.Minute).expectEvents(
		"DeadlineExceeded: Pod was active on the node longer than the specified deadline",
		"Killing containers{web}: Stopping container web")
}

func TestEventsOfProbes(t *testing.T) {
	for _, test := range []struct {
		policy v1.RestartPolicy
		want   string
	}{
		{v1.RestartPolicyAlways, "Container web failed liveness probe, will be restarted"},
		{v1.RestartPolicyNever, "Container web failed liveness probe"},
	} {
		p := runningPod(withProbe(probe.Liveness, nil))
		p.Spec.Spec.RestartPolicy = test.policy
		r := newHarness(t, p)
		bad := &runtimeapi.ExecSyncResponse{ExitCode: 1, Stdout: []byte("bad")}
		r.planAt(0).complete("ExecSync", bad, nil)
		r.expectEvents("Unhealthy containers{web}: Liveness probe failed: bad")
		r.planAt(10 * time.Second)
		for range 3 { // attempts
			r.complete("ExecSync", nil, internalError("no such container"))
		}
		r.expectEvents("Unhealthy containers{web}: Liveness probe errored and resulted in unknown " +
			"state: no such container")
		r.planAt(20*time.Second).complete("ExecSync", bad, nil)
		r.expectEvents("Unhealthy containers{web}: Liveness probe failed: bad",
			"Killing containers{web}: "+test.want)
	}
}

// The messages about init containers are the kubelet's.
func TestKillingMessage(t *testing.T) {
	for _, c := range []struct {
		role         Role
		reason, want string
	}{
		{App, "", "Stopping container c"},
		{Sidecar, "", "Stopping container c"},
		{App, stopReasonChanged, "Container c definition changed, will be restarted"},
		{Sidecar, stopReasonChanged, "Init container c definition changed"},
		{Sidecar, stopReasonLiveness + stopReasonRestartSuffix, "Init container c failed liveness probe"},
		{Init, stopReasonUnknownState, `Init container is in "unknown" state, try killing it before ` +
			"restart"},
		{App, stopReasonUnknownState, `Container is in "unknown" state, try killing it before restart`},
		{Sidecar, stopReasonPostStartHook, "FailedPostStartHook"},
	} {
		stopped := Container{Name: "c", Stop: &Stop{Reason: c.reason}}
		if got := stopped.killingMessage(c.role); got != c.want {
			t.Errorf("%q, want %q", got, c.want)
		}
	}
}

// The events of a hook do not have its output, which may be secret.
func TestEventsOfHooks(t *testing.T) {
	r := newHarness(t, withHook(nil, execHook("greet"))).planAt(0).completeExec(1)
	r.expectEvents("FailedPostStartHook containers{web}: PostStartHook failed",
		"Killing containers{web}: FailedPostStartHook")
	r = newHarness(t, notDesired(withHook(execHook("drain"), nil))).planAt(0)
	r.events = nil
	r.completeExec(1).expectEvents("FailedPreStopHook containers{web}: PreStopHook failed")
}

// The replacement of a sandbox is recorded once.
func TestEventsOfSandboxes(t *testing.T) {
	p := podWith(spec(v1.RestartPolicyAlways, "", "web"))
	p.Spec.Spec.DNSPolicy = v1.DNSDefault
	p.Sandboxes[0].Ready, p.Sandboxes[0].Stopped = false, true
	r := newHarness(t, p)
	r.env.Node.Resolv.Loaded, r.env.NetworkNotReady = true, "network is not ready: no plugin"
	r.planAt(0).planAt(0).expectEvents("NetworkNotReady: network is not ready: no plugin")
	r.env.NetworkNotReady = ""
	r.planAt(0).expectEvents("SandboxChanged: Pod sandbox changed, it will be killed and re-created.")
	r.complete("RunPodSandbox", nil, internalError("no address"))
	r.expectEvents("FailedCreatePodSandBox: Failed to create pod sandbox: no address")
	p.StaleSince = time.Time{}
	r.planAt(time.Second).expectCall("RunPodSandbox")
	r.expectEvents()
}

// Events of persisting conditions are repeated every minute: a network that is not ready, and a
// container that fails its checks.
func TestRepeatedEvents(t *testing.T) {
	p := podWith(spec(v1.RestartPolicyAlways, "", "web"))
	p.Sandboxes[0].Ready, p.Sandboxes[0].Stopped = false, true
	r := newHarness(t, p)
	r.env.Node.Resolv.Loaded, r.env.NetworkNotReady = true, "no plugin"
	r.planAt(0).expectEvents("NetworkNotReady: no plugin")
	r.planAt(59 * time.Second).expectEvents()
	r.planAt(61 * time.Second).expectEvents("NetworkNotReady: no plugin")
	r.planAt(120 * time.Second).expectEvents()
	r.planAt(121 * time.Second).expectEvents("NetworkNotReady: no plugin")

	r = readyHarness(t, func(s *v1.PodSpec) {
		s.SecurityContext = &v1.PodSecurityContext{RunAsUser: new(int64), RunAsNonRoot: new(true)}
	}).planAt(0)
	if len(r.events) != 1 || r.events[0].Reason != "Failed" {
		t.Fatalf("recorded %v", r.events)
	}
	event := "Failed containers{web}: " + r.events[0].Message
	r.events = nil
	r.planAt(time.Second).expectEvents()
	r.planAt(time.Minute).expectEvents(event)

	p = podWith(spec(v1.RestartPolicyAlways, "", "web"))
	p.Sandboxes[0].Ready, p.Sandboxes[0].Stopped = false, true
	p.Spec.Spec.Subdomain, p.Spec.Spec.SetHostnameAsFQDN = strings.Repeat("d", 60), new(true)
	r = newHarness(t, p).planAt(0)
	event = "FailedCreatePodSandBox: Failed to create pod sandbox: " + p.ProblemOf("").Message
	r.expectEvents(event)
	r.planAt(time.Minute).expectEvents(event)
}

// Each failed attempt to create a volume records an event.
func TestEventsOfVolumes(t *testing.T) {
	r := newHarness(t, withVolume(v1.VolumeMount{MountPath: "/data"}))
	for _, at := range []time.Duration{0, time.Second} {
		r.planAt(at).complete("StatPath", nil, internalError("EIO"))
		r.expectEvents(`FailedMount: MountVolume.SetUp failed for volume "data" : EIO`)
		r.planAt(at).expectEvents()
	}
}

// An error in the configuration of a container is recorded once, and not by every plan.
func TestEventsOfConfigurations(t *testing.T) {
	r := readyHarness(t, func(s *v1.PodSpec) {
		s.Containers[0].Env = []v1.EnvVar{{Name: "A", ValueFrom: &v1.EnvVarSource{
			ConfigMapKeyRef: &v1.ConfigMapKeySelector{Key: "k"}}}}
	})
	r.planAt(0).planAt(time.Second).expectEvents(
		"Failed containers{web}: Error: no API server is configured")
}
