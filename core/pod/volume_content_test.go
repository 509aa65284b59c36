package pod

import (
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"seedlet.dev/world"
)

// withContent returns a pod whose container mounts a volume with a ConfigMap and a token.
func withContent(mount v1.VolumeMount) *Pod {
	s := spec(v1.RestartPolicyAlways, "", "web")
	mount.Name = "v"
	seconds := int64(600)
	s.Spec.Containers[0].VolumeMounts = []v1.VolumeMount{mount}
	s.Spec.Volumes = []v1.Volume{{Name: "v", VolumeSource: v1.VolumeSource{
		Projected: &v1.ProjectedVolumeSource{Sources: []v1.VolumeProjection{
			{ConfigMap: &v1.ConfigMapProjection{LocalObjectReference: v1.LocalObjectReference{
				Name: "c"}}},
			{ServiceAccountToken: &v1.ServiceAccountTokenProjection{Path: "token",
				ExpirationSeconds: &seconds}}}}}}}
	return podWith(s)
}

// contentHarness completes all operations of the file system and of tokens, and keeps the written
// content.
type contentHarness struct {
	*harness
	api     *fakeServer
	token   string
	written []string
	binds   int
}

func newContentHarness(t *testing.T, p *Pod) *contentHarness {
	p.DirCreated, p.LogDirs = true, []string{"web"}
	r := &contentHarness{harness: newHarness(t, p), api: &fakeServer{}, token: "t1"}
	r.env.Objects = &r.api.store
	p.Storage.HostsChecksum = hostsChecksum([]byte(p.criPod(r.env).HostsFileContent()))
	return r
}

// planUntilIdle plans at a time until no such operation is in flight.
func (r *contentHarness) planUntilIdle(after time.Duration) *contentHarness {
	r.t.Helper()
	r.planAt(after)
	for range 20 {
		switch {
		case r.findCall("WriteDir") != nil:
			var files []string
			for _, f := range r.findCall("WriteDir").Body.(*world.WriteDir).Files {
				files = append(files, string(f.Bytes()))
			}
			r.written = append(r.written, strings.Join(files, "+"))
			r.complete("WriteDir", &world.Done{}, nil)
		case r.findCall("BindSubPath") != nil:
			r.binds++
			r.complete("BindSubPath", &world.Done{}, nil)
		case r.findCall("MakeDir") != nil:
			r.complete("MakeDir", &world.Done{}, nil)
		case r.findCall("MountMemory") != nil:
			r.complete("MountMemory", &world.Done{}, nil)
		case r.token != "" && r.findCall("CreateToken") != nil:
			r.complete("CreateToken", &world.TokenCreated{Token: r.token}, nil)
		case r.token == "" && r.findCall("CreateToken") != nil:
			r.complete("CreateToken", nil, world.Errorf(world.KindUnavailable, "", "away"))
		default:
			return r
		}
	}
	r.t.Fatalf("never idle: %v", r.openCalls())
	return nil
}

// A container waits for the content of its volumes, and the status has the missing object.
func TestContainerWaitsForVolumeContent(t *testing.T) {
	p := withContent(v1.VolumeMount{MountPath: "/v"})
	r := newContentHarness(t, p).planUntilIdle(0)
	r.expectNoCall("CreateContainer")
	r.api.list()
	r.planUntilIdle(time.Second).expectNoCall("CreateContainer")
	want := `MountVolume.SetUp failed for volume "v" : configmap "c" not found`
	if got := waiting(p); got.Reason != "ContainerCreating" || got.Message != want {
		t.Errorf("%+v, want %s", got, want)
	}
	r.api.list(configMap("c", "1", map[string]string{"k": "one"}))
	r.planUntilIdle(time.Second).expectCall("CreateContainer")
	if got := strings.Join(r.written, " "); got != "one+t1" {
		t.Errorf("written %s", got)
	}
}

// startContainer has the container of the pod run.
func (r *contentHarness) startContainer() {
	c := run("web", 0, Running)
	c.SandboxID, c.Hash = "s", containerHash(&r.pod.Spec.Spec.Containers[0])
	r.complete("CreateContainer", &runtimeapi.CreateContainerResponse{ContainerId: c.ID}, nil)
	r.complete("StartContainer", &runtimeapi.StartContainerResponse{}, nil)
	r.pod.containerByID(c.ID).Inspected = Running
}

// The token of a new pod is requested side by side with the creation of its sandbox.
func TestTokenIsRequestedWithSandbox(t *testing.T) {
	p := withContent(v1.VolumeMount{MountPath: "/v"})
	r := newContentHarness(t, p)
	p.Sandboxes, r.env.Node.Resolv.Loaded = nil, true
	r.planAt(0).expectCall("RunPodSandbox")
	r.expectCall("CreateToken")
}

// Tokens are renewed, also while the pod terminates; a token that cannot be renewed stays.
func TestTokensAreRenewed(t *testing.T) {
	p := withContent(v1.VolumeMount{MountPath: "/v"})
	r := newContentHarness(t, p).planUntilIdle(0)
	r.api.list(configMap("c", "1", map[string]string{"k": "one"}))
	r.planUntilIdle(0).startContainer()
	r.token = "t2"
	r.planUntilIdle(7 * time.Minute)
	r.token = ""
	r.planUntilIdle(8 * time.Minute).planUntilIdle(9 * time.Minute)
	r.token = "t2"
	r.planUntilIdle(10 * time.Minute)
	p.ClearDesired(r.now)
	p.StaleSince, r.token = time.Time{}, "t3"
	r.planUntilIdle(18 * time.Minute)
	if got := strings.Join(r.written, " "); got != "one+t1 one+t2 one+t3" {
		t.Errorf("written %s", got)
	}
	if !p.HasLiveContainers() {
		t.Error("the test has lost its container")
	}
}

// A subpath is the file as it was when the container was created; the next run gets the new file.
func TestSubPathIsNotUpdated(t *testing.T) {
	p := withContent(v1.VolumeMount{MountPath: "/k", SubPath: "k"})
	r := newContentHarness(t, p).planUntilIdle(0)
	r.api.list(configMap("c", "1", map[string]string{"k": "one"}))
	r.planUntilIdle(0).startContainer()
	r.api.list(configMap("c", "2", map[string]string{"k": "two"}))
	r.planUntilIdle(time.Minute)
	if got := strings.Join(r.written, " "); got != "one+t1 two+t1" || r.binds != 1 {
		t.Errorf("written %s, mounted %d times", got, r.binds)
	}
	c := run("web", 0, Exited)
	c.SandboxID, c.Hash = "s", p.NewestRun("web").Hash
	p.dropContainer(c.ID)
	p.addContainer(c)
	r.putImage()
	r.planUntilIdle(2 * time.Minute)
	if r.binds != 2 {
		t.Errorf("mounted %d times, want a second mount for the next run", r.binds)
	}
}
