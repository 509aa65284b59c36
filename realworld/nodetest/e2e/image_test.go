package e2e

import (
	"strings"
	"testing"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

var imageParts = []part{
	{"an image that is missing is pulled when it comes", false, func(t *testing.T, s *scene) {
		image := s.node.Registry().Address + "/seedlet/late:v1"
		s.run(t, "late", `
  containers:
  - {name: main, image: `+image+`, args: [sleep]}
  - {name: beside, image: sample, args: [sleep]}`)
		message := s.waitsBecause(t, "late", "main", "ErrImagePull")
		if !strings.Contains(message, image) {
			t.Errorf("the message is %q", message)
		}
		s.runs(t, "late", "beside", 0) // nobody waits for another one's image
		message = s.waitsBecause(t, "late", "main", "ImagePullBackOff")
		if !strings.HasPrefix(message, "Back-off pulling image \""+image+"\"") {
			t.Errorf("the message is %q", message)
		}
		if err := s.node.Registry().Publish(t.Context(), "seedlet/late:v1"); err != nil {
			t.Fatal(err)
		}
		s.eventually(t, 2*soon, "it runs once the image is there", func() bool {
			return s.container(t, "late", "main").GetState() == running
		})
	}},
	{"an image that may not be pulled is waited for", true, func(t *testing.T, s *scene) {
		const name = "seedlet/brought:v1"
		image := s.node.Registry().Address + "/" + name
		if err := s.node.Registry().Publish(t.Context(), name); err != nil {
			t.Fatal(err)
		}
		s.run(t, "brought", `
  containers:
  - {name: main, image: `+image+`, imagePullPolicy: Never, args: [sleep]}`)
		s.waitsBecause(t, "brought", "main", "ErrImageNeverPull")
		_, err := s.node.ImageService().PullImage(t.Context(), &runtimeapi.PullImageRequest{
			Image: &runtimeapi.ImageSpec{Image: image}})
		if err != nil {
			t.Fatal(err)
		}
		s.runs(t, "brought", "main", 0)
	}},
	{"a name that is none", true, func(t *testing.T, s *scene) {
		s.run(t, "badname", `
  containers:
  - {name: main, image: "No Such:Name:", args: [sleep]}`)
		s.waitsBecause(t, "badname", "main", "InvalidImageName")
	}},
}
