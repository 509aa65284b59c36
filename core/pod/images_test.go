package pod

import (
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"seedlet.dev/core/credentials"
	"seedlet.dev/core/image"
	"seedlet.dev/world"
)

// readyHarness plans a pod whose only container can be created as soon as its images are present.
func readyHarness(t *testing.T, change func(*v1.PodSpec)) *harness {
	s := spec(v1.RestartPolicyAlways, "", "web")
	s.Spec.Containers[0].ImagePullPolicy = v1.PullIfNotPresent
	change(&s.Spec)
	p := podWith(s)
	p.Sandboxes[0].IPs, p.DirCreated, p.LogDirs = []string{"10.0.0.9"}, true, []string{"web"}
	r := newHarness(t, p)
	r.env.Images.Images["i"].Waiters = []image.Waiter{{UID: "other"}} // the image is not released
	p.Storage.HostsChecksum = hostsChecksum([]byte(p.criPod(r.env).HostsFileContent()))
	return r
}

func (r *harness) containerConfig(t *testing.T) *runtimeapi.ContainerConfig {
	t.Helper()
	return r.expectCall("CreateContainer").Body.(*runtimeapi.CreateContainerRequest).Config
}

func nonRoot(s *v1.PodSpec) {
	s.SecurityContext = &v1.PodSecurityContext{RunAsNonRoot: ref(true)}
}

// A container with runAsNonRoot is created only if its image does not run as root.
func TestRunAsNonRootChecksImageUser(t *testing.T) {
	const root = `container has runAsNonRoot and image will run as root ` +
		`(pod: "p_default(u)", container: web)`
	const named = `container has runAsNonRoot and image has non-numeric user (www), cannot ` +
		`verify user is non-root (pod: "p_default(u)", container: web)`
	for _, test := range []struct {
		user image.User
		want string
	}{
		{image.User{}, root}, {image.User{UID: ref(int64(0))}, root},
		{image.User{Name: "www"}, named}, {image.User{UID: ref(int64(7))}, ""},
	} {
		r := readyHarness(t, nonRoot)
		r.env.Images.Images["i"].User = test.user
		r.planAt(0)
		if test.want == "" {
			got := r.containerConfig(t).Linux.SecurityContext
			if got.RunAsUser.GetValue() != 7 || got.RunAsUsername != "" {
				t.Errorf("%v", got)
			}
			continue
		}
		r.expectNoCall("CreateContainer")
		waiting := status(r.pod).State.Waiting
		if waiting.Reason != "CreateContainerConfigError" || waiting.Message != test.want {
			t.Errorf("%+v, want %s", waiting, test.want)
		}
		if want := t0.Add(failureBackoffInitial); !r.wake.Equal(want) {
			t.Errorf("planned again at %v, want %v", r.wake, want)
		}
	}
}

// The image may be fixed: the check is retried, and the failure is reported until the container is
// created.
func TestRunAsNonRootRecovers(t *testing.T) {
	r := readyHarness(t, nonRoot).planAt(0)
	r.expectNoCall("CreateContainer")
	r.env.Images.Images["i"].User = image.User{UID: ref(int64(7))}
	r.planAt(failureBackoffInitial / 2).expectNoCall("CreateContainer")
	r.planAt(failureBackoffInitial).expectCall("CreateContainer")
	if waiting := status(r.pod).State.Waiting; waiting.Reason != "CreateContainerConfigError" {
		t.Errorf("%+v before the container is created", waiting)
	}
	r.complete("CreateContainer", &runtimeapi.CreateContainerResponse{ContainerId: "c"}, nil)
	if r.pod.ProblemOf("web") != nil {
		t.Errorf("%+v", r.pod.ProblemOf("web"))
	}
}

// Only a container without runAsUser waits for the user of its image.
func TestContainerWaitsForImageUser(t *testing.T) {
	for own, want := range map[bool]string{true: "CreateContainer", false: ""} {
		r := readyHarness(t, func(s *v1.PodSpec) {
			if own {
				s.SecurityContext = &v1.PodSecurityContext{RunAsUser: ref(int64(7))}
			}
		})
		r.env.Images.Images["i"].InspectedID = ""
		if got := strings.Join(r.planAt(0).openCalls(), " "); got != want {
			t.Errorf("with a user of its own, %v: %q", own, got)
		}
	}
}

func mountsImage(image string, mount v1.VolumeMount) func(*v1.PodSpec) {
	mount.Name = "data"
	return func(s *v1.PodSpec) {
		s.Volumes = []v1.Volume{{Name: "data", VolumeSource: v1.VolumeSource{
			Image: &v1.ImageVolumeSource{Reference: image, PullPolicy: v1.PullIfNotPresent}}}}
		s.Containers[0].VolumeMounts = []v1.VolumeMount{mount}
	}
}

// The runtime mounts an image volume, read-only, by the ID of the image.
func TestImageVolumeIsMounted(t *testing.T) {
	r := readyHarness(t, mountsImage("models:1", v1.VolumeMount{MountPath: "/m", SubPathExpr: "a/b"}))
	r.env.Images.Images["models:1"] = &image.Image{Name: "models:1", Ref: "models:1", ID: "sha256:m",
		CheckedAt: t0.Add(time.Hour)}
	got := r.planAt(0).containerConfig(t).Mounts[0]
	want := &runtimeapi.Mount{ContainerPath: "/m", Readonly: true, ImageSubPath: "a/b",
		Image: &runtimeapi.ImageSpec{Image: "sha256:m", UserSpecifiedImage: "models:1"}}
	if got.String() != want.String() {
		t.Errorf("got %v, want %v", got, want)
	}
	if len(r.pod.PendingImages) != 0 || len(r.env.Images.Images["i"].Waiters) != 1 {
		t.Errorf("still pending: %+v", r.pod.PendingImages)
	}
}

// A container waits for the images that it mounts, and other containers do not. The reason is that
// of a pull.
func TestContainerWaitsForImageVolume(t *testing.T) {
	r := readyHarness(t, func(s *v1.PodSpec) {
		mountsImage("models:1", v1.VolumeMount{MountPath: "/m"})(s)
		other := s.Containers[0]
		other.Name, other.VolumeMounts = "other", nil
		s.Containers = append(s.Containers, other)
	})
	r.pod.LogDirs = append(r.pod.LogDirs, "other")
	if got := r.planAt(0).containerConfig(t).Metadata.Name; got != "other" {
		t.Errorf("%s is created first", got)
	}
	if waiting := status(r.pod).State.Waiting; waiting.Reason != "ContainerCreating" {
		t.Errorf("%+v", waiting)
	}
	r.complete("CreateContainer", &runtimeapi.CreateContainerResponse{ContainerId: "c"}, nil)
	r.complete("StartContainer", &runtimeapi.StartContainerResponse{}, nil)
	r.planImage("models:1").completeImage("ImageStatus", &runtimeapi.ImageStatusResponse{}, nil)
	r.planImage("models:1").completeImage("PullImage", nil,
		world.Errorf(world.KindInternal, "PullImage", "no route"))
	waiting := status(r.pod).State.Waiting
	if waiting.Reason != "ErrImagePull" || waiting.Message != "no route" {
		t.Errorf("%+v", waiting)
	}
}

// A pull names the sandbox that the image is for, by which a runtime chooses where to unpack it.
func TestPullIsForSandbox(t *testing.T) {
	r := readyHarness(t, func(*v1.PodSpec) {})
	r.pod.Spec.Annotations = map[string]string{"io.containerd.cri.runtime-handler": "kata"}
	delete(r.env.Images.Images, "i")
	r.planAt(0).planImage("i").completeImage("ImageStatus", &runtimeapi.ImageStatusResponse{}, nil)
	pull := r.planImage("i").expectCall("PullImage").Body.(*runtimeapi.PullImageRequest)
	if pull.SandboxConfig.GetMetadata().GetUid() != r.pod.UID || pull.Image.RuntimeHandler != "" ||
		pull.Image.Annotations["io.containerd.cri.runtime-handler"] != "kata" {
		t.Errorf("%+v", pull)
	}
}

// planImage plans an image.
func (r *harness) planImage(ref string) *harness {
	r.env.Effects.Reset(&r.table, r.now)
	r.env.Images.Plan(ref, &image.Env{Effects: r.env.Effects, Enqueue: r.env.Enqueue,
		Sandbox: func(string) *runtimeapi.PodSandboxConfig { return r.pod.SandboxConfig(r.env) }})
	r.collect()
	return r
}

// completeImage completes an operation of an image, and plans the pod.
func (r *harness) completeImage(call string, body any, err *world.Error) {
	r.t.Helper()
	eff := r.expectCall(call)
	record, _ := r.table.Complete(eff.Op)
	r.env.Effects.Reset(&r.table, r.now)
	r.env.Images.HandleCompletion(record.Owner.Name, record,
		world.Event{Time: r.now, Op: eff.Op, Body: body, Err: err}, r.env.Effects)
	r.planAt(r.now.Sub(t0))
}

// A container does not wait for images that it no longer mounts.
func TestChangedImageVolume(t *testing.T) {
	r := readyHarness(t, mountsImage("models:1", v1.VolumeMount{MountPath: "/m"})).planAt(0)
	r.pod.Spec.Spec.Volumes[0].Image.Reference = "models:2"
	r.planAt(time.Second)
	var refs []string
	for _, n := range r.pod.PendingImages {
		refs = append(refs, n.Volume+"="+n.Image)
	}
	if want := []string{"=i", "data=models:2"}; !cmp.Equal(refs, want) {
		t.Errorf("%v, want %v", refs, want)
	}
	if r.env.Images.Images["models:1"] != nil {
		t.Error("the old image is still requested")
	}
	r.pod.startTermination(Termination{Reason: "Deleted"}, r.now)
	r.planAt(2 * time.Second)
	if len(r.pod.PendingImages) != 0 || r.env.Images.Images["models:2"] != nil {
		t.Errorf("a terminating pod waits for %v", r.pod.PendingImages)
	}
}

// A container whose pull secrets are more than they may be is not created, and says why. It is
// created when a secret has changed.
func TestPullSecretsOverBudget(t *testing.T) {
	s := spec(v1.RestartPolicyAlways, "", "web")
	s.Spec.Containers[0].Image = "q.io/i"
	s.Spec.ImagePullSecrets = []v1.LocalObjectReference{{Name: "s"}}
	p := podWith(s)
	p.DirCreated, p.LogDirs = true, []string{"web"}
	r := newHarness(t, p)
	api := &fakeServer{}
	r.env.Objects = &api.store
	var refusals []string
	r.env.CountRefusal = func(name string) { refusals = append(refusals, name) }
	p.watchReferences(r.env)
	holds := func(version, text string) {
		object := secret("s", version, map[string]string{v1.DockerConfigJsonKey: text})
		object.Secret.Type = v1.SecretTypeDockerConfigJson
		api.list(object)
	}
	const want = "the image pull secrets of the pod have 1048576 bytes, and may have 131072"
	holds("1", strings.Repeat(" ", 1<<20))
	cri := p.criPod(r.env)
	for range 2 {
		if !p.recordMisconfiguration(p.specContainer("web"), cri, r.env) {
			t.Fatal("the container can be created")
		}
	}
	problem := p.ProblemOf("web")
	if problem == nil || problem.Reason != "CreateContainerConfigError" || problem.Message != want {
		t.Errorf("%+v, want %s", problem, want)
	}
	if !slices.Equal(refusals, []string{"pull_secret_bytes"}) {
		t.Errorf("refusals %q", refusals)
	}
	r.collect()
	r.expectEvents("Failed containers{web}: Error: " + want)
	if _, found := p.ensureImages(p.specContainer("web"), r.env); found || len(p.PendingImages) > 0 {
		t.Errorf("images %v are waited for", p.PendingImages)
	}
	holds("2", `{"auths": {}}`)
	if p.recordMisconfiguration(p.specContainer("web"), cri, r.env) || p.ProblemOf("web") != nil {
		t.Error("the container cannot be created")
	}
	holds("3", `{`) // the container waits for its image, as with a kubelet
	if p.recordMisconfiguration(p.specContainer("web"), cri, r.env) {
		t.Error("a secret that cannot be decoded counts as one that is too large")
	}
	p.Spec.Spec.Containers[0].ImagePullPolicy = v1.PullAlways
	p.ensureImages(p.specContainer("web"), r.env)
	const undecodable = `Failed to decode image pull secret "s": unexpected end of JSON input`
	if n := p.PendingImage("web"); n == nil || n.Problem == nil || n.Problem.Message != undecodable {
		t.Errorf("%+v", n)
	}
}

// A secret is decoded once for each version, and images are looked up once for each set of secrets.
func TestPullSecretsAreDecodedOnce(t *testing.T) {
	s := spec(v1.RestartPolicyAlways, "", "web")
	s.Spec.ImagePullSecrets = []v1.LocalObjectReference{{Name: "s"}}
	p := podWith(s)
	r := newHarness(t, p)
	api := &fakeServer{}
	r.env.Objects = &api.store
	p.watchReferences(r.env)
	object := secret("s", "1", map[string]string{v1.DockerConfigKey: `{"q.io": {"username": "a"}}`})
	object.Secret.Type = v1.SecretTypeDockercfg
	api.list(object)
	before, _ := p.pullSecrets(r.env)
	first := before.keyring
	api.list(object) // the same version
	if again, _ := p.pullSecrets(r.env); again.keyring != first {
		t.Error("joined again for the same version")
	}
	object.Secret = object.Secret.DeepCopy()
	object.Secret.ResourceVersion = "2"
	api.list(object)
	if again, _ := p.pullSecrets(r.env); again.keyring == first {
		t.Error("not joined again for another version")
	}
}

// A reference that is too long is refused and counted once, and never looked up.
func TestImageReferenceOverBudget(t *testing.T) {
	r := readyHarness(t, func(s *v1.PodSpec) { s.Containers[0].Image = strings.Repeat("a", 1025) })
	var refusals []string
	r.env.CountRefusal = func(name string) { refusals = append(refusals, name) }
	r.planAt(0).planAt(time.Second)
	waiting := status(r.pod).State.Waiting
	if waiting.Reason != "InvalidImageName" || len(waiting.Message) > 200 ||
		!slices.Equal(refusals, []string{"image_reference_bytes"}) {
		t.Errorf("%+v, refusals %q", waiting, refusals)
	}
	r.expectNoCall("ImageStatus")
}

// An image is pulled with the credentials of the pod's pull secrets, once they are known; a missing
// secret is left out. Another version of a secret is another attempt.
func TestPullSecrets(t *testing.T) {
	s := spec(v1.RestartPolicyAlways, "", "web")
	s.Spec.Containers[0].Image = "q.io/i"
	s.Spec.ImagePullSecrets = []v1.LocalObjectReference{{Name: "gone"}, {Name: "s"}, {}}
	holds := func(version, user string) world.Object {
		image := secret("s", version, map[string]string{v1.DockerConfigKey: `{"q.io": {"username": "` +
			user + `"}}`})
		image.Secret.Type = v1.SecretTypeDockercfg
		return image
	}
	p := podWith(s)
	r := newHarness(t, p)
	api := &fakeServer{}
	r.env.Objects = &api.store
	p.watchReferences(r.env)
	if _, found := p.ensureImages(p.specContainer("web"), r.env); found || len(p.PendingImages) > 0 {
		t.Errorf("pending %v before the secrets are known", p.PendingImages)
	}
	for version, user := range []string{"me", "you"} {
		api.list(holds(strconv.Itoa(version), user))
		p.ensureImages(p.specContainer("web"), r.env)
		if len(p.PendingImages) != 1 {
			t.Fatalf("pending %v", p.PendingImages)
		}
		image := r.env.Images.Images[p.PendingImages[0].Image]
		if image == nil || image.Ref != "q.io/i" || len(image.Credentials) != 1 ||
			image.Credentials[0].Username != user {
			t.Errorf("version %d: %+v", version, image)
		}
	}
	api.list()
	p.ensureImages(p.specContainer("web"), r.env)
	if p.PendingImages[0].Image != "q.io/i" {
		t.Errorf("without a secret: %+v", p.PendingImages[0])
	}
}

// The service account of a pod is part of the request only for an image of a plugin that gets
// tokens, and the pod as well if a token is good for one pod only.
func TestPullAccount(t *testing.T) {
	s := spec(v1.RestartPolicyAlways, "", "web")
	s.Spec.ServiceAccountName = "robot"
	p := podWith(s)
	r := newHarness(t, p)
	r.env.Objects = &(&fakeServer{}).store
	tokens := &credentials.Tokens{}
	r.env.Images.Node.Providers = []credentials.Provider{{MatchImages: []string{"q.io"},
		Tokens: tokens}}
	want := image.Account{Namespace: p.Namespace, Name: "robot", Pod: p.Name}
	if got := p.pullAccount("q.io/i", r.env); got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
	tokens.PerToken, want.OnlyFor = true, p.UID
	if got := p.pullAccount("q.io/i", r.env); got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
	none := func(what, ref string) {
		t.Helper()
		if got := p.pullAccount(ref, r.env); got != (image.Account{}) {
			t.Errorf("%s: %+v", what, got)
		}
	}
	none("another image", "docker.io/i")
	s.Spec.ServiceAccountName = ""
	none("no service account", "q.io/i")
	s.Spec.ServiceAccountName, r.env.Objects = "robot", nil
	none("no API server", "q.io/i")
}
