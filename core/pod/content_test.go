package pod

import (
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"seedlet.dev/world"
)

// withContent is a pod whose container mounts a volume with what is in a ConfigMap and a token.
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
	return facts(s)
}

// contentRig answers all that the file system and the server are asked, and keeps what is written.
type contentRig struct {
	*rig
	api     *server
	token   string
	written []string
	binds   int
}

func newContentRig(t *testing.T, p *Pod) *contentRig {
	p.Dir, p.LogDirs = true, []string{"web"}
	r := &contentRig{rig: newRig(t, p), api: &server{}, token: "t1"}
	r.env.Objects = &r.api.store
	p.Storage.Hosts = sumOf([]byte(p.hostsFile(r.env.Node)))
	return r
}

// rest plans at a time until nothing more is asked of these ports.
func (r *contentRig) rest(after time.Duration) *contentRig {
	r.t.Helper()
	r.at(after)
	for range 20 {
		switch {
		case r.find("WriteDir") != nil:
			var files []string
			for _, f := range r.find("WriteDir").Body.(*world.WriteDir).Files {
				files = append(files, string(f.Data))
			}
			r.written = append(r.written, strings.Join(files, "+"))
			r.answer("WriteDir", &world.Done{}, nil)
		case r.find("BindSubPath") != nil:
			r.binds++
			r.answer("BindSubPath", &world.Done{}, nil)
		case r.find("MakeDir") != nil:
			r.answer("MakeDir", &world.Done{}, nil)
		case r.find("MountMemory") != nil:
			r.answer("MountMemory", &world.Done{}, nil)
		case r.token != "" && r.find("CreateToken") != nil:
			r.answer("CreateToken", &world.TokenCreated{Token: r.token}, nil)
		case r.token == "" && r.find("CreateToken") != nil:
			r.answer("CreateToken", nil, world.Errorf(world.KindUnavailable, "", "away"))
		default:
			return r
		}
	}
	r.t.Fatalf("it never comes to rest: %v", r.calls())
	return nil
}

// A container waits for the content of its volumes, and the pod says what is missing.
func TestAContainerWaitsForContent(t *testing.T) {
	p := withContent(v1.VolumeMount{MountPath: "/v"})
	r := newContentRig(t, p).rest(0)
	r.none("CreateContainer")
	r.api.tell()
	r.rest(time.Second).none("CreateContainer")
	want := `MountVolume.SetUp failed for volume "v" : configmap "c" not found`
	if got := p.waiting("web", App); got.Reason != "ContainerCreating" || got.Message != want {
		t.Errorf("%+v, want %s", got, want)
	}
	r.api.tell(configMap("c", "1", map[string]string{"k": "one"}))
	r.rest(time.Second).want("CreateContainer")
	if got := strings.Join(r.written, " "); got != "one+t1" {
		t.Errorf("written %s", got)
	}
}

// runs has the container of a rig run.
func (r *contentRig) runs() {
	c := run("web", 0, Running)
	c.SandboxID, c.Hash = "s", hashOf(&r.pod.Spec.Spec.Containers[0])
	r.answer("CreateContainer", &runtimeapi.CreateContainerResponse{ContainerId: c.ID}, nil)
	r.answer("StartContainer", &runtimeapi.StartContainerResponse{}, nil)
	r.pod.container(c.ID).Inspected = Running
}

// The server and the runtime are asked at once for what a new pod needs of them.
func TestATokenIsAskedForWithTheSandbox(t *testing.T) {
	p := withContent(v1.VolumeMount{MountPath: "/v"})
	r := newContentRig(t, p)
	p.Sandboxes, r.env.Node.Resolv.Known = nil, true
	r.at(0).want("RunPodSandbox")
	r.want("CreateToken")
}

// Tokens are renewed, also while the pod is being ended; one that cannot be renewed stays.
func TestTokensAreRenewed(t *testing.T) {
	p := withContent(v1.VolumeMount{MountPath: "/v"})
	r := newContentRig(t, p).rest(0)
	r.api.tell(configMap("c", "1", map[string]string{"k": "one"}))
	r.rest(0).runs()
	r.token = "t2"
	r.rest(7 * time.Minute)
	r.token = ""
	r.rest(8 * time.Minute).rest(9 * time.Minute)
	r.token = "t2"
	r.rest(10 * time.Minute)
	p.Unwant(r.now)
	p.Stale, r.token = time.Time{}, "t3"
	r.rest(18 * time.Minute)
	if got := strings.Join(r.written, " "); got != "one+t1 one+t2 one+t3" {
		t.Errorf("written %s", got)
	}
	if !p.live() {
		t.Error("the test has lost its container")
	}
}

// A sub-path is what its file was when the container was made; the next run has the new one.
func TestASubPathDoesNotFollow(t *testing.T) {
	p := withContent(v1.VolumeMount{MountPath: "/k", SubPath: "k"})
	r := newContentRig(t, p).rest(0)
	r.api.tell(configMap("c", "1", map[string]string{"k": "one"}))
	r.rest(0).runs()
	r.api.tell(configMap("c", "2", map[string]string{"k": "two"}))
	r.rest(time.Minute)
	if got := strings.Join(r.written, " "); got != "one+t1 two+t1" || r.binds != 1 {
		t.Errorf("written %s, mounted %d times", got, r.binds)
	}
	c := run("web", 0, Exited)
	c.SandboxID, c.Hash = "s", p.newest("web").Hash
	p.dropContainer(c.ID)
	p.addContainer(c)
	r.rest(2 * time.Minute)
	if r.binds != 2 {
		t.Errorf("mounted %d times, want once more for the next run", r.binds)
	}
}
