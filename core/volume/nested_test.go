package volume

import (
	"strconv"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"

	"seedlet.dev/core/budget"
	"seedlet.dev/world"
)

// The agent creates the mount points in a volume that containers can only read, before it writes
// the volume.
func TestNestedMountPoints(t *testing.T) {
	sub := v1.VolumeMount{Name: "v", MountPath: "/sub", SubPath: "k"}
	for _, c := range []struct {
		name   string
		mounts []v1.VolumeMount
		want   string
	}{
		{"nothing is nested", []v1.VolumeMount{{Name: "v", MountPath: "/etc/v"},
			{Name: "w", MountPath: "/etc/v-w"}, {Name: "w", MountPath: "/etc"}}, ""},
		{"nested", []v1.VolumeMount{{Name: "w", MountPath: "/etc/v/x/y/"},
			{Name: "v", MountPath: "/etc/v"}}, "x/y"},
		{"relative", []v1.VolumeMount{{Name: "v", MountPath: "v"}, {Name: "w", MountPath: "v/./x"}}, "x"},
		{"nested in another one", []v1.VolumeMount{{Name: "v", MountPath: "/v"},
			{Name: "w", MountPath: "/v/x/y"}, {Name: "w", MountPath: "/v/x"},
			{Name: "w", MountPath: "/v/x-y"}, {Name: "w", MountPath: "/v/x.y"}}, "x x-y x.y"},
		{"at a key", []v1.VolumeMount{{Name: "v", MountPath: "/v"}, {Name: "w", MountPath: "/v/k"},
			{Name: "w", MountPath: "/v/k2"}}, "k2"},
		{"mounted twice", []v1.VolumeMount{{Name: "v", MountPath: "/v"}, {Name: "w", MountPath: "/v/x"},
			{Name: "v", MountPath: "/u"}, {Name: "w", MountPath: "/u/y"}}, "x y"},
		{"the root", []v1.VolumeMount{{Name: "v", MountPath: "/"}, {Name: "w", MountPath: "/x"}}, "x"},
		{"in a sub-path", []v1.VolumeMount{sub, {Name: "w", MountPath: "/sub/x"}}, ""},
	} {
		pod := withObjects(newPod(configMapVolume(nil)), configMap("a", "1",
			map[string]string{"k": "1"}))
		pod.Spec.Spec.Containers = []v1.Container{{VolumeMounts: c.mounts}}
		done := runSteps(&Set{}, pod, "")
		var got []string
		for _, step := range done[1 : len(done)-1] {
			const dir = "/pods/u/volumes/kubernetes.io~configmap/v/"
			made, is := step.(*world.MakeDir)
			if !is || made.Mode != 0o755 || !strings.HasPrefix(made.Path, dir) {
				t.Fatalf("%s: step %+v", c.name, step)
			}
			got = append(got, strings.TrimPrefix(made.Path, dir))
		}
		if strings.Join(got, " ") != c.want {
			t.Errorf("%s: %q, want %q", c.name, got, c.want)
		}
	}
}

// Mount points of init and ephemeral containers count as well, and those in memory are made once
// the memory is mounted.
func TestNestedMountPointsInMemory(t *testing.T) {
	pod := withObjects(newPod(v1.Volume{Name: "v", VolumeSource: v1.VolumeSource{
		Secret: &v1.SecretVolumeSource{SecretName: "a"}}}), secret("a", "1", nil))
	mounts := func(at string) []v1.VolumeMount {
		return []v1.VolumeMount{{Name: "v", MountPath: "/v"}, {Name: "w", MountPath: "/v/" + at}}
	}
	pod.Spec.Spec.InitContainers = []v1.Container{{VolumeMounts: mounts("a")}}
	pod.Spec.Spec.EphemeralContainers = []v1.EphemeralContainer{{
		EphemeralContainerCommon: v1.EphemeralContainerCommon{VolumeMounts: mounts("b")}}}
	var calls []string
	for _, step := range runSteps(&Set{}, pod, "") {
		calls = append(calls, world.CallName(step))
	}
	if got := strings.Join(calls, " "); got != "MakeDir MountMemory MakeDir MakeDir WriteDir" {
		t.Error(got)
	}
}

func TestNestedMountPointsAreBounded(t *testing.T) {
	mounts := []v1.VolumeMount{{Name: "v", MountPath: "/v"}}
	for i := range budget.NestedMountsMax + 1 {
		mounts = append(mounts, v1.VolumeMount{Name: "w", MountPath: "/v/" + strconv.Itoa(i)})
	}
	pod := withObjects(newPod(configMapVolume(nil)), configMap("a", "1", nil))
	pod.Spec.Spec.Containers = []v1.Container{{VolumeMounts: mounts}}
	s := &Set{}
	if done := runSteps(s, pod, ""); len(done) > 0 || !strings.Contains(s.Problem(), "101 volumes") {
		t.Errorf("%v, %s", done, s.Problem())
	}
}
