package e2e

import (
	"strings"
	"testing"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

var imageParts = []part{
	{"a missing image is pulled once it is published", false, func(t *testing.T, s *suite) {
		image := s.node.Registry().Address + "/seedlet/late:v1"
		s.runPod(t, "late", `
  containers:
  - {name: main, image: `+image+`, args: [sleep]}
  - {name: beside, image: sample, args: [sleep]}`)
		s.waitRunning(t, "late", "beside", 0) // a container does not wait for another one's image
		// Before the second attempt, the reason is ErrImagePull: see testPullSecrets.
		message := s.waitWaiting(t, "late", "main", "ImagePullBackOff")
		if !strings.HasPrefix(message, "Back-off pulling image \""+image+"\"") {
			t.Errorf("the message is %q", message)
		}
		if err := s.node.Registry().Publish(t.Context(), "seedlet/late:v1"); err != nil {
			t.Fatal(err)
		}
		s.eventually(t, "the container runs once the image is published", func() bool {
			return s.newestContainer(t, "late", "main").GetState() == running
		})
	}},
	{"imagePullPolicy Never waits for the image", true, func(t *testing.T, s *suite) {
		const name = "seedlet/brought:v1"
		image := s.node.Registry().Address + "/" + name
		if err := s.node.Registry().Publish(t.Context(), name); err != nil {
			t.Fatal(err)
		}
		s.runPod(t, "brought", `
  containers:
  - {name: main, image: `+image+`, imagePullPolicy: Never, args: [sleep]}`)
		s.waitWaiting(t, "brought", "main", "ErrImageNeverPull")
		_, err := s.node.ImageService().PullImage(t.Context(), &runtimeapi.PullImageRequest{
			Image: &runtimeapi.ImageSpec{Image: image}})
		if err != nil {
			t.Fatal(err)
		}
		s.waitRunning(t, "brought", "main", 0)
	}},
	{"an invalid image name is reported", true, func(t *testing.T, s *suite) {
		s.runPod(t, "badname", `
  containers:
  - {name: main, image: "No Such:Name:", args: [sleep]}`)
		s.waitWaiting(t, "badname", "main", "InvalidImageName")
	}},
}
