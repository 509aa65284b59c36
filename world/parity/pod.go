package parity

import (
	"fmt"
	"slices"
	"testing"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"seedlet.dev/world"
)

const namespace = "parity"

// pod is the pod of one case: it speaks to the runtime, and fails the test on what should not be.
type pod struct {
	*testing.T
	w         Runtime
	uid, name string
}

// must carries out an effect that has to succeed.
func must[Answer any](p *pod, body any) Answer {
	p.Helper()
	answer, err := p.w.Call(body)
	if err != nil {
		p.Fatalf("%s failed: %v", world.Call(body), err)
	}
	return answer.(Answer)
}

// fails carries out an effect that has to fail with an error of the given kind.
func (p *pod) fails(body any, kind world.ErrorKind) {
	p.Helper()
	_, err := p.w.Call(body)
	if !err.Has(kind) {
		p.Errorf("%s: got %v, want an error of kind %s", world.Call(body), err, kind)
	}
}

func (p *pod) check(is bool, format string, args ...any) {
	p.Helper()
	if !is {
		p.Errorf(format, args...)
	}
}

// labels are those that the agent puts on all that it makes.
func (p *pod) labels() map[string]string {
	return map[string]string{"io.kubernetes.pod.name": p.name,
		"io.kubernetes.pod.namespace": namespace, "io.kubernetes.pod.uid": p.uid}
}

func (p *pod) config(attempt uint32) *runtimeapi.PodSandboxConfig {
	config := p.w.Sandbox()
	config.Metadata = &runtimeapi.PodSandboxMetadata{
		Name: p.name, Namespace: namespace, Uid: p.uid, Attempt: attempt,
	}
	config.Labels = p.labels()
	return config
}

func (p *pod) runSandbox(attempt uint32) *runtimeapi.RunPodSandboxRequest {
	return &runtimeapi.RunPodSandboxRequest{Config: p.config(attempt)}
}

func (p *pod) sandbox(attempt uint32) (id string) {
	p.Helper()
	return must[*runtimeapi.RunPodSandboxResponse](p, p.runSandbox(attempt)).PodSandboxId
}

func (p *pod) sandboxStatus(id string) *runtimeapi.PodSandboxStatus {
	p.Helper()
	req := &runtimeapi.PodSandboxStatusRequest{PodSandboxId: id}
	return must[*runtimeapi.PodSandboxStatusResponse](p, req).Status
}

func (p *pod) stopSandbox(id string) {
	p.Helper()
	must[*runtimeapi.StopPodSandboxResponse](p, &runtimeapi.StopPodSandboxRequest{
		PodSandboxId: id})
}

func (p *pod) removeSandbox(id string) {
	p.Helper()
	must[*runtimeapi.RemovePodSandboxResponse](p, &runtimeapi.RemovePodSandboxRequest{
		PodSandboxId: id})
}

func (p *pod) mySandboxes() *runtimeapi.PodSandboxFilter {
	return &runtimeapi.PodSandboxFilter{LabelSelector: p.labels()}
}

func (p *pod) sandboxes(f *runtimeapi.PodSandboxFilter) []*runtimeapi.PodSandbox {
	p.Helper()
	req := &runtimeapi.ListPodSandboxRequest{Filter: f}
	return must[*runtimeapi.ListPodSandboxResponse](p, req).Items
}

func (p *pod) createContainer(sandbox string, process Process, attempt uint32) (
	req *runtimeapi.CreateContainerRequest) {
	config := p.w.Container(process)
	config.Metadata = &runtimeapi.ContainerMetadata{Name: string(process), Attempt: attempt}
	config.Labels = p.labels()
	config.Labels["io.kubernetes.container.name"] = string(process)
	config.Annotations = map[string]string{"parity/attempt": fmt.Sprint(attempt)}
	config.LogPath = p.logName(process, attempt)
	return &runtimeapi.CreateContainerRequest{
		PodSandboxId: sandbox, Config: config, SandboxConfig: p.config(0),
	}
}

func (p *pod) created(sandbox string, process Process, attempt uint32) (id string) {
	p.Helper()
	req := p.createContainer(sandbox, process, attempt)
	return must[*runtimeapi.CreateContainerResponse](p, req).ContainerId
}

func (p *pod) start(id string) {
	p.Helper()
	must[*runtimeapi.StartContainerResponse](p, &runtimeapi.StartContainerRequest{ContainerId: id})
}

// readyAfter is how long a process may take until it takes a signal in its own way.
const readyAfter = time.Second

func (p *pod) started(sandbox string, process Process, attempt uint32) (id string) {
	p.Helper()
	id = p.created(sandbox, process, attempt)
	p.start(id)
	if process == IgnoresTerm || process == HandlesTerm7 {
		p.w.Sleep(readyAfter)
	}
	return id
}

func (p *pod) status(id string) *runtimeapi.ContainerStatus {
	p.Helper()
	req := &runtimeapi.ContainerStatusRequest{ContainerId: id}
	return must[*runtimeapi.ContainerStatusResponse](p, req).Status
}

// exit waits until a container has exited.
func (p *pod) exit(id string) *runtimeapi.ContainerStatus {
	p.Helper()
	for range 200 {
		if s := p.status(id); s.State == exited {
			return s
		}
		p.w.Sleep(100 * time.Millisecond)
	}
	p.Fatal("the container has not exited after 20 s")
	return nil
}

// stop stops a container. It lets some time pass first: a process that has only just begun has no
// handler for TERM yet, and as the first of its namespace it would miss the signal.
func (p *pod) stop(id string, graceSeconds int64) (took time.Duration) {
	p.Helper()
	p.w.Sleep(500 * time.Millisecond)
	began := p.w.Now()
	must[*runtimeapi.StopContainerResponse](p, &runtimeapi.StopContainerRequest{
		ContainerId: id, Timeout: graceSeconds})
	return p.w.Now().Sub(began)
}

func (p *pod) remove(id string) {
	p.Helper()
	must[*runtimeapi.RemoveContainerResponse](p, &runtimeapi.RemoveContainerRequest{
		ContainerId: id})
}

func (p *pod) containers(f *runtimeapi.ContainerFilter) []*runtimeapi.Container {
	p.Helper()
	req := &runtimeapi.ListContainersRequest{Filter: f}
	return must[*runtimeapi.ListContainersResponse](p, req).Containers
}

// lists checks that a filter selects exactly these containers.
func (p *pod) lists(f *runtimeapi.ContainerFilter, want ...string) {
	p.Helper()
	var got []string
	for _, c := range p.containers(f) {
		got = append(got, c.Id)
	}
	slices.Sort(got)
	slices.Sort(want)
	p.check(slices.Equal(got, want), "filter %v lists %v, want %v", f, got, want)
}

// cleanUp removes what the case has made, whatever became of it.
func (p *pod) cleanUp() {
	for _, s := range p.sandboxes(p.mySandboxes()) {
		_, err := p.w.Call(&runtimeapi.RemovePodSandboxRequest{PodSandboxId: s.Id})
		p.check(err == nil, "cleaning up: %v", err)
	}
}
