package pod

import (
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"seedlet.dev/core/criconfig"
	"seedlet.dev/world"
)

// envFilePod returns a harness of a pod whose app container takes the variable A from a file. The
// pod has a sandbox, and its volume is ready.
func envFilePod(t *testing.T) *harness {
	s := spec(v1.RestartPolicyAlways, "", "web")
	s.Spec.Volumes = []v1.Volume{{Name: "data",
		VolumeSource: v1.VolumeSource{EmptyDir: &v1.EmptyDirVolumeSource{}}}}
	s.Spec.Containers[0].Env = []v1.EnvVar{{Name: "A", ValueFrom: &v1.EnvVarSource{
		FileKeyRef: &v1.FileKeySelector{VolumeName: "data", Path: "dir/env", Key: "K"}}}}
	s.Spec.Containers[0].VolumeMounts = []v1.VolumeMount{{Name: "data", MountPath: "/data"}}
	p := podWith(s)
	p.DirCreated, p.LogDirs = true, []string{"web"}
	r := newHarness(t, p).planAt(0)
	r.complete("StatPath", &world.PathInfo{Kind: world.PathDirectory}, nil)
	return r
}

func fileRead(text string) *world.FilesRead {
	return &world.FilesRead{Files: []world.File{{Name: "env", Data: []byte(text)}}}
}

// expectValue fails unless the container is being created with a value of A.
func (r *harness) expectValue(want string) {
	r.t.Helper()
	config := r.expectCall("CreateContainer").Body.(*runtimeapi.CreateContainerRequest).Config
	if len(config.Envs) != 1 || config.Envs[0].Key != "A" || string(config.Envs[0].Value) != want {
		r.t.Errorf("variables %v, want A=%s", config.Envs, want)
	}
}

// A file is read before the container is created, with a bound, and again for the next attempt.
func TestEnvFileIsReadForEachRun(t *testing.T) {
	r := envFilePod(t)
	read := r.expectCall("ReadInVolume").Body.(*world.ReadInVolume)
	if read.Root != "/pods/u/volumes/kubernetes.io~empty-dir/data" || read.Path != "dir/env" ||
		read.BytesMax <= 0 {
		t.Errorf("read %+v", read)
	}
	r.expectNoCall("CreateContainer")
	r.complete("ReadInVolume", fileRead("K='1'"), nil)
	r.expectValue("1")
	r.complete("CreateContainer", nil, world.Errorf(world.KindInternal, "CreateContainer", "no"))
	if len(r.pod.EnvFiles) != 0 {
		t.Errorf("after the attempt: %+v", r.pod.EnvFiles)
	}
	r.pod.StaleSince = time.Time{}
	r.planAt(time.Minute).expectCall("ReadInVolume")
}

// A container that waits, here for the runtime, is not created with an old content.
func TestEnvFileIsReadAgainAfterAWhile(t *testing.T) {
	r := envFilePod(t)
	r.env.RuntimeNotReady = "it is starting"
	r.complete("ReadInVolume", fileRead("K='1'"), nil)
	r.expectNoCall("CreateContainer")
	r.env.RuntimeNotReady = ""
	r.planAt(envFilesPeriod).complete("ReadInVolume", fileRead("K='2'"), nil).expectValue("2")
}

// A file that cannot be read or parsed, or has not the key, is read again later. There is one event
// for as long as the reason is the same.
func TestEnvFileThatIsNotReady(t *testing.T) {
	r := envFilePod(t)
	missing := world.Errorf(world.KindNotFound, "ReadInVolume", "no such file")
	for i, c := range []struct {
		body    any
		err     *world.Error
		message string
		events  int
	}{
		{nil, missing, "couldn't parse env file", 1},
		{fileRead("K="), nil, "couldn't parse env file", 1},
		{fileRead("J='1'"), nil, `environment variable key "K" not found in file ` +
			`"/pods/u/volumes/kubernetes.io~empty-dir/data/dir/env"`, 2},
	} {
		r.planAt(time.Duration(i) * envFilesPeriod)
		r.complete("ReadInVolume", c.body, c.err)
		r.expectNoCall("CreateContainer")
		r.expectNoCall("ReadInVolume")
		got := waiting(r.pod)
		if got.Reason != "CreateContainerConfigError" || got.Message != c.message {
			t.Errorf("waits with %+v, want %q", got, c.message)
		}
		if len(r.events) != c.events {
			t.Errorf("after %q: %d events, want %d", c.message, len(r.events), c.events)
		}
		if want := r.now.Add(envFilesPeriod); !r.wake.Equal(want) {
			t.Errorf("planned again at %v, want %v", r.wake, want)
		}
	}
	r.planAt(3*envFilesPeriod).complete("ReadInVolume", fileRead("K='1'"), nil)
	r.expectValue("1")
}

// A misconfigured container keeps no files until they are read again: their author may fill them.
func TestMisconfiguredContainerKeepsNoEnvFiles(t *testing.T) {
	r := envFilePod(t)
	web := r.pod.specContainer("web")
	for _, path := range []string{"b", "c"} {
		v := *web.Env[0].DeepCopy()
		v.Name, v.ValueFrom.FileKeyRef.Path = path, path
		web.Env = append(web.Env, v)
	}
	large := make([]byte, 0, 2<<20)
	large = append(large, "K='"...)
	for len(large) < 2<<20-2 {
		large = append(large, "0123456789\n"...)
	}
	large = append(large, '\'')
	for range 3 {
		r.complete("ReadInVolume", fileRead(string(large)), nil)
	}
	got := waiting(r.pod)
	if len(r.pod.EnvFiles) > 0 || got.Reason != "CreateContainerConfigError" {
		t.Errorf("%d containers keep files; waits with %+v", len(r.pod.EnvFiles), got)
	}
}

// All containers of a pod share the bound, and names count.
func TestEnvFilesOfPodAreBounded(t *testing.T) {
	r := envFilePod(t)
	other := criconfig.EnvFile{Env: []v1.EnvVar{{Name: strings.Repeat("n", 2<<20)}}}
	r.pod.EnvFiles = append(r.pod.EnvFiles, EnvFiles{Container: "other",
		Files: []criconfig.EnvFile{other}})
	r.complete("ReadInVolume", fileRead("K='1'"), nil)
	r.expectNoCall("CreateContainer")
	if got := waiting(r.pod); !strings.Contains(got.Message, "more than 2097152 bytes together") {
		t.Errorf("waits with %+v", got)
	}
}

// Without the feature gate EnvFiles no file is read, and the variable is empty.
func TestEnvFilesWithoutTheGate(t *testing.T) {
	r := envFilePod(t)
	r.complete("ReadInVolume", fileRead("K='v'"), nil)
	r.expectValue("v")
	r = envFilePod(t)
	r.pod.Op, r.pod.EnvFiles, r.env.Node.NoEnvFiles = 0, nil, true
	r.issued = nil
	r.planAt(0).expectNoCall("ReadInVolume")
	r.expectValue("")
}
