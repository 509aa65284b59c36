package core

import (
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"seedlet.dev/world"
)

// A pod that is not started keeps no image: the one that it names is removed when the disk is full,
// and no pod is evicted.
func TestPodThatIsNotStartedKeepsNoImage(t *testing.T) {
	const image = "registry.example.com/big:1"
	for name, change := range map[string]func(*v1.Pod){
		"over its budget": func(p *v1.Pod) { p.Spec.Containers = containersOf("c", 257) },
		"not supported": func(p *v1.Pod) {
			p.Spec.Volumes = []v1.Volume{{Name: "v", VolumeSource: v1.VolumeSource{
				ISCSI: &v1.ISCSIVolumeSource{TargetPortal: "t", IQN: "q"}}}}
		},
		"not admitted": func(p *v1.Pod) { p.Spec.NodeSelector = map[string]string{"no": "node"} },
	} {
		hostile := apiPodNamed("hostile", "u1")
		change(hostile)
		hostile.Spec.Containers[0].Image = image
		n := bootWithPods(nil, apiPodNamed("good", "u2"), hostile)
		present, full := true, false
		n.answer = answerFullDisk(image, &present, &full)
		n.restart()
		n.advance(200 * time.Second) // imageMinimumGCAge passes
		full = true
		n.advance(3 * time.Minute)
		if present {
			t.Errorf("the image of a pod that is %s is kept", name)
		}
		for _, e := range n.events {
			if len(e) > 15 && e[:15] == "Warning Evicted" {
				t.Errorf("beside a pod that is %s: %s", name, e)
			}
		}
	}
}

// answerFullDisk answers for a runtime with one large image, on a disk that is full while it is
// present.
func answerFullDisk(image string, present, full *bool) func(any) any {
	return func(effect any) any {
		switch e := effect.(type) {
		case *runtimeapi.ListImagesRequest:
			l := &runtimeapi.ListImagesResponse{}
			if *present {
				l.Images = []*runtimeapi.Image{{Id: "sha256:big", RepoTags: []string{image}}}
			}
			return l
		case *runtimeapi.RemoveImageRequest:
			*present = *present && e.Image.Image != "sha256:big"
			return &runtimeapi.RemoveImageResponse{}
		case *world.MeasureFilesystem:
			available := int64(500 << 30)
			if *full && *present {
				available = 1 << 20
			}
			return &world.FilesystemMeasured{Device: 1, CapacityBytes: 1 << 40,
				AvailableBytes: available}
		case *world.MeasureTrees:
			return &world.TreesMeasured{Trees: make([]world.TreeMeasured, len(e.Paths))}
		}
		return nil
	}
}
