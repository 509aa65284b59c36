package runtime

import (
	"fmt"
	"testing"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"seedlet.dev/world/parity"
)

// populate creates pods with two running containers each.
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

// BenchmarkRelist measures one relist of an idle runtime: both lists, with 30 sandboxes and 60
// containers.
func BenchmarkRelist(b *testing.B) {
	w := newWorld(1, nil)
	w.populate(30)
	relist(b, w, func() {})
}

// BenchmarkRelistOfChange measures a relist in which two containers have changed.
func BenchmarkRelistOfChange(b *testing.B) {
	w := newWorld(1, nil)
	w.populate(30)
	n := 0
	relist(b, w, func() {
		n++
		w.runtime.invalidate(w.runtime.containerOrder[n%60])
		w.runtime.invalidate(w.runtime.containerOrder[(n+30)%60])
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
		if w.completions[first].Body == nil || w.completions[second].Body == nil {
			b.Fatal("no completion within a second")
		}
		delete(w.completions, first)
		delete(w.completions, second)
	}
}
