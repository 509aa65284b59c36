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

// tells fails unless these events were told since the last time, as "Reason where: message".
func (r *rig) tells(want ...string) {
	r.t.Helper()
	got := []string{}
	for _, e := range r.told {
		where := strings.TrimPrefix(e.Regarding.FieldPath, "spec.")
		got = append(got, strings.TrimSpace(e.Reason+" "+where)+": "+e.Message)
	}
	r.told = nil
	if diff := cmp.Diff(append([]string{}, want...), got); diff != "" {
		r.t.Error(diff)
	}
}

func broken(why string) *world.Error { return world.Errorf(world.KindInternal, "", "%s", why) }

func TestEventsOfTheMaking(t *testing.T) {
	r := ready(t, func(*v1.PodSpec) {}).at(0)
	r.tells(`Pulled containers{web}: Container image "i" already present on machine and can be ` +
		`accessed by the pod`)
	r.answer("CreateContainer", nil, broken("EIO"))
	r.tells("Failed containers{web}: Error: EIO")
	r.pod.Stale = time.Time{} // a relist has seen what there is
	r.at(0).tells()
	r.env.Images.Images["i"].CheckedAt = t0.Add(time.Hour)
	r.at(time.Second).tells(`Pulled containers{web}: Container image "i" already present on ` +
		`machine and can be accessed by the pod`)
	r.answer("CreateContainer", &runtimeapi.CreateContainerResponse{ContainerId: "c"}, nil)
	r.tells("Created containers{web}: Container created")
	r.answer("StartContainer", &runtimeapi.StartContainerResponse{}, nil)
	r.tells("Started containers{web}: Container started")
	r.at(time.Minute).tells()
}

// What an event is about is the container, by its place in the pod.
func TestReferences(t *testing.T) {
	s := spec(v1.RestartPolicyAlways, "setup", "web")
	s.Spec.EphemeralContainers = []v1.EphemeralContainer{{
		EphemeralContainerCommon: v1.EphemeralContainerCommon{Name: "debug"}}}
	p := facts(s)
	for name, want := range map[string]string{
		"": "", "web": "spec.containers{web}", "setup": "spec.initContainers{setup}",
		"debug": "spec.ephemeralContainers{debug}", "old": "implicitly required container old",
	} {
		ref := p.reference(name)
		if ref.FieldPath != want || ref.Kind != "Pod" || ref.UID != "u" || ref.Name != "p" ||
			ref.Namespace != "default" {
			t.Errorf("%q: %+v", name, ref)
		}
	}
	orphan := Orphan("u", "default", "p", t0)
	if ref := orphan.reference("old"); ref.UID != "u" ||
		ref.FieldPath != "implicitly required container old" {
		t.Errorf("of a pod that only the runtime knows: %+v", ref)
	}
}

// A pull is told when it begins, and once for each time that it fails.
func TestEventsOfAPull(t *testing.T) {
	r := ready(t, func(*v1.PodSpec) {})
	delete(r.env.Images.Images, "i")
	r.at(0).store("i").answerImage("ImageStatus", &runtimeapi.ImageStatusResponse{}, nil)
	for _, at := range []time.Duration{0, 10 * time.Second} {
		r.now = t0.Add(at)
		r.store("i").at(at).tells(`Pulling containers{web}: Pulling image "i"`)
		r.at(at + time.Second).tells()
		r.answerImage("PullImage", nil, broken("no route"))
		r.tells(`Failed containers{web}: Failed to pull image "i": no route`,
			"Failed containers{web}: Error: ErrImagePull",
			`BackOff containers{web}: Back-off pulling image "i": ErrImagePull: no route`,
			"Failed containers{web}: Error: ImagePullBackOff")
		r.at(at + 2*time.Second).tells()
		r.env.Images.Images["i"].NotBefore = t0.Add(10 * time.Second)
	}
	r.env.Images.Images["i"].NotBefore = time.Time{}
	r.now = t0.Add(time.Minute)
	r.store("i").at(time.Minute)
	r.now = t0.Add(62 * time.Second)
	r.answerImage("PullImage", &runtimeapi.PullImageResponse{ImageRef: "sha"}, nil)
	r.store("i").answerImage("ImageStatus", &runtimeapi.ImageStatusResponse{
		Image: &runtimeapi.Image{Id: "sha", Size: 4096}}, nil)
	r.tells(`Pulling containers{web}: Pulling image "i"`,
		`Pulled containers{web}: Successfully pulled image "i" in 2s (1m2s including waiting). `+
			`Image size: 4096 bytes.`)
}

func TestEventsOfImagesThatCannotBeHad(t *testing.T) {
	r := ready(t, func(s *v1.PodSpec) { s.Containers[0].Image = "I//" })
	r.at(0)
	if len(r.told) != 2 || r.told[0].Reason != "InspectFailed" ||
		r.told[1].Message != "Error: InvalidImageName" {
		t.Errorf("told %v", r.told)
	}
	again := len(r.told)
	r.told = nil
	if r.at(time.Minute - 1).tells(); len(r.at(time.Minute).told) != again {
		t.Errorf("a minute later it is told as %v", r.told)
	}

	r = ready(t, func(s *v1.PodSpec) { s.Containers[0].ImagePullPolicy = v1.PullNever })
	delete(r.env.Images.Images, "i")
	r.at(0).store("i").answerImage("ImageStatus", nil, broken("busy"))
	r.tells(`InspectFailed containers{web}: Failed to inspect image "i": busy`,
		"Failed containers{web}: Error: ImageInspectError")
	r.now = t0.Add(time.Second)
	r.store("i").answerImage("ImageStatus", &runtimeapi.ImageStatusResponse{}, nil)
	never := []string{`ErrImageNeverPull containers{web}: Container image "i" is not present ` +
		`with pull policy of Never`, "Failed containers{web}: Error: ErrImageNeverPull"}
	r.tells(never...)
	r.at(61 * time.Second).tells(never...)
	if r.at(119 * time.Second).tells(); !r.wake.Equal(t0.Add(121 * time.Second)) {
		t.Errorf("woken at %v to tell it again", r.wake.Sub(t0))
	}
}

// The back-off of a restart is told when it is learnt how the container has ended, and every minute
// while it lasts.
func TestEventsOfACrash(t *testing.T) {
	c := run("web", 0, Running)
	c.Backoff, c.Began = 90*time.Second, t0
	r := newRig(t, facts(spec(v1.RestartPolicyAlways, "", "web"), c))
	r.pod.Containers[0].State, r.pod.Containers[0].Exited = Exited, t0
	r.at(0).answer("ContainerStatus", &runtimeapi.ContainerStatusResponse{
		Status: &runtimeapi.ContainerStatus{State: runtimeapi.ContainerState_CONTAINER_EXITED,
			ExitCode: 1}}, nil)
	const back = "BackOff containers{web}: Back-off restarting failed container web in pod " +
		"p_default(u)"
	r.tells(back)
	r.at(5 * time.Second).tells()
	r.at(time.Minute).tells(back)
	r.at(61 * time.Second).tells()
	if r.at(90 * time.Second); len(r.pod.Lasting) > 0 {
		t.Error("what is over will be told again")
	}
}

// Whoever is stopped, the reason is told when it begins.
func TestEventsOfEnds(t *testing.T) {
	r := newRig(t, unwanted(running(func(*v1.Container) {}))).at(0)
	r.tells("Killing containers{web}: Stopping container web")
	r.answer("StopContainer", nil, broken("busy"))
	r.tells("FailedKillPod: error killing pod: busy")
	r.at(time.Minute).tells()

	p := running(func(*v1.Container) {})
	p.Containers[0].Hash = "another"
	newRig(t, p).at(0).tells(
		"Killing containers{web}: Container web definition changed, will be restarted")

	limit := int64(60)
	p = running(func(*v1.Container) {})
	p.Spec.Spec.ActiveDeadlineSeconds = &limit
	newRig(t, p).at(time.Minute).tells(
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
		p := running(probed(probe.Liveness, nil))
		p.Spec.Spec.RestartPolicy = test.policy
		r := newRig(t, p)
		bad := &runtimeapi.ExecSyncResponse{ExitCode: 1, Stdout: []byte("bad")}
		r.at(0).answer("ExecSync", bad, nil)
		r.tells("Unhealthy containers{web}: Liveness probe failed: bad")
		r.at(10*time.Second).answer("ExecSync", nil, broken("no such container"))
		r.tells("Unhealthy containers{web}: Liveness probe errored and resulted in unknown " +
			"state: no such container")
		r.at(20*time.Second).answer("ExecSync", bad, nil)
		r.tells("Unhealthy containers{web}: Liveness probe failed: bad",
			"Killing containers{web}: "+test.want)
	}
}

// A redirect to elsewhere is told of once, and not at every answer.
func TestEventsOfARedirect(t *testing.T) {
	r := newRig(t, running(func(c *v1.Container) {
		probed(probe.Readiness, nil)(c)
		c.ReadinessProbe.ProbeHandler = v1.ProbeHandler{HTTPGet: &v1.HTTPGetAction{}}
	}))
	for i := range 3 {
		r.at(time.Duration(i)*10*time.Second).answer("HTTPGet", &world.HTTPGot{Elsewhere: true}, nil)
	}
	r.tells("ProbeWarning containers{web}: Readiness probe warning: Probe terminated redirects")
}

// What a hook has said is not told: it may be secret.
func TestEventsOfHooks(t *testing.T) {
	r := newRig(t, withHook(nil, execHook("greet"))).at(0).exec(1)
	r.tells("FailedPostStartHook containers{web}: PostStartHook failed",
		"Killing containers{web}: FailedPostStartHook")
	r = newRig(t, unwanted(withHook(execHook("drain"), nil))).at(0)
	r.told = nil
	r.exec(1).tells("FailedPreStopHook containers{web}: PreStopHook failed")
}

// Of a sandbox that is no good any more it is told once that there will be another one.
func TestEventsOfSandboxes(t *testing.T) {
	p := facts(spec(v1.RestartPolicyAlways, "", "web"))
	p.Spec.Spec.DNSPolicy = v1.DNSDefault
	p.Sandboxes[0].Ready, p.Sandboxes[0].Stopped = false, true
	r := newRig(t, p)
	r.env.Node.Resolv.Known, r.env.NetworkNotReady = true, "network is not ready: no plugin"
	r.at(0).at(0).tells("NetworkNotReady: network is not ready: no plugin")
	r.env.NetworkNotReady = ""
	r.at(0).tells("SandboxChanged: Pod sandbox changed, it will be killed and re-created.")
	r.answer("RunPodSandbox", nil, broken("no address"))
	r.tells("FailedCreatePodSandBox: Failed to create pod sandbox: no address")
	p.Stale = time.Time{}
	r.at(time.Second).want("RunPodSandbox")
	r.tells()
}

// What lasts is told again every minute: that there is no network, or what a container lacks.
func TestRemind(t *testing.T) {
	p := facts(spec(v1.RestartPolicyAlways, "", "web"))
	p.Sandboxes[0].Ready, p.Sandboxes[0].Stopped = false, true
	r := newRig(t, p)
	r.env.Node.Resolv.Known, r.env.NetworkNotReady = true, "no plugin"
	r.at(0).tells("NetworkNotReady: no plugin")
	r.at(59 * time.Second).tells()
	r.at(61 * time.Second).tells("NetworkNotReady: no plugin")
	r.at(120 * time.Second).tells()
	r.at(121 * time.Second).tells("NetworkNotReady: no plugin")

	r = ready(t, func(s *v1.PodSpec) {
		s.SecurityContext = &v1.PodSecurityContext{RunAsUser: new(int64), RunAsNonRoot: new(true)}
	}).at(0)
	if len(r.told) != 1 || r.told[0].Reason != "Failed" {
		t.Fatalf("told %v", r.told)
	}
	why := "Failed containers{web}: " + r.told[0].Message
	r.told = nil
	r.at(time.Second).tells()
	r.at(time.Minute).tells(why)
}

// A volume is told of each time that it could not be made.
func TestEventsOfVolumes(t *testing.T) {
	r := newRig(t, withVolume(v1.VolumeMount{MountPath: "/data"}))
	for _, at := range []time.Duration{0, time.Second} {
		r.at(at).answer("StatPath", nil, broken("EIO"))
		r.tells(`FailedMount: MountVolume.SetUp failed for volume "data" : EIO`)
		r.at(at).tells()
	}
}

// What is wrong with a container is told once, not by every plan.
func TestEventsOfConfigurations(t *testing.T) {
	r := ready(t, func(s *v1.PodSpec) {
		s.Containers[0].Env = []v1.EnvVar{{Name: "A", ValueFrom: &v1.EnvVarSource{
			ConfigMapKeyRef: &v1.ConfigMapKeySelector{Key: "k"}}}}
	})
	r.at(0).at(time.Second).tells("Failed containers{web}: Error: no API server is configured")
}
