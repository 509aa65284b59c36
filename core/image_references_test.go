package core

import (
	"strings"
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
			p.Spec.ResourceClaims = []v1.PodResourceClaim{{Name: "x"}}
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

// The image of a pod that has no sandbox yet is kept by a periodic round, although the disk is
// nearly full, and not by one for an eviction.
func TestImageOfPodWithoutSandbox(t *testing.T) {
	const image = "registry.example.com/big:1"
	waiting := apiPodNamed("a", "u1")
	waiting.Spec.Containers[0].Image = image
	n := bootWithPods(nil)
	n.failingCalls = map[string]bool{"RunPodSandbox": true}
	n.apiServer.put(waiting)
	present, full, available := true, false, int64(50<<30)
	answerDisk := answerFullDisk(image, &present, &full)
	n.answer = func(effect any) any {
		if _, is := effect.(*world.MeasureFilesystem); is {
			return &world.FilesystemMeasured{Device: 1, CapacityBytes: 1 << 40, AvailableBytes: available}
		}
		return answerDisk(effect)
	}
	n.evictionHard = map[string]string{"nodefs.available": "1%"}
	n.restart()
	n.advance(15 * time.Minute)
	if failed := "FreeDiskSpaceFailed"; !present || !strings.Contains(n.takeEvents(), failed) {
		t.Errorf("after periodic rounds: present %t, want an event %s", present, failed)
	}
	available = 1 << 20
	if n.advance(3 * time.Minute); present {
		t.Error("the image is kept while the node has to evict")
	}
}

// The image of a static pod that waits for room is kept, also while the node has to evict.
func TestImageOfStaticPodThatWaits(t *testing.T) {
	const image = "registry.example.com/big:1"
	waiting := strings.Replace(staticOf("b", "1"), "image: i", "image: "+image, 1)
	n := newNode(map[string]string{"a.yaml": staticOf("a", "1500m"), "b.yaml": waiting})
	present, full := true, false
	n.answer = answerFullDisk(image, &present, &full)
	n.restart()
	n.advance(200 * time.Second)
	if got := n.phases()["b-n1"]; got != v1.PodPending || len(n.containers) != 1 {
		t.Fatalf("%s, %d containers run", got, len(n.containers))
	}
	full = true
	if n.advance(10 * time.Minute); !present {
		t.Error("the image is removed")
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
