package runtime

import (
	"strings"
	"testing"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"seedlet.dev/sim/truth"
	"seedlet.dev/world"
)

const model = "registry.test/model:1"

// imageWorld has one image that is not present, and one whose user is 1000.
func imageWorld(t *testing.T) (w *simWorld, sandbox string) {
	w = newWorld(1, func(o *Options) {
		o.Images = func(ref string, _ int) Image {
			return Image{Absent: ref == missing, User: map[string]string{pullable: "1000:2000"}[ref]}
		}
	})
	return w, w.mustRun(t, "u")
}

// A container is created with all of its image mounts, or not at all.
func TestImageMounts(t *testing.T) {
	imageSpec := func(ref string) *runtimeapi.ImageSpec { return &runtimeapi.ImageSpec{Image: ref} }
	for _, test := range []struct {
		mount *runtimeapi.Mount
		kind  world.ErrorKind
		why   string
	}{
		{&runtimeapi.Mount{Image: imageSpec(model), Readonly: true}, "", ""},
		{&runtimeapi.Mount{Image: imageSpec(missing), Readonly: true}, world.KindNotFound,
			`failed to resolve image "` + missing + `": not found`},
		{&runtimeapi.Mount{Image: imageSpec(model)}, world.KindInternal, "readonly must be true"},
		{&runtimeapi.Mount{Image: imageSpec(""), Readonly: true}, world.KindInternal, "not specified"},
		{&runtimeapi.Mount{Image: imageSpec(model), Readonly: true, HostPath: "/a"}, world.KindInternal,
			"hostpath must be empty"},
	} {
		w, sandbox := imageWorld(t)
		create := w.createRequest(sandbox, "u", "app", 0).(*runtimeapi.CreateContainerRequest)
		create.Config.Mounts = []*runtimeapi.Mount{test.mount}
		_, err := w.Call(create)
		switch last := w.facts[len(w.facts)-1]; {
		case test.why == "" && (err != nil || last.Kind != truth.ContainerCreated ||
			strings.Join(last.ImageMounts, " ") != model):
			t.Errorf("%v: %v, %+v", test.mount, err, last)
		case test.why != "" && (!err.Has(test.kind) || !strings.Contains(err.Message, test.why)):
			t.Errorf("%v: %v, want %s", test.mount, err, test.why)
		}
		create.Config.Mounts = nil
		create.Config.Metadata.Attempt++
		if _, err := w.Call(create); err != nil {
			t.Errorf("after %v: %v", test.mount, err)
		}
	}
}

// The user of a container is the one of the request, or else the one of the image.
func TestContainerUser(t *testing.T) {
	number := func(n int64) *runtimeapi.Int64Value { return &runtimeapi.Int64Value{Value: n} }
	for _, test := range []struct {
		context *runtimeapi.LinuxContainerSecurityContext
		image   string
		want    string
	}{
		{&runtimeapi.LinuxContainerSecurityContext{}, pullable, "1000"},
		{&runtimeapi.LinuxContainerSecurityContext{}, model, "0"},
		{&runtimeapi.LinuxContainerSecurityContext{RunAsUser: number(7)}, pullable, "7"},
		{&runtimeapi.LinuxContainerSecurityContext{RunAsUsername: "www"}, pullable, "www"},
		{&runtimeapi.LinuxContainerSecurityContext{RunAsGroup: number(7)}, pullable, "refused"},
	} {
		w, sandbox := imageWorld(t)
		create := w.createRequest(sandbox, "u", "app", 0).(*runtimeapi.CreateContainerRequest)
		create.Config.Image.Image = test.image
		create.Config.Linux = &runtimeapi.LinuxContainerConfig{SecurityContext: test.context}
		_, err := w.Call(create)
		got := w.facts[len(w.facts)-1].User
		if err != nil {
			got = "refused"
		}
		if got != test.want {
			t.Errorf("%v of %s: %s, want %s (%v)", test.context, test.image, got, test.want, err)
		}
	}
	w, _ := imageWorld(t)
	body, _ := w.Call(&runtimeapi.ImageStatusRequest{Image: &runtimeapi.ImageSpec{Image: pullable}})
	if image := body.(*runtimeapi.ImageStatusResponse).Image; image.Uid.GetValue() != 1000 ||
		image.Username != "" {
		t.Errorf("%v", image)
	}
}
