package pod

import (
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"seedlet.dev/core/image"
	"seedlet.dev/world"
)

// ready is a rig of a pod whose one container lacks nothing any more but its images.
func ready(t *testing.T, change func(*v1.PodSpec)) *rig {
	s := spec(v1.RestartPolicyAlways, "", "web")
	s.Spec.Containers[0].ImagePullPolicy = v1.PullIfNotPresent
	change(&s.Spec)
	p := facts(s)
	p.Sandboxes[0].IPs, p.Dir, p.LogDirs = []string{"10.0.0.9"}, true, []string{"web"}
	r := newRig(t, p)
	r.env.Images.Images["i"].Waiters = []image.Waiter{{UID: "other"}} // so that it stays known
	p.Storage.Hosts = sumOf([]byte(p.hostsFile(r.env.Node)))
	return r
}

func (r *rig) create(t *testing.T) *runtimeapi.ContainerConfig {
	t.Helper()
	return r.want("CreateContainer").Body.(*runtimeapi.CreateContainerRequest).Config
}

func nonRoot(s *v1.PodSpec) {
	s.SecurityContext = &v1.PodSecurityContext{RunAsNonRoot: ref(true)}
}

// A container that must not run as root is made only if its image does not.
func TestRootByImage(t *testing.T) {
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
		r := ready(t, nonRoot)
		r.env.Images.Images["i"].User = test.user
		r.at(0)
		if test.want == "" {
			got := r.create(t).Linux.SecurityContext
			if got.RunAsUser.GetValue() != 7 || got.RunAsUsername != "" {
				t.Errorf("%v", got)
			}
			continue
		}
		r.none("CreateContainer")
		is := status(r.pod).State.Waiting
		if is.Reason != "CreateContainerConfigError" || is.Message != test.want {
			t.Errorf("%+v, want %s", is, test.want)
		}
		if want := t0.Add(failureFirst); !r.wake.Equal(want) {
			t.Errorf("it is called again at %v, want %v", r.wake, want)
		}
	}
}

// What an image has wrong may be mended: it is tried again, and shown as wrong until it is right.
func TestRootByImageIsMended(t *testing.T) {
	r := ready(t, nonRoot).at(0)
	r.none("CreateContainer")
	r.env.Images.Images["i"].User = image.User{UID: ref(int64(7))}
	r.at(failureFirst / 2).none("CreateContainer")
	r.at(failureFirst).want("CreateContainer")
	if is := status(r.pod).State.Waiting; is.Reason != "CreateContainerConfigError" {
		t.Errorf("%+v before the container is made", is)
	}
	r.answer("CreateContainer", &runtimeapi.CreateContainerResponse{ContainerId: "c"}, nil)
	if r.pod.problem("web") != nil {
		t.Errorf("%+v", r.pod.problem("web"))
	}
}

// Whom a container runs as is told, even if it is the image's choice. A group needs it.
func TestTheUserThatIsTold(t *testing.T) {
	group := &v1.SecurityContext{RunAsGroup: ref(int64(5))}
	for _, test := range []struct {
		own  *v1.SecurityContext
		user image.User
		uid  *runtimeapi.Int64Value
		name string
	}{
		{nil, image.User{}, number64(0), ""},
		{nil, image.User{UID: ref(int64(7))}, number64(7), ""},
		{group, image.User{Name: "www"}, nil, "www"},
		{group, image.User{}, number64(0), ""},
		{&v1.SecurityContext{RunAsUser: ref(int64(9))}, image.User{Name: "www"}, number64(9), ""},
	} {
		p := secured(nil, test.own)
		got := p.containerSecurity(p.want("web"), test.user, &Node{})
		if got.RunAsUser.String() != test.uid.String() || got.RunAsUsername != test.name {
			t.Errorf("%+v: %v", test, got)
		}
	}
}

// Only a container that has no user of its own waits for that of its image.
func TestWhoWaitsForTheUser(t *testing.T) {
	for own, asked := range map[bool]string{true: "CreateContainer", false: ""} {
		r := ready(t, func(s *v1.PodSpec) {
			if own {
				s.SecurityContext = &v1.PodSecurityContext{RunAsUser: ref(int64(7))}
			}
		})
		r.env.Images.Images["i"].UserOf = ""
		if got := strings.Join(r.at(0).calls(), " "); got != asked {
			t.Errorf("with a user of its own, %v: %q", own, got)
		}
	}
}

func mounts(image string, mount v1.VolumeMount) func(*v1.PodSpec) {
	mount.Name = "data"
	return func(s *v1.PodSpec) {
		s.Volumes = []v1.Volume{{Name: "data", VolumeSource: v1.VolumeSource{
			Image: &v1.ImageVolumeSource{Reference: image, PullPolicy: v1.PullIfNotPresent}}}}
		s.Containers[0].VolumeMounts = []v1.VolumeMount{mount}
	}
}

// An image volume is mounted by the runtime, read-only, by the id of the image.
func TestAnImageIsMounted(t *testing.T) {
	r := ready(t, mounts("models:1", v1.VolumeMount{MountPath: "/m", SubPathExpr: "a/b"}))
	r.env.Images.Images["models:1"] = &image.Image{Name: "models:1", Ref: "models:1", ID: "sha256:m",
		CheckedAt: t0.Add(time.Hour)}
	got := r.at(0).create(t).Mounts[0]
	want := &runtimeapi.Mount{ContainerPath: "/m", Readonly: true, ImageSubPath: "a/b",
		Image: &runtimeapi.ImageSpec{Image: "sha256:m", UserSpecifiedImage: "models:1"}}
	if got.String() != want.String() {
		t.Errorf("got %v, want %v", got, want)
	}
	if len(r.pod.Needs) != 0 || len(r.env.Images.Images["i"].Waiters) != 1 {
		t.Errorf("it still waits: %+v", r.pod.Needs)
	}
}

// A container waits for what it mounts, and the others do not; why is told in the words of pulls.
func TestAContainerWaitsForAnImageVolume(t *testing.T) {
	r := ready(t, func(s *v1.PodSpec) {
		mounts("models:1", v1.VolumeMount{MountPath: "/m"})(s)
		other := s.Containers[0]
		other.Name, other.VolumeMounts = "other", nil
		s.Containers = append(s.Containers, other)
	})
	r.pod.LogDirs = append(r.pod.LogDirs, "other")
	if got := r.at(0).create(t).Metadata.Name; got != "other" {
		t.Errorf("%s is made first", got)
	}
	if is := status(r.pod).State.Waiting; is.Reason != "ContainerCreating" {
		t.Errorf("%+v", is)
	}
	r.answer("CreateContainer", &runtimeapi.CreateContainerResponse{ContainerId: "c"}, nil)
	r.answer("StartContainer", &runtimeapi.StartContainerResponse{}, nil)
	r.store("models:1").answerImage("ImageStatus", &runtimeapi.ImageStatusResponse{}, nil)
	r.store("models:1").answerImage("PullImage", nil,
		world.Errorf(world.KindInternal, "PullImage", "no route"))
	is := status(r.pod).State.Waiting
	if is.Reason != "ErrImagePull" || is.Message != "no route" {
		t.Errorf("%+v", is)
	}
}

// store plans an image.
func (r *rig) store(ref string) *rig {
	r.env.Out.Begin(&r.table, r.now)
	r.env.Images.Plan(ref, false, r.env.Out, r.env.Touch)
	r.take()
	return r
}

// answerImage answers a question about an image, and plans the pod.
func (r *rig) answerImage(call string, body any, err *world.Error) {
	r.t.Helper()
	eff := r.want(call)
	record, _ := r.table.Settle(eff.Op)
	r.env.Out.Begin(&r.table, r.now)
	r.env.Images.Answered(record.Owner.Name, record,
		world.Event{Time: r.now, Op: eff.Op, Body: body, Err: err}, r.env.Out)
	r.at(r.now.Sub(t0))
}

// What a container no longer mounts is not waited for.
func TestAnImageVolumeThatChanges(t *testing.T) {
	r := ready(t, mounts("models:1", v1.VolumeMount{MountPath: "/m"})).at(0)
	r.pod.Spec.Spec.Volumes[0].Image.Reference = "models:2"
	r.at(time.Second)
	var refs []string
	for _, n := range r.pod.Needs {
		refs = append(refs, n.Volume+"="+n.Image)
	}
	if want := []string{"=i", "data=models:2"}; !cmp.Equal(refs, want) {
		t.Errorf("%v, want %v", refs, want)
	}
	if r.env.Images.Images["models:1"] != nil {
		t.Error("the old image is still looked for")
	}
	r.pod.end(Kill{Reason: "Deleted"}, r.now)
	r.at(2 * time.Second)
	if len(r.pod.Needs) != 0 || r.env.Images.Images["models:2"] != nil {
		t.Errorf("a pod that ends waits for %v", r.pod.Needs)
	}
}

// An image is pulled with what the pull secrets of the pod hold for it, once they are known; one
// that is not there is left out. Another version of a secret is another try.
func TestPullSecrets(t *testing.T) {
	s := spec(v1.RestartPolicyAlways, "", "web")
	s.Spec.Containers[0].Image = "q.io/i"
	s.Spec.ImagePullSecrets = []v1.LocalObjectReference{{Name: "gone"}, {Name: "s"}, {}}
	holds := func(version, user string) world.Object {
		is := secret("s", version, map[string]string{v1.DockerConfigKey: `{"q.io": {"username": "` +
			user + `"}}`})
		is.Secret.Type = v1.SecretTypeDockercfg
		return is
	}
	p := facts(s)
	r := newRig(t, p)
	api := &server{}
	r.env.Objects = &api.store
	p.watch(r.env)
	if p.images(p.want("web"), r.env) != nil || len(p.Needs) > 0 {
		t.Errorf("needs %v before the secrets are known", p.Needs)
	}
	for version, user := range []string{"me", "you"} {
		api.tell(holds(strconv.Itoa(version), user))
		p.images(p.want("web"), r.env)
		if len(p.Needs) != 1 {
			t.Fatalf("needs %v", p.Needs)
		}
		is := r.env.Images.Images[p.Needs[0].Image]
		if is == nil || is.Ref != "q.io/i" || len(is.Tries) != 1 || is.Tries[0].Username != user {
			t.Errorf("version %d: %+v", version, is)
		}
	}
	api.tell()
	p.images(p.want("web"), r.env)
	if p.Needs[0].Image != "q.io/i" {
		t.Errorf("without a secret: %+v", p.Needs[0])
	}
}

// A pod moves while something is made or looked for; not while it waits for an image that is being
// pulled or cannot be had, or for nothing, and not once it is being ended.
func TestMoving(t *testing.T) {
	for _, c := range []struct {
		name string
		pod  Pod
		want bool
	}{
		{"nothing to do", Pod{Stage: Syncing}, false},
		{"something is made", Pod{Stage: Syncing, Op: 1}, true},
		{"an image is looked for", Pod{Stage: Syncing, Needs: []Need{{}}}, true},
		{"it is pulled", Pod{Stage: Syncing, Needs: []Need{{Pulling: t0}}}, false},
		{"it cannot be had", Pod{Stage: Syncing, Needs: []Need{{Problem: &image.Problem{}}}}, false},
		{"it is being ended", Pod{Stage: Terminating, Op: 1}, false},
	} {
		if got := c.pod.Moving(); got != c.want {
			t.Errorf("%s: moving %t", c.name, got)
		}
	}
}
