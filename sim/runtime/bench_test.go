package runtime

import (
	"fmt"
	"testing"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"seedlet.dev/world/parity"
)

// populate makes pods of two running containers each.
func (w *simWorld) populate(pods int) {
	for i := range pods {
		config := w.Sandbox()
		config.Metadata = &runtimeapi.PodSandboxMetadata{
			Name: fmt.Sprint("pod-", i), Namespace: "default", Uid: fmt.Sprint("uid-", i)}
		config.Labels = map[string]string{"io.kubernetes.pod.uid": config.Metadata.Uid}
		body, err := w.Call(&runtimeapi.RunPodSandboxRequest{Config: config})
		if err != nil {
			panic(err)
		}
		for j := range 2 {
			c := w.Container(parity.Runs)
			c.Metadata = &runtimeapi.ContainerMetadata{Name: fmt.Sprint("c", j)}
			made, err := w.Call(&runtimeapi.CreateContainerRequest{SandboxConfig: config, Config: c,
				PodSandboxId: body.(*runtimeapi.RunPodSandboxResponse).PodSandboxId})
			if err != nil {
				panic(err)
			}
			id := made.(*runtimeapi.CreateContainerResponse).ContainerId
			if _, err := w.Call(&runtimeapi.StartContainerRequest{ContainerId: id}); err != nil {
				panic(err)
			}
		}
	}
}

// BenchmarkRelist is what one virtual second costs the runtime at rest: both lists, of 30
// sandboxes and 60 containers.
func BenchmarkRelist(b *testing.B) {
	w := newWorld(1, nil)
	w.populate(30)
	relist(b, w, func() {})
}

// BenchmarkRelistOfChange has one container exit and another start between two relists.
func BenchmarkRelistOfChange(b *testing.B) {
	w := newWorld(1, nil)
	w.populate(30)
	n := 0
	relist(b, w, func() {
		n++
		w.runtime.changed(w.runtime.containerOrder[n%60])
		w.runtime.changed(w.runtime.containerOrder[(n+30)%60])
	})
}

func relist(b *testing.B, w *simWorld, change func()) {
	listContainers := &runtimeapi.ListContainersRequest{}
	listSandboxes := &runtimeapi.ListPodSandboxRequest{}
	b.ReportAllocs()
	for b.Loop() {
		change()
		first, second := w.send(listContainers), w.send(listSandboxes)
		w.Sleep(time.Second)
		if w.answers[first].Body == nil || w.answers[second].Body == nil {
			b.Fatal("no answer within a second")
		}
		delete(w.answers, first)
		delete(w.answers, second)
	}
}
